"""Is a result right? The fp64 oracle, a second opinion in NumPy, and how far off a type may be."""

import numpy as np

import heed

rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((1, 64, 4, 64)).astype(np.float16) for _ in range(3))

judge = heed.Validator(q, k, v, causal=True)
report = judge.check(heed.attention(q, k, v, causal=True))
print(report)
assert report

# Two fp64 opinions that share no code.
second, _ = heed.reference.attention(q, k, v, causal=True)
assert np.abs(second - heed.oracle(q, k, v, causal=True)).max() < 1e-12

# Something that forgot the mask is noticed, and where.
wrong = judge.check(heed.attention(q, k, v))
print(wrong)
assert not wrong and wrong.position[1] < 20, "the first rows see all keys instead of a few"
