"""heed bwd: the gradients, checked and reported one by one."""

import json
import re

import pytest
from conftest import SMALL, UNSUPPORTED, USAGE, VALID, WRONG, not_when_instrumented

FIGURES = r"\d+\.\d+ ms, \d+\.\d+ TFlops, \d+\.\d+ GB/s"


def test_the_result_is_one_line_with_sizes_figures_and_the_verdict(ok):
    first = ok("bwd", *SMALL, "-mask=b", "-prec=bf16", "-engine=cpu").splitlines()[0]
    assert re.fullmatch(
        r"\[bwd\|bf16\|batch\|bhsd\] b:1, h:2/2, s:33/33, d:16/16, scale:0\.25, bias:n, dbias:0, p_drop:0, "
        r"deterministic:0, mask:b, v:r, workspace:\d+(\.\d)? [KM]iB, " + FIGURES + ", valid:y",
        first,
    ), first


@pytest.mark.parametrize("text, told", [("0", "0"), ("1", "1"), ("true", "1"), ("f", "0"), ("fp32", "fp32")])
def test_the_line_tells_whether_dbias_is_asked_for_and_where_it_is_wider_than_the_bias(ok, text, told):
    first = ok("bwd", *SMALL, "-engine=cpu", "-prec=bf16", "-bias=e", f"-dbias={text}").splitlines()[0]
    assert f", bias:e, dbias:{told}, " in first


@pytest.mark.parametrize(
    "arguments, gradients",
    [
        ((), ["dq", "dk", "dv"]),
        (("-bias=e:1", "-dbias=1"), ["dq", "dk", "dv", "dbias"]),
        (("-bias=a", "-slope_grad=1"), ["dq", "dk", "dv", "dslopes"]),
        (("-sink_grad=1",), ["dq", "dk", "dv", "dsink"]),
        (("-sink_grad=1", "-init_sink=2", "-dlse=1", "-p_drop=0.2", "-logits_soft_cap=5"), ["dq", "dk", "dv", "dsink"]),
        (("-mode=1", "-b=3", "-s=5,0,17", "-deterministic=1"), ["dq", "dk", "dv"]),
        (("-prec=bf16", "-dq_acc=16", "-do_layout=bshd", "-grad_layout=bshd"), ["dq", "dk", "dv"]),
    ],
)
def test_the_maximum_error_of_each_gradient_is_reported_with_its_place(ok, arguments, gradients):
    words = [word for word in SMALL if word.split("=")[0] not in {each.split("=")[0] for each in arguments}]
    second = ok("bwd", *words, *arguments, "-engine=cpu").splitlines()[1]
    assert re.findall(r"(d\w+) \S+ at \([\d, ]+\), allowed", second) == gradients, second


# Sums over all pairs, of a problem too large for all of them to be checked.
LARGE = ["-b=2", "-h=16", "-s=1024", "-d=64", "-bias=e:1", "-dbias=1", "-alibi=h", "-slope_grad=1", "-init_sink=2", "-sink_grad=1"]


@not_when_instrumented
def test_gradients_that_were_not_compared_are_named(ok, tmp_path):
    record = tmp_path / "record.json"
    text = ok("bwd", *LARGE, "-engine=cpu", "-json=1", f"-jsonfile={record}", "-repeat=1", "-warmup=0")
    first, second = text.splitlines()[:2]
    assert first.endswith("valid:y, not_compared:dbias+dslopes"), first
    assert re.search(r"; dbias, dslopes not compared, for sums take every row; \d+ of \d+ rows checked", second)
    assert "-v=full checks all" in second and re.findall(r"(d\w+) \S+ at", second) == ["dq", "dk", "dv", "dsink"]
    written = json.loads(record.read_text())
    assert written["not_compared"] == ["dbias", "dslopes"] and "dbias_max_error" not in written
    assert 0 < written["dsink_max_error"] <= written["dsink_tolerance"]
    small = ok("bwd", *SMALL, "-bias=e:1", "-dbias=1", "-engine=cpu", "-json=1", f"-jsonfile={record}")
    assert "not_compared" not in small and json.loads(record.read_text())["not_compared"] == []


# Every row of such a bias is of one query, and judged where that query is.
@not_when_instrumented
def test_the_gradient_of_a_bias_that_nobody_shares_is_compared_by_rows(ok):
    large = [each for each in LARGE if not each.startswith(("-bias=", "-alibi=", "-slope_grad="))]
    first, second = ok("bwd", *large, "-bias=e:2", "-engine=cpu", "-repeat=1", "-warmup=0").splitlines()[:2]
    assert first.endswith("valid:y"), first
    assert re.findall(r"(d\w+) \S+ at", second) == ["dq", "dk", "dv", "dbias", "dsink"]
    assert re.search(r"allowed \S+; \d+ of \d+ rows checked", second) and "not compared" not in second


