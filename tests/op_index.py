"""Table rows and NumPy references for index ops that combine colliding elements, and for embedding bags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any

_COMBINATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "multiply": lambda old, new: old * new,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def _to_float64(x: Array) -> Array:
    """Return a copy, floating values in float64: half types are rounded once, at the end."""
    return x.astype(np.float64) if x.dtype.kind == "f" else np.array(x)


def _scatter_reference(combination: str) -> Callable[..., Array]:
    def reference(x: Array, index: Array, source: Array, dim: int) -> Array:
        out, values = _to_float64(x), _to_float64(source)
        for at in np.ndindex(index.shape):
            position = list(at)
            if position:
                position[dim] = index[at]
            if 0 <= index[at] < (x.shape[dim] if x.ndim else 1):
                out[tuple(position)] = _COMBINATIONS[combination](out[tuple(position)], values[at])
        return out

    return reference


def _put_reference(combination: str) -> Callable[..., Array]:
    def reference(x: Array, index: Array, source: Array, dim: int, count: int) -> Array:
        out, values = _to_float64(x), _to_float64(source)
        for lead in np.ndindex(x.shape[:dim]):
            inner_shape = x.shape[dim + count :]
            flat = out[lead].reshape(-1, *inner_shape)
            for at in np.ndindex(index.shape):
                if 0 <= index[at] < len(flat):
                    flat[index[at]] = _COMBINATIONS[combination](flat[index[at]], values[lead][at])
            out[lead] = flat.reshape(*x.shape[dim : dim + count], *inner_shape)
        return out

    return reference


def _bag_sums(x: Array, index: Array, offsets: Array, bags: int, skipped: int, mean: bool) -> Array:
    out = np.zeros((bags, x.shape[1]))
    ends = [*offsets.tolist(), len(index)]
    for bag in range(bags):
        selected = [i for i in index[ends[bag] : ends[bag + 1]].tolist() if i != skipped]
        if selected:
            out[bag] = x[selected].astype(np.float64).sum(0) / (len(selected) if mean else 1)
    return out


INDEX_REFERENCES: dict[str, Callable[..., Array]] = {
    **{f"scatter_{does}": _scatter_reference(does) for does in _COMBINATIONS},
    **{f"put_{does}_at": _put_reference(does) for does in _COMBINATIONS},
    "embedding_shared": lambda x, index, dim, count, skipped: x[index],
    "bag_sums": _bag_sums,
    "bag_of": lambda offsets, total: np.searchsorted(offsets, np.arange(total), "right") - 1,
}


# These are the kernels of scatter_add and put_add_at with another combination: a few dtypes are enough.
_DTYPES = {
    "multiply": ("float32", "float16", "float64", "int64", "bool"), "maximum": ("float32", "float16", "int64"),
    "minimum": ("float32", "uint8"),
}  # fmt: skip
INDEX_DTYPES: dict[str, tuple[str, ...]] = {
    **{f"scatter_{does}": dtypes for does, dtypes in _DTYPES.items()},
    **{f"put_{does}_at": dtypes[:2] for does, dtypes in _DTYPES.items()},
    "bag_of": ("float32",), "bag_sums": ("float32", "float16", "float64", "bfloat16"),
    "embedding_shared": ("float32", "float16"),
}  # fmt: skip


def index_rows(Row: Any, arg: Callable[..., Any], idx: Callable[..., Any], ordered: Callable[..., Any]) -> list[Any]:
    """Return the rows, made with the table's classes. ordered: makes sorted offsets."""
    rows = []
    for combination in _COMBINATIONS:
        # Positions are computed as in scatter_add and put_add_at, which have rows of every layout.
        rows += [
            Row(f"scatter_{combination}", (arg(2), idx(2, 3, low=-1, dtype="int32"), arg(3)), {"dim": 0}),
            Row(f"scatter_{combination}", (arg(4, 6), idx(6, 4, 3), arg(4, 3)), {"dim": 1}, False),
            Row(f"put_{combination}_at", (arg(2, 1), idx(2, 3, low=-1, dtype="int32"), arg(3)), {"dim": 0, "count": 2}),
            Row(f"put_{combination}_at", (arg(5, 33), idx(5, 4), arg(4, 33)), {"dim": 0, "count": 1}, False),
        ]
    rows += [
        Row("embedding_shared", (arg(9, 5), idx(9, 1)), {"dim": 0, "count": 1, "skipped": -1}),
        Row("embedding_shared", (arg(9, 5), idx(9, 3, 4)), {"dim": 0, "count": 1, "skipped": 2}, False),
        Row("bag_sums", (arg(9, 5), idx(9, 17), ordered(17, 6)), {"bags": 6, "skipped": -1, "mean": False}),
        Row("bag_sums", (arg(9, 5), idx(9, 17), ordered(17, 6)), {"bags": 5, "skipped": 4, "mean": True}),
        Row(
            "bag_sums",
            (arg(9, 300), idx(9, 40, layout="stepped"), ordered(40, 7)),
            {"bags": 7, "skipped": 0, "mean": True},
            False,
        ),
        Row(
            "bag_sums",
            (arg(33, 50, layout="transposed"), idx(33, 400, dtype="int32"), ordered(400, 90)),
            {"bags": 90, "skipped": -1, "mean": False},
            False,
        ),
        Row("bag_of", (ordered(17, 6),), {"total": 17}, False),
        Row("bag_of", (ordered(300, 40, layout="stepped", dtype="int32"),), {"total": 2000}, False),
    ]
    return rows
