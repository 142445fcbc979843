"""Gradients without autograd: attention_backward(), plans of the backward pass, the NumPy reference and the Validator."""

import json

import numpy as np
import pytest
from conftest import NUMPY_TYPES, Data, guarded
from test_reference import NAMES, OPTIONS, with_arrays

import heed

ASKED = {"bias": "dbias", "sink": "dsink", "alibi_slopes": "dslopes"}


def options_of(name, data):
    return OPTIONS[name] if name in OPTIONS else with_arrays(name, data)


def gradients_of_o(data, q, v, layout="bshd"):
    shape = (*q.shape[:-1], v.shape[-1])
    lse_shape = shape[:3] if layout == "bhsd" else (shape[0], shape[2], shape[1])
    return data.normal(*shape, dtype=q.dtype), data.normal(*lse_shape)


def hidden(lse):
    """A row that sees nothing has an LSE of -inf, whose gradient is nothing that anybody could mean."""
    return ~np.isfinite(lse)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_the_two_references_agree_on_gradients(name, layout):
    data = Data(3)
    q, k, v = data.qkv(layout=layout, d_v=24)
    options = {**options_of(name, data), "layout": layout}
    d_o, d_lse = gradients_of_o(data, q, v, layout)
    d_lse[hidden(heed.oracle(q, k, v, return_lse=True, **options)[1])] = 0
    expected = heed.oracle_backward(q, k, v, d_o, d_lse=d_lse, **options)
    got = heed.reference.attention_backward(q, k, v, d_o, d_lse=d_lse, **options)
    for what, ours, theirs in zip(heed.Gradients._fields, got, expected):
        assert (ours is None) == (theirs is None), what
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-11, err_msg=what)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", NUMPY_TYPES)
def test_the_validator_judges_gradients(name, kind):
    data = Data(4)
    q, k, v = data.qkv(d_v=24, dtype=NUMPY_TYPES[kind])
    options = options_of(name, data)
    o, lse = heed.attention(q, k, v, return_lse=True, **options)
    d_o, d_lse = gradients_of_o(data, q, v)
    d_lse[hidden(lse)] = 0
    asked = {gradient: True for option, gradient in ASKED.items() if option in options}
    got = heed.attention_backward(q, k, v, o, lse, d_o, d_lse=d_lse, **asked, **options)
    judge = heed.Validator(q, k, v, d_o=d_o, d_lse=d_lse, **options)
    reports = judge.check_gradients(got)
    assert set(reports) == {"dq", "dk", "dv", *asked}
    assert all(reports.values()), "\n".join(map(str, reports.values()))
    # A validator that lets everything pass would be of no use: it allows little, and notices more.
    for what, report in reports.items():
        array, allowed = getattr(got, what), getattr(judge.allowed_gradients, what)
        largest = np.abs(array.astype(np.float64)[np.isfinite(allowed)]).max()
        assert np.median(allowed) <= {"f32": 3e-4, "f16": 0.05, "bf16": 0.4}[kind] * largest + 1e-6, report
        place = np.unravel_index(np.argmax(np.abs(array.astype(np.float64))), array.shape)
        array[place] = array[place] + np.asarray(3 * allowed[place] + 0.01 * largest).astype(array.dtype)
        wrong = judge.check_gradients(got)
        assert not wrong[what] and wrong[what].position == tuple(place), wrong[what]


def test_a_forgotten_factor_is_noticed():
    """The kind of mistake that gradients have: one head of a group left out of the sum, a scale lost."""
    q, k, v = Data(5).qkv(s_q=40, s_k=40)
    o, lse = heed.attention(q, k, v, causal=True, return_lse=True)
    d_o = Data(6).normal(*o.shape)
    got = heed.attention_backward(q, k, v, o, lse, d_o, causal=True)
    judge = heed.Validator(q, k, v, d_o=d_o, causal=True)
    assert all(judge.check_gradients(got).values())
    assert not judge.check_gradients((got.dq * 1.001, got.dk, got.dv))["dq"]
    alone = heed.attention_backward(q[:, :, ::2], k, v, o[:, :, ::2], lse[:, ::2].copy(), d_o[:, :, ::2], causal=True)
    assert not judge.check_gradients((got.dq, alone.dk, got.dv))["dk"]
    with pytest.raises(ValueError, match="d_o"):
        heed.Validator(q, k, v).check_gradients(got)
    with pytest.raises(ValueError, match="dsink is no gradient"):
        judge.check_gradients(got._replace(dsink=np.zeros(4, np.float32)))


