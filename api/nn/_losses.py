"""Losses: an op gives one an element or row, `reduction` makes a number of them."""

from __future__ import annotations

from typing import Any

from .._checks import only_tensors
from .._generated import ops as _ops
from ..bounds import check_classes
from ..runtime import dtypes
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, DTypeError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy",
    "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "nll_loss",
    "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
]  # fmt: skip


def _reduced(losses: Any, reduction: str, where: str, weight: Tensor | None = None) -> Tensor:
    if weight is not None:
        losses = _ops.mul(losses, weight)
    if reduction == "mean":
        return _ops.mean(losses)
    if reduction == "sum":
        return _ops.sum(losses)
    if reduction != "none":
        raise ArgumentError(f"{where}: reduction is 'mean', 'sum' or 'none', not {reduction!r}")
    return losses


def _alike(input: Tensor, target: Tensor, where: str) -> None:
    """Raise `ShapeError` unless the shapes are equal: broadcasting here is a mistake more often than meant."""
    only_tensors(where, input, target)
    if input.meta.shape != target.meta.shape:
        raise ShapeError(
            f"{where}: input has shape {list(input.meta.shape)} and target {list(target.meta.shape)}; "
            "they must be equal"
        )


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Squared differences."""
    _alike(input, target, "mse_loss")
    return _reduced(_ops.squared_error(input, target), reduction, "mse_loss", weight)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Absolute differences."""
    _alike(input, target, "l1_loss")
    return _reduced(_ops.absolute_error(input, target), reduction, "l1_loss", weight)


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Quadratic below `beta`, linear above (Girshick 2015)."""
    _alike(input, target, "smooth_l1_loss")
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    losses = _ops.smooth_l1_error(input, target, beta) if beta else _ops.absolute_error(input, target)
    return _reduced(losses, reduction, "smooth_l1_loss")


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Quadratic up to `delta`, linear beyond (Huber 1964)."""
    _alike(input, target, "huber_loss")
    if delta <= 0:
        raise ArgumentError(f"huber_loss: delta must be positive, got {delta}")
    return _reduced(_ops.huber_error(input, target, delta), reduction, "huber_loss", weight)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-(target log(input) + (1 - target) log(1 - input)), with logarithms of at least -100."""
    _alike(input, target, "binary_cross_entropy")
    return _reduced(_ops.probability_error(input, target), reduction, "binary_cross_entropy", weight)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of sigmoid(input), without its loss of precision."""
    _alike(input, target, "binary_cross_entropy_with_logits")
    if pos_weight is None:
        losses = _ops.logits_error(input, target)
    else:
        losses = _ops.weighted_logits_error(input, target, pos_weight)
    return _reduced(losses, reduction, "binary_cross_entropy_with_logits", weight)


