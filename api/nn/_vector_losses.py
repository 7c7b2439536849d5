"""Losses of pairs and triplets of vectors, or of numbers that say how alike they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._checks import only_tensors
from .._generated import ops as _ops
from ..distances import pairwise_distance
from ..runtime.autocast import as_for
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.layout import broadcast
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ._reducing import check_reduction, legacy, reduced

__all__ = [
    "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip

_SMALLEST = 1e-12  # what PyTorch adds to squared lengths


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, -target * (input1 - input2) + margin): input1 is to be larger where target is 1, smaller where it is -1.

    Raises `ShapeError`, a `RuntimeError`, unless all have the same number of dimensions; sizes broadcast.
    """
    reduction = legacy(size_average, reduce, reduction)
    only_tensors("margin_ranking_loss", input1, input2, target)
    if not input1.meta.ndim == input2.meta.ndim == target.meta.ndim:
        raise ShapeError(
            "margin_ranking_loss: all tensors need the same number of dimensions, not shapes "
            + ", ".join(str(list(x.meta.shape)) for x in (input1, input2, target))
        )
    input1, input2, target = as_for(registry["soft_margin_error"], input1, input2, target)
    margins = _ops.add(_ops.mul(_ops.neg(target), _ops.sub(input1, input2)), margin)
    return reduced(_ops.clamp_min(margins, 0), reduction, "margin_ranking_loss")


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1: of vectors (N, D) with targets (N,), or
    of two vectors (D,) with a 0-d target.

    Raises `ShapeError` for other numbers of dimensions.
    """
    reduction = legacy(size_average, reduce, reduction)
    only_tensors("cosine_embedding_loss", input1, input2, target)
    wanted = target.meta.ndim + 1
    if wanted > 2 or not input1.meta.ndim == input2.meta.ndim == wanted:
        raise ShapeError(
            "cosine_embedding_loss: takes a 1-d target with matrices or a 0-d target with vectors, not shapes "
            + ", ".join(str(list(x.meta.shape)) for x in (target, input1, input2))
        )
    shape = broadcast([input1.meta.shape, input2.meta.shape], "cosine_embedding_loss")
    a, b = (x if x.meta.shape == shape else x.expand(shape) for x in (input1, input2))  # type: ignore[attr-defined]
    cosine = _ops.cosine_row(a, b, -1, _SMALLEST)
    apart = _ops.clamp_min(_ops.sub(cosine, margin), 0)
    losses = _ops.where(_ops.eq(target, 1), _ops.sub(1, cosine), _ops.where(_ops.eq(target, -1), apart, 0))
    return reduced(losses, reduction, "cosine_embedding_loss")


def _check_triplet(where: str, margin: float, tensors: tuple[Tensor, Tensor, Tensor]) -> None:
    only_tensors(where, *tensors)
    if margin <= 0:
        raise ArgumentError(f"{where}: margin must be greater than 0, got {margin}")
    if len({x.meta.ndim for x in tensors}) > 1:
        raise ShapeError(
            f"{where}: anchor, positive and negative need the same number of dimensions, not shapes "
            + ", ".join(str(list(x.meta.shape)) for x in tensors)
        )


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) with d the p-norm of the difference + eps along the
    last dimension. swap: use d(positive, negative) where that is smaller (Balntas et al. 2016, section 3).

    Raises `ArgumentError`, a `ValueError`, unless the margin is positive; `ShapeError` for unequal numbers of
    dimensions.
    """
    reduction = legacy(size_average, reduce, reduction)
    _check_triplet("triplet_margin_loss", margin, (anchor, positive, negative))
    return _triplet(
        anchor, positive, negative, lambda a, b: pairwise_distance(a, b, p, eps), margin, swap, reduction,
        "triplet_margin_loss",
    )  # fmt: skip


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0, swap: bool = False,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """`triplet_margin_loss` with any function of two tensors for the distance; `pairwise_distance` without one."""
    where = "triplet_margin_with_distance_loss"
    check_reduction(reduction, where)
    _check_triplet(where, margin, (anchor, positive, negative))
    return _triplet(anchor, positive, negative, distance_function or pairwise_distance, margin, swap, reduction, where)


def _triplet(
    anchor: Tensor, positive: Tensor, negative: Tensor, distance: Any, margin: float, swap: bool, reduction: str,
    where: str,
) -> Tensor:  # fmt: skip
    anchor, positive, negative = as_for(registry["soft_margin_error"], anchor, positive, negative)
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _ops.minimum(far, distance(positive, negative))
    return reduced(_ops.clamp_min(_ops.sub(_ops.add(near, margin), far), 0), reduction, where)
