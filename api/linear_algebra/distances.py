"""Distances between vectors: all pairs of rows of two matrices, all pairs within one, and row by row; cosines."""

from __future__ import annotations

import math

from .._generated import ops
from ..runtime import dtypes, layout, views
from ..runtime.dispatch import call
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, DTypeError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .triangles import triu_indices

__all__ = ["cdist", "cosine_similarity", "pairwise_distance", "pdist"]

_MODES = (
    None, "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist",
)  # fmt: skip


def _check_order(p: object, where: str) -> float:
    if isinstance(p, bool) or not isinstance(p, (int, float)):
        raise ArgumentError(f"{where}: p must be a number, not {p!r}")
    if not p >= 0:
        raise ShapeError(f"{where}: p must not be negative, got {p}")
    return float(p)


def _power_kind(p: float) -> str:
    """Return which kernel of `pair_norms` computes the p-norm."""
    return {0.0: "count", 1.0: "1", 2.0: "2", math.inf: "max"}.get(p, "any")


def _require_floating(where: str, *tensors: Tensor) -> None:
    for x in tensors:
        if x.meta.dtype.kind != "f":
            raise DTypeError(f"{where}: takes floating dtypes, not {x.meta.dtype.name}; convert with .to()")


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """Return the p-norm distance of every row of `x1` to every row of `x2`.

    Differences are summed directly, in registers, for every p. PyTorch's modes for p = 2, which trade precision for a
    matrix product, are accepted and change nothing. The function is differentiable to any order; the gradient of a
    distance of 0 is 0.

    Args:
        x1: `(..., P, M)`, floating.
        x2: `(..., R, M)`; leading dimensions broadcast.
        p: 0 (number of differing elements), inf (largest difference), or any positive number.
        compute_mode: One of PyTorch's modes; has no effect.

    Returns:
        `(..., P, R)`.

    Raises:
        ShapeError: An operand is a vector, row lengths differ, or `p` is negative.
        DTypeError: A dtype is not floating.
        ArgumentError: The mode is unknown.

    Example:
        >>> wg.cdist(wg.tensor([[0.0, 0.0]]), wg.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[5., 1.]])
    """
    only_tensors("cdist", x1, x2)
    order = _check_order(p, "cdist")
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
    _require_floating("cdist", x1, x2)
    dtype = dtypes.promote(x1.meta.dtype, x2.meta.dtype)
    batch_shape = layout.broadcast([x1.meta.shape[:-2], x2.meta.shape[:-2]], "cdist")
    # The gradient for p = inf goes to the difference that equals the distance, so the distance must not be rounded.
    compute_dtype = (
        dtypes.float32 if order == math.inf and dtype.itemsize == 2 and (x1.needs_grad or x2.needs_grad) else dtype
    )
    first, second = (_batched(x, batch_shape, compute_dtype) for x in (x1, x2))
    distances = call(registry["pair_norms"], (first, second, order), (_power_kind(order),))
    if compute_dtype is not dtype:
        distances = call(registry["copy"], (distances,), (dtype,))
    return views.reshape(distances, (*batch_shape, x1.meta.shape[-2], x2.meta.shape[-2]))


def _batched(x: Tensor, batch_shape: tuple[int, ...], dtype: DTypeLike) -> Tensor:
    """Cast `x`, expand it to leading dimensions `batch_shape`, and merge these into one; contiguous."""
    if x.meta.dtype is not dtype:
        x = call(registry["copy"], (x,), (dtype,))
    if x.meta.shape[:-2] != batch_shape:
        x = call(registry["expand"], (x,), ((*batch_shape, *x.meta.shape[-2:]),))
    return views.contiguous(views.reshape(x, (math.prod(batch_shape), *x.meta.shape[-2:])))


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Return the p-norm distances between all pairs of rows of a matrix `(N, M)`; see `cdist`.

    The result is a vector of N * (N - 1) / 2 distances: row 0 to rows 1, 2, ..., then row 1 to rows 2, 3, ...

    Args:
        input: Floating tensor of shape `(N, M)`.
        p: Order of the norm, at least 0.

    Returns:
        Tensor of shape `(N * (N - 1) / 2,)`.

    Raises:
        ShapeError: The input is not a matrix, or `p` is negative.
        DTypeError: The dtype is not floating.

    Example:
        >>> wg.nn.functional.pdist(wg.tensor([[0.0], [1.0], [3.0]]))
        tensor([1., 3., 2.])
    """
    only_tensors("pdist", input)
    order = _check_order(p, "pdist")
    if input.meta.ndim != 2:
        raise ShapeError(f"pdist: takes a matrix, not shape {list(input.meta.shape)}")
    _require_floating("pdist", input)
    count = input.meta.shape[0]
    rows, columns = triu_indices(count, count, 1, device=input.meta.device).unbind(0)
    pair_positions = ops.linear_index(rows, columns, max(count, 1))
    return call(registry["take_at"], (cdist(input, input, order), pair_positions), (0, 2))


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Return the p-norm of `x1 - x2 + eps` along the last dimension; shapes broadcast.

    Args:
        x1: Tensor of shape `(..., n)`.
        x2: Tensor of shape `(..., n)`.
        p: Order of the norm.
        eps: Added to each difference.
        keepdim: Whether the last dimension stays, with size 1.

    Returns:
        Tensor of the broadcast shape without the last dimension.

    Example:
        >>> wg.nn.functional.pairwise_distance(wg.tensor([0.0, 0.0]), wg.tensor([3.0, 4.0]), eps=0.0)
        tensor(5.)
    """
    only_tensors("pairwise_distance", x1, x2)
    return ops.add(ops.sub(x1, x2), eps).norm(p, -1, keepdim)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine similarity along `dim`: x1 . x2 / (max(|x1|, eps) * max(|x2|, eps)); shapes broadcast.

    Args:
        x1: Tensor. One of the two dtypes is floating.
        x2: Tensor, whose shape broadcasts with that of `x1`.
        dim: The dimension; negative values count from the last.
        eps: Lower bound of each norm.

    Returns:
        Tensor of the broadcast shape without `dim`.

    Raises:
        DTypeError: Neither dtype is floating.

    Example:
        >>> wg.nn.functional.cosine_similarity(wg.tensor([1.0, 0.0]), wg.tensor([3.0, 4.0]), 0)
        tensor(0.6000)
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
