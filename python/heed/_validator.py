"""Whether a result is right: the distance from fp64, held against what the type can do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import reference
from ._backward import INPUTS, Gradients
from ._oracle import oracle, oracle_backward, to_numpy, written

UNITS = {"float32": 8 * 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
F32 = 2.0**-24
UNDERFLOW = 1e-32  # gradients below the smallest numbers of float32, where P or dS vanish, may be lost
KEYS_PER_SUM = 16  # a kernel adds to dQ after so many keys at least
FEW_ROWS = 256  # below this the largest error of the plain computation is a matter of luck


@dataclass(frozen=True)
class Report:
    """How far a result is from what it should be."""

    ok: bool
    max_error: float
    allowed: float
    position: tuple[int, ...]  #: of the worst element, an index into the result
    got: float
    expected: float
    what: str = "o"

    def __str__(self) -> str:
        word = "right" if self.ok else "WRONG"
        where = (
            f"at {self.position}: {self.got:.6g}, should be {self.expected:.6g}"
            if self.position
            else "nothing to compare"
        )
        return f"{self.what} is {word}: max error {self.max_error:.2e} {where}; allowed {self.allowed:.2e}"

    def __bool__(self) -> bool:
        return self.ok


class Validator:
    """Judges results of one problem.

        judge = heed.Validator(q, k, v, causal=True)
        print(judge.check(some_other_attention(q, k, v)))

        judge = heed.Validator(q, k, v, d_o=d_o, causal=True)
        assert all(judge.check_gradients((dq, dk, dv)).values())

    An element of o may be off by twice the largest error of a plain computation in the same precision, plus a rounding unit of
    the largest element, plus what the rounding of scores and weights can do where the plain computation was lucky; one of a
    gradient by thrice as much. NaN and infinities must be where fp64 has them. Arrays may be on any device; they are copied to
    the CPU. d_o, and d_lse where the loss depends on the LSE, are the gradients that a backward pass began with.
    """

    def __init__(self, q: Any, k: Any, v: Any, *, d_o: Any = None, d_lse: Any = None, **options: Any) -> None:
        on_cpu = {name: to_numpy(value) for name, value in options.items()}
        _fix_dropout(on_cpu)
        q, k, v = to_numpy(q), to_numpy(k), to_numpy(v)
        self.expected, self.expected_lse = oracle(q, k, v, return_lse=True, **on_cpu)
        plain, _ = reference.attention(q, k, v, precision="plain", **on_cpu)
        kind = q.dtype.name
        if kind not in UNITS:
            raise TypeError(f"q has elements of type {kind}; heed computes in {', '.join(UNITS)}.")
        finite = np.isfinite(self.expected)
        difference = np.abs(plain.astype(np.float64) - self.expected)[finite]
        largest = float(np.abs(self.expected[finite]).max(initial=0))
        values = np.abs(v.astype(np.float64))
        spread = float(values[np.isfinite(values)].max(initial=0))
        keys = max(k.shape[2 if options.get("layout") == "bhsd" else -3], 1)
        rows = max(self.expected[..., 0].size, 1)
        of_weights = spread * (UNITS[kind] * 1.5 if rows < FEW_ROWS and kind != "float32" else 8 * F32)
        of_scores = spread * 3 * F32 * math.sqrt(q.shape[-1]) * (1 + self._score_size())
        self.allowed = (
            2 * float(difference.max(initial=0))
            + (UNITS[kind] + F32 * math.sqrt(keys)) * largest
            + (of_weights + of_scores) * min(1.0, 4 / math.sqrt(keys))
        )
        self.expected_gradients: Gradients | None = None  #: fp64, where d_o was told
        self.allowed_gradients: Gradients | None = None  #: for each element
        if d_o is not None:
            self._expect_gradients(q, k, v, to_numpy(d_o), to_numpy(d_lse), keys, on_cpu)

    def _expect_gradients(self, q: Any, k: Any, v: Any, d_o: Any, d_lse: Any, keys: int, options: Any) -> None:
        arguments = {"d_lse": d_lse, **options}
        self.expected_gradients = oracle_backward(q, k, v, d_o, **arguments)
        plain = reference.attention_backward(q, k, v, d_o, precision="plain", **arguments)
        sizes = reference.attention_backward(q, k, v, d_o, precision="sizes", **arguments)
        kind = q.dtype.name
        # An LSE and logits are sums of d products, in float32. A weight is off by a rounding, each in its own direction.
        of_logits = 0.5 * F32 * math.sqrt(q.shape[-1] + v.shape[-1]) * (1 + self._score_size())
        of_weights = UNITS[kind] * (1.0 if kind == "float32" else 1.5) * min(1.0, 4 / math.sqrt(keys))
        # A sum in 16 bits is rounded after every few keys, by no more than a unit of all that it could be so far.
        of_sums = UNITS[kind] * (2 + math.sqrt(keys / KEYS_PER_SUM)) if options.get("dq_accumulation", "f32") != "f32" else 0.0
        allowed: dict[str, Any] = {}
        for name, exact in self.expected_gradients._asdict().items():
            if exact is None:
                continue
            finite = np.isfinite(exact)
            difference = np.abs(getattr(plain, name).astype(np.float64) - exact)[finite]
            largest = float(np.abs(exact[finite]).max(initial=0))
            floor = 3 * float(difference[np.isfinite(difference)].max(initial=0)) + UNITS[kind] * largest
            of_terms = of_logits + of_weights + (of_sums if name == "dq" else 0.0)
            allowed[name] = floor + of_terms * np.nan_to_num(getattr(sizes, name)) + UNDERFLOW
        self.allowed_gradients = Gradients(**allowed)

    def _score_size(self) -> float:
        finite = self.expected_lse[np.isfinite(self.expected_lse)]
        return min(float(np.abs(finite).max(initial=0)), 200.0)

    def check(self, out: Any) -> Report:
        """Of o."""
        return _compare(to_numpy(out), self.expected, self.allowed, "o")

    def check_lse(self, lse: Any) -> Report:
        """Of the log-sum-exp, natural logarithm, [b, h, s_q] or [h, total_q]."""
        allowed = (
            1e-5 * max(1.0, self._score_size()) + 6 * F32 * math.sqrt(self.expected.shape[-1]) * self._score_size()
        )
        return _compare(to_numpy(lse), self.expected_lse, allowed, "lse")


    def check_gradients(self, gradients: Any) -> dict[str, Report]:
        """Of dq, dk, dv and, where they are, dbias, dsink and dslopes: a heed.Gradients, or as many of them in this order. The
        Validator was told d_o. Rows that belong to no sequence may hold anything."""
        if self.expected_gradients is None or self.allowed_gradients is None:
            raise ValueError("gradients of which loss? heed.Validator(q, k, v, d_o=...) is told what o's gradient was.")
        reports = {}
        for name, got in zip(Gradients._fields, gradients):
            if got is None:
                continue
            expected = getattr(self.expected_gradients, name)
            if expected is None:
                raise ValueError(f"{name} is no gradient of this problem: the Validator was told of no {INPUTS[name]}.")
            reports[name] = _compare(to_numpy(got), expected, getattr(self.allowed_gradients, name), name)
        return reports


def _fix_dropout(options: dict[str, Any]) -> None:
    """The numbers that the judged computation had, in place: those of a state as seed and offset."""
    state = options.pop("dropout_state", None)
    if state is not None:
        options["seed"], options["offset"] = (int(each) % 2**64 for each in np.asarray(state))
    if options.get("dropout_p") and options.get("seed") is None:
        told = "generator= says where it came from, and not what it was" if "generator" in options else "it was not told"
        raise ValueError(
            f"dropout_p = {options['dropout_p']}: a Validator drops the entries that the judged computation dropped, by its "
            f"seed= (and offset=) or its dropout_state=: {told}."
        )


def _compare(got: Any, expected: Any, allowed: Any, what: str) -> Report:
    """The worst element is that which is furthest beyond what it is allowed, by one number for all or one for each."""
    if got.shape != expected.shape:
        raise ValueError(f"{what} has the shape {got.shape}; the problem's is {expected.shape}.")
    with np.errstate(invalid="ignore"):  # what was not written may be anything
        got = got.astype(np.float64)
        error = np.abs(got - expected)
    error[got == expected] = 0  # infinities of one sign
    error[np.isnan(got) & np.isnan(expected)] = 0
    error[np.isnan(error)] = math.inf
    error[~written(expected)] = 0
    if error.size == 0:
        return Report(True, 0.0, float(np.max(allowed, initial=0.0)), (), 0.0, 0.0, what)
    limits = np.broadcast_to(allowed, error.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(error == 0, 0, error / limits)
    position = tuple(int(each) for each in np.unravel_index(int(excess.argmax()), error.shape))
    worst, limit = float(error[position]), float(limits[position])
    return Report(worst <= limit, worst, limit, position, float(got[position]), float(expected[position]), what)
