"""heed as operators of torch: checked by torch, compiled, exported, traced with fake tensors."""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import Data, devices

torch = pytest.importorskip("torch", reason="torch is not installed")

import heed  # noqa: E402
import heed._libraries.torch as library  # noqa: E402
import heed._libraries.torch_ops  # noqa: E402

pytestmark = [
    pytest.mark.parametrize("device", devices()),
    pytest.mark.filterwarnings("ignore"),
]
# The compiler's front and middle; its back writes code for the rest of the program and never looks into an operator.
BACKEND = "aot_eager"


def make(device, *shape, seed=0):
    return torch.from_numpy(Data(seed).normal(*shape)).to(device)


def qkv(device, **shape):
    return [torch.from_numpy(each).to(device) for each in Data(0).qkv(**shape)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"want_lse": True},
        {"mask_kind": 2, "mask_left": -1, "want_lse": True, "bhsd": True},
        {"soft_cap": 2.0, "scale": 0.3, "math": 1},
    ],
)
def test_torch_checks_the_operator(device, options):
    q, k, v = qkv(device, d_v=24)
    if options.get("bhsd"):
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    torch.library.opcheck(torch.ops.heed.fwd, (q, k, v), options)


def test_torch_checks_the_operator_with_every_tensor(device):
    q, k, v = qkv(device)
    tensors = {
        "bool_mask": make(device, 9, 13) > -1,
        "block_mask": torch.ones(3, 4, dtype=torch.bool, device=device),
        "bias": make(device, 4, 9, 13),
        "alibi_slopes": make(device, 4),
        "sink": make(device, 4),
        "seqlen_q": torch.tensor([9, 5], device=device),
        "seqlen_k": torch.tensor([3, 13], dtype=torch.int32, device=device),
        "dropout_state": torch.tensor([1, 2], device=device),
    }
    # With lengths some rows of the output are not written, and comparing them would compare chance.
    for left_out in (["seqlen_q"], ["seqlen_q", "dropout_state"]):
        given = {name: each for name, each in tensors.items() if name not in left_out}
        dropout = {"dropout_p": 0.5} if "dropout_state" in given else {}
        torch.library.opcheck(torch.ops.heed.fwd, (q, k, v), {**given, **dropout, "block_q": 4, "block_k": 4})


def test_torch_checks_the_packed_operator(device):
    q, k, v = make(device, 18, 4, 16), make(device, 20, 2, 16), make(device, 20, 2, 16)
    starts_q = torch.tensor([0, 4, 18], dtype=torch.int32, device=device)
    starts_k = torch.tensor([0, 15, 20], dtype=torch.int32, device=device)
    options = {"max_s_q": 14, "max_s_k": 15, "want_lse": True, "mask_kind": 2, "mask_left": 3}
    torch.library.opcheck(torch.ops.heed.varlen_fwd, (q, k, v, starts_q, starts_k), options)


def test_one_graph_without_breaks(device):
    def layer(q, k, v, bias):
        o, lse = heed.attention(q * 2, k, v, causal=True, bias=bias, softcap=3.0, return_lse=True)
        return o + 1, lse

    arguments = (*qkv(device), make(device, 4, 9, 13))
    expected = layer(*arguments)
    compiled = torch.compile(layer, fullgraph=True, backend=BACKEND)
    for got, want in zip(compiled(*arguments), expected):
        torch.testing.assert_close(got, want)


def test_one_graph_of_drop_ins(device):
    from heed.compat.flash_attn import flash_attn_func
    from heed.compat.sdpa import scaled_dot_product_attention

    q, k, v = qkv(device)
    starts = torch.tensor([0, 4, 9], dtype=torch.int32, device=device)

    def layer(q, k, v):
        by_flash = flash_attn_func(q, k, v, causal=True, window_size=(5, 0))
        by_sdpa = scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        packed = heed.attention_varlen(q[0], k[0, :9], v[0, :9], starts, starts, 5, 5)
        return by_flash, by_sdpa, packed

    for got, want in zip(torch.compile(layer, fullgraph=True, backend=BACKEND)(q, k, v), layer(q, k, v)):
        torch.testing.assert_close(got, want)


