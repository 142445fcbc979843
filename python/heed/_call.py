"""From what a caller says to what the library is told: the one place where options of the Python interface are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any

from . import _mask, _native
from ._libraries import Library, library_of
from ._mask import Mask, mask_of

ENGINES = {"auto": 0, "cpu": 1, "cuda": 2}
MATHS = {"fast": 0, "accurate": 1}
#: What dQ is summed up in, by its name, and its heed_dq_accumulation.
ACCUMULATIONS = {"f32": 0, "f16": 1, "bf16": 1}
LAYOUTS = {"bshd": False, "bhsd": True}


class Call:
    """Arguments as heed._native takes them, and the arrays that it will write."""

    __slots__ = (
        "bhsd",
        "deterministic",
        "dq_accumulation",
        "engine",
        "fields",
        "library",
        "lse",
        "out",
        "recorded",
        "seen",
        "stream",
    )

    def __init__(self, q: Any, k: Any, v: Any, layout: str, engine: str, stream: int | None) -> None:
        self.library: Library = library_of(q)
        self.bhsd: bool = layout != "bshd" and choice(LAYOUTS, layout, "layout")
        self.engine: int = 0 if engine == "auto" else choice(ENGINES, engine, "engine")
        self.seen: bool = self.library.seen(q)
        self.recorded: bool = self.seen and self.library.recorded(q)
        self.stream: int | None = None if self.recorded else self.library.stream(q, stream)
        self.fields: dict[str, Any] = {"q": q, "k": k, "v": v}
        self.deterministic: bool = False
        self.dq_accumulation: int = 0
        self.out: Any = None
        self.lse: Any = None


def prepare(
    q: Any,
    k: Any,
    v: Any,
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
    seed: int | None = None,
    offset: int = 0,
    generator: Any = None,
    dropout_state: Any = None,
    randval: Any = None,
    seqlens_q: Any = None,
    seqlens_k: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    layout: str = "bshd",
    out: Any = None,
    lse_out: Any = None,
    math: str = "fast",
    deterministic: bool = False,
    dq_accumulation: str = "f32",
    engine: str = "auto",
    stream: int | None = None,
    **unknown: Any,
) -> Call:
    """Everything that attention() and attention_varlen() can be told. Outputs are not made yet.

    Those two pass everything by place, in this order: thirty names cost a microsecond.
    """
    if unknown:
        names = ", ".join(f"{name}=" for name in unknown)
        raise TypeError(f"{names}: heed knows no such argument; it takes those of attention() and attention_varlen().")
    call = Call(q, k, v, layout, engine, stream)
    call.out, call.lse, call.deterministic = out, lse_out, bool(deterministic)
    fields = call.fields
    if causal or window is not None or mask is not None:
        _mask_fields(fields, causal, window, mask)
    if block_mask is not None:
        if not isinstance(block_mask, (tuple, list)) or len(block_mask) != 3:
            got = f"{len(block_mask)} things" if isinstance(block_mask, (tuple, list)) else type(block_mask)
            raise TypeError(f"block_mask is {got}: it is (keep, block_q, block_k), booleans and the size of their blocks.")
        fields["block_mask"], fields["block_q"], fields["block_k"] = block_mask
    if bias is not None:
        fields["bias"] = bias
    if alibi_slopes is not None:
        fields["alibi_slopes"] = alibi_slopes
    if sink is not None:
        fields["sink"] = sink
    if type(softcap) is not float:
        _check_number(softcap, "softcap")
    if softcap:
        fields["soft_cap"] = softcap
    if scale is not None:
        if type(scale) is not float:
            _check_number(scale, "scale")
        if scale == 0:
            raise ValueError("scale = 0 would make all scores equal; leave it out, or pass None, for 1 / sqrt(d).")
        fields["scale"] = scale
    if type(dropout_p) is not float:
        _check_number(dropout_p, "dropout_p")
    if dropout_p or randval is not None:
        _dropout_fields(call, dropout_p, seed, offset, generator, dropout_state, randval)
    elif seed is not None or offset or generator is not None or dropout_state is not None:
        raise ValueError("seed, offset, generator and dropout_state belong to dropout, but dropout_p is 0.")
    if seqlens_q is not None:
        fields["seqlen_q"] = seqlens_q
    if seqlens_k is not None:
        fields["seqlen_k"] = seqlens_k
    if cu_seqlens_q is not None or cu_seqlens_k is not None:
        if cu_seqlens_q is None or cu_seqlens_k is None:
            raise TypeError("cu_seqlens_q and cu_seqlens_k say where each sequence begins: both are needed.")
        if call.bhsd:
            raise ValueError("packed sequences have one layout, (total, heads, head dim); leave out layout.")
        fields["seqstart_q"], fields["seqstart_k"] = cu_seqlens_q, cu_seqlens_k
        # Whether a number is 0 a compiler may not be able to tell that knows it when the program runs.
        fields["max_s_q"] = 0 if max_seqlen_q is None else max_seqlen_q
        fields["max_s_k"] = 0 if max_seqlen_k is None else max_seqlen_k
    if math != "fast":
        fields["math"] = choice(MATHS, math, "math")
    if dq_accumulation != "f32":
        call.dq_accumulation = _accumulation(call, dq_accumulation)
    return call


def add_outputs(call: Call, want_lse: bool) -> None:
    """Makes what the caller did not bring: o, q's shape with v's head dim; lse [b, h, s_q] or [h, total_q]."""
    fields = call.fields
    q = fields["q"]
    if call.out is None:
        call.out = call.library.empty_output(q, _head_dim(fields["v"]))
    fields["o"] = call.out
    if want_lse and call.lse is None:
        shape = call.library.shape(q, "q")
        if len(shape) != (3 if "seqstart_q" in fields else 4):
            raise ValueError(f"q has the shape {tuple(shape)}: it has four dimensions, or three for packed sequences.")
        call.lse = call.library.empty_f32(q, lse_shape(shape, call.bhsd))
    if call.lse is not None:
        fields["lse"] = call.lse


def with_outputs(brought: Iterable[tuple[str, Any]], function: Callable[..., None], *arguments: Any) -> None:
    """Calls a function that writes into arrays which the caller brought (or None), and lets their libraries know."""
    to_tell = []
    for name, array in brought:
        if array is not None:
            tell = library_of(array).check_output(array, name)
            if tell is not None:
                to_tell.append((tell, array))
    function(*arguments)
    for tell, array in to_tell:
        tell(array)


def _head_dim(v: Any) -> int:
    try:
        d_v: int = v.shape[-1]
    except (AttributeError, IndexError):  # an object that speaks DLPack alone, or no array: that is told by name
        d_v = _native.describe(v, "v")[1][-1]
    return d_v


def lse_shape(shape: tuple[int, ...], bhsd: bool) -> tuple[int, ...]:
    if len(shape) == 3:
        return (shape[1], shape[0])
    return shape[:3] if bhsd else (shape[0], shape[2], shape[1])


def choice(choices: dict[str, Any], value: Any, name: str) -> Any:
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise ValueError(f"{name} = {value!r}: it is one of {', '.join(map(repr, choices))}.") from None


def _check_number(value: Any, name: str) -> None:
    """An array may be more than a number."""
    if isinstance(value, (int, float)) or value is None:
        return
    if hasattr(value, "shape") and any(size != 1 for size in value.shape):
        raise TypeError(f"{name} is an array of the shape {tuple(value.shape)}: it is one number, for all heads.")
    if hasattr(value, "requires_grad"):
        library_of(value).check_number(value, name)


def _accumulation(call: Call, told: str) -> int:
    accumulation: int = choice(ACCUMULATIONS, told, "dq_accumulation")
    own = call.library.type_name(call.fields["q"])
    if told != own:
        would = " alone" if own not in ACCUMULATIONS or own == "f32" else f" or in q's own type, {own!r}"
        raise ValueError(f"dq_accumulation = {told!r} where q is {own}: dQ is summed up in 'f32'{would}.")
    return accumulation


def _mask_fields(fields: dict[str, Any], causal: bool, window: Sequence[int | None] | None, mask: Any) -> None:
    shape = mask_of(causal, window, mask)
    if mask is not None and not isinstance(mask, (str, Mask)):
        fields["bool_mask"] = mask
    if shape.kind != _mask.NONE:
        fields["mask_kind"], fields["mask_left"], fields["mask_right"], fields["mask_sink"] = shape


def _whole(value: Any, name: str) -> int:
    """NumPy's and torch's whole numbers, too."""
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{name} is {type(value)}: it is a whole number from 0 to 2^64 - 1.") from None


def _dropout_fields(
    call: Call, dropout_p: float, seed: int | None, offset: int, generator: Any, dropout_state: Any, randval: Any
) -> None:
    fields = call.fields
    if (seed is not None) + (generator is not None) + (dropout_state is not None) > 1:
        raise ValueError("seed, generator and dropout_state: each says where random numbers come from; pass one.")
    if dropout_state is not None and offset:
        raise ValueError("dropout_state holds the offset already; leave out offset.")
    fields["dropout_p"] = dropout_p
    fields["randval"] = randval
    if seed is None and dropout_state is None and (call.recorded or call.library.capturing(fields["q"])):
        # A number drawn now would be part of the program or of the CUDA graph, and the same whenever that runs.
        dropout_state = call.library.draw_state(fields["q"], generator)
    if dropout_state is not None:
        fields["dropout_state"] = dropout_state
        return
    if seed is None:
        seed = call.library.draw_seed(generator)
    seed, offset = _whole(seed, "seed"), _whole(offset, "offset")
    if not 0 <= seed < 2**64 or not 0 <= offset < 2**64:
        raise ValueError(f"seed = {seed}, offset = {offset}: they are whole numbers from 0 to 2^64 - 1.")
    fields["dropout_seed"], fields["dropout_offset"] = seed, offset
