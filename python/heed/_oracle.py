"""The contract in fp64, plain loops in C++: slow and right."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native
from ._backward import INPUTS, Gradients, results
from ._call import Call, lse_shape, prepare
from ._libraries import library_of

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
    told = {name: None if each is None else _wide(each) for name, each in (("d_o", d_o), ("d_lse", d_lse))}
    for gradient, name in INPUTS.items():
        if name in call.fields:
            told[gradient] = np.full(_shape(call, name), UNWRITTEN)
    _native.oracle_backward({**call.fields, "o": o, "lse": lse}, told, call.bhsd)
    return results(told)


def _wide(array: Any) -> Any:
    return np.asarray(to_numpy(array), np.float64)


def to_numpy(value: Any) -> Any:
    """A torch tensor on any device as a NumPy array (bfloat16 through ml_dtypes); tuples of them too; the rest as it is."""
    if isinstance(value, tuple):
        return tuple(to_numpy(each) for each in value)
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    if str(value.dtype) == "torch.bfloat16":
        import ml_dtypes

        # torch does not speak of bfloat16 with NumPy, and every bfloat16 is a float32.
        return value.float().numpy().astype(ml_dtypes.bfloat16)
    return value.numpy()


def _prepared(q: Any, k: Any, v: Any, options: dict[str, Any]) -> Call:
    for name in ("out", "lse_out", "engine", "stream"):
        if name in options:
            raise TypeError(f"oracle() takes no {name}=.")
    return prepare(q, k, v, **options)


def _forward(call: Call) -> tuple[Any, Any]:
    shape = _shape(call, "q")
    o = np.full((*shape[:-1], _shape(call, "v")[-1]), UNWRITTEN)
    lse = np.full(lse_shape(shape, call.bhsd), UNWRITTEN)
    _native.oracle({**call.fields, "o": o, "lse": lse}, call.bhsd)
    return o, lse


def _shape(call: Call, name: str) -> tuple[int, ...]:
    array = call.fields[name]  # of any library
    return library_of(array).shape(array, name)


def written(expected: Any) -> Any:
    """Which elements of an oracle's result belong to the problem."""
    return expected.view(np.uint64) != UNWRITTEN.view(np.uint64)
