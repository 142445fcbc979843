"""attention() and attention_varlen()."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _native
from ._call import Call, add_outputs, prepare, with_outputs
from ._libraries import library_of

Window = Sequence["int | None"]


def _run(call: Call, return_lse: bool) -> Any:
    if call.seen:
        if call.recorded or call.library.watched(call):
            return call.library.run_recorded(call, return_lse)
        call.seen = False  # it runs like any other
        with call.library.named(call):
            return _run(call, return_lse)
    if call.library.wants_gradient(call.fields):
        return call.library.run_with_gradient(call, return_lse)
    if call.lse is None and "randval" not in call.fields:  # the usual cases, without a list of what was brought
        out = call.out
        tell = None if out is None else library_of(out).check_output(out, "out")
        add_outputs(call, return_lse)
        _native.forward(call.fields, call.bhsd, call.engine, call.stream)
        if tell is not None:
            tell(out)
    else:
        brought = ("out", call.out), ("lse_out", call.lse), ("randval", call.fields.get("randval"))
        add_outputs(call, return_lse)
        with_outputs(brought, _native.forward, call.fields, call.bhsd, call.engine, call.stream)
    return (call.out, call.lse) if return_lse else call.out


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: Window | None = None,
    mask: Any = None,
    block_mask: tuple[Any, int, int] | None = None,
    bias: Any = None,
    alibi_slopes: Any = None,
    sink: Any = None,
    softcap: float = 0.0,
    scale: float | None = None,
    dropout_p: float = 0.0,
    seed: int | None = None,
    offset: int = 0,
    generator: Any = None,
    dropout_state: Any = None,
    randval: Any = None,
    seqlens_q: Any = None,
    seqlens_k: Any = None,
    layout: str = "bshd",
    out: Any = None,
    lse_out: Any = None,
    return_lse: bool = False,
    math: str = "fast",
    deterministic: bool = False,
    dq_accumulation: str = "f32",
    engine: str = "auto",
    stream: int | None = None,
) -> Any:
    """softmax(scale * q k^T + ...) v, of arrays in CPU or GPU memory.

    q is [b, s_q, h, d], k [b, s_k, h_k, d] and v [b, s_k, h_k, d_v], where h is a multiple of h_k; with layout="bhsd" the
    heads come before the sequence. Returns o, shaped like q with v's head dim, or (o, lse) with return_lse=True. Arrays
    are torch tensors, NumPy arrays (bfloat16 from ml_dtypes), or anything with __dlpack__ or __cuda_array_interface__;
    nothing is copied. On a GPU the work is put on torch's current stream of q's device. Gradients of torch tensors flow to q, k,
    v, bias, alibi_slopes and sink, from o and from lse.

    causal          the last query sees every key (bottom-right, as in FlashAttention)
    window          (left, right) or (left, right, sink keys): so many keys before and behind the diagonal; -1: all
    mask            a boolean array that broadcasts to [b, h, s_q, s_k], True = keep; or a heed.Mask, or its text ("t:4,0")
    block_mask      (keep, block_q, block_k): one boolean for each block of queries by keys
    bias            added to the scores; float32 or q's type, broadcasts to [b, h, s_q, s_k]
    alibi_slopes    float32 [h] or [b, h]
    sink            float32 [h]: one more logit in each row's denominator
    softcap         scores become cap * tanh(score / cap); 0: off
    scale           None: 1 / sqrt(d)
    dropout_p       probability of losing an entry; seed= (and offset=), generator= or dropout_state= (int64 [seed, offset],
                    read when it runs) say where randomness comes from; without them torch's default generator does
    randval         a uint16 array [b, h, s_q, s_k] that receives the random word of every entry
    seqlens_q, _k   int32 or int64 [b]: how many rows of each batch entry count
    out, lse_out    arrays to write into
    return_lse      also return the log-sum-exp, float32 [b, h, s_q], natural logarithm
    math            "fast", or "accurate": every product in float32
    deterministic   gradients are the same bits in every run, or backward() refuses; o and lse always are
    dq_accumulation "f32", or q's own type of 16 bits ("f16", "bf16"): the gradient of q may be summed up in it, which is faster
    engine          "auto" (where q lies), "cpu" or "cuda"
    stream          a CUDA stream as a number, for arrays that are not torch's
    """
    call = prepare(
        q,
        k,
        v,
        causal,
        window,
        mask,
        block_mask,
        bias,
        alibi_slopes,
        sink,
        softcap,
        scale,
        dropout_p,
        seed,
        offset,
        generator,
        dropout_state,
        randval,
        seqlens_q,
        seqlens_k,
        None,  # cu_seqlens_q
        None,  # cu_seqlens_k
        None,  # max_seqlen_q
        None,  # max_seqlen_k
        layout,
        out,
        lse_out,
        math,
        deterministic,
        dq_accumulation,
        engine,
        stream,
    )
    return _run(call, return_lse)


def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    *,
    causal: bool = False,
    window: Window | None = None,
    mask: Any = None,
    block_mask: tuple[Any, int, int] | None = None,
    bias: Any = None,
    alibi_slopes: Any = None,
    sink: Any = None,
    softcap: float = 0.0,
    scale: float | None = None,
    dropout_p: float = 0.0,
    seed: int | None = None,
    offset: int = 0,
    generator: Any = None,
    dropout_state: Any = None,
    randval: Any = None,
    seqlens_q: Any = None,
    seqlens_k: Any = None,
    out: Any = None,
    lse_out: Any = None,
    return_lse: bool = False,
    math: str = "fast",
    deterministic: bool = False,
    dq_accumulation: str = "f32",
    engine: str = "auto",
    stream: int | None = None,
) -> Any:
    """attention() of sequences of their own lengths, packed one behind the other.

    q is [total_q, h, d], k [total_k, h_k, d] and v [total_k, h_k, d_v]. cu_seqlens_q and cu_seqlens_k, int32 or int64
    [b + 1], hold the first row of each sequence and, last, the end. max_seqlen_q and max_seqlen_k tell that none is longer:
    on a GPU nobody reads the lists before the kernel does, and without them more is launched than needed. seqlens_q and
    seqlens_k, [b], say how many rows of each sequence count, where that is fewer. Masks and ALiBi use each sequence's own
    lengths; bias and boolean masks are indexed from its own first row. The LSE is [h, total_q]. Rows of the output that
    belong to no sequence are not written. Everything else is as in attention().
    """
    if cu_seqlens_q is None and cu_seqlens_k is None:
        raise TypeError("cu_seqlens_q and cu_seqlens_k say where each sequence begins; neither may be None.")
    call = prepare(
        q,
        k,
        v,
        causal,
        window,
        mask,
        block_mask,
        bias,
        alibi_slopes,
        sink,
        softcap,
        scale,
        dropout_p,
        seed,
        offset,
        generator,
        dropout_state,
        randval,
        seqlens_q,
        seqlens_k,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        "bshd",
        out,
        lse_out,
        math,
        deterministic,
        dq_accumulation,
        engine,
        stream,
    )
    return _run(call, return_lse)