def test_packed_sequences():
    data = Data(5)
    starts_q, starts_k = np.array([0, 5, 5, 9], np.int32), np.array([0, 3, 8, 14], np.int32)
    q, k, v = data.normal(10, 4, 16), data.normal(15, 2, 16), data.normal(15, 2, 8)
    options = {"causal": True, "sink": data.normal(4), "bias": data.normal(4, 5, 6)}
    lists = {"cu_seqlens_q": starts_q, "cu_seqlens_k": starts_k}
    o, lse = heed.attention_varlen(q, k, v, starts_q, starts_k, return_lse=True, **options)
    d_o = data.normal(10, 4, 8)
    got = heed.attention_backward(q, k, v, o, lse, d_o, dbias=True, dsink=True, **lists, **options)
    assert all(heed.Validator(q, k, v, d_o=d_o, **lists, **options).check_gradients(got).values())
    assert (got.dq[9:] == 0).all() and (got.dk[14:] == 0).all(), "rows of nobody have no gradient"


def test_a_plan_of_the_backward_pass(data):
    q, k, v = data.qkv()
    sink, bias = data.normal(4), data.normal(4, 9, 13)
    options = {"causal": True, "sink": sink, "bias": bias}
    o, lse = heed.attention(q, k, v, return_lse=True, **options)
    d_o, d_lse = gradients_of_o(data, q, v)
    expected = heed.attention_backward(q, k, v, o, lse, d_o, d_lse=d_lse, dbias=True, dsink=True, **options)
    plan = heed.plan(q, k, v, operation="backward", dbias=True, dsink=True, d_lse=True, **options)
    assert plan.operation == "backward" and plan.kernel in {each["name"] for each in heed.kernels()}
    assert plan.explain().kernel == plan.kernel and "bwd" in plan.kernel
    given, untouched = {}, []
    for name, like in {"dq": q, "dk": k, "dv": v, "dbias": bias, "dsink": sink}.items():
        given[name], check = guarded(like.shape, like.dtype)
        untouched.append(check)
    for _ in range(3):
        got = plan.run_backward(q, k, v, o, lse, d_o, d_lse=d_lse, **given, **options)
        for name, array in given.items():
            assert getattr(got, name) is array
            np.testing.assert_array_equal(array, getattr(expected, name))
            array[...] = np.nan
    assert all(check() for check in untouched) and got.dslopes is None
    with pytest.raises(ValueError, match="run_backward"):
        plan.run(q, k, v, **options)
    with pytest.raises(ValueError, match=r"call run\(\)"):
        heed.plan(q, k, v).run_backward(q, k, v, o, lse, d_o)
    with pytest.raises(ValueError):  # another problem: the LSE has no gradient
        plan.run_backward(q, k, v, o, lse, d_o, **given, **options)


def test_a_problem_of_the_backward_pass(data):
    q, k, v = data.qkv(b=2, s_q=9, s_k=13, h=4, h_k=2, d=16)
    problem = heed.Problem(
        type="f32",
        batch=2,
        heads=(4, 2),
        lengths=(9, 13),
        head_dims=16,
        mask="b",
        bias="h s_q s_k",
        operation="backward",
        dbias="f32",
        deterministic=True,
    )
    options = {"causal": True, "bias": data.normal(4, 9, 13), "deterministic": True}
    posed = json.loads(heed.Problem.json_of(q, k, v, operation="backward", dbias=True, **options))
    for key, value in json.loads(problem.to_json()).items():
        assert posed[key] == value, key
    explanation = heed.explain(q, k, v, operation="backward", dbias=True, **options)
    plan = heed.plan(problem)
    assert plan.operation == "backward" and plan.kernel == explanation.kernel == plan.explain().kernel
    o, lse = heed.attention(q, k, v, return_lse=True, **options)
    d_o = data.normal(*o.shape)
    got = plan.run_backward(q, k, v, o, lse, d_o, dbias=True, **options)
    for ours, theirs in zip(got, heed.attention_backward(q, k, v, o, lse, d_o, dbias=True, **options)):
        np.testing.assert_array_equal(ours, theirs)


