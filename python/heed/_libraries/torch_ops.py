"""heed as operators of torch, for what records a program instead of running it: torch.compile, torch.export, fake tensors.

    torch.ops.heed.fwd(q, k, v, ...) -> (o, lse)
    torch.ops.heed.varlen_fwd(q, k, v, seqstart_q, seqstart_k, ...) -> (o, lse)
    torch.ops.heed.bwd(d_o, q, k, v, o, lse, ...) -> (dq, dk, dv, dbias, dslopes, dsink)

Arguments are fields of heed_forward_args (heed/heed.h), plus bhsd, engine and want_lse, and of heed_backward_args
deterministic and dq_accumulation. Without want_lse lse is empty, and there is no gradient; of the gradients those that nobody
wants are empty. Calls that nobody sees take the short way, heed._native.forward. torch's FLOP counter knows the operators.
"""

# Annotations here are read by torch, which wants them as they were in Python 3.9, and not as texts.
import inspect
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _native
from .._errors import UnsupportedError
from . import torch as library
from . import torch_flops, torch_gradients

Six = Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


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
    deterministic: bool = False,
    dq_accumulation: int = 0,
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
    deterministic: bool = False,
    dq_accumulation: int = 0,
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


def _run(fields: Dict[str, Any]) -> Tuple[Tensor, Tensor]:
    if forward_ad._current_level >= 0:
        library.check_forward_mode(fields)
    _check_dropout(fields)
    bhsd, engine, want_lse = fields.pop("bhsd", False), fields.pop("engine"), fields.pop("want_lse")
    del fields["deterministic"], fields["dq_accumulation"]  # of the backward pass
    o, lse = _outputs(fields["q"], fields["v"], bhsd, want_lse)
    fields["o"] = o
    if want_lse:
        fields["lse"] = lse
    _native.forward(fields, bhsd, engine, library.stream(o, None))
    return o, lse


def _check_dropout(fields: Dict[str, Any]) -> None:
    """The state has the only seed that an operator is told: without one every call would drop the same entries."""
    if fields["dropout_p"] and fields["dropout_state"] is None:
        raise ValueError(
            f"dropout_p = {fields['dropout_p']} without a dropout_state: it is an int64 tensor [seed, offset]."
        )
    if fields["dropout_state"] is not None and not fields["dropout_p"]:
        raise ValueError("dropout_state belongs to dropout, but dropout_p is 0.")


def _bwd(
    d_o: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    d_lse: Optional[Tensor] = None,
    bool_mask: Optional[Tensor] = None,
    block_mask: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    alibi_slopes: Optional[Tensor] = None,
    sink: Optional[Tensor] = None,
    seqstart_q: Optional[Tensor] = None,
    seqstart_k: Optional[Tensor] = None,
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
    bhsd: bool = False,
    engine: int = 0,
    deterministic: bool = False,
    dq_accumulation: int = 0,
    want_bias: bool = False,
    want_slopes: bool = False,
    want_sink: bool = False,
) -> Six:
    fields = locals()
    _check_dropout(fields)
    for wanted, name in (("want_bias", "bias"), ("want_slopes", "alibi_slopes"), ("want_sink", "sink")):
        if fields[wanted] and fields[name] is None:
            raise ValueError(f"{wanted}=True asks for the gradient of {name}, and there is none.")
    d_o, d_lse = fields.pop("d_o"), fields.pop("d_lse")
    how = (fields.pop(name) for name in ("bhsd", "engine", "deterministic", "dq_accumulation"))
    return _six(q, torch_gradients.run_backward(fields, d_o, d_lse, _wanted(fields), *how))


def _fake_bwd(told: Dict[str, Any]) -> Six:
    return _six(told["q"], torch_gradients.empty_gradients(told, _wanted(told)))


def _wanted(fields: Dict[str, Any]) -> Dict[str, bool]:
    return {
        "bias": fields.pop("want_bias"),
        "alibi_slopes": fields.pop("want_slopes"),
        "sink": fields.pop("want_sink"),
    }


