"""What is to be computed: a value without arrays."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from . import _native
from ._backward import pose_without_results
from ._call import ACCUMULATIONS, LAYOUTS, Call, add_outputs, choice, prepare
from ._mask import BOTTOM_RIGHT, NONE, RAW, Mask

OPERATIONS = {"forward": False, "backward": True}
DIMENSIONS = ("b", "h", "s_q", "s_k")


class Problem(NamedTuple):
    """A problem, for plan(), explain() and prewarm(), before there is any memory.

        heed.Problem(type="bf16", batch=2, heads=(32, 8), lengths=4096, head_dims=128, mask="b", lse=True)

    Pairs may be told as one number for both. `bias`, `bool_mask` and `block_mask` name the dimensions that the array has
    itself ("h s_q s_k"); the others are broadcast.
    """

    type: str = "f16"  #: of q, k, v: f32, f16, bf16
    output_type: str | None = None  #: None: as type
    mode: str = "batch"  #: or "group": packed sequences of their own lengths
    batch: int = 1
    heads: int | tuple[int, int] = 1  #: of q, of k and v
    lengths: int | tuple[int, int] = 1  #: s_q, s_k; group mode: the longest of each
    total_rows: tuple[int, int] = (0, 0)  #: group mode: rows of q, of k and v
    logical_lengths: tuple[bool, bool] = (False, False)  #: seqlens_q, seqlens_k will be given
    head_dims: int | tuple[int, int] = 64  #: d, d_v
    layout: str = "bshd"
    mask: str | Mask = "n"
    bool_mask: str | None = None
    block_mask: tuple[str, int, int] | None = None  #: dimensions, block_q, block_k
    bias: str | None = None
    bias_type: str = "f32"
    alibi: str = "none"  #: per_head, per_batch_and_head
    sink: bool = False
    softcap: float = 0.0
    scale: float | None = None
    dropout: float = 0.0
    randval: bool = False
    lse: bool = False
    math: str = "fast"
    operation: str = "forward"  #: or "backward", which has an LSE; what follows is of the backward pass
    d_lse: bool = False  #: the LSE has a gradient of its own
    dbias: str | None = None  #: its type, where it is asked for
    dsink: bool = False
    dslopes: bool = False
    deterministic: bool = False  #: the same bits in every run
    dq_accumulation: str = "f32"  #: or the type of q, where that has 16 bits: dQ may be summed up in it

    def replace(self, **changes: Any) -> Problem:
        """The same problem but for these fields."""
        return self._replace(**changes)

    def to_json(self) -> str:
        """As heed_problem_json writes it, and `heed` reads it."""
        h, h_k = _pair(self.heads, "heads")
        s_q, s_k = _pair(self.lengths, "lengths")
        d, d_v = _pair(self.head_dims, "head_dims")
        choice(LAYOUTS, self.layout, "layout")
        told: dict[str, Any] = {
            "type": self.type,
            "mode": self.mode,
            "batch": self.batch,
            "heads_q": h,
            "heads_k": h_k,
            "s_q": s_q,
            "s_k": s_k,
            "total_q": self.total_rows[0],
            "total_k": self.total_rows[1],
            "logical_q": self.logical_lengths[0],
            "logical_k": self.logical_lengths[1],
            "d": d,
            "d_v": d_v,
            "layout": self.layout,
            "mask": _mask_text(self.mask),
            "alibi": self.alibi,
            "sink": self.sink,
            "soft_cap": self.softcap,
            "dropout": self.dropout,
            "randval": self.randval,
            "lse": self.lse,
            "math": self.math,
        }
        gradients = {
            "d_lse": self.d_lse,
            "dbias": self.dbias,
            "dsink": self.dsink,
            "dslopes": self.dslopes,
            "deterministic": self.deterministic,
        }
        if choice(OPERATIONS, self.operation, "operation"):
            accumulate = self.dq_accumulation
            choice(ACCUMULATIONS, accumulate, "dq_accumulation")
            told |= {"operation": "backward", "lse": True, "accumulate": accumulate, **gradients}
        elif any(gradients.values()) or self.dq_accumulation != "f32":
            gradients["dq_accumulation"] = self.dq_accumulation != "f32"
            asked = ", ".join(name for name, value in gradients.items() if value)
            raise ValueError(f"{asked}: of the backward pass, and operation is 'forward'.")
        if self.output_type is not None:
            told["output_type"] = self.output_type
        if self.scale is not None:
            told["scale"] = self.scale
        if self.bias is not None:
            told["bias"] = {"type": self.bias_type, "shape": _dimensions(self.bias, "bias")}
        if self.bool_mask is not None:
            told["bool_mask"] = {"shape": _dimensions(self.bool_mask, "bool_mask")}
        if self.block_mask is not None:
            shape, block_q, block_k = self.block_mask
            told["block_mask"] = {"shape": _dimensions(shape, "block_mask"), "block_q": block_q, "block_k": block_k}
        return json.dumps(told)

    @staticmethod
    def json_of(q: Any, k: Any, v: Any, *, operation: str = "forward", **options: Any) -> str:
        """The JSON of the problem that these arguments of attention() or attention_varlen() pose, strides included; or of its
        backward pass, with the options of plan()."""
        call, gradients = call_of(q, k, v, operation, options)
        return _native.problem_json(call.fields, gradients, call.bhsd)


def call_of(q: Any, k: Any, v: Any, operation: str, options: dict[str, Any]) -> tuple[Call, dict[str, Any] | None]:
    """What attention() would be called with, and its backward pass where that is meant."""
    if choice(OPERATIONS, operation, "operation"):
        return pose_without_results(q, k, v, options)
    want_lse = bool(options.pop("return_lse", False))
    call = prepare(q, k, v, **options)
    add_outputs(call, want_lse)
    return call, None


def _pair(value: Any, name: str) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return value[0], value[1]
    raise ValueError(f"{name} = {value!r}: it is a number, or two.")


def _dimensions(text: str, name: str) -> list[str]:
    words = text.split()
    if any(word not in DIMENSIONS for word in words):
        raise ValueError(f"{name} = {text!r}: it names the dimensions that the array has, of {' '.join(DIMENSIONS)}.")
    return words


def _mask_text(mask: str | Mask) -> str:
    if isinstance(mask, str):
        return mask
    if mask.kind == NONE:
        return "n"
    if mask.kind == RAW:
        return f"g:{mask.left},{mask.right}"
    sink = f",{mask.sink_keys}" if mask.sink_keys else ""
    return f"{'b' if mask.kind == BOTTOM_RIGHT else 't'}:{mask.left},{mask.right}{sink}"
