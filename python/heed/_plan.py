"""Decide once, run many times without allocating."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from . import _native
from ._backward import Gradients, brought, pose, results
from ._call import ENGINES, Call, add_outputs, choice, prepare, with_outputs
from ._errors import UnsupportedError
from ._explain import Explanation, explain, read
from ._problem import Problem, call_of


class Plan:
    """How one problem will be computed. Running it decides, compiles and synchronises nothing; with arrays for what it writes it
    allocates nothing either, and a CUDA graph may capture it.

    A plan has one workspace, made at its first run. Runs of one plan follow each other, replays of graphs that captured it
    among them, and the plan is kept as long as those graphs. For several streams at once make several plans, or bring
    workspaces of your own (workspace=). A graph of torch's that captures a plan before its first run has one of its own.
    """

    def __init__(self, handle: _native.PlanHandle, what: Problem | Explanation, engine: str, operation: str) -> None:
        self._handle = handle
        self._what = what
        self._engine = engine
        self.operation = operation  #: "forward": run(); "backward": run_backward()
        self.kernel, self.workspace_bytes, self.on_gpu, self.threads = _native.plan_info(handle)
        self._workspace: Any = None

    def __repr__(self) -> str:
        return f"<heed.Plan {self.kernel}, workspace of {self.workspace_bytes} bytes>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a heed.Plan is of this process, and is not copied or pickled: make another with heed.plan() there.")

    def run(self, q: Any, k: Any, v: Any, *, return_lse: bool = False, workspace: Any = None, **options: Any) -> Any:
        """As attention(q, k, v, ...) or, with cu_seqlens_q= and the like, attention_varlen(). The arguments must pose the
        plan's problem: other values in arrays of the same shapes and strides."""
        self._check("forward", options)
        call = prepare(q, k, v, **options)
        differentiated = call.library.wants_gradient(call.fields)
        if differentiated:
            raise UnsupportedError(
                f"a gradient through {differentiated} is asked for (its requires_grad is set, and gradients are enabled), and a "
                "plan computes the forward pass alone. Run it under torch.no_grad(), or call attention()."
            )
        arrays = ("out", call.out), ("lse_out", call.lse), ("randval", call.fields.get("randval"))
        add_outputs(call, return_lse)
        self._run(call, None, workspace, arrays)
        return (call.out, call.lse) if return_lse else call.out

    def run_backward(
        self,
        q: Any,
        k: Any,
        v: Any,
        o: Any,
        lse: Any,
        d_o: Any,
        *,
        d_lse: Any = None,
        dq: Any = None,
        dk: Any = None,
        dv: Any = None,
        dbias: Any = None,
        dsink: Any = None,
        dslopes: Any = None,
        workspace: Any = None,
        **options: Any,
    ) -> Gradients:
        """As attention_backward(), of a plan made with operation="backward"."""
        self._check("backward", options)
        given = {"dq": dq, "dk": dk, "dv": dv, "dbias": dbias, "dsink": dsink, "dslopes": dslopes}
        call, told = pose(q, k, v, o, lse, d_o, d_lse, given, options)
        self._run(call, told, workspace, brought(given))
        return results(told)

    def explain(self) -> Explanation:
        """Why this kernel."""
        return explain(self._what, engine=self._engine) if isinstance(self._what, Problem) else self._what

    def _check(self, operation: str, options: dict[str, Any]) -> None:
        if operation != self.operation:
            method = "run_backward()" if self.operation == "backward" else "run()"
            raise ValueError(f"the plan is of a {self.operation} pass: call {method}.")
        if "engine" in options:
            raise TypeError("a plan was made for one engine: it runs without engine=.")

    def _run(self, call: Call, gradients: dict[str, Any] | None, workspace: Any, outputs: Iterable[tuple[str, Any]]) -> None:
        # Asked again, and for the stream, too: torch.compile may have read the call, and let this run behind its graph.
        if call.seen and call.library.traced(call.fields["q"]):
            raise UnsupportedError(
                "a plan while torch records a program, which would hold nothing of it: call attention(), which is an operator there."
            )
        if workspace is None and self.workspace_bytes:
            workspace = self._workspace
            if workspace is None:
                workspace = call.library.bytes(call.fields["q"], self.workspace_bytes)
                # Under capture it is cleared when the graph is replayed, and not now: nobody else may count on it.
                if not call.library.capturing(call.fields["q"]):
                    self._workspace = workspace
        stream = call.library.stream(call.fields["q"], None) if call.seen else call.stream
        with_outputs(outputs, _native.plan_run, self._handle, call.fields, gradients, call.bhsd, workspace, stream)


def plan(
    what: Any,
    k: Any = None,
    v: Any = None,
    *,
    operation: str = "forward",
    engine: str = "auto",
    kernel: str | None = None,
    **options: Any,
) -> Plan:
    """For a heed.Problem, or for the arguments that attention() or attention_varlen() would be called with.

    operation    "forward"; or "backward", for their gradients: o, lse, d_o and what is written are then dense, and dbias=True,
                 dsink=True, dslopes=True and d_lse=True say what there is beside dq, dk and dv
    engine       "auto", "cpu" or "cuda"
    kernel       run exactly this one, by its name in kernels()
    """
    if isinstance(what, Problem):
        if k is not None or v is not None or options or operation != "forward":
            raise TypeError("plan() takes a heed.Problem alone, or arrays and the options of attention().")
        handle = _native.plan_create(what.to_json(), None, False, choice(ENGINES, engine, "engine"), kernel)
        return Plan(handle, what, engine, what.operation)
    call, gradients = call_of(what, k, v, operation, {**options, "engine": engine})
    # Asked now: explaining later would need the arrays.
    explanation = read(_native.explain_json(call.fields, gradients, call.bhsd, call.engine))
    handle = _native.plan_create(call.fields, gradients, call.bhsd, call.engine, kernel)
    return Plan(handle, explanation, engine, operation)


def prewarm(problems: Problem | Iterable[Problem], *, engine: str = "cuda") -> list[str]:
    """Compiles and keeps the kernels of these problems now, so that no later call waits for a compiler.

    Returns the kernels' names. Kernels depend on types, head dims, mask and features; never on lengths or batch sizes.
    """
    given = [problems] if isinstance(problems, Problem) else list(problems)
    for each in given:
        if not isinstance(each, Problem):
            raise TypeError(f"prewarm() takes heed.Problems, and one is {type(each)}.")
    return [plan(each, engine=engine).kernel for each in given]
