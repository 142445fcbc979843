"""torch tensors: results are torch tensors on the same device, computed on its current stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
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
    """The quick question before the two that follow."""
    return is_compiling() or count_modes() > 0 or is_tracing() or (type(q) is not torch.Tensor and isinstance(q, FakeTensor))


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
    """Whether a selective checkpoint asks its policy about every operator that runs, and the call can be one: it has tensors
    alone, and writes into none of the caller's. (Other modes see less of it: one that is there in the forward pass and not when a
    checkpoint repeats that would find other tensors kept.)"""
    return (
        call.out is None
        and call.lse is None
        and all(each is None or isinstance(each, (torch.Tensor, int, float)) for each in call.fields.values())
        and call.fields.get("randval") is None
        and _is_active(*CHECKPOINTS)
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


def run_recorded(call: Call, return_lse: bool) -> Any:
    """By an operator of torch, which knows shapes without memory."""
    from . import torch_ops

    fields = {name: value for name, value in call.fields.items() if value is not None}
    if not call.recorded and "dropout_seed" in fields:  # it runs now, and the operator takes both numbers as a tensor
        numbers = [_signed(fields.pop(name)) for name in ("dropout_seed", "dropout_offset")]
        fields["dropout_state"] = torch.tensor(numbers, device=call.fields["q"].device)
    for name in NOT_RECORDED:
        if name in fields:
            raise UnsupportedError(
                f"{name} while torch records a program: what heed takes there comes as a tensor, dropout_state=."
                if name != "randval"
                else "randval is written by heed, which torch's recorded programs do not know of; draw it in eager mode."
            )
    fields["engine"], fields["deterministic"] = call.engine, call.deterministic
    fields["dq_accumulation"] = call.dq_accumulation
    # The backward pass needs it.
    fields["want_lse"] = return_lse or call.lse is not None or wants_gradient(call.fields) is not None
    if "seqstart_q" in fields:
        o, lse = torch_ops.varlen_fwd(**fields)
    else:
        o, lse = torch_ops.fwd(**fields, bhsd=call.bhsd)
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


def wants_gradient(fields: dict[str, Any]) -> str | None:
    if forward_ad._current_level >= 0:
        check_forward_mode(fields)
    if not is_grad_enabled():
        return None
    for name in DIFFERENTIABLE if len(fields) > 3 else OPERANDS:
        # Other libraries' arrays have no such attribute. (Older torch's compiler does not know getattr with a default.)
        if name in fields and isinstance(fields[name], torch.Tensor) and fields[name].requires_grad:
            return name
    return None


def check_forward_mode(fields: dict[str, Any]) -> None:
    """Tangents of dual tensors would be lost: raises where there is one. A program that is recorded cannot ask."""
    for name in DIFFERENTIABLE:
        array = fields.get(name)
        if isinstance(array, torch.Tensor) and (is_compiling() or forward_ad.unpack_dual(array).tangent is not None):
            raise UnsupportedError(
                f"forward-mode differentiation through {name} (torch.autograd.forward_ad, torch.func.jvp): heed computes gradients "
                "in reverse mode alone, by backward() or torch.autograd.grad()."
            )


def run_with_gradient(call: Call, return_lse: bool) -> Any:
    from . import torch_gradients

    return torch_gradients.run(call, return_lse)
