"""Gradients through heed.attention, against fp64 and against eager formulas. Where an engine has no backward pass, backward()
says so, and the test is skipped with its words."""

import numpy as np
import pytest
from conftest import Data, devices

torch = pytest.importorskip("torch", reason="torch is not installed")

from differentiate import TOLERANCE, close, gradients, leaf, numpy, qkv  # noqa: E402

import heed  # noqa: E402
import heed._libraries.torch_ops  # noqa: E402

pytestmark = [pytest.mark.parametrize("device", devices()), pytest.mark.filterwarnings("ignore")]


FEATURES = {
    "nothing": {},
    "causal": {"causal": True},
    "window": {"window": (4, 2)},
    "soft cap": {"softcap": 2.0},
    "scale": {"scale": 0.4},
    "dropout": {"dropout_p": 0.3, "seed": 7},
    "bool mask": {"mask": Data(9).rng.random((2, 4, 9, 13)) < 0.6},
    "rows without keys": {"mask": np.arange(9)[:, None] % 3 != np.zeros((1, 13), int)},
    "lengths": {"seqlens_q": np.array([9, 4], np.int32), "seqlens_k": np.array([5, 13], np.int32)},
}


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_gradients_of_q_k_and_v(device, name, layout):
    q, k, v = qkv(device, d_v=24, layout=layout)
    options = {**FEATURES[name], "layout": layout}
    on_device = {
        key: torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value
        for key, value in options.items()
    }
    o, lse = heed.attention(q, k, v, return_lse=True, **on_device)
    d_o, d_lse = (torch.from_numpy(Data(3).normal(*each.shape)).to(device) for each in (o, lse))
    if "seqlens_q" in options:  # rows of no sequence take part in no loss
        d_o, d_lse = d_o.clone(), d_lse.clone()
        (d_o if layout == "bshd" else d_o.transpose(1, 2))[1, 4:] = 0
        d_lse[1, :, 4:] = 0
        o, lse = torch.where(d_o != 0, o, 0), torch.where(d_lse != 0, lse, 0)
    finite = torch.isfinite(lse)
    loss = (o * d_o).sum() + torch.where(finite, lse * d_lse, 0).sum()
    got = gradients(loss, [q, k, v])
    d_lse = torch.where(finite, d_lse, 0)
    expected = heed.oracle_backward(*(numpy(each) for each in (q, k, v)), numpy(d_o), d_lse=numpy(d_lse), **options)
    for each, want, what in zip(got, expected, ("dq", "dk", "dv")):
        assert each.shape == want.shape
        close(each, want, torch.float32, what)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_every_type(device, dtype):
    q, k, v = qkv(device, dtype, s_q=70, s_k=90, d=64)
    o = heed.attention(q, k, v, causal=True)
    d_o = torch.from_numpy(Data(3).normal(*o.shape)).to(device, dtype)
    got = gradients((o * d_o).sum(), [q, k, v])
    expected = heed.oracle_backward(*(numpy(each) for each in (q, k, v)), numpy(d_o), causal=True)
    for each, want, what in zip(got, expected, ("dq", "dk", "dv")):
        assert each.dtype == dtype
        close(each, want, dtype, what)


@pytest.mark.parametrize("shape", [(13,), (9, 13), (4, 9, 13), (2, 1, 9, 13), (2, 4, 9, 13), (1, 4, 1, 13)])
def test_gradients_of_a_bias_are_summed_where_it_was_repeated(device, shape):
    q, k, v = qkv(device)
    bias = leaf(Data(5).normal(*shape), device)
    o = heed.attention(q, k, v, bias=bias, causal=True)
    d_o = torch.from_numpy(Data(3).normal(*o.shape)).to(device)
    (got,) = gradients((o * d_o).sum(), [bias])
    expected = heed.oracle_backward(*(numpy(each) for each in (q, k, v)), numpy(d_o), bias=numpy(bias), causal=True)
    assert got.shape == bias.shape
    close(got, expected.dbias, torch.float32, "dbias")


