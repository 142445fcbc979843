"""Dropout that can be replayed: a seed and an offset say what is lost, on every engine and in every layout."""

import numpy as np

import heed

b, s, h, d, p = 2, 64, 4, 32, 0.25
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((b, s, h, d), dtype=np.float32) for _ in range(3))

words = np.zeros((b, h, s, s), np.uint16)
o = heed.attention(q, k, v, dropout_p=p, seed=1234, offset=5, randval=words)
assert np.array_equal(heed.attention(q, k, v, dropout_p=p, seed=1234, offset=5), o)
assert not np.array_equal(heed.attention(q, k, v, dropout_p=p, seed=1234, offset=6), o)

# The words are those of Philox, and say what was kept: the formula, with the same entries lost.
for entry in range(b):
    for head in range(h):
        assert np.array_equal(words[entry, head], heed.reference.words(1234, 5, entry * h + head, s, s))
scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(d)
weights = np.exp(scores - scores.max(-1, keepdims=True))
weights /= weights.sum(-1, keepdims=True)
kept = words >= int(p * 65536 + 0.5)
expected = np.einsum("bhij,bjhd->bihd", np.where(kept, weights / (1 - p), 0), v)
error = np.abs(o - expected).max()
print(f"{1 - kept.mean():.1%} of the entries were lost (p = {p:.0%}); the formula with these differs by {error:.1e}")
assert error < 1e-5 and abs(1 - kept.mean() - p) < 0.01
