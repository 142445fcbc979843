"""Gradients: of q, k, v, of a learned bias and of sinks, against the same formula in torch's double precision."""

from example import need_torch, skip

torch = need_torch()

import heed  # noqa: E402

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
b, s, h, d = 2, 24, 4, 32
q, k, v = (torch.randn(b, s, h, d, device=device, requires_grad=True) for _ in range(3))
bias = torch.randn(h, s, s, device=device, requires_grad=True)  # one for all batch entries: its gradient is their sum
sink = torch.randn(h, device=device, requires_grad=True)
inputs = [q, k, v, bias, sink]

try:
    got = torch.autograd.grad(heed.attention(q, k, v, bias=bias, sink=sink, causal=True).square().sum(), inputs)
except heed.UnsupportedError as refusal:
    skip(f"no backward pass here: {str(refusal).splitlines()[0]}")

scores = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) / d**0.5 + bias.double()
scores = scores.masked_fill(torch.ones(s, s, dtype=torch.bool, device=device).triu(1), -torch.inf)
with_sink = torch.cat([scores, sink.double()[None, :, None, None].expand(b, h, s, 1)], -1)
weights = torch.softmax(with_sink, -1)[..., :-1]
expected = torch.autograd.grad(torch.einsum("bhij,bjhd->bihd", weights, v.double()).square().sum(), inputs)

for name, ours, exact in zip(("dq", "dk", "dv", "dbias", "dsink"), got, expected):
    error = ((ours - exact).abs().max() / exact.abs().max()).item()
    print(f"{name:>5} {tuple(ours.shape)}: off by {error:.1e} of the largest")
    assert error < 1e-4
