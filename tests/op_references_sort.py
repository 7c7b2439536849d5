"""References of sort ops: NumPy's stable argsort, of the values or, for descending order, of their negated ranks.

NumPy also sorts NaN last and treats -0.0 as equal to 0.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def _order(array: Array, dim: int, descending: bool) -> Array:
    if not descending:
        return np.argsort(array, axis=dim, kind="stable")
    _, ranks = np.unique(array, return_inverse=True)  # all NaN are one value, and the largest
    return np.argsort(-ranks.reshape(array.shape), axis=dim, kind="stable")


def sort_along(array: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    if not array.ndim:
        return array, np.zeros((), np.int64)
    order = _order(array, dim, descending)
    return np.take_along_axis(array, order, dim), order


def top_along(array: Array, k: int, dim: int, largest: bool) -> tuple[Array, Array]:
    values, order = sort_along(array, dim, largest)
    if not array.ndim:
        return values, order
    first = tuple(slice(k) if d == dim % array.ndim else slice(None) for d in range(array.ndim))
    return values[first], order[first]


def search_sorted(sequence: Array, values: Array, right: bool, total: bool) -> Array:
    """Search row by row. NumPy uses a total order, which differs from comparisons only for NaN."""
    side = "right" if right else "left"
    if sequence.ndim == 1:
        return np.searchsorted(sequence, values, side)
    rows = zip(sequence.reshape(-1, sequence.shape[-1]), values.reshape(-1, values.shape[-1]), strict=True)
    return np.array([np.searchsorted(s, v, side) for s, v in rows]).reshape(values.shape)


def bin_sorted(sequence: Array, values: Array) -> Array:
    """Return the index of the interval of each value, -1 outside. The last interval includes its end."""
    inner = sequence[1:-1]
    inside = (values >= sequence[0]) & (values <= sequence[-1]) & (sequence.size > 1)
    return np.where(inside, (values[..., None] >= inner).sum(-1), -1)


SORT_REFERENCES = {
    "bin_sorted": bin_sorted, "sort_along": sort_along, "top_along": top_along, "search_sorted": search_sorted,
}  # fmt: skip
