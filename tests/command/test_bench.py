"""heed bench: every suite runs (small, with --quick), and reports in three forms."""

import json

import pytest
from conftest import ROOT, USAGE

SUITES = ["fa2", "models", "decode", "cpu", "features"]
SWEEPS = ["seqlen", "batch", "heads", "hdim"]


@pytest.mark.parametrize("suite", SUITES + SWEEPS)
def test_every_suite_runs_and_is_right(ok, tmp_path, suite):
    path = tmp_path / "report.json"
    text = ok("bench", suite, "--quick", f"--json={path}")
    data = json.loads(path.read_text())
    assert data["suite"] == suite and data["rows"]
    assert all(row["valid"] for row in data["rows"])
    assert "f32 FMA peak" in text
    assert {"cpu", "processors"} <= set(data["machine"])
    for row in data["rows"]:
        assert row["best_ms"] <= row["median_ms"] <= row["worst_ms"] and row["runs"] == 2
        assert row["gflops"] > 0 and row["peak_gflops"] > 0 and row["command"].startswith("heed fwd")


def test_decode_is_compared_with_the_read_bandwidth(ok, tmp_path):
    path = tmp_path / "report.json"
    assert "of read bandwidth" in ok("bench", "decode", "--quick", "--filter=*bf16*", f"--json={path}", "-v=0")
    assert all(row["read_gb_s"] > 0 and row["of_bandwidth"] > 0 for row in json.loads(path.read_text())["rows"])


def test_features_are_compared_with_the_plain_rate(ok, tmp_path):
    path = tmp_path / "report.json"
    ok("bench", "features", "--quick", "-v=0", f"--json={path}")
    rows = json.loads(path.read_text())["rows"]
    labels = {row["label"] for row in rows}
    for feature in ("ALiBi", "soft cap", "sink logit", "dropout 0.1", "d = 127", "varlen", "packed q, k, v", "boolean mask s*s_k"):
        assert feature in labels
    assert all("relative" in row for row in rows if not row["label"].startswith("plain"))


def test_markdown(ok, tmp_path):
    path = tmp_path / "report.md"
    ok("bench", "batch", "--quick", "-v=0", f"--md={path}")
    lines = path.read_text().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 5
    assert len({line.count("|") for line in table}) == 1
    assert any("heed bench batch" in line for line in lines)


def test_arguments_of_fwd_replace_those_of_the_rows(ok, tmp_path):
    path = tmp_path / "report.json"
    ok("bench", "seqlen", "--quick", "-v=0", "-prec=bf16", "-mask=b", "-d=32", f"--json={path}", "--filter=s = 1*")
    rows = json.loads(path.read_text())["rows"]
    assert [row["label"] for row in rows] == ["s = 128", "s = 1024"]
    assert all({"-prec=bf16", "-mask=b", "-d=32"} <= set(row["arguments"]) for row in rows)


# Logical lengths of 1500 do not go with a length of 512, and nobody asks for them.
def test_arguments_need_not_go_with_rows_that_the_filter_leaves_out(ok, refused):
    text = ok("bench", "features", "-s=512", "-v=0", "--rounds=1", "--filter=soft cap*fp32")
    assert "s512" in text and text.count("soft cap") == 1
    assert "q_eff_lens of sequence 0 is 1500" in refused(USAGE, "bench", "features", "-s=512", "--filter=*lengths*")
    assert "q_eff_lens of sequence 0 is 1500" in refused(USAGE, "bench", "features", "-s=512")


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("fa3",), "did you mean 'fa2'?"),
        ((), "heed bench needs <suite>"),
        (("seqlen", "-s=12"), "-s=12 : heed bench seqlen changes it itself"),
        (("cpu", "--filter=zzz"), "no row of 'cpu' matches"),
        (("cpu", "--rounds=0"), "--rounds"[1:]),
        (("cpu", "--quick=maybe"), "takes 0 or 1"),
        (("host", "-rounds=3"), "-rounds : bench host does not take it"),
        (("host", "-seconds=3"), "-seconds : bench host does not take it"),
        (("host", "-filter=x"), "-filter : bench host does not take it"),
        (("host", "-v=0"), "-v : bench host does not take it"),
        (("host", "--quick"), "-quick : bench host does not take it"),
        (("host", "-md=x.md"), "-md : bench host does not take it"),
        (("host", "-op=bwd"), "-op : bench host does not take it"),
        (("host", "-s=128"), "-s : bench host does not take it; it takes -engine, -algo and -json"),
        (("host", "-kernel=x"), "-kernel : bench host does not take it"),
        (("host", "-threads=1"), "-threads : bench host does not take it"),
        (("host", "-engine=cpu"), "-engine=cpu : what is measured is a call on a GPU"),
    ],
)
def test_bad_usage(refused, arguments, text):
    assert text in refused(USAGE, "bench", *arguments)


@pytest.mark.parametrize("words", [("batch", "--quick", "-md"), ("batch", "--quick", "-json"), ("host", "-json")])
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(refused, tmp_path, words):
    path = tmp_path / "no such folder" / "report"
    *others, key = words
    assert f"'{path}' : cannot be written: No such file" in refused(USAGE, "bench", *others, f"{key}={path}")


def test_the_cost_of_a_call_is_told_and_written(ok, fake_gpu, tmp_path):
    path = tmp_path / "host.json"
    text = ok("bench", "host", f"-json={path}", "-algo=stages:3", env=fake_gpu)
    assert "forward()" in text and "Plan::run_on_stream()" in text
    data = json.loads(path.read_text())
    assert data["suite"] == "host" and "-algo=stages:3" in data["command"] and data["kernel"].startswith("cuda/")
    assert [row["call"] for row in data["rows"]] == ["forward()", "Plan::run_on_stream()"]
    assert all(0 < row["best_us"] <= row["median_us"] for row in data["rows"])


def test_help_and_completion_know_every_suite(ok):
    text = ok("bench", "--help")
    completion = (ROOT / "tools" / "heed" / "completion.bash").read_text()
    for suite in SUITES + SWEEPS:
        assert f"\n  {suite} " in text
        assert suite in completion
