"""Triangles of matrices, and the places of their elements."""

from __future__ import annotations

from typing import Any

from ._checks import only_tensors, whole_number
from ._generated import ops
from .factories import ones
from .runtime import dtypes
from .runtime.dispatch import call, call_into
from .runtime.errors import DTypeError, ShapeError
from .runtime.records import registry
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = ["tril", "tril_indices", "triu", "triu_indices"]


def _triangle(where: str, input: Tensor, diagonal: int, lower: bool, out: Tensor | None) -> Tensor:
    only_tensors(where, input)
    if input.meta.ndim < 2:
        raise ShapeError(f"{where}: takes matrices, not a tensor of shape {list(input.meta.shape)}")
    statics = (int(diagonal.__index__()), lower)
    if out is input:
        return call_into(registry["triangle"], (input,), statics, (input,), in_place=True)  # type: ignore[no-any-return]
    found = call(registry["triangle"], (input,), statics)
    return found if out is None else store(found, out, where)  # type: ignore[no-any-return]


def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The elements on and below a diagonal of the last two dimensions, 0 elsewhere."""
    return _triangle("tril", input, diagonal, True, out)


def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The elements on and above a diagonal of the last two dimensions, 0 elsewhere."""
    return _triangle("triu", input, diagonal, False, out)


def _tril_(self: Tensor, diagonal: int = 0) -> Tensor:
    """In place: zeros above a diagonal of the last two dimensions."""
    return _triangle("tril_", self, diagonal, True, self)


def _triu_(self: Tensor, diagonal: int = 0) -> Tensor:
    """In place: zeros below a diagonal of the last two dimensions."""
    return _triangle("triu_", self, diagonal, False, self)


def _size(n: Any, where: str) -> int:
    if whole_number(n, where, "a size", -(2**63)) < 0:
        raise ShapeError(f"{where}: a matrix has no {n} rows or columns")
    return int(n)


def _places(where: str, row: int, col: int, offset: int, lower: bool, dtype: Any, device: Any) -> Tensor:
    height, width = (_size(n, where) for n in (row, col))
    wanted = dtypes.parse(dtype)
    if wanted.name not in ("int32", "int64"):
        raise DTypeError(f"{where}: places are int32 or int64, not {wanted.name}")
    kept = _triangle(where, ones(height, width, dtype=dtypes.bool_, device=device), offset, lower, None)
    places = ops.contiguous_copy(ops.transpose(kept.nonzero(), 0, 1))  # type: ignore[attr-defined]
    return places if wanted is dtypes.int64 else places.to(wanted)  # type: ignore[attr-defined,no-any-return]


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = dtypes.int64, device: Any = None, layout: Any = None
) -> Tensor:
    """Rows (first) and columns of the elements on and below a diagonal of a `row` by `col` matrix, in order: (2, n)."""
    return _places("tril_indices", row, col, offset, True, dtype, device)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = dtypes.int64, device: Any = None, layout: Any = None
) -> Tensor:
    """Rows (first) and columns of the elements on and above a diagonal of a `row` by `col` matrix, in order: (2, n)."""
    return _places("triu_indices", row, col, offset, False, dtype, device)


METHODS = {"tril": tril, "tril_": _tril_, "triu": triu, "triu_": _triu_}
for _name in ("tril_", "triu_"):
    METHODS[_name].__name__ = _name