def test_a_wrong_element_is_found_and_the_line_that_repeats_it_printed(heed):
    done = heed("bwd", *SMALL, "-engine=cpu", "-spoil=1")
    assert done.returncode == WRONG
    assert "valid:n" in done.stdout and "dq at (0, 0, 0, 0) is" in done.stdout
    assert re.search(r"again: heed bwd .*-s=33", done.stdout)


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("-dbias=1",), "-dbias=1 : there is no bias; give -bias=e, too."),
        (("-dbias=1", "-bias=a"), "there is no bias"),
        (("-slope_grad=1",), "there is no ALiBi"),
        (("-sink_grad=1", "-init_sink=0"), "there is no sink"),
        (("-prec=fp32", "-dq_acc=16"), "q is fp32"),
        (("-deterministic=2",), "takes 0 or 1"),
        (("-bias=e", "-dbias=2"), "-dbias=2 : takes 0 or 1, or fp32."),
        (("-bias_prec=fp32",), "-bias_prec=fp32 : there is no bias; give -bias=e, too."),
        (("-lse=1",), "lse"),
        (("-randval=1",), "randval"),
    ],
)
def test_what_makes_no_sense_is_refused(heed, arguments, text):
    done = heed("bwd", *SMALL, *arguments)
    assert done.returncode == USAGE
    assert text in done.stderr, done.stderr


def test_a_record_is_replayed(heed, ok, tmp_path):
    record = tmp_path / "run.json"
    ok("bwd", *SMALL, "-engine=cpu", "-mask=b", "-json=1", f"-jsonfile={record}")
    written = json.loads(record.read_text())
    assert written["command"].startswith("heed bwd ") and written["valid"]
    assert written["case"]["op"] == "bwd" and written["problem"]["operation"] == "backward"
    assert 0 <= written["dk_max_error"] <= written["dk_tolerance"]
    text = ok("replay", str(record))
    assert text.startswith("[bwd|") and "recorded:" in text


def test_explain_and_kernels_know_the_backward_pass(ok):
    text = ok("explain", "-op=bwd", *SMALL, "-engine=cpu")
    assert re.search(r"^kernel +cpu/\w+/bwd_", text, re.M)
    assert "[bwd|" in text
    names = ok("kernels", "--engine=cpu", "--names").split()
    assert "cpu/baseline/bwd_tile_f32" in names
    assert "cpu/baseline/bwd_tile_f32" in ok("kernels", "--names", "--filter=dbias").split()
    assert "cpu/baseline/fwd_tile_f32" not in ok("kernels", "--names", "--filter=dbias").split()


def test_fuzz_checks_gradients(ok, heed):
    assert "all valid" in ok("fuzz", "--op=bwd", "--engine=cpu", "--cases=20")
    done = heed("fuzz", "--op=bwd", "--engine=cpu", "--cases=3", "--spoil")
    assert done.returncode == WRONG and "heed bwd " in done.stdout


def test_bench_measures_gradients(ok, tmp_path):
    path = tmp_path / "report.json"
    text = ok("bench", "cpu", "-op=bwd", "--quick", "-engine=cpu", "--filter=full*1024*d64", f"--json={path}")
    assert "bwd fp32" in text
    assert all(0 < row["max_error"] <= row["tolerance"] for row in json.loads(path.read_text())["rows"])


def test_bench_tells_what_each_gradient_costs(ok, tmp_path):
    path = tmp_path / "report.json"
    ok("bench", "features", "-op=bwd", "--quick", "-engine=cpu", "-v=0", "--filter=*fp32*", f"--json={path}")
    rows = {row["label"]: row for row in json.loads(path.read_text())["rows"]}
    for label in ("dBias of s_k", "dSlopes of ALiBi", "dSink", "gradient of the LSE", "deterministic"):
        assert rows[label]["relative"] > 0
    assert "lse" not in rows  # of the forward pass alone


# What the check says nothing about is not called valid.
@not_when_instrumented
def test_bench_names_gradients_that_were_not_compared(ok, tmp_path):
    path = tmp_path / "report.json"
    text = ok("bench", "batch", "-op=bwd", "-engine=cpu", "-bias=e:k", "-dbias=1", "--filter=b = 1 bwd", "-h=2", "-s=1536",
              "-d=32", "--rounds=1", f"--json={path}")  # fmt: skip
    assert re.search(r" y, not dbias$", text, re.M), text
    assert [row["not_compared"] for row in json.loads(path.read_text())["rows"]] == [["dbias"]]


def test_a_forward_kernel_cannot_be_named(heed):
    done = heed("bwd", *SMALL, "-kernel=cpu/baseline/fwd_tile_f32")
    assert done.returncode in (USAGE, UNSUPPORTED) and "family" in done.stderr