def test_other_lengths_do_not_compile_again(device):
    count = 0

    def counting(graph, inputs):
        nonlocal count
        count += 1
        return graph.forward

    compiled = torch.compile(
        lambda q, k, v: heed.attention(q, k, v, causal=True), fullgraph=True, backend=counting, dynamic=True
    )
    for s in (9, 17, 31, 64):
        q, k, v = qkv(device, s_q=s, s_k=s + 3)
        torch.testing.assert_close(compiled(q, k, v), heed.attention(q, k, v, causal=True))
    assert count == 1


def test_dropout_draws_anew_in_each_run_of_a_graph(device):
    q, k, v = qkv(device)
    compiled = torch.compile(lambda q, k, v: heed.attention(q, k, v, dropout_p=0.5), fullgraph=True, backend=BACKEND)
    torch.manual_seed(3)
    first, second = compiled(q, k, v), compiled(q, k, v)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(compiled(q, k, v), first)


def test_out_is_written_by_a_graph(device):
    q, k, v = qkv(device)
    out = torch.full_like(q, torch.nan)
    torch.compile(lambda q, k, v, out: heed.attention(q, k, v, out=out), fullgraph=True, backend=BACKEND)(q, k, v, out)
    assert torch.equal(out, heed.attention(q, k, v))


def test_export(device):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project = torch.nn.Linear(16, 16)

        def forward(self, q, k, v):
            return heed.attention(self.project(q), k, v, causal=True)

    layer, arguments = Layer().to(device), tuple(qkv(device))
    exported = torch.export.export(layer, arguments)
    assert any("heed.fwd" in str(node.target) for node in exported.graph.nodes)
    with torch.no_grad():
        torch.testing.assert_close(exported.module()(*arguments), layer(*arguments))


def test_fake_tensors_have_shapes_and_no_memory(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 9, 4, 16, device=device)
        o, lse = heed.attention(q, q, q, return_lse=True)
        assert type(o) is type(q) and o.shape == q.shape and lse.shape == (2, 4, 9) and lse.dtype == torch.float32


def test_what_a_graph_cannot_hold_is_refused(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 9, 4, 16, device=device)
        with pytest.raises(heed.UnsupportedError, match="dropout_state"):
            heed.attention(q, q, q, dropout_p=0.5, seed=1)


TRAINING_STEP = """
import sys
import torch
import heed

device = sys.argv[1]
torch.manual_seed(0)

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(64, 3 * 64), torch.nn.Linear(64, 64)
        self.bias = torch.nn.Parameter(torch.randn(4, 20, 20))

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).unbind(2)
        return x + self.out(heed.attention(q, k, v, causal=True, bias=self.bias, deterministic=True).flatten(2)).relu()

layer = Layer().to(device)
x = torch.randn(2, 20, 64, device=device)
gradients = []
for step in (layer, torch.compile(layer, fullgraph=True)):
    layer.zero_grad()
    step(x).square().mean().backward()
    gradients.append([each.grad.clone() for each in layer.parameters()])
for eager, compiled in zip(*gradients):
    assert eager.abs().max() > 0
    torch.testing.assert_close(compiled, eager, rtol=2e-4, atol=1e-6)
print("the same")
"""


def test_the_whole_compiler_takes_a_training_step(device, tmp_path):
    """inductor, too, which writes C++ or Triton around heed's operators. In a process of its own, which may be ended."""
    if device == "cpu" and shutil.which("g++") is None:
        pytest.skip("inductor needs g++")
    if device == "cuda":
        pytest.importorskip("triton", reason="inductor needs triton on a GPU")
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", TRAINING_STEP, device],
            capture_output=True,
            text=True,
            timeout=240,
            env=environment,
            cwd=tmp_path,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("inductor was not done within 240 s")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the same\n"


def test_a_graph_does_not_round_on_the_way_to_out(device):
    q, k, v = (each.half() for each in qkv(device))
    wide = torch.empty(q.shape, device=device)
    heed.attention(q, k, v, out=wide)
    assert not torch.equal(wide, wide.half().float())
    compiled = torch.compile(lambda q, k, v, out: heed.attention(q, k, v, out=out), fullgraph=True, backend=BACKEND)
    with pytest.raises(Exception, match="out of torch.float32 where q is torch.float16"):
        compiled(q, k, v, wide)


