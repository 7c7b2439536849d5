"""Helpers of losses: PyTorch's reduction arguments, and checks of shapes."""

from __future__ import annotations

import warnings

from .._generated import ops as _ops
from ..runtime import views
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.layout import broadcast
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "broadcast_class_weights", "check_equal_shapes", "check_reduction", "check_tensors_of_equal_shape", "reduce_losses",
    "reduce_weighted_losses", "resolve_reduction", "warn_if_broadcast",
]  # fmt: skip


def resolve_reduction(size_average: bool | None, reduce: bool | None, reduction: str, stacklevel: int = 3) -> str:
    """Return `reduction`, or the equivalent of PyTorch's deprecated `size_average` and `reduce`, with a `UserWarning`.

    Args:
        size_average: False asks for the sum, True for the mean; None: not passed.
        reduce: False asks for the losses themselves; None: not passed.
        reduction: The reduction if neither of them was passed.
        stacklevel: Of the warning, as in `warnings.warn`; 3 is the caller of the function that calls this one.
    """
    if size_average is None and reduce is None:
        return reduction
    resolved = "none" if reduce is False else "sum" if size_average is False else "mean"
    warnings.warn(f"size_average and reduce are deprecated: write reduction={resolved!r}", stacklevel=stacklevel)
    return resolved


def check_reduction(reduction: str, caller: str) -> None:
    """Raise `ArgumentError`, which is a `ValueError`, unless `reduction` is `"mean"`, `"sum"` or `"none"`."""
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f"{caller}: reduction is 'mean', 'sum' or 'none'; {reduction!r} is not a valid value")


def reduce_losses(losses: Tensor, reduction: str, caller: str) -> Tensor:
    """Return the mean or the sum of losses, or the losses themselves for `"none"`."""
    if reduction == "mean":
        return _ops.mean(losses)
    if reduction == "sum":
        return _ops.sum(losses)
    check_reduction(reduction, caller)
    return losses


def reduce_weighted_losses(losses: Tensor, reduction: str, caller: str, weight: Tensor | None, input: Tensor) -> Tensor:
    """Reduce losses times weights of the input's shape. The mean divides by the sum of the weights."""
    if weight is None:
        return reduce_losses(losses, reduction, caller)
    check_equal_shapes(weight, input, caller, "weight and input")
    losses = _ops.mul(losses, weight)
    if reduction == "mean":
        return _ops.true_divide(_ops.sum(losses), _ops.sum(weight))
    return reduce_losses(losses, reduction, caller)


def check_equal_shapes(a: Tensor, b: Tensor, caller: str, names: str = "target and input") -> None:
    """Raise `ShapeError`, which is a `ValueError`, unless the shapes are equal."""
    if a.meta.shape != b.meta.shape:
        raise ShapeError(
            f"{caller}: {names} have the shapes {list(a.meta.shape)} and {list(b.meta.shape)}; they must be equal"
        )


def check_tensors_of_equal_shape(input: Tensor, target: Tensor, caller: str) -> None:
    """Raise `ArgumentError` unless both are tensors, and `ShapeError` unless their shapes are equal."""
    only_tensors(caller, input, target)
    check_equal_shapes(target, input, caller)


def warn_if_broadcast(input: Tensor, target: Tensor, caller: str, stacklevel: int = 4) -> None:
    """Warn if the shapes differ, as PyTorch does, because broadcasting a target is usually a mistake.

    Raises:
        ShapeError: If the shapes cannot be broadcast.
    """
    only_tensors(caller, input, target)
    if input.meta.shape != target.meta.shape:
        warnings.warn(
            f"{caller}: Using a target size ({list(target.meta.shape)}) that is different to the input size "
            f"({list(input.meta.shape)}): they broadcast, which is rarely intended; pass equal shapes",
            stacklevel=stacklevel,
        )
        broadcast([input.meta.shape, target.meta.shape], caller)


def broadcast_class_weights(weight: Tensor, dim: int, ndim: int) -> Tensor:
    """Reshape class weights so that they broadcast along dimension `dim` of `ndim`."""
    return views.reshape(weight, tuple(weight.meta.numel if d == dim else 1 for d in range(ndim)))