def test_bad_input_is_refused(data):
    q, k, v = data.qkv()
    o, lse = heed.attention(q, k, v, return_lse=True)
    d_o = np.ones_like(o)
    with pytest.raises(ValueError, match="dsink is asked for, and there is no sink"):
        heed.attention_backward(q, k, v, o, lse, d_o, dsink=True)
    with pytest.raises(TypeError, match="takes no out="):
        heed.attention_backward(q, k, v, o, lse, d_o, out=o)
    with pytest.raises(ValueError, match="d_o"):
        heed.attention_backward(q, k, v, o, lse, d_o[:1])
    with pytest.raises(ValueError, match="lse"):
        heed.attention_backward(q, k, v, o, lse[:, :2], d_o)
    with pytest.raises(TypeError, match="lse"):
        heed.attention_backward(q, k, v, o, lse.astype(np.float16), d_o)
    with pytest.raises(ValueError, match="operation = 'sideways'"):
        heed.plan(q, k, v, operation="sideways")
    with pytest.raises(ValueError, match="dsink: of the backward pass"):
        heed.plan(heed.Problem(dsink=True))
    read_only = np.empty_like(q)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="dq is read-only"):
        heed.attention_backward(q, k, v, o, lse, d_o, dq=read_only)


def test_dropout_is_repeated_and_never_drawn_anew(data):
    """Another seed than the forward pass's would be gradients of something that nobody computed."""
    q, k, v = data.qkv()
    o, lse = heed.attention(q, k, v, dropout_p=0.3, seed=5, return_lse=True)
    d_o = data.normal(*o.shape)
    plan = heed.plan(q, k, v, operation="backward", dropout_p=0.3, seed=5)
    passes = [
        lambda **options: heed.attention_backward(q, k, v, o, lse, d_o, dropout_p=0.3, **options),
        lambda **options: plan.run_backward(q, k, v, o, lse, d_o, dropout_p=0.3, **options),
        lambda **options: heed.Validator(q, k, v, d_o=d_o, dropout_p=0.3, **options),
    ]
    for each in passes:
        with pytest.raises(ValueError, match="dropout_p = 0.3.*seed=.*told"):
            each()
        with pytest.raises(ValueError, match="dropout_p = 0.3.*seed=.*generator="):
            each(generator=np.random.default_rng(5))
    by_call, by_plan = (each(dropout_state=np.array([5, 0])) for each in passes[:2])
    for each, other in zip(by_call, passes[0](seed=5)):
        np.testing.assert_array_equal(each, other)
    assert all(heed.Validator(q, k, v, d_o=d_o, dropout_p=0.3, seed=5).check_gradients(by_plan).values())
    assert all(passes[2](dropout_state=np.array([5, 0])).check_gradients(by_plan).values())


def test_a_plan_of_the_backward_pass_needs_no_seed_yet(data):
    q, k, v = data.qkv()
    o, lse = heed.attention(q, k, v, dropout_p=0.3, seed=5, return_lse=True)
    plan = heed.plan(q, k, v, operation="backward", dropout_p=0.3)
    got = plan.run_backward(q, k, v, o, lse, np.ones_like(o), dropout_p=0.3, seed=5)
    expected = heed.attention_backward(q, k, v, o, lse, np.ones_like(o), dropout_p=0.3, seed=5)
    np.testing.assert_array_equal(got.dq, expected.dq)


def test_the_oracle_draws_one_seed_for_both_passes(data):
    q, k, v = data.qkv()
    d_o = data.normal(*q.shape)
    got = heed.oracle_backward(q, k, v, d_o, dropout_p=0.3, generator=np.random.default_rng(5))
    seed = int(np.random.default_rng(5).integers(2**63))
    for each, want in zip(got[:3], heed.oracle_backward(q, k, v, d_o, dropout_p=0.3, seed=seed)):
        np.testing.assert_array_equal(each, want)


