"""Losses of pairs and triplets of vectors, or of scores that compare them."""

from __future__ import annotations

from collections.abc import Callable

from .._generated import ops as _ops
from ..linear_algebra.distances import pairwise_distance
from ..runtime.autocast import autocast_operands
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.layout import broadcast
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from ._loss_reduction import check_reduction, reduce_losses, resolve_reduction

__all__ = [
    "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip

_SQUARED_NORM_EPS = 1e-12  # PyTorch adds this to squared norms
_AUTOCAST_RECORD = registry["soft_margin_error"]  # its autocast rule is that of these losses


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute max(0, -target * (input1 - input2) + margin).

    Target 1 means that input1 should be larger, -1 that it should be smaller.

    Args:
        input1: Tensor of any dtype but bool.
        input2: Tensor of any dtype but bool, with as many dimensions.
        target: 1 where `input1` should be larger, -1 where it should be smaller.
        margin: Difference from which a pair in the right order costs nothing.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Raises:
        ShapeError: If numbers of dimensions differ; sizes broadcast. It is also a `RuntimeError`.

    Example:
        >>> wg.nn.functional.margin_ranking_loss(wg.tensor([1.0]), wg.tensor([3.0]), wg.tensor([1.0]))
        tensor(2.)
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    only_tensors("margin_ranking_loss", input1, input2, target)
    if not input1.meta.ndim == input2.meta.ndim == target.meta.ndim:
        raise ShapeError(
            "margin_ranking_loss: all tensors need the same number of dimensions, not shapes "
            + ", ".join(str(list(x.meta.shape)) for x in (input1, input2, target))
        )
    input1, input2, target = autocast_operands(_AUTOCAST_RECORD, input1, input2, target)
    unclamped_losses = _ops.add(_ops.mul(_ops.neg(target), _ops.sub(input1, input2)), margin)
    return reduce_losses(_ops.clamp_min(unclamped_losses, 0), reduction, "margin_ranking_loss")


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute 1 - cosine where the target is 1, and max(0, cosine - margin) where it is -1.

    Args:
        input1: Vectors, `(N, D)` or `(D)`.
        input2: Vectors; shapes broadcast.
        target: `(N)` or `()`.
        margin: Cosine up to which a negative pair has no loss.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each sample.

    Raises:
        ShapeError: For other numbers of dimensions, or shapes that do not broadcast.

    Example:
        >>> wg.nn.functional.cosine_embedding_loss(wg.tensor([[1.0, 0.0]]), wg.tensor([[0.0, 1.0]]), wg.tensor([1.0]))
        tensor(1.)
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    only_tensors("cosine_embedding_loss", input1, input2, target)
    expected_ndim = target.meta.ndim + 1
    if expected_ndim > 2 or not input1.meta.ndim == input2.meta.ndim == expected_ndim:
        raise ShapeError(
            "cosine_embedding_loss: takes a 1-d target with matrices or a 0-d target with vectors, not shapes "
            + ", ".join(str(list(x.meta.shape)) for x in (target, input1, input2))
        )
    shape = broadcast([input1.meta.shape, input2.meta.shape], "cosine_embedding_loss")
    a, b = (x if x.meta.shape == shape else x.expand(shape) for x in (input1, input2))
    cosine = _ops.cosine_row(a, b, -1, _SQUARED_NORM_EPS)
    negative_losses = _ops.clamp_min(_ops.sub(cosine, margin), 0)
    losses = _ops.where(_ops.eq(target, 1), _ops.sub(1, cosine), _ops.where(_ops.eq(target, -1), negative_losses, 0))
    return reduce_losses(losses, reduction, "cosine_embedding_loss")


def _check_triplet(caller: str, margin: float, tensors: tuple[Tensor, Tensor, Tensor]) -> None:
    only_tensors(caller, *tensors)
    if margin <= 0:
        raise ArgumentError(f"{caller}: margin must be greater than 0, got {margin}")
    if len({x.meta.ndim for x in tensors}) > 1:
        raise ShapeError(
            f"{caller}: anchor, positive and negative need the same number of dimensions, not shapes "
            + ", ".join(str(list(x.meta.shape)) for x in tensors)
        )


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute max(0, d(anchor, positive) - d(anchor, negative) + margin), with d(a, b) = ||a - b + eps||_p.

    Args:
        anchor: Vectors along the last dimension.
        positive: Vectors that should be near the anchor.
        negative: Vectors that should be far from it.
        margin: Required difference of the distances, above 0.
        p: Order of the norm.
        eps: Added to the differences.
        swap: Use d(positive, negative) if it is smaller than d(anchor, negative) (Balntas et al. 2016, section 3).
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each sample.

    Raises:
        ArgumentError: If the margin is not positive. It is also a `ValueError`.
        ShapeError: If numbers of dimensions differ.

    Example:
        >>> wg.nn.functional.triplet_margin_loss(wg.tensor([[0.0]]), wg.tensor([[2.0]]), wg.tensor([[1.0]]), eps=0.0)
        tensor(2.)
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    _check_triplet("triplet_margin_loss", margin, (anchor, positive, negative))
    return _triplet_losses(
        anchor, positive, negative, lambda a, b: pairwise_distance(a, b, p, eps), margin, swap, reduction,
        "triplet_margin_loss",
    )  # fmt: skip


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0, swap: bool = False,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute `triplet_margin_loss` with any distance function of two tensors.

    Args:
        anchor: Tensor of samples.
        positive: Samples that should be near the anchor.
        negative: Samples that should be far from it.
        distance_function: Function of two tensors; None: `pairwise_distance`.
        margin: Required difference of the distances, above 0.
        swap: Use d(positive, negative) if it is smaller than d(anchor, negative).
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each sample.

    Raises:
        ArgumentError: If the margin is not positive, or `reduction` is unknown.
        ShapeError: If numbers of dimensions differ.

    Example:
        >>> a, p, n = wg.tensor([0.0]), wg.tensor([2.0]), wg.tensor([1.0])
        >>> loss = wg.nn.functional.triplet_margin_with_distance_loss
        >>> loss(a, p, n, distance_function=lambda x, y: (x - y).abs())
        tensor(2.)
    """
    caller = "triplet_margin_with_distance_loss"
    check_reduction(reduction, caller)
    _check_triplet(caller, margin, (anchor, positive, negative))
    return _triplet_losses(
        anchor, positive, negative, distance_function or pairwise_distance, margin, swap, reduction, caller
    )


def _triplet_losses(
    anchor: Tensor, positive: Tensor, negative: Tensor, distance: Callable[[Tensor, Tensor], Tensor], margin: float,
    swap: bool, reduction: str, caller: str,
) -> Tensor:  # fmt: skip
    anchor, positive, negative = autocast_operands(_AUTOCAST_RECORD, anchor, positive, negative)
    positive_distance, negative_distance = distance(anchor, positive), distance(anchor, negative)
    if swap:
        negative_distance = _ops.minimum(negative_distance, distance(positive, negative))
    return reduce_losses(
        _ops.clamp_min(_ops.sub(_ops.add(positive_distance, margin), negative_distance), 0), reduction, caller
    )
