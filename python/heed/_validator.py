"""Whether a result is right: the distance from fp64, held against what the type can do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import reference
from ._oracle import oracle, written

UNITS = {"float32": 8 * 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
F32 = 2.0**-24
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

    An element may be off by twice the largest error of a plain computation in the same precision, plus a rounding unit of
    the largest element, plus what the rounding of scores and weights can do where the plain computation was lucky. NaN and
    infinities must be where fp64 has them. Arrays may be on any device; they are copied to the CPU.
    """

    def __init__(self, q: Any, k: Any, v: Any, **options: Any) -> None:
        on_cpu = {name: to_numpy(value) for name, value in options.items()}
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


def to_numpy(value: Any) -> Any:
    """A torch tensor on any device as a NumPy array (bfloat16 through ml_dtypes); tuples of them too; the rest as it is."""
    if isinstance(value, tuple):
        return tuple(to_numpy(each) for each in value)
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    if str(value.dtype) == "torch.bfloat16":
        import ml_dtypes

        # torch does not speak of bfloat16 with NumPy, and every bfloat16 is a float32.
        return value.float().numpy().astype(ml_dtypes.bfloat16)
    return value.numpy()


def _compare(got: Any, expected: Any, allowed: float, what: str) -> Report:
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
        return Report(True, 0.0, allowed, (), 0.0, 0.0, what)
    position = tuple(int(each) for each in np.unravel_index(int(error.argmax()), error.shape))
    worst = float(error[position])
    return Report(worst <= allowed, worst, allowed, position, float(got[position]), float(expected[position]), what)
