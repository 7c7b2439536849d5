"""Elementwise losses: an op computes one loss per element, and `reduction` combines them.

All accept PyTorch's deprecated `size_average` and `reduce` where PyTorch does. Losses of classes are in
`_class_losses`, of vector pairs and triplets in `_vector_losses`, of sequences in `_ctc`.
"""

from __future__ import annotations

import math
import warnings

from .._generated import ops as _ops
from ..creation import factories
from ..indexing.bounds import check_interval
from ..runtime import views
from ..runtime.autocast import autocast_operands
from ..runtime.errors import ArgumentError, DomainError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from ._loss_reduction import (
    check_equal_shapes,
    check_reduction,
    check_tensors_of_equal_shape,
    reduce_losses,
    reduce_weighted_losses,
    resolve_reduction,
    warn_if_broadcast,
)

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "gaussian_nll_loss", "hinge_embedding_loss",
    "huber_loss", "kl_div", "l1_loss", "mse_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
]  # fmt: skip


def mse_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Compute the squared error (input - target)**2.

    Args:
        input: Floating-point tensor.
        target: Tensor of the same shape; other shapes broadcast with a `UserWarning`.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.
        weight: Factor of each loss, of the input's shape. The mean then divides by the sum of the weights.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Raises:
        UnsupportedDType: For integer tensors.

    Example:
        >>> wg.nn.functional.mse_loss(wg.tensor([1.0, 2.0]), wg.tensor([1.0, 4.0]))
        tensor(2.)
    """
    warn_if_broadcast(input, target, "mse_loss")
    reduction = resolve_reduction(size_average, reduce, reduction)
    return reduce_weighted_losses(_ops.squared_error(input, target), reduction, "mse_loss", weight, input)


def l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Compute the absolute error |input - target|. Shapes and `weight` are as in `mse_loss`.

    Args:
        input: Floating tensor of any shape.
        target: Floating tensor of the shape of `input`; another shape is broadcast with a warning.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.
        weight: Factor of each element's loss.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Example:
        >>> wg.nn.functional.l1_loss(wg.tensor([1.0, 2.0]), wg.tensor([1.0, 4.0]))
        tensor(1.)
    """
    warn_if_broadcast(input, target, "l1_loss")
    reduction = resolve_reduction(size_average, reduce, reduction)
    return reduce_weighted_losses(_ops.absolute_error(input, target), reduction, "l1_loss", weight, input)


