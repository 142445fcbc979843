"""Fused multi-head attention on CPUs and GPUs, for torch tensors, NumPy arrays and whatever speaks DLPack.

    import heed
    o = heed.attention(q, k, v, causal=True)    # [batch, sequence, heads, head dim]

docs/python.md tells the whole interface; docs/semantics.md what exactly is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native
from ._attention import attention, attention_varlen
from ._errors import DeviceError, Error, InternalError, InvalidArgumentError, OutOfMemoryError, UnsupportedError
from ._explain import Candidate, Explanation, explain, kernels
from ._mask import Mask
from ._paths import get_cmake_dir, get_include, get_library_dir
from ._plan import Plan, plan, prewarm
from ._problem import Problem

if TYPE_CHECKING:
    from . import reference
    from ._oracle import oracle
    from ._validator import Report, Validator

__all__ = [
    "Candidate",
    "DeviceError",
    "Error",
    "Explanation",
    "InternalError",
    "InvalidArgumentError",
    "Mask",
    "OutOfMemoryError",
    "Plan",
    "Problem",
    "Report",
    "UnsupportedError",
    "Validator",
    "attention",
    "attention_varlen",
    "explain",
    "get_cmake_dir",
    "get_include",
    "get_library_dir",
    "kernels",
    "oracle",
    "plan",
    "prewarm",
    "reference",
]

__version__: str = _native.version()


def __getattr__(name: str) -> Any:
    """What needs NumPy is imported when it is first asked for: heed itself needs nothing but Python."""
    if name == "reference":
        from importlib import import_module

        return import_module("heed.reference")
    if name == "oracle":
        from ._oracle import oracle as found
    elif name in ("Report", "Validator"):
        from . import _validator

        found = getattr(_validator, name)
    else:
        raise AttributeError(f"module 'heed' has no attribute {name!r}")
    globals()[name] = found
    return found
