"""Attention and its gradients in NumPy, written to be read: a second opinion on the C++ oracle, and the yardstick of
heed.Validator.

It shares no code with the library. docs/semantics.md is the contract; one function here is one step of it.
"""

from __future__ import annotations

import math as _math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._backward import Gradients
from ._mask import Mask, mask_of

#: What an option may be.
WORDS = {"layout": ("bshd", "bhsd"), "math": ("fast", "accurate"), "precision": ("exact", "plain", "sizes")}


def attention(q: Any, k: Any, v: Any, *, precision: str = "exact", **options: Any) -> tuple[Any, Any]:
    """(o, lse) of heed.attention() or, with cu_seqlens_q, heed.attention_varlen(). Rows of no sequence are NaN.

    precision: "exact" computes in float64, whatever `math` says; "plain" as a straightforward program would: in float32,
    with P rounded to q's type (unless math is "accurate"), and o to q's type.
    """
    formula = Formula(q, k, v, precision=precision, **options)
    o = np.full((*formula.q.shape[:-1], formula.v.shape[-1]), np.nan, formula.real)
    heads, rows = formula.q.shape[-2], formula.q.shape[-3]
    lse = np.full((heads, rows) if formula.packed else (len(formula.q), heads, rows), np.nan, formula.real)
    for head in formula.heads():
        o[head.rows] = weighted(head.weights, formula.v[head.columns], head.kept)
        lse[head.of_lse] = head.lse
    return formula.given_back(o, formula.input_type), lse


def attention_backward(
    q: Any, k: Any, v: Any, d_o: Any, *, d_lse: Any = None, precision: str = "exact", **options: Any
) -> Gradients:
    """The gradients of sum(o * d_o) (+ sum(lse * d_lse)). Rows of no sequence are NaN.

    precision: as in attention(), where "plain" rounds dS as it does P; "sizes" adds up the absolute values of all terms, in
    float64: what rounding errors are in proportion to.
    """
    formula = Formula(q, k, v, precision=precision, **options)
    real = formula.real
    o = formula.turned(attention(q, k, v, precision="plain" if precision == "plain" else "exact", **options)[0])
    d_o = formula.turned(d_o)
    sizes = precision == "sizes"
    size: Any = np.abs if sizes else np.asarray
    dq, dk, dv = (np.full(each.shape, np.nan, real) for each in (formula.q, formula.k, formula.v))
    given = (formula.bias, formula.sink, formula.alibi_slopes)
    dbias, dsink, dslopes = (None if each is None else np.zeros(np.shape(each), real) for each in given)
    for head in formula.heads():
        its_q, its_k, its_v = formula.q[head.rows], formula.k[head.columns], formula.v[head.columns]
        its_d_o = d_o[head.rows]
        delta = size(its_d_o * o[head.rows]).sum(1)  # D = rows of dO * O, minus dLSE
        if d_lse is not None:
            of_lse = np.asarray(d_lse)[head.of_lse].astype(real)
            delta = delta + np.abs(of_lse) if sizes else delta - of_lse
        with np.errstate(invalid="ignore"):  # a row of V that a query does not see may hold anything
            d_p = np.where(head.kept, size(its_d_o) @ size(its_v).T * head.growth, 0)
        d_s = np.where(head.seen, head.p * (d_p + delta[:, None] if sizes else d_p - delta[:, None]), 0)
        d_logits = formula.round(d_s * head.cap_slope)
        dq[head.rows] = formula.scale * weighted(d_logits, size(its_k), head.seen)
        if head.first_of_group:
            dk[head.columns] = dv[head.columns] = 0
        dk[head.columns] += formula.scale * weighted(d_logits.T, size(its_q), head.seen.T)
        dv[head.columns] += weighted(head.weights.T, size(its_d_o), head.kept.T)
        if dbias is not None:
            add_to(dbias, head.b, head.h, d_s)
        if dslopes is not None:
            dslopes[head.h if dslopes.ndim == 1 else (head.b, head.h)] += size(-d_s * head.distance).sum()
        if dsink is not None and np.isfinite(formula.sink[head.h]):
            dsink[head.h] += size(-np.exp(real(formula.sink[head.h]) - head.lse) * delta).sum()
    if sizes:
        dq, dk = np.abs(dq), np.abs(dk)  # the scale may be negative
    dq, dk, dv = (formula.given_back(each, formula.input_type) for each in (dq, dk, dv))
    return Gradients(dq, dk, dv, dbias, dsink, dslopes)


class Head(NamedTuple):
    """One head of one sequence, [s_q, s_k] unless told otherwise."""

    b: int
    h: int
    rows: Any  #: index of its rows in q and o
    columns: Any  #: index of its rows in k and v
    of_lse: Any  #: index of its rows in the LSE
    first_of_group: bool  #: of the heads that share k and v
    p: Any  #: softmax
    weights: Any  #: P after dropout, rounded
    growth: Any  #: what dropout has made of each entry: 0 or 1 / (1 - p)
    cap_slope: Any  #: derivative of the soft cap
    distance: Any  #: of query and key, for ALiBi
    seen: Any  #: scores above -inf
    kept: Any  #: and not dropped
    lse: Any  #: [s_q]


