"""What torch's own tools see of heed: its FLOP counter, its profiler, and whatever else is a dispatch mode."""

import subprocess
import sys

import pytest
from conftest import Data, devices

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import heed  # noqa: E402
import heed._libraries.torch_ops  # noqa: E402

pytestmark = [pytest.mark.parametrize("device", devices()), pytest.mark.filterwarnings("ignore")]
B, S_Q, S_K, H, D, D_V = 2, 9, 13, 4, 16, 24
FORWARD = 2 * B * H * S_Q * S_K * (D + D_V)  # FLOPs
BACKWARD = 2 * B * H * S_Q * S_K * (3 * D + 2 * D_V)


def qkv(device, gradients=False):
    arrays = Data(0).qkv(b=B, s_q=S_Q, s_k=S_K, h=H, d=D, d_v=D_V)
    return [torch.from_numpy(each).to(device).requires_grad_(gradients) for each in arrays]


def starts(device, *values):
    return torch.tensor(values, dtype=torch.int32, device=device)


def packed(device, q, k, v):
    """Sequences of 4 and 5 queries, 3 and 10 keys."""
    return heed.attention_varlen(q[0], k[0], v[0], starts(device, 0, 4, 9), starts(device, 0, 3, 13), 5, 10)


def counted(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return {str(operator): flops for operator, flops in counter.get_flop_counts().get("Global", {}).items()}


def train(function, *arguments, **options):
    """A forward and a backward pass; the loss is no product."""
    return lambda: function(*arguments, **options).sum().backward()


def test_flops_are_those_of_attention_written_out(device):
    q, k, v = qkv(device)
    k, v = (each.repeat_interleave(2, 2) for each in (k, v))
    by_hand = lambda: (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)).softmax(-1) @ v.transpose(1, 2)
    assert sum(counted(by_hand).values()) == FORWARD == sum(counted(lambda: heed.attention(q, k, v)).values())


def test_flops_of_both_passes(device):
    inputs, constants = qkv(device, gradients=True), qkv(device)
    both = {"heed.fwd": FORWARD, "heed.bwd": BACKWARD}
    assert counted(lambda: heed.attention(*constants)) == {"heed.fwd": FORWARD}
    assert counted(lambda: torch.ops.heed.fwd(*constants)) == {"heed.fwd": FORWARD}
    turned = [each.transpose(1, 2) for each in constants]
    assert counted(lambda: heed.attention(*turned, layout="bhsd")) == {"heed.fwd": FORWARD}
    with torch.inference_mode():
        assert counted(lambda: heed.attention(*constants, causal=True)) == {"heed.fwd": FORWARD}
    bias = torch.zeros(S_Q, S_K, device=device, requires_grad=True)
    for options in ({"causal": True}, {"dropout_p": 0.5}, {"dropout_p": 0.5, "seed": 2**64 - 1}, {"bias": bias}):
        assert counted(train(heed.attention, *inputs, **options)) == both
    assert counted(lambda: heed.attention(*inputs, return_lse=True)[1].sum().backward()) == both
    for reentrant in (False, True):
        repeated = counted(train(checkpoint, heed.attention, *inputs, use_reentrant=reentrant))
        assert repeated == {"heed.fwd": 2 * FORWARD, "heed.bwd": BACKWARD}


def test_flops_of_a_compiled_program(device):
    inputs = qkv(device, gradients=True)
    compiled = torch.compile(lambda q, k, v: heed.attention(q, k, v), fullgraph=True, backend="aot_eager")
    train(compiled, *inputs)()
    assert counted(train(compiled, *inputs)) == {"heed.fwd": FORWARD, "heed.bwd": BACKWARD}


def test_flops_of_sequences_of_their_own_lengths(device):
    q, k, v = qkv(device)
    one_pair = 2 * H * (D + D_V)
    assert counted(lambda: packed(device, q, k, v)) == {"heed.varlen_fwd": one_pair * (4 * 3 + 5 * 10)}
    backward = counted(lambda: packed(device, *qkv(device, gradients=True)).sum().backward())["heed.bwd"]
    assert backward == 2 * H * (3 * D + 2 * D_V) * (4 * 3 + 5 * 10)
    lengths = {"seqlens_q": starts(device, 9, 2), "seqlens_k": starts(device, 3, 13)}
    assert counted(lambda: heed.attention(q, k, v, **lengths)) == {"heed.fwd": one_pair * (9 * 3 + 2 * 13)}
    only_keys = {"seqlens_k": lengths["seqlens_k"]}
    assert counted(lambda: heed.attention(q, k, v, **only_keys)) == {"heed.fwd": one_pair * 9 * (3 + 13)}


def test_flops_of_tensors_without_memory(device):
    """Where lengths cannot be read they are as long as they can be."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as fakes:
        q, k, v = (fakes.from_tensor(each) for each in qkv("cpu"))
        assert counted(lambda: heed.attention(q, k, v)) == {"heed.fwd": FORWARD}
        assert counted(lambda: packed("cpu", q, k, v)) == {"heed.varlen_fwd": 2 * H * 9 * 10 * (D + D_V)}
    inputs = [each.to("meta").requires_grad_() for each in qkv(device)]
    assert counted(train(heed.attention, *inputs)) == {"heed.fwd": FORWARD, "heed.bwd": BACKWARD}


def test_counting_does_not_make_lengths_constants(device):
    from torch.fx.experimental.proxy_tensor import make_fx

    counter = FlopCounterMode(display=False)

    def counting(*inputs):
        with counter:
            return heed.attention(*inputs)

    programs = [
        make_fx(lambda q, k, v: layer(q, k, v), tracing_mode="symbolic")(*qkv(device))
        for layer in (heed.attention, counting)
    ]
    assert len(programs[0].shape_env.guards) == len(programs[1].shape_env.guards)
    assert int(counter.get_total_flops()) == FORWARD


def test_a_counter_may_be_older_than_the_first_call(device):
    """It knows the operators that there were when it was made, and heed makes its own when one is needed."""
    code = """
