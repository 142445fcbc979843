"""The functions of flash_attn 2.8, computed by heed:

    from heed.compat.flash_attn import flash_attn_func

Causal masks and windows end at the last query and the last key; LSEs are float32 natural logarithms, (b, h, s_q) or
(h, total_q); that of a row without keys is -inf, where the original has inf. On top of the original: CPU tensors, float32, every
head dim up to 1024, a head dim of v of its own.
"""

from __future__ import annotations

from typing import Any

from .._attention import attention, attention_varlen
from .._errors import UnsupportedError
from ._strides import with_dense_rows

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
]


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """q (b, s_q, h, d), k and v (b, s_k, h_k, d). Returns o, or (o, lse, None) with return_attn_probs=True."""
    result = attention(
        *with_dense_rows(q, k, v),
        causal=causal,
        window=_window(causal, window_size),
        softcap=softcap,
        scale=softmax_scale,
        dropout_p=dropout_p,
        alibi_slopes=alibi_slopes,
        deterministic=deterministic,
        return_lse=_wants_lse(return_attn_probs, dropout_p),
    )
    return (*result, None) if return_attn_probs else result


def flash_attn_kvpacked_func(
    q: Any,
    kv: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """kv is (b, s_k, 2, h_k, d)."""
    k, v = _unpack(kv, 2, "kv", 5)
    return flash_attn_func(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    )


def flash_attn_qkvpacked_func(
    qkv: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """qkv is (b, s, 3, h, d)."""
    q, k, v = _unpack(qkv, 3, "qkv", 5)
    return flash_attn_func(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    )


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
) -> Any:
    """q (total_q, h, d), k and v (total_k, h_k, d). Returns o, or (o, lse, None) with return_attn_probs=True. max_seqlen_q and
    max_seqlen_k are any bounds, as in the original: also above the rows there are."""
    if block_table is not None:
        raise UnsupportedError("block_table: heed has no paged KV cache yet; gather the pages into k and v first.")
    result = attention_varlen(
        *with_dense_rows(q, k, v),
        cu_seqlens_q,
        cu_seqlens_k,
        _at_most(q.shape[0], max_seqlen_q, "max_seqlen_q"),
        _at_most(k.shape[0], max_seqlen_k, "max_seqlen_k"),
        causal=causal,
        window=_window(causal, window_size),
        softcap=softcap,
        scale=softmax_scale,
        dropout_p=dropout_p,
        alibi_slopes=alibi_slopes,
        deterministic=deterministic,
        return_lse=_wants_lse(return_attn_probs, dropout_p),
    )
    return (*result, None) if return_attn_probs else result


def flash_attn_varlen_kvpacked_func(
    q: Any,
    kv: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """kv is (total_k, 2, h_k, d)."""
    k, v = _unpack(kv, 2, "kv", 4)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_qkvpacked_func(
    qkv: Any,
    cu_seqlens: Any,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """qkv is (total, 3, h, d)."""
    q, k, v = _unpack(qkv, 3, "qkv", 4)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen,
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "flash_attn_with_kvcache":
        raise AttributeError(
            "heed.compat.flash_attn has no flash_attn_with_kvcache: heed has no KV cache yet. With a contiguous cache, "
            "flash_attn_func on the filled part computes the same."
        )
    raise AttributeError(f"module 'heed.compat.flash_attn' has no attribute {name!r}")


def _window(causal: bool, window_size: tuple[int, int]) -> tuple[int, int] | None:
    """As the original: causal closes the right side, whatever window_size says of it."""
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise TypeError(f"window_size = {window_size!r}: it is (left, right), -1 for no end.")
    left, right = window_size
    if left < 0 and (causal or right < 0):
        return None
    return (left, 0) if causal else (left, right)


def _at_most(rows: int, told: Any, name: str) -> Any:
    """heed's own function refuses a length that no sequence can have; here callers pass a bound, maybe as a tensor."""
    if told is None:
        raise TypeError(f"{name} is None: it is the length of the longest sequence, or more.")
    return min(told if isinstance(told, int) else int(told), rows)


def _wants_lse(return_attn_probs: bool, dropout_p: float) -> bool:
    if return_attn_probs and dropout_p > 0:
        raise UnsupportedError(
            "return_attn_probs=True with dropout_p > 0 asks for the dropped-out probabilities, which heed never has in "
            "memory. heed.attention(..., return_lse=True, randval=...) gives the LSE and the random words."
        )
    return return_attn_probs


def _unpack(packed: Any, count: int, name: str, rank: int) -> tuple[Any, ...]:
    """The slices of a packed tensor, in place."""
    shape = tuple(packed.shape)
    if len(shape) != rank or shape[-3] != count:
        raise ValueError(f"{name} has the shape {shape}; it has {rank} dimensions, of which the third last is {count}.")
    return tuple(packed[..., i, :, :] for i in range(count))
