"""Adaptive softmax, which computes frequent classes in one matrix product and rare ones in clusters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from .._generated import ops as _ops
from ..arguments.types import TensorOptions
from ..creation.factories import zeros
from ..indexing import gathering, index_writes
from ..indexing.bounds import check_bounds
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ..shape import joining
from ..tensor_methods.argument_checks import only_tensors
from . import functional as F
from .containers import ModuleList, Sequential
from .layers import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    """Log-probabilities of the targets, and minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """An approximation of log_softmax for many classes that are sorted by frequency.

    Source: Grave et al. 2017, arXiv 1609.04309.

    The head predicts the first `cutoffs[0]` classes and the clusters of the rarer ones. Cluster i first projects to
    `in_features / div_value ** (i + 1)` features. The host waits for the rows of each cluster, as in PyTorch.

    Args:
        in_features: Features of the input.
        n_classes: Number of classes.
        cutoffs: Increasing class indices at which the clusters begin.
        div_value: Ratio by which the features of successive clusters shrink.
        head_bias: Add a bias in the head.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Shape:
        Input `(N, in_features)` with target `(N)`, or `(in_features)` with `()`. The result is (output, loss): the
        log-probabilities of the targets, in the target's shape, and minus their mean.

    Raises:
        ArgumentError: If cutoffs do not increase within (0, n_classes). It is also a `ValueError`.
        ShapeError: For other shapes. It is also a `RuntimeError`.
        IndexOutOfRange: For targets that are not classes. It is also a `RuntimeError`.

    Example:
        >>> layer = wg.nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs=[4])
        >>> output, loss = layer(wg.ones(2, 8), wg.tensor([1, 7]))
        >>> output.shape, loss.shape
        (weftgrad.Size([2]), weftgrad.Size([]))
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ):  # fmt: skip
        super().__init__()
        bounds = list(cutoffs)
        is_increasing = all(a < b for a, b in pairwise([0, *bounds, n_classes]))
        if not bounds or not is_increasing or any(int(c) != c for c in bounds):
            raise ArgumentError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs must be increasing integers from 1 to at most {n_classes - 1}, "
                f"not {bounds}"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*bounds, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        tensor_options: TensorOptions = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **tensor_options)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            features = int(in_features // div_value ** (i + 1))
            projection = Linear(in_features, features, bias=False, **tensor_options)
            self.tail.append(Sequential(projection, Linear(features, high - low, bias=False, **tensor_options)))

    def reset_parameters(self) -> None:
        """Draw all weights, as `Linear` does."""
        self.head.reset_parameters()
        for layer in self.tail.modules():
            if isinstance(layer, Linear):
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        only_tensors("AdaptiveLogSoftmaxWithLoss", input_, target_)
        if target_.meta.ndim > 1 or input_.meta.ndim != target_.meta.ndim + 1 or (
            input_.meta.shape[:-1] != target_.meta.shape
        ):  # fmt: skip
            raise ShapeError(
                "AdaptiveLogSoftmaxWithLoss: takes (N, in_features) with targets (N,), or (in_features,) with (), not "
                f"shapes {list(input_.meta.shape)} and {list(target_.meta.shape)}"
            )
        is_single = not target_.meta.ndim
        input = input_.unsqueeze(0) if is_single else input_
        target = target_.unsqueeze(0) if is_single else target_
        check_bounds(target, self.n_classes, "AdaptiveLogSoftmaxWithLoss")
        cluster = zeros(target.meta.shape, dtype=target.meta.dtype, device=target.meta.device)
        for low in self.cutoffs[:-1]:
            cluster = cluster + (target >= low)
        head_target = _ops.where(_ops.eq(cluster, 0), target, _ops.add(cluster, self.shortlist_size - 1))
        output = F.nll_loss(F.log_softmax(self.head(input), 1), head_target, reduction="none")
        row_groups, losses = [], []
        for i, low in enumerate(self.cutoffs[:-1]):
            rows = _ops.eq(cluster, i + 1).nonzero().flatten()
            if rows.meta.numel:
                logits = self.tail[i](gathering.index_select(input, 0, rows))
                cluster_target = _ops.sub(gathering.index_select(target, 0, rows), low)
                losses.append(F.cross_entropy(logits, cluster_target, reduction="none"))
                row_groups.append(rows)
        if row_groups:
            output = index_writes.index_add(output, 0, joining.cat(row_groups), joining.cat(losses))
        output = _ops.neg(output)
        loss = _ops.neg(_ops.mean(output))
        return _ASMoutput(output.squeeze(0) if is_single else output, loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Return the log-probabilities of all classes.

        Args:
            input: `(N, in_features)`.

        Returns:
            Tensor of shape `(N, n_classes)`.

        Example:
            >>> wg.nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs=[4]).log_prob(wg.ones(2, 8)).shape
            weftgrad.Size([2, 10])
        """
        head = F.log_softmax(self.head(input), 1)
        log_probs = [_ops.narrow(head, 1, 0, self.shortlist_size)]
        for i, cluster in enumerate(self.tail):
            log_probs.append(F.log_softmax(cluster(input), 1) + _ops.narrow(head, 1, self.shortlist_size + i, 1))
        return joining.cat(log_probs, 1)

    def predict(self, input: Tensor) -> Tensor:
        """Return the most probable class of each row.

        Only rows for which the head predicts a cluster are computed further; the host waits for their indices.

        Args:
            input: `(N, in_features)`.

        Returns:
            int64 tensor of shape `(N,)`.

        Example:
            >>> wg.nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs=[4]).predict(wg.ones(2, 8)).shape
            weftgrad.Size([2])
        """
        predicted = _ops.argmax(self.head(input), 1)
        rows = _ops.ge(predicted, self.shortlist_size).nonzero().flatten()
        if not rows.meta.numel:
            return predicted
        all_in_clusters = rows.meta.numel == predicted.meta.numel
        best = _ops.argmax(self.log_prob(input if all_in_clusters else gathering.index_select(input, 0, rows)), 1)
        return best if all_in_clusters else index_writes.index_copy(predicted, 0, rows, best)
