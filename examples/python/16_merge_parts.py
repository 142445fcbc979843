"""Attention over keys in parts, put together by their LSEs: what ring attention and cascades do."""

import numpy as np

import heed

b, s_q, s_k, h, d = 2, 8, 90, 4, 32
rng = np.random.default_rng(0)
q = rng.standard_normal((b, s_q, h, d), dtype=np.float32)
k, v = (rng.standard_normal((b, s_k, h, d), dtype=np.float32) for _ in range(2))

parts = [heed.attention(q, k[:, at], v[:, at], return_lse=True) for at in (slice(0, 50), slice(50, 50), slice(50, 90))]

# O = sum of exp(lse_p - L) O_p with L = log(sum of exp(lse_p)); an empty part has lse -inf and counts for nothing.
lses = np.stack([lse for _, lse in parts])  # [part, b, h, s_q], natural logarithms
whole_lse = np.logaddexp.reduce(lses, 0)
weights = np.exp(lses - whole_lse).transpose(0, 1, 3, 2)[..., None]  # [part, b, s_q, h, 1]
merged = sum(weight * o for weight, (o, _) in zip(weights, parts))

expected, expected_lse = heed.attention(q, k, v, return_lse=True)
error = max(np.abs(merged - expected).max(), np.abs(whole_lse - expected_lse).max())
print(f"three parts, one of them empty: differs from the whole by {error:.1e}")
assert error < 1e-5
