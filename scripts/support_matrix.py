#!/usr/bin/env python3
"""Writes what this build supports, as `heed kernels --json` tells it, into docs/support-matrix.md and the README.

    scripts/support_matrix.py               write both
    scripts/support_matrix.py --check       only say whether they are up to date; exit code 1 when not

The result depends on the kernels that the build knows, not on which of them this machine can run. The CUDA engine lists its
kernels where it finds a driver; for that the tests' libcuda.so.1, which has no GPU behind it, is put in front of the system's.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "support-matrix.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- support -->", "<!-- /support -->"
SIGNATURE_SOURCE = ROOT / "src" / "dispatch" / "signature.cpp"

ENGINES = {"cpu": "CPU", "cuda": "CUDA"}
CPU_LEVELS = ["baseline", "avx2", "avx512", "avx512bf16", "amx"]
OPERATIONS = {"forward": "forward", "backward": "backward"}  # family: name for people
TYPES = ["f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4"]
UNITS = {
    "f32_fma": "f32",
    "bf16_dot": "bf16 dot",
    "amx_bf16": "AMX bf16 tiles",
    "mma": "mma",
    "wgmma": "wgmma",
}
MASKS = {
    "none": "none",
    "causal": "causal, top-left or bottom-right",
    "window": "sliding window, either alignment",
    "window_with_sink": "sliding window with sink keys",
    "raw": "raw coordinates (`g:y,x`)",
}
MODES = {"batch": "batch (one length)", "group": "group (packed sequences)"}
FEATURES = {
    "lse": "log-sum-exp output",
    "bias": "additive bias, any broadcast",
    "alibi": "ALiBi, per head or per batch and head",
    "soft_cap": "soft cap on the logits",
    "sink": "sink logit per head",
    "dropout": "dropout (Philox)",
    "randval": "random words written out",
    "bool_mask": "boolean mask, any broadcast",
    "block_mask": "block mask",
    "logical_lengths": "logical lengths per sequence",
    "column_major_v": "column-major V",
    "d_lse": "gradient of the log-sum-exp",
    "dbias": "dBias",
    "dsink": "dSink",
    "dslopes": "dSlopes of ALiBi",
}
FORWARD_ONLY, BACKWARD_ONLY = {"lse", "randval"}, {"d_lse", "dbias", "dsink", "dslopes"}
YES, NO = "yes", "–"


def names_in_source(array):
    """The names that "any" stands for: the array kFeatureNames, kMaskNames ... of the signatures."""
    source = SIGNATURE_SOURCE.read_text(encoding="utf-8")
    found = re.search(rf"\b{array}\{{(.*?)\}};", source, re.S)
    if not found:
        sys.exit(f"support_matrix: {SIGNATURE_SOURCE.name} has no {array}: tell scripts/support_matrix.py where the names are")
    return re.findall(r'"(\w+)"', found.group(1))


def described(array, texts):
    """(name, text for people) of every name in the source; each must have a text."""
    names = names_in_source(array)
    missing = [name for name in names if name not in texts]
    if missing:
        sys.exit(f"support_matrix: no words for {', '.join(missing)}: add them to scripts/support_matrix.py")
    return [(name, texts[name]) for name in names]


def has(allowed, name):
    return allowed == "any" or name in allowed


def size_text(sizes):
    if sizes == "any":
        return "any"
    text = f"{sizes['min']} to {sizes['max']}" if "max" in sizes else f"{sizes['min']} and more"
    return text + (f", multiples of {sizes['multiple_of']}" if "multiple_of" in sizes else "")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


class Build:
    """What `heed kernels --json` says, without what it says about this machine."""

    def __init__(self, text):
        data = json.loads(text)
        self.kernels = data["kernels"]
        self.missing = {each["engine"]: each["reason"] for each in data["missing_engines"]}
        known = {kernel["arch"] for kernel in self.kernels if kernel["engine"] == "cpu"}
        self.columns = [("cpu", level) for level in CPU_LEVELS if level in known]
        self.columns += sorted({("cuda", k["arch"]) for k in self.kernels if k["engine"] == "cuda"})
        self.lacking = [level for level in CPU_LEVELS if level not in known]
        unknown = known - set(CPU_LEVELS)
        if "cuda" in self.missing:
            sys.exit(f"support_matrix: the CUDA kernels cannot be listed: {self.missing['cuda']}\nBuild the tests first, or name a folder with libcuda.so.1 (--driver).")
        if unknown:
            sys.exit(f"support_matrix: unknown levels {', '.join(sorted(unknown))}: add them to scripts/support_matrix.py")

    def heads(self):
        return [f"{ENGINES[engine]} {level}" for engine, level in self.columns]

    def at(self, family, column):
        """Kernels of a family that a machine of this level can run: its own and those of the levels below."""
        engine, level = column
        levels = self.levels(engine)
        levels = levels[: levels.index(level) + 1]
        return [k for k in self.kernels if k["family"] == family and k["engine"] == engine and k["arch"] in levels]

    def levels(self, engine):
        return [level for each, level in self.columns if each == engine]

    def covers(self, family, column, field, name):
        """Whether every input type that this level takes can have it."""
        kernels = self.at(family, column)
        if not kernels:
            return NO
        types = {t for k in kernels for t in k["signature"]["types"]}
        can = {t for k in kernels if has(k["signature"][field], name) for t in k["signature"]["types"]}
        return YES if types <= can else ", ".join(t for t in TYPES if t in can) or NO

    def unit(self, family, column, data_type):
        """How the products of this type are computed by the best kernel of this level, where math is fast."""
        engine, level = column
        kernels = [k for k in self.at(family, column) if data_type in k["signature"]["types"] and has(k["signature"]["math"], "fast")]
        if not kernels:
            return NO
        best = max((k["arch"] for k in kernels), key=self.levels(engine).index)
        units = sorted({UNITS[k["algorithm"]["unit"]] for k in kernels if k["arch"] == best})
        return ", ".join(units) + ("" if best == level else f" ({best})")

    def operation(self, engine, family):
        if any(k["family"] == family and k["engine"] == engine for k in self.kernels):
            return YES
        return f"{NO} ({self.missing[engine]})" if engine in self.missing else NO


def limits(build, family):
    lines = []
    of_family = [k for k in build.kernels if k["family"] == family]
    for engine in sorted({k["engine"] for k in of_family}):
        kernels = [k for k in of_family if k["engine"] == engine]
        # A family's widest: what a kernel of narrower tiles takes is taken by it, too.
        widest = max(k["signature"]["d"]["max"] for k in kernels)
        kernels = [k for k in kernels if k["signature"]["d"]["max"] == widest]
        dims = {(size_text(k["signature"]["d"]), size_text(k["signature"]["d_v"])) for k in kernels}
        outputs = [t for t in TYPES if any(has(k["signature"]["output_types"], t) for k in kernels)]
        for d, d_v in sorted(dims):
            lines.append(f"- {ENGINES[engine]}: d from {d}, d_v from {d_v}, in any combination; o in {', '.join(outputs)}.")
    return "\n".join(lines) + "\n"


def operations_table(build):
    operations = dict(OPERATIONS)
    operations.update({k["family"]: k["family"] for k in build.kernels if k["family"] not in operations})
    rows = [[text] + [build.operation(engine, family) for engine in ENGINES] for family, text in operations.items()]
    return table(["operation"] + list(ENGINES.values()), rows)


def types_table(build, family):
    """A row for each set of types that are treated alike."""
    alike = {}
    for data_type in TYPES:
        alike.setdefault(tuple(build.unit(family, column, data_type) for column in build.columns), []).append(data_type)
    return table(["q, k, v"] + build.heads(), [[", ".join(types), *cells] for cells, types in alike.items()])


def feature_rows(build, family):
    rows = []
    others = BACKWARD_ONLY if family == "forward" else FORWARD_ONLY
    for title, field, names in [
        ("mask", "masks", described("kMaskNames", MASKS)),
        ("mode", "modes", described("kModeNames", MODES)),
        ("", "features", described("kFeatureNames", FEATURES)),
    ]:
        for name, text in names:
            if field == "features" and name in others:
                continue
            label = f"{title}: {text}" if title else text
            rows.append([label] + [build.covers(family, column, field, name) for column in build.columns])
    return rows


def features_table(build, family):
    return table([family] + build.heads(), feature_rows(build, family))


def kernels_table(build):
    def row(kernel):
        signature, algorithm = kernel["signature"], kernel["algorithm"]
        rows = signature["rows_per_kv_head"]
        return [
            f"`{kernel['name']}`",
            ", ".join(signature["types"]),
            "fast, accurate" if signature["math"] == "any" else ", ".join(signature["math"]),
            "any" if rows == "any" else f"up to {rows['max']}",
            f"{UNITS[algorithm['unit']]}, {algorithm['schedule'].replace('_', ' ')} of {algorithm['tile_q']} x {algorithm['tile_k']}",
        ]

    rows = [row(kernel) for kernel in build.kernels]
    return table(["kernel", "q, k, v", "math", "query rows per K/V head", "how"], rows)


def page(build):
    return f"""<!-- Written by scripts/support_matrix.py from `heed kernels --json`. Do not edit. -->

