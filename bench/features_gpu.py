"""What each feature costs on a GPU: the same problem plain and with it, forward and backward, in one run.

    python bench/features_gpu.py [--d=64,128] [--rounds=7] [--type=bf16] [--limit=SECONDS] [--json=FILE] [--markdown=FILE] [--quick]

b = 4, 16 heads, s = 4096 unless a row says otherwise. Every row is a graph of several launches, forward passes and backward
passes apart, replayed in rounds of random order; medians, in TFLOP/s of the pairs that the mask shows (a backward pass counts
2.5 times a forward one). Before anything is timed o, dq, dk and dv of two heads are compared with fp64, as they came from
threads that share a stream; one that is wrong ends the run. (Not with dropout: its random numbers would take longer in Python
than all the rest.) A row that cannot be computed is left out, with a note, and makes the exit code 1; one that cannot be captured
is called instead, and marked with a star: its host time counts. --json and --markdown are written after every head dim; after
--limit seconds no further one is begun. --quick runs everything once on small sizes, on the CPU where there is no GPU: it measures nothing.
"""

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch
from contest import TYPES, cpu_times, gpu_times
from machine import machine
from peers import reason

import heed

PASSES = ("forward", "backward")
BLOCK = 128  # of the block mask
ALLOWED = {"bf16": 2e-2, "f16": 3e-3}  # error of o, as a part of its largest element; of a gradient thrice as much
AT_ONCE = 1024  # rows of queries, in fp64


def half_of_blocks(count, device):
    """count x count of them, the first one among those that are seen."""
    mask = torch.rand(1, 1, count, count, device=device) < 0.5
    mask[..., 0, 0] = True
    return mask


