"""Table rows and NumPy references for padding, triangles, concatenation and pairwise distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any

# Padding

_NUMPY_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _padded(x: Array, before: tuple[int, ...], after: tuple[int, ...], mode: str) -> Array:
    pad_widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    padded = np.pad(x, pad_widths, _NUMPY_MODES[mode])  # type: ignore[call-overload]
    cropped = tuple(slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(before, after, padded.shape, strict=True))
    return padded[cropped]


def _pad_copy(x: Array, fill: Array | None, before: Any, after: Any, mode: str) -> Array:
    padded = _padded(x, before, after, mode)
    if fill is None:
        return padded
    inside = _padded(np.ones(x.shape, bool), before, after, "constant")
    return np.where(inside, padded, fill)


def _pad_fold(grad: Array, size: Any, before: Any, mode: str) -> Array:
    """Add every element to the one that padding copied it from."""
    after = tuple(w - n - b for w, n, b in zip(grad.shape, size, before, strict=True))
    total = np.zeros(int(np.prod(size)), grad.dtype if grad.dtype.kind in "iu" else np.float64)
    np.add.at(total, _padded(np.arange(total.size).reshape(size), before, after, mode).ravel(), grad.ravel())
    return total.reshape(size)


# Shape, padding before and after each dimension, mode.
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


_TRIANGLES = [
    ((2, 9, 37), "contiguous", 1, True),
    ((2, 9, 37), "transposed", -2, False),
    ((40, 19), "stepped", -5, True),
    ((2, 3, 5), "permuted", 2, False),
    ((3, 4), "contiguous", 9, True),
    ((3, 4), "expanded", 0, False),
    ((0, 4), "contiguous", 0, False),
]


def shape_rows(Row: Any, arg: Callable[..., Any]) -> list[Any]:
    """Return the rows, made with the table's classes."""
    rows = []
    for turn, (shape, before, after, mode) in enumerate(_PADDINGS):
        layout = ("contiguous", "transposed", "stepped")[turn % 3]
        padded_shape = tuple(n + b + a for n, b, a in zip(shape, before, after, strict=True))
        named, checks_gradients = {"before": before, "after": after, "mode": mode}, 0 < int(np.prod(shape)) <= 30
        fill = arg(1) if mode == "constant" and turn % 2 == 0 else None
        rows.append(Row("pad_copy", (arg(*shape, layout=layout), fill), named, checks_gradients))
        if mode != "constant":
            named = {"size": shape, "before": before, "mode": mode}
            rows.append(Row("pad_fold", (arg(*padded_shape, layout=layout),), named, checks_gradients))
    for shape, layout, diagonal, lower in _TRIANGLES:
        named = {"diagonal": diagonal, "lower": lower}
        rows.append(Row("triangle", (arg(*shape, layout=layout),), named, 0 < int(np.prod(shape)) <= 30))
    for shapes, dim, stacked in _JOINED:
        rows.append(Row("join", tuple(arg(*shape) for shape in shapes), {"dim": dim, "stacked": stacked}, False))
    return rows + _pair_rows(Row, arg)


# Triangles


def _triangle(x: Array, diagonal: int, lower: bool) -> Array:
    return np.tril(x, diagonal) if lower else np.triu(x, diagonal)


# Joining


# Up to the 16 tensors that one kernel takes, rows shorter and longer than a vector: shapes, dimension, stacked.
_JOINED: list[tuple[list[tuple[int, ...]], int, bool]] = [
    ([(3, 17), (1, 17), (5, 17)], 0, False),
    ([(2, 3, 5), (2, 40, 5), (2, 1, 5), (2, 2, 5)], 1, False),
    ([(4, n) for n in (1, 33, 2, 16, 5)], -1, False),
    ([(n,) for n in range(1, 17)], 0, False),
    ([(3, 19)], 1, False),
    ([()] * 3, 0, True),
    ([(2, 3)] * 16, 2, True),
    ([(2, 65)] * 2, 1, True),
    ([(5, 3)] * 7, 0, True),
]


def _join(*tensors: Array, dim: int, stacked: bool) -> Array:
    return np.stack(tensors, dim) if stacked else np.concatenate(tensors, dim)


