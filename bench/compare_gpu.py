"""heed's forward or backward beside torch's cuDNN and FlashAttention-2 backends on one GPU, as ratios in one run.

    python3 bench/compare_gpu.py --library=build/lib/libheed.so [--backward [--deterministic]] [--d=64,128,256]
                                 [--s=512,...] [--causal=0,1] [--type=f16] [--tokens=16384] [--width=2048]
                                 [--heads-k=0] [--peer=FILE.py] [--json=FILE] [--markdown=FILE]

Every point is one graph per implementation (several launches in a row, so that nobody's host time counts), replayed in
rounds of random order; medians over the rounds. What cannot be captured is called instead, and marked with a star: its host
time counts. h * d = 2048 (--width) and b * s = 16384 (--tokens) throughout, and
as many heads of K and V as of Q, if --heads-k does not say how many. heed's result is compared with fp64 for some heads
and with cuDNN for all of them before it is timed.

A backward pass is all that comes after the forward one: for heed all its stages, for torch what autograd launches.

--peer names a Python file with a function peers(q, k, v, causal) -> {name: function that launches on the current
stream}, for libraries that torch does not bring, such as FlashAttention-3 built from its public source. Its problems
have as many heads of K and V as of Q.

A peer that raises is left out of that point, with a note. --json and --markdown are written after every point: a run that is
stopped leaves what it has measured; after --limit seconds no further point is begun.
"""

import argparse
import ctypes
import importlib.util
import json
import math
import random
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parent))
import heed_c  # noqa: E402
from peers import reason  # noqa: E402

TYPES = {"f16": (torch.float16, heed_c.F16), "bf16": (torch.bfloat16, heed_c.BF16), "f32": (torch.float32, heed_c.F32)}
TOLERANCE = {"f16": 6e-4, "bf16": 5e-3, "f32": 2e-6}  # of the norm, against fp64


def numbers(text):
    return [int(x) for x in text.split(",")]


def reference(q, k, v, causal):
    """fp64 for one head: q [s, d]."""
    scores = q.double() @ k.double().T / math.sqrt(q.shape[-1])
    if causal:
        scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    return torch.softmax(scores, -1) @ v.double()