def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Kullback-Leibler divergence of `target` from log-probabilities `input`; "batchmean" divides by the first size."""
    losses = _ops.log_divergence(input, target) if log_target else _ops.divergence(input, target)
    if reduction == "batchmean":
        return _ops.true_divide(_ops.sum(losses), input.meta.shape[0] if input.meta.ndim else 1)
    return _reduced(losses, reduction, "kl_div")


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Poisson negative log-likelihood of a rate, given as its logarithm unless `log_input` is false."""
    _alike(input, target, "poisson_nll_loss")
    if log_input:
        losses: Any = _ops.poisson_error(input, target)
    else:
        losses = input - target * (input + eps).log()  # type: ignore[operator]
    if full:
        stirling = target * target.log() - target + 0.5 * (target * 6.283185307179586).log()  # type: ignore[attr-defined,operator]
        losses = losses + _ops.where(target > 1, stirling, 0.0)  # type: ignore[operator]
    return _reduced(losses, reduction, "poisson_nll_loss")


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input)) for targets of 1 and -1."""
    return _reduced(_ops.soft_margin_error(input, target), reduction, "soft_margin_loss")


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """`input` where the target is 1, max(0, margin - input) where it is -1."""
    losses = _ops.where(target == 1, input, _ops.relu(margin - input))  # type: ignore[operator]
    return _reduced(losses, reduction, "hinge_embedding_loss")


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(0, -target * (input1 - input2) + margin)."""
    return _reduced(_ops.relu(-target * (input1 - input2) + margin), reduction, "margin_ranking_loss")  # type: ignore[operator]


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1."""
    from ..distances import cosine_similarity

    cosine = cosine_similarity(input1, input2, -1)
    losses = _ops.where(target == 1, 1 - cosine, _ops.relu(cosine - margin))  # type: ignore[operator]
    return _reduced(losses, reduction, "cosine_embedding_loss")


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """max(0, distance to positive - distance to negative + margin)."""
    from ..distances import pairwise_distance

    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    return _reduced(_ops.relu(near - far + margin), reduction, "triplet_margin_loss")  # type: ignore[operator]


# Classes --------------------------------------------------------------------------------------------------------------


def _check_classes(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, where: str
) -> tuple[int, Tensor]:
    """The dimension of classes, and the target as int64. Raises `ShapeError`, `DTypeError`, `IndexOutOfRange`."""
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
    if weight is not None and weight.meta.shape != (input.meta.shape[dim],):
        raise ShapeError(
            f"{where}: {input.meta.shape[dim]} classes need as many weights, not shape {list(weight.meta.shape)}"
        )
    if target.meta.dtype is not dtypes.int64:  # so that any ignore_index can be compared with
        target = target.long()  # type: ignore[attr-defined]
    check_classes(target, input.meta.shape[dim], ignore_index, where)
    return dim, target


def _legacy(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """What the two arguments that PyTorch has deprecated say, where they are given; they go before `reduction`."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def _of_classes(losses: Any, target: Tensor, counted: Any, reduction: str, ignore_index: int, where: str) -> Tensor:
    """`mean` divides by the weights of the targets that count, which without weights is their number."""
    if reduction != "mean":
        return _reduced(losses, reduction, where)
    if counted is None:
        counted = _ops.ne(target, ignore_index)
    return _ops.true_divide(_ops.sum(losses), _ops.sum(counted))


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
    reduction = _legacy(size_average, reduce, reduction)
    dim, target = _check_classes(input, target, weight, ignore_index, "nll_loss")
    losses = call(registry["nll_row"], (input, target, float(ignore_index)), (dim,))
    weights = None if weight is None else _target_weights(weight, target, ignore_index)
    if weights is not None:
        losses = _ops.mul(losses, weights)
    return _of_classes(losses, target, weights, reduction, ignore_index, "nll_loss")


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
        raise ArgumentError(f"cross_entropy: label_smoothing lies between 0 and 1, not {label_smoothing}")
    reduction = _legacy(size_average, reduce, reduction)
    only_tensors("cross_entropy", input, target)
    if target.meta.dtype.kind == "f":
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    dim, target = _check_classes(input, target, weight, ignore_index, "cross_entropy")
    if weight is None:
        operands = (input, target, float(ignore_index), float(label_smoothing))
        losses = call(registry["cross_entropy_row"], operands, (dim,))
        return _of_classes(losses, target, None, reduction, ignore_index, "cross_entropy")
    logs = _ops.log_softmax(input, dim)
    weights = _target_weights(weight, target, ignore_index)
    losses = _ops.mul(call(registry["nll_row"], (logs, target, float(ignore_index)), (dim,)), weights)
    if label_smoothing:
        classes = input.meta.shape[dim]
        shape = tuple(classes if d == dim else 1 for d in range(input.meta.ndim))
        every = -_ops.sum(_ops.mul(logs, weight.reshape(shape)), dim)  # type: ignore[attr-defined]
        every = _ops.where(_ops.ne(target, ignore_index), every, 0.0)
        losses = losses * (1 - label_smoothing) + every * (label_smoothing / classes)
    return _of_classes(losses, target, weights, reduction, ignore_index, "cross_entropy")


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    _alike(input, target, "cross_entropy")
    dim = 0 if input.meta.ndim == 1 else 1
    classes = input.meta.shape[dim]
    logs = _ops.log_softmax(input, dim)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes  # type: ignore[operator]
    if weight is not None:
        logs = _ops.mul(logs, weight.reshape(tuple(classes if d == dim else 1 for d in range(input.meta.ndim))))  # type: ignore[attr-defined]
    losses = _ops.neg(_ops.sum(_ops.mul(logs, target), dim))
    if reduction == "mean":
        return _ops.true_divide(_ops.sum(losses), max(input.meta.numel // classes, 1))
    return _reduced(losses, reduction, "cross_entropy")