def test_a_graph_takes_numbers_of_any_kind(device):
    q, k, v = qkv(device)
    function = lambda q, k, v, scale, cap: heed.attention(q, k, v, scale=scale, softcap=cap, dropout_p=0)
    compiled = torch.compile(function, fullgraph=True, backend=BACKEND, dynamic=True)
    for scale, cap in ((1, 0), (2, 3), (0.5, 2.5), (0.25, 0.0)):
        torch.testing.assert_close(compiled(q, k, v, scale, cap), function(q, k, v, scale, cap))


def test_an_exported_program_is_loaded_in_another_process(device, tmp_path):
    class Layer(torch.nn.Module):
        def forward(self, q, k, v):
            return heed.attention(q, k, v, causal=True)

    arguments = tuple(qkv(device))
    torch.export.save(torch.export.export(Layer(), arguments), tmp_path / "layer.pt2")
    torch.save([*arguments, heed.attention(*arguments, causal=True)], tmp_path / "tensors.pt")
    code = """
import torch
import heed.integrations.torch
*arguments, expected = torch.load("tensors.pt")
torch.testing.assert_close(torch.export.load("layer.pt2").module()(*arguments), expected)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_generators_are_for_eager_mode(device):
    """torch's compiler takes none; heed says what to pass instead."""
    q, k, v = qkv(device)
    generator = torch.Generator().manual_seed(3)
    draw = lambda q, k, v: heed.attention(q, k, v, dropout_p=0.5, generator=generator)
    assert draw(q, k, v).shape == q.shape
    with pytest.raises(Exception, match="generator= while torch records a program.*dropout_state="):
        torch.compile(draw, fullgraph=True, backend=BACKEND)(q, k, v)


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
@pytest.mark.parametrize("how", ["make_fx", "jit.trace"])
def test_every_way_of_recording_a_program_sees_the_operator(device, how, packed):
    """Also those that run the program while they record it, on tensors like any others: without the operator they would keep
    how memory was allocated, and nothing that was written into it."""
    from torch.fx.experimental.proxy_tensor import make_fx

    starts = torch.tensor([0, 4, 9], dtype=torch.int32, device=device)

    def layer(q, k, v):
        if packed:
            return heed.attention_varlen(q[0], k[0, :9], v[0, :9], starts, starts, 5, 5, causal=True)
        return heed.attention(q, k, v, causal=True)

    first, second = qkv(device), [each.flip(1) for each in qkv(device)]
    program = make_fx(layer)(*first) if how == "make_fx" else torch.jit.trace(layer, tuple(first))
    assert "heed" in str(program.graph)
    for arguments in (first, second):
        torch.testing.assert_close(program(*arguments), layer(*arguments))
    with pytest.raises(heed.UnsupportedError, match="dropout_state"):
        make_fx(lambda q, k, v: heed.attention(q, k, v, dropout_p=0.5, seed=1))(*first)


def test_a_mode_of_fake_tensors_counts_whatever_the_arguments_are(device):
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    q, k, v = qkv(device)
    with FakeTensorMode(allow_non_fake_inputs=True):
        o = heed.attention(q, k, v)
    assert isinstance(o, FakeTensor) and o.shape == q.shape


@pytest.mark.parametrize("dropout", [{}, {"dropout_p": 0.3}, {"dropout_p": 0.3, "seed": 2**64 - 1}], ids=str)
@pytest.mark.parametrize("kept", [False, True], ids=["recomputed", "kept"])
def test_selective_checkpoints_see_the_operator(device, dropout, kept, monkeypatch):
    """A policy may keep what heed has computed, in eager mode too; the gradients are the same."""
    from functools import partial

    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    calls, run = [], heed._native.forward
    monkeypatch.setattr(heed._native, "forward", lambda *given: (calls.append(given), run(*given))[1])
    inputs = [each.requires_grad_() for each in qkv(device)]

    def block(q, k, v):
        return heed.attention(q * 2, k, v.sin(), causal=True, deterministic=True, **dropout).square()

    torch.manual_seed(11)
    expected = torch.autograd.grad(block(*inputs).sum(), inputs)
    operators = [torch.ops.heed.fwd.default] if kept else [torch.ops.aten.mul.Tensor]
    calls.clear()
    torch.manual_seed(11)
    context = partial(create_selective_checkpoint_contexts, operators)
    checkpoint(block, *inputs, use_reentrant=False, context_fn=context).sum().backward()
    assert len(calls) == (1 if kept else 2)
    for each, want in zip(inputs, expected):
        assert torch.equal(each.grad, want)


