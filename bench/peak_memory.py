#!/usr/bin/env python3
"""How much memory a forward pass needs beside its tensors, as the sequence grows.

    python bench/peak_memory.py [--library=build/lib/libheed.so] [--threads=2] [--md=FILE]

Each problem is computed in a process of its own, through the C interface. After a small problem has brought in code and
threads and the tensors have been written, the system's high-water mark of resident memory is reset (/proc/self/clear_refs);
what it shows after the pass, less what was resident before, is what the pass took. Needs nothing but Python and Linux.
"""

import argparse
import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

from heed_c import BF16, F32, Heed

ROOT = Path(__file__).resolve().parent.parent
LENGTHS = [1024, 2048, 4096, 8192, 16384, 32768, 65536]
TYPES = {"f32": (F32, 4), "bf16": (BF16, 2)}
D = 128


class Dense:
    """What heed_c asks of a tensor: [1, 1, s, D], every element the same small number."""

    def __init__(self, s, size):
        self.shape = (1, 1, s, D)
        self.memory = mmap.mmap(-1, s * D * size)
        row = b"\x3c" * (D * size)  # 0.0115 in both types
        for _ in range(s):
            self.memory.write(row)

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def stride(self):
        return (self.shape[2] * D, self.shape[2] * D, D, 1)


def resident(name):
    """A line of /proc/self/status, in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {name}")


def workspace_bytes(heed, args):
    plan = ctypes.c_void_p()
    heed.check(heed.lib.heed_plan_create(heed.context, ctypes.byref(args), None, ctypes.byref(plan)))
    heed.lib.heed_plan_workspace_bytes.restype = ctypes.c_size_t
    bytes_needed = heed.lib.heed_plan_workspace_bytes(plan)
    heed.lib.heed_plan_destroy(plan)
    return bytes_needed


def measure(library, threads, type_name, s_q, s_k):
    """Prints one row of the table."""
    data_type, size = TYPES[type_name]
    heed = Heed(library, threads)

    def problem(s_q, s_k):
        q, k, v, o = (Dense(s, size) for s in (s_q, s_k, s_k, s_q))
        return heed.args(q, k, v, o, data_type, False), (q, k, v, o)

    small, its_tensors = problem(min(s_q, 128), 128)
    heed.forward(small)
    args, tensors = problem(s_q, s_k)
    workspace, kernel = workspace_bytes(heed, args), heed.kernel(args)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    heed.forward(args)
    taken = resident("VmHWM") - before
    print(f"| {type_name} | {s_q} | {s_k} | {kernel} | {2 * (s_q + s_k) * D * size / 1024:.0f} | {workspace / 1024:.0f} | {taken} "
          f"| {s_q * s_k * 4 / 1024:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, default=ROOT / "build/lib/libheed.so")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--md", type=Path, help="write the table there, too")
    parser.add_argument("--one", nargs=3, metavar=("TYPE", "S_Q", "S_K"), help="measure one problem in this process")
    options = parser.parse_args()
    if options.one:
        type_name, s_q, s_k = options.one
        measure(options.library, options.threads, type_name, int(s_q), int(s_k))
        return

    lines = [
        "# Memory of a forward pass beside its tensors",
        "",
        f"One head, d = {D}, {options.threads} threads, all in KiB. Tensors: q, k, v and o. Workspace: what the plan asks for. Taken: by how much",
        "the resident memory of the process grew, at its highest, while the pass ran; it stays below the workspace, which has room for packed",
        "keys, bias, masks and split keys, too. Scores: what keeping S in f32 would take.",
        f"Again: `python bench/peak_memory.py --threads={options.threads} --md=bench/results/peak-memory.md`",
        "",
        "| type | s_q | s_k | kernel | tensors | workspace | taken | scores |",
        "|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    print("\n".join(lines))
    for type_name in TYPES:
        for one_query in (False, True):
            for s in LENGTHS:
                command = [sys.executable, __file__, f"--library={options.library}", f"--threads={options.threads}", "--one", type_name,
                           str(1 if one_query else s), str(s)]
                row = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
                print(row, flush=True)
                lines.append(row)
    if options.md:
        options.md.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
