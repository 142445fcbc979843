"""Gradients of torch tensors: an autograd function around the forward and the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from .. import _native
from .._errors import UnsupportedError
from . import torch as library

if TYPE_CHECKING:
    from .._call import Call

#: A differentiable input, and the field of heed_backward_args for its gradient.
GRADIENTS = {"q": "dq", "k": "dk", "v": "dv", "bias": "dbias", "alibi_slopes": "dslopes", "sink": "dsink"}
#: Where one of these is given, rows may belong to no sequence: their gradients are 0, and heed does not write them.
PARTIAL = ("seqstart_q", "seqlen_q", "seqlen_k")


def run(call: Call, return_lse: bool) -> Any:
    """attention() as a node of autograd's graph."""
    if call.out is not None or call.lse is not None:
        raise UnsupportedError("out= and lse_out= with gradients: autograd keeps what was computed; leave them out.")
    fields = call.fields
    if "dropout_state" in fields:
        fields["dropout_state"] = fields["dropout_state"].clone()  # the backward pass needs it as it is now
    o, lse = _Attention.apply(call, *(fields.get(name) for name in GRADIENTS))
    return (o, lse) if return_lse else o


class _Attention(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: Any) -> Any:
        from .._call import add_outputs

        add_outputs(call, want_lse=True)
        fields = call.fields
        _native.forward(fields, call.bhsd, call.engine, call.stream)
        ctx.names = [name for name, value in fields.items() if isinstance(value, torch.Tensor)]
        ctx.save_for_backward(*(fields[name] for name in ctx.names))
        ctx.others = {name: value for name, value in fields.items() if name not in ctx.names}
        ctx.how = call.bhsd, call.engine, call.deterministic
        ctx.set_materialize_grads(False)
        return call.out, call.lse

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d_o: Any, d_lse: Any) -> Any:
        fields = {**dict(zip(ctx.names, ctx.saved_tensors)), **ctx.others}
        wanted = dict(zip(GRADIENTS, ctx.needs_input_grad[1:]))
        gradients = run_backward(fields, d_o, d_lse, wanted, *ctx.how)
        return None, *(gradients.get(GRADIENTS[name]) if wanted[name] else None for name in GRADIENTS)


def empty_gradients(fields: dict[str, Any], wanted: dict[str, bool]) -> dict[str, Any]:
    """Memory for dq, dk and dv, and for the others that are wanted."""
    make = torch.zeros_like if any(fields.get(name) is not None for name in PARTIAL) else torch.empty_like
    return {
        gradient: make(fields[name], memory_format=torch.contiguous_format)
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
