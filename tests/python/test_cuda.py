"""What only a GPU can get wrong: streams, graphs, devices, memory of others. Skipped where there is none."""

import os
import subprocess
import sys
import time

import pytest
from conftest import Data, devices

torch = pytest.importorskip("torch", reason="torch is not installed")

import heed  # noqa: E402

pytestmark = pytest.mark.skipif("cuda" not in devices(), reason="no CUDA GPU that torch can use")


def qkv(seed=0, dtype=torch.float16, device="cuda", **shape):
    shape = {"s_q": 100, "s_k": 130, "d": 64, **shape}
    return [torch.from_numpy(each).to(device, dtype) for each in Data(seed).qkv(**shape)]


def test_work_is_put_on_torchs_current_stream():
    """On a stream where q, k and v only become what they are after a pause: too early would be something else."""
    sources, expected = qkv(1), heed.attention(*qkv(1))
    q, k, v = (torch.zeros_like(each) for each in sources)
    out = torch.empty_like(q)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        for to, source in zip((q, k, v), sources):
            to.copy_(source)
        heed.attention(q, k, v, out=out)
    torch.cuda.synchronize()
    assert torch.equal(out, expected)


def test_a_call_does_not_wait_for_the_gpu():
    q, k, v = qkv()
    starts = torch.tensor([0, 50, 200], dtype=torch.int32, device="cuda")
    flat = [each.flatten(0, 1)[:200] for each in (q, k, v)]
    heed.attention(q, k, v)
    heed.attention_varlen(*flat, starts, starts, 150, 150)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # a second or so
    begin = time.perf_counter()
    heed.attention(q, k, v)
    heed.attention_varlen(*flat, starts, starts, 150, 150)
    assert time.perf_counter() - begin < 0.2
    torch.cuda.synchronize()


LENGTHS = """
import os
import torch, heed

def call(s_q, s_k):
    q = torch.randn(2, s_q, 4, 64, dtype=torch.float16, device="cuda")
    k, v = (torch.randn(2, s_k, 2, 64, dtype=torch.float16, device="cuda") for _ in range(2))
    heed.attention(q, k, v, causal=True)
    torch.cuda.synchronize()
    return sorted(name for _, _, names in os.walk(os.environ["HEED_CACHE_DIR"]) for name in names)

first = call(1100, 1200)
assert first, "the cache is empty"
for s in (1101, 1279, 1280, 1281, 1537, 2000, 4097):
    after = call(s, s + 1)
    assert after == first, f"{s} queries: {set(after) - set(first)}"
"""


