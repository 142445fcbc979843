"""heed, as Python calls it, beside whatever else computes attention here: same data, same timing, correctness first.

    python bench/compare.py                          # the CPU, or a GPU where torch has one
    python bench/compare.py --device=cpu --small     # a few seconds, to see that it works
    python bench/compare.py --type=bf16 --d=128 --s=512,2048,8192 --causal=0,1 --json=FILE --markdown=FILE --plots=FOLDER

Peers are torch's backends and, where installed, flash_attn 2 and 3, flashinfer and xformers (bench/peers.py); --peer=FILE.py
adds others. Every result is compared with fp64 on sampled heads before anything is timed; a wrong one of heed's ends the run
with exit code 1, a wrong one of a peer's is told and not timed. On a GPU every peer is replayed from a CUDA graph where it can
be captured, in rounds of random order; medians. On the CPU: turns, best of the rounds. The last table is what a call costs the
caller's thread.

--plots: speed over length with the peers as lines, and a box plot of errors, as SVG.
"""

import argparse
import datetime
import json
import math
import pathlib
import platform
import random
import statistics
import sys
import time

import peers as others
import svg
import torch

import heed

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
TOLERANCE = {"f32": 2e-5, "f16": 2e-3, "bf16": 1.6e-2}  # of the largest element of o
LAUNCHES = 8  # in one graph
SHORTEST = 2e-3  # seconds of one timing on the CPU: shorter calls are repeated


def numbers(words):
    return [int(each) for each in words.split(",")]


class Problem:
    def __init__(self, type_name, b, h, h_k, s, d, causal):
        self.type_name, self.b, self.h, self.h_k, self.s, self.d, self.causal = type_name, b, h, h_k, s, d, causal

    def name(self):
        heads = f"h{self.h}" if self.h == self.h_k else f"h{self.h}/{self.h_k}"
        return f"{self.type_name} {'causal' if self.causal else 'full'} b{self.b} {heads} s{self.s} d{self.d}"

    def flops(self):
        pairs = self.s * (self.s + 1) / 2 if self.causal else self.s * self.s
        return 4.0 * self.b * self.h * pairs * self.d

    def data(self, device):
        generator = torch.Generator().manual_seed(7919)
        make = lambda heads: torch.randn(self.b, self.s, heads, self.d, generator=generator).to(
            device, TYPES[self.type_name]
        )
        return make(self.h), make(self.h_k), make(self.h_k)


def exact(problem, q, k, v, b, h):
    """fp64 of one head, [s, d]."""
    group = problem.h // problem.h_k
    q, k, v = q[b, :, h].double(), k[b, :, h // group].double(), v[b, :, h // group].double()
    scores = q @ k.T / math.sqrt(problem.d)
    if problem.causal:
        scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    return torch.softmax(scores, -1) @ v


def relative_error(problem, q, k, v, o):
    """The largest over sampled heads, as a part of the largest element."""
    worst = 0.0
    for b, h in {(0, 0), (problem.b - 1, problem.h - 1)}:
        expected = exact(problem, q, k, v, b, h)
        worst = max(
            worst, ((o[b, :, h].double() - expected).abs().max() / expected.abs().max()).nan_to_num(math.inf).item()
        )
    return worst


def graph_of(run):
    """A CUDA graph of several launches, or None where the peer cannot be captured."""
    try:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
            run()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(LAUNCHES):
                run()
        return graph
    except Exception:
        torch.cuda.synchronize()
        return None


def gpu_times(runs, rounds):
    """{name: (median seconds, how)}"""
    graphs = {name: graph_of(run) for name, run in runs.items()}
    times = {name: [] for name in runs}
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for turn in range(rounds + 2):
        for name in random.sample(list(runs), len(runs)):
            begin.record()
            if graphs[name] is not None:
                graphs[name].replay()
            else:
                for _ in range(LAUNCHES):
                    runs[name]()
            end.record()
            end.synchronize()
            if turn >= 2:
                times[name].append(begin.elapsed_time(end) * 1e-3 / LAUNCHES)
    return {name: (statistics.median(each), "graph" if graphs[name] else "calls") for name, each in times.items()}


def timed(run, count):
    begin = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - begin) / count


