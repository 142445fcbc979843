"""SDPA calls of existing code, computed by heed:

with heed.integrations.torch.use():
    model(x)

Importing this module makes heed's operators known to torch, which torch.export.load() and saved programs need.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as functional

from .._errors import Error
from .._libraries import torch_ops as _operators  # noqa: F401
from ..compat.sdpa import scaled_dot_product_attention as by_heed

_lock = threading.Lock()
_original: Any = functional.scaled_dot_product_attention
_users: list[bool] = []  # of each use() that is open: whether it falls back


@contextmanager
def use(*, fallback: bool = False) -> Iterator[None]:
    """Calls of torch.nn.functional.scaled_dot_product_attention go to heed, in the whole process, until the end of the block.

    Code that took the function out of its module before (`from torch.nn.functional import ...`) keeps torch's. What heed
    does not do raises one of heed's errors, TypeError or ValueError; with fallback=True torch computes it, gradients included.
    """
    with _lock:
        _users.append(fallback)
        _install()
    try:
        yield
    finally:
        with _lock:
            _users.remove(fallback)
            _install()


def _install() -> None:
    if not _users:
        chosen = _original
    elif all(_users):
        chosen = _heed_or_torch
    else:
        chosen = by_heed
    functional.scaled_dot_product_attention = chosen


def _heed_or_torch(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    try:
        return by_heed(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    except (Error, TypeError, ValueError):  # if it is wrong torch says so, too, in the words that its callers know
        groups = {"enable_gqa": True} if enable_gqa else {}  # torch 2.4 does not know the word
        return _original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **groups)
