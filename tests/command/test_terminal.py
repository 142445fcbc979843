"""On a terminal: colours, and a bar while long work goes on. Elsewhere: neither."""

import os
import pty
import subprocess

from conftest import HEED, run_heed


def on_a_terminal(*arguments, **env):
    """What a terminal shows of both streams."""
    ours, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8", **env}
    process = subprocess.Popen([HEED, *arguments], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=60) == 0, shown
    return shown.decode()


def test_a_terminal_gets_colours_and_blocks():
    shown = on_a_terminal("mask", "b", "-s=4")
    assert "\033[" in shown and "■" in shown


def test_no_color_is_respected():
    assert "\033[" not in on_a_terminal("mask", "b", "-s=4", NO_COLOR="1")


def test_plain_has_no_colours_even_there():
    assert on_a_terminal("mask", "b", "-s=2", "--plain").split() == ["1.", "11"]


def test_without_unicode_the_picture_is_ascii():
    assert on_a_terminal("mask", "b", "-s=4", LANG="C").isascii()


def test_long_work_shows_a_bar_and_removes_it():
    shown = on_a_terminal("fuzz", "--minutes=0.025", "--seed=5")
    assert "fuzz [" in shown and "% " in shown.replace("%,", "% ")
    assert shown.rstrip().splitlines()[-1].startswith("\r\033[Kfuzz:") or "\r\033[K" in shown


def test_a_pipe_gets_no_bar():
    assert run_heed("fuzz", "--minutes=0.025", "--seed=5").stderr == ""