def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", beta: float = 1.0,
) -> Tensor:  # fmt: skip
    """Compute (x - y)**2 / (2 beta) where |x - y| < beta, otherwise |x - y| - beta / 2.

    Source: Girshick 2015, arXiv 1504.08083. `beta=0` is `l1_loss`.

    Args:
        input: Floating tensor of any shape.
        target: Floating tensor of the shape of `input`; another shape is broadcast with a warning.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.
        beta: Difference below which the loss is quadratic.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Raises:
        DomainError: If `beta` is negative. It is also a `RuntimeError`.

    Example:
        >>> wg.nn.functional.smooth_l1_loss(wg.tensor([1.0, 2.0]), wg.tensor([1.0, 4.0]))
        tensor(0.7500)
    """
    warn_if_broadcast(input, target, "smooth_l1_loss")
    reduction = resolve_reduction(size_average, reduce, reduction)
    if beta < 0:
        raise DomainError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    losses = _ops.smooth_l1_error(input, target, beta) if beta else _ops.absolute_error(input, target)
    return reduce_losses(losses, reduction, "smooth_l1_loss")


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Compute (x - y)**2 / 2 where |x - y| <= delta, otherwise delta (|x - y| - delta / 2) (Huber 1964).

    Args:
        input: Floating-point tensor.
        target: Tensor of the same shape; other shapes broadcast with a `UserWarning`.
        reduction: `"mean"`, `"sum"` or `"none"`.
        delta: Error at which the loss becomes linear.
        weight: Factor of each loss, of the input's shape.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Raises:
        DomainError: If `delta` is not positive. It is also a `RuntimeError`.

    Example:
        >>> wg.nn.functional.huber_loss(wg.tensor([1.0, 2.0]), wg.tensor([1.0, 4.0]))
        tensor(0.7500)
    """
    warn_if_broadcast(input, target, "huber_loss")
    if delta <= 0:
        raise DomainError(f"huber_loss: delta must be positive, got {delta}")
    losses = _ops.huber_error(input, target, delta)
    if weight is not None:
        check_equal_shapes(weight, input, "huber_loss", "weight and input")
        losses = _ops.mul(losses, weight)
    return reduce_losses(losses, reduction, "huber_loss")


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute -(target log(input) + (1 - target) log(1 - input)) of probabilities; logarithms are at least -100.

    Args:
        input: Probabilities. Only on `cpu` they are checked; elsewhere the loss of another number is NaN.
        target: Probabilities, in a tensor of the same shape.
        weight: Factor of each loss, broadcastable to the input.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Raises:
        DomainError: On `cpu`, an element of `input` or `target` is not between 0 and 1. It is also a `RuntimeError`.
        ShapeError: If the shapes differ. It is also a `ValueError`.

    Example:
        >>> wg.nn.functional.binary_cross_entropy(wg.tensor([0.5]), wg.tensor([1.0]))
        tensor(0.6931)
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    check_tensors_of_equal_shape(input, target, "binary_cross_entropy")
    check_interval(input, 0, 1, "binary_cross_entropy", "input")
    check_interval(target, 0, 1, "binary_cross_entropy", "target")
    losses = _ops.probability_error(input, target)
    if weight is not None:
        losses = _ops.mul(losses, weight)
    return reduce_losses(losses, reduction, "binary_cross_entropy")


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Compute `binary_cross_entropy` of sigmoid(input) from the logits, without loss of precision.

    Args:
        input: Logits.
        target: Tensor of the same shape.
        weight: Factor of each loss, broadcastable to the input.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.
        pos_weight: Factor of the losses of positive targets, broadcastable to the input.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Raises:
        ShapeError: If the shapes differ. It is also a `ValueError`.

    Example:
        >>> wg.nn.functional.binary_cross_entropy_with_logits(wg.tensor([0.0]), wg.tensor([1.0]))
        tensor(0.6931)
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    check_tensors_of_equal_shape(input, target, "binary_cross_entropy_with_logits")
    if pos_weight is None:
        losses = _ops.logits_error(input, target)
    else:
        losses = _ops.weighted_logits_error(input, target, pos_weight)
    if weight is not None:
        losses = _ops.mul(losses, weight)
    return reduce_losses(losses, reduction, "binary_cross_entropy_with_logits")


def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", log_target: bool = False,
) -> Tensor:  # fmt: skip
    """Compute the Kullback-Leibler divergence target * (log(target) - input). Shapes broadcast.

    Args:
        input: Log-probabilities.
        target: Probabilities, or log-probabilities if `log_target`.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"batchmean"` divides the sum by the first size, as the definition does. `"mean"` divides it by the
            number of elements, with a `UserWarning`. `"sum"` or `"none"`.
        log_target: Whether the target holds log-probabilities.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Example:
        >>> p = wg.tensor([[0.5, 0.5]])
        >>> wg.nn.functional.kl_div(p.log(), p, reduction='batchmean')
        tensor(0.)
    """
    only_tensors("kl_div", input, target)
    if size_average is None and reduce is None and reduction == "mean":
        warnings.warn(
            "kl_div: reduction='mean' divides by the number of elements; 'batchmean' divides by the batch size, "
            "which is the divergence by its definition",
            stacklevel=2,
        )
    reduction = resolve_reduction(size_average, reduce, reduction)
    losses = _ops.log_divergence(input, target) if log_target else _ops.divergence(input, target)
    if reduction == "batchmean":
        total = _ops.sum(losses)
        return _ops.true_divide(total, input.meta.shape[0]) if input.meta.ndim else total
    return reduce_losses(losses, reduction, "kl_div")


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: bool | None = None,
    eps: float = 1e-8, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute the Poisson negative log-likelihood of `target`.

    Args:
        input: The rate, or its logarithm if `log_input`.
        target: Counts.
        log_input: The loss is exp(input) - target * input; otherwise input - target * log(input + eps).
        full: Add Stirling's approximation of log(target!), target log(target) - target + log(2 pi target) / 2, for
            targets above 1.
        size_average: Deprecated.
        eps: Added to the rate before its logarithm.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Example:
        >>> wg.nn.functional.poisson_nll_loss(wg.tensor([0.0]), wg.tensor([2.0]))
        tensor(1.)
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    only_tensors("poisson_nll_loss", input, target)
    check_reduction(reduction, "poisson_nll_loss")
    if input.meta.dtype.kind != "f":
        input = _ops.true_divide(input, 1)
    if log_input:
        losses = _ops.poisson_error(input, target)
    else:
        losses = _ops.sub(input, _ops.mul(target, _ops.log(_ops.add(input, eps))))
    if full:
        clamped_target = _ops.where(_ops.gt(target, 1), target, 1)
        log_term = _ops.mul(_ops.log(_ops.mul(clamped_target, 2 * math.pi)), 0.5)
        stirling = _ops.add(_ops.sub(_ops.mul(clamped_target, _ops.log(clamped_target)), clamped_target), log_term)
        losses = _ops.add(losses, _ops.where(_ops.gt(target, 1), stirling, 0))
    return reduce_losses(losses, reduction, "poisson_nll_loss")


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Compute (log(var) + (input - target)**2 / var) / 2 (Nix and Weigend 1994, equation 2).

    The host waits for `var`, as in PyTorch.

    Args:
        input: Means of normal distributions.
        target: Samples.
        var: Variances: a number, or a tensor of the input's shape, of that shape without the last dimension, or with
            one size replaced by 1.
        full: Add the constant log(2 pi) / 2.
        eps: Smallest variance.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Raises:
        ArgumentError: For negative variances. It is also a `ValueError`.
        ShapeError: For another shape of `var`.

    Example:
        >>> wg.nn.functional.gaussian_nll_loss(wg.tensor([1.0]), wg.tensor([3.0]), wg.tensor([1.0]))
        tensor(2.)
    """
    only_tensors("gaussian_nll_loss", input, target)
    if isinstance(var, (int, float)):
        has_negative = var < 0
        var = factories.full(input.meta.shape, float(var), dtype=input.meta.dtype, device=input.meta.device)
    else:
        only_tensors("gaussian_nll_loss", var)
        has_negative = bool(_ops.any(_ops.lt(var.detach(), 0)).item())
    if has_negative:
        raise ArgumentError("gaussian_nll_loss: var has negative entries; variances are at least 0")
    shape, var_shape = input.meta.shape, var.meta.shape
    if var_shape != shape:
        if var_shape == shape[:-1]:
            var = views.reshape(var, (*var_shape, 1))
        elif len(var_shape) != len(shape) or sum(b for a, b in zip(shape, var_shape, strict=True) if a != b) != 1:
            raise ShapeError(
                f"gaussian_nll_loss: var has shape {list(var_shape)}; an input of shape {list(shape)} needs that "
                "shape, or it without its last dimension, or with one size replaced by 1"
            )
    check_reduction(reduction, "gaussian_nll_loss")
    losses = _ops.gaussian_error(input, target, var, eps)
    if full:
        losses = _ops.add(losses, 0.5 * math.log(2 * math.pi))
    return reduce_losses(losses, reduction, "gaussian_nll_loss")


def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute log(1 + exp(-target * input)), for targets of 1 and -1. Shapes broadcast.

    Args:
        input: Floating tensor of any shape.
        target: Tensor of 1 and -1.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Example:
        >>> wg.nn.functional.soft_margin_loss(wg.tensor([0.0]), wg.tensor([1.0]))
        tensor(0.6931)
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    only_tensors("soft_margin_loss", input, target)
    return reduce_losses(_ops.soft_margin_error(input, target), reduction, "soft_margin_loss")


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Compute `input` where the target is 1, max(0, margin - input) where it is -1, and their sum elsewhere.

    Args:
        input: Tensor of any shape.
        target: Tensor of 1 and -1.
        margin: Value from which an element with target -1 costs nothing.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each element.

    Example:
        >>> wg.nn.functional.hinge_embedding_loss(wg.tensor([2.0, 0.25]), wg.tensor([1.0, -1.0]))
        tensor(1.3750)
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    only_tensors("hinge_embedding_loss", input, target)
    input, target = autocast_operands(registry["soft_margin_error"], input, target)
    negative_losses = _ops.clamp_min(_ops.sub(margin, input), 0)
    losses = _ops.add(_ops.where(_ops.ne(target, 1), negative_losses, 0), _ops.where(_ops.ne(target, -1), input, 0))
    return reduce_losses(losses, reduction, "hinge_embedding_loss")
