"""bench/compare.py, bench/host_cost.py and bench/features_gpu.py run, are right, and write what they promise; so do the pictures."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import xml.dom.minidom

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def run(program, *arguments):
    command = [sys.executable, *([str(BENCH / program)] if program.endswith(".py") else ["-c", program]), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def check_pictures(folder, stems):
    """Every SVG is XML, every PNG one; both are there for each stem, PNG where matplotlib is."""
    endings = [".png", ".svg"] if HAS_MATPLOTLIB else [".svg"]
    assert sorted(each.name for each in folder.iterdir()) == sorted(stem + end for stem in stems for end in endings)
    for each in folder.iterdir():
        if each.suffix == ".svg":
            xml.dom.minidom.parse(str(each))
        else:
            assert each.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and each.stat().st_size > 5000


@pytest.mark.parametrize("passes", ["forward", "backward"])
def test_the_comparison_runs_on_the_cpu(tmp_path, passes):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    outputs = [f"--json={tmp_path}/c.json", f"--markdown={tmp_path}/c.md", f"--plots={tmp_path}/plots"]
    further = ["--backward"] if passes == "backward" else []
    if further and not torch.__version__.startswith("2.4."):  # which knows no groups of heads
        further.append("--group=2")
    done = run("compare.py", "--device=cpu", "--small", *outputs, *further)
    assert done.returncode == 0, done.stderr
    assert "[2/2, " in done.stdout, "it says how far it is"
    record = json.loads((tmp_path / "c.json").read_text())
    assert len(record["rows"]) == 2 and record["not_measured"] == 0
    for row in record["rows"]:
        assert {"heed", "torch math"} <= set(row["results"]) and not row["wrong"]
        assert all(each["seconds"] > 0 for each in row["results"].values())
        assert row["errors"]["heed"] < 1e-5
    assert "| over |" in (tmp_path / "c.md").read_text()
    named = ("speed-backward-f32-causal-d64", "errors-backward") if further else ("speed-f32-causal-d64", "errors")
    check_pictures(tmp_path / "plots", named)
    assert HAS_MATPLOTLIB or "matplotlib is not installed" in done.stdout
    again = run("compare.py", f"--plot-from={tmp_path}/c.json", f"--plots={tmp_path}/again")
    assert again.returncode == 0, again.stderr
    check_pictures(tmp_path / "again", named)


def test_a_run_that_is_out_of_time_says_what_it_left_out(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    done = run("compare.py", "--device=cpu", "--small", "--limit=1e-9", f"--json={tmp_path}/c.json")
    assert done.returncode == 0, done.stderr
    assert "2 problems were not measured" in done.stdout


def test_a_wrong_result_of_heeds_ends_the_comparison():
    pytest.importorskip("torch", reason="torch is not installed")
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import compare, peers, torch\n"
        "peers.PEERS['heed'] = lambda q, k, v, causal: lambda: (q + k + v) * 0\n"
        "sys.exit(compare.main())\n"
    )
    for passes in ([], ["--backward"]):
        done = run(program, str(BENCH), "--device=cpu", "--small", *passes)
        assert done.returncode == 1 and "heed is wrong" in done.stdout, done.stdout + done.stderr


def test_the_cost_of_a_call_is_measured(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    done = run("host_cost.py", "--device=cpu", "--seconds=0", f"--json={tmp_path}/h.json", f"--markdown={tmp_path}/h.md")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "h.json").read_text())["rows"]
    assert {row["array"] for row in rows} == {"cpu", "numpy"}
    assert all(row["us"] > 0 for row in rows), [row for row in rows if "us" not in row]
    assert [row["goal_us"] for row in rows if row["goal_us"]] == [10.0]
    table = (tmp_path / "h.md").read_text().splitlines()
    assert sum(line.startswith(("| cpu |", "| numpy |")) for line in table) == len(rows)


def test_the_cost_of_features_is_measured(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    done = run("features_gpu.py", "--quick", "--d=64", f"--json={tmp_path}/f.json", f"--markdown={tmp_path}/f.md")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "f.json").read_text())
    assert {"d64 full", "d64 causal, ALiBi", "d192/128 causal"} <= set(record["results"])
    assert all(each["forward"] > 0 and each["backward"] > 0 for each in record["results"].values())
    for name, errors in record["errors"].items():
        assert errors is None if "dropout" in name else set(errors) == {"o", "dq", "dk", "dv"}, name
    assert (tmp_path / "f.md").read_text() in done.stdout


@pytest.mark.parametrize("what", ["dq", "dk", "dv"])
def test_a_wrong_gradient_ends_the_measurement_of_features(what):
    pytest.importorskip("torch", reason="torch is not installed")
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import features_gpu, heed\n"
        "backward, what = heed.attention_backward, sys.argv.pop(1)\n"
        "def wrong(*tensors, **options):\n"
        "    gradients = backward(*tensors, **options)\n"
        "    if 'block_mask' in options:\n"
        "        getattr(gradients, what)[-1, -1, -1, -1] += 10\n"
        "    return gradients\n"
        "heed.attention_backward = wrong\n"
        "sys.exit(features_gpu.main())\n"
    )
    done = run(program, str(BENCH), what, "--quick", "--d=64")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"d64 full, half of the blocks of 128 x 128: wrong, the error of {what} is" in done.stderr


def test_the_judge_of_features_agrees_with_the_reference(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.syspath_prepend(str(BENCH))
    import features_gpu

    import heed
    import heed.reference

    def as_numpy(value):
        if isinstance(value, tuple):
            return tuple(as_numpy(each) for each in value)
        return value.numpy() if isinstance(value, torch.Tensor) else value

    monkeypatch.setattr(features_gpu, "AT_ONCE", 16)
    monkeypatch.setattr(features_gpu, "BLOCK", 8)
    wide = dict(sizes=(2, 4, 40), device="cpu", dtype=torch.float32)
    for make in [*features_gpu.rows_for(64, *wide.values()), *features_gpu.other_dims(*wide.values())]:
        row = make()
        if "dropout_p" in row.options:
            continue
        assert max(row.errors().values()) < 1e-4, row.name
        options = {name: as_numpy(value) for name, value in row.options.items()}
        q, k, v, d_o = map(as_numpy, (row.q, row.k, row.v, row.d_o))
        exact = heed.reference.attention_backward(q, k, v, d_o, **options)
        row.o = torch.from_numpy(heed.reference.attention(q, k, v, **options)[0])
        row.gradients = heed.Gradients(*(torch.from_numpy(each) for each in exact[:3]))
        assert max(row.errors().values()) < 1e-9, row.name


def test_tritons_tutorial_takes_part_where_its_file_is_named(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.syspath_prepend(str(BENCH))
    import peers

    file = tmp_path / "06-fused-attention.py"
    file.write_text(
        "import torch\n"
        "class _attention(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, q, k, v, causal, sm_scale, warp_specialize=True):\n"
        "        assert q.is_contiguous() and not warp_specialize\n"
        "        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=sm_scale)\n"
    )
    q, k, v = (torch.randn(1, 5, 2, 8) for _ in range(3))
    with pytest.raises(ImportError, match="HEED_TRITON_TUTORIAL"):
        peers.triton_peer(q, k, v, True)
    monkeypatch.setenv("HEED_TRITON_TUTORIAL", str(file))
    expected = peers.heed_peer(q, k, v, True)()
    torch.testing.assert_close(peers.triton_peer(q, k, v, True)(), expected)


def test_plots_show_every_point(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import svg

    picture = svg.lines("t", "x", "y", {"heed": [(512, 1.0), (1024, 3.0)], "a<b": [(512, 2.0)]})
    assert picture.count("<circle") == 3 and picture.count("<polyline") == 2 and "a&lt;b" in picture
    xml.dom.minidom.parseString(picture)
    picture = svg.lines("t", "x", "y", {"heed": [(0, 2.0), (1, 1.0), (2, 0.5)]}, linear=True)
    (points,) = [line.split('"')[1] for line in picture.splitlines() if line.startswith("<polyline")]
    assert len(points.split()) == 3 and "<circle" not in picture
    picture = svg.boxes("t", "y", {"heed": [1e-3, 2e-3, 5e-3], "other": [1e-2]})
    assert picture.count('fill-opacity="0.35"') == 2
    xml.dom.minidom.parseString(picture)


@pytest.mark.parametrize("record", sorted((BENCH / "results").glob("training-*.json")), ids=lambda file: file.stem)
def test_recorded_trainings_are_drawn(record, tmp_path):
    done = run("plots.py", str(record), f"--to={tmp_path / 'plots'}")
    assert done.returncode == 0, done.stderr
    check_pictures(tmp_path / "plots", [record.stem])
    picture = (tmp_path / "plots" / f"{record.stem}.svg").read_text()
    assert picture == record.with_suffix(".svg").read_text(), "the recorded picture is that of the record"


def test_a_comparison_that_ends_early_leaves_what_it_has_measured(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    program = (
        "import sys, types; sys.path.insert(0, sys.argv.pop(1)); import compare_gpu\n"
        "class Point:\n"
        "    def __init__(self, options, heed, extra, d, causal, s):\n"
        "        self.facts = dict(d=d, causal=causal, s=s, b=1, h=1, h_k=1, kernel='cuda/x', error=1e-4)\n"
        "        self.facts |= dict(heed=500.0, cudnn=450.0, other=20.0, as_calls=['other'], left_out={'fa2': 'OSError: no'})\n"
        "    def measure(self, rounds, seconds):\n"
        "        if self.facts['s'] == 2048: raise SystemExit('wrong')\n"
        "        return self.facts\n"
        "compare_gpu.Point = Point\n"
        "compare_gpu.heed_c.Heed = lambda *_, **__: types.SimpleNamespace(version=lambda: '0')\n"
        "compare_gpu.torch.zeros = lambda *_, **__: None\n"
        "compare_gpu.torch.cuda.get_device_name = lambda: 'a GPU'\n"
        "sys.exit(compare_gpu.main())\n"
    )
    outputs = [f"--json={tmp_path}/c.json", f"--markdown={tmp_path}/c.md"]
    done = run(program, str(BENCH), "--library=x", "--d=64", "--causal=1", "--s=512,1024,2048,4096", *outputs)
    assert done.returncode == 1 and "wrong" in done.stderr, done.stderr
    record = json.loads((tmp_path / "c.json").read_text())
    assert [row["s"] for row in record["points"]] == [512, 1024] and record["not_measured"] == 2
    text = (tmp_path / "c.md").read_text()
    assert "| 64 | 1 | 1024 | 500 | 450 | 20* | 1.111 | 1.111 | 1.0e-04 | x |" in text
    assert "* could not be captured in a graph" in text and "2 points were not measured" in text
    assert "- d64 causal 1 s 512: fa2 is left out: OSError: no" in text
    done = run(program, str(BENCH), "--library=x", "--limit=-1", *outputs)
    assert done.returncode == 0 and "points were not measured" in done.stdout, done.stderr


def test_a_peer_that_raises_is_left_out_of_its_point(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.syspath_prepend(str(BENCH))
    import types

    import compare_gpu

    def refuse():
        raise ValueError("not this one\nfor many reasons")

    def uncaptured():
        return "called"

    def capture(function, launches, stream=None):
        if function is uncaptured:
            raise RuntimeError("cannot be captured")
        return types.SimpleNamespace(replay=lambda: [function() for _ in range(launches)])

    monkeypatch.setattr(compare_gpu, "capture", capture)
    monkeypatch.setattr(compare_gpu, "time_of", lambda work, launches: work() and 1e-3)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    point = compare_gpu.Point.__new__(compare_gpu.Point)
    point.flops, point.facts = 1e12, {"left_out": {}, "as_calls": []}
    once = iter([True])
    point.functions = {"heed": lambda: True, "bad": refuse, "calls": uncaptured, "later": lambda: next(once)}
    point.try_peers()
    assert list(point.functions) == ["heed", "calls", "later"]
    assert point.facts["left_out"] == {"bad": "ValueError: not this one"}
    facts = point.measure(rounds=2, seconds=4e-3)
    assert facts["heed"] == facts["calls"] == pytest.approx(1000) and facts["as_calls"] == ["calls"]
    assert "later" in facts["left_out"] and "later" not in facts
    point.functions["heed"] = refuse
    with pytest.raises(ValueError):
        point.measure(rounds=1, seconds=4e-3)


def test_a_feature_that_cannot_be_computed_is_left_out_and_the_rest_is_written(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import features_gpu, heed\n"
        "forward = heed.attention\n"
        "def refuse(*tensors, **options):\n"
        "    if 'softcap' in options: raise ValueError('no soft cap')\n"
        "    if tensors[0].shape[-1] == 96: raise SystemExit('the end')\n"
        "    return forward(*tensors, **options)\n"
        "heed.attention = refuse\n"
        "sys.exit(features_gpu.main())\n"
    )
    done = run(program, str(BENCH), "--quick", "--d=64", f"--json={tmp_path}/f.json", f"--markdown={tmp_path}/f.md")
    assert done.returncode == 1, done.stdout + done.stderr
    record = json.loads((tmp_path / "f.json").read_text())
    assert "d64 full" in record["results"] and record["not_measured"] == ["other head dims"]
    assert set(record["left_out"]) == {"d64 full, soft cap 30", "d64 causal, soft cap 30"}
    text = (tmp_path / "f.md").read_text()
    assert "- d64 full, soft cap 30: " in text and "Not measured: other head dims." in text


def test_cells_that_were_timed_as_calls_are_marked(monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.syspath_prepend(str(BENCH))
    import compare
    import features_gpu

    results = {"a": {"seconds": 1e-3, "tflops": 1.0, "timed_as": "graph"}, "b": {"seconds": 2e-3, "tflops": 2.0, "timed_as": "calls"}}
    assert "| x | **1 (1)** | 2* (2) |" in compare.result_table([{"problem": "x", "results": results}], ["a", "b"])
    results["a"]["timed_as"] = "calls"  # as all are on a CPU
    assert "| x | **1 (1)** | 2 (2) |" in compare.result_table([{"problem": "x", "results": results}], ["a", "b"])
    speeds = {"d64 full": {"forward": 500.0, "backward": 400.0}}
    row = features_gpu.table(speeds, {"d64 full": None}, {"d64 full": ["backward"]})[-1]
    assert row == "| d64 full | 500 | 1.00 | 400* | 1.00 |  |"


@pytest.mark.parametrize("kind", ["Contest", "BackwardContest"])
def test_heed_allocates_its_results_in_every_call_as_torch_does(monkeypatch, kind):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.syspath_prepend(str(BENCH))
    import compare_torch
    import heed_c
    import peers

    class Silent(heed_c.Heed):
        def __init__(self):
            self.written = []

        def forward(self, args):
            self.written.append(args.o.data)

        def backward(self, args):
            self.written.append(args.dq.data)

        kernel = backward_kernel = lambda self, args: "cpu/x"

    heed = Silent()
    contest = getattr(compare_torch, kind)(compare_torch.Row("full", "f32", 1, 2, 2, 64, 64, 16, False), heed)
    heed.written.clear()
    kept = [contest.run_heed(), contest.run_heed()]
    assert len(set(heed.written)) == 2
    assert heed.written[0] == (kept[0] if kind == "Contest" else kept[0][0]).data_ptr()
    q = torch.randn(1, 5, 2, 8)
    run_heed = peers.heed_peer(q, q, q, False)
    first, second = run_heed(), run_heed()
    assert first.data_ptr() != second.data_ptr()
