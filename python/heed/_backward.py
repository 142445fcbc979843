"""Gradients without autograd: attention_backward(), and what plans of the backward pass share with it."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _native
from ._call import Call, add_outputs, prepare, with_outputs
from ._errors import UnsupportedError
from ._libraries import library_of

#: A gradient, and the input it belongs to.
INPUTS = {"dq": "q", "dk": "k", "dv": "v", "dbias": "bias", "dsink": "sink", "dslopes": "alibi_slopes"}
#: Those that are always computed.
ALWAYS = ("dq", "dk", "dv")
#: Where random numbers come from.
RANDOMNESS = ("seed", "generator", "dropout_state")
#: Where one of these is given, rows may belong to no sequence: heed does not write their gradients.
PARTIAL = ("seqstart_q", "seqlen_q", "seqlen_k")


class Gradients(NamedTuple):
    """Of q, k and v, and of bias, sink and alibi_slopes; None where nobody asked."""

    dq: Any
    dk: Any
    dv: Any
    dbias: Any = None
    dsink: Any = None
    dslopes: Any = None


def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    d_o: Any,
    *,
    d_lse: Any = None,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    dbias: Any = None,
    dsink: Any = None,
    dslopes: Any = None,
    **options: Any,
) -> Gradients:
    """The gradients of sum(o * d_o) (+ sum(lse * d_lse)), where (o, lse) = attention(q, k, v, return_lse=True, **options).

    For arrays without autograd; torch tensors that require gradients need nothing but attention(). Options are those of
    attention() and, with cu_seqlens_q= and cu_seqlens_k=, of attention_varlen(), as they were; dropout needs the seed= (and
    offset=) or the dropout_state= that the forward pass had.

    dq, dk, dv               arrays to write into; None: they are made
    dbias, dsink, dslopes    True, or an array to write into: also of bias, sink and alibi_slopes
    deterministic            the same bits in every run, or a refusal
    dq_accumulation          "f32", or q's own type of 16 bits ("f16", "bf16"): dQ may be summed up in it, which is faster
    """
    given = {"dq": dq, "dk": dk, "dv": dv, "dbias": dbias, "dsink": dsink, "dslopes": dslopes}
    call, told = pose(q, k, v, o, lse, d_o, d_lse, given, options)
    with_outputs(brought(given), _native.backward, call.fields, told, call.bhsd, call.engine, call.stream)
    return results(told)


def brought(given: dict[str, Any]) -> list[tuple[str, Any]]:
    """Those that are arrays: None, True and False say whether one is wanted."""
    return [(name, each) for name, each in given.items() if each is not None and each is not True and each is not False]


def pose(
    q: Any, k: Any, v: Any, o: Any, lse: Any, d_o: Any, d_lse: Any, given: dict[str, Any], options: dict[str, Any]
) -> tuple[Call, dict[str, Any]]:
    """A call and its gradients as heed._native takes them; outputs that the caller did not bring are made."""
    for name in ("out", "lse_out", "return_lse", "randval"):
        if name in options:
            raise TypeError(f"a backward pass takes no {name}=: o and lse are what the forward pass has left.")
    _check_dropout(options)
    call = prepare(q, k, v, **options)
    if call.recorded:
        raise UnsupportedError("a backward pass of its own while torch records a program: autograd writes one there.")
    call.fields["o"], call.fields["lse"] = o, lse
    told = {"d_o": d_o, "d_lse": d_lse}
    told |= {"deterministic": int(call.deterministic), "dq_accumulation": call.dq_accumulation}
    partial = any(name in call.fields for name in PARTIAL)
    for gradient, name in INPUTS.items():
        wanted = given[gradient]
        if wanted is None and gradient in ALWAYS:
            wanted = True
        if wanted is True:
            if name not in call.fields:
                raise ValueError(f"{gradient} is asked for, and there is no {name}.")
            array = call.fields[name]  # of any library, and so is its gradient
            wanted = library_of(array).empty_gradient(array, name, partial)
        if wanted is not None and wanted is not False:
            told[gradient] = wanted
    return call, told


def pose_without_results(q: Any, k: Any, v: Any, options: dict[str, Any]) -> tuple[Call, dict[str, Any]]:
    """The same before there is a forward pass: for plans and explanations. o, lse and their gradients are as attention()
    would make them, dense like q; options also say which gradients there will be."""
    asked = {name: options.pop(name, None) for name in INPUTS}
    with_lse = options.pop("d_lse", None)
    if options.get("dropout_p") and not any(options.get(name) is not None for name in RANDOMNESS):
        options["seed"] = 0  # whichever it will be, the problem is the same
    posed = prepare(q, k, v, **options)
    add_outputs(posed, want_lse=True)
    like_o, like_lse = (posed.library.empty_gradient(each, "o", False) for each in (posed.out, posed.lse))
    return pose(q, k, v, posed.out, posed.lse, like_o, like_lse if with_lse else None, asked, options)


def _check_dropout(options: dict[str, Any]) -> None:
    """The forward pass has dropped entries already; other numbers than its own would make gradients of something else."""
    if not options.get("dropout_p") or options.get("seed") is not None or options.get("dropout_state") is not None:
        return
    told = "generator= would be drawn from again" if options.get("generator") is not None else "neither was told"
    raise ValueError(
        f"dropout_p = {options['dropout_p']} in a backward pass, which repeats the forward pass's dropout by its seed= (and "
        f"offset=) or its dropout_state=: {told}. Draw a number first, and pass it as seed= to both passes."
    )


def results(told: dict[str, Any]) -> Gradients:
    return Gradients(**{name: told.get(name) for name in Gradients._fields})
