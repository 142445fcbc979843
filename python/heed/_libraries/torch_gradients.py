"""Gradients of torch tensors: an autograd function around the forward and the backward pass."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from .. import _native
from .._backward import PARTIAL
from .._call import Call, add_outputs
from .._errors import UnsupportedError
from . import torch as library

#: The innermost transform of torch.func; None: there is none.
inside_a_transform: Any = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)
#: A differentiable input, and the field of heed_backward_args for its gradient.
GRADIENTS = {"q": "dq", "k": "dk", "v": "dv", "bias": "dbias", "alibi_slopes": "dslopes", "sink": "dsink"}


def run(call: Call, return_lse: bool) -> Any:
    """attention() as a node of autograd's graph."""
    if call.out is not None or call.lse is not None:
        raise UnsupportedError("out= and lse_out= with gradients: autograd keeps what was computed; leave them out.")
    if inside_a_transform() is not None:
        raise UnsupportedError(
            "gradients inside a transform of torch.func (grad, vmap, jacrev, ...): heed computes them by backward() or "
            "torch.autograd.grad(), outside of it."
        )
    fields = call.fields
    for name in (*library.OPERANDS, "dropout_state"):
        if name in fields and not isinstance(fields[name], torch.Tensor):
            raise TypeError(
                f"{name} is {type(fields[name])} beside tensors that require a gradient: pass a torch tensor "
                f"(torch.from_dlpack({name}) copies nothing), or call under torch.no_grad()."
            )
    if "dropout_state" in fields:
        fields["dropout_state"] = fields["dropout_state"].clone()  # the backward pass needs it as it is now
    o, lse = HeedAttention.apply(call, *[fields[name] for name in GRADIENTS if name in fields])
    return (o, lse) if return_lse else o


class HeedAttention(torch.autograd.Function):  # type: ignore[misc]
    """Profiles, grad_fn and what torch says of a backward pass that went wrong have this name."""

    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: Any) -> Any:
        fields = call.fields
        if library.count_modes() > 0 and library.can_be_operator(fields):
            call.out, call.lse = library.run_operator(call, library.operator_fields(fields), want_lse=True)
            fields["o"], fields["lse"] = call.out, call.lse
        else:
            add_outputs(call, want_lse=True)
            _native.forward(fields, call.bhsd, call.engine, call.stream)
        tensors = {name: value for name, value in fields.items() if isinstance(value, torch.Tensor)}
        ctx.save_for_backward(*tensors.values())
        ctx.set_materialize_grads(False)
        # An attribute of ctx costs as much as reading a tensor: one holds all.
        ctx.kept = tuple(tensors), fields, (call.bhsd, call.engine, call.deterministic, call.dq_accumulation)
        for name in tensors:
            fields[name] = None  # torch holds them, and must be the only one: else they would never be freed
        return call.out, call.lse

    @staticmethod
    def backward(ctx: Any, d_o: Any, d_lse: Any) -> Any:
        saved = ctx.saved_tensors  # once: checkpoints count
        # With create_graph=True somebody may ask for a second derivative, and is to hear of it.
        return (_Gradients.apply if torch.is_grad_enabled() else _backward)(ctx, d_o, d_lse, *saved)


def _backward(ctx: Any, d_o: Any, d_lse: Any, *saved: Any) -> Any:
    names, fields, how = ctx.kept
    fields = {**fields, **dict(zip(names, saved))}
    wanted = dict(zip([name for name in GRADIENTS if name in fields], ctx.needs_input_grad[1:]))
    if library.count_modes() > 0 and library.can_be_operator(fields):
        from . import torch_ops

        gradients = torch_ops.run_bwd(library.operator_fields(fields), d_o, d_lse, wanted, *how)
    else:
        gradients = run_backward(fields, d_o, d_lse, wanted, *how)
    return None, *[gradients[GRADIENTS[name]] if needed else None for name, needed in wanted.items()]


class _Gradients(torch.autograd.Function):  # type: ignore[misc]
    """The backward pass as a node of autograd's graph, behind everything that it was computed from.

    torch's once_differentiable leaves a node that nothing lies behind: autograd.grad(), which visits only what leads to its
    inputs, would never come there, and return what is left of the sum, or None, without a word.
    """

    @staticmethod
    def forward(ctx: Any, of: Any, *given: Any) -> Any:
        return _backward(of, *given)

    @staticmethod
    def backward(ctx: Any, *second: Any) -> Any:
        raise no_second_derivative()


def no_second_derivative() -> UnsupportedError:
    return UnsupportedError(
        "gradients of gradients: the loss depends on a gradient that heed has computed (create_graph=True), and heed has first "
        "derivatives alone. Write attention out with torch's functions there, or call scaled_dot_product_attention under "
        "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)."
    )


def empty_gradients(fields: dict[str, Any], wanted: dict[str, bool]) -> dict[str, Any]:
    """Memory for dq, dk and dv, and for the others that are wanted."""
    partial = any(fields.get(name) is not None for name in PARTIAL)
    return {
        gradient: library.empty_gradient(fields[name], name, zeros=partial)
        for name, gradient in GRADIENTS.items()
        if name in ("q", "k", "v") or wanted.get(name)
    }


def run_backward(
    fields: dict[str, Any],
    d_o: Any,
    d_lse: Any,
    wanted: dict[str, bool],
    bhsd: bool,
    engine: int,
    deterministic: bool,
    dq_accumulation: int,
) -> dict[str, Any]:
    o = fields["o"]
    gradients = empty_gradients(fields, wanted)
    told = {**gradients, "deterministic": int(deterministic), "dq_accumulation": dq_accumulation}
    if d_o is None:
        d_o = torch.zeros_like(o)
    # A gradient may come broadcast (of a sum) or turned: heed wants the head dim's elements beside each other.
    told["d_o"] = d_o if d_o.stride(-1) == 1 else d_o.contiguous()
    if d_lse is not None:
        told["d_lse"] = d_lse.contiguous()
    stream = library.stream(o, None)
    if deterministic or not torch.are_deterministic_algorithms_enabled():
        _native.backward(fields, told, bhsd, engine, stream)
    else:
        _backward_as_torch_wants(fields, told, bhsd, engine, stream)
    return gradients


def _backward_as_torch_wants(fields: dict[str, Any], told: dict[str, Any], *how: Any) -> None:
    """torch.use_deterministic_algorithms(True): the same bits in every run or an error, which warn_only makes a warning."""
    try:
        _native.backward(fields, {**told, "deterministic": 1}, *how)
    except UnsupportedError as refusal:  # nothing was written
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            raise
        warnings.warn(
            "heed's gradients may have other bits in every run, though torch.use_deterministic_algorithms(True, warn_only=True) "
            f"was called: {str(refusal).splitlines()[0]}",
            stacklevel=2,
        )
        _native.backward(fields, told, *how)
