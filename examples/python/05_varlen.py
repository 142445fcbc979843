"""Sequences of their own lengths, one behind the other, without padding."""

import numpy as np

import heed

lengths = [5, 0, 17, 1, 9]
starts = np.cumsum([0, *lengths]).astype(np.int32)  # [0, 5, 5, 22, 23, 32]
h, h_k, d = 4, 2, 32
rng = np.random.default_rng(0)
q = rng.standard_normal((starts[-1], h, d), dtype=np.float32)
k, v = (rng.standard_normal((starts[-1], h_k, d), dtype=np.float32) for _ in range(2))

o, lse = heed.attention_varlen(q, k, v, starts, starts, max(lengths), max(lengths), causal=True, return_lse=True)
assert o.shape == q.shape and lse.shape == (h, starts[-1])

for begin, end in zip(starts[:-1], starts[1:]):
    if begin < end:
        alone = heed.attention(q[None, begin:end], k[None, begin:end], v[None, begin:end], causal=True)
        np.testing.assert_allclose(o[begin:end], alone[0], atol=1e-5)

# The padded way: logical lengths in a rectangular batch. What lies behind a length may hold anything.
padded = np.full((2, 20, h, d), np.nan, np.float32)
keys, values = (np.full((2, 20, h_k, d), np.nan, np.float32) for _ in range(2))
for row, (begin, end) in enumerate([(0, 5), (5, 22)]):
    padded[row, : end - begin], keys[row, : end - begin], values[row, : end - begin] = (
        q[begin:end],
        k[begin:end],
        v[begin:end],
    )
counts = np.array([5, 17], np.int32)
out = heed.attention(padded, keys, values, seqlens_q=counts, seqlens_k=counts, causal=True)
np.testing.assert_allclose(out[1, :17], o[5:22], atol=1e-5)
print(f"{len(lengths)} sequences of {lengths} rows: packed, alone and padded agree")
