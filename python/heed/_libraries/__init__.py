"""What differs between the libraries that arrays come from: how outputs are made, which stream is current, how a seed is
drawn, what a gradient would need. Nothing here imports torch unless an array of torch's came by."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast


class Library(Protocol):
    """One module of this folder."""

    def shape(self, array: Any, name: str) -> tuple[int, ...]: ...

    def type_name(self, array: Any) -> str:
        """Of its elements: "f32", "f16", "bf16"; of others what the library calls them."""

    def empty_output(self, q: Any, d_v: int) -> Any:
        """An array of q's type and shape, but with this head dim, in q's place."""

    def empty_f32(self, like: Any, shape: tuple[int, ...]) -> Any: ...

    def empty_gradient(self, array: Any, name: str, zeros: bool) -> Any:
        """A dense array of its type and shape, in its place."""

    def check_number(self, value: Any, name: str) -> None:
        """Raises where a value that stands for a number is more than that."""

    def check_output(self, array: Any, name: str) -> Callable[[Any], None] | None:
        """Raises where the library could not bear that somebody else writes into it. Returns what tells it afterwards."""

    def bytes(self, like: Any, count: int) -> Any:
        """So many zero bytes in `like`'s place, at an address that is a multiple of 64."""

    def stream(self, array: Any, chosen: int | None) -> int | None:
        """Where to run: the caller's choice, else the stream on which the library works with it now; None: it knows none."""

    def capturing(self, array: Any) -> bool:
        """Whether what the library does with it now goes into a CUDA graph, and is done whenever that is replayed."""

    def draw_seed(self, generator: Any | None) -> int: ...

    def seen(self, q: Any) -> bool:
        """Whether somebody sees what the library computes: a program may be recorded, a call be watched or profiled."""

    def recorded(self, q: Any) -> bool:
        """Whether a program is being recorded."""

    def draw_state(self, q: Any, generator: Any | None) -> Any:
        """An array of two numbers, seed and offset, that the recorded program or the captured CUDA graph will draw."""

    def traced(self, q: Any) -> bool:
        """Whether a program is being recorded by somebody who does not end it before a call that it cannot hold."""

    def watched(self, call: Any) -> bool:
        """Whether somebody sees all that is computed with the library's arrays now, and this call should be seen, too."""

    def run_recorded(self, call: Any, return_lse: bool) -> Any: ...

    def named(self, call: Any) -> AbstractContextManager[Any]:
        """What the library's profiler is to show by the function's name. Asked of calls that are seen and not recorded."""

    def wants_gradient(self, fields: dict[str, Any]) -> str | None:
        """Name of an array through which a gradient is asked for."""

    def run_with_gradient(self, call: Any, return_lse: bool) -> Any: ...


_by_type: dict[type, Library] = {}


def library_of(array: Any) -> Library:
    """Of the array's type, remembered."""
    library = _by_type.get(type(array))
    return _find(type(array)) if library is None else library


def _find(kind: type) -> Library:
    # torch.compile reads this function too, in programs that begin with it: no more than it understands.
    library: Any
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and hasattr(torch, "Tensor") and issubclass(kind, torch.Tensor):
        from . import torch as library

        if torch.compiler.is_compiling():
            # Remembering is a side effect, which no checkpoint inside of a program may have, and which compiles the program again.
            return cast(Library, library)
    elif numpy is not None and issubclass(kind, numpy.ndarray):
        from . import numpy as library
    else:
        from . import other as library
    _by_type[kind] = library
    return cast(Library, library)
