"""docs/architecture.md says which room may include which: here it is held to it."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `((?:src|tools|include)/\w+)` \|.*\|([^|]*)\|$", re.M)


def rooms():
    """(path, rooms it may include) of every row of the table."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return [(path, re.findall(r"`(\w+)`", allowed)) for path, allowed in ROW.findall(text)]


def sources(path):
    return [each for each in (ROOT / path).rglob("*") if each.suffix in {".hpp", ".cpp", ".h", ".c"}]


def test_every_room_is_on_the_map():
    there = {f"src/{each.name}" for each in (ROOT / "src").iterdir() if each.is_dir()}
    assert there | {"include/heed", "tools/heed"} == {path for path, _ in rooms()}


@pytest.mark.parametrize("path, allowed", rooms(), ids=[path for path, _ in rooms()])
def test_a_room_includes_only_what_the_map_allows(path, allowed):
    own = path.split("/")[-1]
    assert sources(path)
    for source in sources(path):
        for room in re.findall(r'^\s*#\s*include "(\w+)/', source.read_text(encoding="utf-8"), re.M):
            assert room == own or room in allowed, f"{source.relative_to(ROOT)} includes {room}"


def test_public_headers_include_public_headers_alone():
    for source in sources("include/heed"):
        assert not re.search(r'^\s*#\s*include "', source.read_text(encoding="utf-8"), re.M), source.name


def test_dispatch_knows_one_header_of_an_engine():
    for source in sources("src/dispatch"):
        engine_headers = re.findall(r'#include "((?:cpu|cuda)/[^"]+)"', source.read_text(encoding="utf-8"))
        allowed = ["cpu/engine.hpp", "cuda/engine.hpp"] if source.name == "engines.cpp" else []
        assert engine_headers == allowed, source.name
