"""One problem, computed by heed and by others: same data, correctness first, then time. bench/compare.py asks for many."""

import math
import random
import statistics
import time

import peers as others
import torch

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
TOLERANCE = {"f32": 2e-5, "f16": 2e-3, "bf16": 1.6e-2}  # of the largest element of o; of a gradient thrice as much
REPLAY = 4e-3  # seconds of one timing on a GPU: so many launches are in a graph
SHORTEST = 2e-3  # seconds of one timing on the CPU: shorter calls are repeated


class Problem:
    def __init__(self, type_name, b, h, h_k, s, d, causal, backward=False):
        self.type_name, self.b, self.h, self.h_k, self.s, self.d = type_name, b, h, h_k, s, d
        self.causal, self.backward = causal, backward

    def group(self):
        return f"{'backward ' if self.backward else ''}{self.type_name} {'causal' if self.causal else 'full'} d{self.d}"

    def name(self):
        heads = f"h{self.h}" if self.h == self.h_k else f"h{self.h}/{self.h_k}"
        return f"{self.group()} b{self.b} {heads} s{self.s}"

    def flops(self):
        pairs = self.s * (self.s + 1) / 2 if self.causal else self.s * self.s
        return (10.0 if self.backward else 4.0) * self.b * self.h * pairs * self.d

    def data(self, device):
        """q, k, v and the gradient of o, made where they are used: a CPU draws slower than a GPU computes."""
        generator = torch.Generator(device).manual_seed(7919)

        def make(heads):
            shape = (self.b, self.s, heads, self.d)
            return torch.randn(shape, generator=generator, device=device, dtype=TYPES[self.type_name])

        return make(self.h), make(self.h_k), make(self.h_k), make(self.h)

    def tolerance(self):
        return TOLERANCE[self.type_name] * (3 if self.backward else 1)


def exact_head(problem, q, k, v):
    """fp64 of one head, [s, d]."""
    scores = q @ k.T / math.sqrt(problem.d)
    if problem.causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    return torch.softmax(scores, -1) @ v


def exact(problem, q, k, v, d_o):
    """{where: fp64 of what a peer should have there}, for the first and the last head."""
    group = problem.h // problem.h_k
    found = []
    for b, h_k in {(0, 0), (problem.b - 1, problem.h_k - 1)}:
        heads = [(b, slice(None), h_k * group + each) for each in range(group if problem.backward else 1)]
        shared = (b, slice(None), h_k)
        if not problem.backward:
            found.append(((0, heads[0]), exact_head(problem, *(x.double() for x in (q[heads[0]], k[shared], v[shared])))))
            continue
        leaves = [x.double().requires_grad_() for x in (k[shared], v[shared])]
        for head in heads:  # one after the other: each keeps matrices of s * s
            leaf = q[head].double().requires_grad_()
            exact_head(problem, leaf, *leaves).backward(d_o[head].double())
            found.append(((0, head), leaf.grad))
        found += [((1, shared), leaves[0].grad), ((2, shared), leaves[1].grad)]
    return found


def relative_error(results, expected):
    """The largest distance from fp64, as a part of the largest element."""
    results = results if isinstance(results, (tuple, list)) else (results,)
    return max(
        ((results[which][where].double() - want).abs().max() / want.abs().max()).nan_to_num(math.inf).item()
        for (which, where), want in expected
    )


# --- on a GPU --------------------------------------------------------------------------------------------------------


def graph_of(run, launches, stream):
    """A CUDA graph of so many launches, or None where the peer cannot be captured."""
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(launches):
                run()
        return graph
    except Exception:
        torch.cuda.synchronize()
        return None


def gpu_times(runs, rounds, stream):
    """{name: (median seconds, how)}"""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def seconds_of(work):
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3

    works, launches = {}, {}
    for name, run in runs.items():
        one = min(seconds_of(run) for _ in range(2))
        launches[name] = max(1, min(32, round(REPLAY / max(one, 1e-6))))
        torch.cuda.synchronize()
        graph = graph_of(run, launches[name], stream)
        repeated = lambda run=run, count=launches[name]: [run() for _ in range(count)]
        works[name] = (graph.replay, "graph") if graph is not None else (repeated, "calls")
    times = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name in random.sample(list(runs), len(runs)):
            taken = seconds_of(works[name][0]) / launches[name]
            if turn > 0:
                times[name].append(taken)
    return {name: (statistics.median(each), works[name][1]) for name, each in times.items()}


# --- on the CPU ------------------------------------------------------------------------------------------------------


def timed(run, count):
    begin = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - begin) / count


def cpu_times(runs, rounds):
    """{name: (best seconds, how)}"""
    counts = {name: max(1, math.ceil(SHORTEST / max(timed(run, 1), 1e-7))) for name, run in runs.items()}
    times = {name: [] for name in runs}
    for turn in range(rounds):
        for name in list(runs)[:: 1 if turn % 2 == 0 else -1]:
            time.sleep(0.005)  # another's threads may spin for some milliseconds after their last work
            runs[name]()
            times[name].append(timed(runs[name], counts[name]))
    return {name: (min(each), "calls") for name, each in times.items()}


# --- both ------------------------------------------------------------------------------------------------------------


def measure(problem, device, rounds, files, stream=None):
    q, k, v, d_o = problem.data(device)
    with torch.set_grad_enabled(problem.backward):
        runs, missing = others.peers(q, k, v, problem.causal, files, d_o if problem.backward else None)
        expected = exact(problem, q, k, v, d_o)
        errors = {name: relative_error(run(), expected) for name, run in runs.items()}
        del expected
        right = {name: run for name, run in runs.items() if errors[name] <= problem.tolerance()}
        times = gpu_times(right, rounds, stream) if device == "cuda" else cpu_times(right, rounds)
    return {
        "problem": problem.name(),
        "s": problem.s,
        "group": problem.group(),
        "results": {
            name: {"seconds": seconds, "tflops": problem.flops() / seconds / 1e12, "timed_as": how}
            for name, (seconds, how) in times.items()
        },
        "errors": errors,
        "wrong": [name for name in runs if name not in right],
        "missing": missing,
    }


def contest(problem, device, rounds, files=()):
    """A row of the table: times, errors, who was wrong and who is missing."""
    if device == "cpu":
        return measure(problem, device, rounds, files)
    # Autograd works on the stream of the forward pass, and that must be the one that a graph captures.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        row = measure(problem, device, rounds, files, stream)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return row
