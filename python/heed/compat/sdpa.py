"""torch.nn.functional.scaled_dot_product_attention, computed by heed.

    from heed.compat.sdpa import scaled_dot_product_attention

is_causal is top-left, a boolean mask keeps where it is True, a float mask is added, a row without any key is 0: all as in
torch.
"""

from __future__ import annotations

from typing import Any

import torch

from .._attention import attention
from .._mask import Mask

__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """query (N, ..., h, s_q, d), key (N, ..., h_k, s_k, d), value (N, ..., h_k, s_k, d_v)."""
    if attn_mask is not None and is_causal:
        raise ValueError("attn_mask and is_causal=True: scaled_dot_product_attention takes one of them.")
    rank = query.dim()
    if rank < 2 or key.dim() != rank or value.dim() != rank:
        raise ValueError(
            f"query, key and value have {query.dim()}, {key.dim()} and {value.dim()} dimensions; they have as many, and "
            "two at least."
        )
    q, k, v = (_four(each) for each in (query, key, value))
    k, v = _broadcast(q, k, v, enable_gqa)
    mask, bias = _mask_or_bias(attn_mask, rank, query.shape)
    o = attention(
        q,
        k,
        v,
        mask=Mask.causal_top_left() if is_causal else mask,
        bias=bias,
        dropout_p=dropout_p,
        scale=scale,
        layout="bhsd",
    )
    return o if rank == 4 else o.reshape(*query.shape[:-1], value.shape[-1])


def _four(tensor: Any) -> Any:
    """As (batch, heads, sequence, dim): missing dimensions are 1, further ones are part of the batch."""
    if tensor.dim() == 4:
        return tensor
    if tensor.dim() > 4:
        return tensor.flatten(0, -4)
    return tensor[(None,) * (4 - tensor.dim())]


def _broadcast(q: Any, k: Any, v: Any, enable_gqa: bool) -> tuple[Any, Any]:
    """Batches of 1 are repeated; heads are shared in groups only where the caller says so."""
    wide = []
    for name, tensor in (("key", k), ("value", v)):
        if tensor.shape[1] not in (1, q.shape[1]) and not enable_gqa:
            raise ValueError(
                f"query has {q.shape[1]} heads and {name} {tensor.shape[1]}; with enable_gqa=True groups of query heads share "
                "one."
            )
        batch = q.shape[0] if tensor.shape[0] == 1 else tensor.shape[0]
        wide.append(tensor if batch == tensor.shape[0] else tensor.expand(batch, -1, -1, -1))
    return wide[0], wide[1]


def _mask_or_bias(attn_mask: Any, rank: int, shape: Any) -> tuple[Any, Any]:
    """(boolean mask, bias), of four dimensions at most."""
    if attn_mask is None:
        return None, None
    if attn_mask.dim() > 4 or (rank > 4 and attn_mask.dim() > 3):
        heads = attn_mask.shape[-3]
        attn_mask = attn_mask.expand(*shape[:-3], heads, *attn_mask.shape[-2:]).flatten(0, -4)
    return (attn_mask, None) if attn_mask.dtype is torch.bool else (None, attn_mask)
