"""Two ways to train with less: activations computed a second time instead of kept, and a step compiled as one graph."""

from example import need_torch, skip

torch = need_torch()

import heed  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(64, 3 * 64), torch.nn.Linear(64, 64)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).unbind(2)
        return x + self.out(heed.attention(q, k, v, causal=True, dropout_p=0.1, deterministic=True).flatten(2))


layers = torch.nn.ModuleList(Layer() for _ in range(4)).to(device)
x = torch.randn(2, 32, 64, device=device)


def gradients(run):
    """The same dropout in each: it is drawn from torch's generator."""
    layers.zero_grad()
    torch.manual_seed(7)
    y = x
    for layer in layers:
        y = run(layer, y)
    try:
        y.square().mean().backward()
    except heed.UnsupportedError as refusal:
        skip(f"no backward pass here: {str(refusal).splitlines()[0]}")
    return [each.grad.clone() for each in layers.parameters()]


plain = gradients(lambda layer, y: layer(y))
again = gradients(lambda layer, y: checkpoint(layer, y, use_reentrant=False))
assert all(torch.equal(one, other) for one, other in zip(plain, again))
print(f"{len(plain)} gradients are the same bits with checkpointing")

compiled = torch.compile(lambda layer, y: layer(y), fullgraph=True, backend="aot_eager")
first, second = gradients(compiled), gradients(compiled)
assert all(torch.equal(one, other) for one, other in zip(first, second))
sizes = [(one - other).abs().max().item() for one, other in zip(first, plain)]
assert 0 < max(sizes) < 1, "a graph draws its dropout when it runs: other numbers, of the same size"
print("a compiled step repeats to the bit after torch.manual_seed")