def _six(q: Tensor, gradients: Dict[str, Any]) -> Six:
    """An operator returns tensors, always: those that nobody wants are empty."""
    dq, dk, dv, *others = (gradients.get(name, q.new_empty(0)) for name in torch_gradients.GRADIENTS.values())
    return dq, dk, dv, others[0], others[1], others[2]


def run_bwd(
    fields: Dict[str, Any],
    d_o: Optional[Tensor],
    d_lse: Optional[Tensor],
    wanted: Dict[str, bool],
    bhsd: bool,
    engine: int,
    deterministic: bool,
    dq_accumulation: int,
) -> Dict[str, Any]:
    """torch_gradients.run_backward, as an operator that modes see."""
    torch_flops.tell_counters()
    results = bwd(
        d_o=torch.zeros_like(fields["o"]) if d_o is None else d_o,
        d_lse=d_lse,
        want_bias=wanted.get("bias", False),
        want_slopes=wanted.get("alibi_slopes", False),
        want_sink=wanted.get("sink", False),
        bhsd=bhsd,
        engine=engine,
        deterministic=deterministic,
        dq_accumulation=dq_accumulation,
        **fields,
    )
    return dict(zip(torch_gradients.GRADIENTS.values(), results))


def _operator(
    name: str,
    function: Callable[..., Any],
    fake: Callable[[Dict[str, Any]], Any],
    flops: Callable[[Dict[str, Any]], Any],
) -> Any:
    operator = torch.library.custom_op(f"heed::{name}", mutates_args=())(function)
    signature = inspect.signature(function)

    def told(positional: Any, named: Any) -> Dict[str, Any]:
        given = signature.bind(*positional, **named)
        given.apply_defaults()
        return dict(given.arguments)

    operator.register_fake(lambda *positional, **named: fake(told(positional, named)))
    torch_flops.register(
        getattr(torch.ops.heed, name), lambda *positional, out_val=None, **named: flops(told(positional, named))
    )
    return operator


def _differentiable(name: str, function: Callable[..., Any]) -> Any:
    operator = _operator(name, function, _fake_forward, torch_flops.forward)
    names = list(inspect.signature(function).parameters)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        told = {**dict(zip(names, inputs)), "o": output[0], "lse": output[1]}
        ctx.tensors = [each for each, value in told.items() if isinstance(value, Tensor)]
        ctx.save_for_backward(*(told[each] for each in ctx.tensors))
        ctx.others = {each: value for each, value in told.items() if not isinstance(value, Tensor)}

    def backward(ctx: Any, d_o: Tensor, d_lse: Tensor) -> Any:
        told = {**ctx.others, **dict(zip(ctx.tensors, ctx.saved_tensors))}
        if not told.pop("want_lse"):
            raise UnsupportedError(
                f"a gradient through heed::{name} needs the LSE of its forward pass: call it with want_lse=True."
            )
        needed = dict(zip(names, ctx.needs_input_grad))
        results = bwd(
            d_o=d_o,
            d_lse=d_lse,
            want_bias=needed["bias"],
            want_slopes=needed["alibi_slopes"],
            want_sink=needed["sink"],
            **told,
        )
        gradients = dict(zip(torch_gradients.GRADIENTS, results))
        return tuple(gradients[each] if each in gradients and needed[each] else None for each in names)

    operator.register_autograd(backward, setup_context=setup)
    return operator


def _refuse(ctx: Any, *second: Any) -> Any:
    raise torch_gradients.no_second_derivative()


def _fake_forward(told: Dict[str, Any]) -> Tuple[Tensor, Tensor]:
    return _outputs(told["q"], told["v"], told.get("bhsd", False), told["want_lse"])


bwd = _operator("bwd", _bwd, _fake_bwd, torch_flops.backward)
bwd.register_autograd(_refuse)
fwd = _differentiable("fwd", _fwd)
varlen_fwd = _differentiable("varlen_fwd", _varlen_fwd)
