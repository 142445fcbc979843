"""Attention of NumPy arrays in one call, and the formula beside it."""

import numpy as np

import heed

b, s, h, d = 2, 16, 4, 32
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((b, s, h, d), dtype=np.float32) for _ in range(3))  # [batch, sequence, head, dim]

o = heed.attention(q, k, v)

scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(d)
weights = np.exp(scores - scores.max(-1, keepdims=True))
weights /= weights.sum(-1, keepdims=True)
expected = np.einsum("bhij,bjhd->bihd", weights, v)

error = np.abs(o - expected).max()
print(f"o is {o.shape}, {o.dtype}; largest difference from the formula {error:.1e}")
assert error < 1e-5
