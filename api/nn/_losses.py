"""Losses of elements: an op gives one an element, `reduction` makes a number of them.

All take PyTorch's deprecated `size_average` and `reduce` where PyTorch does. Losses of classes are in
`_class_losses.py`, those of pairs and triplets of vectors in `_vector_losses.py`, the one of sequences in `_ctc.py`.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from .. import factories
from .._checks import only_tensors
from .._generated import ops as _ops
from ..runtime import views
from ..runtime.autocast import as_for
from ..runtime.errors import ArgumentError, DomainError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ._reducing import alike, broadcasting, check_reduction, legacy, reduced, same_shape, weighted

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "gaussian_nll_loss", "hinge_embedding_loss",
    "huber_loss", "kl_div", "l1_loss", "mse_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
]  # fmt: skip


def mse_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Squared differences of floating tensors. Shapes that differ broadcast, with a `UserWarning`.

    weight: of the input's shape; the mean is then the sum of weighted losses over the sum of weights.
    Raises `UnsupportedDType` for integers.
    """
    broadcasting(input, target, "mse_loss")
    reduction = legacy(size_average, reduce, reduction)
    return weighted(_ops.squared_error(input, target), reduction, "mse_loss", weight, input)


def l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Absolute differences; shapes and `weight` as with `mse_loss`."""
    broadcasting(input, target, "l1_loss")
    reduction = legacy(size_average, reduce, reduction)
    return weighted(_ops.absolute_error(input, target), reduction, "l1_loss", weight, input)


def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", beta: float = 1.0,
) -> Tensor:  # fmt: skip
    """Half the squared difference over `beta` below `beta`, linear above (Girshick 2015); `l1_loss` where beta is 0.

    Raises `DomainError`, a `RuntimeError`, for a negative beta.
    """
    broadcasting(input, target, "smooth_l1_loss")
    reduction = legacy(size_average, reduce, reduction)
    if beta < 0:
        raise DomainError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    losses = _ops.smooth_l1_error(input, target, beta) if beta else _ops.absolute_error(input, target)
    return reduced(losses, reduction, "smooth_l1_loss")


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Half the squared difference up to `delta`, linear beyond (Huber 1964), times `weight` of the input's shape.

    Raises `DomainError`, a `RuntimeError`, unless delta is positive.
    """
    broadcasting(input, target, "huber_loss")
    if delta <= 0:
        raise DomainError(f"huber_loss: delta must be positive, got {delta}")
    losses = _ops.huber_error(input, target, delta)
    if weight is not None:
        same_shape(weight, input, "huber_loss", "weight and input")
        losses = _ops.mul(losses, weight)
    return reduced(losses, reduction, "huber_loss")


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-(target log(input) + (1 - target) log(1 - input)) of probabilities, with logarithms of at least -100.

    weight: of a shape that broadcasts to the input's. Raises `ShapeError`, a `ValueError`, for other shapes.
    """
    reduction = legacy(size_average, reduce, reduction)
    alike(input, target, "binary_cross_entropy")
    losses = _ops.probability_error(input, target)
    if weight is not None:
        losses = _ops.mul(losses, weight)
    return reduced(losses, reduction, "binary_cross_entropy")


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`binary_cross_entropy` of sigmoid(input), without its loss of precision; positives count `pos_weight` times.

    weight, pos_weight: of shapes that broadcast to the input's. Raises `ShapeError`, a `ValueError`.
    """
    reduction = legacy(size_average, reduce, reduction)
    alike(input, target, "binary_cross_entropy_with_logits")
    if pos_weight is None:
        losses = _ops.logits_error(input, target)
    else:
        losses = _ops.weighted_logits_error(input, target, pos_weight)
    if weight is not None:
        losses = _ops.mul(losses, weight)
    return reduced(losses, reduction, "binary_cross_entropy_with_logits")


