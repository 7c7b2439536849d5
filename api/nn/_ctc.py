"""Connectionist temporal classification: the loss of a sequence of labels whose places in time are not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _hosting
from .._checks import only_tensors
from .._generated import ops as _ops
from ..bounds import check_bounds
from ..factories import tensor
from ..runtime import dtypes, views
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, DTypeError, ShapeError, UnsupportedDType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ._reducing import check_reduction, reduced

__all__ = ["ctc_loss"]

_WHERE = "ctc_loss"


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Minus the logarithm of the probability of the labels, summed over all their alignments (Graves et al. 2006).

    log_probs: (T, N, C) or, of one sample, (T, C), float32 or float64: logarithms of probabilities, as log_softmax
    gives them; the gradient is that of logits through it. targets: numbers of classes, in [0, C) without `blank`,
    padded (N, S), or all samples' one after the other. input_lengths, target_lengths: N integers, as a tensor or a
    sequence; the host waits for them, as PyTorch's does. "mean" divides each loss by its number of labels, then takes
    the mean. zero_infinity: losses of labels that have no alignment, and their gradients, are 0.

    Raises `ShapeError`, `DTypeError`, `UnsupportedDType`, `ArgumentError`; `IndexOutOfRange` for labels that are no
    class. The gradient cannot be differentiated again.
    """
    only_tensors(_WHERE, log_probs, targets)
    check_reduction(reduction, _WHERE)
    single = log_probs.meta.ndim == 2
    if log_probs.meta.ndim not in (2, 3):
        raise ShapeError(f"{_WHERE}: log_probs are (T, N, C) or (T, C), not of shape {list(log_probs.meta.shape)}")
    if log_probs.meta.dtype not in (dtypes.float32, dtypes.float64):
        raise UnsupportedDType(f"{_WHERE}: takes float32 and float64, not {log_probs.meta.dtype.name}; use .float()")
    if targets.meta.dtype is not dtypes.int64:
        targets = targets.long()  # type: ignore[attr-defined]
    if single:
        log_probs = log_probs.unsqueeze(1)  # type: ignore[attr-defined]
        targets = targets if targets.meta.ndim == 1 else views.reshape(targets, (-1,))
    times, samples, classes = log_probs.meta.shape
    if not log_probs.meta.numel:
        raise ShapeError(f"{_WHERE}: log_probs must not be empty, but they have shape {list(log_probs.meta.shape)}")
    if not 0 <= blank < classes:
        raise ShapeError(f"{_WHERE}: blank must be a class, from 0 to {classes - 1}, not {blank}")
    lengths = _lengths(input_lengths, samples, "input_lengths", times)
    counts = _lengths(target_lengths, samples, "target_lengths")
    starts = _starts(targets, counts, samples)
    if targets.meta.numel:
        check_bounds(_used(targets, counts), classes, _WHERE)
    places = tensor(np.stack([lengths, counts, starts], 1), device=log_probs.meta.device)
    labels = views.contiguous(views.reshape(targets, (-1,)).detach())  # type: ignore[attr-defined]
    if not labels.meta.numel:  # never read, but kernels take no empty buffers
        labels = tensor([0], device=log_probs.meta.device)
    if labels.meta.device is not log_probs.meta.device:
        labels = labels.to(log_probs.meta.device)  # type: ignore[attr-defined]
    states = 2 * int(counts.max(initial=0)) + 1
    losses: Any = call(registry["ctc_alpha"], (log_probs, labels, places), (states, blank))[0]
    if zero_infinity:
        losses = _ops.where(_ops.eq(losses, float("inf")), 0.0, losses)
    if reduction == "mean":
        divisors = tensor(np.maximum(counts, 1), dtype=losses.meta.dtype, device=losses.meta.device)
        return _ops.mean(_ops.true_divide(losses, divisors))
    if single and reduction == "none":
        return views.reshape(losses, ())
    return reduced(losses, reduction, _WHERE)


def _lengths(given: Any, samples: int, name: str, most: int | None = None) -> Any:
    """Lengths on the host, int64."""
    if isinstance(given, Tensor):
        if given.meta.dtype.kind not in "iu":
            raise DTypeError(f"{_WHERE}: {name} must be integers, not {given.meta.dtype.name}; use .long()")
        found = np.asarray(_hosting.to_host(given.detach()), np.int64).reshape(-1)  # type: ignore[attr-defined]
    elif isinstance(given, Sequence):
        found = np.asarray([int(n) for n in given], np.int64)
    else:
        raise ArgumentError(f"{_WHERE}: {name} must be a tensor or a sequence of integers, not {given!r}")
    if found.size != samples:
        raise ShapeError(f"{_WHERE}: {name} must be {samples}, one a sample, not {found.size}")
    if (found < 0).any() or (most is not None and (found > most).any()):
        limit = "" if most is None else f" and at most {most}, the first size of log_probs"
        raise ShapeError(f"{_WHERE}: {name} must be at least 0{limit}, but they are {found.tolist()}")
    return found


def _starts(targets: Tensor, counts: Any, samples: int) -> Any:
    """Where each sample's labels begin."""
    if targets.meta.ndim == 1:
        if targets.meta.numel != counts.sum():
            raise ShapeError(
                f"{_WHERE}: targets of one dimension have all labels, {counts.sum()} by target_lengths, but there are "
                f"{targets.meta.numel}"
            )
        return np.concatenate([[0], np.cumsum(counts)[:-1]])
    if targets.meta.ndim != 2 or targets.meta.shape[0] != samples or (counts > targets.meta.shape[1]).any():
        raise ShapeError(
            f"{_WHERE}: targets must be ({samples}, S) with S of at least {counts.max(initial=0)}, or of one "
            f"dimension, not of shape {list(targets.meta.shape)}"
        )
    return np.arange(samples) * targets.meta.shape[1]


def _used(targets: Tensor, counts: Any) -> Tensor:
    """The labels that count; what lies behind them may be anything."""
    if targets.meta.ndim == 1:
        return targets
    inside = np.arange(targets.meta.shape[1]) < counts[:, None]
    return _ops.where(tensor(inside, device=targets.meta.device), targets, 0)
