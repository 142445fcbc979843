"""How heed takes part in torch's autograd: what it keeps, tells and notices, and what it refuses."""

import numpy as np
import pytest
from conftest import Data, devices

torch = pytest.importorskip("torch", reason="torch is not installed")

from differentiate import gradients, leaf, numpy, qkv  # noqa: E402

import heed  # noqa: E402
import heed._libraries.torch_ops  # noqa: E402

pytestmark = [pytest.mark.parametrize("device", devices()), pytest.mark.filterwarnings("ignore")]


def test_what_autograd_cannot_have_is_refused(device):
    q, k, v = qkv(device)
    with pytest.raises(heed.UnsupportedError, match="out="):
        heed.attention(q, k, v, out=torch.empty_like(q))
    with torch.no_grad():
        plan = heed.plan(q, k, v)
    with pytest.raises(heed.UnsupportedError, match="gradient through q.*forward pass alone"):
        plan.run(q, k, v)
    o, _ = torch.ops.heed.fwd(q, k, v)
    with pytest.raises(heed.UnsupportedError, match="want_lse"):
        o.sum().backward()


@pytest.mark.parametrize("loss", [torch.sum, lambda o: o.square().sum()], ids=["linear in o", "quadratic in o"])
@pytest.mark.parametrize("by", ["attention", "operator"])
def test_a_second_derivative_is_refused(device, loss, by):
    """Also where nothing but q, k and v could have told that it would be asked for."""
    q, k, v = qkv(device)
    o = heed.attention(q, k, v) if by == "attention" else torch.ops.heed.fwd(q, k, v, want_lse=True)[0]
    try:
        (first,) = torch.autograd.grad(loss(o), [q], create_graph=True)
    except heed.UnsupportedError as refusal:
        pytest.skip(f"no backward pass here: {str(refusal).splitlines()[0]}")
    penalty = first.square().sum()
    asked = {
        "everything": lambda: (penalty + v.sum()).backward(retain_graph=True),
        # autograd visits what leads to k, and there must be heed's refusal among it: else the first part of the sum came alone.
        "one": lambda: torch.autograd.grad(loss(o) + penalty, [k], retain_graph=True),
        "the penalty": lambda: torch.autograd.grad(penalty, [q], retain_graph=True, allow_unused=True),
        "into one": lambda: (loss(o) + penalty).backward(inputs=[v]),
    }
    for name, ask in asked.items():
        with pytest.raises(heed.UnsupportedError, match="gradients of gradients.*SDPBackend.MATH"):
            ask()
            pytest.fail(name)


def test_torchs_second_derivatives_are_refused(device):
    """They take what autograd does not find for 0."""
    q, k, v = (each.detach() for each in qkv(device))
    loss = lambda q: heed.attention(q, k, v).square().sum()
    for function in (torch.autograd.functional.hvp, torch.autograd.functional.vhp):
        with pytest.raises(heed.UnsupportedError, match="gradients of gradients"):
            function(loss, q, q)
    small = q[:1, :1, :1, :2].contiguous()
    with pytest.raises(heed.UnsupportedError, match="gradients of gradients"):
        torch.autograd.functional.hessian(lambda q: heed.attention(q, q, q * q).sum(), small)


def test_inputs_changed_after_the_call_are_noticed(device):
    q, k, v = qkv(device)
    inner = k * 1
    o = heed.attention(q, inner, v)
    inner.add_(1)
    with pytest.raises(RuntimeError, match="inplace operation"):
        o.sum().backward()


