"""torch.nn.functional.scaled_dot_product_attention, computed by heed.

    from heed.compat.sdpa import scaled_dot_product_attention

is_causal is top-left, a boolean mask keeps where it is True, a float mask is added, a row without any key is 0: all as in
torch. So is torch.autocast: it decides on the type that is computed in.
"""

from __future__ import annotations

from typing import Any

import torch

from .._attention import attention
from .._libraries.torch_autocast import autocast
from .._mask import Mask
from ._strides import with_dense_rows

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
    query, key, value, attn_mask = autocast(query, key, value, attn_mask)
    query, key, value = _broadcast(query, key, value, enable_gqa)
    q, k, v = with_dense_rows(_four(query), _four(key), _four(value))
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


def _broadcast(query: Any, key: Any, value: Any, enable_gqa: bool) -> tuple[Any, Any, Any]:
    """What comes before sequence and dim is repeated where it is 1; heads are shared in groups only where the caller says so."""
    rank = query.dim()
    if rank > 2 and not enable_gqa:
        for name, tensor in (("key", key), ("value", value)):
            if tensor.shape[-3] not in (1, query.shape[-3]) and query.shape[-3] != 1:
                raise ValueError(
                    f"query has {query.shape[-3]} heads and {name} {tensor.shape[-3]}; with enable_gqa=True groups of query heads "
                    "share one."
                )
    # Groups share heads as they are: what is repeated then ends before them. One head of both key and value is a group, too.
    shared = rank > 2 and (enable_gqa or key.shape[-3] == value.shape[-3] == 1)
    kept = 3 if shared else 2
    if rank <= kept or query.shape[:-kept] == key.shape[:-kept] == value.shape[:-kept]:
        return query, key, value
    try:
        lead = torch.broadcast_shapes(*(each.shape[:-kept] for each in (query, key, value)))
    except RuntimeError:
        shapes = ", ".join(str(tuple(each.shape)) for each in (query, key, value))
        raise ValueError(
            f"query, key and value have the shapes {shapes}: their leading dimensions are equal, or 1 where one is repeated."
        ) from None
    query, key, value = (each.expand(*lead, *each.shape[-kept:]) for each in (query, key, value))
    return query, key, value


def _mask_or_bias(attn_mask: Any, rank: int, shape: Any) -> tuple[Any, Any]:
    """(boolean mask, bias), of four dimensions at most."""
    if attn_mask is None:
        return None, None
    if attn_mask.dim() > 4 or (rank > 4 and attn_mask.dim() > 3):
        heads = attn_mask.shape[-3]
        attn_mask = attn_mask.expand(*shape[:-3], heads, *attn_mask.shape[-2:]).flatten(0, -4)
    return (attn_mask, None) if attn_mask.dtype is torch.bool else (None, attn_mask)
