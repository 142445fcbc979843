"""NumPy has no autograd: gradients asked for by name, planned once, judged against fp64, and used to fit a query."""

import numpy as np

import heed

rng = np.random.default_rng(0)
b, s, h, h_k, d = 2, 48, 4, 2, 32
q, d_o = (rng.standard_normal((b, s, h, d), dtype=np.float32) for _ in range(2))
k, v = (rng.standard_normal((b, s, h_k, d), dtype=np.float32) for _ in range(2))
sink = rng.standard_normal(h, dtype=np.float32)

# One call: what the forward pass was told, what it left, and the gradient of its output.
o, lse = heed.attention(q, k, v, causal=True, sink=sink, return_lse=True)
gradients = heed.attention_backward(q, k, v, o, lse, d_o, causal=True, sink=sink, dsink=True)
judge = heed.Validator(q, k, v, d_o=d_o, causal=True, sink=sink)
for report in judge.check_gradients(gradients).values():
    print(report)
    assert report

# Many: plans decide once and write where they are told to.
target = rng.standard_normal((b, s, h, d), dtype=np.float32) * 0.1
forward = heed.plan(q, k, v, causal=True, return_lse=True)
backward = heed.plan(q, k, v, operation="backward", causal=True)
dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
losses = []
for _ in range(100):
    forward.run(q, k, v, causal=True, return_lse=True, out=o, lse_out=lse)
    losses.append(float(np.square(o - target).mean()))
    backward.run_backward(q, k, v, o, lse, o - target, causal=True, dq=dq, dk=dk, dv=dv)
    for array, gradient in ((q, dq), (k, dk), (v, dv)):
        array -= 0.3 * gradient
print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f} in {len(losses)} steps of gradient descent")
assert losses[-1] < 0.3 * losses[0]
