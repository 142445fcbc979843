"""Groups of query heads that share one key/value head, and head dims of K and V that differ."""

import numpy as np

import heed

b, s, h, h_k, d, d_v = 2, 24, 12, 3, 64, 40
rng = np.random.default_rng(0)
q = rng.standard_normal((b, s, h, d), dtype=np.float32)
k = rng.standard_normal((b, s, h_k, d), dtype=np.float32)
v = rng.standard_normal((b, s, h_k, d_v), dtype=np.float32)

o = heed.attention(q, k, v, causal=True)
assert o.shape == (b, s, h, d_v)

# Query head i reads key/value head i // (h / h_k), as if each had been repeated.
repeated = heed.attention(q, k.repeat(h // h_k, 2), v.repeat(h // h_k, 2), causal=True)
error = np.abs(o - repeated).max()
print(f"{h} query heads on {h_k} key/value heads, d {d}, d_v {d_v}: differs from repeated heads by {error:.1e}")
assert error < 1e-5

try:
    heed.attention(q[:, :, :4], k, v)
except ValueError as refusal:
    print("refused:", refusal)
else:
    raise AssertionError("4 heads cannot share 3")
