"""Losses of classes: the targets are numbers of classes, or probabilities of all of them."""

from __future__ import annotations

from typing import Any

from .. import scanning, scattering
from .._checks import only_tensors
from .._generated import ops as _ops
from ..bounds import check_bounds, check_classes
from ..gathering import gather
from ..runtime import dtypes, views
from ..runtime.autocast import as_for
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, DomainError, DTypeError, ShapeError
from ..runtime.records import OpRecord, registry
from ..runtime.tensor import Tensor
from ._reducing import alike, legacy, reduced, row_weights

__all__ = ["cross_entropy", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss"]


def _check_classes(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, where: str
) -> tuple[int, Tensor, bool]:
    """The dimension of classes, the target as int64, and whether all targets are known to count.

    Raises `ShapeError`, `DTypeError`, `IndexOutOfRange`.
    """
    only_tensors(where, input, target)
    if input.meta.ndim == 0:
        raise ShapeError(f"{where}: the input needs a dimension of classes")
    dim = 0 if input.meta.ndim == 1 else 1
    wanted = input.meta.shape[:dim] + input.meta.shape[dim + 1 :]
    if target.meta.shape != wanted:
        raise ShapeError(
            f"{where}: an input of shape {list(input.meta.shape)} needs a target of shape {list(wanted)} "
            "with the classes' numbers, "
            f"not {list(target.meta.shape)}"
        )
    if target.meta.dtype.kind not in "iu":
        raise DTypeError(
            f"{where}: targets are the classes' numbers, as integers, not {target.meta.dtype.name}; "
            "convert them with .long()"
        )
    if weight is not None:
        _check_weight(weight, input.meta.shape[dim], where)
    if target.meta.dtype is not dtypes.int64:  # so that any ignore_index can be compared with
        target = target.long()  # type: ignore[attr-defined]
    classes = input.meta.shape[dim]
    if ignore_index is None:
        check_bounds(target, classes, where)
        return dim, target, True
    return dim, target, check_classes(target, classes, ignore_index, where)


def _check_weight(weight: Tensor, classes: int, where: str) -> None:
    if weight.meta.shape != (classes,):
        raise ShapeError(f"{where}: {classes} classes need as many weights, not shape {list(weight.meta.shape)}")


def _of_classes(
    losses: Any, target: Tensor, counted: Any, reduction: str, ignore_index: int, where: str, whole: bool
) -> Tensor:
    """`mean` divides by the weights of the targets that count, which without weights is their number.

    whole: all targets are known to count.
    """
    if reduction != "mean" or (counted is None and whole):
        return reduced(losses, reduction, where)
    if counted is None:
        counted = _ops.ne(target, ignore_index)
    return _ops.true_divide(_ops.sum(losses), _ops.sum(counted))


_PICKED = OpRecord("nll_loss", "composite", (), autocast=("float32", "float32"))  # of `gather`, which keeps dtypes


def _minus_picked(input: Tensor, target: Tensor, dim: int, ignore_index: int, whole: bool) -> Any:
    """Minus the element of `input` at each target; 0 for targets that are ignored.

    A place outside of the tensor is read as 0 and gets no gradient: so the usual ignore_index needs no mask.
    """
    classes = input.meta.shape[dim]
    if not classes:  # and no target that counts
        return _ops.sum(input, dim)
    if not whole and 0 <= ignore_index < classes:
        target = call(registry["masked_fill"], (target, _ops.eq(target, ignore_index), -1))
    (input,) = as_for(_PICKED, input)
    picked = call(registry["gather"], (input, target.unsqueeze(dim)), (dim,))
    return _ops.neg(picked.squeeze(dim))


def _target_weights(weight: Tensor, target: Tensor, ignore_index: int) -> Any:
    """The weight of each target's class; 0 for those ignored."""
    known = _ops.ne(target, ignore_index)
    places = _ops.where(known, target, 0)
    return _ops.where(known, call(registry["take_at"], (weight, places), (0, 1)), 0.0)


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the log-probability `input` of the target's class: (N, C, …) with targets (N, …), or (C,) with ().

    Raises `IndexOutOfRange` for a target that is neither a class nor `ignore_index`: on `cpu` at once, on other
    devices when the host next waits for them.
    """
    reduction = legacy(size_average, reduce, reduction)
    dim, target, whole = _check_classes(input, target, weight, ignore_index, "nll_loss")
    losses = _minus_picked(input, target, dim, ignore_index, whole)
    weights = None if weight is None else _target_weights(weight, target, ignore_index)
    if weights is not None:
        losses = _ops.mul(losses, weights)
    return _of_classes(losses, target, weights, reduction, ignore_index, "nll_loss", whole)


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Minus the log-softmax of logits `input` at the target: (N, C, …) with the classes' numbers (N, …).

    A floating target of the input's shape holds probabilities instead. `label_smoothing` s counts the target 1 - s and
    every class s / C. Targets equal to `ignore_index` do not count. Raises `IndexOutOfRange` for a target that is
    neither a class nor `ignore_index`: on `cpu` at once (the host waits for the target, not for the logits), on other
    devices when the host next waits for them.
    """
    if not 0 <= label_smoothing <= 1:
        raise DomainError(f"cross_entropy: label_smoothing lies between 0 and 1, not {label_smoothing}")
    reduction = legacy(size_average, reduce, reduction)
    only_tensors("cross_entropy", input, target)
    if target.meta.dtype.kind == "f" and target.meta.shape == input.meta.shape:
        if ignore_index >= 0:
            raise DomainError("cross_entropy: ignore_index is for targets that are classes' numbers, not probabilities")
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    dim, target, whole = _check_classes(input, target, weight, ignore_index, "cross_entropy")
    if weight is None:
        operands = (input, target, float(ignore_index), float(label_smoothing))
        losses = call(registry["cross_entropy_row"], operands, (dim,))
        return _of_classes(losses, target, None, reduction, ignore_index, "cross_entropy", whole)
    logs = _ops.log_softmax(input, dim)
    weights = _target_weights(weight, target, ignore_index)
    losses = _ops.mul(_minus_picked(logs, target, dim, ignore_index, whole), weights)
    if label_smoothing:
        classes = input.meta.shape[dim]
        every = _ops.neg(_ops.sum(_ops.mul(logs, row_weights(weight, dim, input.meta.ndim)), dim))
        every = _ops.where(_ops.ne(target, ignore_index), every, 0.0)
        losses = losses * (1 - label_smoothing) + every * (label_smoothing / classes)
    return _of_classes(losses, target, weights, reduction, ignore_index, "cross_entropy", whole)


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    dim = 0 if input.meta.ndim == 1 else 1
    classes = input.meta.shape[dim]
    logs = _ops.log_softmax(input, dim)
    if smoothing:
        target = _ops.add(_ops.mul(target, 1 - smoothing), smoothing / classes)
    if weight is not None:
        _check_weight(weight, classes, "cross_entropy")
        logs = _ops.mul(logs, row_weights(weight, dim, input.meta.ndim))
    losses = _ops.neg(_ops.sum(_ops.mul(logs, target), dim))
    if reduction == "mean":
        return _ops.true_divide(_ops.sum(losses), max(input.meta.numel // classes, 1))
    return reduced(losses, reduction, "cross_entropy")


# Margins --------------------------------------------------------------------------------------------------------------


def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over all C classes i but the target y of max(0, margin - input[y] + input[i]) ** p, times weight[y]:
    (N, C) with targets (N,), or (C,) with () (Crammer and Singer 2001, for p = 1).

    Raises `ArgumentError`, a `ValueError`, unless p is 1 or 2; `ShapeError`; `IndexOutOfRange` for what is no class.
    """
    where = "multi_margin_loss"
    reduction = legacy(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ArgumentError(f"{where}: p is 1 or 2, not {p}")
    only_tensors(where, input, target)
    if weight is not None and weight.meta.ndim != 1:
        raise ShapeError(f"{where}: weight must have one dimension, not shape {list(weight.meta.shape)}")
    if input.meta.ndim > 2:
        raise ShapeError(f"{where}: takes (N, C) or (C,), not shape {list(input.meta.shape)}")
    if input.meta.ndim < 2:  # one row, whose target may have a dimension of size 1
        if target.meta.numel != 1 or target.meta.ndim > 1:
            raise ShapeError(f"{where}: one row has one target, not shape {list(target.meta.shape)}")
        input = views.reshape(input, (*target.meta.shape, input.meta.numel))
    _, target, _ = _check_classes(input, target, weight, None, where)
    losses: Any = call(registry["multi_margin_row"], (input, target, float(margin), float(p)), (-1,))
    if weight is not None:
        losses = _ops.mul(losses, call(registry["take_at"], (weight, target), (0, 1)))
    return reduced(losses, reduction, where)


def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The sum of max(0, 1 - input[y] + input[i]) over targets y and classes i that are none, over the C classes.

    input: (N, C) or (C,). target: of that shape, classes' numbers up to the first -1. Differences of all pairs of
    classes of a row are in memory for the time of the call. Raises `ShapeError`, `DTypeError`; `IndexOutOfRange` for
    what is neither a class nor -1.
    """
    where = "multilabel_margin_loss"
    reduction = legacy(size_average, reduce, reduction)
    alike(input, target, where)
    if input.meta.ndim > 2:
        raise ShapeError(f"{where}: takes (N, C) or (C,), not shape {list(input.meta.shape)}")
    if target.meta.dtype is not dtypes.int64:
        raise DTypeError(f"{where}: targets are classes' numbers in int64, not {target.meta.dtype.name}; use .long()")
    (input,) = as_for(registry["multi_margin_row"], input)
    lead = input.meta.shape[:-1]
    classes = input.meta.shape[-1] if input.meta.ndim else 1
    rows, places = (views.reshape(x, (-1, classes)) for x in (input, target))
    check_classes(places, classes, -1, where)
    counted = scanning.cumprod(_ops.ge(places, 0), 1)
    chosen = _ops.mul(places, counted)  # where none is counted, class 0 without effect
    taken = scattering.scatter_add(_ops.zero_like(places), 1, chosen, counted)
    apart = _ops.sub(_ops.add(rows.unsqueeze(1), 1), gather(rows, 1, chosen).unsqueeze(2))  # type: ignore[attr-defined]
    pairs = _ops.logical_and(counted.unsqueeze(2), _ops.eq(taken, 0).unsqueeze(1))  # type: ignore[attr-defined]
    losses = _ops.true_divide(_ops.sum(_ops.where(pairs, _ops.clamp_min(apart, 0), 0), (1, 2)), classes)
    return reduced(views.reshape(losses, lead), reduction, where)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over the last dimension, of classes, of `binary_cross_entropy_with_logits`, times `weight`."""
    where = "multilabel_soft_margin_loss"
    reduction = legacy(size_average, reduce, reduction)
    only_tensors(where, input, target)
    losses: Any = _ops.logits_error(input, target)
    if weight is not None:
        losses = _ops.mul(losses, weight)
    return reduced(_ops.mean(losses, -1), reduction, where)
