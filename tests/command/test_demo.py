"""heed demo: a short account that ends well."""

import time

import pytest
from conftest import VALID, not_when_instrumented, run_heed

pytestmark = not_when_instrumented


@pytest.fixture(scope="module")
def demo():
    begin = time.monotonic()
    done = run_heed("demo")
    assert done.returncode == VALID, done.stdout + done.stderr
    return done.stdout, time.monotonic() - begin


def test_the_demo_is_quick_and_everything_in_it_is_right(demo):
    text, seconds = demo
    assert seconds < 30
    assert text.count("valid") == 4 and "WRONG" not in text
    assert text.count("TFlops, ") == 4
    assert "All results agree with the fp64 oracle." in text


def test_the_demo_says_how_to_repeat_each_of_its_problems(ok, demo):
    lines = [line.split() for line in demo[0].splitlines() if line.startswith("  heed fwd ")]
    assert len(lines) == 4
    for words in lines:
        ok("explain", *words[2:])