class Row:
    """One problem: its tensors, what heed is told, and how many pairs are seen."""

    def __init__(self, name, d, sizes, device, dtype, *, h_k=None, d_v=None, s=None, lengths=None, gradient=None, own_bias=False, **options):
        b, h, length = sizes
        self.name, self.d, self.d_v, self.options = name, d, d_v or d, dict(options)
        self.gradient = gradient  # one more: dbias or dsink
        s = s or length
        b = max(1, b * length // s)
        random_tensor = lambda heads, dim: torch.randn(b, s, heads, dim, device=device, dtype=dtype)  # noqa: E731
        self.q, self.k = random_tensor(h, d), random_tensor(h_k or h, d)
        self.v, self.d_o = random_tensor(h_k or h, self.d_v), random_tensor(h, self.d_v)
        lengths = lengths(b, s) if lengths else None
        self.starts = None  # of sequences in one row of tokens
        if lengths:
            starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=device)
            self.starts = starts.tolist()
            total = self.starts[-1]
            self.q, self.k, self.v, self.d_o = (x.flatten(0, 1)[:total].contiguous() for x in (self.q, self.k, self.v, self.d_o))
            self.options |= {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
            self.options |= {"max_seqlen_q": max(lengths), "max_seqlen_k": max(lengths)}
        if self.options.get("dropout_p"):
            self.options["seed"] = 7
        shared, own = (1, 1), (b, h)  # by heads and batch, or by nobody
        make = {"bias": lambda: torch.randn(*(own if own_bias else shared), s, s, device=device, dtype=dtype)}
        make["mask"] = lambda: torch.rand(1, 1, s, s, device=device) < 0.9
        make["alibi_slopes"] = lambda: torch.linspace(0.01, 0.5, h, device=device)
        make["sink"] = lambda: torch.randn(h, device=device)
        make["block_mask"] = lambda: (half_of_blocks(-(-s // BLOCK), device), BLOCK, BLOCK)
        for key, tensor in make.items():
            if self.options.get(key) is True:
                self.options[key] = tensor()
        self.pairs = h * sum(self.seen(n) for n in (lengths or [s] * b))
        self.o, self.lse = self.forward()
        more = {gradient: True} if gradient else {}
        self.gradients = heed.attention_backward(self.q, self.k, self.v, self.o, self.lse, self.d_o, **more, **self.options)

    def seen(self, s):
        if "block_mask" in self.options:
            return int(self.options["block_mask"][0].sum()) * min(BLOCK, s) ** 2
        if "window" in self.options:
            return sum(min(i + 1, self.options["window"][0] + 1) for i in range(s))
        return s * (s + 1) // 2 if self.options.get("causal") else s * s

    def forward(self):
        call = heed.attention_varlen if "cu_seqlens_q" in self.options else heed.attention
        return call(self.q, self.k, self.v, return_lse=True, **self.options)

    def backward(self):
        names = ["dq", "dk", "dv", *([self.gradient] if self.gradient else [])]
        written = {name: getattr(self.gradients, name) for name in names}
        heed.attention_backward(self.q, self.k, self.v, self.o, self.lse, self.d_o, **written, **self.options)

    def flops(self, what):
        return 2 * self.pairs * (self.d + self.d_v) * (2.5 if what == "backward" else 1.0)

    def errors(self):
        """The distances of o, dq, dk and dv from fp64, as parts of the largest elements; None for dropout."""
        if "dropout_p" in self.options:
            return None
        last_entry = len(self.q) - 1 if self.starts is None else len(self.starts) - 2
        apart, largest = defaultdict(float), defaultdict(float)
        for b, h_k in {(0, 0), (last_entry, self.k.shape[-2] - 1)}:
            for name, got, exact in self.judged(b, h_k):
                apart[name] = max(apart[name], (got.double() - exact).abs().nan_to_num(math.inf).max().item())
                largest[name] = max(largest[name], exact.abs().max().item())
        return {name: apart[name] / largest[name] for name in apart}

    def judged(self, b, h_k):
        """(name, what heed has computed, the same in fp64) of a head of K and V, and of the query heads that share it."""
        tensors = (self.q, self.k, self.v, self.d_o, self.o, *self.gradients[:3])
        q, k, v, d_o, o, dq, dk, dv = (self.entry(x, b) for x in tensors)
        its_k, its_v = (x[:, h_k].double().requires_grad_() for x in (k, v))
        group = q.shape[1] // k.shape[1]
        for h in range(h_k * group, (h_k + 1) * group):
            for first in range(0, len(q), AT_ONCE):
                rows = slice(first, first + AT_ONCE)
                its_q = q[rows, h].double().requires_grad_()
                exact = self.weights(b, h, first, its_q @ its_k.T / math.sqrt(self.d)) @ its_v
                exact.backward(d_o[rows, h].double())
                yield "o", o[rows, h], exact.detach()
                yield "dq", dq[rows, h], its_q.grad
        yield "dk", dk[:, h_k], its_k.grad
        yield "dv", dv[:, h_k], its_v.grad

    def entry(self, x, b):
        """[s, h, d] of batch entry b."""
        return x[b] if self.starts is None else x[self.starts[b] : self.starts[b + 1]]

    def weights(self, b, h, first, scores):
        """What head h of batch entry b makes of scores [queries from the first one on, all keys]."""
        count, keys = scores.shape
        i = torch.arange(first, first + count, device=scores.device)[:, None]
        j = torch.arange(keys, device=scores.device)
        told = self.options
        plane = lambda x: x[min(b, len(x) - 1), min(h, x.shape[1] - 1)]  # noqa: E731
        if "softcap" in told:
            scores = told["softcap"] * torch.tanh(scores / told["softcap"])
        if "bias" in told:
            scores = scores + plane(told["bias"])[first : first + count].double()
        if "alibi_slopes" in told:
            scores = scores - told["alibi_slopes"][h].double() * (i - j).abs()
        left, right = told.get("window", (keys, 0 if told.get("causal") else keys))
        hidden = (j < i - left) | (j > i + right)
        if "mask" in told:
            hidden |= ~plane(told["mask"])[first : first + count]
        if "block_mask" in told:
            hidden |= ~plane(told["block_mask"][0])[i // BLOCK, j // BLOCK]
        scores = scores.masked_fill(hidden, -math.inf)
        if "sink" in told:  # one more key, with no value
            scores = torch.cat([scores, told["sink"][h].double().expand(count, 1)], 1)
        return torch.softmax(scores, 1)[:, :keys].masked_fill(hidden, 0)  # also of a query that sees nothing


def rows_for(d, sizes, device, dtype):
    b, h, s = sizes
    wide = dict(sizes=sizes, device=device, dtype=dtype)
    mixed = lambda b, s: [s * part // 8 for part in (8, 1, 5, 2)][:b] + [s] * (b - 4)  # noqa: E731
    for causal in (False, True):
        base = {**wide, "causal": causal}
        name = f"d{d} {'causal' if causal else 'full'}"
        yield partial(Row, name, d, **base)
        yield partial(Row, f"{name}, 4 query heads for each of K and V", d, h_k=h // 4, **base)
        yield partial(Row, f"{name}, group mode", d, lengths=lambda b, s: [s] * b, **base)
        yield partial(Row, f"{name}, group mode of lengths s, s/8, 5s/8, s/4", d, lengths=mixed, **base)
        yield partial(Row, f"{name}, ALiBi", d, alibi_slopes=True, **base)
        yield partial(Row, f"{name}, soft cap 30", d, softcap=30.0, **base)
        yield partial(Row, f"{name}, sink", d, sink=True, **base)
        yield partial(Row, f"{name}, sink with its gradient", d, sink=True, gradient="dsink", **base)
        yield partial(Row, f"{name}, dropout 0.1", d, dropout_p=0.1, **base)
        yield partial(Row, f"{name}, bias [1, 1, s, s]", d, bias=True, **base)
        yield partial(Row, f"{name}, bias [1, 1, s, s] with its gradient", d, bias=True, gradient="dbias", **base)
        own = dict(bias=True, own_bias=True, **base)
        yield partial(Row, f"{name}, bias [b, h, s, s]", d, **own)
        yield partial(Row, f"{name}, bias [b, h, s, s] with its gradient", d, gradient="dbias", **own)
        yield partial(Row, f"{name}, boolean mask [1, 1, s, s]", d, mask=True, **base)
        yield partial(Row, f"{name}, deterministic", d, deterministic=True, **base)
    yield partial(Row, f"d{d} full, half of the blocks of {BLOCK} x {BLOCK}", d, block_mask=True, **wide)
    yield partial(Row, f"d{d}, window of {s // 4}, s = {4 * s}", d, s=4 * s, window=(s // 4 - 1, 0), **wide)
    yield partial(Row, f"d{d} causal, s = {4 * s}", d, s=4 * s, causal=True, **wide)


def other_dims(sizes, device, dtype):
    for causal in (False, True):
        for d, d_v in ((96, 96), (192, 128), (192, 192), (256, 256)):
            name = f"d{d}{'' if d == d_v else f'/{d_v}'} {'causal' if causal else 'full'}"
            base = dict(d_v=d_v, sizes=sizes, device=device, dtype=dtype, causal=causal)
            yield partial(Row, name, d, **base)
            yield partial(Row, f"{name}, deterministic", d, deterministic=True, **base)


def measure(rows, device, rounds):
    """Each row's TFLOP/s, forward and backward, and which passes were timed as calls on a GPU."""
    runs = {(row, what): getattr(row, what) for row in rows for what in PASSES}
    if device == "cuda":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            times = gpu_times(runs, rounds, stream)
        torch.cuda.synchronize()
    else:
        times = cpu_times(runs, rounds)
    speeds = {row.name: {what: row.flops(what) / times[row, what][0] / 1e12 for what in PASSES} for row in rows}
    as_calls = {row.name: [what for what in PASSES if times[row, what][1] == "calls"] for row in rows}
    return speeds, {name: passes for name, passes in as_calls.items() if passes and device == "cuda"}


def make_rows(group):
    """The rows, and {name: why it is left out}. Kernels are compiled at the first call: some at a time."""

    def attempt(make):
        try:
            return make(), None
        except Exception as error:
            return make.args[0], reason(error)

    with ThreadPoolExecutor() as pool:
        made = list(pool.map(attempt, group))
    return [row for row, why in made if why is None], {name: why for name, why in made if why is not None}


def judge(row, allowed):
    """The errors of a row; one that is too large ends the run."""
    errors = row.errors()
    for name, error in (errors or {}).items():
        if not error < allowed * (1 if name == "o" else 3):
            raise SystemExit(f"{row.name}: wrong, the error of {name} is {error}")
    return errors


def table(results, errors, as_calls):
    lines = ["| problem | forward | of plain | backward | of plain | error of o, of gradients |", "|---|---|---|---|---|---|"]
    for name, speed in results.items():
        plain = results.get(name.split(",")[0], speed)
        cells = []
        for what in PASSES:
            star = "*" if what in as_calls.get(name, ()) else ""
            cells += [f"{speed[what]:.0f}{star}", f"{speed[what] / plain[what]:.2f}"]
        of = errors[name]
        cells.append("" if of is None else f"{of['o']:.0e}, {max(of['dq'], of['dk'], of['dv']):.0e}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def markdown(record):
    about = record["machine"]
    text = [f"# What features cost: {about['device']}", "", f"`{about['command']}`, {about['date']}; {record['type']}, TFLOP/s.", ""]
    text += table(record["results"], record["errors"], record["as_calls"])
    if record["as_calls"]:
        text += ["", "* could not be captured in a graph: timed as calls, its host time included."]
    if record["left_out"]:
        text += ["", "Left out:", ""] + [f"- {name}: {why}" for name, why in record["left_out"].items()]
    if record["not_measured"]:
        text += ["", f"Not measured: {', '.join(record['not_measured'])}."]
    return "\n".join(text) + "\n"


def write(given, record):
    if given.markdown:
        Path(given.markdown).write_text(markdown(record))
    if given.json:
        Path(given.json).write_text(json.dumps(record, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", default="64,128")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--type", default="bf16", choices=("bf16", "f16"))
    parser.add_argument("--limit", type=float, help="seconds after which no further head dim is begun")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not given.quick:
        parser.error("there is no GPU to measure on; --quick shows on the CPU that everything runs.")
    dtype = TYPES[given.type]
    sizes = (2, 4, 64) if given.quick else (4, 16, 4096)
    rounds = 1 if given.quick else given.rounds

    groups = {f"d{d}": partial(rows_for, int(d), sizes, device, dtype) for d in given.d.split(",")}
    groups["other head dims"] = partial(other_dims, sizes, device, dtype)
    record = {"machine": machine(device), "type": given.type, "results": {}, "errors": {}, "as_calls": {}, "left_out": {}}
    record["not_measured"] = list(groups)
    begin = time.monotonic()
    for name, group in groups.items():
        if given.limit is not None and time.monotonic() - begin > given.limit:
            break
        rows, left_out = make_rows(group())
        record["left_out"] |= left_out
        record["errors"] |= {row.name: judge(row, ALLOWED[given.type]) for row in rows}
        speeds, as_calls = measure(rows, device, rounds)
        record["results"] |= speeds
        record["as_calls"] |= as_calls
        record["not_measured"].remove(name)
        write(given, record)
        del rows
        if device == "cuda":
            torch.cuda.empty_cache()
    print(markdown(record), end="")
    return 1 if record["left_out"] else 0


if __name__ == "__main__":
    sys.exit(main())
