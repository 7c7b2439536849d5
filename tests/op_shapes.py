"""Rows of the table and references in NumPy for the ops of shape work: padding, triangles, distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any

# Padding

_NUMPY_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _padded(x: Array, before: tuple[int, ...], after: tuple[int, ...], mode: str) -> Array:
    added = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    wide = np.pad(x, added, _NUMPY_MODES[mode])  # type: ignore[call-overload]
    kept = tuple(slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(before, after, wide.shape, strict=True))
    return wide[kept]


def _pad_copy(x: Array, fill: Array | None, before: Any, after: Any, mode: str) -> Array:
    found = _padded(x, before, after, mode)
    if fill is None:
        return found
    inside = _padded(np.ones(x.shape, bool), before, after, "constant")
    return np.where(inside, found, fill)


def _pad_fold(grad: Array, size: Any, before: Any, mode: str) -> Array:
    """Every element added to the one that it was read from."""
    after = tuple(w - n - b for w, n, b in zip(grad.shape, size, before, strict=True))
    total = np.zeros(int(np.prod(size)), grad.dtype if grad.dtype.kind in "iu" else np.float64)
    np.add.at(total, _padded(np.arange(total.size).reshape(size), before, after, mode).ravel(), grad.ravel())
    return total.reshape(size)


# Shape, what comes before and after each dimension, mode.
_PADDINGS: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], str]] = [
    ((2, 3, 40), (0, 0, 2), (0, 0, 3), "constant"),
    ((3, 6, 40), (0, 2, 5), (0, 3, 4), "reflect"),
    ((3, 4, 33), (0, 2, 1), (0, 5, 2), "replicate"),
    ((3, 4, 33), (0, 3, 2), (0, 1, 6), "circular"),
    ((2, 3, 4, 5), (1, 0, -1, 2), (0, 2, 3, -2), "constant"),
    ((2, 4, 3, 5), (0, 3, 2, 4), (0, 1, -1, 2), "reflect"),
    ((2, 1, 3, 5), (0, 2, 0, -1), (0, 3, 9, 7), "replicate"),
    ((2, 1, 3, 5), (0, 2, 3, 0), (0, 3, 7, 5), "circular"),
    ((7,), (-3,), (6,), "reflect"),
    ((5,), (2,), (2,), "constant"),
    ((0, 5), (1, 0), (1, 0), "constant"),
]


def shape_rows(Row: Any, of: Callable[..., Any]) -> list[Any]:
    """The rows, made of the table's own classes."""
    rows = []
    for turn, (shape, before, after, mode) in enumerate(_PADDINGS):
        layout = ("contiguous", "transposed", "stepped")[turn % 3]
        wide = tuple(n + b + a for n, b, a in zip(shape, before, after, strict=True))
        named, slopes = {"before": before, "after": after, "mode": mode}, 0 < int(np.prod(shape)) <= 30
        fill = of(1) if mode == "constant" and turn % 2 == 0 else None
        rows.append(Row("pad_copy", (of(*shape, layout=layout), fill), named, slopes))
        if mode != "constant":
            named = {"size": shape, "before": before, "mode": mode}
            rows.append(Row("pad_fold", (of(*wide, layout=layout),), named, slopes))
    return rows


SHAPE_REFERENCES: dict[str, Callable[..., Array]] = {"pad_copy": _pad_copy, "pad_fold": _pad_fold}
EVERY_DTYPE = ("pad_copy",)
