"""heed, as Python calls it, beside whatever else computes attention here: same data, same timing, correctness first.

    python bench/compare.py                          # the CPU, or a GPU where torch has one: 90 s
    python bench/compare.py --quick                  # one type and three lengths
    python bench/compare.py --backward               # the gradients of q, k and v, as autograd computes them
    python bench/compare.py --type=bf16 --d=128 --s=512,2048,8192 --causal=0,1 --json=FILE --markdown=FILE --plots=FOLDER
    python bench/compare.py --plot-from=FILE.json --plots=FOLDER     # pictures of an earlier run; needs no torch

Peers are torch's backends and, where installed, flash_attn 2 and 3, flashinfer, xformers and triton's tutorial (bench/peers.py);
--peer=FILE.py adds others. Every result is compared with fp64 on sampled heads before anything is timed; a wrong one of heed's
ends the run with exit code 1, a wrong one of a peer's is told and not timed. On a GPU every peer is replayed from a CUDA graph
where it can be captured, in rounds of random order; medians. On the CPU: turns, best of the rounds. What a call costs the
caller's thread is measured by bench/host_cost.py.

--plots: speed over length with the peers as lines, and a box plot of errors; SVG, and PNG where matplotlib is (bench/plots.py).
--json is written after every problem: a run that is stopped leaves what it has measured.
"""

import argparse
import json
import math
import pathlib
import statistics
import sys
import time

import plots


def numbers(words):
    return [int(each) for each in words.split(",")]


