"""Any layout is a matter of strides: heads before or behind the sequence, packed q, k, v, broadcast. Nothing is copied."""

import numpy as np

import heed

rng = np.random.default_rng(0)
qkv = rng.standard_normal((2, 20, 3, 4, 32), dtype=np.float32)  # what one linear layer makes: [b, s, 3, h, d]
q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]  # views of it

packed = heed.attention(q, k, v, causal=True)
dense = heed.attention(q.copy(), k.copy(), v.copy(), causal=True)
assert np.array_equal(packed, dense)

# The same with the heads before the sequence, [b, h, s, d]: copied together, or turned in place.
turned = heed.attention(*(each.swapaxes(1, 2).copy() for each in (q, k, v)), causal=True, layout="bhsd")
assert np.array_equal(turned.swapaxes(1, 2), dense)
in_place = heed.attention(*(each.swapaxes(1, 2) for each in (q, k, v)), causal=True, layout="bhsd")
assert np.array_equal(in_place.swapaxes(1, 2), dense)

# One k and v for the whole batch: a stride of 0.
shared_k, shared_v = (np.broadcast_to(each[:1], each.shape) for each in (k, v))
shared = heed.attention(q, shared_k, shared_v)
assert np.array_equal(shared[1:], heed.attention(q[1:], k[:1], v[:1]))

# Into a part of a larger array: what lies around it stays.
wide = np.full((2, 20, 4, 40), 7, np.float32)
heed.attention(q, k, v, causal=True, out=wide[..., :32])
assert np.array_equal(wide[..., :32], dense) and (wide[..., 32:] == 7).all()
print("packed, turned, broadcast and partial arrays: the same numbers")
