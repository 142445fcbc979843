"""Decide once, run many times without allocating."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _native
from ._call import ENGINES, add_outputs, choice, prepare
from ._errors import UnsupportedError
from ._explain import Explanation, call_of, explain
from ._problem import Problem


class Plan:
    """How one problem will be computed. Running it decides, compiles and synchronises nothing; with out= (and lse_out=) it
    allocates nothing either, and a CUDA graph may capture it.

    A plan has one workspace, made at its first run: runs of one plan follow each other. For several streams at once make
    several plans, or bring workspaces of your own (workspace=).
    """

    def __init__(self, handle: _native.PlanHandle, json_or_call: Any, engine: str) -> None:
        self._handle = handle
        self._what = json_or_call
        self._engine = engine
        self.kernel, self.workspace_bytes, self.on_gpu, self.threads = _native.plan_info(handle)
        self._workspace: Any = None

    def __repr__(self) -> str:
        return f"<heed.Plan {self.kernel}, workspace of {self.workspace_bytes} bytes>"

    def run(self, q: Any, k: Any, v: Any, *, return_lse: bool = False, workspace: Any = None, **options: Any) -> Any:
        """As attention(q, k, v, ...) or, with cu_seqlens_q= and the like, attention_varlen(). The arguments must pose the
        plan's problem: other values in arrays of the same shapes and strides."""
        if "engine" in options:
            raise TypeError("run() takes no engine=: the plan was made for one.")
        call = prepare(q, k, v, **options)
        differentiated = call.library.wants_gradient(call.fields)
        if differentiated:
            raise UnsupportedError(
                f"a gradient through {differentiated} is asked for (its requires_grad is set, and gradients are enabled), and a "
                "plan computes the forward pass alone. Run it under torch.no_grad(), or call attention()."
            )
        add_outputs(call, return_lse)
        if workspace is None and self.workspace_bytes:
            if self._workspace is None:
                self._workspace = call.library.bytes(q, self.workspace_bytes)
            workspace = self._workspace
        _native.plan_run(self._handle, call.fields, call.bhsd, workspace, call.stream)
        return (call.out, call.lse) if return_lse else call.out

    def explain(self) -> Explanation:
        """Why this kernel."""
        return explain(self._what, engine=self._engine) if isinstance(self._what, Problem) else self._what


def plan(
    what: Any, k: Any = None, v: Any = None, *, engine: str = "auto", kernel: str | None = None, **options: Any
) -> Plan:
    """For a heed.Problem, or for the arguments that attention() or attention_varlen() would be called with.

    engine: "auto", "cpu" or "cuda"; kernel: run exactly this one, by its name in kernels().
    """
    if isinstance(what, Problem):
        if k is not None or v is not None or options:
            raise TypeError("plan() takes a heed.Problem alone, or arrays and the options of attention().")
        handle = _native.plan_create(what.to_json(), False, choice(ENGINES, engine, "engine"), kernel)
        return Plan(handle, what, engine)
    call = call_of(what, k, v, {**options, "engine": engine})
    # Asked now: explaining later would need the arrays.
    explanation = explain(what, k, v, engine=engine, **options)
    return Plan(_native.plan_create(call.fields, call.bhsd, call.engine, kernel), explanation, engine)


def prewarm(problems: Problem | Iterable[Problem], *, engine: str = "cuda") -> list[str]:
    """Compiles and keeps the kernels of these problems now, so that no later call waits for a compiler.

    Returns the kernels' names. Kernels depend on types, head dims, mask and features; never on lengths or batch sizes.
    """
    given = [problems] if isinstance(problems, Problem) else list(problems)
    return [plan(each, engine=engine).kernel for each in given]
