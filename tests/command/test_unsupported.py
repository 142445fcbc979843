"""Not supported is not invalid: exit code 3, with the reason for each engine."""

import pytest
from conftest import SMALL, UNSUPPORTED, USAGE


@pytest.mark.parametrize(
    "argument",
    [
        "-num_splits=2",
        "-page_block_size=128",
        "-s_knew=4",
        "-s_knew=-1",
        "-rotary_dim=16",
        "-cache_batch_idx=1",
        "-pack_gqa=0",
        "-qscale=pt",
        "-qscale=1",
        "-prec=fp8",
        "-prec=fp8bf16",
        "-prec=fp8fp32",
        "-prec=mxfp8",
        "-prec=mxfp4",
        "-v=2",
    ],
)
def test_what_is_not_built_yet_is_refused_with_the_reason_per_engine(refused, argument):
    text = refused(UNSUPPORTED, "fwd", *SMALL, argument)
    assert argument in text and "not supported" in text
    assert "\n  cpu " in text and "\n  cuda " in text


@pytest.mark.parametrize("argument", ["-num_splits=0", "-num_splits=1", "-page_block_size=0", "-s_knew=0", "-rotary_dim=0",
                                      "-cache_batch_idx=0", "-drop_prefs=0", "-pack_gqa=1", "-qscale=n", "-qscale=0",
                                      "-rotary_interleaved=0", "-timer=cpu"])
def test_asking_for_nothing_is_fine(ok, argument):
    ok("fwd", *SMALL, argument)


def test_bad_usage_comes_before_not_supported(refused):
    refused(USAGE, "fwd", "-num_splits=2", "-s=x")


def test_an_engine_that_is_not_here_says_why(refused):
    text = refused(UNSUPPORTED, "fwd", *SMALL, "-engine=cuda")
    assert "-engine=cuda" in text and "\n  cuda  " in text


def test_an_isa_level_this_machine_lacks_is_not_replaced_by_a_lower_one(heed, ok):
    import json

    levels = json.loads(ok("info", "--json"))["isa_levels"]
    missing = [level for level, present in levels.items() if not present]
    if not missing:
        pytest.skip("this machine has every level")
    done = heed("fwd", *SMALL, f"-isa={missing[0]}")
    assert done.returncode == UNSUPPORTED
    assert f"-isa={missing[0]} : this machine has" in done.stderr


def test_a_problem_larger_than_the_memory_is_refused_before_it_is_made(refused):
    text = refused(UNSUPPORTED, "fwd", "-b=64", "-h=64", "-s=1000000", "-d=128")
    assert "are free" in text
