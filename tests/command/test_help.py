"""Help: every argument is listed, in groups, with examples."""

import re

import pytest
from conftest import ROOT

# The forward arguments people know from elsewhere, and ours.
FWD_ARGUMENTS = """
v mode b h h_k s s_k s_knew s_qpad s_kpad d d_v scale_s qscale logits_soft_cap iperm operm bias prec mask vlayout lse kname
init seed p_drop drop_seed drop_offset drop_prefs timer rotary_dim rotary_interleaved num_splits page_block_size
cache_batch_idx warmup repeat json jsonfile q_eff_lens kv_eff_lens init_sink pack_gqa
engine threads isa dist kernel layout bool_mask block_mask bias_prec o_prec randval math align
""".split()

DEFAULTS = {
    "v": "1", "mode": "0", "b": "2", "h": "8", "h_k": "-1", "s": "3328", "s_k": "-1", "s_knew": "0", "d": "128", "d_v": "-1",
    "scale_s": "0", "qscale": "n", "logits_soft_cap": "0", "iperm": "1", "operm": "1", "bias": "n", "prec": "fp16",
    "mask": "0", "vlayout": "r", "lse": "0", "kname": "0", "seed": "11939", "p_drop": "0", "drop_seed": "1",
    "drop_offset": "0", "drop_prefs": "0", "timer": "gpu", "rotary_dim": "0", "rotary_interleaved": "1", "num_splits": "1",
    "page_block_size": "0", "cache_batch_idx": "0", "warmup": "5", "repeat": "20", "json": "0", "jsonfile": "fmha_fwd.json",
    "q_eff_lens": "", "kv_eff_lens": "", "init_sink": "0", "pack_gqa": "1",
}  # fmt: skip

SUBCOMMANDS = ["fwd", "bench", "fuzz", "replay", "demo", "explain", "kernels", "mask", "cache", "info"]


def listed(text):
    """key -> default, as the help shows them."""
    return dict(re.findall(r"^  -(\w+)=(\S*)", text, re.M))


def test_fwd_help_lists_every_argument_with_its_default(ok):
    keys = listed(ok("fwd", "--help"))
    assert [key for key in FWD_ARGUMENTS if key not in keys] == []
    assert {key: keys[key] for key in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("word", ["-?", "--help", "-help"])
def test_all_ways_to_ask_for_help_are_the_same(ok, word):
    assert ok("fwd", word) == ok("fwd", "--help")
    assert ok("fwd", "-s=12", word) == ok("fwd", "--help")


def test_explain_takes_the_arguments_of_fwd(ok):
    fwd, explain = listed(ok("fwd", "--help")), ok("explain", "--help")
    assert set(fwd) - set(listed(explain)) == {"json"}
    assert "--json" in explain


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_every_subcommand_has_a_usage_line_and_groups(ok, subcommand):
    text = ok(subcommand, "--help")
    assert f"usage: heed {subcommand}" in text
    assert ok("help", subcommand) == text


@pytest.mark.parametrize("subcommand", [each for each in SUBCOMMANDS if each not in ("info", "demo")])
def test_help_has_examples_of_itself(ok, subcommand):
    text = ok(subcommand, "--help")
    assert f"\n  heed {subcommand}" in text[text.index("Examples"):]


def test_the_examples_of_fwd_make_sense(ok):
    text = ok("fwd", "--help")
    for line in text[text.index("Examples"):].splitlines():
        found = re.match(r"  heed fwd((?: -\S+)*)", line)
        if found:
            # The kernel is chosen, nothing is computed: explain takes the same arguments.
            ok("explain", *(each for each in found[1].split() if not each.startswith("-json")))


def test_the_front_page_names_every_subcommand(ok):
    text = ok("--help")
    assert all(re.search(rf"^  {each} +\S", text, re.M) for each in SUBCOMMANDS)


def test_version(ok):
    header = (ROOT / "include" / "heed" / "version.h").read_text()
    numbers = [re.search(rf"HEED_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]
    assert ok("--version") == f"heed {'.'.join(numbers)}\n"
