"""heed explain, kernels and info: what there is and what would run."""

import json
import re

import pytest
from conftest import UNSUPPORTED, USAGE

PROBLEM = ("-h=8", "-h_k=2", "-s=256", "-d=64", "-mask=b", "-prec=bf16")


def test_explain_names_the_kernel_and_why_not_the_others(ok):
    text = ok("explain", *PROBLEM)
    assert re.search(r"^kernel +cpu/\S+", text, re.M)
    assert re.search(r"^why +\S", text, re.M)
    assert "not chosen" in text
    assert re.search(r"^  cuda +\S", text, re.M)


def test_explain_as_json(ok):
    data = json.loads(ok("explain", *PROBLEM, "--json"))
    assert data["chosen"]["name"].startswith("cpu/")
    assert all(each["rule"] and each["reason"] for each in data["others"])
    assert data["missing_engines"][0]["engine"] == "cuda"


def test_explain_and_fwd_agree_on_the_kernel(ok):
    chosen = json.loads(ok("explain", *PROBLEM, "--json"))["chosen"]["name"]
    assert f", {chosen}, " in ok("fwd", *PROBLEM, "-kname=1", "-warmup=0", "-repeat=1")


def test_explain_takes_problems_that_do_not_fit_in_memory(ok):
    assert "cpu/" in ok("explain", "-b=64", "-h=64", "-s=1000000")


def test_explain_refuses_what_fwd_refuses(refused):
    assert "-s=x" in refused(USAGE, "explain", "-s=x")
    assert "fp8" in refused(UNSUPPORTED, "explain", "-prec=fp8")
    assert "-repeat=x" in refused(USAGE, "explain", "-repeat=x")


def test_explain_says_3_when_nothing_can(heed):
    done = heed("explain", *PROBLEM, "-engine=cuda")
    assert done.returncode == UNSUPPORTED


def test_isa_limits_the_choice(ok):
    assert json.loads(ok("explain", *PROBLEM, "-isa=baseline", "--json"))["chosen"]["arch"] == "baseline"
    limited = ok("explain", *PROBLEM, "--json", env={"HEED_MAX_CPU_ISA": "baseline"})
    assert json.loads(limited)["chosen"]["arch"] == "baseline"


def test_every_level_this_machine_has_computes(ok):
    for level, present in json.loads(ok("info", "--json"))["isa_levels"].items():
        if not present:
            continue
        for prec in ("fp32", "fp16", "bf16"):
            text = ok("fwd", "-b=1", "-h=2", "-s=40", "-d=40", "-mask=b", f"-prec={prec}", f"-isa={level}", "-repeat=1")
            assert "valid:y" in text


def test_a_kernel_can_be_asked_for_by_name(ok):
    names = ok("kernels", "--names", "--here", "--filter=baseline*fwd_tile").split()
    assert names
    assert json.loads(ok("explain", "-s=64", f"-kernel={names[0]}", "-prec=fp32", "--json"))["chosen"]["name"] == names[0]


def test_kernels_lists_what_each_one_computes_and_how(ok):
    text = ok("kernels")
    assert re.search(r"^cpu/baseline/\S+", text, re.M)
    assert re.search(r"^  computes +\S", text, re.M) and re.search(r"^  how +\S", text, re.M)
    assert "engine cuda is not here" in text


def test_kernels_as_json(ok):
    data = json.loads(ok("kernels", "--json"))
    names = [each["name"] for each in data["kernels"]]
    assert names == ok("kernels", "--names").split()
    assert {"name", "engine", "family", "arch", "signature", "algorithm", "runs_here"} <= set(data["kernels"][0])


def test_a_filter_is_a_glob_over_name_and_signature(ok):
    everything = ok("kernels", "--names").split()
    assert ok("kernels", "--names", "--filter=cpu/baseline/*").split() == [
        each for each in everything if each.startswith("cpu/baseline/")
    ]
    assert ok("kernels", "--names", "--filter=d128*causal*").split()
    assert ok("kernels", "--names", "--filter=no such thing") == ""


def test_info_tells_the_machine_the_levels_and_the_engines(ok):
    text = ok("info")
    for level in ("baseline", "avx2", "avx512", "avx512bf16", "amx"):
        assert re.search(rf"^  {level} +(yes|no)", text, re.M)
    assert re.search(r"^  cpu +yes", text, re.M)
    assert re.search(r"^  cuda +no +\S", text, re.M)
    assert re.search(r"^  threads +\d+: \d+ processors", text, re.M)
    assert re.search(r"^  heed +\d+\.\d+\.\d+", text, re.M)


def test_info_as_json(ok):
    data = json.loads(ok("info", "--json"))
    assert data["isa_levels"]["baseline"] is True
    assert {each["engine"]: each["present"] for each in data["engines"]} == {"cpu": True, "cuda": False}


def test_threads_follow_the_environment(ok):
    data = json.loads(ok("info", "--json", env={"HEED_NUM_THREADS": "3"}))
    assert data["machine"]["threads"] == 3


@pytest.mark.parametrize("subcommand", ["info", "kernels"])
def test_no_colours_without_a_terminal(ok, subcommand):
    assert "\033" not in ok(subcommand)


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("--names",), "--resources --names : give one of them"),
        (("--here",), "--resources --here : "),
        (("--engine=cpu",), "-engine=cpu : --resources compiles CUDA kernels"),
    ],
)
def test_resources_take_no_options_of_the_list(refused, arguments, text):
    assert text in refused(USAGE, "kernels", "--resources", "--filter=no such kernel", *arguments)


def test_a_gpu_is_named_for_resources_alone(refused):
    assert "-sm=80 : " in refused(USAGE, "kernels", "-sm=80") and "--resources" in refused(USAGE, "kernels", "-sm=80")
