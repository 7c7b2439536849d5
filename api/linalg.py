"""Linear algebra under the names of `torch.linalg`: products and norms."""

from __future__ import annotations

import math
from typing import Any

from ._checks import only_tensors
from ._generated import ops
from .functions import matmul
from .matrices import cross as _cross
from .matrices import multi_dot
from .numeric import powers_of
from .reducing import norm as _norm
from .runtime import dtypes, layout, views
from .runtime.errors import DomainError, DTypeError, NotSupported, ShapeError
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = ["cross", "diagonal", "matmul", "matrix_norm", "multi_dot", "norm", "vander", "vecdot", "vector_norm"]


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The vector product along `dim`, which has size 3; other dimensions broadcast."""
    return _cross(input, other, dim, out=out)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of two dimensions, as a view whose last dimension it is."""
    return ops.diagonal(A, offset, dim1, dim2)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Sums of products along `dim`; other dimensions broadcast."""
    found = ops.sum(ops.mul(x, y), dim)
    return found if out is None else store(found, out, "vecdot")


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of the elements, along a new last dimension: (..., n) to (..., n, N), N = n without it."""
    only_tensors("vander", x)
    if not x.meta.ndim or (N is not None and N < 2):
        raise ShapeError(f"vander: takes at least one dimension and an N above 1, not {list(x.meta.shape)} and {N}")
    return powers_of(x if x.meta.dtype.kind != "b" else x.to(dtypes.int64), x.meta.shape[-1] if N is None else N)  # type: ignore[attr-defined]


def vector_norm(
    x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Tensor | None = None
) -> Tensor:
    """(sum of |x| ** ord) ** (1 / ord) along `dim`, or over all elements; the largest or smallest magnitude for an ord
    of inf or -inf, the number of elements that are not 0 for 0. `dtype`: what `x` is converted to first.

    Raises `DTypeError`, a `RuntimeError`, for integers.
    """
    return _checked("vector_norm", x, dtype, out, lambda x: _norm(x, ord, dim, keepdim))


def matrix_norm(
    A: Tensor, ord: float | str = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The norm of the matrices of two dimensions: "fro", the root of the sum of squares; 1 or -1, the largest or
    smallest sum of magnitudes of a column; inf or -inf, of a row.

    Raises `ShapeError`, a `RuntimeError`; `DomainError` for another `ord`, `NotSupported` for those of singular values
    ("nuc", 2, -2).
    """
    only_tensors("matrix_norm", A)
    if A.meta.ndim < 2 or len(tuple(dim)) != 2:
        raise ShapeError(f"matrix_norm: takes at least 2 dimensions, and two for dim, not {list(A.meta.shape)}, {dim}")
    if ord in ("nuc", 2, -2):
        raise NotSupported(f"matrix_norm: ord={ord!r} takes singular values, which are not here yet")
    if ord not in ("fro", 1, -1, math.inf, -math.inf):
        raise DomainError(f"matrix_norm: ord is 'fro', 1, -1, inf or -inf, not {ord!r}")
    rows, columns = (layout.normalize_dim(d, A.meta.ndim, "matrix_norm") for d in dim)
    return _checked("matrix_norm", A, dtype, out, lambda A: _matrix(A, ord, rows, columns, keepdim))


def _matrix(A: Tensor, ord: float | str, rows: int, columns: int, keepdim: bool) -> Tensor:
    if ord == "fro":
        return _norm(A, 2, (rows, columns), keepdim)
    summed, other = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums = ops.sum(ops.abs(A), summed, True)
    found = (ops.amax if float(ord) > 0 else ops.amin)(sums, other, True)
    if keepdim:
        return found
    return views.reshape(found, tuple(n for d, n in enumerate(A.meta.shape) if d not in (rows, columns)))


def norm(
    A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Tensor | None = None
) -> Tensor:
    """`vector_norm` of a vector, of one dimension, or without `ord` of all elements; `matrix_norm` of two dimensions.

    Raises `ShapeError`, a `RuntimeError`, for an `ord` of more dimensions.
    """
    only_tensors("norm", A)
    dims = (dim,) if isinstance(dim, int) else None if dim is None else tuple(dim)
    if ord is None:
        return vector_norm(A, 2, dims, keepdim, dtype=dtype, out=out)
    count = A.meta.ndim if dims is None else len(dims)
    if count == 1 and not isinstance(ord, str):
        return vector_norm(A, ord, dims, keepdim, dtype=dtype, out=out)
    if count != 2:
        raise ShapeError(f"norm: ord={ord!r} is for one dimension or for two; name them by dim, not {dim}")
    return matrix_norm(A, ord, (0, 1) if dims is None else dims, keepdim, dtype=dtype, out=out)


def _checked(where: str, x: Any, dtype: Any, out: Tensor | None, function: Any) -> Tensor:
    only_tensors(where, x)
    if x.meta.dtype.kind != "f":
        raise DTypeError(f"{where}: takes floating dtypes, not {x.meta.dtype.name}; convert with .float()")
    if dtype is not None:
        x = x.to(dtype)
    found: Tensor = function(x)
    return found if out is None else store(found, out, where)