# Distances


def _powers(d: Array, exponent: float, signed: bool) -> Array:
    """Return |d|^exponent, with 0^0 = 1 and 0^negative = 0, and with the sign of d if `signed`."""
    with np.errstate(divide="ignore"):
        size = np.where(d == 0, float(exponent == 0), np.abs(d) ** exponent)
    return size * np.sign(d) if signed else size


def _differences(x1: Array, x2: Array) -> Array:
    """Return all differences of (B, P, M) and (B, R, M), as (B, P, R, M) in float64."""
    return x1[:, :, None, :].astype(np.float64) - x2[:, None, :, :].astype(np.float64)


def _pair_norms(x1: Array, x2: Array, order: float, power: str) -> Array:
    order = {"count": 0, "1": 1, "2": 2, "max": np.inf}.get(power, order)
    return np.linalg.norm(_differences(x1, x2), order, axis=-1)


def _factors(x1: Array, x2: Array, distance: Array | None, exponent: float, signed: bool) -> Array:
    d = _differences(x1, x2)
    factors = _powers(d, exponent, signed)
    return factors if distance is None else np.where(np.abs(d) == distance[..., None], factors, 0)


def _pair_dots(
    x1: Array, x2: Array, left: Any, right: Any, distance: Any, exponent: float, signed: bool, **_: Any
) -> Array:
    factors = _factors(x1, x2, distance, exponent, signed)
    factors = factors if left is None else factors * left[:, :, None, :]
    return (factors if right is None else factors * right[:, None, :, :]).sum(-1)


def _pair_sums(
    weight: Array, x1: Array, x2: Array, right: Any, distance: Any, exponent: float, signed: bool, **_: Any
) -> Array:
    factors = _factors(x1, x2, distance, exponent, signed) * weight[..., None]
    return (factors if right is None else factors * right[:, None, :, :]).sum(2)


def _pair_rows(Row: Any, arg: Callable[..., Any]) -> list[Any]:
    """Return rows with sizes beyond a register tile and a vector; derivatives are checked for smooth functions."""
    x, y, matrix = arg(2, 7, 33), arg(2, 20, 33), arg(2, 7, 20)
    a, b = arg(1, 3, 2), arg(1, 4, 2)
    square = {"exponent": 2.0, "power": "2", "signed": False}
    sign = {"exponent": 0.0, "power": "0", "signed": True}
    cube = {"exponent": 3.0, "power": "any", "signed": True}
    rows = [Row("pair_norms", (arg(2, 7, 19), arg(2, 37, 19)), {"order": float(p), "power": p}, False) for p in "21"]
    rows += [
        Row("pair_norms", (arg(2, 7, 5), arg(2, 20, 5)), {"order": 3.0, "power": p}, False) for p in ("max", "any")
    ]
    rows += [
        Row("pair_norms", (a, b), {"order": 1.0, "power": "count"}, False),
        Row("pair_norms", (a, b), {"order": 2.0, "power": "2"}),
        Row("pair_norms", (arg(2, 3, 0), arg(2, 2, 0)), {"order": 2.0, "power": "2"}, False),
        Row("pair_dots", (x, y, x, y, None), square, False),
        Row("pair_dots", (x, y, None, None, matrix), sign, False),
        Row("pair_dots", (a, b, a, b, None), square),
        Row("pair_sums", (matrix, x, y, y, None), square, False),
        Row("pair_sums", (matrix, x, y, None, matrix), sign, False),
        Row("pair_sums", (arg(1, 3, 4), a, b, None, None), cube, False),
        Row("pair_sums", (arg(1, 3, 4), a, b, b, None), square),
    ]
    return rows


SHAPE_REFERENCES: dict[str, Callable[..., Array]] = {
    "pad_copy": _pad_copy, "pad_fold": _pad_fold, "triangle": _triangle, "join": _join, "pair_norms": _pair_norms,
    "pair_dots": _pair_dots, "pair_sums": _pair_sums,
}  # fmt: skip
EVERY_DTYPE = ("pad_copy", "triangle", "join")
INEXACT = ("pair_norms", "pair_dots", "pair_sums")
