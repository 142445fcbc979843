"""A sink logit in every row's denominator (gpt-oss), and scores squeezed by tanh (Gemma-2)."""

import numpy as np

import heed

b, s, h, d, cap = 2, 24, 4, 32, 3.0
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((b, s, h, d), dtype=np.float32) for _ in range(3))
sink = rng.standard_normal(h, dtype=np.float32)

o, lse = heed.attention(q, k, v, sink=sink, softcap=cap, return_lse=True)

scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(d)
scores = cap * np.tanh(scores / cap)
total = np.exp(scores).sum(-1) + np.exp(sink)[None, :, None]
expected = np.einsum("bhij,bjhd->bihd", np.exp(scores) / total[..., None], v)
np.testing.assert_allclose(o, expected, atol=1e-5)
np.testing.assert_allclose(lse, np.log(total), atol=1e-5)

# Attention that may look nowhere: with a large sink o is nearly 0.
quiet = heed.attention(q, k, v, sink=np.full(h, 20, np.float32))
print(f"largest element {np.abs(o).max():.2f}; with a sink of 20 it is {np.abs(quiet).max():.1e}")
assert np.abs(quiet).max() < 1e-4
