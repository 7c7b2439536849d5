"""What losses have in common: PyTorch's arguments for making a number of many, and what they say of shapes."""

from __future__ import annotations

import warnings
from typing import Any

from .._checks import only_tensors
from .._generated import ops as _ops
from ..runtime import views
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.layout import broadcast
from ..runtime.tensor import Tensor

__all__ = ["alike", "broadcasting", "check_reduction", "legacy", "reduced", "row_weights", "same_shape", "weighted"]


def legacy(size_average: bool | None, reduce: bool | None, reduction: str, stacklevel: int = 3) -> str:
    """`reduction`, unless one of the two arguments that PyTorch has deprecated is given: then what they say.

    Warns of them with a `UserWarning`.
    """
    if size_average is None and reduce is None:
        return reduction
    found = "none" if reduce is False else "sum" if size_average is False else "mean"
    warnings.warn(f"size_average and reduce are deprecated: write reduction={found!r}", stacklevel=stacklevel)
    return found


def check_reduction(reduction: str, where: str) -> None:
    """Raise `ArgumentError`, a `ValueError`, unless `reduction` is one that there is."""
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f"{where}: reduction is 'mean', 'sum' or 'none'; {reduction!r} is not a valid value")


def reduced(losses: Any, reduction: str, where: str) -> Tensor:
    """The mean or the sum of losses, or all of them."""
    if reduction == "mean":
        return _ops.mean(losses)
    if reduction == "sum":
        return _ops.sum(losses)
    check_reduction(reduction, where)
    return losses  # type: ignore[no-any-return]


def weighted(losses: Any, reduction: str, where: str, weight: Tensor | None, input: Tensor) -> Tensor:
    """As `reduced`, of losses times weights of the input's shape; the mean is that over the sum of the weights."""
    if weight is None:
        return reduced(losses, reduction, where)
    same_shape(weight, input, where, "weight and input")
    losses = _ops.mul(losses, weight)
    if reduction == "mean":
        return _ops.true_divide(_ops.sum(losses), _ops.sum(weight))
    return reduced(losses, reduction, where)


def same_shape(a: Tensor, b: Tensor, where: str, names: str = "target and input") -> None:
    """Raise `ShapeError`, a `ValueError`, unless the shapes are equal."""
    if a.meta.shape != b.meta.shape:
        raise ShapeError(
            f"{where}: {names} have the shapes {list(a.meta.shape)} and {list(b.meta.shape)}; they must be equal"
        )


def alike(input: Any, target: Any, where: str) -> None:
    """Raise `ArgumentError` unless both are tensors, `ShapeError` unless their shapes are equal."""
    only_tensors(where, input, target)
    same_shape(target, input, where)


def broadcasting(input: Any, target: Any, where: str, stacklevel: int = 4) -> None:
    """Warn, as PyTorch does, where shapes differ: losses broadcast, but that is a mistake more often than meant.

    Raises `ShapeError` where they do not broadcast either.
    """
    only_tensors(where, input, target)
    if input.meta.shape != target.meta.shape:
        warnings.warn(
            f"{where}: Using a target size ({list(target.meta.shape)}) that is different to the input size "
            f"({list(input.meta.shape)}): they broadcast, which is seldom meant; give both one shape",
            stacklevel=stacklevel,
        )
        broadcast([input.meta.shape, target.meta.shape], where)


def row_weights(weight: Tensor, dim: int, ndim: int) -> Tensor:
    """Weights of classes, shaped to lie along dimension `dim` of `ndim`."""
    return views.reshape(weight, tuple(weight.meta.numel if d == dim else 1 for d in range(ndim)))
