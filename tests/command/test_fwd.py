"""heed fwd: the result a person reads, for every kind of problem."""

import re

import pytest
from conftest import SMALL, VALID, WRONG, not_when_instrumented

FIGURES = r"\d+\.\d+ ms, \d+\.\d+ TFlops, \d+\.\d+ GB/s"
MAX_ERROR = re.compile(r"^  max error (\S+) at \((\d+), (\d+), (\d+), (\d+)\), allowed (\S+)")


def lines(text):
    return text.splitlines()


def test_the_result_is_one_line_with_sizes_figures_and_the_verdict(ok):
    first = lines(ok("fwd", *SMALL, "-mask=b", "-prec=bf16"))[0]
    assert re.fullmatch(
        r"\[bf16\|batch\|bhsd\] b:1, h:2/2, s:33/33, d:16/16, scale_s:0\.25, bias:n, p_drop:0, lse:0, mask:b, v:r, "
        + FIGURES
        + ", valid:y",
        first,
    ), first


def test_the_maximum_error_and_its_place_are_always_reported(ok):
    found = MAX_ERROR.match(lines(ok("fwd", *SMALL))[1])
    assert found
    assert 0 <= float(found[1]) <= float(found[6])
    b, h, i, d = (int(found[n]) for n in range(2, 6))
    assert b == 0 and h < 2 and i < 33 and d < 16


def test_kname_prints_the_kernel(ok):
    first = lines(ok("fwd", *SMALL, "-engine=cpu", "-kname=1"))[0]
    assert re.search(r", v:r, cpu/[a-z0-9]+/\S+, " + FIGURES, first)


def test_v_0_does_not_check(ok):
    text = ok("fwd", *SMALL, "-v=0")
    assert "valid" not in text and "max error" not in text


@not_when_instrumented
def test_v_1_says_when_it_has_checked_a_sample_and_v_full_checks_all(ok):
    big = ("-b=2", "-h=4", "-s=1400", "-d=512", "-warmup=0", "-repeat=1")
    sampled = ok("fwd", *big)
    found = re.search(r"(\d+) of (\d+) rows checked", sampled)
    assert found and int(found[1]) < int(found[2]) == 2 * 4 * 1400
    assert "-v=full checks all" in sampled
    assert "rows checked" not in ok("fwd", *SMALL, "-v=full")


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (("-h=4", "-h_k=2"), "h:4/2,"),
        (("-h=4", "-h_k=0"), "h:4/4,"),
        (("-h=4", "-h_k=-1"), "h:4/4,"),
        (("-d=16", "-d_v=0"), "d:16/16,"),
        (("-d=16", "-d_v=24"), "d:16/24,"),
        (("-s=9", "-s_k=-1"), "s:9/9,"),
        (("-s=9", "-s_k=30"), "s:9/30,"),
        (("-scale=0.5",), "scale_s:0.5,"),
        (("-scale_s=-0.5",), "scale_s:-0.5,"),
        (("-mask=t:4,0,2",), "mask:t:4,0,2,"),
        (("-mask=xb:4",), "mask:b:2,1,"),
        (("-mask=g:3,2",), "mask:g:3,2,"),
        (("-mask=0",), "mask:n,"),
        (("-bias=e",), "bias:e,"),
        (("-bias=e:1",), "bias:e:1,"),
        (("-bias=e:2", "-bias_prec=fp32"), "bias:e:2,"),
        (("-bias=a",), "bias:a,"),
        (("-b=2", "-bias=a:1"), "bias:a:1,"),
        (("-p_drop=0.25", "-randval=1"), "p_drop:0.25,"),
        (("-lse=1",), "lse:1,"),
        (("-vlayout=c",), "v:c"),
        (("-iperm=0",), "|bshd-bhsd]"),
        (("-iperm=0", "-operm=0"), "|bshd]"),
        (("-layout=qkvpacked",), "|qkvpacked-bhsd]"),
        (("-layout=kvpacked", "-operm=0"), "|kvpacked-bshd]"),
        (("-prec=fp32",), "[fp32|"),
        (("-prec=fp16", "-o_prec=fp32"), "o_prec:fp32"),
        (("-logits_soft_cap=20",), "logits_soft_cap:20"),
        (("-init_sink=1",), "init_sink:1"),
        (("-bool_mask=e",), "bool_mask:e"),
        (("-block_mask=16,8",), "block_mask:16,8"),
        (("-math=accurate",), "math:accurate"),
        (("-align=4",), "align:4"),
        (("-b=2", "-q_eff_lens=5,33", "-kv_eff_lens=7"), "kv_eff_lens:7,7"),
        (("-mode=1", "-b=3", "-s=5,0,33"), "s:[5,0,33]/[5,0,33],"),
        (("-mode=1", "-b=2", "-s=5,9", "-s_qpad=8,16", "-s_kpad=12"), "s_qpad:8,16"),
        (("-init=uf",), "dist:uniform"),
        (("-dist=hot_key",), "dist:hot_key"),
        (("--engine", "cpu", "--threads=1"), "valid:y"),
        (("-b=0",), "b:0,"),
        (("-s=0",), "s:0/0,"),
        (("-s=4", "-s_k=0"), "s:4/0,"),
    ],
)
def test_what_is_asked_for_is_in_the_result_and_right(heed, arguments, expected):
    keys = {each.split("=")[0] for each in arguments}
    rest = [each for each in SMALL if each.split("=")[0] not in keys]
    done = heed("fwd", *rest, *arguments)
    assert done.returncode == VALID, done.stdout + done.stderr
    first = lines(done.stdout)[0]
    assert expected in first and first.endswith("valid:y"), first


@pytest.mark.parametrize("dist", ["normal", "sparse_int", "offset", "hot_key", "const_v", "equal", "one_nan"])
def test_every_distribution_runs(ok, dist):
    ok("fwd", *SMALL, "-prec=fp32", f"-dist={dist}")


def test_the_lse_has_its_own_error(ok):
    assert re.search(r"; lse \S+ at \(\d+, \d+, \d+\), allowed ", ok("fwd", *SMALL, "-lse=1"))


def test_a_seed_of_0_is_new_each_time(ok):
    seeds = {re.search(r"seed:(\d+)", ok("fwd", *SMALL, "-seed=0"))[1] for _ in range(3)}
    assert len(seeds) > 1


@pytest.mark.parametrize("prec", ["fp32", "fp16", "bf16"])
def test_a_wrong_result_is_found_and_named(heed, prec):
    done = heed("fwd", *SMALL, f"-prec={prec}", "-threads=1", "-spoil=1")
    assert done.returncode == WRONG
    text = lines(done.stdout)
    assert text[0].endswith("valid:n")
    assert " at (0, 0, 0, 0), allowed " in text[1]
    assert any(re.match(r"  again: heed fwd .*-threads=1$", line) for line in text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-s=33", "-block_mask=64,64"],  # one block
        ["-s=33", "-bias=e:2", "-zero_strides=bias.b"],
        ["-s=33", "-layout=qkvpacked", "-align=1"],
        ["-mode=1", "-s=20,33", "-max_s_q=40", "-max_s_k=0"],
        ["-s=33", "-p_drop=0.3", "-drop_prefs=1", "-randval=1"],
    ],
)
def test_what_the_arguments_tell_is_the_problem_that_the_tensors_pose(ok, arguments):
    assert "valid:y" in ok("fwd", "-b=2", "-h=2", "-d=16", *arguments)
