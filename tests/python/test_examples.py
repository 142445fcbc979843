"""Every program in examples/python runs and checks its own answer; one that cannot run here says why."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "examples" / "python").glob("[0-9]*.py"))
SKIPPED = 77


def test_there_are_enough():
    assert len(PROGRAMS) >= 12
    assert [int(each.name[:2]) for each in PROGRAMS] == list(range(1, len(PROGRAMS) + 1))


@pytest.mark.parametrize("program", PROGRAMS, ids=[each.stem for each in PROGRAMS])
def test_an_example_is_right(program, tmp_path):
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment
    )
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "an example says what it found"
