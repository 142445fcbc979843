"""Compile the kernels of a model before the first request. Needs a GPU.

A kernel depends on types, head dims, the kind of mask and the features; no length is compiled into it.
"""

import time

from example import need_cuda

torch = need_cuda()

import heed  # noqa: E402

LENGTHS = (1, 100, 1000)  # a few queries may be computed by another kernel than many
layer = heed.Problem(type="bf16", batch=2, heads=(32, 8), head_dims=128, mask="b")
begin = time.perf_counter()
names = heed.prewarm([layer.replace(lengths=s) for s in LENGTHS] + [layer.replace(mask="b:4095,0")])
print(f"{len(names)} problems ready in {time.perf_counter() - begin:.2f} s: {', '.join(dict.fromkeys(names))}")

for s in LENGTHS:
    q = torch.randn(2, s, 32, 128, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(2, s, 8, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    begin = time.perf_counter()
    o = heed.attention(q, k, v, causal=True)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    print(f"first call with s = {s}: {seconds * 1e3:.1f} ms")
    assert seconds < 0.5, "something was compiled after all"
    judge = heed.Validator(q[:1, :, :4], k[:1, :, :1], v[:1, :, :1], causal=True) if s <= 100 else None
    assert judge is None or judge.check(o[:1, :, :4])