def cpu_times(runs, rounds):
    counts = {name: max(1, math.ceil(SHORTEST / max(timed(run, 1), 1e-7))) for name, run in runs.items()}
    times = {name: [] for name in runs}
    for turn in range(rounds):
        for name in list(runs)[:: 1 if turn % 2 == 0 else -1]:
            time.sleep(0.005)  # another's threads may spin for some milliseconds after their last work
            runs[name]()
            times[name].append(timed(runs[name], counts[name]))
    return {name: (min(each), "calls") for name, each in times.items()}


def contest(problem, device, rounds, files):
    q, k, v = problem.data(device)
    with torch.inference_mode():
        runs, missing = others.peers(q, k, v, problem.causal, files)
        errors = {name: relative_error(problem, q, k, v, run()) for name, run in runs.items()}
        right = {name: run for name, run in runs.items() if errors[name] <= TOLERANCE[problem.type_name]}
        times = (gpu_times if device == "cuda" else cpu_times)(right, rounds)
    results = {
        name: {"seconds": seconds, "tflops": problem.flops() / seconds / 1e12, "timed_as": how}
        for name, (seconds, how) in times.items()
    }
    return {
        "problem": problem.name(),
        "s": problem.s,
        "group": f"{problem.type_name} {'causal' if problem.causal else 'full'} d{problem.d}",
        "results": results,
        "errors": errors,
        "wrong": [name for name in runs if name not in right],
        "missing": missing,
    }


def host_costs(device):
    """Microseconds of the caller's thread for one call on small tensors, the GPU's work not waited for."""
    q = torch.randn(1, 16, 2, 64, device=device, dtype=torch.float16 if device == "cuda" else torch.float32)
    turned = q.transpose(1, 2)
    out = torch.empty_like(q)
    calls = {
        "heed.attention(q, k, v)": lambda: heed.attention(q, q, q),
        "heed.attention(q, k, v, causal=True, out=out)": lambda: heed.attention(q, q, q, causal=True, out=out),
        "torch scaled_dot_product_attention(q, k, v)": lambda: torch.nn.functional.scaled_dot_product_attention(
            turned, turned, turned
        ),
    }
    if device == "cpu":
        array = q.numpy()
        calls["heed.attention of NumPy arrays"] = lambda: heed.attention(array, array, array)
    costs = {}
    with torch.inference_mode():
        for name, call in calls.items():
            best = math.inf
            for _ in range(20):
                call()
                if device == "cuda":
                    torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(100):
                    call()
                best = min(best, (time.perf_counter() - begin) / 100)
            costs[name] = best * 1e6
    return costs


def machine(device):
    if device == "cuda":
        name = torch.cuda.get_device_name()
    else:
        words = pathlib.Path("/proc/cpuinfo").read_text() if pathlib.Path("/proc/cpuinfo").exists() else ""
        models = [each.split(":")[1].strip() for each in words.splitlines() if each.startswith("model name")]
        name = f"{models[0] if models else platform.machine()}, {torch.get_num_threads()} threads"
    return {
        "date": datetime.date.today().isoformat(),
        "device": name,
        "heed": heed.__version__,
        "torch": torch.__version__,
        "command": " ".join(["python", "bench/compare.py", *sys.argv[1:]]),
    }


