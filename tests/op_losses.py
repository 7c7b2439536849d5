"""Table rows and NumPy references of ops of losses and activations, from the papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from op_references_kinds import uniform_numbers

Array = Any


def _gaussian(x: Array, t: Array, var: Array, eps: float = 1e-6) -> Array:
    """Nix and Weigend 1994, equation 2, with variances of at least eps."""
    limited = np.where(var < eps, eps, var)
    return np.log(limited) / 2 + np.square(x - t) / (2 * limited)


def _cosine(a: Array, b: Array, dim: int, eps: float) -> Array:
    return (a * b).sum(dim) / np.sqrt((np.square(a).sum(dim) + eps) * (np.square(b).sum(dim) + eps))


def _multi_margin(x: Array, target: Array, dim: int, margin: float, power: float) -> Array:
    """Crammer and Singer 2001, equation 2, summed over the classes, with a margin and a power."""
    rows = np.moveaxis(x, dim, -1)
    out = np.zeros(target.shape)
    for i in np.ndindex(*target.shape):
        margins = [max(0.0, margin - rows[i][target[i]] + v) ** power for k, v in enumerate(rows[i]) if k != target[i]]
        out[i] = sum(margins) / rows.shape[-1]
    return out


def _random_slopes(x: Array, lower: float, span: float, seed: int, offset: int, dtype: str) -> Array:
    return np.where(x > 0, x, x * (lower + span * uniform_numbers(x.shape, seed, offset, dtype)))


def loss_rows(Row: Any, arg: Callable[..., Any], idx: Callable[..., Any]) -> list[Any]:
    """Return rows of losses with one value per row, and of random activations."""
    stream = {"seed": 0xDEADBEEF12345678, "offset": 5}
    return [
        Row("cosine_row", (arg(5, 17), arg(5, 17)), {"dim": -1, "eps": 1e-12}),
        Row("multi_margin_row", (arg(5, 9), idx(9, 5)), {"dim": -1, "margin": 1.0, "power": 1.0}),
        Row("multi_margin_row", (arg(4, 9), idx(9, 4)), {"dim": 1, "margin": 0.5, "power": 2.0}),
        Row("rrelu_draw", (arg(5, 17),), {"lower": 0.25, "span": 0.5, **stream}),
    ]


LOSS_REFERENCES: dict[str, Callable[..., Array]] = {
    "gaussian_error": _gaussian,
    "cosine_row": _cosine,
    "multi_margin_row": _multi_margin,
    "rrelu_draw": _random_slopes,
}
