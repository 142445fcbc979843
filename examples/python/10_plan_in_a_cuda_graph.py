"""Decide once, then run from a CUDA graph: no allocation, no compilation, no host time. Needs a GPU."""

from example import need_cuda

torch = need_cuda()

import heed  # noqa: E402

q, k, v = (torch.randn(2, 1024, 16, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
out = torch.empty_like(q)

plan = heed.plan(q, k, v, causal=True)  # compiles, where the kernel is not on disk yet
print(plan)
plan.run(q, k, v, causal=True, out=out)

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    plan.run(q, k, v, causal=True, out=out)

for step in range(3):  # other data in the same memory
    for each in (q, k, v):
        each.normal_()
    graph.replay()
    expected = heed.attention(q, k, v, causal=True)
    assert torch.equal(out, expected), step

begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
for _ in range(100):
    graph.replay()
end.record()
end.synchronize()
print(f"{begin.elapsed_time(end) * 10:.1f} us for one replay")
