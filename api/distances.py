"""Distances between vectors: of all rows of one matrix to all of another, of rows among themselves, and of pairs."""

from __future__ import annotations

import math
from typing import Any

from ._checks import only_tensors
from ._generated import ops
from .runtime import dtypes, layout, views
from .runtime.dispatch import call
from .runtime.errors import ArgumentError, DTypeError, ShapeError
from .runtime.records import registry
from .runtime.tensor import Tensor
from .triangles import triu_indices

__all__ = ["cdist", "cosine_similarity", "pairwise_distance", "pdist"]

_MODES = (
    None, "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist",
)  # fmt: skip


def _order(p: Any, where: str) -> float:
    if isinstance(p, bool) or not isinstance(p, (int, float)):
        raise ArgumentError(f"{where}: p must be a number, not {p!r}")
    if not p >= 0:
        raise ShapeError(f"{where}: p must not be negative, got {p}")
    return float(p)


def _power(p: float) -> str:
    return {0.0: "count", 1.0: "1", 2.0: "2", math.inf: "max"}.get(p, "any")


def _floating(where: str, *tensors: Tensor) -> None:
    for x in tensors:
        if x.meta.dtype.kind != "f":
            raise DTypeError(f"{where}: takes floating dtypes, not {x.meta.dtype.name}; convert with .to()")


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The p-norms of the differences of all rows of `x1` (…, P, M) to all rows of `x2` (…, R, M): (…, P, R). Leading
    dimensions broadcast; p is 0 (elements that differ), `inf` (the largest difference), or any positive number.

    Differences are summed as they are, in registers, for every p: the modes that PyTorch has for p = 2, which trade
    precision for a matrix product, are taken and change nothing. Differentiable to any order; where a distance is 0,
    its gradient is 0.

    Raises `ShapeError` for vectors, rows of different lengths or a negative p, `DTypeError` for integers,
    `ArgumentError` for an unknown mode.
    """
    only_tensors("cdist", x1, x2)
    order = _order(p, "cdist")
    if compute_mode not in _MODES:
        raise ArgumentError(
            f"cdist: compute_mode must be one of {', '.join(map(str, _MODES[1:]))}, not {compute_mode!r}"
        )
    for x in (x1, x2):
        if x.meta.ndim < 2:
            raise ShapeError(f"cdist: takes matrices or batches of them, not shape {list(x.meta.shape)}")
    if x1.meta.shape[-1] != x2.meta.shape[-1]:
        raise ShapeError(
            f"cdist: rows must have one length, shapes are {list(x1.meta.shape)} and {list(x2.meta.shape)}"
        )
    _floating("cdist", x1, x2)
    dtype = dtypes.promote(x1.meta.dtype, x2.meta.dtype)
    lead = layout.broadcast([x1.meta.shape[:-2], x2.meta.shape[:-2]], "cdist")
    # The largest difference's gradient goes to the element that equals it, which a rounded distance would not.
    wide = dtypes.float32 if order == math.inf and dtype.itemsize == 2 and (x1.needs or x2.needs) else dtype
    first, second = (_batched(x, lead, wide) for x in (x1, x2))
    found = call(registry["pair_norms"], (first, second, order), (_power(order),))
    if wide is not dtype:
        found = call(registry["copy"], (found,), (dtype,))
    return views.reshape(found, (*lead, x1.meta.shape[-2], x2.meta.shape[-2]))


def _batched(x: Tensor, lead: tuple[int, ...], dtype: Any) -> Tensor:
    """`x` with leading dimensions `lead` as one, contiguous."""
    if x.meta.dtype is not dtype:
        x = call(registry["copy"], (x,), (dtype,))
    if x.meta.shape[:-2] != lead:
        x = call(registry["expand"], (x,), ((*lead, *x.meta.shape[-2:]),))
    return views.contiguous(views.reshape(x, (math.prod(lead), *x.meta.shape[-2:])))


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of every two rows of a matrix (N, M), first those of row 0 to rows 1, 2, …: a
    vector of N (N - 1) / 2. See `cdist`.

    Raises `ShapeError` for what is no matrix, or a negative p; `DTypeError` for integers.
    """
    only_tensors("pdist", input)
    order = _order(p, "pdist")
    if input.meta.ndim != 2:
        raise ShapeError(f"pdist: takes a matrix, not shape {list(input.meta.shape)}")
    _floating("pdist", input)
    count = input.meta.shape[0]
    rows, columns = triu_indices(count, count, 1, device=input.meta.device).unbind(0)  # type: ignore[attr-defined]
    places = ops.linear_index(rows, columns, max(count, 1))
    return call(registry["take_at"], (cdist(input, input, order), places), (0, 2))  # type: ignore[no-any-return]


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension; shapes broadcast."""
    only_tensors("pairwise_distance", x1, x2)
    return ops.add(ops.sub(x1, x2), eps).norm(p, -1, keepdim)  # type: ignore[attr-defined,no-any-return]


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The scalar product along `dim` of vectors divided by their lengths, each taken as `eps` at least; shapes
    broadcast.

    Raises `DTypeError` where neither is floating.
    """
    only_tensors("cosine_similarity", x1, x2)
    if dtypes.promote(x1.meta.dtype, x2.meta.dtype).kind != "f":
        raise DTypeError(
            f"cosine_similarity: takes floating dtypes, not {x1.meta.dtype.name} and {x2.meta.dtype.name}; convert "
            f"with .to()"
        )
    shape = layout.broadcast([x1.meta.shape, x2.meta.shape], "cosine_similarity")
    a, b = (x if x.meta.shape == shape else call(registry["expand"], (x,), (shape,)) for x in (x1, x2))
    return ops.sum(ops.mul(ops.normalize_l2(a, dim, eps), ops.normalize_l2(b, dim, eps)), dim)
