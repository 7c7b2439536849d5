"""Adaptive softmax: frequent classes in one product, rare ones in clusters of smaller ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from .. import gathering, joining, scattering
from .._checks import only_tensors
from .._generated import ops as _ops
from ..bounds import check_bounds
from ..factories import zeros
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
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
    """An approximation of log_softmax over many classes sorted by frequency (Grave et al. 2017).

    The head decides between the first `cutoffs[0]` classes and the clusters that the other cutoffs bound; cluster i has
    a projection to in_features / div_value ** (i + 1) features before its classes. `forward(input, target)` takes
    (N, in_features) with (N,), or (in_features,) with (), and gives (output, loss): the targets' log-probabilities and
    minus their mean. The host waits for the rows of each cluster, as PyTorch's does.

    Raises `ArgumentError`, a `ValueError`, for cutoffs that do not rise within (0, n_classes); `ShapeError`, a
    `RuntimeError`, for other shapes; `IndexOutOfRange`, a `RuntimeError`, for targets that are no class.
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        bounds = list(cutoffs)
        rising = all(a < b for a, b in pairwise([0, *bounds, n_classes]))
        if not bounds or not rising or any(int(c) != c for c in bounds):
            raise ArgumentError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs must be integers that rise from 1 to at most {n_classes - 1}, "
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
        placed = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **placed)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            width = int(in_features // div_value ** (i + 1))
            first = Linear(in_features, width, bias=False, **placed)
            self.tail.append(Sequential(first, Linear(width, high - low, bias=False, **placed)))

    def reset_parameters(self) -> None:
        """Draw all weights anew, as `Linear` does."""
        self.head.reset_parameters()
        for part in self.tail:
            for layer in part:  # type: ignore[attr-defined]
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
        single = not target_.meta.ndim
        input = input_.unsqueeze(0) if single else input_  # type: ignore[attr-defined]
        target = target_.unsqueeze(0) if single else target_  # type: ignore[attr-defined]
        check_bounds(target, self.n_classes, "AdaptiveLogSoftmaxWithLoss")
        cluster = zeros(target.meta.shape, dtype=target.meta.dtype, device=target.meta.device)
        for low in self.cutoffs[:-1]:
            cluster = cluster + (target >= low)
        chosen = _ops.where(_ops.eq(cluster, 0), target, _ops.add(cluster, self.shortlist_size - 1))
        output = F.nll_loss(F.log_softmax(self.head(input), 1), chosen, reduction="none")
        places, parts = [], []
        for i, low in enumerate(self.cutoffs[:-1]):
            rows = _ops.eq(cluster, i + 1).nonzero().flatten()  # type: ignore[attr-defined]
            if rows.meta.numel:
                found = self.tail[i](gathering.index_select(input, 0, rows))
                own = _ops.sub(gathering.index_select(target, 0, rows), low)
                parts.append(F.cross_entropy(found, own, reduction="none"))
                places.append(rows)
        if places:
            output = scattering.index_add(output, 0, joining.cat(places), joining.cat(parts))
        output = _ops.neg(output)
        loss = _ops.neg(_ops.mean(output))
        return _ASMoutput(output.squeeze(0) if single else output, loss)  # type: ignore[attr-defined]

    def log_prob(self, input: Tensor) -> Tensor:
        """The logarithms of the probabilities of all classes: (N, in_features) to (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [_ops.narrow(head, 1, 0, self.shortlist_size)]
        for i, part in enumerate(self.tail):
            parts.append(F.log_softmax(part(input), 1) + _ops.narrow(head, 1, self.shortlist_size + i, 1))
        return joining.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row: (N, in_features) to (N,), int64.

        Only rows for which the head chooses a cluster are looked at further; the host waits for which these are.
        """
        found = _ops.argmax(self.head(input), 1)
        rows = _ops.ge(found, self.shortlist_size).nonzero().flatten()  # type: ignore[attr-defined]
        if not rows.meta.numel:
            return found
        whole = rows.meta.numel == found.meta.numel
        best = _ops.argmax(self.log_prob(input if whole else gathering.index_select(input, 0, rows)), 1)
        return best if whole else scattering.index_copy(found, 0, rows, best)
