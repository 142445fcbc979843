"""NumPy arrays: results are NumPy arrays."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

ALIGNMENT = 64
USUAL = frozenset({np.ndarray, int, float})  # among the arguments of a call
TYPE_NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def shape(array: Any, name: str) -> tuple[int, ...]:
    return tuple(array.shape)


def type_name(array: Any) -> str:
    name = str(array.dtype.name)
    return TYPE_NAMES.get(name, name)


def empty_output(q: Any, d_v: int) -> Any:
    return np.empty((*q.shape[:-1], d_v), q.dtype)


def empty_f32(like: Any, shape: tuple[int, ...]) -> Any:
    return np.empty(shape, np.float32)


def empty_gradient(array: Any, name: str, zeros: bool) -> Any:
    return (np.zeros if zeros else np.empty)(array.shape, array.dtype)


def check_number(value: Any, name: str) -> None:
    """What is no number the compiled part says."""


def check_output(array: Any, name: str) -> None:
    """Whether it may be written the compiled part asks; nobody keeps account of it."""


def bytes(like: Any, count: int) -> Any:
    memory = np.zeros(count + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + count]


def stream(array: Any, chosen: int | None) -> int | None:
    return chosen


def capturing(array: Any) -> bool:
    return False


def draw_seed(generator: Any | None) -> int:
    if generator is None:
        raise ValueError(
            "dropout_p > 0 without seed=, generator= or dropout_state=: NumPy has no current generator; "
            "pass seed=, or generator=numpy.random.default_rng(...)."
        )
    if not isinstance(generator, np.random.Generator):
        raise TypeError(f"generator is {type(generator)}; with NumPy arrays it is a numpy.random.Generator.")
    return int(generator.integers(2**63))


def seen(q: Any) -> bool:
    return False


def recorded(q: Any) -> bool:
    return False


def draw_state(q: Any, generator: Any | None) -> Any:
    raise AssertionError("nobody records programs of NumPy")


def traced(q: Any) -> bool:
    return False


def watched(call: Any) -> bool:
    return False


def run_recorded(call: Any, return_lse: bool) -> Any:
    raise AssertionError("nobody records programs of NumPy")


def named(call: Any) -> AbstractContextManager[Any]:
    raise AssertionError("nobody sees what NumPy computes")


def wants_gradient(fields: dict[str, Any]) -> str | None:
    """q is no tensor of torch's, but others may be, whose gradients would be lost."""
    for each in fields.values():
        if type(each) not in USUAL and isinstance(each, getattr(sys.modules.get("torch"), "Tensor", ())):
            from . import torch

            return torch.wants_gradient(fields)
    return None


def run_with_gradient(call: Any, return_lse: bool) -> Any:
    from . import torch

    return torch.run_with_gradient(call, return_lse)  # which takes no q but a tensor, and says so
