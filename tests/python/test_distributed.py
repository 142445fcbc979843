"""heed under torch.nn.parallel.DistributedDataParallel: each of two processes has half of a batch, and both its gradients."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("torch has no gloo", allow_module_level=True)

STEP = """
import sys
import torch
import torch.distributed as distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
import heed

rank, store = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)

class Layer(torch.nn.Module):
    def __init__(self, repeated):
        super().__init__()
        self.repeated = repeated
        self.qkv, self.out = torch.nn.Linear(32, 3 * 32), torch.nn.Linear(32, 32)
        self.bias, self.sink = torch.nn.Parameter(torch.randn(2, 20, 20)), torch.nn.Parameter(torch.randn(2))

    def attend(self, q, k, v):
        return heed.attention(q, k, v, causal=True, bias=self.bias, sink=self.sink)

    def forward(self, x):
        qkv = self.qkv(x).unflatten(-1, (3, 2, 16)).unbind(2)
        o = checkpoint(self.attend, *qkv, use_reentrant=False) if self.repeated else self.attend(*qkv)
        return x + self.out(o.flatten(2)).relu()

def gradients(layer, x):
    layer.zero_grad()
    for part in x:  # gradients are summed over two steps
        layer(part).square().mean().backward()
    return [each.grad.clone() for each in layer.parameters()]

distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
for options in ({}, {"static_graph": True}, {"gradient_as_bucket_view": True}):
    for repeated in (False, True):
        torch.manual_seed(0)
        layer, x = Layer(repeated), torch.randn(2, 4, 20, 32)
        expected = gradients(layer, x)
        halves = gradients(DistributedDataParallel(layer, **options), x[:, 2 * rank : 2 * rank + 2])
        for got, want in zip(halves, expected):
            assert want.abs().max() > 0
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
distributed.destroy_process_group()
print("the same")
"""


def test_gradients_of_two_processes_are_those_of_the_whole_batch(tmp_path):
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-W", "ignore", "-c", STEP]
    both = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    try:
        results = [each.communicate(timeout=240) for each in both]
    finally:
        for each in both:
            each.kill()
    for each, (printed, errors) in zip(both, results):
        assert each.returncode == 0, errors
        assert printed == "the same\n"