def test_a_backward_pass_of_ones_own_is_not_recorded(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, lse = torch.empty(2, 9, 4, 16, device=device), torch.empty(2, 4, 9, device=device)
        with pytest.raises(heed.UnsupportedError, match="autograd"):
            heed.attention_backward(q, q, q, q, lse, q)


def test_what_a_graph_of_autograd_holds_is_freed(device):
    """Without the cycle collector: memory of activations must not wait for it."""
    import gc
    import weakref

    q, k, v = qkv(device)
    inner = q * 1
    o, lse = heed.attention(inner, k, v, return_lse=True)
    held = [weakref.ref(each) for each in (inner, o, lse)]
    gc.disable()
    try:
        del inner, o, lse
        assert [each() for each in held] == [None, None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(device, reentrant):
    """The forward pass runs again during the backward pass, with the same dropout."""
    from torch.utils.checkpoint import checkpoint

    def block(q, k, v):
        return heed.attention(q * 2, k, v, causal=True, dropout_p=0.3, deterministic=True).square()

    q, k, v = qkv(device)
    torch.manual_seed(11)
    expected = gradients(block(q, k, v).sum(), [q, k, v])
    torch.manual_seed(11)
    checkpoint(block, q, k, v, use_reentrant=reentrant).sum().backward()
    for each, want in zip((q, k, v), expected):
        assert torch.equal(each.grad, want)


def test_a_generator_is_drawn_from_outside_of_a_checkpoint(device):
    """torch sets no generator back but its own: what docs/python.md says to pass instead."""
    from torch.utils.checkpoint import checkpoint

    q, k, v = qkv(device)
    state = torch.randint(2**63 - 1, (2,), generator=torch.Generator().manual_seed(5)).to(device)
    block = lambda q, state: heed.attention(q, k, v, dropout_p=0.5, dropout_state=state, deterministic=True).square()
    (expected,) = gradients(block(q, state).sum(), [q])
    for reentrant in (False, True):
        q.grad = None
        checkpoint(block, q, state, use_reentrant=reentrant).sum().backward()
        assert torch.equal(q.grad, expected)


@pytest.mark.parametrize("how", ["save_on_cpu", "copies"])
def test_what_is_kept_may_be_kept_elsewhere(device, how):
    """By hooks of autograd, which may give back tensors with other strides, as save_on_cpu(pin_memory=True) does."""
    copies = torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.clone(memory_format=torch.contiguous_format), torch.clone)
    hooks = {"save_on_cpu": torch.autograd.graph.save_on_cpu(), "copies": copies}[how]
    inputs = [leaf(each, device) for each in Data(0).qkv(layout="bhsd", h_k=4)]
    inputs.append(leaf(Data(1).normal(1, 13), device))
    state = torch.tensor([3, 4], device=device)

    def loss():
        q, k, v, bias = (each.transpose(1, 2) if each.dim() == 4 else each.expand(4, 9, 13) for each in inputs)
        options = {"dropout_p": 0.3, "dropout_state": state, "seqlens_k": torch.tensor([5, 13], device=device)}
        return heed.attention(q, k, v, bias=bias, deterministic=True, **options).square().sum()

    expected = gradients(loss(), inputs)
    with hooks:
        kept = loss()
    for got, want in zip(torch.autograd.grad(kept, inputs), expected):
        assert torch.equal(got, want)


@pytest.fixture
def deterministic_algorithms():
    """torch's switch, which the test turns, and which is back as it was afterwards."""
    yield torch.use_deterministic_algorithms
    torch.use_deterministic_algorithms(False)


def as_sdpa(q, k, v):
    from heed.compat.sdpa import scaled_dot_product_attention

    return scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)), enable_gqa=True)


def as_flash_attn(q, k, v):
    from heed.compat.flash_attn import flash_attn_func

    return flash_attn_func(q, k, v)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("function", [heed.attention, as_sdpa, as_flash_attn])