def backward_reference(q, k, v, d_o, causal):
    """dq, dk and dv in fp64 for one head."""
    leaves = [x.double().detach().requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(reference(*leaves, causal), leaves, d_o.double())


def capture(function, launches, stream=None):
    """A graph of so many launches."""
    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
        function()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(launches):
            function()
    return graph


def time_of(replay, launches):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3 / launches


def attention(q, k, v, causal):
    return functional.scaled_dot_product_attention(
        q, k, v, is_causal=bool(causal), enable_gqa=q.shape[1] != k.shape[1]
    )


def torch_peer(backend, q, k, v, causal):
    def run():
        with sdpa_kernel(backend):
            return attention(q, k, v, causal)

    return run


def apart(x, y):
    return ((x.double() - y.double()).norm() / y.double().norm()).item()


def randn(b, s, h, d, torch_type):
    """Stored as [b, s, h, d], seen as [b, h, s, d]."""
    return torch.randn(b, s, h, d, device="cuda").to(torch_type).transpose(1, 2)


class Point:
    """The forward pass of one problem."""

    stream = None  # what graphs are captured on, where that matters

    def __init__(self, options, heed, extra, d, causal, s):
        torch_type, heed_type = TYPES[options.type]
        b, h = max(1, options.tokens // s), options.width // d
        h_k = options.heads_k or h
        self.flops = 4 * b * h * s * s * d / (2 if causal else 1)
        self.facts = {"d": d, "causal": causal, "s": s, "b": b, "h": h, "h_k": h_k}
        q, k, v = (randn(b, s, heads, d, torch_type) for heads in (h, h_k, h_k))
        o = torch.full((b, s, h, d), math.nan, device="cuda", dtype=torch_type).transpose(1, 2)
        args = heed.args(q, k, v, o, heed_type, causal)
        self.facts["kernel"] = heed.kernel(args)

        def run_heed():
            heed.forward_on_stream(args, torch.cuda.current_stream().cuda_stream)

        self.functions, self.facts["left_out"], self.facts["as_calls"] = {"heed": run_heed}, {}, []
        if options.type != "f32":
            self.functions["cudnn"] = torch_peer(SDPBackend.CUDNN_ATTENTION, q, k, v, causal)
            self.functions["fa2"] = torch_peer(SDPBackend.FLASH_ATTENTION, q, k, v, causal)
        else:
            self.functions["efficient"] = torch_peer(SDPBackend.EFFICIENT_ATTENTION, q, k, v, causal)
        if extra and h == h_k:
            self.add_peers(lambda: extra.peers(q, k, v, causal))
        self.try_peers()
        self.check(options, q, k, v, o, causal)
        self.keep = (q, k, v, o, args)

    def add_peers(self, make):
        try:
            self.functions.update(make())
        except Exception as error:
            self.facts["left_out"]["--peer"] = reason(error)

    def try_peers(self):
        """Each runs once; one that raises is left out."""
        for name in [each for each in self.functions if each != "heed"]:
            try:
                self.functions[name]()
                torch.cuda.synchronize()
            except Exception as error:
                self.leave_out(name, error)

    def leave_out(self, name, error):
        if name == "heed":
            raise error
        del self.functions[name]
        self.facts["left_out"][name] = reason(error)

    def check(self, options, q, k, v, o, causal):
        self.functions["heed"]()
        torch.cuda.synchronize()
        errors = []
        for b, h in {(0, 0), (q.shape[0] - 1, q.shape[1] - 1)}:
            of_head = h // (q.shape[1] // k.shape[1])
            exact = reference(q[b, h], k[b, of_head], v[b, of_head], causal)
            errors.append(((o[b, h].double() - exact).norm() / exact.norm()).item())
        peer = next((name for name in self.functions if name != "heed"), None)
        distance = apart(o, self.functions[peer]().float()) if peer else 0.0
        self.facts["error"] = max(errors)
        if not max(errors) < TOLERANCE[options.type] or not distance < 2 * TOLERANCE[options.type]:
            raise SystemExit(f"wrong: {self.facts}: error {max(errors):.2e}, {distance:.2e} from {peer}")

    def measure(self, rounds, seconds):
        works, launches = {}, {}
        for name in list(self.functions):
            try:
                works[name], launches[name] = self.prepare(name, seconds)
            except Exception as error:
                torch.cuda.synchronize()
                self.leave_out(name, error)
        times = {name: [] for name in works}
        order = list(works)
        for turn in range(rounds + 1):
            random.shuffle(order)
            for name in order:
                taken = time_of(works[name], launches[name])
                if turn > 0:
                    times[name].append(taken)
        for name, list_of in times.items():
            self.facts[name] = self.flops / statistics.median(list_of) / 1e12
        return self.facts

    def prepare(self, name, seconds):
        """What is timed, and how many launches it is: a graph's replay, or calls of what cannot be captured."""
        function = self.functions[name]
        count = lambda work: max(1, min(64, round(seconds / max(time_of(work, 1), 1e-6))))  # noqa: E731
        try:
            one = capture(function, 1, self.stream)
            one.replay()
            launches = count(one.replay)
            return capture(function, launches, self.stream).replay, launches
        except Exception:
            if name == "heed":
                raise
            torch.cuda.synchronize()
        launches = count(function)
        self.facts["as_calls"].append(name)
        return lambda: [function() for _ in range(launches)], launches


class BackwardPoint(Point):
    """The backward pass of one problem. Autograd works on the stream of the forward pass: that is the captured one."""

    def __init__(self, options, heed, extra, d, causal, s):
        torch_type, heed_type = TYPES[options.type]
        b, h = max(1, options.tokens // s), options.width // d
        h_k = options.heads_k or h
        self.flops = 10 * b * h * s * s * d / (2 if causal else 1)
        self.facts = {"d": d, "causal": causal, "s": s, "b": b, "h": h, "h_k": h_k}
        self.stream = torch.cuda.Stream()
        q, k, v, d_o = (randn(b, s, heads, d, torch_type) for heads in (h, h_k, h_k, h))
        o = torch.empty_like(q)
        lse = torch.empty(b, h, s, device="cuda")
        grads = [torch.full_like(x, math.nan) for x in (q, k, v)]
        args = heed.args(q, k, v, o, heed_type, causal)
        backward = heed.backward_args(args, lse, d_o, *grads, heed_type, options.deterministic)
        heed.forward_on_stream(args, torch.cuda.current_stream().cuda_stream)
        plan, self.facts["kernel"], size = heed.backward_plan(backward)
        workspace = torch.zeros(size, dtype=torch.uint8, device="cuda")

        def run_heed():
            heed.run_backward_plan(plan, backward, workspace, torch.cuda.current_stream().cuda_stream)
            return grads

        self.functions, self.facts["left_out"], self.facts["as_calls"] = {"heed": run_heed}, {}, []
        backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
        if options.type == "f32":
            backends = {"efficient": SDPBackend.EFFICIENT_ATTENTION}
        self.stream.wait_stream(torch.cuda.current_stream())
        for name, backend in backends.items():
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            try:
                with torch.cuda.stream(self.stream), sdpa_kernel(backend):
                    output = attention(*leaves, causal)
            except Exception as error:
                self.facts["left_out"][name] = reason(error)
                continue
            self.functions[name] = lambda output=output, leaves=leaves: torch.autograd.grad(
                output, leaves, d_o, retain_graph=True
            )
        torch.cuda.synchronize()
        if extra and h == h_k:
            self.add_peers(lambda: extra.backward_peers(q, k, v, o, lse, d_o, causal))
        self.try_peers()
        self.check_gradients(options, q, k, v, d_o, causal)
        self.keep = (q, k, v, o, lse, d_o, args, backward, workspace)

    def check_gradients(self, options, q, k, v, d_o, causal):
        mine = self.functions["heed"]()
        torch.cuda.synchronize()
        errors = []
        group = q.shape[1] // k.shape[1]
        for b, h_k in {(0, 0), (k.shape[0] - 1, k.shape[1] - 1)}:
            heads = range(h_k * group, (h_k + 1) * group)
            exact = [backward_reference(q[b, h], k[b, h_k], v[b, h_k], d_o[b, h], causal) for h in heads]
            errors += [apart(mine[0][b, h], of_head[0]) for h, of_head in zip(heads, exact)]
            errors += [apart(mine[i][b, h_k], sum(of_head[i] for of_head in exact)) for i in (1, 2)]
        peer = next((name for name in self.functions if name != "heed"), None)
        others = [apart(x, y) for x, y in zip(mine, self.functions[peer]())] if peer else [0.0]
        self.facts["error"] = max(errors)
        if not max(errors) < 2 * TOLERANCE[options.type] or not max(others) < 4 * TOLERANCE[options.type]:
            raise SystemExit(f"wrong: {self.facts}: error {max(errors):.2e}, {max(others):.2e} from {peer}")


FACTS = ("d", "causal", "s", "b", "h", "h_k", "kernel", "error", "left_out", "as_calls")


def over_best(row, names):
    """None where heed was alone."""
    others = [row[n] for n in names if n in row and n != "heed" and not n.startswith("experiment")]
    return row["heed"] / max(others) if others else None


def table(rows, names):
    lines = ["| d | causal | s | " + " | ".join(names) + " | heed / cuDNN | heed / best | error | kernel |"]
    lines.append("|" + "---|" * (len(names) + 7))
    for row in rows:
        cells = [f"{row[n]:.0f}{'*' if n in row['as_calls'] else ''}" if n in row else "" for n in names]
        over = f"{row['heed'] / row['cudnn']:.3f}" if "cudnn" in row else "-"
        best = over_best(row, names)
        lines.append(
            f"| {row['d']} | {row['causal']} | {row['s']} | "
            + " | ".join(cells)
            + f" | {over} | {'-' if best is None else f'{best:.3f}'} | {row['error']:.1e} | {row['kernel'].split('/')[-1]} |"
        )
    return "\n".join(lines)


def notes(rows):
    lines = []
    if any(row["as_calls"] for row in rows):
        lines.append("* could not be captured in a graph: timed as calls, its host time included.")
    for row in rows:
        where = f"d{row['d']} causal {row['causal']} s {row['s']}"
        lines += [f"- {where}: {name} is left out: {why}" for name, why in row["left_out"].items()]
    return "\n".join(lines)


def text_of(rows, not_measured):
    names = list(dict.fromkeys(n for row in rows for n in row if n not in FACTS))  # a peer may lack some head dims

    def means(part):
        over = {n: [r["heed"] / r[n] for r in part if n in r] for n in names if n != "heed"}
        over["the best"] = [best for r in part if (best := over_best(r, names)) is not None]
        return ", ".join(f"{n} {mean(values):.3f}" for n, values in over.items() if values)

    text = table(rows, names) + "\n\nGeometric means of heed over each: " + means(rows)
    for d in dict.fromkeys(r["d"] for r in rows):
        text += f"\nd{d}: " + means([r for r in rows if r["d"] == d])
    if noted := notes(rows):
        text += "\n\n" + noted
    if not_measured:
        text += f"\n\n{not_measured} points were not measured."
    return text


def write(options, machine, rows, not_measured):
    if options.json:
        record = {"machine": machine, "type": options.type, "not_measured": not_measured, "points": rows}
        Path(options.json).write_text(json.dumps(record, indent=1))
    if options.markdown:
        head = "\n".join(f"- {key}: {value}" for key, value in machine.items())
        what = "Backward" if options.backward else "Forward"
        text = text_of(rows, not_measured)
        Path(options.markdown).write_text(f"# {what} on one GPU, {options.type}, TFLOP/s\n\n{head}\n\n{text}\n")


def mean(values):
    return math.exp(statistics.fmean(math.log(x) for x in values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--deterministic", action="store_true", help="--backward with the same bits in every run")
    parser.add_argument("--d", type=numbers, default=[64, 128, 256])
    parser.add_argument("--s", type=numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--causal", type=numbers, default=[0, 1])
    parser.add_argument("--type", choices=TYPES, default="f16")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--width", type=int, default=2048, help="h * d")
    parser.add_argument("--heads-k", type=int, default=0, help="heads of K and V; 0: as many as of Q")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--family", default=None, help="hopper, portable or portable_ptx: only these kernels of heed")
    parser.add_argument("--seconds", type=float, default=0.004, help="of one replay")
    parser.add_argument("--limit", type=float, help="seconds after which no further point is begun")
    parser.add_argument("--peer")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    options = parser.parse_args()

    extra = None
    if options.peer:
        spec = importlib.util.spec_from_file_location("peer", options.peer)
        extra = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(extra)
    torch.zeros(1, device="cuda")  # torch makes the context
    heed = heed_c.Heed(options.library, 1, cuda_family=options.family)

    machine = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "cuda": torch.version.cuda,
        "heed": heed.version(),
        "command": " ".join(sys.argv),
    }
    planned = [(d, causal, s) for d in options.d for causal in options.causal for s in options.s]
    rows, begin = [], time.monotonic()
    for place in planned:
        if options.limit is not None and time.monotonic() - begin > options.limit:
            break
        point = (BackwardPoint if options.backward else Point)(options, heed, extra, *place)
        rows.append(point.measure(options.rounds, options.seconds))
        print(rows[-1], flush=True)
        write(options, machine, rows, len(planned) - len(rows))
        del point
        torch.cuda.empty_cache()
    print(text_of(rows, len(planned) - len(rows)))


if __name__ == "__main__":
    main()
