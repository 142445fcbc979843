"""Bad usage: exit code 2, with what was passed, the rule, and what would work. Nothing is guessed, clamped or skipped."""

import pytest
from conftest import USAGE


@pytest.mark.parametrize(
    "arguments, fragments",
    [
        # garbage numbers
        (("-s=12x",), ["-s=12x", "whole number"]),
        (("-s=abc",), ["-s=abc", "whole number"]),
        (("-b=1.5",), ["-b=1.5", "whole number"]),
        (("-d=0x10",), ["-d=0x10", "whole number"]),
        (("-s= 5",), ["-s= 5", "whole number"]),
        (("-s=99999999999999999999",), ["-s=99999999999999999999"]),
        (("-scale_s=abc",), ["-scale_s=abc", "number"]),
        (("-p_drop=half",), ["-p_drop=half", "number"]),
        (("-seed=-1",), ["-seed=-1", "whole number"]),
        (("-lse=2",), ["-lse=2", "takes 0 or 1"]),
        (("-kname=maybe",), ["-kname=maybe", "takes 0 or 1"]),
        (("-warmup=x",), ["-warmup=x", "whole number"]),
        (("-repeat=0",), ["-repeat=0", "from 1"]),
        (("-threads=-1",), ["-threads=-1", "from 0"]),
        (("-num_splits=two",), ["-num_splits=two", "whole number"]),
        (("-page_block_size=1k",), ["-page_block_size=1k", "whole number"]),
        (("-rotary_dim=x",), ["-rotary_dim=x", "whole number"]),
        # ranges
        (("-b=-1",), ["-b=-1", "from 0"]),
        (("-d=0",), ["-d=0", "from 1"]),
        (("-h_k=-2",), ["-h_k=-2", "from -1"]),
        (("-s=-5",), ["-5"]),
        (("-p_drop=1",), ["1"]),
        (("-p_drop=-0.1",), ["-0.1"]),
        (("-logits_soft_cap=-1",), ["-1"]),
        (("-logits_soft_cap=inf",), ["inf"]),
        (("-scale_s=nan",), ["nan"]),
        (("-align=64",), ["-align=64", "from 0 to 63"]),
        # words
        (("-prec=fp17",), ["-prec=fp17", "fp16"]),
        (("-mask=t:4",), ["-mask=t:4", "a window takes two numbers", "t:4,0"]),
        (("-mask=z",), ["-mask=z", "b:left,right"]),
        (("-mask=g:1",), ["-mask=g:1", "g:y,x"]),
        (("-bias=q",), ["-bias=q", "e:1"]),
        (("-init=zz",), ["-init=zz", "uf"]),
        (("-dist=zz",), ["-dist=zz", "hot_key"]),
        (("-vlayout=x",), ["-vlayout=x", "r, c"]),
        (("-layout=sbhd",), ["-layout=sbhd", "bshd"]),
        (("-engine=gpu",), ["-engine=gpu", "auto, cpu, cuda"]),
        (("-isa=avx1024",), ["-isa=avx1024", "avx512"]),
        (("-timer=wall",), ["-timer=wall", "gpu, cpu"]),
        (("-v=3",), ["-v=3", "0, 1"]),
        (("-mode=2",), ["-mode=2", "0, 1"]),
        (("-qscale=z",), ["-qscale=z", "pt"]),
        (("-block_mask=64",), ["-block_mask=64", "block_q,block_k"]),
        (("-math=exact",), ["-math=exact", "fast, accurate"]),
        # contradictions and wrong lists
        (("-h=6", "-h_k=4"), ["6", "4", "multiple"]),
        (("-mode=1", "-b=3", "-s=5,6"), ["-s=5,6", "2 lengths for b = 3"]),
        (("-s=5,6",), ["-s=5,6", "-mode=1"]),
        (("-mode=1", "-b=2", "-s=5,6", "-s_qpad=8,8,8"), ["-s_qpad=8,8,8", "b = 2"]),
        (("-mode=1", "-b=2", "-s=5,6", "-s_qpad=4,8"), ["5", "4"]),
        (("-s_qpad=8",), ["-s_qpad=8", "-mode=1"]),
        (("-s=8", "-q_eff_lens=9"), ["9", "8"]),
        (("-b=2", "-q_eff_lens=1,2,3"), ["-q_eff_lens=1,2,3", "b = 2"]),
        (("-mode=1", "-b=2", "-s=5,6", "-q_eff_lens=1"), ["-q_eff_lens=1", "batch mode"]),
        (("-layout=qkvpacked", "-h=4", "-h_k=2"), ["qkvpacked"]),
        (("-iperm=1", "-layout=bshd"), ["-layout=bshd", "-iperm"]),
        (("-init=uf", "-dist=normal"), ["-dist=normal", "-init"]),
        (("-scale=1", "-scale_s=2"), ["scale_s"]),
        (("-bias_prec=fp32",), ["-bias_prec=fp32", "there is no bias"]),
        (("-zero_strides=d_o.h",), ["zero_strides=d_o.h", "backward pass"]),
        (("-zero_strides=bias.h",), ["zero_strides=bias.h", "there is no bias"]),
        (("-zero_strides=bool_mask.q", "-bias=e"), ["zero_strides=bool_mask.q", "there is no boolean mask"]),
        (("-jsonfile=x.json",), ["-jsonfile=x.json", "-json=1"]),
        # words that are no arguments
        (("-sk=4",), ["-sk=4", "did you mean '-s_k'?"]),
        (("-softcap=4",), ["no argument 'softcap'"]),
        (("-presc=fp16",), ["did you mean '-prec'?"]),
        (("-Mask=b",), ["did you mean '-mask'?"]),
        (("-s",), ["-s : the value is missing", "-s=3328"]),
        (("-s=",), ["-s=", "the value is missing"]),
        (("s=4",), ["'s=4'", "-key=value", "'-s'"]),
        (("-s=4", "-s=5"), ["-s=5", "given before"]),
        (("--s=4", "-s=4"), ["given before"]),
        (("-",), ["'-'"]),
        (("-kernel=cpu/none",), ["cpu/none"]),
    ],
)
def test_fwd_refuses(refused, arguments, fragments):
    text = refused(USAGE, "fwd", *arguments)
    for fragment in fragments:
        assert fragment in text, text


