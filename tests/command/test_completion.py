"""The bash completion: valid bash, and its answers are the command's own."""

import re
import shutil
import subprocess

import pytest
from conftest import HEED, ROOT

SCRIPT = ROOT / "tools" / "heed" / "completion.bash"
BASH = shutil.which("bash")

pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")


def complete(line):
    """What bash would offer behind this line."""
    # Words as readline makes them: '=' and ':' are words of their own.
    script = f"""
        source '{SCRIPT}'
        COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}
        read -ra COMP_WORDS <<< "$(sed 's/[=:]/ & /g' <<< "$COMP_LINE")"
        [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _heed '{HEED}'
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run([BASH, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_script_is_valid_bash():
    assert subprocess.run([BASH, "-n", str(SCRIPT)]).returncode == 0


def test_every_subcommand_is_completed():
    listed = subprocess.run([HEED, "--help"], capture_output=True, text=True).stdout
    assert set(re.findall(r"^  ([a-z]+)  +\S", listed, re.M)) <= set(complete("heed "))


def test_subcommands():
    assert complete("heed f") == ["fwd", "fuzz"]
    assert complete("heed ex") == ["explain"]


@pytest.mark.parametrize("line, expected", [
    ("heed fwd -log", ["-logits_soft_cap="]),
    ("heed fwd -prec=f", ["fp32", "fp16", "fp8", "fp8bf16", "fp8fp32"]),
    ("heed fwd -s=4 -engine=c", ["cpu", "cuda"]),
    ("heed fwd -bias=e:", ["1", "2"]),
    ("heed bench fe", ["features"]),
    ("heed bench ho", ["host"]),
    ("heed b", ["bwd", "bench"]),
    ("heed bwd -determ", ["-deterministic="]),
    ("heed bench -op=", ["fwd", "bwd"]),
    ("heed kernels --na", ["--names"]),
    ("heed mask x", ["xt:", "xb:"]),
    ("heed cache ", ["ls", "clear", "prewarm", "export", "import"]),
    ("heed cache prewarm -profile=f", ["flash"]),
])  # fmt: skip
def test_completions(line, expected):
    assert complete(line) == expected


def test_kernel_names_are_completed():
    assert all(each.startswith("cpu/baseline/") for each in complete("heed fwd -kernel=cpu/baseline/"))
    assert complete("heed fwd -kernel=cpu/baseline/")
