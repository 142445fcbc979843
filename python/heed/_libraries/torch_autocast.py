"""torch.autocast, for functions that stand in for those on its list: it casts their arguments, and never sees heed's."""

from __future__ import annotations

from typing import Any

import torch


def autocast(*arguments: Any) -> tuple[Any, ...]:
    """Tensors (and None) as torch.autocast would hand them to scaled_dot_product_attention: where it is enabled for the first
    one's device, floating point of any width but float64 becomes its type. Gradients flow back in the type they came from."""
    first = arguments[0]
    if not (first.is_cpu or first.is_cuda):
        return arguments  # heed has no other devices, and says so
    device = "cpu" if first.is_cpu else "cuda"
    if not torch.is_autocast_enabled(device):
        return arguments
    dtype = torch.get_autocast_dtype(device)
    return tuple(each.to(dtype) if _is_cast(each) else each for each in arguments)


def _is_cast(argument: Any) -> bool:
    return argument is not None and argument.is_floating_point() and argument.dtype is not torch.float64
