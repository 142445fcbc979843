"""heed sweep and -algo: what they list without a GPU, and what they refuse."""

import json
import pathlib

import pytest
from conftest import HEED, UNSUPPORTED, USAGE, not_when_instrumented, run_heed

has_nvrtc = json.loads(run_heed("info", "--json").stdout)["cuda"]["nvrtc"]["present"]
needs_nvrtc = pytest.mark.skipif(not has_nvrtc, reason="no NVRTC here")
# A driver that shows a Hopper GPU and has none behind it: enough to choose a kernel.
driver = pathlib.Path(HEED).resolve().parents[1] / "tests" / "fake_cuda"
needs_driver = pytest.mark.skipif(not (driver / "libcuda.so.1").exists(), reason="the tests are not built")


@needs_nvrtc
@not_when_instrumented
def test_combinations_are_listed_with_their_resources(ok, tmp_path):
    report = tmp_path / "sweep.json"
    text = ok("sweep", "-d=64", "-causal=0", "-over=turns,stages", "--compile-only", f"-json={report}")
    assert "d64 full f16" in text and "registers" in text and "turns:softmax" in text
    (of,) = json.loads(report.read_text())["classes"]
    assert (of["d"], of["mask"]) == (64, "none")
    clean = [each for each in of["candidates"] if each["status"] == "not checked"]
    assert len(clean) >= 9
    assert all(each["registers"] > 0 and each["shared_bytes"] > 0 and each["spill_bytes"] == 0 for each in clean)


@needs_nvrtc
def test_what_cannot_be_is_counted_by_its_rule(ok):
    text = ok("sweep", "-d=256", "-causal=1", "-over=stages", "--compile-only")
    assert "cannot be: shared memory: more than the 227 KB of a multiprocessor" in text


@needs_nvrtc
@not_when_instrumented
def test_combinations_of_the_backward_pass_are_listed(ok, tmp_path):
    report = tmp_path / "sweep.json"
    text = ok("sweep", "-op=bwd", "-d=64,256", "-causal=1", "--quick", "--compile-only", f"-json={report}")
    assert "bwd d64 causal f16" in text and "bwd d256 causal f16" in text
    assert "cannot be: shared memory: more than the 227 KB of a multiprocessor" in text
    narrow, wide = json.loads(report.read_text())["classes"]
    assert (narrow["op"], narrow["d"], narrow["mask"]) == ("bwd", 64, "causal")
    algos = {each["algo"] for each in narrow["candidates"]}
    assert {f"tile_q:{rows},pipeline:ahead,bias_route:in_step,section:{n}" for rows, n in ((96, 0), (128, 1056))} <= algos
    assert not any("copied" in each for each in algos)  # there is no bias
    assert "q_stages:1,o_stages:2,dq:added,section:0" in {each["algo"] for each in wide["candidates"]}
    # What spills is refused by a rule instead of being listed.
    for each in narrow["candidates"] + wide["candidates"]:
        assert each["status"] == "not checked" and each["registers"] > 0 and each["shared_bytes"] > 100_000, each


@needs_nvrtc
def test_sections_share_their_kernels(ok, tmp_path):
    report = tmp_path / "sweep.json"
    ok("sweep", "-op=bwd", "-d=128", "-causal=0", "-over=section", "--compile-only", f"-json={report}")
    (of,) = json.loads(report.read_text())["classes"]
    sections = [each["algo"].rsplit(":", 1)[1] for each in of["candidates"]]
    assert sections == ["0", "132", "264", "400", "700", "1056", "2112", "4224"]


def test_help_tells_the_knobs_of_both_passes(ok):
    text = ok("sweep", "--help")
    assert "-op=fwd" in text and "fwd or bwd" in text
    assert "warpgroups " in text and "Knobs of the backward pass" in text and "pipeline " in text and "section " in text
    assert "-algo=tile_q:64,pipeline:ahead,section:1056" in ok("bwd", "--help")


