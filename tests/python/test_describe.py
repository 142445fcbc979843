"""Problems, plans, explanations, kernels, masks."""

import copy
import json
import pickle

import numpy as np
import pytest
from conftest import Data

import heed


def test_a_problem_is_what_the_arrays_pose(data):
    q, k, v = data.qkv(b=2, s_q=9, s_k=13, h=4, h_k=2, d=16)
    options = {
        "window": (5, 0),
        "softcap": 2.0,
        "bias": np.zeros((4, 9, 13), np.float32),
        "sink": np.zeros(4, np.float32),
    }
    told = heed.Problem(
        type="f32",
        batch=2,
        heads=(4, 2),
        lengths=(9, 13),
        head_dims=16,
        mask=heed.Mask.window(5, 0),
        softcap=2.0,
        bias="h s_q s_k",
        sink=True,
    )
    posed = json.loads(heed.Problem.json_of(q, k, v, **options))
    for key, value in json.loads(told.to_json()).items():
        assert posed[key] == value or (key == "mask" and posed[key] == "b:5,0"), key


def test_a_plan_runs_what_it_was_made_for_and_nothing_else(data):
    q, k, v = data.qkv()
    plan = heed.plan(q, k, v, causal=True, return_lse=True)
    expected, expected_lse = heed.attention(q, k, v, causal=True, return_lse=True)
    for _ in range(3):
        o, lse = plan.run(q, k, v, causal=True, return_lse=True)
        np.testing.assert_array_equal(o, expected)
        np.testing.assert_array_equal(lse, expected_lse)
    assert plan.kernel in {each["name"] for each in heed.kernels()}
    assert plan.explain().kernel == plan.kernel and plan.kernel in repr(plan)
    with pytest.raises(ValueError):
        plan.run(q, k, v, return_lse=True)
    with pytest.raises(ValueError):
        plan.run(q[:1], k[:1], v[:1], causal=True, return_lse=True)