def result_table(rows, names):
    # On the CPU everything is timed as calls, and a call's own cost belongs to it.
    captured = any(each["timed_as"] == "graph" for row in rows for each in row["results"].values())
    star = lambda result: "*" if captured and result["timed_as"] == "calls" else ""  # noqa: E731
    lines = ["| problem | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for row in rows:
        best = min((each["seconds"] for each in row["results"].values()), default=0)
        cells = []
        for name in names:
            result = row["results"].get(name)
            cell = "" if result is None else f"{result['seconds'] * 1e3:.3g}{star(result)} ({result['tflops']:.3g})"
            cells.append(f"**{cell}**" if result and result["seconds"] == best else cell)
        lines.append(f"| {row['problem']} | " + " | ".join(cells) + " |")
    return lines


def ratio_table(rows, names):
    lines = ["Speed of heed over each, geometric mean (lowest to highest):", "", "| over | |", "|---|---|"]
    for name in names:
        ratios = [
            row["results"][name]["seconds"] / row["results"]["heed"]["seconds"]
            for row in rows
            if name in row["results"] and "heed" in row["results"]
        ]
        if name != "heed" and ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines.append(f"| {name} | {mean:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {len(ratios)} problems |")
    return lines


def error_table(rows):
    lines = ["Largest error against fp64, as a part of the largest element:", ""]
    lines += ["| | median | worst |", "|---|---|---|"]
    for name in dict.fromkeys(name for row in rows for name in row["errors"]):
        errors = [row["errors"][name] for row in rows if name in row["errors"]]
        lines.append(f"| {name} | {statistics.median(errors):.1e} | {max(errors):.1e} |")
    return lines


def markdown(record):
    about, rows = record["machine"], record["rows"]
    names = list(dict.fromkeys(name for row in rows for name in row["results"]))
    lines = [f"# heed beside others: {about['device']}", ""]
    lines += [f"heed {about['heed']}, torch {about['torch']}, {about['date']}. `{about['command']}`", ""]
    lines += ["Milliseconds (TFLOPS); in bold the fastest; * could not be captured in a graph: host time included.", ""]
    lines += result_table(rows, names)
    lines += ["", *ratio_table(rows, names), "", *error_table(rows)]
    reasons = {name: why for row in rows for name, why in row["missing"].items()}
    if reasons:
        lines += ["", "Left out, at least once:", ""] + [f"- {name}: {why}" for name, why in reasons.items()]
    if record["not_measured"]:
        lines += ["", f"The time was up: {record['not_measured']} problems were not measured."]
    return "\n".join(lines) + "\n"


def problems(options):
    from contest import Problem

    for type_name in options.type.split(","):
        for d in numbers(options.d):
            for causal in numbers(options.causal):
                for s in numbers(options.s):
                    heads = max(options.width // d, 1)
                    batch = max(options.rows // s, 1)
                    group = heads // options.group
                    yield Problem(type_name, batch, heads, group, s, d, bool(causal), options.backward)


def fill_in(options):
    """Defaults of the device, and of --quick and --small."""
    import torch

    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = options.device == "cuda"
    defaults = {
        "type": "f16,bf16" if on_gpu else "f32,bf16",
        "d": "64,128",
        "s": "512,1024,2048,4096,8192,16384" if on_gpu else "128,512,1024,2048",
        "causal": "0,1",
        "width": 2048 if on_gpu else 512,
        "rows": 16384 if on_gpu else 2048,
        "rounds": 9 if on_gpu else 5,
    }
    if options.quick:
        defaults |= {"type": "bf16", "s": "1024,4096,16384" if on_gpu else "128,512,1024", "rounds": 5}
    if options.small:
        defaults |= {"type": "f32", "d": "64", "s": "64,128", "causal": "1", "width": 128, "rows": 128, "rounds": 1}
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)


def run(options):
    """The record, and whether heed was right everywhere."""
    from contest import contest
    from machine import machine

    fill_in(options)
    planned = list(problems(options))
    record = {"machine": machine(options.device), "backward": options.backward, "allocates": "all, in every call"}
    record |= {"not_measured": 0, "rows": []}
    begin, right = time.monotonic(), True
    for number, problem in enumerate(planned):
        if options.limit and time.monotonic() - begin > options.limit:
            record["not_measured"] = len(planned) - number
            print(f"the {options.limit:g} s are over: {record['not_measured']} problems are not measured", flush=True)
            break
        row = contest(problem, options.device, options.rounds, options.peer)
        record["rows"].append(row)
        if "heed" in row["wrong"] or "heed" in row["missing"]:
            why = row["missing"].get("heed") or f"error {row['errors']['heed']:.1e}"
            print(f"compare: heed: {row['problem']}: {why}", file=sys.stderr)
            right = False
        cells = [f"{name} {each['seconds'] * 1e3:.3g} ms" for name, each in row["results"].items()]
        place = f"[{number + 1}/{len(planned)}, {time.monotonic() - begin:.0f} s]"
        print(f"{place} {row['problem']}: {', '.join(cells)}", flush=True)
        for name in row["wrong"]:
            print(f"  {name} is wrong: error {row['errors'][name]:.1e}, and not timed", flush=True)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(record, indent=1) + "\n")
    return record, right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one type, three lengths, fewer rounds")
    parser.add_argument("--small", action="store_true", help="two short problems, one round: to see that it works")
    parser.add_argument("--limit", type=float, help="seconds after which no further problem is begun")
    parser.add_argument("--type", help="f32, f16, bf16, or several with commas")
    parser.add_argument("--d")
    parser.add_argument("--s")
    parser.add_argument("--causal")
    parser.add_argument("--width", type=int, help="heads * d")
    parser.add_argument("--rows", type=int, help="batch * s")
    parser.add_argument("--group", type=int, default=1, help="query heads for each key/value head")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    parser.add_argument("--plots", help="a folder")
    parser.add_argument("--plot-from", metavar="FILE.json", help="draw an earlier run, and measure nothing")
    options = parser.parse_args()
    if options.plot_from:
        plots.say(plots.draw(options.plot_from, options.plots or pathlib.Path(options.plot_from).parent))
        return 0
    record, right = run(options)
    table = markdown(record)
    print("\n" + table)
    if options.markdown:
        pathlib.Path(options.markdown).write_text(table)
    if options.plots:
        folder = pathlib.Path(options.plots)
        folder.mkdir(parents=True, exist_ok=True)
        plots.say(plots.draw_comparison(record, folder))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