def markdown(about, rows, costs):
    names = list(dict.fromkeys(name for row in rows for name in row["results"]))
    lines = [f"# heed beside others: {about['device']}", ""]
    lines += [f"heed {about['heed']}, torch {about['torch']}, {about['date']}. `{about['command']}`", ""]
    lines += ["Milliseconds (TFLOPS); in bold the fastest.", ""]
    lines += ["| problem | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for row in rows:
        best = min((each["seconds"] for each in row["results"].values()), default=0)
        cells = []
        for name in names:
            result = row["results"].get(name)
            cell = "" if result is None else f"{result['seconds'] * 1e3:.3g} ({result['tflops']:.3g})"
            cells.append(f"**{cell}**" if result and result["seconds"] == best else cell)
        lines.append(f"| {row['problem']} | " + " | ".join(cells) + " |")
    lines += ["", "Speed of heed over each, geometric mean (lowest to highest):", "", "| over | |", "|---|---|"]
    for name in names:
        ratios = [
            row["results"][name]["seconds"] / row["results"]["heed"]["seconds"]
            for row in rows
            if name in row["results"] and "heed" in row["results"]
        ]
        if name != "heed" and ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines.append(f"| {name} | {mean:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {len(ratios)} problems |")
    lines += [
        "",
        "Largest error against fp64, as a part of the largest element:",
        "",
        "| | median | worst |",
        "|---|---|---|",
    ]
    for name in dict.fromkeys(name for row in rows for name in row["errors"]):
        errors = [row["errors"][name] for row in rows if name in row["errors"]]
        lines.append(f"| {name} | {statistics.median(errors):.1e} | {max(errors):.1e} |")
    lines += ["", "What a call costs the caller's thread:", "", "| call | us |", "|---|---|"]
    lines += [f"| `{name}` | {cost:.1f} |" for name, cost in costs.items()]
    reasons = {name: why for row in rows for name, why in row["missing"].items()}
    if reasons:
        lines += ["", "Left out, at least once:", ""] + [f"- {name}: {why}" for name, why in reasons.items()]
    return "\n".join(lines) + "\n"


def plots(folder, about, rows):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for group in dict.fromkeys(row["group"] for row in rows):
        series = {}
        for row in rows:
            if row["group"] == group:
                for name, result in row["results"].items():
                    series.setdefault(name, []).append((row["s"], result["tflops"]))
        picture = svg.lines(f"{group}, {about['device']}", "sequence length", "TFLOPS", series)
        (folder / f"speed-{group.replace(' ', '-')}.svg").write_text(picture)
    errors = {}
    for row in rows:
        for name, error in row["errors"].items():
            errors.setdefault(name, []).append(error)
    (folder / "errors.svg").write_text(svg.boxes("error against fp64", "of the largest element", errors))


def problems(options):
    for type_name in options.type.split(","):
        for d in numbers(options.d):
            for causal in numbers(options.causal):
                for s in numbers(options.s):
                    heads = max(options.width // d, 1)
                    batch = max(options.rows // s, 1)
                    yield Problem(type_name, batch, heads, heads // options.group, s, d, bool(causal))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--type", default=None, help="f32, f16, bf16, or several with commas")
    parser.add_argument("--d", default="64,128")
    parser.add_argument("--s", default=None)
    parser.add_argument("--causal", default="0,1")
    parser.add_argument("--width", type=int, default=None, help="heads * d")
    parser.add_argument("--rows", type=int, default=None, help="batch * s")
    parser.add_argument("--group", type=int, default=1, help="query heads for each key/value head")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--small", action="store_true", help="two short problems, one round")
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    parser.add_argument("--plots")
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    defaults = {
        "type": "f16,bf16" if on_gpu else "f32,bf16",
        "s": "512,1024,2048,4096,8192,16384" if on_gpu else "128,512,1024,2048",
        "width": 2048 if on_gpu else 512,
        "rows": 16384 if on_gpu else 2048,
        "rounds": 15 if on_gpu else 7,
    }
    if options.small:
        defaults = {"type": "f32", "s": "64,128", "width": 128, "rows": 128, "rounds": 1}
        options.d, options.causal = "64", "1"
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)

    about, rows, status = machine(options.device), [], 0
    for problem in problems(options):
        row = contest(problem, options.device, options.rounds, options.peer)
        rows.append(row)
        if "heed" in row["wrong"] or "heed" in row["missing"]:
            print(
                f"compare: heed: {row['problem']}: {row['missing'].get('heed') or row['errors']['heed']}",
                file=sys.stderr,
            )
            status = 1
        cells = [f"{name} {each['seconds'] * 1e3:.3g} ms" for name, each in row["results"].items()]
        print(f"{row['problem']}: {', '.join(cells)}", flush=True)
        for name in row["wrong"]:
            print(f"  {name} is wrong: error {row['errors'][name]:.1e}, and not timed", flush=True)
    costs = host_costs(options.device)
    table = markdown(about, rows, costs)
    print("\n" + table)
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps({"machine": about, "rows": rows, "host_us": costs}, indent=1) + "\n"
        )
    if options.markdown:
        pathlib.Path(options.markdown).write_text(table)
    if options.plots:
        plots(options.plots, about, rows)
    return status


if __name__ == "__main__":
    sys.exit(main())
