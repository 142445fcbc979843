"""heed fuzz: a smoke run; the long ones are tests of their own."""

import re
import signal
import subprocess
import time

import pytest
from conftest import HEED, UNSUPPORTED, USAGE, WRONG


def test_some_cases_run_and_the_rate_is_told(ok):
    text = ok("fuzz", "--engine=cpu", "--seed=3", "--cases=60")
    assert re.fullmatch(r"fuzz: 60 cases of seed 3 on cpu \(\w+, \d+ threads?\) in \S+ s, \d+ per second: all valid\n", text)


def test_fuzz_runs_on_any_level(ok):
    assert "(baseline, 1 thread)" in ok("fuzz", "--cases=15", "--isa=baseline", "--threads=1")


def test_minutes_limit_the_run(ok):
    found = re.search(r"in (\S+) s", ok("fuzz", "--minutes=0.02"))
    assert float(found[1]) < 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_tells_what_was_right_until_then(number):
    with subprocess.Popen([HEED, "fuzz", "--engine=cpu", "--minutes=2"], stdout=subprocess.PIPE, text=True) as process:
        time.sleep(1)
        process.send_signal(number)
        text, _ = process.communicate(timeout=60)
    assert process.returncode == -number
    assert re.search(r"^fuzz: \d+ cases of .*: all valid; interrupted$", text, re.M), text


def test_no_cases_is_valid(ok):
    assert "fuzz: 0 cases" in ok("fuzz", "--cases=0")


@pytest.mark.parametrize("argument", ["--cases=x", "--minutes=-1", "--seed=", "--failures=0"])
def test_bad_usage(refused, argument):
    refused(USAGE, "fuzz", argument)


def test_a_missing_engine_is_not_a_failure_of_the_engine(heed):
    assert heed("fuzz", "--engine=cuda", "--cases=1").returncode == UNSUPPORTED


def test_a_failure_is_shrunk_to_one_line_that_reproduces_it(heed):
    done = heed("fuzz", "--spoil", "--cases=20", "--threads=1")
    assert done.returncode == WRONG
    found = re.search(r"^  heed fwd (.*)$", done.stdout, re.M)
    again = heed("fwd", *found[1].split(), "-spoil=1", "-warmup=0", "-repeat=1")
    assert again.returncode == WRONG and "valid:n" in again.stdout
    assert "-threads=1" in found[1] and "1 FAILED" in done.stdout