class Formula:
    """The options of heed.attention(), and the scores and weights that follow from them."""

    def __init__(
        self,
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
        dq_accumulation: str = "f32",
        precision: str = "exact",
    ) -> None:
        for name, value in (("layout", layout), ("math", math), ("precision", precision)):
            if value not in WORDS[name]:
                raise ValueError(f"{name} = {value!r}: it is one of {', '.join(map(repr, WORDS[name]))}.")
        self.real: Any = np.float32 if precision == "plain" else np.float64
        self.plain = precision == "plain"
        self.input_type = np.asarray(q).dtype
        self.rounded = self.input_type if self.plain and math == "fast" else None
        self.packed = cu_seqlens_q is not None
        self.swapped = layout == "bhsd" and not self.packed
        self.q, self.k, self.v = (self.turned(each) for each in (q, k, v))
        self.lists = (cu_seqlens_q, cu_seqlens_k, seqlens_q, seqlens_k)
        self.shape = mask_of(causal, window, mask)
        self.keep = None if isinstance(mask, (str, Mask)) else mask
        self.block_mask, self.bias, self.alibi_slopes, self.sink = block_mask, bias, alibi_slopes, sink
        self.softcap = self.real(softcap)
        self.scale = self.real(1 / _math.sqrt(self.q.shape[-1]) if scale is None else scale)
        self.dropout_p, self.seed, self.offset = dropout_p, seed, offset

    def turned(self, array: Any) -> Any:
        """As [b, s, h, d], in the type that is computed in."""
        array = np.asarray(array).astype(self.real)
        return array.swapaxes(1, 2) if self.swapped else array

    def given_back(self, array: Any, kind: Any) -> Any:
        array = array.swapaxes(1, 2) if self.swapped else array
        return array.astype(kind) if self.plain else array

    def round(self, array: Any) -> Any:
        """Weights, to the type of the inputs."""
        return array if self.rounded is None else array.astype(self.rounded).astype(self.real)

    def heads(self) -> Iterator[Head]:
        count = self.q.shape[-2]
        group = count // max(self.k.shape[-2], 1)
        for b, at_q, at_k in sequences(self.q, self.k, *self.lists):
            for h in range(count):
                rows = (at_q, h) if self.packed else (b, at_q, h)
                columns = (at_k, h // group) if self.packed else (b, at_k, h // group)
                of_lse = (h, at_q) if self.packed else (b, h, at_q)
                yield Head(b, h, rows, columns, of_lse, h % group == 0, *self.scores(b, h, self.q[rows], self.k[columns]))

    def scores(self, b: int, h: int, q: Any, k: Any) -> tuple[Any, ...]:
        """The last fields of a Head."""
        real = self.real
        s = q @ k.T * self.scale
        s_q, s_k = s.shape
        cap_slope: Any = 1
        if self.softcap:
            t = np.tanh(s / self.softcap)
            s, cap_slope = self.softcap * t, 1 - t * t
        if self.bias is not None:
            s = s + part(self.bias, b, h, s_q, s_k).astype(real)
        distance = np.abs(np.arange(s_q)[:, None] + (s_k - s_q) - np.arange(s_k)[None, :]).astype(real)
        if self.alibi_slopes is not None:
            slope = np.asarray(self.alibi_slopes, real)
            s = s - (slope[h] if slope.ndim == 1 else slope[b, h]) * distance
        visible = self.shape.visible(s_q, s_k)
        if self.keep is not None:
            visible = visible & (part(self.keep, b, h, s_q, s_k) != 0)
        if self.block_mask is not None:
            visible = visible & blocks(self.block_mask, b, h, s_q, s_k)
        s = np.where(visible, s, -np.inf).astype(real)
        p, lse = softmax(s, None if self.sink is None else real(np.asarray(self.sink)[h]))
        kept = seen = s != -np.inf
        growth: Any = real(1)
        if self.dropout_p:
            word = words(self.seed, self.offset, b * self.q.shape[-2] + h, s_q, s_k)
            kept = seen & (word >= int(self.dropout_p * 65536 + 0.5))
            growth = np.where(kept, real(1 / (1 - self.dropout_p)), real(0))
        return p, self.round(np.where(kept, p * growth, 0)), growth, cap_slope, distance, seen, kept, lse


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


def add_to(gradient: Any, b: int, h: int, plane: Any) -> None:
    """Adds [s_q, s_k] to the gradient of something that was broadcast to [b, h, s_q, s_k]."""
    wide = gradient.reshape((1,) * (4 - gradient.ndim) + gradient.shape)
    its = wide[b if wide.shape[0] > 1 else 0, h if wide.shape[1] > 1 else 0]
    if its.shape[0] == 1:
        plane = plane.sum(0, keepdims=True)
    if its.shape[1] == 1:
        plane = plane.sum(1, keepdims=True)
    its[: plane.shape[0], : plane.shape[1]] += plane


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
