"""Attention in NumPy, written to be read: a second opinion on the C++ oracle, and the yardstick of heed.Validator.

It shares no code with the library. docs/semantics.md is the contract; one function here is one step of it.
"""

from __future__ import annotations

import math as _math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ._mask import Mask


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: Sequence[int | None] | None = None,
    mask: Any = None,
    block_mask: tuple[Any, int, int] | None = None,
    bias: Any = None,
    alibi_slopes: Any = None,
    sink: Any = None,
    softcap: float = 0.0,
    scale: float | None = None,
    dropout_p: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    seqlens_q: Any = None,
    seqlens_k: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    layout: str = "bshd",
    math: str = "fast",
    deterministic: bool = False,
    precision: str = "exact",
) -> tuple[Any, Any]:
    """(o, lse) of heed.attention() or, with cu_seqlens_q, heed.attention_varlen(). Rows of no sequence are NaN.

    precision: "exact" computes in float64, whatever `math` says; "plain" as a straightforward program would: in float32,
    with P rounded to q's type (unless math is "accurate"), and o to q's type.
    """
    real: Any = np.float64 if precision == "exact" else np.float32
    input_type = np.asarray(q).dtype
    rounded = input_type if precision == "plain" and math == "fast" else None
    q, k, v = (np.asarray(each).astype(real) for each in (q, k, v))
    packed = cu_seqlens_q is not None
    if layout == "bhsd" and not packed:
        q, k, v = (each.swapaxes(1, 2) for each in (q, k, v))
    heads, d = q.shape[-2:]
    group = heads // max(k.shape[-2], 1)
    shape = visible_shape(causal, window, mask)
    keep = None if isinstance(mask, (str, Mask)) else mask
    o = np.full((*q.shape[:-1], v.shape[-1]), np.nan, real)
    lse = np.full((heads, q.shape[0]) if packed else (q.shape[0], heads, q.shape[1]), np.nan, real)
    for b, at_q, at_k in sequences(q, k, cu_seqlens_q, cu_seqlens_k, seqlens_q, seqlens_k):
        for h in range(heads):
            rows = (at_q, h) if packed else (b, at_q, h)
            columns = (at_k, h // group) if packed else (b, at_k, h // group)
            s = q[rows] @ k[columns].T * real(1 / _math.sqrt(d) if scale is None else scale)  # [s_q, s_k]
            s_q, s_k = s.shape
            if softcap:
                s = real(softcap) * np.tanh(s / real(softcap))
            if bias is not None:
                s = s + part(bias, b, h, s_q, s_k).astype(real)
            if alibi_slopes is not None:
                slope = np.asarray(alibi_slopes, real)
                distance = np.abs(np.arange(s_q)[:, None] + (s_k - s_q) - np.arange(s_k)[None, :])
                s = s - (slope[h] if slope.ndim == 1 else slope[b, h]) * distance.astype(real)
            visible = shape.visible(s_q, s_k)
            if keep is not None:
                visible = visible & (part(keep, b, h, s_q, s_k) != 0)
            if block_mask is not None:
                visible = visible & blocks(block_mask, b, h, s_q, s_k)
            s = np.where(visible, s, -np.inf).astype(real)
            p, row_lse = softmax(s, None if sink is None else real(np.asarray(sink)[h]))
            if dropout_p:
                lost = words(seed, offset, b * heads + h, s_q, s_k) < int(dropout_p * 65536 + 0.5)
                p = np.where(lost, 0, p / real(1 - dropout_p))
                visible = visible & ~lost
            if rounded is not None:
                p = p.astype(rounded).astype(real)
            o[rows] = weighted(p, v[columns], visible & (s != -np.inf))
            lse[(h, at_q) if packed else (b, h, at_q)] = row_lse
    if layout == "bhsd" and not packed:
        o = o.swapaxes(1, 2)
    return (o.astype(input_type) if precision == "plain" else o), lse


def visible_shape(causal: bool, window: Sequence[int | None] | None, mask: Any) -> Mask:
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, str):
        return Mask.parse(mask)
    if window is None:
        return Mask.causal() if causal else Mask.none()
    left, right = (-1 if each is None else each for each in window[:2])
    return Mask.window(left, 0 if causal else right, (window[2] or 0) if len(window) > 2 else 0)