def test_new_lengths_compile_nothing(tmp_path):
    """In a process and a cache of its own, whose files are counted."""
    done = subprocess.run(
        [sys.executable, "-c", LENGTHS],
        env={**os.environ, "HEED_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr

def test_a_plan_is_captured_into_a_graph_and_replayed_with_other_data():
    q, k, v = qkv()
    out, lse = torch.empty_like(q), torch.empty(2, 4, 100, device="cuda")
    plan = heed.plan(q, k, v, causal=True, return_lse=True)
    run = lambda: plan.run(q, k, v, causal=True, return_lse=True, out=out, lse_out=lse)
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for seed in (5, 6):
        for to, source in zip((q, k, v), qkv(seed)):
            to.copy_(source)
        out.fill_(torch.nan)
        graph.replay()
        expected, expected_lse = heed.attention(q, k, v, causal=True, return_lse=True)
        assert torch.equal(out, expected) and torch.equal(lse, expected_lse)


@pytest.mark.parametrize("first", ["plan", "graph"])
def test_a_plan_is_captured_without_having_run_before(first):
    """Whichever of its graphs comes first, and whether it runs between: the memory they all got may hold anything."""
    q, k, v = qkv()
    expected = heed.attention(q, k, v, causal=True)
    plan = heed.plan(q, k, v, causal=True)
    rubbish = torch.full((1 << 20,), -1, device="cuda")
    torch.cuda.synchronize()
    del rubbish
    captured = []
    for _ in range(2):
        graph, out = torch.cuda.CUDAGraph(), torch.empty_like(q)
        with torch.cuda.graph(graph):
            plan.run(q, k, v, causal=True, out=out)
        captured.append((graph, out))
    if first == "plan":
        assert torch.equal(plan.run(q, k, v, causal=True), expected)
    for graph, out in [*reversed(captured), *captured]:
        out.fill_(torch.nan)
        graph.replay()
        assert torch.equal(out, expected)
    assert torch.equal(plan.run(q, k, v, causal=True), expected)


def test_a_plan_of_the_backward_pass_is_captured_into_a_graph():
    q, k, v = qkv()
    o, lse = heed.attention(q, k, v, causal=True, return_lse=True)
    d_o = torch.randn_like(o)
    options = {"causal": True, "deterministic": True}
    plan = heed.plan(q, k, v, operation="backward", **options)
    given = {"dq": torch.empty_like(q), "dk": torch.empty_like(k), "dv": torch.empty_like(v)}
    run = lambda: plan.run_backward(q, k, v, o, lse, d_o, **given, **options)
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for seed in (5, 6):
        d_o.copy_(torch.randn_like(d_o) * seed)
        for each in given.values():
            each.fill_(torch.nan)
        graph.replay()
        expected = heed.attention_backward(q, k, v, o, lse, d_o, **options)
        assert all(torch.equal(given[name], getattr(expected, name)) for name in given)


def test_attention_itself_is_captured_after_its_first_call():
    q, k, v = qkv()
    expected = heed.attention(q, k, v)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        heed.attention(q, k, v)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = heed.attention(q, k, v)
    graph.replay()
    assert torch.equal(out, expected)


def test_a_replayed_graph_draws_anew_from_its_state():
    q, k, v = qkv()
    state, out = torch.tensor([1, 0], device="cuda"), torch.empty_like(q)
    plan = heed.plan(q, k, v, dropout_p=0.5, dropout_state=state)
    plan.run(q, k, v, dropout_p=0.5, dropout_state=state, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.run(q, k, v, dropout_p=0.5, dropout_state=state, out=out)
    for seed in (1, 2):
        state[0] = seed
        graph.replay()
        assert torch.equal(out, heed.attention(q, k, v, dropout_p=0.5, seed=seed))


@pytest.mark.parametrize("how", ["attention", "plan"])
def test_a_replayed_graph_draws_anew_from_torchs_generator(how):
    """Nobody said where randomness comes from: each replay has its own, which torch.manual_seed repeats, and gradients have the
    same."""
    q, k, v = (each.requires_grad_(how == "attention") for each in qkv(d=64))
    plan = heed.plan(q, k, v, dropout_p=0.5, seed=0)
    d_o = torch.ones_like(q)
    forward = lambda: (plan.run if how == "plan" else heed.attention)(q, k, v, dropout_p=0.5)

    def step():
        o = forward()
        return [o, *torch.autograd.grad(o, [q, k, v], d_o)] if how == "attention" else [o]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()

    def replayed():
        graph.replay()
        return [each.clone() for each in captured]

    torch.cuda.manual_seed(3)
    first, second = replayed(), replayed()
    assert not torch.equal(first[0], second[0])
    torch.cuda.manual_seed(3)
    again = replayed()
    assert torch.equal(again[0], first[0])
    if how == "attention":
        # o is linear in v: sum(o * d_o) = sum(v * d_v) for each head of v, which two of o share, if both dropped the same.
        of_o = [each[0].float().sum((1, 3)).unflatten(1, (2, 2)).sum(2) for each in (first, second)]
        of_v = (v.detach().float() * first[3].float()).sum((1, 3))
        assert (of_v - of_o[0]).abs().max() < 0.5 < (of_v - of_o[1]).abs().max()


def test_a_generator_of_the_cpu_is_not_captured():
    q, k, v = qkv()
    heed.attention(q, k, v, dropout_p=0.5, seed=1)
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="generator draws on cpu"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        heed.attention(q, k, v, dropout_p=0.5, generator=torch.Generator())


class Interface:
    """Knows __cuda_array_interface__ and nothing else."""

    def __init__(self, tensor, stream=None):
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, "stream": stream, "version": 3}
        self.tensor = tensor


def test_objects_with_the_cuda_array_interface_are_read_in_place():
    q, k, v = qkv()
    expected, out = heed.attention(q, k, v), torch.empty_like(q)
    torch.cuda.synchronize()
    heed.attention(*(Interface(each) for each in (q, k, v)), out=Interface(out), causal=False)
    torch.cuda.synchronize()
    assert torch.equal(out, expected)
    with pytest.raises(TypeError, match="out="):
        heed.attention(*(Interface(each) for each in (q, k, v)))


def test_objects_that_are_ready_on_other_streams_are_refused():
    q, k, v = qkv()
    out, stream = torch.empty_like(q), torch.cuda.Stream().cuda_stream
    with pytest.raises(ValueError, match="k is ready on stream"):
        heed.attention(Interface(q), Interface(k, stream), Interface(v), out=Interface(out))
    torch.cuda.synchronize()
    heed.attention(Interface(q), Interface(k, stream), Interface(v), out=Interface(out), stream=stream)
    torch.cuda.synchronize()
    assert torch.equal(out, heed.attention(q, k, v))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="only one GPU")
def test_tensors_on_another_than_the_current_device():
    expected = heed.attention(*qkv())
    q, k, v = qkv(device="cuda:1")
    assert torch.cuda.current_device() == 0
    o = heed.attention(q, k, v)
    assert o.device == q.device
    torch.testing.assert_close(o.to("cuda:0"), expected)
    with pytest.raises(ValueError, match="one place"):
        heed.attention(q, k.to("cuda:0"), v)


def test_the_cpu_engine_is_not_used_for_gpu_memory():
    with pytest.raises(heed.Error):
        heed.attention(*qkv(), engine="cpu")


def test_prewarming_compiles_what_is_needed_later():
    problem = heed.Problem(type="bf16", batch=2, heads=4, head_dims=96, lengths=(100, 130), mask="b:33,0", softcap=7.0)
    names = heed.prewarm(problem)
    assert names[0].startswith("cuda/")
    q, k, v = qkv(dtype=torch.bfloat16, d=96, h=4, h_k=4)
    begin = time.perf_counter()
    heed.attention(q, k, v, window=(20, 0), softcap=3.0)
    assert time.perf_counter() - begin < 0.5
