"""Strides that the originals take and heed refuses."""

from __future__ import annotations

from typing import Any


def with_dense_rows(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    """As flash_attn and torch do before they compute: a copy where the elements of a row do not lie beside each other."""
    # The first question is the quickest, and for most tensors the last. Other libraries' arrays are as they are.
    if not hasattr(q, "is_contiguous") or (q.is_contiguous() and k.is_contiguous() and v.is_contiguous()):
        return q, k, v
    return _dense(q), _dense(k), _dense(v)


def _dense(tensor: Any) -> Any:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