def test_a_plan_takes_workspace_and_out_of_the_caller(data):
    q, k, v = data.qkv()
    plan = heed.plan(heed.Problem(type="f32", batch=2, heads=(4, 2), lengths=(9, 13), head_dims=16), engine="cpu")
    out = np.empty_like(q)
    workspace = np.zeros(plan.workspace_bytes + 64, np.uint8)
    workspace = workspace[-workspace.ctypes.data % 64 :]
    assert plan.run(q, k, v, out=out, workspace=workspace) is out
    np.testing.assert_array_equal(out, heed.attention(q, k, v))
    if plan.workspace_bytes:
        with pytest.raises(ValueError, match="workspace"):
            plan.run(q, k, v, out=out, workspace=workspace[: plan.workspace_bytes // 2 // 64 * 64])


def test_a_plan_keeps_no_workspace_that_only_a_replay_will_clear(data, monkeypatch):
    """Memory that is made while a CUDA graph is captured holds anything until the graph is replayed."""
    from heed import _native
    from heed._libraries import numpy as library

    capturing, used = False, []
    make, run = library.bytes, _native.plan_run

    def bytes_of_a_stream(like, count):
        memory = make(like, count)
        memory[:] = 255 if capturing else 0
        return memory

    def plan_run(handle, fields, gradients, bhsd, workspace, stream):
        used.append((workspace, workspace.any()))
        run(handle, fields, gradients, bhsd, workspace, stream)

    monkeypatch.setattr(library, "bytes", bytes_of_a_stream)
    monkeypatch.setattr(library, "capturing", lambda array: capturing)
    monkeypatch.setattr(_native, "plan_run", plan_run)
    q, k, v = data.qkv(b=1, s_q=1, s_k=4096)
    plan = heed.plan(q, k, v)
    assert plan.workspace_bytes
    for capturing in (True, True, False, True):
        plan.run(q, k, v)
    (first, _), (second, _), (own, holds_something), (later, _) = used
    assert not holds_something
    assert len({id(first), id(second), id(own)}) == 3
    assert later is own


def test_a_plan_can_be_held_to_a_kernel(data):
    q, k, v = data.qkv()
    others = [each.name for each in heed.explain(q, k, v).candidates if each.rule == "outranked"]
    assert others
    for name in others:
        assert heed.plan(q, k, v, kernel=name).kernel == name
    with pytest.raises(ValueError, match="no_such"):
        heed.plan(q, k, v, kernel="cpu/no_such")


def test_an_explanation_names_every_kernel_and_missing_engine(data):
    explanation = heed.explain(*data.qkv(), causal=True)
    assert explanation.kernel is not None and explanation.kernel.startswith("cpu/")
    assert len({each.name for each in explanation.candidates}) > 3
    assert all(each.reason for each in explanation.candidates)
    assert explanation.kernel in str(explanation)
    assert json.loads(explanation.json)["problem"] == explanation.problem
    problem = heed.Problem(type="f32", batch=2, heads=(4, 2), lengths=(9, 13), head_dims=16, mask="b")
    of_problem = heed.explain(problem, engine="cpu")
    assert of_problem.kernel == explanation.kernel


def test_kernels_can_be_filtered():
    everything = heed.kernels()
    assert {each["engine"] for each in everything} >= {"cpu"}
    some = heed.kernels("avx2")
    assert 0 < len(some) < len(everything)


def test_prewarming_says_what_it_prepared():
    problem = heed.Problem(type="f32", heads=2, lengths=64)
    names = heed.prewarm([problem, problem.replace(mask="b")], engine="cpu")
    assert len(names) == 2 and all(name.startswith("cpu/") for name in names)


@pytest.mark.parametrize("text", ["n", "t", "b", "t:2,1", "b:2,1", "b:1,0,2", "t:-1,3", "xt:3", "xb:4", "g:3,2"])
@pytest.mark.parametrize("s_q, s_k", [(4, 7), (7, 4), (5, 5)])
def test_a_mask_shows_what_the_library_lets_through(text, s_q, s_k):
    """Through attention itself: with equal scores and V = identity, o says which keys a row saw."""
    q, k = np.zeros((1, s_q, 1, 4), np.float32), np.zeros((1, s_k, 1, 4), np.float32)
    v = np.eye(s_k, dtype=np.float32)[None, :, None, :]
    mask = heed.Mask.parse(text)
    seen = heed.attention(q, k, v, mask=mask)[0, :, 0] > 0
    np.testing.assert_array_equal(seen, mask.visible(s_q, s_k))
    np.testing.assert_array_equal(heed.attention(q, k, v, mask=text)[0, :, 0] > 0, seen)


@pytest.mark.parametrize(
    "problem, words",
    [
        (heed.Problem(heads=(6, 4)), "6"),
        (heed.Problem(lengths=(1, 2, 3)), "lengths"),
        (heed.Problem(bias="h q"), "bias"),
        (heed.Problem(mask="zz"), "zz"),
        (heed.Problem(type="f99"), "f99"),
        (heed.Problem(layout="sbhd"), "layout"),
    ],
)
def test_problems_that_make_no_sense_are_refused(problem, words):
    with pytest.raises(ValueError, match=words):
        heed.explain(problem)


def test_a_problem_or_arrays_but_not_both():
    with pytest.raises(TypeError, match="alone"):
        heed.plan(heed.Problem(), *Data(0).qkv()[:2])
    with pytest.raises(TypeError, match="alone"):
        heed.explain(heed.Problem(), causal=True)


def test_a_plan_stays_in_its_process(data):
    plan = heed.plan(*data.qkv())
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"Plan is of this process.*heed\.plan\(\)"):
            copied(plan)
    problem = heed.Problem(mask=heed.Mask.window(3, 0), heads=(4, 2))
    assert pickle.loads(pickle.dumps(problem)) == problem


def test_arguments_that_nobody_knows_are_named(data):
    q, k, v = data.qkv()
    o, lse = heed.attention(q, k, v, return_lse=True)
    calls = [
        lambda: heed.plan(q, k, v, softmax_scale=1.0),
        lambda: heed.plan(q, k, v).run(q, k, v, softmax_scale=1.0),
        lambda: heed.plan(q, k, v, operation="backward", softmax_scale=1.0),
        lambda: heed.explain(q, k, v, softmax_scale=1.0),
        lambda: heed.attention_backward(q, k, v, o, lse, o, softmax_scale=1.0),
        lambda: heed.oracle(q, k, v, softmax_scale=1.0),
        lambda: heed.Validator(q, k, v, softmax_scale=1.0),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"^softmax_scale=: heed knows no such argument"):
            call()
    with pytest.raises(TypeError, match=r"prewarm\(\) takes heed.Problems.*'tuple'"):
        heed.prewarm([("f16", 64)])