@pytest.mark.parametrize("kind", [each for each in NUMPY_TYPES if each != "f32"])
def test_dq_may_be_summed_up_in_16_bits(kind, data):
    q, k, v = data.qkv(s_q=70, s_k=300, d=64, dtype=NUMPY_TYPES[kind])
    o, lse = heed.attention(q, k, v, causal=True, return_lse=True, dq_accumulation=kind)
    d_o = data.normal(*o.shape, dtype=o.dtype)
    options = {"causal": True, "dq_accumulation": kind}
    got = heed.attention_backward(q, k, v, o, lse, d_o, **options)
    judge = heed.Validator(q, k, v, d_o=d_o, **options)
    assert all(judge.check_gradients(got).values())
    assert (heed.oracle_backward(q, k, v, d_o, **options).dq == judge.expected_gradients.dq).all()
    posed = json.loads(heed.Problem.json_of(q, k, v, operation="backward", **options))
    assert posed["accumulate"] == kind
    problem = heed.Problem(
        type=kind, batch=2, heads=(4, 2), lengths=(70, 300), head_dims=64, mask="b", operation="backward"
    ).replace(dq_accumulation=kind)
    assert json.loads(problem.to_json())["accumulate"] == kind
    for plan in (heed.plan(problem), heed.plan(q, k, v, operation="backward", **options)):
        assert all(judge.check_gradients(plan.run_backward(q, k, v, o, lse, d_o, **options)).values())
        with pytest.raises(ValueError):  # another problem
            plan.run_backward(q, k, v, o, lse, d_o, causal=True)


def test_what_dq_cannot_be_summed_up_in_is_refused(data):
    q, k, v = data.qkv(dtype=np.float16)
    with pytest.raises(ValueError, match="dq_accumulation = 'bf16' where q is f16: .*'f32' or in q's own type, 'f16'"):
        heed.attention(q, k, v, dq_accumulation="bf16")
    with pytest.raises(ValueError, match="dq_accumulation = 'f16' where q is f32: .*'f32' alone"):
        heed.attention(*data.qkv(), dq_accumulation="f16")
    with pytest.raises(ValueError, match="dq_accumulation = '16': it is one of 'f32', 'f16', 'bf16'"):
        heed.attention(q, k, v, dq_accumulation="16")
    with pytest.raises(ValueError, match="dq_accumulation: of the backward pass"):
        heed.Problem(type="f16", dq_accumulation="f16").to_json()
    with pytest.raises(ValueError, match="dq_accumulation"):
        heed.plan(heed.Problem(type="bf16", operation="backward", dq_accumulation="f16"))


def test_each_gradient_is_of_its_inputs_library():
    torch = pytest.importorskip("torch")
    data = Data(3)
    q, k, v = data.qkv()
    bias = data.normal(9, 13)
    o, lse = heed.attention(q, k, v, bias=bias, return_lse=True)
    expected = heed.attention_backward(q, k, v, o, lse, o, bias=bias, dbias=True)
    to = torch.from_numpy
    for arrays in ((to(q), k, to(v), bias), (q, to(k), v, to(bias))):
        got = heed.attention_backward(*arrays[:3], o, lse, o, bias=arrays[3], dbias=True)
        for each, given, want in zip((*got[:3], got.dbias), arrays, (*expected[:3], expected.dbias)):
            assert type(each) is type(given)
            np.testing.assert_array_equal(np.asarray(each), want)


def test_the_oracle_begins_with_any_gradient_of_o():
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    data = Data(3)
    q, k, v = (torch.from_numpy(each).bfloat16().requires_grad_() for each in data.qkv())
    d_o, d_lse = torch.from_numpy(data.normal(2, 9, 4, 16)).bfloat16(), torch.from_numpy(data.normal(2, 4, 9))
    expected = heed.oracle_backward(q, k, v, d_o.double().numpy(), d_lse=d_lse.numpy())
    got = heed.oracle_backward(q, k, v, d_o.requires_grad_(), d_lse=d_lse.requires_grad_())
    for each, want in zip(got[:3], expected[:3]):
        np.testing.assert_array_equal(each, want)
