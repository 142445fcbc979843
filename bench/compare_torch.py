#!/usr/bin/env python3
"""heed against PyTorch's CPU attention: one process, the same data, taking turns, the best of N runs of each.

    python bench/compare_torch.py                     # everything, 1 thread and all threads; writes bench/results/
    python bench/compare_torch.py --quick --threads=2 # a few small rows, to see that it works
    python bench/compare_torch.py --filter='bf16*causal'
    python bench/compare_torch.py --backward --threads=2

Needs torch in the Python that runs it, and build/lib/libheed.so ('make build'). Correctness comes first: both are compared with
an fp64 computation of sampled rows (--backward: of the first head) before anything is timed, and a wrong result ends the run
with exit code 1.

Both allocate what they return in every call. (Figures that name no "allocates" were measured with a result of heed's that was
allocated once.)
"""

import argparse
import ctypes
import datetime
import fnmatch
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

import torch

from heed_c import BF16, F16, F32, Heed, view

ROOT = pathlib.Path(__file__).resolve().parents[1]
TYPES = {"f32": (torch.float32, F32, 2**-21), "f16": (torch.float16, F16, 2**-11), "bf16": (torch.bfloat16, BF16, 2**-8)}
SHORTEST = 2e-3  # seconds of one timing: shorter calls are repeated


class Row:
    def __init__(self, group, type_name, b, h, h_k, s, s_k, d, causal):
        self.group, self.type_name, self.b, self.h, self.h_k = group, type_name, b, h, h_k
        self.s, self.s_k, self.d, self.causal = s, s_k, d, causal

    def name(self):
        heads = f"h{self.h}" if self.h == self.h_k else f"h{self.h}/{self.h_k}"
        lengths = f"s{self.s}" if self.s == self.s_k else f"s{self.s}/{self.s_k}"
        return f"{self.group} {self.type_name} b{self.b} {heads} {lengths} d{self.d}"

    def flops(self):
        pairs = self.s * (self.s + 1) / 2 if self.causal else self.s * self.s_k
        return 4.0 * self.b * self.h * pairs * self.d

    def bytes(self):
        size = 4 if self.type_name == "f32" else 2
        return size * self.b * self.d * 2 * (self.h * self.s + self.h_k * self.s_k)


def all_rows():
    rows = []
    for group, causal in (("full", False), ("causal", True)):
        for type_name in TYPES:
            for d in (64, 128):
                for h, s in ((8, 1024), (8, 2048), (2, 4096), (1, 8192)):
                    rows.append(Row(group, type_name, 1, h, h, s, s, d, causal))
    for type_name in ("f32", "bf16"):
        for d in (64, 128):
            for s in (128, 256, 512):
                rows.append(Row("short", type_name, 1, 2, 2, s, s, d, False))
    for type_name in TYPES:
        for b, h, h_k in ((1, 32, 32), (4, 16, 8), (4, 32, 8), (4, 64, 8)):
            rows.append(Row("decode", type_name, b, h, h_k, 1, 8192, 128, False))
    return rows


def backward_rows():
    rows = []
    for group, causal in (("full", False), ("causal", True)):
        for type_name in TYPES:
            for d in (64, 128):
                for h, s in ((8, 1024), (8, 2048), (1, 4096)):
                    rows.append(Row(group, type_name, 1, h, h, s, s, d, causal))
    return rows


def small_rows(backward):
    if backward:
        return [Row("full", "f32", 1, 2, 2, 256, 256, 64, False), Row("causal", "bf16", 1, 2, 2, 256, 256, 128, True)]
    return [
        Row("full", "f32", 1, 2, 2, 256, 256, 64, False),
        Row("causal", "bf16", 1, 2, 2, 256, 256, 128, True),
        Row("short", "f16", 1, 2, 2, 128, 128, 64, False),
        Row("decode", "bf16", 2, 8, 2, 1, 512, 128, False),
    ]


