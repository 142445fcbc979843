"""heed fwd -json=1 and heed replay: a run can be written down and repeated."""

import json
import os

import pytest
from conftest import SMALL, USAGE, WRONG

KEYS = "command engine kernel problem valid max_error max_error_at tolerance time_ms tflops gb_s machine version".split()
RUN = ("-b=1", "-h=2", "-s=40", "-d=24", "-mask=b:9,0", "-prec=bf16", "-lse=1", "-warmup=1", "-repeat=3")


@pytest.fixture
def record(ok, tmp_path):
    def run(*arguments):
        path = tmp_path / "run.json"
        ok("fwd", *arguments, "-json=1", f"-jsonfile={path}")
        return path, json.loads(path.read_text())

    return run


def test_the_record_has_everything_needed_to_repeat_the_run(record):
    _, data = record(*RUN)
    assert [key for key in KEYS if key not in data] == []
    assert data["valid"] is True
    assert data["command"].startswith("heed fwd -b=1 -h=2")
    assert data["engine"] == "cpu" and data["kernel"].startswith("cpu/")
    assert len(data["max_error_at"]) == 4
    assert 0 <= data["max_error"] <= data["tolerance"]
    assert data["time_ms"] > 0 and data["tflops"] > 0 and data["gb_s"] > 0
    assert data["runs"] == 3 and data["best_ms"] <= data["time_ms"] <= data["worst_ms"]
    assert data["problem"]["mask"] == "b:9,0" and data["problem"]["d"] == 24
    assert data["machine"]["cpu"] and data["machine"]["threads"] >= 1


def test_what_was_not_checked_is_null(record):
    _, data = record(*RUN, "-v=0")
    assert data["valid"] is None and data["max_error"] is None and data["tolerance"] is None


def test_flops_count_visible_pairs(record):
    _, data = record(*RUN)
    pairs = 2 * sum(min(i + 1, 10) for i in range(40))
    assert data["visible_pairs"] == pairs
    assert data["flops"] == 2 * pairs * (24 + 24)


def test_replay_runs_the_same_problem_and_finds_the_same_error(ok, record, tmp_path):
    path, first = record(*RUN)
    again = tmp_path / "again.json"
    text = ok("replay", str(path), f"-jsonfile={again}")
    assert "valid:y" in text and "recorded:" in text
    second = json.loads(again.read_text())
    assert second["case"] == first["case"] and second["problem"] == first["problem"]
    assert second["max_error"] == first["max_error"] and second["max_error_at"] == first["max_error_at"]


def test_replay_does_not_overwrite_the_record(ok, record):
    path, _ = record(*RUN)
    before = path.read_text()
    ok("replay", str(path))
    assert path.read_text() == before


def test_a_drawn_seed_is_repeated(ok, record):
    path, first = record(*SMALL, "-seed=0")
    assert f"seed:{first['case']['seed']}" in ok("replay", str(path))


def test_the_reproducing_command_means_the_same(ok, record):
    _, first = record(*RUN)
    _, second = record(*first["reproduce"].split()[2:], "-warmup=0", "-repeat=1")
    assert second["case"] == first["case"]


@pytest.mark.parametrize(
    "content, text",
    [(None, "cannot be read"), ("{", "is not JSON"), ("[]", "no record"), ("{}", "no list 'arguments'"),
     ('{"arguments": [1]}', "which is no text"), ('{"arguments": ["-s=x"]}', "-s=x")],
)  # fmt: skip
def test_replay_refuses_what_is_no_record(refused, tmp_path, content, text):
    path = tmp_path / "record.json"
    if content is not None:
        path.write_text(content)
    assert text in refused(USAGE, "replay", str(path))


def test_a_file_that_cannot_be_written_is_bad_usage_before_anything_is_computed(heed):
    done = heed("fwd", *SMALL, "-json=1", "-jsonfile=/nowhere/at/all.json")
    assert done.returncode == USAGE and "cannot be written" in done.stderr and done.stdout == ""


def test_a_file_may_have_a_name_that_is_not_utf_8(ok, tmp_path):
    path = tmp_path / os.fsdecode(b"record-\xff.json")
    ok("fwd", *RUN, "-json=1", f"-jsonfile={path}")
    assert "record-\ufffd.json" in json.loads(path.read_text())["command"]
    ok("replay", str(path))


def test_the_record_of_a_wrong_result_says_so_and_replays_wrong(heed, tmp_path):
    path = tmp_path / "wrong.json"
    assert heed("fwd", *RUN, "-spoil=1", "-json=1", f"-jsonfile={path}").returncode == WRONG
    data = json.loads(path.read_text())
    assert data["valid"] is False and data["complaints"] and data["max_error"] > data["tolerance"]
    assert heed("replay", str(path)).returncode == WRONG
