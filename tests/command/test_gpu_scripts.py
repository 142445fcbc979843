"""scripts/gpu_suite.sh and scripts/gpu_parts.sh without a GPU: with parts and programs that only say what they are told to."""

import os
import shutil
import subprocess
import tarfile

import pytest
from conftest import ROOT

BASH = shutil.which("bash")

pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")


def run(*command, **environment):
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HEED_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=inherited | environment)


def packed(out):
    """{name: content} of what was packed."""
    with tarfile.open(out / "results.tgz") as file:
        return {each.name: file.extractfile(each).read().decode() for each in file if each.isfile()}


def run_parts(out, parts, names, **environment):
    script = f"""
        set -uo pipefail
        source '{ROOT}/scripts/gpu_parts.sh'
        export OUT='{out}'
        {parts}
        all_parts=({names})
        export -f "${{all_parts[@]}}"
        make_scratch && run_parts "${{all_parts[@]}}"
    """
    out.mkdir()
    return run(BASH, "-c", script, **environment)


PARTS = """
    good() { echo "much"; echo 1 >"$RESULTS/table.md"; echo "all right"; }
    bad() { echo "two failed"; return 3; }
    slow() { echo "a beginning"; sleep 60; }
"""


def test_parts_are_summed_up_in_two_files(tmp_path):
    done = run_parts(tmp_path / "out", PARTS, "good bad")
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "out" / "summary.txt").read_text() == "good: passed, 0 s: all right\nbad: FAILED (3), 0 s: two failed\n"
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["results.tgz", "summary.txt"]
    assert packed(tmp_path / "out") == {
        "results/good.log": "much\nall right\n",
        "results/bad.log": "two failed\n",
        "results/table.md": "1\n",
    }


def test_one_limit_is_shared_out_and_what_is_not_reached_is_told(tmp_path):
    done = run_parts(tmp_path / "out", PARTS, "slow good bad", HEED_TOTAL_LIMIT="15")
    lines = (tmp_path / "out" / "summary.txt").read_text().splitlines()
    assert done.returncode == 1 and lines[0].startswith("slow: STOPPED, its time was over, 5 s: a beginning"), lines
    assert lines[1].startswith("good: passed") and lines[2].startswith("bad: FAILED (3)")
    done = run_parts(tmp_path / "other", PARTS, "good bad", HEED_TOTAL_LIMIT="9")
    assert "good: NOT REACHED, the 9 s were over\n" in done.stdout and "bad: FAILED (3)" in done.stdout


def test_a_part_may_have_a_limit_of_its_own(tmp_path):
    done = run_parts(tmp_path / "out", PARTS, "slow good", HEED_PART_LIMIT="5")
    assert "slow: STOPPED, its time was over, 5 s" in done.stdout and "good: passed" in done.stdout


def test_a_run_that_is_killed_leaves_the_parts_before(tmp_path):
    parts = PARTS + 'killed() { kill -KILL "$(ps -o ppid= -p $PPID)"; sleep 1; }\n'
    done = run_parts(tmp_path / "out", parts, "good killed bad")
    assert done.returncode == -9, done.stdout + done.stderr
    assert "results/table.md" in packed(tmp_path / "out")
    assert (tmp_path / "out" / "summary.txt").read_text().startswith("good: passed")


# --- the suite, with programs of ours --------------------------------------------------------------------------------


@pytest.fixture
def suite(tmp_path):
    """suite(parts, heed=..., tests=..., sanitizer=...) -> (process, summary, packed files). Bodies of shell scripts."""
    (tmp_path / "scripts").mkdir()
    for name in ("gpu_suite.sh", "gpu_parts.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")

    def program(path, body):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/usr/bin/env bash\n" + body)
        path.chmod(0o755)

    def run_suite(*parts, heed="", tests="", sanitizer="", **environment):
        build = tmp_path / "build"
        program(build / "bin" / "heed", f'case $1 in kernels) echo cuda/sm_80/portable_fwd_f32 ;; info) ;; *) {heed or ":"} ;; esac\n')
        program(build / "lib" / "libheed.so", "")
        for name in ("heed_conformance", "heed_cuda_tests"):
            program(build / "tests" / name, 'case $* in *list_tests*) echo Some.; echo "  test"; exit ;; esac\n' + tests)
        program(tmp_path / "sanitizer", sanitizer)
        environment |= {"OUT": str(tmp_path / "out"), "HEED_SANITIZER": str(tmp_path / "sanitizer"), "HEED_TEST_WORKERS": "2"}
        done = run(BASH, str(tmp_path / "scripts" / "gpu_suite.sh"), *parts, **environment)
        return done, (tmp_path / "out" / "summary.txt").read_text(), packed(tmp_path / "out")

    return run_suite