class Contest:
    """One row's data, and both ways to compute it."""

    def __init__(self, row, heed):
        dtype, data_type, self.unit = TYPES[row.type_name]
        generator = torch.Generator().manual_seed(11939)
        make = lambda heads, s: torch.randn(row.b, heads, s, row.d, generator=generator).to(dtype)
        self.row = row
        self.q, self.k, self.v = make(row.h, row.s), make(row.h_k, row.s_k), make(row.h_k, row.s_k)
        self.heed, self.data_type = heed, data_type
        self.args = heed.args(self.q, self.k, self.v, torch.empty_like(self.q), data_type, row.causal)
        self.kernel = heed.kernel(self.args)

    def run_heed(self):
        return self.compute(torch.empty_like(self.q))

    def compute(self, o):
        self.args.o = view(o, self.data_type)
        self.heed.forward(self.args)
        return o

    def run_torch(self):
        return torch.nn.functional.scaled_dot_product_attention(
            self.q, self.k, self.v, is_causal=self.row.causal, enable_gqa=self.row.h != self.row.h_k
        )

    def errors(self):
        """Largest errors of heed and torch on sampled rows (first, last, some between), and what is allowed."""
        row = self.row
        picks = sorted({0, row.s - 1, *(row.s * n // 13 for n in range(13))})
        group = row.h // row.h_k
        k, v = (each.double().repeat_interleave(group, 1) for each in (self.k, self.v))
        scores = self.q[:, :, picks].double() @ k.transpose(2, 3) / math.sqrt(row.d)
        if row.causal:
            hidden = torch.arange(row.s_k)[None, :] > torch.tensor(picks)[:, None]
            scores.masked_fill_(hidden, -math.inf)
        exact = scores.softmax(-1) @ v
        distance = lambda o: (o[:, :, picks].double() - exact).abs().nan_to_num(math.inf).max().item()
        ours, theirs = distance(self.compute(torch.full_like(self.q, math.nan))), distance(self.run_torch())
        return ours, theirs, 2 * theirs + self.unit * exact.abs().max().item()


class BackwardContest:
    """The same of the gradients: torch's from its autograd, on the graph of one forward pass."""

    def __init__(self, row, heed):
        dtype, data_type, self.unit = TYPES[row.type_name]
        generator = torch.Generator().manual_seed(11939)
        make = lambda heads, s: torch.randn(row.b, heads, s, row.d, generator=generator).to(dtype)
        self.row, self.heed = row, heed
        self.inputs = [make(row.h, row.s), make(row.h_k, row.s_k), make(row.h_k, row.s_k)]
        self.d_o = make(row.h, row.s)
        o, lse = torch.empty_like(self.d_o), torch.empty(row.b, row.h, row.s)
        self.kept, self.data_type = (o, lse), data_type
        forward = heed.args(*self.inputs, o, data_type, row.causal)
        self.args = heed.backward_args(forward, lse, self.d_o, *map(torch.empty_like, self.inputs), data_type)
        heed.forward(forward)
        self.kernel = heed.backward_kernel(self.args)
        self.leaves = [each.clone().requires_grad_() for each in self.inputs]
        self.o = torch.nn.functional.scaled_dot_product_attention(
            *self.leaves, is_causal=row.causal, enable_gqa=row.h != row.h_k
        )

    def run_heed(self):
        return self.compute([torch.empty_like(each) for each in self.inputs])

    def compute(self, gradients):
        self.args.dq, self.args.dk, self.args.dv = (view(each, self.data_type) for each in gradients)
        self.heed.backward(self.args)
        return gradients

    def run_torch(self):
        return torch.autograd.grad(self.o, self.leaves, self.d_o, retain_graph=True)

    def errors(self):
        """Largest errors of heed's and torch's gradients of the first head, and what is allowed."""
        row = self.row
        q, k, v = (each[:, :1].double().requires_grad_() for each in self.inputs)
        mask = torch.arange(row.s_k)[None, :] > torch.arange(row.s)[:, None] if row.causal else None
        scores = q @ k.transpose(2, 3) / math.sqrt(row.d)
        scores = scores if mask is None else scores.masked_fill(mask, -math.inf)
        exact = torch.autograd.grad(scores.softmax(-1) @ v, (q, k, v), self.d_o[:, :1].double())
        distance = lambda found: max(
            (got[:, :1].double() - right).abs().nan_to_num(math.inf).max().item() for got, right in zip(found, exact)
        )
        unwritten = [torch.full_like(each, math.nan) for each in self.inputs]
        ours, theirs = distance(self.compute(unwritten)), distance(self.run_torch())
        return ours, theirs, 3 * theirs + self.unit * max(each.abs().max().item() for each in exact)


def timed(function, count):
    begin = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - begin) / count


def contest(row, heed, rounds, peak, backward):
    this = BackwardContest(row, heed) if backward else Contest(row, heed)
    flops, size = (2.5 * row.flops(), 2 * row.bytes()) if backward else (row.flops(), row.bytes())
    error, torch_error, allowed = this.errors()
    peers = {"heed": this.run_heed, "torch": this.run_torch}
    counts = {name: max(1, math.ceil(SHORTEST / max(timed(run, 1), 1e-7))) for name, run in peers.items()}
    times = {name: [] for name in peers}
    best_peak = 0.0
    for turn in range(rounds):
        for name in list(peers)[:: 1 if turn % 2 == 0 else -1]:
            time.sleep(0.005)  # a peer's threads may spin for some milliseconds after their last work
            best_peak = max(best_peak, peak())
            peers[name]()
            times[name].append(timed(peers[name], counts[name]))
    best = {name: min(each) for name, each in times.items()}
    median = {name: sorted(each)[len(each) // 2] for name, each in times.items()}
    rate = flops / best["heed"]
    return {
        "row": row.name(),
        "group": row.group,
        "type": row.type_name,
        "kernel": this.kernel,
        "heed_ms": best["heed"] * 1e3,
        "torch_ms": best["torch"] * 1e3,
        "heed_median_ms": median["heed"] * 1e3,
        "torch_median_ms": median["torch"] * 1e3,
        "ratio": best["torch"] / best["heed"],
        "heed_gflops": rate * 1e-9,
        "torch_gflops": flops / best["torch"] * 1e-9,
        "heed_gb_s": size / best["heed"] * 1e-9,
        "peak_gflops": best_peak * 1e-9,
        "of_peak": rate / best_peak if best_peak else None,
        "heed_error": error,
        "torch_error": torch_error,
        "allowed_error": allowed,
        "valid": error <= allowed,
    }


def peak_function(isa, threads):
    """The f32 FMA peak, measured in this process by heed's own loop; 0 where there is no compiler."""
    folder = tempfile.mkdtemp()
    library = os.path.join(folder, "libpeak.so")
    command = ["c++", "-std=c++20", "-O2", "-shared", "-fPIC", "-pthread", f"-iquote{ROOT}/tools", "-o", library]
    command += [str(ROOT / "bench/peak_shim.cpp"), *(str(ROOT / "tools/heed" / name) for name in ("peak.cpp", "peak_loops.cpp"))]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no FMA peak: {error}", file=sys.stderr)
        return lambda: 0.0
    function = ctypes.CDLL(library).heed_bench_fma_peak
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    return lambda: function(isa.encode(), threads, 3)


COLUMNS = ["", "threads", "heed ms", "torch ms", "heed GFLOP/s", "of FMA peak", "heed GB/s", "torch / heed", "errors heed, torch"]


def cells(result):
    return [
        result["row"],
        str(result["threads"]),
        f"{result['heed_ms']:.3f}",
        f"{result['torch_ms']:.3f}",
        f"{result['heed_gflops']:.1f}",
        f"{100 * result['of_peak']:.1f}%" if result["of_peak"] else "-",
        f"{result['heed_gb_s']:.1f}",
        f"{result['ratio']:.2f}",
        f"{result['heed_error']:.1e}, {result['torch_error']:.1e}" + ("" if result["valid"] else " WRONG"),
    ]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def summary(results):
    lines = []
    for threads in sorted({each["threads"] for each in results}):
        for group in dict.fromkeys(each["group"] for each in results):
            for type_name in TYPES:
                ratios = [
                    each["ratio"]
                    for each in results
                    if (each["threads"], each["group"], each["type"]) == (threads, group, type_name)
                ]
                if ratios:
                    lines.append((group, type_name, threads, geometric_mean(ratios), min(ratios), max(ratios)))
    return lines


def markdown(report):
    text = [
        "# heed against PyTorch on the CPU" + (", backward" if report["backward"] else ""),
        "",
        f"{report['cpu']}, {report['isa']}, torch {report['torch']}, heed {report['heed']}, {report['date'][:10]}. "
        f"Best of {report['rounds']} runs of each, taking turns in one process; torch / heed above 1: heed is faster. "
        "Both allocate their results in every call.",
        f"Again: `{report['command']}`",
        "",
        "| | type | threads | torch / heed, geometric mean | lowest | highest |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for group, type_name, threads, mean, low, high in summary(report["rows"]):
        text.append(f"| {group} | {type_name} | {threads} | {mean:.2f} | {low:.2f} | {high:.2f} |")
    text += ["", "| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    text += ["| " + " | ".join(cells(each)) + " |" for each in report["rows"]]
    return "\n".join(text) + "\n"


def cpu_model():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown processor"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", default=None, help="one number or several, with commas; default: 1 and all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--filter", default="*", help="only rows whose name matches this glob")
    parser.add_argument("--isa", default=None, help="highest level of heed: baseline, avx2, avx512, avx512bf16, amx")
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build/lib/libheed.so")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results")
    parser.add_argument("--name", default=None, help="of the two files in --out; default: compare_torch-<isa>, compare_torch_backward-<isa>")
    parser.add_argument("--quick", action="store_true", help="a few small rows")
    parser.add_argument("--backward", action="store_true", help="the gradients")
    arguments = parser.parse_args()
    available = len(os.sched_getaffinity(0))
    wanted = arguments.threads.split(",") if arguments.threads else sorted({1, available})
    arguments.threads = [int(each) for each in wanted]
    return arguments


def main():
    arguments = parse_arguments()
    rows = small_rows(arguments.backward) if arguments.quick else backward_rows() if arguments.backward else all_rows()
    rows = [row for row in rows if fnmatch.fnmatch(row.name(), f"*{arguments.filter}*")]
    if not rows:
        sys.exit(f"compare_torch: no row matches '{arguments.filter}'")
    load = os.getloadavg()[0]
    if load > 0.75 * os.cpu_count():
        print(f"the machine is busy (load {load:.1f}): the figures will say little", file=sys.stderr)
    results, isa, version = [], "", ""
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        heed = Heed(arguments.library, threads, arguments.isa)
        isa, version = heed.isa(), heed.version()
        peak = peak_function(isa, threads)
        for row in rows:
            result = {"threads": threads, **contest(row, heed, arguments.rounds, peak, arguments.backward)}
            results.append(result)
            print("  ".join(f"{cell:<34}" if n == 0 else f"{cell:>9}" for n, cell in enumerate(cells(result))), flush=True)
        heed.close()
    report = {
        "command": "python bench/compare_torch.py " + shlex.join(sys.argv[1:]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "processors": len(os.sched_getaffinity(0)),
        "isa": isa,
        "heed": version,
        "torch": torch.__version__,
        "rounds": arguments.rounds,
        "backward": arguments.backward,
        "load_average": load,
        "allocates": "both, in every call",
        "rows": results,
    }
    print()
    for group, type_name, threads, mean, low, high in summary(results):
        print(f"{group:<8}{type_name:<6}{threads:>2} threads   torch / heed {mean:.2f}  ({low:.2f} to {high:.2f})")
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = arguments.name or f"compare_torch{'_backward' if arguments.backward else ''}-{isa}"
    (arguments.out / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
    (arguments.out / f"{name}.md").write_text(markdown(report))
    print(f"\n{arguments.out / name}.md, .json")
    return 0 if all(each["valid"] for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