@needs_nvrtc
@not_when_instrumented
def test_resources_of_a_kernel(ok):
    (row,) = json.loads(ok("kernels", "--resources", "--filter=*d128_full*", "--json"))
    assert row["kernel"] == "cuda/sm_90/hopper_fwd_d128_full"
    assert row["registers"] == 128 and row["spill_bytes"] == 0 and not row["serialized_wgmma"]
    assert row["launch_shared_bytes"] > 200_000


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("sweep", "-d=100", "--compile-only"), "no Hopper tile for d = 100"),
        (("sweep", "-causal=2"), "it is 0, 1 or 0,1"),
        (("sweep", "-over=stags"), "'stags' is not a knob that is swept; these are: "),
        (("sweep", "-s=0"), "not a whole number from 1"),
        (("sweep", "--quick", "-over=turns"), "give one of them"),
        (("fwd", "-algo=stags:3"), "no such knob; there are tile_q, warpgroups"),
        (("fwd", "-algo=tile_k:12"), "tile_k takes 32 to 176"),
        (("explain", "-engine=cpu", "-algo=stages:3"), "the CPU engine has no such knobs"),
        (("sweep", "-op=bwd", "-d=96", "--compile-only"), "no Hopper tile of the backward pass for d = 96"),
        (("sweep", "-op=bwd", "-d=192/128"), "no Hopper tile of the backward pass for d = 192, d_v = 128"),
        (("sweep", "-op=bwd", "-over=stages"), "'stages' is not a knob that is swept; these are: dq, o_stages, pipeline"),
        (("sweep", "-op=both"), "-op=both"),
        (("bwd", "-algo=stages:3"), "no such knob; there are tile_q, pipeline, bias_route, q_stages, o_stages, dq, section"),
        (("bwd", "-algo=tile_q:100"), "tile_q takes 32, 48, 64, 96 or 128"),
        (("explain", "-op=bwd", "-algo=pipeline:late"), "pipeline takes in_step or ahead"),
        (("fuzz", "--op=bwd", "-algo=section:x"), "section takes 0 to 1048576"),
        (("bench", "seqlen", "-op=bwd", "-algo=turns:free"), "no such knob; there are tile_q, pipeline"),
        (("bwd", "-engine=cpu", "-algo=section:400"), "the CPU engine has no such knobs"),
    ],
)
def test_what_is_not_understood_is_refused(refused, arguments, words):
    assert words in refused(USAGE, *arguments)


@pytest.mark.parametrize("arguments", [("fwd", "-algo=stages:3"), ("bwd", "-algo=section:400")])
def test_a_forced_algorithm_never_falls_back_to_the_cpu(heed, arguments):
    done = heed(*arguments, "-s=64", "-b=1", "-h=1", "-warmup=0", "-repeat=1")
    assert done.returncode == UNSUPPORTED or "cuda" in done.stdout + done.stderr


def explain_backward(*arguments, s=1024, **env):
    env["LD_LIBRARY_PATH"] = str(driver)
    return run_heed("explain", "-op=bwd", "-engine=cuda", f"-s={s}", *arguments, env=env)


@needs_driver
def test_a_backward_kernel_is_chosen_by_forced_knobs():
    done = explain_backward("-d=64", "-mask=b", "-algo=tile_q:96,section:1056")
    assert "kernel      cuda/sm_90/hopper_bwd_d64[tile_q:96,section:1056]" in done.stdout
    assert "tile_q:96,pipeline:ahead,bias_route:in_step,section:1056" in done.stdout
    done = explain_backward("-d=128", HEED_CUDA_BACKWARD_ALGO="tile_q:48")
    assert "kernel      cuda/sm_90/hopper_bwd_d128[tile_q:48]" in done.stdout


@needs_driver
@pytest.mark.parametrize(
    "arguments, rule",
    [
        (("-d=128", "-algo=tile_q:96"), "algorithm   shared memory: more than the 227 KB of a multiprocessor; this takes"),
        (("-d=256", "-algo=tile_q:64"), "algorithm   tile_q is no knob of the backward kernels for d = 256"),
        (("-d=128", "-algo=pipeline:ahead", "-mask=b:64,0"), "room        the features weigh 1, there is room for 0"),
        (("-d=64", "-mode=1", "-algo=section:400"), "algorithm   section: sequences of their own lengths"),
    ],
)
def test_what_forbids_knobs_of_the_backward_pass_is_told(arguments, rule):
    done = explain_backward(*arguments)
    assert done.returncode == UNSUPPORTED and rule in done.stdout, done.stdout + done.stderr


@needs_driver
def test_a_tuning_record_chooses_backward_kernels_in_its_range(tmp_path):
    record = tmp_path / "tuning.json"
    of = {"arch": "sm_90", "d": 128, "d_v": 128, "mask": "causal", "keys": [0, 2048], "algo": "tile_q:48,section:264"}
    record.write_text(json.dumps({"heed_tuning": 1, "forward": [], "backward": [of]}))
    chosen = "kernel      cuda/sm_90/hopper_bwd_tuned_d128_128_causal_from_0_to_2048"
    done = explain_backward("-d=128", "-mask=b", HEED_TUNING=str(record))
    assert chosen in done.stdout and "tile_q:48,pipeline:in_step,bias_route:in_step,section:264" in done.stdout
    for mask, deterministic, s in (("b", 0, 4096), ("0", 0, 1024), ("b", 1, 1024)):
        others = ("-d=128", f"-mask={mask}", f"-deterministic={deterministic}")
        done = explain_backward(*others, s=s, HEED_TUNING=str(record))
        assert "kernel      cuda/sm_90/hopper_bwd_d128\n" in done.stdout, done.stdout + done.stderr
    assert "1 entries of" in run_heed("info", env={"HEED_TUNING": str(record)}).stdout
    record.write_text(json.dumps({"heed_tuning": 1, "forward": [], "backward": [of | {"algo": "tile_q:96"}]}))
    done = explain_backward("-d=128", HEED_TUNING=str(record))
    assert done.returncode == USAGE and "backward entry" in done.stderr and "shared memory" in done.stderr


