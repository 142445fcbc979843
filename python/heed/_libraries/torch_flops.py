"""What torch's FLOP counter (torch.utils.flop_counter.FlopCounterMode) counts for heed's operators.

As for torch's own attention: two products in the forward pass and five in the backward pass, over each pair of a query and a key,
whether a mask hides it or not. Sequences have the lengths that the call says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.flop_counter import FlopCounterMode, flop_registry

_formulas: dict[Any, Callable[..., Any]] = {}


def register(operator: Any, formula: Callable[..., Any]) -> None:
    _formulas[operator] = flop_registry[operator] = (
        formula  # torch 2.4's register_flop_formula is for torch's operators alone
    )


def tell_counters() -> None:
    """A counter knows the formulas that there were when it was made; heed's operators are made when they are first needed."""
    for mode in _get_current_dispatch_mode_stack():
        counter = getattr(mode, "counter", mode)  # before torch 2.5 the counter is the mode
        if isinstance(counter, FlopCounterMode):
            for operator, formula in _formulas.items():
                counter.flop_registry.setdefault(operator, formula)


def forward(told: dict[str, Any]) -> Any:
    """Q K^T and P V."""
    d, d_v = told["q"].shape[-1], told["v"].shape[-1]
    return 2 * _pairs(told) * (d + d_v)


def backward(told: dict[str, Any]) -> Any:
    """Q K^T again, dQ and dK; dO V^T and dV."""
    d, d_v = told["q"].shape[-1], told["v"].shape[-1]
    return 2 * _pairs(told) * (3 * d + 2 * d_v)


def _pairs(told: dict[str, Any]) -> Any:
    """Of a query and a key of one sequence, for all heads of q. A number, or one that a program will know."""
    q, k = told["q"], told["k"]
    queries, keys = _lengths(told, "q"), _lengths(told, "k")
    if told.get("seqstart_q") is not None:  # q [total_q, h, d]
        h = q.shape[1]
        if queries is None or keys is None:  # as many as there can be
            return h * q.shape[0] * (told["max_s_k"] or k.shape[0])
    else:
        b, h, s_q = q.shape[0], q.shape[1 if told["bhsd"] else 2], q.shape[2 if told["bhsd"] else 1]
        s_k = k.shape[2 if told["bhsd"] else 1]
        if queries is None and keys is None:
            return h * b * s_q * s_k
        queries, keys = queries or [s_q] * b, keys or [s_k] * b
    return h * sum(s_q * s_k for s_q, s_k in zip(queries, keys))


def _lengths(told: dict[str, Any], of: str) -> list[int] | None:
    """Of each sequence; None where they are not told, or in memory that a program will have."""
    lengths, starts = told[f"seqlen_{of}"], told.get(f"seqstart_{of}")
    array = starts if lengths is None else lengths
    if array is None or isinstance(array, (FakeTensor, FunctionalTensor)) or array.device.type == "meta":
        return None
    return list((array.diff() if lengths is None else array).tolist())
