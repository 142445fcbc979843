"""heed sweep and -algo: what they list without a GPU, and what they refuse."""

import json

import pytest
from conftest import UNSUPPORTED, USAGE, not_when_instrumented, run_heed

has_nvrtc = json.loads(run_heed("info", "--json").stdout)["cuda"]["nvrtc"]["present"]
needs_nvrtc = pytest.mark.skipif(not has_nvrtc, reason="no NVRTC here")


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
    ],
)
def test_what_is_not_understood_is_refused(refused, arguments, words):
    assert words in refused(USAGE, *arguments)


def test_a_forced_algorithm_never_falls_back_to_the_cpu(heed):
    done = heed("fwd", "-algo=stages:3", "-s=64", "-b=1", "-h=1", "-warmup=0", "-repeat=1")
    assert done.returncode == UNSUPPORTED or "cuda" in done.stdout + done.stderr