def test_torchs_switch_for_deterministic_algorithms_counts(
    device, function, compiled, monkeypatch, deterministic_algorithms
):
    """Whoever called: the gradients have the same bits in every run, or there is an error, or with warn_only a warning."""
    told, run, refused = [], heed._native.backward, False

    def backward(fields, gradients, *how):
        told.append(gradients["deterministic"])
        if refused and gradients["deterministic"]:
            raise heed.UnsupportedError("not supported: the same bits in every run.\n  reasons")
        run(fields, gradients, *how)

    monkeypatch.setattr(heed._native, "backward", backward)
    q, k, v = qkv(device)
    attention = torch.compile(function, fullgraph=True, backend="aot_eager") if compiled else function

    def gradient():
        told.clear()
        return torch.autograd.grad(attention(q, k, v).sum(), [q, k, v])

    expected = gradient()
    assert told == [0]
    deterministic_algorithms(True)
    for got, want in zip(gradient(), expected):
        torch.testing.assert_close(got, want)
    assert told == [1]
    refused = True
    with pytest.raises(heed.UnsupportedError, match="the same bits"):
        gradient()
    deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="heed's gradients may have other bits.*not supported: the same bits"):
        gradient()
    assert told == [1, 0]


def test_autograd_is_told_what_was_written(device):
    """What was kept for a backward pass and is another now is noticed, as after torch's own functions with out=."""
    q, k, v = (each.detach() for each in qkv(device))
    fresh = lambda *shape: torch.zeros(shape or q.shape, device=device)
    out, lse = fresh(), fresh(2, 4, 9)
    plan = heed.plan(q, k, v, return_lse=True)
    o, its_lse = heed.attention(q, k, v, return_lse=True)
    into = {"dq": fresh(), "dk": fresh(*k.shape), "dv": fresh(*v.shape)}
    backward_plan = heed.plan(q, k, v, operation="backward")
    writers = [
        ([out, lse], lambda: heed.attention(q, k, v, out=out, lse_out=lse)),
        ([out, lse], lambda: plan.run(q, k, v, out=out, lse_out=lse, return_lse=True)),
        (list(into.values()), lambda: heed.attention_backward(q, k, v, o, its_lse, o, **into)),
        (list(into.values()), lambda: backward_plan.run_backward(q, k, v, o, its_lse, o, **into)),
    ]
    for written, write in writers:
        versions = [each._version for each in written]
        weights = [torch.ones_like(each).requires_grad_() for each in written]
        losses = [(each * weight).sum() for each, weight in zip(written, weights)]
        write()
        assert all(each._version > before for each, before in zip(written, versions))
        for loss in losses:
            with pytest.raises(RuntimeError, match="inplace operation"):
                loss.backward()
    with torch.inference_mode():
        heed.attention(q, k, v, out=torch.empty_like(q))


def test_outputs_that_require_a_gradient_are_refused(device):
    q, k, v = (each.detach() for each in qkv(device))
    o, lse = heed.attention(q, k, v, return_lse=True)
    out = torch.full_like(q, 7).requires_grad_()
    calls = [
        ("out", lambda: heed.attention(q, k, v, out=out)),
        ("out", lambda: heed.plan(q, k, v).run(q, k, v, out=out * 1)),
        ("lse_out", lambda: heed.attention(q, k, v, lse_out=torch.zeros_like(lse).requires_grad_())),
        ("dq", lambda: heed.attention_backward(q, k, v, o, lse, o, dq=out)),
    ]
    for name, call in calls:
        with pytest.raises(heed.UnsupportedError, match=f"^{name} requires a gradient"):
            call()
    assert (out == 7).all()
    with torch.no_grad():
        heed.attention(q, k, v, out=out)
    assert torch.equal(out.detach(), o)


def test_numbers_with_a_gradient_are_refused(device):
    """A learnt scale would not learn."""
    q, k, v = qkv(device)
    for name in ("scale", "softcap", "dropout_p"):
        value = torch.tensor(0.25, device=device, requires_grad=True)
        options = {name: value} | ({"seed": 3} if name == "dropout_p" else {})
        with pytest.raises(TypeError, match=f"^{name} is a tensor that requires a gradient.*{name}=float"):
            heed.attention(q, k, v, **options)
        with torch.no_grad():
            expected = heed.attention(q, k, v, **{**options, name: 0.25})
            assert torch.equal(heed.attention(q, k, v, **options), expected)
            assert torch.equal(heed.attention(q, k, v, **{**options, name: value.detach()}), expected)
            assert torch.equal(heed.attention(q, k, v, **{**options, name: np.float32(0.25)}), expected)
    scale = torch.tensor(0.25, device=device, requires_grad=True)
    heed.attention(q * scale, k, v, scale=1.0).square().sum().backward()
    assert scale.grad.abs() > 0