def test_gradients_of_sinks_and_slopes(device):
    q, k, v = qkv(device)
    sink, slopes = leaf(Data(5).normal(4), device), leaf(np.abs(Data(6).normal(4)), device)
    o = heed.attention(q, k, v, sink=sink, alibi_slopes=slopes)
    d_o = torch.from_numpy(Data(3).normal(*o.shape)).to(device)
    got = gradients((o * d_o).sum(), [sink, slopes])
    arrays = {"sink": numpy(sink), "alibi_slopes": numpy(slopes)}
    expected = heed.oracle_backward(*(numpy(each) for each in (q, k, v)), numpy(d_o), **arrays)
    close(got[0], expected.dsink, torch.float32, "dsink")
    close(got[1], expected.dslopes, torch.float32, "dslopes")


def test_gradients_of_packed_sequences(device):
    data = Data(4)
    q, k, v = (leaf(data.normal(*shape), device) for shape in ((20, 4, 32), (30, 2, 32), (30, 2, 32)))
    starts_q, starts_k = (
        np.array([0, 7, 7, 18], np.int32),
        np.array([0, 10, 12, 28], np.int32),
    )  # some rows are nobody's
    lists = [torch.from_numpy(each).to(device) for each in (starts_q, starts_k)]
    o = heed.attention_varlen(q, k, v, *lists, 11, 16, causal=True)
    d_o = torch.from_numpy(Data(3).normal(*o.shape)).to(device)
    got = gradients((o[:18] * d_o[:18]).sum(), [q, k, v])
    options = {"cu_seqlens_q": starts_q, "cu_seqlens_k": starts_k, "causal": True}
    expected = heed.oracle_backward(*(numpy(each) for each in (q, k, v)), numpy(d_o), **options)
    for each, want, what in zip(got, expected, ("dq", "dk", "dv")):
        close(each, want, torch.float32, what)
    assert (got[0][18:] == 0).all() and (got[1][28:] == 0).all()


def test_a_broadcast_gradient(device):
    q, k, v = qkv(device)
    got = gradients(heed.attention(q, k, v).sum(), [q, k, v])
    ones = np.ones((2, 9, 4, 32), np.float32)
    expected = heed.oracle_backward(*(numpy(each) for each in (q, k, v)), ones)
    close(got[2], expected.dv, torch.float32, "dv")


def test_compiled_gradients_are_the_same(device):
    def loss(q, k, v, bias, sink):
        o, lse = heed.attention(q, k, v, causal=True, bias=bias, sink=sink, return_lse=True)
        return (o * o).sum() + lse.sum()

    def inputs():
        return [*qkv(device), leaf(Data(5).normal(4, 9, 13), device), leaf(Data(6).normal(4), device)]

    eager = inputs()
    expected = gradients(loss(*eager), eager)
    given = inputs()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for got, want in zip(torch.autograd.grad(compiled(*given), given), expected):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
def test_dq_may_be_summed_up_in_16_bits(device, compiled, packed, monkeypatch):
    q, k, v = qkv(device, torch.float16, s_q=9, s_k=9)
    if packed:
        q, k, v = (each.detach()[0].requires_grad_() for each in (q, k, v))
    starts = torch.tensor([0, 4, 9], dtype=torch.int32, device=device)
    told, run = [], heed._native.backward
    monkeypatch.setattr(heed._native, "backward", lambda *given: (told.append(given[1]["dq_accumulation"]), run(*given))[1])

    def attention(q, k, v):
        if packed:
            return heed.attention_varlen(q, k, v, starts, starts, 5, 5, dq_accumulation="f16")
        return heed.attention(q, k, v, dq_accumulation="f16")

    o = (torch.compile(attention, fullgraph=True, backend="aot_eager") if compiled else attention)(q, k, v)
    got = gradients(o.float().square().sum(), [q, k, v])
    assert told == [1]
    lists = {"cu_seqlens_q": starts.cpu().numpy(), "cu_seqlens_k": starts.cpu().numpy()} if packed else {}
    judge = heed.Validator(q, k, v, d_o=2 * o.detach(), dq_accumulation="f16", **lists)
    assert all(judge.check_gradients(got).values())


def test_torch_checks_the_operators_gradient(device):
    q, k, v = qkv(device)
    gradients(heed.attention(q, k, v).sum(), [q])
    bias = leaf(Data(5).normal(4, 9, 13), device)
    torch.library.opcheck(
        torch.ops.heed.fwd, (q, k, v), {"bias": bias, "want_lse": True, "mask_kind": 2, "mask_left": -1}
    )


