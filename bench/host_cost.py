"""What a call costs the caller's thread: heed.attention on small arrays beside torch's own attention.

    python bench/host_cost.py [--device=cpu|cuda] [--seconds=0.4] [--json=FILE] [--markdown=FILE]

A hundred calls follow each other without waiting for the GPU, whose queue holds more; the clock on the wall, divided by their
number; the best of as many such batches as fit into --seconds. On the CPU that time holds the computation too, which is small
here: 8 queries, 2 heads, head dim 64. Rows marked with a goal are those that heed promises something about.
"""

import argparse
import json
import math
import pathlib
import time

import torch
from machine import machine
from torch.nn.attention import SDPBackend, sdpa_kernel

import heed
from heed.compat.flash_attn import flash_attn_func

GOALS = {"cuda heed.attention(q, k, v)": 15.0, "numpy heed.attention(q, k, v)": 10.0}  # us
CALLS = 100

sdpa = torch.nn.functional.scaled_dot_product_attention


def forward_calls(device):
    q = torch.randn(1, 8, 2, 64, device=device, dtype=torch.float16 if device == "cuda" else torch.float32)
    turned, out = q.transpose(1, 2), torch.empty_like(q)
    starts, packed = torch.tensor([0, 8], dtype=torch.int32, device=device), q[0]
    plan = heed.plan(q, q, q)
    return {
        "heed.attention(q, k, v)": lambda: heed.attention(q, q, q),
        "heed.attention(q, k, v, out=out)": lambda: heed.attention(q, q, q, out=out),
        "heed.attention(q, k, v, causal=True)": lambda: heed.attention(q, q, q, causal=True),
        "heed.attention(q, k, v, return_lse=True)": lambda: heed.attention(q, q, q, return_lse=True),
        "heed.attention_varlen(...)": lambda: heed.attention_varlen(packed, packed, packed, starts, starts, 8, 8),
        "heed.compat.flash_attn.flash_attn_func(q, k, v)": lambda: flash_attn_func(q, q, q),
        "plan.run(q, k, v, out=out)": lambda: plan.run(q, q, q, out=out),
        "torch SDPA": lambda: sdpa(turned, turned, turned),
    }


def training_calls(device):
    """A forward and a backward pass."""
    d_o = torch.randn(1, 8, 2, 64, device=device, dtype=torch.float16 if device == "cuda" else torch.float32)
    leaves = [d_o.clone().requires_grad_() for _ in range(3)]
    seen = [each.detach().transpose(1, 2).requires_grad_() for each in leaves]
    turned = d_o.transpose(1, 2)
    return {
        "heed.attention and its gradients": lambda: torch.autograd.grad(heed.attention(*leaves), leaves, d_o),
        "torch SDPA and its gradients": lambda: torch.autograd.grad(sdpa(*seen), seen, turned),
    }


def numpy_calls():
    q = torch.randn(1, 8, 2, 64).numpy()
    out = q.copy()
    return {
        "heed.attention(q, k, v)": lambda: heed.attention(q, q, q),
        "heed.attention(q, k, v, out=out)": lambda: heed.attention(q, q, q, out=out),
    }


def cost(call, device, seconds):
    """Microseconds of one call."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end or best == math.inf:
        call()
        wait()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter() - begin) / CALLS)
    wait()
    return best * 1e6


def backends(device):
    """Names and choosers of torch's kernels; a chooser holds for all calls of a measurement, and costs none of them."""
    found = {"flash": SDPBackend.FLASH_ATTENTION}
    if device == "cuda":
        found["cuDNN"] = SDPBackend.CUDNN_ATTENTION
    return found


def rows_of(calls, array, device, seconds):
    """[{"array": ..., "call": ..., "us": ...}]; torch's calls once for each of its backends."""
    rows = []
    for name, call in calls.items():
        choices = backends(device) if name.startswith("torch") else {"": None}
        for label, backend in choices.items():
            row = {"array": array, "call": f"{name}, {label}" if label else name}
            try:
                if backend is None:
                    row["us"] = cost(call, device, seconds)
                else:
                    with sdpa_kernel(backend):
                        row["us"] = cost(call, device, seconds)
            except RuntimeError as error:
                row["missing"] = str(error).strip().splitlines()[0][:160]
            row["goal_us"] = GOALS.get(f"{array} {name}")
            rows.append(row)
            print(line(row), flush=True)
    return rows


def line(row):
    what = f"{row['us']:.1f}" if "us" in row else f"not here: {row['missing']}"
    goal = "" if row["goal_us"] is None else f"{row['goal_us']:g}"
    return f"| {row['array']} | {row['call']} | {what} | {goal} |"


HEAD = ["| arrays | call | us | goal |", "|---|---|---|---|"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=0.4, help="for each row")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    options = parser.parse_args()
    torch.set_num_threads(1)  # what is so small gains nothing from threads
    print("\n".join(HEAD), flush=True)
    rows = []
    for device in dict.fromkeys([options.device, "cpu"]):
        with torch.inference_mode():
            rows += rows_of(forward_calls(device), device, device, options.seconds)
        rows += rows_of(training_calls(device), device, device, options.seconds)
    rows += rows_of(numpy_calls(), "numpy", "cpu", options.seconds)
    record = {"machine": machine(options.device), "rows": rows}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(record, indent=1) + "\n")
    if options.markdown:
        about = record["machine"]
        text = f"heed {about['heed']}, torch {about['torch']}, {about['date']}. `{about['command']}`"
        lines = [f"# What a call costs the caller's thread: {about['device']}", "", text, "", *HEAD, *map(line, rows)]
        pathlib.Path(options.markdown).write_text("\n".join(lines) + "\n")
    for row in rows:
        if row["goal_us"] is not None and row.get("us", math.inf) > row["goal_us"]:
            print(f"goal missed: {row['call']} of {row['array']} arrays")


if __name__ == "__main__":
    main()
