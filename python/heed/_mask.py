"""Which keys a query sees, told by a diagonal and a window around it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from . import _native

NONE, TOP_LEFT, BOTTOM_RIGHT, RAW = range(4)


class Mask(NamedTuple):
    """A window of `left` keys before and `right` keys behind a diagonal, -1 for all; made by one of the functions below.

    The pictures of docs/semantics.md show each.
    """

    kind: int = NONE
    left: int = 0
    right: int = 0
    sink_keys: int = 0

    @staticmethod
    def none() -> Mask:
        """Every query sees every key."""
        return Mask()

    @staticmethod
    def causal() -> Mask:
        """The last query sees every key, as in FlashAttention."""
        return Mask(BOTTOM_RIGHT, -1, 0)

    @staticmethod
    def causal_top_left() -> Mask:
        """Query 0 sees key 0 alone, as `is_causal` of torch's scaled_dot_product_attention."""
        return Mask(TOP_LEFT, -1, 0)

    @staticmethod
    def window(left: int, right: int, sink_keys: int = 0) -> Mask:
        """Both ends included, around the diagonal that ends at the last query and the last key."""
        return Mask(BOTTOM_RIGHT, left, right, sink_keys)

    @staticmethod
    def window_top_left(left: int, right: int, sink_keys: int = 0) -> Mask:
        """Both ends included, around the diagonal that begins at query 0 and key 0."""
        return Mask(TOP_LEFT, left, right, sink_keys)

    @staticmethod
    def raw(y: int, x: int) -> Mask:
        """Key j is visible to query i when i - y + 1 <= j < i + x."""
        return Mask(RAW, y, x)

    @staticmethod
    def parse(text: str) -> Mask:
        """Reads "b", "t:1024,0", "b:255,0,4", "xb:256", "g:3,5" ...: the texts of docs/semantics.md."""
        return _parse(text)

    def visible(self, s_q: int, s_k: int) -> Any:
        """A NumPy array of booleans [s_q, s_k]: what it shows."""
        import numpy as np

        i, j = np.arange(s_q)[:, None], np.arange(s_k)[None, :]
        if self.kind == NONE:
            return np.ones((s_q, s_k), bool)
        diagonal = i + (s_k - s_q if self.kind == BOTTOM_RIGHT else 0)
        if self.kind == RAW:
            return (i - self.left + 1 <= j) & (j < i + self.right)
        from_left = (j >= diagonal - self.left) if self.left >= 0 else np.ones((s_q, s_k), bool)
        to_right = (j <= diagonal + self.right) if self.right >= 0 else np.ones((s_q, s_k), bool)
        return (from_left | (j < self.sink_keys)) & to_right


@lru_cache(maxsize=256)
def _parse(text: str) -> Mask:
    return Mask(*_native.mask_parse(text))


def mask_of(causal: bool, window: Sequence[int | None] | None, mask: Any) -> Mask:
    """What the arguments of a call say together. A `mask` of booleans is something else, and comes on top."""
    if isinstance(mask, (str, Mask)):
        if causal or window is not None:
            raise ValueError(f"mask = {mask!r} says which keys are visible; causal and window would say it again.")
        return _parse(mask) if isinstance(mask, str) else mask
    if window is None:
        return Mask.causal() if causal else Mask.none()
    if not hasattr(window, "__len__") or len(window) not in (2, 3):
        raise ValueError(f"window = {window!r}: it is (left, right), or (left, right, sink keys).")
    left, right = (-1 if each is None else each for each in window[:2])
    if causal and right > 0:
        raise ValueError(f"window = {window!r} shows keys behind the diagonal, causal=True hides them: leave out one.")
    sink_keys = (window[2] or 0) if len(window) == 3 else 0
    return Mask.window(left, 0 if causal else right, sink_keys)
