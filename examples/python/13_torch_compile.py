"""heed inside torch.compile(fullgraph=True) and torch.export: an operator that torch knows, not a break in the graph."""

from example import need_torch

torch = need_torch()

import heed  # noqa: E402


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.into = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x):
        b, s, width = x.shape
        q, k, v = self.into(x).view(b, s, 3, self.heads, width // self.heads).unbind(2)
        return self.out(heed.attention(q, k, v, causal=True).reshape(b, s, width))


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
layer, x = Layer(64, 4).to(device).eval(), torch.randn(2, 17, 64, device=device)

with torch.no_grad():
    expected = layer(x)
    # "aot_eager" needs no compiler on this machine; leave it out for torch's own.
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
    exported = torch.export.export(layer, (x,))
    torch.testing.assert_close(exported.module()(x), expected)
operators = [str(node.target) for node in exported.graph.nodes if "heed" in str(node.target)]
print(f"compiled as one graph; exported with {operators[0]}")
assert operators == ["heed.fwd.default"]
