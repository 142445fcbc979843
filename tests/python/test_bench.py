"""bench/compare.py runs, is right, and writes what it promises."""

import json
import pathlib
import subprocess
import sys
import xml.dom.minidom

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


def test_the_comparison_runs_on_the_cpu(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    outputs = [f"--json={tmp_path}/c.json", f"--markdown={tmp_path}/c.md", f"--plots={tmp_path}/plots"]
    command = [sys.executable, str(BENCH / "compare.py"), "--device=cpu", "--small", *outputs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "c.json").read_text())
    assert len(record["rows"]) == 2
    for row in record["rows"]:
        assert {"heed", "torch math"} <= set(row["results"]) and not row["wrong"]
        assert all(each["seconds"] > 0 for each in row["results"].values())
        assert row["errors"]["heed"] < 1e-5
    assert record["host_us"]["heed.attention(q, k, v)"] > 0
    assert "| over |" in (tmp_path / "c.md").read_text()
    pictures = sorted(each.name for each in (tmp_path / "plots").iterdir())
    assert pictures == ["errors.svg", "speed-f32-causal-d64.svg"]
    for each in pictures:
        xml.dom.minidom.parse(str(tmp_path / "plots" / each))


def test_a_wrong_result_of_heeds_ends_the_comparison(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import compare, peers, torch\n"
        "peers.PEERS['heed'] = lambda q, k, v, causal: lambda: torch.zeros_like(q)\n"
        "sys.exit(compare.main())\n"
    )
    command = [sys.executable, "-c", program, str(BENCH), "--device=cpu", "--small"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "heed is wrong" in done.stdout, done.stdout + done.stderr


def test_plots_show_every_point(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import svg

    picture = svg.lines("t", "x", "y", {"heed": [(512, 1.0), (1024, 3.0)], "a<b": [(512, 2.0)]})
    assert picture.count("<circle") == 3 and picture.count("<polyline") == 2 and "a&lt;b" in picture
    xml.dom.minidom.parseString(picture)
    picture = svg.boxes("t", "y", {"heed": [1e-3, 2e-3, 5e-3], "other": [1e-2]})
    assert picture.count('fill-opacity="0.35"') == 2
    xml.dom.minidom.parseString(picture)