SWEPT = ("sweep", "-causal=0", "-s=64", "-over=turns", "-verify=0", "-rounds=2")
OTHER = {"arch": "sm_90", "d": 128, "d_v": 128, "mask": "causal", "keys": [0, 2048], "algo": "stages:3"}


def record_with(*entries):
    return json.dumps({"heed_tuning": 1, "forward": list(entries), "backward": []})


def head_dims(path):
    return [entry["d"] for entry in json.loads(path.read_text())["forward"]]


def test_a_sweep_keeps_the_entries_of_the_record_that_it_is_told_to_write(ok, fake_gpu, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(record_with(OTHER))
    ok(*SWEPT, "-d=64", f"-record={path}", env=fake_gpu)
    assert head_dims(path) == [128, 64]


def test_a_sweep_into_a_new_record_has_nothing_of_the_users_own(ok, fake_gpu, tmp_path):
    (tmp_path / "mine.json").write_text(record_with(OTHER))
    path = tmp_path / "folder" / "record.json"
    ok(*SWEPT, "-d=64", f"-record={path}", env=fake_gpu | {"HEED_TUNING": str(tmp_path / "mine.json")})
    assert head_dims(path) == [64]
    assert head_dims(tmp_path / "mine.json") == [128]


def test_a_sweep_adds_to_the_users_own_record(ok, fake_gpu, tmp_path):
    path = tmp_path / "cache" / "tuning.json"
    for d in (64, 128):
        ok(*SWEPT, f"-d={d}", env=fake_gpu)
    assert head_dims(path) == [64, 128]


def test_an_error_in_one_class_leaves_what_those_before_it_gave(heed, fake_gpu, tmp_path):
    outputs = {key: tmp_path / key for key in ("json", "md", "record")}
    words = [f"-{key}={path}" for key, path in outputs.items()]
    done = heed(*SWEPT, "-d=64,128", *words, env=fake_gpu | {"FAKE_CUDA_TIMINGS": "25"})  # 20 are those of d = 64
    assert done.returncode != 0 and "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr
    assert head_dims(outputs["record"]) == [64]
    assert [each["d"] for each in json.loads(outputs["json"].read_text())["classes"]] == [64]
    assert "## d64 full f16" in outputs["md"].read_text()


@pytest.mark.parametrize("where", ["-record", "HEED_TUNING", "cache"])
@pytest.mark.parametrize("content", ["{", '{"heed_tuning": 2, "forward": []}', ""])
def test_a_record_that_cannot_be_read_is_refused_before_anything_is_measured(refused, fake_gpu, tmp_path, where, content):
    path = tmp_path / "cache" / "tuning.json"
    path.parent.mkdir()
    path.write_text(content)
    words = [f"-record={path}"] if where == "-record" else []
    environment = fake_gpu | ({"HEED_TUNING": str(path)} if where == "HEED_TUNING" else {})
    assert str(path) in refused(USAGE, *SWEPT, "-d=64", *words, env=environment)
    assert path.read_text() == content


@pytest.mark.parametrize("key", ["json", "md", "record"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(refused, fake_gpu, tmp_path, key):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "x"
    assert f"'{path}' : cannot be written" in refused(USAGE, *SWEPT, "-d=64", f"-{key}={path}", env=fake_gpu)


def test_a_sweep_that_is_refused_writes_no_file(refused, fake_gpu, tmp_path):
    kept = tmp_path / "kept.json"
    kept.write_text("mine")
    words = (f"-json={kept}", f"-md={tmp_path / 'new.md'}", "-record=none")
    refused(UNSUPPORTED, *SWEPT, "-d=64", *words, env=fake_gpu | {"FAKE_CUDA_DEVICES": "0"})
    assert kept.read_text() == "mine" and not (tmp_path / "new.md").exists()


@pytest.mark.parametrize("word", ["-s=64", "-verify=0", "-rounds=3", "-finalists=3", "-top=3", "-record=x.json"])
def test_what_only_a_measurement_needs_is_refused_where_there_is_none(refused, word):
    assert "--compile-only" in refused(USAGE, "sweep", "-d=64", "--compile-only", word)