def test_operators_refuse_what_makes_no_sense(device):
    q, k, v = qkv(device)
    state = torch.tensor([1, 2], device=device)
    with pytest.raises(ValueError, match=r"dropout_p = 0.5 without a dropout_state.*\[seed, offset\]"):
        torch.ops.heed.fwd(q, k, v, dropout_p=0.5)
    with pytest.raises(ValueError, match="dropout_p is 0"):
        torch.ops.heed.fwd(q, k, v, dropout_state=state)
    o, lse = torch.ops.heed.fwd(q, k, v, dropout_p=0.5, dropout_state=state, want_lse=True)
    with pytest.raises(ValueError, match="without a dropout_state"):
        torch.ops.heed.bwd(o, q, k, v, o, lse, dropout_p=0.5)
    for wanted, name in (("want_bias", "bias"), ("want_slopes", "alibi_slopes"), ("want_sink", "sink")):
        with pytest.raises(ValueError, match=f"{wanted}=True asks for the gradient of {name}"):
            torch.ops.heed.bwd(o, q, k, v, o, lse, **{wanted: True})


def test_a_plan_behind_a_compiled_graph_runs_on_torchs_stream(device, monkeypatch):
    q, k, v = qkv(device)
    plan = heed.plan(q, k, v)

    def read_by_the_compiler(*arguments, **options):
        with monkeypatch.context() as while_compiling:
            while_compiling.setattr(library, "is_compiling", lambda: True)
            return heed._call.prepare(*arguments, **options)

    streams = []
    monkeypatch.setattr(heed._plan, "prepare", read_by_the_compiler)
    monkeypatch.setattr(library, "stream", lambda array, chosen: 7)
    monkeypatch.setattr(heed._native, "plan_run", lambda *arguments: streams.append(arguments[-1]))
    plan.run(q, k, v, out=torch.empty_like(q))
    assert streams == [7]


def test_plans_are_not_recorded(device):
    from torch.fx.experimental.proxy_tensor import make_fx

    q, k, v = qkv(device)
    plan = heed.plan(q, k, v)
    run = lambda q, k, v: plan.run(q, k, v)
    for record in (make_fx(run), lambda *given: torch.jit.trace(run, given)):
        with pytest.raises(heed.UnsupportedError, match="a plan while torch records a program"):
            record(q, k, v)
    # torch.compile ends its graph before.
    compiled = torch.compile(lambda q, k, v: plan.run(q * 2, k, v) + 1, backend=BACKEND)
    torch.testing.assert_close(compiled(q, k, v), heed.attention(q * 2, k, v) + 1)


IN_A_PROCESS = """
import sys
import torch
import heed
{code}
"""


def run_alone(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IN_A_PROCESS.format(code=code), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr


def test_a_program_may_begin_with_a_call_inside_of_a_checkpoint(device):
    """The first call of a process remembers nothing there: torch compiles no checkpoint with side effects. Nor is a training
    step compiled again at its second call."""
    code = """
from torch.utils.checkpoint import checkpoint
count = 0
def counting(graph, inputs):
    global count
    count += 1
    return graph.forward
block = lambda q, k, v: heed.attention(q * 2, k, v, causal=True)
step = torch.compile(lambda *qkv: checkpoint(block, *qkv, use_reentrant=False).sum(), backend=counting, fullgraph=True, dynamic=True)
for s in (9, 17, 31):
    q, k, v = (torch.randn(2, s, 4, 16, device=sys.argv[1], requires_grad=True) for _ in range(3))
    step(q, k, v).backward()
assert count == 1, count
"""
    run_alone(code, device)
