"""The `heed` command: the program that the wheel brings, with this process's arguments."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "bin" / "heed"
    if not program.exists():
        sys.exit(f"heed: this build of the Python package has no command: {program} is not there.")
    try:
        os.execv(program, ["heed", *sys.argv[1:]])
    except PermissionError:
        # A wheel unpacked by a tool that keeps no modes.
        program.chmod(0o755)
        os.execv(program, ["heed", *sys.argv[1:]])
