"""Which kernel computes a problem, and why not the others."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from . import _native
from ._call import ENGINES, choice
from ._problem import Problem, call_of


class Candidate(NamedTuple):
    """A kernel, and what was decided about it."""

    name: str
    rule: str  #: that excluded it; "outranked" when it could have run; "" when it was chosen
    reason: str


class Explanation(NamedTuple):
    """str() of it is what `heed explain` would print, in short."""

    problem: str
    candidates: tuple[Candidate, ...]  #: the chosen one first
    missing_engines: dict[str, str]  #: engine: why it is not here
    json: str

    @property
    def kernel(self) -> str | None:
        """Name of the chosen one; None when nothing here computes the problem."""
        return next((each.name for each in self.candidates if not each.rule), None)

    def __str__(self) -> str:
        lines = [f"problem     {self.problem}"]
        for each in self.candidates:
            word = "kernel" if not each.rule else "not chosen"
            lines.append(f"{word:<11} {each.name}: {each.reason}")
        lines += [f"missing     {engine}: {reason}" for engine, reason in self.missing_engines.items()]
        return "\n".join(lines)


def explain(
    what: Any, k: Any = None, v: Any = None, *, operation: str = "forward", engine: str = "auto", **options: Any
) -> Explanation:
    """Of a heed.Problem, or of the arguments that attention() or attention_varlen() would be called with; with
    operation="backward", of their backward pass (options as in plan())."""
    if isinstance(what, Problem):
        if k is not None or v is not None or options or operation != "forward":
            raise TypeError("explain() takes a heed.Problem alone, or arrays and the options of attention().")
        return read(_native.explain_json(what.to_json(), None, False, choice(ENGINES, engine, "engine")))
    call, gradients = call_of(what, k, v, operation, {**options, "engine": engine})
    return read(_native.explain_json(call.fields, gradients, call.bhsd, call.engine))


def kernels(filter: str = "") -> list[dict[str, Any]]:
    """Every kernel of this build, or those that match a pattern such as "d128*causal*"."""
    found: list[dict[str, Any]] = json.loads(_native.kernels_json(filter))["kernels"]
    return found


def read(text: str) -> Explanation:
    data = json.loads(text)
    candidates = []
    if data.get("chosen"):
        candidates.append(Candidate(data["chosen"]["name"], "", data["why"]))
    candidates += [Candidate(each["kernel"]["name"], each["rule"], each["reason"]) for each in data["others"]]
    missing = {each["engine"]: each["reason"] for each in data["missing_engines"]}
    return Explanation(data["problem"], tuple(candidates), missing, text)
