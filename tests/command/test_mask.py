"""heed mask: pictures of the contract's masks."""

import pytest
from conftest import USAGE


def rows(text):
    return text.splitlines()


def visible(i, j, s_k, y, x, sink):
    return i - y + 1 <= j < min(i + x, s_k) or (j < sink and j < i + x)


def picture(s_q, s_k, y, x, sink=0):
    return ["".join("1" if visible(i, j, s_k, y, x, sink) else "." for j in range(s_k)) for i in range(s_q)]


def test_causal_2x5_bottom_right_lets_the_last_query_see_every_key(ok):
    assert rows(ok("mask", "b", "-s=2", "-s_k=5", "--plain")) == ["1111.", "11111"]


def test_causal_5x2_bottom_right_leaves_the_first_rows_empty(ok):
    assert rows(ok("mask", "b", "-s=5", "-s_k=2", "--plain")) == ["..", "..", "..", "1.", "11"]


def test_causal_top_left_starts_in_the_corner(ok):
    assert rows(ok("mask", "t", "-s=3", "-s_k=5", "--plain")) == ["1....", "11...", "111.."]


@pytest.mark.parametrize("text", ["0", "n"])
def test_no_mask_shows_everything(ok, text):
    assert rows(ok("mask", text, "-s=2", "-s_k=3", "--plain")) == ["111", "111"]


@pytest.mark.parametrize("pair", [("1", "t"), ("2", "b"), ("xt:0", "t"), ("xb:-1", "b"), ("xt:4", "t:2,1"), ("t:-1,0", "t")])
def test_two_texts_of_the_same_mask(ok, pair):
    assert ok("mask", pair[0], "-s=6", "-s_k=9", "--plain") == ok("mask", pair[1], "-s=6", "-s_k=9", "--plain")


@pytest.mark.parametrize("s_q, s_k", [(6, 6), (3, 8), (8, 3), (1, 1)])
@pytest.mark.parametrize("left, right, sink", [(2, 0, 0), (0, 0, 0), (1, 2, 0), (2, 0, 2), (0, 1, 3)])
def test_windows_follow_the_contract(ok, s_q, s_k, left, right, sink):
    text = f"{left},{right}" + (f",{sink}" if sink else "")
    size = (f"-s={s_q}", f"-s_k={s_k}", "--plain")
    assert rows(ok("mask", "t:" + text, *size)) == picture(s_q, s_k, 1 + left, 1 + right, sink)
    shift = s_k - s_q
    assert rows(ok("mask", "b:" + text, *size)) == picture(s_q, s_k, 1 + left - shift, 1 + right + shift, sink)


def test_raw_coordinates(ok):
    assert rows(ok("mask", "g:3,2", "-s=5", "-s_k=6", "--plain")) == picture(5, 6, 3, 2)


def test_plain_prints_nothing_else(ok):
    assert set(ok("mask", "b:3,1,1", "-s=20", "--plain")) == {"1", ".", "\n"}


def test_the_picture_names_the_mask_and_counts_the_pairs(ok):
    text = ok("mask", "b", "-s=5", "-s_k=2")
    assert "mask b" in text and "causal" in text
    assert "3 of 10 pairs visible (30.0%)" in text
    assert "3 rows see no key" in text


def test_a_large_mask_is_drawn_in_blocks(ok):
    text = ok("mask", "b", "-s=4096")
    assert "each cell is" in text
    assert len(rows(text)) < 80


def test_no_rows_is_an_empty_picture(ok):
    assert ok("mask", "b", "-s=0", "-s_k=4", "--plain") == ""


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("t:4",), "a window takes two numbers"),
        (("q",), "is not known"),
        (("t:1,x",), "'x' is not a whole number"),
        (("b", "-s=-3"), "-s=-3 : must be from 0"),
        (("b", "-s=abc"), "-s=abc : a whole number is needed"),
        ((), "heed mask needs <mask>"),
        (("b", "t"), "'t' :"),
    ],
)
def test_what_makes_no_sense_is_refused(refused, arguments, text):
    assert text in refused(USAGE, "mask", *arguments)