def test_an_empty_value_is_fine_where_empty_is_the_default(ok):
    ok("fwd", "-s=8", "-h=1", "-d=8", "-q_eff_lens=", "-warmup=0", "-repeat=1")


def test_an_unknown_subcommand_is_refused_with_the_nearest(refused):
    text = refused(USAGE, "fwdd")
    assert "'fwdd' : no such subcommand (did you mean 'fwd'?)" in text


def test_no_subcommand_shows_the_help_and_fails(heed):
    done = heed()
    assert done.returncode == USAGE
    assert "usage: heed <subcommand>" in done.stdout


@pytest.mark.parametrize("subcommand", ["explain", "bench", "fuzz", "kernels", "info", "mask", "replay", "demo"])
def test_every_subcommand_refuses_unknown_arguments(refused, subcommand):
    words = {"bench": ["cpu"], "mask": ["b"], "replay": ["x.json"]}.get(subcommand, [])
    assert "has no argument 'nonsense'" in refused(USAGE, subcommand, *words, "--nonsense=1")


@pytest.mark.parametrize("variable", ["HEED_NUM_THREADS", "HEED_MAX_CPU_ISA"])
def test_a_bad_environment_is_refused_too(refused, variable):
    assert variable in refused(USAGE, "fwd", "-s=8", env={variable: "nonsense"})


@pytest.mark.parametrize("words", [("-op=bwd",), ("--op=bwd",), ("--op", "bwd"), ("-op", "bwd")])
def test_the_pass_is_understood_in_every_way_to_write_it(ok, words):
    problem = ("-h=1", "-s=16", "-d=16", "-deterministic=1")  # which the forward pass does not have
    assert "bwd" in ok("explain", *words, *problem).splitlines()[0]
    assert "-dbias=" in ok("bench", *words, "--help")