RAN = """
echo '[==========] Running 4 tests from 1 test suite.'
echo '[ RUN      ] Some.a'
echo '[       OK ] Some.a (1 ms)'
echo '[  SKIPPED ] Some.b (0 ms)'
"""
FAILED = RAN + """
echo 'x.cpp:1: Failure'
echo '[  FAILED  ] Some.c, where GetParam() = 1 (2 ms)'
echo '[       OK ] Some.d (1 ms)'
echo '[  FAILED  ] 1 test, listed below:'
echo '[  FAILED  ] Some.c, where GetParam() = 1'
exit 1
"""


def test_failed_tests_are_counted(suite):
    done, summary, files = suite("conformance", "instructions", tests=FAILED)
    assert done.returncode == 1
    first, second = summary.splitlines()
    assert first.startswith("conformance: FAILED (1)") and first.endswith(": 4 passed, 2 skipped, 2 failed")
    assert second.startswith("instructions: FAILED (1)") and second.endswith(": 2 passed, 1 skipped, 1 failed")
    assert "[  FAILED  ] Some.c, where GetParam() = 1\n" in files["results/conformance.log"]
    assert {"results/conformance-1.log", "results/conformance-2.log", "results/machine.txt"} <= set(files)
    assert "x.cpp:1: Failure" in files["results/instructions.log"]


@pytest.mark.parametrize("part, counts", [("conformance", "2 passed, 2 skipped, 0 failed, 4 not reached"),
                                          ("instructions", "1 passed, 1 skipped, 0 failed, 2 not reached")])  # fmt: skip
def test_tests_that_were_not_reached_are_counted(suite, part, counts):
    _, summary, _ = suite(part, tests=RAN + "exec sleep 60\n", HEED_TOTAL_LIMIT="6")
    assert summary.startswith(f"{part}: STOPPED, its time was over") and summary.endswith(f": {counts}\n")


def test_a_sanitizer_that_refuses_the_gpu_is_asked_once(suite, tmp_path):
    refusal = f"echo >>{tmp_path}/asked; echo '========= Error: Device not supported.'; exit 1\n"
    done, summary, files = suite("sanitizer", sanitizer=refusal)
    assert done.returncode == 1 and "does not work here: nothing was checked" in summary
    assert "Device not supported" in files["results/sanitizer.log"]
    assert len((tmp_path / "asked").read_text()) == 1


def test_runs_under_the_sanitizer_are_counted(suite):
    wrong = "case $* in *parts:4*) exit 9 ;; esac\n"
    works = "echo '========= ERROR SUMMARY: 0 errors'\n"
    _, summary, files = suite("sanitizer", sanitizer=works)
    assert summary.startswith("sanitizer: passed") and summary.endswith(": 4 runs right, 0 failed\n"), summary
    _, summary, files = suite("sanitizer", sanitizer=works + wrong)
    assert summary.startswith("sanitizer: FAILED (1)") and summary.endswith(": 2 runs right, 2 failed\n"), summary
    late = "case $* in *parts:4*) exec sleep 60 ;; esac\n"
    _, summary, files = suite("sanitizer", sanitizer=works + late, HEED_TOTAL_LIMIT="6")
    assert summary.startswith("sanitizer: STOPPED") and ", 2 not reached" in summary, summary


def test_help_and_unknown_parts():
    text = run(BASH, str(ROOT / "scripts" / "gpu_suite.sh"), "--help").stdout
    assert "HEED_TOTAL_LIMIT" in text and "summary.txt" in text
    done = run(BASH, str(ROOT / "scripts" / "gpu_suite.sh"), "nonsense")
    assert done.returncode == 2 and "'nonsense' is no part" in done.stdout


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="there is no shellcheck")
@pytest.mark.parametrize("script", ["gpu_suite.sh", "python_gpu_suite.sh"])
def test_shellcheck_has_nothing_to_say(script):
    done = subprocess.run(["shellcheck", "-x", f"scripts/{script}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
