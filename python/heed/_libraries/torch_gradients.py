"""Gradients of torch tensors: an autograd function around the forward and the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .. import _native
from .._backward import PARTIAL
from .._call import Call, add_outputs
from .._errors import UnsupportedError
from . import torch as library

#: A differentiable input, and the field of heed_backward_args for its gradient.
GRADIENTS = {"q": "dq", "k": "dk", "v": "dv", "bias": "dbias", "alibi_slopes": "dslopes", "sink": "dsink"}


def run(call: Call, return_lse: bool) -> Any:
    """attention() as a node of autograd's graph."""
    if call.out is not None or call.lse is not None:
        raise UnsupportedError("out= and lse_out= with gradients: autograd keeps what was computed; leave them out.")
    fields = call.fields
    if "dropout_state" in fields:
        fields["dropout_state"] = fields["dropout_state"].clone()  # the backward pass needs it as it is now
    o, lse = _Attention.apply(call, *[fields[name] for name in GRADIENTS if name in fields])
    return (o, lse) if return_lse else o


class _Attention(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: Any) -> Any:
        add_outputs(call, want_lse=True)
        fields = call.fields
        _native.forward(fields, call.bhsd, call.engine, call.stream)
        tensors = {name: value for name, value in fields.items() if isinstance(value, torch.Tensor)}
        ctx.save_for_backward(*tensors.values())
        ctx.set_materialize_grads(False)
        # An attribute of ctx costs as much as reading a tensor: one holds all.
        ctx.kept = tuple(tensors), fields, (call.bhsd, call.engine, call.deterministic)
        for name in tensors:
            fields[name] = None  # torch holds them, and must be the only one: else they would never be freed
        return call.out, call.lse

    @staticmethod
    def backward(ctx: Any, d_o: Any, d_lse: Any) -> Any:
        # torch's guard against second derivatives takes 10 us, and only matters where somebody could ask for one.
        return _guarded_backward(ctx, d_o, d_lse) if torch.is_grad_enabled() else _backward(ctx, d_o, d_lse)


def _backward(ctx: Any, d_o: Any, d_lse: Any) -> Any:
    names, fields, how = ctx.kept
    fields = {**fields, **dict(zip(names, ctx.saved_tensors))}
    wanted = dict(zip([name for name in GRADIENTS if name in fields], ctx.needs_input_grad[1:]))
    gradients = run_backward(fields, d_o, d_lse, wanted, *how)
    return None, *[gradients[GRADIENTS[name]] if needed else None for name, needed in wanted.items()]


_guarded_backward = once_differentiable(_backward)


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
) -> dict[str, Any]:
    o = fields["o"]
    gradients = empty_gradients(fields, wanted)
    told = {**gradients, "deterministic": int(deterministic)}
    if d_o is None:
        d_o = torch.zeros_like(o)
    # A gradient may come broadcast (of a sum) or turned: heed wants the head dim's elements beside each other.
    told["d_o"] = d_o if d_o.stride(-1) == 1 else d_o.contiguous()
    if d_lse is not None:
        told["d_lse"] = d_lse.contiguous()
    _native.backward(fields, told, bhsd, engine, library.stream(o, None))
    return gradients
