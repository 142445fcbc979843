#!/usr/bin/env python3
"""Breaks the CPU engine in many named ways and shows that the conformance suite catches each one.

    scripts/mutate.py                     all mutants of tests/mutation/mutants.toml
    scripts/mutate.py lse_in_log2 ...     some of them
    scripts/mutate.py --check             only whether every mutant still applies
    scripts/mutate.py --list              their names and reasons

Works in a copy of the tree (--work, kept between runs), so that the tree itself is never touched and only what a mutant
changes is compiled again. Exit code: 0 when all are caught, 1 when one survives, 2 when one does not apply.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ["CMakeLists.txt", "cmake", "include", "src", "tests"]


def read_mutants(names):
    with open(ROOT / "tests/mutation/mutants.toml", "rb") as file:
        mutants = tomllib.load(file)["mutant"]
    unknown = set(names) - {mutant["name"] for mutant in mutants}
    if unknown:
        sys.exit(f"mutate: there is no mutant called {', '.join(sorted(unknown))}; --list shows them.")
    return [mutant for mutant in mutants if not names or mutant["name"] in names]


def mutated(mutant, text):
    """The broken text of the mutant's file, or None if its search text is not there exactly once."""
    # White space may differ: the formatter breaks lines where it likes.
    pattern = r"\s+".join(re.escape(word) for word in mutant["find"].split())
    if len(re.findall(pattern, text)) != 1:
        return None
    return re.sub(pattern, lambda _: mutant["replace"], text)


def check(mutants):
    stale = [m for m in mutants if mutated(m, (ROOT / m["file"]).read_text()) is None]
    for mutant in stale:
        print(f"mutate: {mutant['name']} does not apply: its text is not in {mutant['file']} exactly once.")
    return not stale


def copy_tree(work):
    """Copies what changed; unchanged files keep their times, so that nothing is compiled without need."""
    for part in PARTS:
        source = ROOT / part
        files = [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
        for path in files:
            to = work / "tree" / path.relative_to(ROOT)
            if to.exists() and to.read_bytes() == path.read_bytes():
                continue
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
        if source.is_dir():
            for path in [p for p in (work / "tree" / part).rglob("*") if p.is_file()]:
                if not (ROOT / path.relative_to(work / "tree")).exists():
                    path.unlink()


def build(work, jobs):
    log = work / "build.log"
    with open(log, "w") as out:
        code = subprocess.call(
            ["cmake", "--build", str(work / "build"), "--target", "heed_conformance", f"-j{jobs}"], stdout=out, stderr=out)
    return code == 0


def configure(work):
    isa = work / "tree/cmake/Isa.cmake"  # the kernels compile three times as fast, and are as wrong
    isa.write_text(isa.read_text().replace("-O3", "-O1"))
    subprocess.check_call(
        ["cmake", "-S", str(work / "tree"), "-B", str(work / "build"), "-DCMAKE_BUILD_TYPE=Release", "-DHEED_BUILD_TOOLS=OFF",
         "-DHEED_BUILD_EXAMPLES=OFF", "-DHEED_INSTALL=OFF"], stdout=subprocess.DEVNULL)


def run_suite(work, limit, tests):
    """The name of the first test that fails; None when all pass."""
    suite = next((work / "build").rglob("heed_conformance"))
    log = work / "suite.log"
    with open(log, "w") as out:
        try:
            code = subprocess.call([str(suite), "--gtest_fail_fast", "--gtest_brief=1", f"--gtest_filter={tests}"], stdout=out,
                                   stderr=out, timeout=limit)
        except subprocess.TimeoutExpired:
            return "(it did not end)"
    if code == 0:
        return None
    failed = re.findall(r"\[  FAILED  \] (\S+?),? ", log.read_text(errors="replace"))
    return failed[0] if failed else f"(it ended with code {code})"


def machine_has(feature):
    return feature in Path("/proc/cpuinfo").read_text().replace("avx512_bf16", "avx512bf16")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mutants to run; none: all")
    parser.add_argument("--check", action="store_true", help="only check that every mutant applies")
    parser.add_argument("--list", action="store_true", help="list the mutants")
    parser.add_argument("--work", type=Path, default=Path("/tmp/heed-mutation"), help="where the copy is built")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    parser.add_argument("--limit", type=int, default=900, help="seconds the suite may take")
    parser.add_argument("--tests", default="*", help="which tests to run, as for --gtest_filter")
    options = parser.parse_args()

    mutants = read_mutants(options.names)
    if options.list:
        for mutant in mutants:
            print(f"{mutant['name']:<48}{mutant['why']}")
        return 0
    if not check(mutants):
        return 2
    if options.check:
        print(f"mutate: all {len(mutants)} mutants apply.")
        return 0

    work = options.work
    copy_tree(work)
    configure(work)
    print("mutate: building and running the suite unbroken ...", flush=True)
    if not build(work, options.jobs):
        sys.exit(f"mutate: the tree does not build; see {work}/build.log.")
    if failed := run_suite(work, options.limit, options.tests):
        sys.exit(f"mutate: the suite fails without any mutant: {failed}; see {work}/suite.log.")

    survived = 0
    for mutant in mutants:
        if "needs" in mutant and not machine_has(mutant["needs"]):
            print(f"{mutant['name']:<48}skipped: this machine has no {mutant['needs']}")
            continue
        begin = time.monotonic()
        path = work / "tree" / mutant["file"]
        original = path.read_text()
        path.write_text(mutated(mutant, original))
        try:
            if not build(work, options.jobs):
                sys.exit(f"mutate: {mutant['name']} does not compile; see {work}/build.log.")
            failed = run_suite(work, options.limit, options.tests)
        finally:
            path.write_text(original)
        survived += failed is None
        verdict = f"caught by {failed}" if failed else "SURVIVED"
        print(f"{mutant['name']:<48}{verdict}  ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"mutate: {len(mutants)} mutants, {survived} survived.")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
