"""torch tensors: results are torch tensors on the same device, computed on its current stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad, profiler
from torch.utils import checkpoint
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from .._errors import UnsupportedError

if TYPE_CHECKING:
    from .._call import Call

is_grad_enabled = torch.is_grad_enabled
increment_version: Callable[[Any], None] = torch.autograd.graph.increment_version
is_compiling: Callable[[], bool] = torch.compiler.is_compiling
is_tracing: Callable[[], bool] = torch._C._is_tracing  # torch.jit.trace
count_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
#: Modes of selective checkpoints, when something runs first and when it is repeated.
CHECKPOINTS = tuple(
    getattr(checkpoint, name)
    for name in ("_CachingTorchDispatchMode", "_CachedTorchDispatchMode")
    if hasattr(checkpoint, name)
)
NOT_RECORDED = ("dropout_seed", "randval")
TYPE_NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
OPERANDS = ("q", "k", "v")
DIFFERENTIABLE = (*OPERANDS, "bias", "alibi_slopes", "sink")


def _current_stream(device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


# What torch's own compiler calls from the code it writes: a number, without the object around it.
_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)
# As there: a fifth of what profiler.record_function costs, and it keeps shapes.
_name_for_profilers: Callable[..., AbstractContextManager[Any]] = torch._C._profiler._RecordFunctionFast


def shape(array: Any, name: str) -> tuple[int, ...]:
    return tuple(array.shape)


def type_name(array: Any) -> str:
    return TYPE_NAMES[array.dtype] if array.dtype in TYPE_NAMES else str(array.dtype)


def empty_output(q: Any, d_v: int) -> Any:
    return torch.empty_like(q) if q.shape[-1] == d_v else q.new_empty((*q.shape[:-1], d_v))


def empty_f32(like: Any, shape: tuple[int, ...]) -> Any:
    return like.new_empty(shape, dtype=torch.float32)


def empty_gradient(array: Any, name: str, zeros: bool) -> Any:
    return (torch.zeros_like if zeros else torch.empty_like)(array, memory_format=torch.contiguous_format)


def check_number(value: Any, name: str) -> None:
    if value.requires_grad and is_grad_enabled():
        works = {
            "scale": "attention(q * scale, k, v, scale=1.0) has one",
            "softcap": "write the scores out where the cap is learnt",
        }.get(name, "it is a number")
        raise TypeError(
            f"{name} is a tensor that requires a gradient, and heed has none for it: {works}. {name}=float({name}) takes it "
            "as it is now."
        )


def check_output(array: Any, name: str) -> Callable[[Any], None]:
    if array.requires_grad and is_grad_enabled():
        raise UnsupportedError(
            f"{name} requires a gradient, and autograd would not know what was written into it: pass {name}.detach(), or call under "
            "torch.no_grad()."
        )
    return increment_version  # whoever has kept it for a backward pass learns that it is another now


def bytes(like: Any, count: int) -> Any:
    # Allocators of CPU tensors align to 64 bytes, those of CUDA tensors to 512.
    return torch.zeros(count, dtype=torch.uint8, device=like.device)


def stream(array: Any, chosen: int | None) -> int | None:
    if chosen is not None:
        # torch would hand the memory of the tensors to others as soon as its own stream is done with it.
        raise ValueError(
            "stream= is for arrays that are not torch's: use torch.cuda.stream(...), heed runs on the current one."
        )
    return _raw_stream(array.get_device()) if array.is_cuda else None


def capturing(array: Any) -> bool:
    if not array.is_cuda:
        return False
    with torch.cuda.device(array.device):  # its current stream is asked, and not that of the current device
        return bool(torch.cuda.is_current_stream_capturing())


def draw_seed(generator: Any | None) -> int:
    _check_generator(generator)
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**63 - 1, (), generator=generator, device=device, dtype=torch.int64))


def seen(q: Any) -> bool:
    """The quick question before those that follow."""
    return (
        is_compiling()
        or count_modes() > 0
        or is_tracing()
        or profiler._is_profiler_enabled
        or (type(q) is not Tensor and isinstance(q, FakeTensor))
    )


def recorded(q: Any) -> bool:
    """Whether a program is being recorded (torch.compile, torch.export, make_fx, torch.jit.trace) or no memory may be touched."""
    return is_compiling() or is_tracing() or isinstance(q, FakeTensor) or _a_mode_records()


def traced(q: Any) -> bool:
    return not is_compiling() and recorded(q)


def _a_mode_records() -> bool:
    from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

    return _is_active(FakeTensorMode, ProxyTorchDispatchMode)


def _is_active(*kinds: type) -> bool:
    return any(isinstance(mode, kinds) for mode in _get_current_dispatch_mode_stack())


def watched(call: Call) -> bool:
    """Whether a mode sees every operator that runs, though no program is recorded, and the call can be one: the policy of a
    selective checkpoint is asked about it, torch's FLOP counter counts it. (With gradients modes but those of checkpoints see
    an operator inside of heed's autograd function, which keeps the same tensors with and without one: a mode may be there in the
    forward pass and not when a checkpoint repeats that.)"""
    return (
        count_modes() > 0
        and can_be_operator(call.fields, call.out, call.lse)
        and (_is_active(*CHECKPOINTS) or wants_gradient(call.fields) is None)
    )


def named(call: Call) -> AbstractContextManager[Any]:
    """While this lasts profilers show what runs by the name of its function."""
    if not profiler._is_profiler_enabled:
        return nullcontext()
    name = "heed.attention_varlen" if "seqstart_q" in call.fields else "heed.attention"
    return _name_for_profilers(name, [each for each in call.fields.values() if isinstance(each, Tensor)])


def can_be_operator(fields: dict[str, Any], *brought: Any) -> bool:
    """An operator takes tensors alone, and writes into none of the caller's."""
    return (
        all(each is None for each in brought)
        and all(each is None or isinstance(each, (Tensor, int, float)) for each in fields.values())
        and fields.get("randval") is None
    )


