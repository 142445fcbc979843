"""Time over sequence length, drawn: as SVG into the file named on the command line, else into the terminal."""

import sys
import time

import numpy as np

import heed

LENGTHS = [64, 128, 256, 512, 1024]


def seconds(s, causal):
    q, k, v = (np.random.default_rng(each).standard_normal((1, s, 4, 64), dtype=np.float32) for each in range(3))
    out = np.empty_like(q)
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        heed.attention(q, k, v, causal=causal, out=out)
        best = min(best, time.perf_counter() - begin)
    assert heed.Validator(q, k, v, causal=causal).check(out) if s <= 128 else np.isfinite(out).all()
    return best


times = {name: [seconds(s, causal) for s in LENGTHS] for name, causal in (("full", False), ("causal", True))}
longest = max(map(max, times.values()))
if len(sys.argv) > 1:
    lines = []
    for (_, row), colour in zip(times.items(), ("#30638e", "#d1495b")):
        points = " ".join(f"{60 + 120 * i},{260 - 220 * each / longest:.1f}" for i, each in enumerate(row))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    labels = [f'<text x="{60 + 120 * i}" y="285" text-anchor="middle">{s}</text>' for i, s in enumerate(LENGTHS)]
    frame = '<svg xmlns="http://www.w3.org/2000/svg" width="600" height="300" font-family="sans-serif" font-size="12">'
    with open(sys.argv[1], "w") as file:
        file.write("\n".join([frame, *lines, *labels, "</svg>\n"]))
for name, row in times.items():
    for s, each in zip(LENGTHS, row):
        print(f"{name:>6} s{s:<5} {each * 1e3:8.3f} ms {'#' * max(1, round(50 * each / longest))}")
assert times["full"][-1] > times["full"][0], "sixteen times the length takes longer"
