"""Rows of the table and the reference for resampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["RESAMPLE_REFERENCES", "resample_rows"]

Array = Any


def resample_rows(Row: Any, of: Callable[..., Any], at: Callable[..., Any]) -> list[Any]:
    """Along an inner dimension, with many weights, and along the last one, with few."""
    return [
        Row("resample", (of(2, 7, 33), at(2, 3), of(6, 3)), {"dim": -2, "dtype": None}, False),
        Row("resample", (of(5, 17), at(16, 41), of(2, 41)), {"dim": 1, "dtype": None}, False),
    ]


def _resample(x: Array, first: Array, weights: Array, dim: int, dtype: Any) -> Array:
    """The sums as a matrix product."""
    matrix = np.zeros((first.size, x.shape[dim]))
    for k, row in enumerate(weights):
        matrix[np.arange(first.size), first + k] += row
    return np.moveaxis(np.moveaxis(x.astype(np.float64), dim, -1) @ matrix.T, -1, dim)


RESAMPLE_REFERENCES: dict[str, Callable[..., Array]] = {"resample": _resample}
