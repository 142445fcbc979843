"""What each feature costs on a GPU: the same problem plain and with it, forward and backward, in one run.

    python bench/features_gpu.py [--d=64,128] [--rounds=7] [--type=bf16] [--json=FILE] [--markdown=FILE] [--quick]

b = 4, 16 heads, s = 4096 unless a row says otherwise. Every row is a graph of several launches, forward passes and backward
passes apart, replayed in rounds of random order; medians, in TFLOP/s of the pairs that the mask shows (a backward pass counts
2.5 times a forward one). Results are compared with the fp64 reference for some rows of one head before anything is timed.
--quick runs everything once on small sizes, on the CPU where there is no GPU: it measures nothing.
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from contest import TYPES, cpu_times, gpu_times
from machine import machine

import heed
import heed.reference

PASSES = ("forward", "backward")
BLOCK = 128  # of the block mask


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
        if lengths:
            starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=device)
            total = int(starts[-1])
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

    def error(self):
        """Of some rows of the first head, as a part of the largest element; None for what has no short reference."""
        if any(key in self.options for key in ("dropout_p", "cu_seqlens_q", "block_mask")):
            return None
        rows = slice(-64, None)
        part = {key: value for key, value in self.options.items() if key in ("causal", "softcap", "window")}
        for key in ("alibi_slopes", "sink"):
            if key in self.options:
                part[key] = self.options[key][:1].cpu().numpy()
        for key in ("bias", "mask"):
            if key in self.options:
                x = self.options[key][:1, :1, rows].cpu()
                part[key] = (x if key == "mask" else x.float()).numpy()
        q, k, v = self.q[:1, rows, :1], self.k[:1, :, :1], self.v[:1, :, :1]
        o, _ = heed.reference.attention(*(x.float().cpu().numpy() for x in (q, k, v)), **part)
        got = self.o[:1, rows, :1].float().cpu().numpy()
        return float(abs(got - o).max() / abs(o).max())


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
    """Each row's TFLOP/s, forward and backward."""
    runs = {(row, what): getattr(row, what) for row in rows for what in PASSES}
    if device == "cuda":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            times = gpu_times(runs, rounds, stream)
        torch.cuda.synchronize()
    else:
        times = cpu_times(runs, rounds)
    return {row.name: {what: row.flops(what) / times[row, what][0] / 1e12 for what in PASSES} for row in rows}


def table(results, errors):
    lines = ["| problem | forward | of plain | backward | of plain | error |", "|---|---|---|---|---|---|"]
    for name, speed in results.items():
        plain = results.get(name.split(",")[0], speed)
        part = {what: f"{speed[what] / plain[what]:.2f}" for what in speed}
        error = "" if errors[name] is None else f"{errors[name]:.0e}"
        lines.append(
            f"| {name} | {speed['forward']:.0f} | {part['forward']} | {speed['backward']:.0f} | {part['backward']} | {error} |"
        )
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", default="64,128")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--type", default="bf16", choices=("bf16", "f16"))
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
    allowed = {"bf16": 2e-2, "f16": 3e-3}[given.type]

    results, errors = {}, {}
    groups = [lambda d=d: rows_for(int(d), sizes, device, dtype) for d in given.d.split(",")]
    for group in [*groups, lambda: other_dims(sizes, device, dtype)]:
        with ThreadPoolExecutor() as pool:  # kernels are compiled at the first call
            rows = list(pool.map(lambda make: make(), group()))
        for row in rows:
            errors[row.name] = row.error()
            if errors[row.name] is not None and not errors[row.name] < allowed:
                raise SystemExit(f"{row.name}: wrong, its error is {errors[row.name]}")
        results |= measure(rows, device, rounds)
        del rows
        if device == "cuda":
            torch.cuda.empty_cache()

    about = machine(device)
    text = [f"# What features cost: {about['device']}", "", f"`{about['command']}`, {about['date']}; {given.type}, TFLOP/s.", ""]
    text += table(results, errors)
    print("\n".join(text))
    if given.markdown:
        with open(given.markdown, "w") as file:
            file.write("\n".join(text) + "\n")
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"machine": about, "results": results, "errors": errors}, file, indent=1)


if __name__ == "__main__":
    main()
