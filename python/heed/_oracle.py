"""The contract in fp64, plain loops in C++: slow and right."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native
from ._backward import INPUTS, Gradients, results
from ._call import Call, lse_shape, prepare

#: A NaN that no computation makes: what is still here afterwards was not written.
UNWRITTEN = np.array(0x7FF8_0000_DEAD_BEEF, np.uint64).view(np.float64)


def oracle(q: Any, k: Any, v: Any, *, return_lse: bool = False, **options: Any) -> Any:
    """What attention(q, k, v, **options) should be, as a float64 NumPy array; or (o, lse), both float64.

    Takes the options of attention() and of attention_varlen() (cu_seqlens_q=, ...). Arrays are in CPU memory. Rows that
    belong to no sequence are NaN.
    """
    o, lse = _forward(_prepared(q, k, v, options))
    return (o, lse) if return_lse else o


def oracle_backward(q: Any, k: Any, v: Any, d_o: Any, *, d_lse: Any = None, **options: Any) -> Gradients:
    """The gradients of sum(o * d_o) (+ sum(lse * d_lse)) in fp64, by plain loops in C++: float64 NumPy arrays.

    Options as in oracle(). Those of bias, sink and alibi_slopes are there where these are. Rows that belong to no sequence
    are NaN.
    """
    call = _prepared(q, k, v, options)
    o, lse = _forward(call)  # of the same call: a seed is drawn once
    told = {"d_o": np.asarray(d_o, np.float64), "d_lse": None if d_lse is None else np.asarray(d_lse, np.float64)}
    for gradient, name in INPUTS.items():
        if name in call.fields:
            told[gradient] = np.full(call.library.shape(call.fields[name], name), UNWRITTEN)
    _native.oracle_backward({**call.fields, "o": o, "lse": lse}, told, call.bhsd)
    return results(told)


def _prepared(q: Any, k: Any, v: Any, options: dict[str, Any]) -> Call:
    for name in ("out", "lse_out", "engine", "stream"):
        if name in options:
            raise TypeError(f"oracle() takes no {name}=.")
    return prepare(q, k, v, **options)


def _forward(call: Call) -> tuple[Any, Any]:
    shape = call.library.shape(call.fields["q"], "q")
    o = np.full((*shape[:-1], call.library.shape(call.fields["v"], "v")[-1]), UNWRITTEN)
    lse = np.full(lse_shape(shape, call.bhsd), UNWRITTEN)
    _native.oracle({**call.fields, "o": o, "lse": lse}, call.bhsd)
    return o, lse


def written(expected: Any) -> Any:
    """Which elements of an oracle's result belong to the problem."""
    return expected.view(np.uint64) != UNWRITTEN.view(np.uint64)