def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", log_target: bool = False,
) -> Tensor:  # fmt: skip
    """Kullback-Leibler divergence of `target`, probabilities or with `log_target` their logarithms, from
    log-probabilities `input`; shapes broadcast.

    "batchmean" divides the sum by the first size, as the definition does; "mean" divides it by the number of elements,
    with a `UserWarning`.
    """
    only_tensors("kl_div", input, target)
    if size_average is None and reduce is None and reduction == "mean":
        warnings.warn(
            "kl_div: reduction='mean' divides by the number of elements; 'batchmean' divides by the batch size, "
            "which is the divergence by its definition",
            stacklevel=2,
        )
    reduction = legacy(size_average, reduce, reduction)
    losses: Any = _ops.log_divergence(input, target) if log_target else _ops.divergence(input, target)
    if reduction == "batchmean":
        total = _ops.sum(losses)
        return _ops.true_divide(total, input.meta.shape[0]) if input.meta.ndim else total
    return reduced(losses, reduction, "kl_div")


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: bool | None = None,
    eps: float = 1e-8, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Poisson negative log-likelihood of `target` under a rate, given as its logarithm if `log_input`, else itself, to
    which `eps` is added before taking the logarithm.

    full: add Stirling's approximation of log(target!), target log(target) - target + log(2 pi target) / 2, for targets
    above 1.
    """
    reduction = legacy(size_average, reduce, reduction)
    only_tensors("poisson_nll_loss", input, target)
    check_reduction(reduction, "poisson_nll_loss")
    if input.meta.dtype.kind != "f":
        input = _ops.true_divide(input, 1)
    if log_input:
        losses: Any = _ops.poisson_error(input, target)
    else:
        losses = _ops.sub(input, _ops.mul(target, _ops.log(_ops.add(input, eps))))
    if full:
        large = _ops.where(_ops.gt(target, 1), target, 1)
        tail = _ops.mul(_ops.log(_ops.mul(large, 2 * math.pi)), 0.5)
        stirling = _ops.add(_ops.sub(_ops.mul(large, _ops.log(large)), large), tail)
        losses = _ops.add(losses, _ops.where(_ops.gt(target, 1), stirling, 0))
    return reduced(losses, reduction, "poisson_nll_loss")


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log(var) + (input - target)² / var) / 2: negative log-likelihood of `target` under normal distributions with
    means `input` (Nix and Weigend 1994, equation 2). Variances below `eps` count as `eps`.

    var: a number, or a tensor of the input's shape, or of that shape without its last dimension, or with a 1 in place
    of one. full: add the constant log(2 pi) / 2. The host waits for `var`, as PyTorch's does.
    Raises `ArgumentError`, a `ValueError`, for negative variances, `ShapeError` for other shapes.
    """
    only_tensors("gaussian_nll_loss", input, target)
    if isinstance(var, (int, float)):
        negative = var < 0
        var = factories.full(input.meta.shape, float(var), dtype=input.meta.dtype, device=input.meta.device)
    else:
        only_tensors("gaussian_nll_loss", var)
        negative = bool(_ops.any(_ops.lt(var.detach(), 0)).item())  # type: ignore[attr-defined]
    if negative:
        raise ArgumentError("gaussian_nll_loss: var has negative entries; variances are at least 0")
    shape, own = input.meta.shape, var.meta.shape
    if own != shape:
        if own == shape[:-1]:
            var = views.reshape(var, (*own, 1))
        elif len(own) != len(shape) or sum(b for a, b in zip(shape, own, strict=True) if a != b) != 1:
            raise ShapeError(
                f"gaussian_nll_loss: var has shape {list(own)}; an input of shape {list(shape)} needs that shape, "
                "or it without its last dimension, or with a 1 in it"
            )
    check_reduction(reduction, "gaussian_nll_loss")
    losses: Any = _ops.gaussian_error(input, target, var, eps)
    if full:
        losses = _ops.add(losses, 0.5 * math.log(2 * math.pi))
    return reduced(losses, reduction, "gaussian_nll_loss")


def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """log(1 + exp(-target * input)) for targets of 1 and -1; shapes broadcast."""
    reduction = legacy(size_average, reduce, reduction)
    only_tensors("soft_margin_loss", input, target)
    return reduced(_ops.soft_margin_error(input, target), reduction, "soft_margin_loss")


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """`input` where the target is 1, max(0, margin - input) where it is -1; their sum where it is neither."""
    reduction = legacy(size_average, reduce, reduction)
    only_tensors("hinge_embedding_loss", input, target)
    input, target = as_for(registry["soft_margin_error"], input, target)
    apart = _ops.clamp_min(_ops.sub(margin, input), 0)
    losses = _ops.add(_ops.where(_ops.ne(target, 1), apart, 0), _ops.where(_ops.ne(target, -1), input, 0))
    return reduced(losses, reduction, "hinge_embedding_loss")