# What is supported

## Operations

{operations_table(build)}
What is not here is answered with "not supported" and the reason, never with another computation.

## Forward: types

The unit that computes the two products on a machine of each level, and in brackets the level whose kernels it runs, if that is
not its own. A level contains those before it; the engine chooses by the machine's exact feature bits. GPUs newer than Hopper
(sm_90) run the kernels of sm_80; so does Hopper where TMA cannot read the tensors or the features need more room. Sums and
softmax are f32 everywhere; `Math::accurate` computes every product in f32.

{types_table(build, "forward")}
{limits(build, "forward")}
## Forward: features

Each works with every type of the table above, with every layout, and together with all others.

{features_table(build, "forward")}
## Backward: types

How the five products are computed.

{types_table(build, "backward")}
{limits(build, "backward")}
## Backward: features

{features_table(build, "backward")}
## Kernels

`heed kernels` lists them with everything they take, `heed explain <problem>` says which one would run and why.

{kernels_table(build)}"""


def readme_block(build):
    complete = all(cell == YES for row in feature_rows(build, "forward") for cell in row[1:])
    sentence = "Every mask and feature is there for each of these types, at every level." if complete else "Masks and features:"
    return f"""{BEGIN}
{types_table(build, "forward")}
{sentence} [docs/support-matrix.md](docs/support-matrix.md) has the whole table, written from the kernels themselves.
{END}"""


def updated_readme(text, build):
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        sys.exit(f"support_matrix: README.md has no block from {BEGIN} to {END}")
    return text[:begin] + readme_block(build) + text[end + len(END) :]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when something is out of date")
    parser.add_argument("--heed", default=os.environ.get("HEED", str(ROOT / "build" / "bin" / "heed")), help="the command")
    parser.add_argument("--driver", help="a folder with a libcuda.so.1; without it tests/fake_cuda beside the command's folder")
    options = parser.parse_args()

    driver = options.driver or str(pathlib.Path(options.heed).resolve().parents[1] / "tests" / "fake_cuda")
    folders = [driver, os.environ.get("LD_LIBRARY_PATH", "")]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(each for each in folders if each)}
    command = [options.heed, "kernels", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        sys.exit(f"support_matrix: {options.heed} kernels --json: {done.stderr.strip()}")
    build = Build(done.stdout)
    if build.lacking:
        print(f"support_matrix: nothing done: this build (for another architecture) has no {', '.join(build.lacking)}")
        return

    stale = []
    for path, wanted in [(PAGE, page(build)), (README, updated_readme(README.read_text(encoding="utf-8"), build))]:
        if path.exists() and path.read_text(encoding="utf-8") == wanted:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if not options.check:
            path.write_text(wanted, encoding="utf-8")
    if options.check and stale:
        sys.exit(f"support_matrix: {', '.join(stale)} out of date: run scripts/support_matrix.py")
    for name in stale:
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