def test_drop_ins_are_differentiable(device):
    from heed.compat.flash_attn import flash_attn_func
    from heed.compat.sdpa import scaled_dot_product_attention as by_heed

    q, k, v = qkv(device, h=4, h_k=4)
    expected = gradients(heed.attention(q, k, v, causal=True).square().sum(), [q, k, v])
    for got, want in zip(gradients(flash_attn_func(q, k, v, causal=True).square().sum(), [q, k, v]), expected):
        torch.testing.assert_close(got, want)
    turned = [each.transpose(1, 2) for each in (q, k, v)]
    by_torch = torch.nn.functional.scaled_dot_product_attention
    exact = torch.autograd.grad(by_torch(*(each.double() for each in turned), is_causal=True).square().sum(), [q, k, v])
    for got, want in zip(gradients(by_heed(*turned, is_causal=True).square().sum(), [q, k, v]), exact):
        torch.testing.assert_close(got.double(), want.double(), rtol=1e-4, atol=1e-4)


def test_every_drop_in_is_differentiable(device):
    """The gradient of a packed tensor has that of each part in its place."""
    import heed.compat.flash_attn as compat
    from heed.integrations.torch import use

    one = leaf(Data(8).normal(2, 9, 3, 4, 32), device)
    starts = torch.tensor([0, 4, 4, 18], dtype=torch.int32, device=device)
    flat, options = one.detach().flatten(0, 1).requires_grad_(), {"causal": True, "window_size": (5, 0)}

    def gradient(function, packed):
        (got,) = gradients(function(packed).square().sum(), [packed])
        return got

    def same(expected, packed, *functions):
        want = gradient(expected, packed)
        assert want.abs().max() > 0
        for each in functions:
            torch.testing.assert_close(gradient(each, packed), want)

    same(
        lambda x: heed.attention(*x.unbind(2), causal=True, window=(5, 0)),
        one,
        lambda x: compat.flash_attn_func(*x.unbind(2), **options),
        lambda x: compat.flash_attn_qkvpacked_func(x, **options),
        lambda x: compat.flash_attn_kvpacked_func(x[:, :, 0], x[:, :, 1:], **options),
    )
    same(
        lambda x: heed.attention_varlen(*x.unbind(1), starts, starts, 14, 14, causal=True, window=(5, 0)),
        flat,
        lambda x: compat.flash_attn_varlen_func(*x.unbind(1), starts, starts, 14, 14, **options),
        lambda x: compat.flash_attn_varlen_qkvpacked_func(x, starts, 14, **options),
        lambda x: compat.flash_attn_varlen_kvpacked_func(x[:, 0], x[:, 1:], starts, starts, 14, 14, **options),
    )

    def by_sdpa(x):
        return torch.nn.functional.scaled_dot_product_attention(*x.permute(2, 0, 3, 1, 4), is_causal=True)

    def by_heed(x):
        with use():
            return by_sdpa(x)

    exact = gradient(by_sdpa, one.detach().double().requires_grad_())
    torch.testing.assert_close(gradient(by_heed, one).double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
def test_rows_without_keys_have_no_gradient(device, packed):
    """All of them hidden, by a mask or by sequences without keys: o is 0, its LSE -inf, and nothing comes back."""
    q, k, v = qkv(device)
    starts = torch.tensor([0, 9, 18], dtype=torch.int32, device=device)
    keys = torch.zeros(3, dtype=torch.int32, device=device)
    if packed:
        flat = [each.detach().flatten(0, 1).requires_grad_() for each in (q, k, v)]
        q, k, v = flat
        o, lse = heed.attention_varlen(q, k, v, starts, keys, 9, 1, return_lse=True)
    else:
        o, lse = heed.attention(q, k, v, mask=torch.zeros(9, 13, dtype=torch.bool, device=device), return_lse=True)
    assert (o == 0).all() and (lse == -torch.inf).all()
    d_o = torch.full_like(o, torch.nan)  # whatever it holds
    try:
        got = torch.autograd.grad(o, [q, k, v], d_o)
    except heed.UnsupportedError as refusal:
        pytest.skip(f"no backward pass here: {str(refusal).splitlines()[0]}")
    assert all((each == 0).all() for each in got)


def test_rows_of_nobody_stay_as_the_caller_left_them(device):
    """Gradients that the caller brings are written within the sequences alone; those that autograd returns are 0 elsewhere."""
    data = Data(4)
    q, k, v = (leaf(data.normal(*shape), device) for shape in ((20, 4, 32), (30, 2, 32), (30, 2, 32)))
    lists = [torch.tensor(each, dtype=torch.int32, device=device) for each in ([0, 7, 7, 18], [0, 10, 12, 28])]
    o, lse = heed.attention_varlen(q, k, v, *lists, 11, 16, return_lse=True)
    d_o = torch.from_numpy(data.normal(*o.shape)).to(device)
    d_o[18:] = torch.nan  # rows that no sequence has
    try:
        by_autograd = torch.autograd.grad(o, [q, k, v], d_o)
    except heed.UnsupportedError as refusal:
        pytest.skip(f"no backward pass here: {str(refusal).splitlines()[0]}")
    brought = {name: torch.full_like(each, torch.nan).detach() for name, each in (("dq", q), ("dk", k), ("dv", v))}
    options = {"cu_seqlens_q": lists[0], "cu_seqlens_k": lists[1], "max_seqlen_q": 11, "max_seqlen_k": 16}
    heed.attention_backward(q.detach(), k.detach(), v.detach(), o, lse, d_o, deterministic=True, **brought, **options)
    # Those of the second sequence of k, too, which no query sees: they are somebody's, and 0.
    for (name, each), want, rows in zip(brought.items(), by_autograd, (18, 28, 28)):
        assert each[rows:].isnan().all(), name
        torch.testing.assert_close(each[:rows], want[:rows])
        assert (want[rows:] == 0).all(), name


def test_compiled_gradients_of_packed_sequences_are_the_same(device):
    starts = torch.tensor([0, 4, 4, 9], dtype=torch.int32, device=device)

    def loss(q, k, v, sink):
        o, lse = heed.attention_varlen(q, k, v, starts, starts, 5, 5, causal=True, sink=sink, return_lse=True)
        return (o * o).sum() + lse.sum()

    def inputs():
        return [*(leaf(Data(i).normal(9, h, 32), device) for i, h in enumerate((4, 2, 2))), leaf(Data(6).normal(4), device)]

    eager = inputs()
    expected = gradients(loss(*eager), eager)
    given = inputs()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for got, want in zip(torch.autograd.grad(compiled(*given), given), expected):
        torch.testing.assert_close(got, want)


def test_torch_checks_the_operator_of_packed_sequences_with_gradients(device):
    q, k, v = (leaf(Data(i).normal(18, h, 32), device) for i, h in enumerate((4, 2, 2)))
    gradients(heed.attention(q[None], k[None], v[None]).sum(), [q])
    starts = torch.tensor([0, 4, 18], dtype=torch.int32, device=device)
    options = {"max_s_q": 14, "max_s_k": 14, "want_lse": True, "mask_kind": 2, "mask_left": 3}
    torch.library.opcheck(torch.ops.heed.varlen_fwd, (q, k, v, starts, starts), options)


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
def test_torch_checks_the_operator_of_the_backward_pass(device, packed):
    q, k, v = (each.detach() for each in qkv(device, s_q=9, s_k=9))
    options = {"sink": torch.from_numpy(Data(6).normal(4)).to(device), "want_sink": True, "deterministic": True}
    if packed:
        starts = torch.tensor([0, 4, 18], dtype=torch.int32, device=device)
        q, k, v = (each.flatten(0, 1) for each in (q, k, v))
        o, lse = heed.attention_varlen(q, k, v, starts, starts, 14, 14, sink=options["sink"], return_lse=True)
        options |= {"seqstart_q": starts, "seqstart_k": starts, "max_s_q": 14, "max_s_k": 14}
    else:
        options |= {"bias": torch.from_numpy(Data(5).normal(4, 9, 9)).to(device), "want_bias": True}
        o, lse = heed.attention(q, k, v, sink=options["sink"], bias=options["bias"], return_lse=True)
    torch.library.opcheck(torch.ops.heed.bwd, (torch.ones_like(o), q, k, v, o, lse), options)


def test_a_plan_computes_what_autograd_does(device):
    q, k, v = qkv(device, s_q=70, s_k=90, d=64)
    bias = leaf(Data(5).normal(4, 70, 90), device)
    o, lse = heed.attention(q, k, v, causal=True, bias=bias, return_lse=True, deterministic=True)
    d_o = torch.from_numpy(Data(3).normal(*o.shape)).to(device)
    expected = gradients((o * d_o).sum(), [q, k, v, bias])
    options = {"causal": True, "bias": bias, "deterministic": True}
    plan = heed.plan(q, k, v, operation="backward", dbias=True, **options)
    given = {name: torch.full_like(each, torch.nan) for name, each in zip(("dq", "dk", "dv", "dbias"), expected)}
    for _ in range(2):
        got = plan.run_backward(q, k, v, o, lse, d_o, **given, **options)
        for each, want, to in zip(got, expected, given.values()):
            assert each is to and torch.equal(each, want)
            to.fill_(torch.nan)
    made = heed.attention_backward(q, k, v, o, lse, d_o, dbias=True, **options)
    assert all(torch.equal(each, want) for each, want in zip(made, expected))
    judge = heed.Validator(q, k, v, d_o=d_o, causal=True, bias=bias)
    reports = judge.check_gradients(made)
    assert len(reports) == 4 and all(reports.values()), reports


GRADCHECKED = {
    "nothing": {},
    "causal": {"causal": True},
    "window with sink keys": {"mask": "b:2,0,1"},
    "soft cap and scale": {"softcap": 1.5, "scale": 0.7},
    "dropout": {"dropout_p": 0.4, "seed": 3},
    "bool mask": {"mask": Data(9).rng.random((2, 2, 3, 4)) < 0.7},
    "lengths": {"seqlens_k": np.array([4, 2], np.int32)},
}


def by_oracle(compute, backward, **options):
    """o and lse as an autograd function of q, k, v, bias, sink and slopes, computed by two functions of NumPy arrays."""

    def arrays(inputs):
        q, k, v, bias, sink, slopes = (each.detach().numpy() for each in inputs)
        return (q, k, v), {"bias": bias, "sink": sink, "alibi_slopes": slopes, **options}

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            operands, others = arrays(inputs)
            return tuple(torch.from_numpy(each) for each in compute(*operands, **others))

        @staticmethod
        def backward(ctx, d_o, d_lse):
            operands, others = arrays(ctx.saved_tensors)
            found = backward(*operands, d_o.numpy(), d_lse=d_lse.numpy(), **others)._asdict()
            names = ("dq", "dk", "dv", "dbias", "dsink", "dslopes")
            # NaN: rows of no sequence, whose gradient is 0.
            found = [torch.from_numpy(np.nan_to_num(found[name])) for name in names]
            return tuple(each.to(given.dtype) for each, given in zip(found, ctx.saved_tensors))

    return Function.apply


@pytest.mark.parametrize("name", GRADCHECKED)
@pytest.mark.parametrize("judge", ["reference", "oracle"])
def test_torch_differentiates_the_references_numerically(device, name, judge):
    """gradcheck: differences of o and LSE against the gradients, of the NumPy reference in float64 throughout, and of the C++ oracle,
    whose inputs are float32."""
    if device != "cpu":
        pytest.skip("the references compute on the CPU")
    kind = torch.float64 if judge == "reference" else torch.float32
    shapes = [(2, 3, 2, 4), (2, 4, 1, 4), (2, 4, 1, 4), (2, 3, 4), (2,), (2,)]
    inputs = [leaf(Data(20 + i).normal(*shape), device, kind) for i, shape in enumerate(shapes)]
    if judge == "reference":
        function = by_oracle(heed.reference.attention, heed.reference.attention_backward, **GRADCHECKED[name])
        assert torch.autograd.gradcheck(function, inputs, eps=1e-6, atol=1e-6, rtol=1e-6)
    else:
        compute = lambda *operands, **options: heed.oracle(*operands, return_lse=True, **options)
        function = by_oracle(compute, heed.oracle_backward, **GRADCHECKED[name])
        assert torch.autograd.gradcheck(function, inputs, eps=2e-3, atol=1e-3, rtol=1e-3)