def test_forward_mode_is_refused(device):
    """A tangent would be lost without a word."""
    import torch.autograd.forward_ad as forward_ad

    q, k, v = (each.detach() for each in qkv(device))
    compiled = torch.compile(heed.attention, fullgraph=True, backend="aot_eager")
    by_operator = lambda q, k, v: torch.ops.heed.fwd(q, k, v)[0]
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(v, torch.ones_like(v))
        for mode in (torch.enable_grad, torch.no_grad):
            with mode(), pytest.raises(heed.UnsupportedError, match="forward-mode differentiation through v"):
                heed.attention(q, k, dual)
        with pytest.raises(heed.UnsupportedError, match="forward-mode"):
            heed.plan(q, k, v).run(q, k, dual)
        for function in (compiled, by_operator):
            with pytest.raises(Exception, match="forward-mode"):
                function(q, k, dual)
        heed.attention(q, k, v)
    compiled(q, k, v)


@pytest.mark.parametrize("transform", ["vmap", "jvp", "grad"])
def test_transforms_of_functions_are_refused(device, transform):
    q, k, v = (each.detach() for each in qkv(device))
    calls = {
        "vmap": lambda: torch.func.vmap(lambda q: heed.attention(q[None], k[:1], v[:1]))(q),
        "jvp": lambda: torch.func.jvp(lambda q: heed.attention(q, k, v), (q,), (q,)),
        "grad": lambda: torch.func.grad(lambda q: heed.attention(q, k, v).sum())(q),
    }
    with pytest.raises(heed.UnsupportedError, match=r"torch\.func"):
        calls[transform]()


def test_other_libraries_arrays_beside_a_gradient_are_refused(device):
    if device != "cpu":
        pytest.skip("NumPy arrays are in CPU memory")
    q, k, v = qkv(device)
    others = {"k": numpy(k), "dropout_state": np.array([1, 2])}
    for name, array in others.items():
        options = {"v": v, "k": k, name: array} | ({"dropout_p": 0.5} if name == "dropout_state" else {})
        with pytest.raises(TypeError, match=rf"^{name} is <class 'numpy.ndarray'>.*torch.from_dlpack\({name}\)"):
            heed.attention(q, **options)
        with torch.no_grad():
            heed.attention(q, **options)
    with pytest.raises(TypeError, match=r"^q is <class 'numpy.ndarray'> beside tensors that require a gradient"):
        heed.attention(numpy(q), k, v)
    with pytest.raises(TypeError, match=r"^q is <class 'numpy.ndarray'> beside tensors that require a gradient"):
        heed.attention(numpy(q), numpy(k), numpy(v), bias=leaf(Data(5).normal(9, 13), device))
    with torch.no_grad():
        assert isinstance(heed.attention(numpy(q), k, v), np.ndarray)
    assert isinstance(heed.attention(numpy(q), k.detach(), v.detach()), np.ndarray)
    # Those that need no gradient will do.
    arrays = {"mask": Data(9).rng.random((9, 13)) < 0.6, "bias": Data(5).normal(9, 13), "sink": Data(6).normal(4)}
    by_numpy = heed.attention(q, k, v, **arrays).square().sum()
    by_torch = heed.attention(q, k, v, **{name: torch.from_numpy(each) for name, each in arrays.items()}).square().sum()
    assert torch.equal(*(gradients(each, [k])[0] for each in (by_numpy, by_torch)))
