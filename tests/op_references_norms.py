"""References of the kernels of batch, group and instance norm: the formulas of the papers, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["NORM_OPS", "NORM_REFERENCES"]

Array = Any

EPS, PART, MOMENTUM, REST, UNBIASED = 0.0625, 0.25, 0.125, 0.875, 0.1875
CORRECTION = 1.5


def _sums(axes: tuple[int, ...], *terms: Array) -> tuple[Array, ...]:
    return tuple(np.sum(t, axes, keepdims=True) for t in terms)


def _moments(x: Array, axes: tuple[int, ...]) -> tuple[Array, ...]:
    variance = x.var(axes, keepdims=True)
    return x.mean(axes, keepdims=True), variance, 1 / np.sqrt(variance + EPS)


def _batch_statistics(x: Array, mean: Array, var: Array, batches: Array, axes: tuple[int, ...]) -> tuple[Array, ...]:
    batch_mean, variance, rstd = _moments(x, axes)
    moved = (REST * mean + MOMENTUM * batch_mean.ravel(), REST * var + UNBIASED * variance.ravel())
    return batch_mean, rstd, *moved, batches + 1


def _deviation(x: Array, mean: Array, axes: tuple[int, ...]) -> tuple[Array, ...]:
    variance = np.square(x - mean).mean(axes, keepdims=True)
    return variance, 1 / np.sqrt(variance + EPS)


def _variance_around(x: Array, mean: Array, axes: tuple[int, ...]) -> Array:
    count = x.size // mean.size
    return np.square(x - mean).sum(axes, keepdims=True) / (count - CORRECTION)


def _variance_and_mean(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    mean = x.mean(axes, keepdims=True)
    return _variance_around(x, mean, axes), mean


def _std_and_mean(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    variance, mean = _variance_and_mean(x, axes)
    return np.sqrt(variance), mean


# name: (operands, numbers, reference). "input" and "upstream" have the full shape, "batches" is one integer. Others
# have the shape of a statistic, running statistics without its dimensions of size 1. The reference takes the operands
# and the axes.
NORM_OPS: dict[str, tuple[str, tuple[float, ...], Callable[..., Any]]] = {
    "moments": ("input", (EPS,), _moments),
    "deviation": ("input mean", (EPS,), _deviation),
    "variance_and_mean": ("input", (CORRECTION,), _variance_and_mean),
    "std_and_mean": ("input", (CORRECTION,), _std_and_mean),
    "variance_around": ("input mean", (CORRECTION,), _variance_around),
    "std_around": ("input mean", (CORRECTION,), lambda x, m, axes: np.sqrt(_variance_around(x, m, axes))),
    "standardize": ("input mean rstd weight bias", (), lambda x, m, r, w, b, axes: (x - m) * r * w + b),
    "standardize_fixed": (
        "input mean variance weight bias", (EPS,), lambda x, m, v, w, b, axes: (x - m) / np.sqrt(v + EPS) * w + b,
    ),
    "standardize_sums": (
        "upstream input mean rstd", (), lambda g, x, m, r, axes: _sums(axes, g * (x - m) * r, g),
    ),
    "weighted_sums": ("input upstream weight", (), lambda a, b, w, axes: _sums(axes, a * w, b * w)),
    "parameter_sums": ("input upstream", (), lambda a, b, axes: _sums(axes, a, b)),
    "standardize_slope": (
        "upstream input mean rstd weight slopes shifts", (PART,),
        lambda g, x, m, r, w, p, q, axes: r * w * g - r * w * (q + (x - m) * r * p) * PART,
    ),
    "standardize_slope_inside": (
        "upstream input mean rstd weight slopes shifts", (PART,),
        lambda g, x, m, r, w, p, q, axes: r * (w * g - q * PART - (x - m) * r * p * PART),
    ),
    "move_statistics": (
        "running_mean running_var mean variance", (MOMENTUM, REST, UNBIASED),
        lambda m, v, n, u, axes: (m + MOMENTUM * (n - m), v - MOMENTUM * v + UNBIASED * u),
    ),
    "batch_statistics": (
        "input running_mean running_var batches", (MOMENTUM, REST, UNBIASED, EPS), _batch_statistics,
    ),
    "count_batch": ("batches", (), lambda batches, axes: batches + 1),
}  # fmt: skip

NORM_REFERENCES: dict[str, Callable[..., Any]] = {name: function for name, (_, _, function) in NORM_OPS.items()}
