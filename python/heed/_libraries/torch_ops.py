"""heed as operators of torch, for what records a program instead of running it: torch.compile, torch.export, fake tensors.

    torch.ops.heed.fwd(q, k, v, ...) -> (o, lse)
    torch.ops.heed.varlen_fwd(q, k, v, seqstart_q, seqstart_k, ...) -> (o, lse)

Arguments are fields of heed_forward_args (heed/heed.h), plus bhsd, engine and want_lse; without want_lse lse is empty. Calls
that are not recorded take the short way, heed._native.forward.
"""

# Annotations here are read by torch, which wants them as they were in Python 3.9, and not as texts.
import inspect
from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor

from .. import _native
from .._errors import UnsupportedError
from . import torch as library


def _fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bool_mask: Optional[Tensor] = None,
    block_mask: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    alibi_slopes: Optional[Tensor] = None,
    sink: Optional[Tensor] = None,
    seqlen_q: Optional[Tensor] = None,
    seqlen_k: Optional[Tensor] = None,
    dropout_state: Optional[Tensor] = None,
    mask_kind: int = 0,
    mask_left: int = 0,
    mask_right: int = 0,
    mask_sink: int = 0,
    block_q: int = 0,
    block_k: int = 0,
    scale: float = 0.0,
    soft_cap: float = 0.0,
    dropout_p: float = 0.0,
    math: int = 0,
    bhsd: bool = False,
    engine: int = 0,
    want_lse: bool = False,
) -> Tuple[Tensor, Tensor]:
    return _run(locals())


def _varlen_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seqstart_q: Tensor,
    seqstart_k: Tensor,
    bool_mask: Optional[Tensor] = None,
    block_mask: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    alibi_slopes: Optional[Tensor] = None,
    sink: Optional[Tensor] = None,
    seqlen_q: Optional[Tensor] = None,
    seqlen_k: Optional[Tensor] = None,
    dropout_state: Optional[Tensor] = None,
    max_s_q: int = 0,
    max_s_k: int = 0,
    mask_kind: int = 0,
    mask_left: int = 0,
    mask_right: int = 0,
    mask_sink: int = 0,
    block_q: int = 0,
    block_k: int = 0,
    scale: float = 0.0,
    soft_cap: float = 0.0,
    dropout_p: float = 0.0,
    math: int = 0,
    engine: int = 0,
    want_lse: bool = False,
) -> Tuple[Tensor, Tensor]:
    return _run(locals())


def _outputs(q: Tensor, v: Tensor, bhsd: bool, want_lse: bool) -> Tuple[Tensor, Tensor]:
    o = library.empty_output(q, v.shape[-1])
    if not want_lse:
        shape: tuple[int, ...] = (0,)
    elif q.dim() == 3:
        shape = (q.shape[1], q.shape[0])
    else:
        shape = tuple(q.shape[:3]) if bhsd else (q.shape[0], q.shape[2], q.shape[1])
    return o, library.empty_f32(q, shape)


def _run(fields: dict[str, Any]) -> Tuple[Tensor, Tensor]:
    bhsd, engine, want_lse = fields.pop("bhsd", False), fields.pop("engine"), fields.pop("want_lse")
    o, lse = _outputs(fields["q"], fields["v"], bhsd, want_lse)
    fields["o"] = o
    if want_lse:
        fields["lse"] = lse
    _native.forward(fields, bhsd, engine, library.stream(o, None))
    return o, lse


def _no_backward(context: Any, *gradients: Any) -> Any:
    raise UnsupportedError(
        "a gradient through heed is asked for: heed computes the forward pass alone. Call it under torch.no_grad() or "
        "torch.inference_mode(), or detach() q, k and v."
    )


def _operator(name: str, function: Callable[..., Tuple[Tensor, Tensor]]) -> Any:
    operator = torch.library.custom_op(f"heed::{name}", mutates_args=())(function)
    signature = inspect.signature(function)

    def fake(*positional: Any, **named: Any) -> Tuple[Tensor, Tensor]:
        given = signature.bind(*positional, **named)
        given.apply_defaults()
        told = given.arguments
        return _outputs(told["q"], told["v"], told.get("bhsd", False), told["want_lse"])

    operator.register_fake(fake)
    operator.register_autograd(_no_backward)
    return operator


fwd = _operator("fwd", _fwd)
varlen_fwd = _operator("varlen_fwd", _varlen_fwd)
