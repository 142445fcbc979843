"""Numbers added to the scores: a bias of any broadcast shape, and ALiBi slopes."""

import numpy as np

import heed

b, s, h, d = 2, 20, 4, 32
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((b, s, h, d), dtype=np.float32) for _ in range(3))

for shape in [(s,), (s, s), (h, s, s), (b, 1, s, s), (b, h, s, s), (1, h, 1, s)]:
    bias = rng.standard_normal(shape, dtype=np.float32)
    o = heed.attention(q, k, v, bias=bias)
    whole = heed.attention(q, k, v, bias=np.broadcast_to(bias, (b, h, s, s)).copy())
    np.testing.assert_allclose(o, whole, atol=1e-5)

# -inf hides a key as a mask does.
hidden = np.where(rng.random((s, s)) < 0.5, -np.inf, 0).astype(np.float32)
np.testing.assert_allclose(heed.attention(q, k, v, bias=hidden), heed.attention(q, k, v, mask=hidden == 0), atol=1e-6)

# ALiBi: a slope for each head times the distance. Nobody stores the matrix.
slopes = (2.0 ** -np.arange(1, h + 1)).astype(np.float32)
distance = np.abs(np.arange(s)[:, None] - np.arange(s)[None, :]).astype(np.float32)
by_slopes = heed.attention(q, k, v, alibi_slopes=slopes, causal=True)
by_bias = heed.attention(q, k, v, bias=-slopes[:, None, None] * distance, causal=True)
error = np.abs(by_slopes - by_bias).max()
print(f"ALiBi by slopes and as a bias differ by {error:.1e}")
assert error < 1e-5
