"""Losses of classes. Targets are class indices, or probabilities of all classes."""

from __future__ import annotations

from .._generated import ops as _ops
from ..indexing import scattering
from ..indexing.bounds import check_bounds, check_classes
from ..indexing.gathering import gather
from ..reductions import scans
from ..runtime import dtypes, views
from ..runtime.autocast import autocast_operands
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, DomainError, DTypeError, ShapeError
from ..runtime.records import OpRecord, registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from ._fused_cross_entropy import fused_cross_entropy
from ._loss_reduction import (
    broadcast_class_weights,
    check_reduction,
    check_tensors_of_equal_shape,
    reduce_losses,
    resolve_reduction,
)

__all__ = ["cross_entropy", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss"]


def _check_target(input: Tensor, target: Tensor, weight: Tensor | None, caller: str) -> int:
    """Return the class dimension.

    Raises:
        ShapeError: If shapes do not fit.
        DTypeError: If targets are not integers.
    """
    only_tensors(caller, input, target)
    if input.meta.ndim == 0:
        raise ShapeError(f"{caller}: the input needs a dimension of classes")
    dim = 0 if input.meta.ndim == 1 else 1
    expected_shape = input.meta.shape[:dim] + input.meta.shape[dim + 1 :]
    if target.meta.shape != expected_shape:
        raise ShapeError(
            f"{caller}: an input of shape {list(input.meta.shape)} needs a target of shape {list(expected_shape)} "
            "with class indices, "
            f"not {list(target.meta.shape)}"
        )
    if target.meta.dtype.kind not in "iu":
        raise DTypeError(
            f"{caller}: targets are class indices, as integers, not {target.meta.dtype.name}; convert them with .long()"
        )
    if weight is not None:
        _check_weight(weight, input.meta.shape[dim], caller)
    return dim


def _check_classes(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, caller: str
) -> tuple[int, Tensor, bool]:
    """Return the class dimension, the target as int64, and whether it is known that no target is ignored.

    Raises:
        ShapeError: If shapes do not fit.
        DTypeError: If targets are not integers.
        IndexOutOfRange: If a target is not a class.
    """
    dim = _check_target(input, target, weight, caller)
    if target.meta.dtype is not dtypes.int64:  # any ignore_index fits in int64
        target = target.long()
    classes = input.meta.shape[dim]
    if ignore_index is None:
        check_bounds(target, classes, caller)
        return dim, target, True
    return dim, target, check_classes(target, classes, ignore_index, caller)


def _check_weight(weight: Tensor, classes: int, caller: str) -> None:
    if weight.meta.shape != (classes,):
        raise ShapeError(f"{caller}: {classes} classes need as many weights, not shape {list(weight.meta.shape)}")


def _reduce_class_losses(
    losses: Tensor, target: Tensor, target_weights: Tensor | None, reduction: str, ignore_index: int, caller: str,
    none_ignored: bool,
) -> Tensor:  # fmt: skip
    """Reduce losses: `mean` divides by the sum of the targets' weights, or by the number of targets not ignored.

    `none_ignored` states that no target is ignored.
    """
    if reduction != "mean" or (target_weights is None and none_ignored):
        return reduce_losses(losses, reduction, caller)
    if target_weights is None:
        target_weights = _ops.ne(target, ignore_index)
    return _ops.true_divide(_ops.sum(losses), _ops.sum(target_weights))


# `gather` itself keeps dtypes; under autocast, nll_loss runs in float32.
_GATHER_AUTOCAST = OpRecord("nll_loss", "composite", (), autocast=("float32", "float32"))


def _negated_target_elements(input: Tensor, target: Tensor, dim: int, ignore_index: int, none_ignored: bool) -> Tensor:
    """Return minus the element of `input` at each target; 0 for ignored targets.

    `gather` reads 0 at an index outside the tensor and passes no gradient there. So the usual ignore_index needs no
    mask.
    """
    classes = input.meta.shape[dim]
    if not classes:  # then every target is ignored
        return _ops.sum(input, dim)
    if not none_ignored and 0 <= ignore_index < classes:
        target = call(registry["masked_fill"], (target, _ops.eq(target, ignore_index), -1))
    (input,) = autocast_operands(_GATHER_AUTOCAST, input)
    target_elements = call(registry["gather"], (input, target.unsqueeze(dim)), (dim,))
    return _ops.neg(target_elements.squeeze(dim))


def _target_weights(weight: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """Return the weight of each target's class; 0 for ignored targets."""
    is_counted = _ops.ne(target, ignore_index)
    class_indices = _ops.where(is_counted, target, 0)
    return _ops.where(is_counted, call(registry["take_at"], (weight, class_indices), (0, 1)), 0.0)


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute minus the log-probability of the target class.

    Args:
        input: Log-probabilities, `(N, C, *)` or `(C)`.
        target: Class indices, `(N, *)` or `()`.
        weight: Weight of each class, `(C)`. "mean" divides by the sum of the targets' weights.
        size_average: Deprecated.
        ignore_index: Target that contributes no loss.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each sample.

    Raises:
        IndexOutOfRange: If a target is neither a class nor `ignore_index`. On `cpu` it is raised at once, on other
            devices when the host next waits for them.

    Example:
        >>> wg.nn.functional.nll_loss(wg.tensor([[-1.0, -2.0]]), wg.tensor([1]))
        tensor(2.)
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    dim, target, none_ignored = _check_classes(input, target, weight, ignore_index, "nll_loss")
    losses = _negated_target_elements(input, target, dim, ignore_index, none_ignored)
    weights = None if weight is None else _target_weights(weight, target, ignore_index)
    if weights is not None:
        losses = _ops.mul(losses, weights)
    return _reduce_class_losses(losses, target, weights, reduction, ignore_index, "nll_loss", none_ignored)


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Compute the cross-entropy of logits: minus their log-softmax at the target class.

    Args:
        input: Logits, `(N, C, *)` or `(C)`.
        target: Class indices, `(N, *)` or `()`, or floating-point probabilities of the input's shape.
        weight: Weight of each class, `(C)`. "mean" divides by the sum of the targets' weights.
        size_average: Deprecated.
        ignore_index: Target that contributes no loss; only for class indices.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: Weight s of the uniform distribution: the target gets 1 - s, and every class s / C.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each sample.

    Raises:
        IndexOutOfRange: If a target is neither a class nor `ignore_index`. On `cpu` it is raised at once (the host
            waits for the target, not for the logits), on other devices when the host next waits for them.
        DomainError: If `label_smoothing` lies outside [0, 1], or `ignore_index` is used with probabilities.

    Example:
        >>> wg.nn.functional.cross_entropy(wg.tensor([[0.0, 0.0]]), wg.tensor([1]))
        tensor(0.6931)
    """
    if not 0 <= label_smoothing <= 1:
        raise DomainError(f"cross_entropy: label_smoothing lies between 0 and 1, not {label_smoothing}")
    reduction = resolve_reduction(size_average, reduce, reduction)
    only_tensors("cross_entropy", input, target)
    if target.meta.dtype.kind == "f" and target.meta.shape == input.meta.shape:
        if ignore_index >= 0:
            raise DomainError("cross_entropy: ignore_index is for targets that are class indices, not probabilities")
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    is_exact = abs(ignore_index) < 1 << 24  # kernels compare it with targets in float32
    if weight is None and reduction != "none" and input.meta.numel and input.meta.device.type != "cpu" and is_exact:
        check_reduction(reduction, "cross_entropy")
        dim = _check_target(input, target, None, "cross_entropy")
        return fused_cross_entropy(input, target, dim, ignore_index, float(label_smoothing), reduction)
    dim, target, none_ignored = _check_classes(input, target, weight, ignore_index, "cross_entropy")
    if weight is None:
        operands = (input, target, float(ignore_index), float(label_smoothing))
        losses = call(registry["cross_entropy_row"], operands, (dim,))
        return _reduce_class_losses(losses, target, None, reduction, ignore_index, "cross_entropy", none_ignored)
    log_probs = _ops.log_softmax(input, dim)
    weights = _target_weights(weight, target, ignore_index)
    losses = _ops.mul(_negated_target_elements(log_probs, target, dim, ignore_index, none_ignored), weights)
    if label_smoothing:
        classes = input.meta.shape[dim]
        smoothing_losses = _ops.neg(
            _ops.sum(_ops.mul(log_probs, broadcast_class_weights(weight, dim, input.meta.ndim)), dim)
        )
        smoothing_losses = _ops.where(_ops.ne(target, ignore_index), smoothing_losses, 0.0)
        losses = losses * (1 - label_smoothing) + smoothing_losses * (label_smoothing / classes)
    return _reduce_class_losses(losses, target, weights, reduction, ignore_index, "cross_entropy", none_ignored)


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    dim = 0 if input.meta.ndim == 1 else 1
    classes = input.meta.shape[dim]
    log_probs = _ops.log_softmax(input, dim)
    if smoothing:
        target = _ops.add(_ops.mul(target, 1 - smoothing), smoothing / classes)
    if weight is not None:
        _check_weight(weight, classes, "cross_entropy")
        log_probs = _ops.mul(log_probs, broadcast_class_weights(weight, dim, input.meta.ndim))
    losses = _ops.neg(_ops.sum(_ops.mul(log_probs, target), dim))
    if reduction == "mean":
        return _ops.true_divide(_ops.sum(losses), max(input.meta.numel // classes, 1))
    return reduce_losses(losses, reduction, "cross_entropy")


# Margins --------------------------------------------------------------------------------------------------------------


def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute the sum over classes i != y of weight[y] * max(0, margin - input[y] + input[i]) ** p, divided by C.

    For p = 1 this is the loss of Crammer and Singer 2001.

    Args:
        input: Scores, `(N, C)` or `(C)`.
        target: Class indices, `(N)` or `()`.
        p: 1 or 2.
        margin: Required difference of the scores.
        weight: Weight of each class, `(C)`.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each sample.

    Raises:
        ArgumentError: If `p` is neither 1 nor 2. It is also a `ValueError`.
        ShapeError: If shapes do not fit.
        IndexOutOfRange: If a target is not a class.

    Example:
        >>> wg.nn.functional.multi_margin_loss(wg.tensor([[0.0, 0.0]]), wg.tensor([1]))
        tensor(0.5000)
    """
    caller = "multi_margin_loss"
    reduction = resolve_reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ArgumentError(f"{caller}: p is 1 or 2, not {p}")
    only_tensors(caller, input, target)
    if weight is not None and weight.meta.ndim != 1:
        raise ShapeError(f"{caller}: weight must have one dimension, not shape {list(weight.meta.shape)}")
    if input.meta.ndim > 2:
        raise ShapeError(f"{caller}: takes (N, C) or (C,), not shape {list(input.meta.shape)}")
    if input.meta.ndim < 2:  # one row, whose target may have a dimension of size 1
        if target.meta.numel != 1 or target.meta.ndim > 1:
            raise ShapeError(f"{caller}: one row has one target, not shape {list(target.meta.shape)}")
        input = views.reshape(input, (*target.meta.shape, input.meta.numel))
    _, target, _ = _check_classes(input, target, weight, None, caller)
    losses = call(registry["multi_margin_row"], (input, target, float(margin), float(p)), (-1,))
    if weight is not None:
        losses = _ops.mul(losses, call(registry["take_at"], (weight, target), (0, 1)))
    return reduce_losses(losses, reduction, caller)


def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute the sum of max(0, 1 - input[y] + input[i]) over targets y and non-targets i, divided by C.

    The call temporarily stores the differences of all pairs of classes of each row.

    Args:
        input: Scores, `(N, C)` or `(C)`.
        target: int64 class indices of the input's shape; a row's targets end at the first -1.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each sample.

    Raises:
        ShapeError: If shapes do not fit.
        DTypeError: If targets are not int64.
        IndexOutOfRange: If a target is neither a class nor -1.

    Example:
        >>> wg.nn.functional.multilabel_margin_loss(wg.tensor([[0.0, 0.0]]), wg.tensor([[1, -1]]))
        tensor(0.5000)
    """
    caller = "multilabel_margin_loss"
    reduction = resolve_reduction(size_average, reduce, reduction)
    check_tensors_of_equal_shape(input, target, caller)
    if input.meta.ndim > 2:
        raise ShapeError(f"{caller}: takes (N, C) or (C,), not shape {list(input.meta.shape)}")
    if target.meta.dtype is not dtypes.int64:
        raise DTypeError(f"{caller}: targets are class indices in int64, not {target.meta.dtype.name}; use .long()")
    (input,) = autocast_operands(registry["multi_margin_row"], input)
    leading_shape = input.meta.shape[:-1]
    classes = input.meta.shape[-1] if input.meta.ndim else 1
    rows, target_rows = (views.reshape(x, (-1, classes)) for x in (input, target))
    check_classes(target_rows, classes, -1, caller)
    is_target_slot = scans.cumprod(_ops.ge(target_rows, 0), 1)
    target_classes = _ops.mul(target_rows, is_target_slot)  # unused slots become class 0 and have no effect
    is_target = scattering.scatter_add(_ops.zero_like(target_rows), 1, target_classes, is_target_slot)
    margins = _ops.sub(_ops.add(rows.unsqueeze(1), 1), gather(rows, 1, target_classes).unsqueeze(2))
    is_pair = _ops.logical_and(is_target_slot.unsqueeze(2), _ops.eq(is_target, 0).unsqueeze(1))
    losses = _ops.true_divide(_ops.sum(_ops.where(is_pair, _ops.clamp_min(margins, 0), 0), (1, 2)), classes)
    return reduce_losses(views.reshape(losses, leading_shape), reduction, caller)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute `binary_cross_entropy_with_logits` times `weight`, averaged over the last dimension, the classes.

    Args:
        input: Logits of shape `(N, C)`.
        target: Tensor of 0 and 1 of shape `(N, C)`.
        weight: Factor of each class: `(C,)`.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each sample.

    Example:
        >>> wg.nn.functional.multilabel_soft_margin_loss(wg.tensor([[0.0, 0.0]]), wg.tensor([[1.0, 0.0]]))
        tensor(0.6931)
    """
    caller = "multilabel_soft_margin_loss"
    reduction = resolve_reduction(size_average, reduce, reduction)
    only_tensors(caller, input, target)
    losses = _ops.logits_error(input, target)
    if weight is not None:
        losses = _ops.mul(losses, weight)
    return reduce_losses(_ops.mean(losses, -1), reduction, caller)
