"""Fused multi-head attention on CPUs and GPUs, for torch tensors, NumPy arrays and whatever speaks DLPack.

    import heed
    o = heed.attention(q, k, v, causal=True)    # [batch, sequence, heads, head dim]

docs/python.md tells the whole interface; docs/semantics.md what exactly is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native
from ._attention import attention, attention_varlen
from ._backward import Gradients, attention_backward
from ._errors import DeviceError, Error, InternalError, InvalidArgumentError, OutOfMemoryError, UnsupportedError
from ._explain import Candidate, Explanation, explain, kernels
from ._mask import Mask
from ._paths import get_cmake_dir, get_include, get_library_dir
from ._plan import Plan, plan, prewarm
from ._problem import Problem

if TYPE_CHECKING:
    from . import reference
    from ._oracle import oracle, oracle_backward
    from ._validator import Report, Validator

__all__ = [
    "Candidate",
    "DeviceError",
    "Error",
    "Explanation",
    "Gradients",
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
    "attention_backward",
    "attention_varlen",
    "explain",
    "get_cmake_dir",
    "get_include",
    "get_library_dir",
    "kernels",
    "oracle",
    "oracle_backward",
    "plan",
    "prewarm",
    "reference",
]

__version__: str = _native.version()

_WITH_NUMPY = {
    "Report": "heed._validator",
    "Validator": "heed._validator",
    "oracle": "heed._oracle",
    "oracle_backward": "heed._oracle",
    "reference": "heed.reference",
}


def __getattr__(name: str) -> Any:
    """What needs NumPy is imported when it is first asked for: heed itself needs nothing but Python."""
    from importlib import import_module

    if name not in _WITH_NUMPY:
        raise AttributeError(f"module 'heed' has no attribute {name!r}")
    module = import_module(_WITH_NUMPY[name])
    globals()[name] = found = module if name == "reference" else getattr(module, name)
    return found
