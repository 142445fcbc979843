"""Mutants that no longer apply would break nothing, and nobody would see."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_mutant_still_applies():
    run = subprocess.run([sys.executable, ROOT / "scripts/mutate.py", "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
