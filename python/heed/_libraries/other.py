"""Objects with __dlpack__ or __cuda_array_interface__. On the CPU results are NumPy arrays; on a GPU the caller brings
the memory, since nobody else knows whose allocator to ask."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _native
from . import numpy as _numpy

NUMPY_NAMES = {0: "float32", 1: "float16", 7: "float64"}
BF16 = 2
TYPE_NAMES = {0: "f32", 1: "f16", BF16: "bf16"}


def shape(array: Any, name: str) -> tuple[int, ...]:
    return _native.describe(array, name)[1]


def type_name(array: Any) -> str:
    return TYPE_NAMES.get(_native.describe(array, "q")[0], "of another type")


def empty_output(q: Any, d_v: int) -> Any:
    kind, q_shape, on_gpu, _ = _native.describe(q, "q")
    _need_memory(on_gpu, "out=", "the result")
    return np.empty((*q_shape[:-1], d_v), _numpy_type(kind, "q", "out="))


def empty_gradient(array: Any, name: str, zeros: bool) -> Any:
    kind, its_shape, on_gpu, _ = _native.describe(array, name)
    argument = f"d{name}=" if len(name) == 1 else "an array for its gradient"
    _need_memory(on_gpu, argument, f"the gradient of {name}")
    return (np.zeros if zeros else np.empty)(its_shape, _numpy_type(kind, name, argument))


def _numpy_type(kind: int, name: str, argument: str) -> Any:
    if kind != BF16:
        return NUMPY_NAMES.get(kind, "float32")
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(
            f"{name} is bfloat16, which NumPy knows through the package ml_dtypes alone: install it, or pass {argument}"
        ) from None
    return ml_dtypes.bfloat16


def empty_f32(like: Any, shape: tuple[int, ...]) -> Any:
    _need_memory(_native.describe(like, "q")[2], "lse_out=", "the LSE")
    return np.empty(shape, "float32")


def bytes(like: Any, count: int) -> Any:
    _need_memory(_native.describe(like, "q")[2], "workspace=", "the workspace")
    return _numpy.bytes(like, count)


def stream(array: Any, chosen: int | None) -> int | None:
    return chosen


check_number = _numpy.check_number
check_output = _numpy.check_output
capturing = _numpy.capturing  # on a GPU nothing is made that could be cleared too late
seen = _numpy.seen
recorded = _numpy.recorded
draw_state = _numpy.draw_state
traced = _numpy.traced
watched = _numpy.watched
run_recorded = _numpy.run_recorded
named = _numpy.named
draw_seed = _numpy.draw_seed
wants_gradient = _numpy.wants_gradient
run_with_gradient = _numpy.run_with_gradient


def _need_memory(on_gpu: bool, argument: str, what: str) -> None:
    if on_gpu:
        raise TypeError(
            f"q is in GPU memory and no torch tensor: heed cannot allocate {what} there. Pass {argument}, or q as a torch "
            "tensor (torch.from_dlpack(q) copies nothing)."
        )