def draw_state(q: Any, generator: Any | None) -> Any:
    """Seed and offset where the program, or the CUDA graph, will find them when it runs."""
    _check_generator(generator)
    if generator is not None and is_compiling():
        raise UnsupportedError(
            "generator= while torch records a program, which takes none: leave it out (torch's own generator draws in each run), or "
            "draw two numbers before, and pass them as a tensor, dropout_state=."
        )
    device = q.device if generator is None else generator.device
    if device.type != q.device.type and not recorded(q):
        raise ValueError(
            f"generator draws on {device}, and a CUDA graph that captured its numbers would repeat them at every replay: pass "
            "one of q's device, which the graph knows (register_generator_state), or dropout_state=."
        )
    return torch.randint(2**63 - 1, (2,), generator=generator, device=device, dtype=torch.int64).to(q.device)


def _check_generator(generator: Any | None) -> None:
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator is {type(generator)}; with torch tensors it is a torch.Generator.")


def _signed(number: int) -> int:
    """The int64 with the bits of a number below 2^64."""
    return number - 2**64 if number >= 2**63 else number


def operator_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an operator that runs now: it has no None among them, and takes seed and offset as a tensor."""
    fields = {name: value for name, value in fields.items() if value is not None}
    if "dropout_seed" in fields:
        numbers = [_signed(fields.pop(name)) for name in ("dropout_seed", "dropout_offset")]
        fields["dropout_state"] = torch.tensor(numbers, device=fields["q"].device)
    return fields


def run_recorded(call: Call, return_lse: bool) -> Any:
    """By an operator of torch, which knows shapes without memory."""
    fields = {name: value for name, value in call.fields.items() if value is not None}
    if not call.recorded:
        fields = operator_fields(fields)
    for name in NOT_RECORDED:
        if name in fields:
            raise UnsupportedError(
                f"{name} while torch records a program: what heed takes there comes as a tensor, dropout_state=."
                if name != "randval"
                else "randval is written by heed, which torch's recorded programs do not know of; draw it in eager mode."
            )
    # The backward pass needs it.
    o, lse = run_operator(call, fields, return_lse or call.lse is not None or wants_gradient(call.fields) is not None)
    if call.out is not None:
        if call.out.dtype != o.dtype:
            raise UnsupportedError(
                f"out of {call.out.dtype} where q is {o.dtype}, while torch records a program: what the program copies into it has "
                "been rounded to q's type. Leave out= out and convert the result, or call heed in eager mode."
            )
        o = call.out.copy_(o)
    if call.lse is not None:
        lse = call.lse.copy_(lse)
    return (o, lse) if return_lse else o


def run_operator(call: Call, fields: dict[str, Any], want_lse: bool) -> Any:
    from . import torch_flops, torch_ops

    if not is_compiling():
        torch_flops.tell_counters()
    fields["engine"], fields["deterministic"] = call.engine, call.deterministic
    fields["dq_accumulation"], fields["want_lse"] = call.dq_accumulation, want_lse
    if "seqstart_q" in fields:
        return torch_ops.varlen_fwd(**fields)
    return torch_ops.fwd(**fields, bhsd=call.bhsd)


def wants_gradient(fields: dict[str, Any]) -> str | None:
    if forward_ad._current_level >= 0:
        check_forward_mode(fields)
    if not is_grad_enabled():
        return None
    for name in DIFFERENTIABLE if len(fields) > 3 else OPERANDS:
        # Other libraries' arrays have no such attribute. (Older torch's compiler does not know getattr with a default.)
        if name in fields and isinstance(fields[name], Tensor) and fields[name].requires_grad:
            return name
    return None


def check_forward_mode(fields: dict[str, Any]) -> None:
    """Tangents of dual tensors would be lost: raises where there is one. A program that is recorded cannot ask."""
    for name in DIFFERENTIABLE:
        array = fields.get(name)
        if isinstance(array, Tensor) and (is_compiling() or forward_ad.unpack_dual(array).tangent is not None):
            raise UnsupportedError(
                f"forward-mode differentiation through {name} (torch.autograd.forward_ad, torch.func.jvp): heed computes gradients "
                "in reverse mode alone, by backward() or torch.autograd.grad()."
            )


def run_with_gradient(call: Call, return_lse: bool) -> Any:
    from . import torch_gradients

    return torch_gradients.run(call, return_lse)
