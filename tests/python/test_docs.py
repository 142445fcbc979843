"""The Python in docs/python.md and README.md runs, block after block in one program."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?:<!-- needs: (\w+) -->\n)?^```python\n(.*?)^```$", re.M | re.S)


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_the_python_of_a_page_runs(page, capsys):
    found = blocks(page)
    assert found
    names, skipped = {}, []
    for number, (needed, code) in enumerate(found):
        if needed:
            try:
                __import__(needed)
            except ImportError:
                skipped.append(f"block {number} needs {needed}")
                continue
        exec(compile(code, f"{page}, block {number}", "exec"), names)
    if skipped:
        pytest.skip("; ".join(skipped) + "; the others ran")