def sequences(
    q: Any, k: Any, cu_q: Any, cu_k: Any, seqlens_q: Any, seqlens_k: Any
) -> Iterator[tuple[int, slice, slice]]:
    """(batch entry, its rows of q, its rows of k and v)."""
    count = len(q) if cu_q is None else len(cu_q) - 1
    for b in range(count):
        ends = []
        for array, starts, lengths in ((q, cu_q, seqlens_q), (k, cu_k, seqlens_k)):
            begin, end = (0, array.shape[1]) if starts is None else (int(starts[b]), int(starts[b + 1]))
            ends.append(slice(begin, end if lengths is None else begin + int(lengths[b])))
        yield b, ends[0], ends[1]


def part(array: Any, b: int, h: int, s_q: int, s_k: int) -> Any:
    """[s_q, s_k] (or 1 instead) of something that broadcasts to [b, h, s_q, s_k]."""
    array = np.asarray(array)
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    plane = array[b if array.shape[0] > 1 else 0, h if array.shape[1] > 1 else 0]
    return plane[: s_q if plane.shape[0] > 1 else 1, : s_k if plane.shape[1] > 1 else 1]


def blocks(block_mask: tuple[Any, int, int], b: int, h: int, s_q: int, s_k: int) -> Any:
    keep, block_q, block_k = block_mask
    rows, columns = -(-s_q // block_q), -(-s_k // block_k)
    wide = np.broadcast_to(part(keep, b, h, rows, columns) != 0, (rows, columns))
    return wide.repeat(block_q, 0).repeat(block_k, 1)[:s_q, :s_k]


def softmax(s: Any, sink: Any | None) -> tuple[Any, Any]:
    """P and the log-sum-exp of each row. A row without any score has P = 0 and LSE = -inf."""
    top = s.max(1, initial=-np.inf) if sink is None else np.maximum(s.max(1, initial=-np.inf), sink)
    base = np.where(np.isneginf(top), 0, top)  # of an empty row: anything finite
    e = np.exp(s - base[:, None])
    total = e.sum(1) + (0 if sink is None else np.exp(sink - base))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total[:, None] == 0, 0, e / total[:, None]), np.log(total) + base


def weighted(p: Any, v: Any, seen: Any) -> Any:
    """P V, where a row of V that a query does not see may hold anything."""
    if np.isfinite(v).all():
        return p @ v
    return np.where(seen[:, :, None], p[:, :, None] * v[None], 0).sum(1)


def words(seed: int, offset: int, batch_and_head: int, s_q: int, s_k: int) -> Any:
    """The 16-bit random word of each entry [s_q, s_k]: half-words of Philox4x32-10."""
    i, j = np.arange(s_q, dtype=np.uint64)[:, None], np.arange(s_k, dtype=np.uint64)[None, :]
    low = np.uint64(0xFFFFFFFF)
    zero = np.zeros((s_q, s_k), np.uint64)
    counter = [
        zero + (j // 16 * 4 + j % 8 // 2 & low),
        zero + (i // 16 * 8 + i % 8 & low),
        zero + np.uint64(batch_and_head & 0xFFFFFFFF),
        zero + np.uint64(offset & 0xFFFFFFFF),
    ]
    key = [seed & 0xFFFFFFFF, (seed >> 32 ^ offset >> 32) & 0xFFFFFFFF]
    for _ in range(10):
        a, b = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        counter = [
            b >> np.uint64(32) ^ counter[1] ^ np.uint64(key[0]),
            b & low,
            a >> np.uint64(32) ^ counter[3] ^ np.uint64(key[1]),
            a & low,
        ]
        key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
    half = 4 * (i // 8 % 2) + 2 * (j // 8 % 2) + j % 2
    chosen = np.choose((half // 2).astype(np.intp), counter)
    return (chosen >> (half % 2 * 16) & np.uint64(0xFFFF)).astype(np.uint16)
