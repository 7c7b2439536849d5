"""The connectionist temporal classification loss, for label sequences without a known alignment to the input.

The dynamic program over alignments is the op `ctc_alpha` (`runtime/kinds/ctc.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from .._generated import ops as _ops
from ..creation.from_data import tensor
from ..indexing.bounds import check_bounds
from ..runtime import dtypes, host_data, views
from ..runtime.dispatch import call_multiple
from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError, DTypeError, ShapeError, UnsupportedDType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from ._loss_reduction import check_reduction, reduce_losses

__all__ = ["ctc_loss"]

_OP_NAME = "ctc_loss"


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int], target_lengths: Tensor | Sequence[int],
    blank: int = 0, reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Return minus the logarithm of the labels' probability, summed over all alignments (Graves et al. 2006).

    The gradient cannot be differentiated again.

    Args:
        log_probs: `(T, N, C)` or `(T, C)`, float32 or float64, as log_softmax returns them. The gradient is that of the
            logits through log_softmax.
        targets: Class indices in [0, C) without `blank`: `(N, S)` with padding, or all labels concatenated.
        input_lengths: N integers, a tensor or a sequence. The host waits for a tensor, as in PyTorch.
        target_lengths: N integers, a tensor or a sequence.
        blank: Index of the blank class.
        reduction: `"mean"` divides each loss by its number of labels and averages; `"sum"` or `"none"`.
        zero_infinity: Whether infinite losses, those of labels without an alignment, and their gradients are 0.

    Returns:
        Tensor of shape `()`; for `reduction="none"`, the loss of each sample.

    Raises:
        ShapeError: A shape or a length does not fit, or `blank` is not a class.
        UnsupportedDType: `log_probs` have another dtype.
        DTypeError: Lengths are not integers.
        ArgumentError: Lengths are neither a tensor nor a sequence, or there is no such reduction.
        IndexOutOfRange: A label is not a class.

    Example:
        >>> log_probabilities = wg.zeros(4, 1, 3).log_softmax(2)
        >>> wg.nn.functional.ctc_loss(log_probabilities, wg.tensor([[1, 2]]), wg.tensor([4]), wg.tensor([2])).shape
        weftgrad.Size([])
    """
    only_tensors(_OP_NAME, log_probs, targets)
    check_reduction(reduction, _OP_NAME)
    is_single = log_probs.meta.ndim == 2
    if log_probs.meta.ndim not in (2, 3):
        raise ShapeError(f"{_OP_NAME}: log_probs are (T, N, C) or (T, C), not of shape {list(log_probs.meta.shape)}")
    if log_probs.meta.dtype not in (dtypes.float32, dtypes.float64):
        raise UnsupportedDType(f"{_OP_NAME}: takes float32 and float64, not {log_probs.meta.dtype.name}; use .float()")
    if targets.meta.dtype is not dtypes.int64:
        targets = targets.long()
    if is_single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets if targets.meta.ndim == 1 else views.reshape(targets, (-1,))
    num_steps, batch_size, classes = log_probs.meta.shape
    if not log_probs.meta.numel:
        raise ShapeError(f"{_OP_NAME}: log_probs must not be empty, but they have shape {list(log_probs.meta.shape)}")
    if not 0 <= blank < classes:
        raise ShapeError(f"{_OP_NAME}: blank must be a class, from 0 to {classes - 1}, not {blank}")
    input_lengths_array = _as_length_array(input_lengths, batch_size, "input_lengths", num_steps)
    label_counts = _as_length_array(target_lengths, batch_size, "target_lengths")
    label_starts = _label_starts(targets, label_counts, batch_size)
    if targets.meta.numel:
        check_bounds(_mask_unused_labels(targets, label_counts), classes, _OP_NAME)
    sample_layout = tensor(np.stack([input_lengths_array, label_counts, label_starts], 1), device=log_probs.meta.device)
    labels = views.contiguous(views.reshape(targets, (-1,)).detach())
    if not labels.meta.numel:  # never read, but kernels need a non-empty buffer
        labels = tensor([0], device=log_probs.meta.device)
    if labels.meta.device is not log_probs.meta.device:
        labels = labels.to(log_probs.meta.device)
    num_states = 2 * int(label_counts.max(initial=0)) + 1
    losses = call_multiple(registry["ctc_alpha"], (log_probs, labels, sample_layout), (num_states, blank))[0]
    if zero_infinity:
        losses = _ops.where(_ops.eq(losses, float("inf")), 0.0, losses)
    if reduction == "mean":
        divisors = tensor(np.maximum(label_counts, 1), dtype=losses.meta.dtype, device=losses.meta.device)
        return _ops.mean(_ops.true_divide(losses, divisors))
    if is_single and reduction == "none":
        return views.reshape(losses, ())
    return reduce_losses(losses, reduction, _OP_NAME)


def _as_length_array(
    lengths: Tensor | Sequence[int], batch_size: int, name: str, max_length: int | None = None
) -> Array:
    """Return lengths as an int64 array on the host. Raise `ShapeError` if their number or a value does not fit."""
    if isinstance(lengths, Tensor):
        if lengths.meta.dtype.kind not in "iu":
            raise DTypeError(f"{_OP_NAME}: {name} must be integers, not {lengths.meta.dtype.name}; use .long()")
        array = np.asarray(host_data.to_host(lengths.detach()), np.int64).reshape(-1)
    elif isinstance(lengths, Sequence):
        try:
            array = np.asarray([operator.index(n) for n in lengths], np.int64)
        except TypeError:
            raise DTypeError(f"{_OP_NAME}: {name} must be integers, not {lengths!r}") from None
    else:
        raise ArgumentError(f"{_OP_NAME}: {name} must be a tensor or a sequence of integers, not {lengths!r}")
    if array.size != batch_size:
        raise ShapeError(f"{_OP_NAME}: {name} must be {batch_size}, one per sample, not {array.size}")
    if (array < 0).any() or (max_length is not None and (array > max_length).any()):
        limit = "" if max_length is None else f" and at most {max_length}, the first size of log_probs"
        raise ShapeError(f"{_OP_NAME}: {name} must be at least 0{limit}, but they are {array.tolist()}")
    return array


def _label_starts(targets: Tensor, label_counts: Array, batch_size: int) -> Array:
    """Return the position of each sample's first label. Raise `ShapeError` if the labels do not fit their numbers."""
    if targets.meta.ndim == 1:
        if targets.meta.numel != label_counts.sum():
            raise ShapeError(
                f"{_OP_NAME}: 1-D targets must have all labels, {label_counts.sum()} by target_lengths, but there are "
                f"{targets.meta.numel}"
            )
        return np.concatenate([[0], np.cumsum(label_counts)[:-1]])
    if targets.meta.ndim != 2 or targets.meta.shape[0] != batch_size or (label_counts > targets.meta.shape[1]).any():
        raise ShapeError(
            f"{_OP_NAME}: targets must be ({batch_size}, S) with S of at least {label_counts.max(initial=0)}, or 1-D, "
            f"not of shape {list(targets.meta.shape)}"
        )
    return np.arange(batch_size) * targets.meta.shape[1]


def _mask_unused_labels(targets: Tensor, label_counts: Array) -> Tensor:
    """Return the labels with the padding replaced by 0, because it may hold any value."""
    if targets.meta.ndim == 1:
        return targets
    is_label = np.arange(targets.meta.shape[1]) < label_counts[:, None]
    return _ops.where(tensor(is_label, device=targets.meta.device), targets, 0)
