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


def _cross_entropy_total(
    x: Array, target: Array, dim: int, dtype: Any = None, ignore_index: float = -100, label_smoothing: float = 0.0
) -> tuple[Array, Array, Array]:
    """Szegedy et al. 2016, section 7; each row's maximum, and the logarithm of the sum of exponentials beside it."""
    shifted = x - x.max(dim, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(dim))
    logs = shifted - np.expand_dims(log_sums, dim)
    picked = np.take_along_axis(logs, np.expand_dims(target, dim), dim).squeeze(dim)
    losses = -(1 - label_smoothing) * picked - label_smoothing * logs.mean(dim)
    return np.where(target == ignore_index, 0, losses), x.max(dim), log_sums


def _cross_entropy_slope(
    grad: Array, x: Array, target: Array, top: Array, log_sum: Array, count: Array, dim: int, ignore_index: float,
    label_smoothing: float, averaged: float,
) -> Array:  # fmt: skip
    distribution = np.full(x.shape, label_smoothing / x.shape[dim])
    peak = distribution.max() + 1 - label_smoothing
    np.put_along_axis(distribution, np.expand_dims(target, dim), peak, dim)
    scale = np.where(target == ignore_index, 0, grad / (count if averaged else 1))
    return np.expand_dims(scale, dim) * (np.exp(x - np.expand_dims(top + log_sum, dim)) - distribution)


def _class_loss_sums(losses: Array, target: Array, dtype: Any = None, ignore_index: float = -100) -> tuple[Any, ...]:
    targets = target[target != ignore_index]
    total, count = losses.sum(), targets.size
    return total / count, total, count, min(0, *targets), max(0, *targets)


def _random_slopes(x: Array, lower: float, span: float, seed: int, offset: int, dtype: str) -> Array:
    return np.where(x > 0, x, x * (lower + span * uniform_numbers(x.shape, seed, offset, dtype)))


def _classes(ignore_index: float, label_smoothing: float) -> dict[str, float]:
    return {"ignore_index": float(ignore_index), "label_smoothing": label_smoothing}


def loss_rows(Row: Any, arg: Callable[..., Any], idx: Callable[..., Any]) -> list[Any]:
    """Return rows of losses with one value per row, and of random activations."""
    stream = {"seed": 0xDEADBEEF12345678, "offset": 5}
    return [
        Row("cosine_row", (arg(5, 17), arg(5, 17)), {"dim": -1, "eps": 1e-12}),
        Row("multi_margin_row", (arg(5, 9), idx(9, 5)), {"dim": -1, "margin": 1.0, "power": 1.0}),
        Row("multi_margin_row", (arg(4, 9), idx(9, 4)), {"dim": 1, "margin": 0.5, "power": 2.0}),
        Row("rrelu_draw", (arg(5, 17),), {"lower": 0.25, "span": 0.5, **stream}),
        Row("cross_entropy_total", (arg(6, 9), idx(9, 6)), {"dim": 1, "dtype": None, **_classes(3, 0.0)}),
        Row("cross_entropy_total", (arg(2, 1100), idx(1100, 2)), {"dim": 1, "dtype": None, **_classes(-100, 0.25)}),
        Row("cross_entropy_total", (arg(4, 9, 5), idx(9, 4, 5)), {"dim": 1, "dtype": None, **_classes(-100, 0.25)}),
        Row(
            "cross_entropy_slope",
            (arg(6), arg(6, 9), idx(9, 6), arg(6), arg(6), idx(5, 6, low=1)),
            {"dim": 1, **_classes(3, 0.0), "averaged": 1.0},
        ),
        Row(
            "cross_entropy_slope",
            (arg(4, 5), arg(4, 9, 5), idx(9, 4, 5), arg(4, 5), arg(4, 5), idx(5, 4, 5, low=1)),
            {"dim": 1, **_classes(-100, 0.25), "averaged": 0.0},
        ),
        Row("class_loss_sums", (arg(40), idx(9, 40)), {"dtype": None, "ignore_index": 3.0}),
        Row("class_loss_sums", (arg(9, 7), idx(9, 9, 7)), {"dtype": None, "ignore_index": -100.0}),
    ]


LOSS_REFERENCES: dict[str, Callable[..., Array]] = {
    "gaussian_error": _gaussian,
    "cosine_row": _cosine,
    "multi_margin_row": _multi_margin,
    "rrelu_draw": _random_slopes,
    "cross_entropy_total": _cross_entropy_total,
    "cross_entropy_slope": _cross_entropy_slope,
    "class_loss_sums": _class_loss_sums,
}