import sys
import torch
from torch.utils.flop_counter import FlopCounterMode
one, both = (FlopCounterMode(display=False) for _ in range(2))
import heed
q = torch.randn(1, 4, 2, 8, device=sys.argv[1], requires_grad=True)
o = heed.attention(q, q, q)
with one:
    o.sum().backward()
with both:
    heed.attention(q, q, q).sum().backward()
print(one.get_total_flops(), both.get_total_flops())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, device], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert [int(each) for each in done.stdout.split()] == [2 * 2 * 4 * 4 * products * 8 for products in (5, 7)]


class Seen(TorchDispatchMode):
    """Names of the operators of heed that ran."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        if str(operator).startswith("heed"):
            self.names.append(str(operator))
        return operator(*arguments, **(options or {}))


def test_modes_see_operators_and_change_nothing(device):
    options = {"causal": True, "deterministic": True, "return_lse": True}

    def step(**more):
        inputs = [*qkv(device, gradients=True), torch.zeros(H, S_Q, S_K, device=device, requires_grad=True)]
        inputs.append(torch.zeros(H, device=device, requires_grad=True))
        o, lse = heed.attention(*inputs[:3], bias=inputs[3], sink=inputs[4], **options, **more)
        loss = o.square().sum() + lse.sum()
        return [o, lse, *torch.autograd.grad(loss, inputs)]

    for more in ({}, {"dropout_p": 0.3, "seed": 2**64 - 1, "offset": 3}):
        expected = step(**more)
        with Seen() as seen:
            got = step(**more)
        assert seen.names == ["heed.fwd.default", "heed.bwd.default"]
        for each, want in zip(got, expected):
            assert torch.equal(each, want)
    with torch.no_grad(), Seen() as seen:
        packed(device, *qkv(device))
    assert seen.names == ["heed.varlen_fwd.default"]


def test_a_mode_may_end_before_a_checkpoint_repeats_what_it_saw(device):
    inputs = qkv(device, gradients=True)
    block = lambda *inputs: heed.attention(*inputs, deterministic=True, dropout_p=0.3, seed=3).square()
    expected = torch.autograd.grad(block(*inputs).sum(), inputs)
    with Seen():
        o = checkpoint(block, *inputs, use_reentrant=False)
    first = torch.autograd.grad(o.sum(), inputs)
    o = checkpoint(block, *inputs, use_reentrant=False)
    with Seen():
        second = torch.autograd.grad(o.sum(), inputs)
    for got in (first, second):
        assert all(torch.equal(each, want) for each, want in zip(got, expected))


def test_what_no_operator_can_do_is_done_all_the_same(device):
    """It writes into the caller's arrays, or takes some of other libraries."""
    q, k, v = qkv(device)
    out, words = (
        torch.empty(B, S_Q, H, D_V, device=device),
        torch.zeros(B, H, S_Q, S_K, dtype=torch.uint16, device=device),
    )
    expected = heed.attention(q, k, v)
    with Seen() as seen:
        heed.attention(q, k, v, out=out)
        heed.attention(q, k, v, dropout_p=0.5, randval=words)
    assert torch.equal(out, expected) and words.any() and seen.names == []
    if device == "cpu":
        inputs, mask = qkv(device, gradients=True), Data(9).rng.random((S_Q, S_K)) < 0.6
        with Seen() as seen:
            got = torch.autograd.grad(heed.attention(*inputs, mask=mask, deterministic=True).sum(), inputs)
        want = heed.attention(*inputs, mask=torch.from_numpy(mask), deterministic=True).sum()
        assert all(map(torch.equal, got, torch.autograd.grad(want, inputs))) and seen.names == []


def profiled(function):
    """{name: [(shapes of the inputs) of each call]}"""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        function()
    found = {}
    for event in recorded.events():
        found.setdefault(event.name, []).append(event.input_shapes)
    return found


def test_the_profiler_shows_calls_by_their_names(device):
    q, k, v = qkv(device)
    out = torch.empty(B, S_Q, H, D_V, device=device)
    for function in (lambda: heed.attention(q, k, v), lambda: heed.attention(q, k, v, out=out)):
        shapes = profiled(function)["heed.attention"]
        assert shapes == [[list(each.shape) for each in (q, k, v)]]
    assert len(profiled(lambda: packed(device, q, k, v))["heed.attention_varlen"]) == 1
    found = profiled(train(heed.attention, *qkv(device, gradients=True)))
    assert [len(found[name]) for name in ("heed.attention", "HeedAttention", "HeedAttentionBackward")] == [1, 1, 1]
    compiled = torch.compile(lambda q, k, v: heed.attention(q, k, v), fullgraph=True, backend="aot_eager")
    compiled(q, k, v)
    assert len(profiled(lambda: compiled(q, k, v))["heed::fwd"]) == 1
