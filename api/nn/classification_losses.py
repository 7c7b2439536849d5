"""Modules that compute losses of class scores.

The docstrings of the functions in `nn.functional` describe the formulas, shapes and errors in full; the module
`nn.losses` has the other losses and describes `reduction`, `size_average` and `reduce`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from . import functional as F

if TYPE_CHECKING:
    from ._types import Argument
from ._loss_layer import Loss, WeightedLoss

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CrossEntropyLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "NLLLoss2d",
]


class BCELoss(WeightedLoss):
    """Binary cross-entropy of probabilities: -(y log(x) + (1 - y) log(1 - x)), with logarithms clamped at -100.

    Args:
        weight: Factor of each loss, broadcastable to the input.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Shape:
        Input x `(*)` and target y `(*)`, both of probabilities.

    Example:
        >>> wg.nn.BCELoss()(wg.tensor([0.5]), wg.tensor([1.0]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(WeightedLoss):
    """Binary cross-entropy of sigmoid(input), computed from the logits without loss of precision.

    Args:
        weight: Factor of each loss, broadcastable to the input.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.
        pos_weight: Factor of the losses of positive targets, broadcastable to the input.

    Shape:
        Input `(*)` of logits and target `(*)` of probabilities.

    Example:
        >>> wg.nn.BCEWithLogitsLoss()(wg.tensor([0.0]), wg.tensor([1.0]))
        tensor(0.6931)
    """

    pos_weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean", pos_weight: Tensor | None = None,
    ):  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class NLLLoss(WeightedLoss):
    """Negative log-likelihood: minus the log-probability of the target class.

    Args:
        weight: Weight of each class, shape `(C)`. "mean" divides by the sum of the targets' weights.
        size_average: Deprecated.
        ignore_index: Target that contributes no loss.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Shape:
        Input `(N, C, *)` of log-probabilities with target `(N, *)` of class indices, or `(C)` with `()`.

    Example:
        >>> wg.nn.NLLLoss()(wg.tensor([[-1.0, -2.0]]), wg.tensor([1]))
        tensor(2.)
    """

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
        reduce: bool | None = None, reduction: str = "mean",
    ):  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class NLLLoss2d(NLLLoss):
    """Deprecated alias of `NLLLoss`.

    Args:
        *args: Arguments of `NLLLoss`.
        **kwargs: Arguments of `NLLLoss`.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter('ignore')
        ...     wg.nn.NLLLoss2d()(wg.tensor([[-1.0, -2.0]]), wg.tensor([1]))
        ...
        tensor(2.)
    """

    def __init__(self, *args: Argument, **kwargs: Argument):
        warnings.warn("NLLLoss2d is deprecated: NLLLoss does the same", FutureWarning, stacklevel=2)
        super().__init__(*args, **kwargs)


class CrossEntropyLoss(WeightedLoss):
    """Cross-entropy of logits: minus the log-softmax at the target class.

    Args:
        weight: Weight of each class, shape `(C)`. "mean" divides by the sum of the targets' weights.
        size_average: Deprecated.
        ignore_index: Target that contributes no loss.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: Probability, 0 to 1, that is spread evenly over all classes.

    Shape:
        Input `(N, C, *)` of logits with target `(N, *)` of class indices or `(N, C, *)` of probabilities; also without
        N.

    Example:
        >>> wg.nn.CrossEntropyLoss()(wg.tensor([[0.0, 0.0]]), wg.tensor([1]))
        tensor(0.6931)
    """

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
        reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
    ):  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
        )


class MultiMarginLoss(WeightedLoss):
    """Sum over classes i != y of max(0, margin - input[y] + input[i]) ** p, divided by the number of classes.

    For p = 1 this is the loss of Crammer and Singer 2001.

    Args:
        p: 1 or 2.
        margin: Required difference of the scores.
        weight: Weight of each class, shape `(C)`.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Shape:
        Input `(N, C)` with target `(N)` of class indices, or `(C)` with `()`.

    Raises:
        ArgumentError: If `p` is neither 1 nor 2.

    Example:
        >>> wg.nn.MultiMarginLoss()(wg.tensor([[0.0, 0.0]]), wg.tensor([1]))
        tensor(0.5000)
    """

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None,
        reduce: bool | None = None, reduction: str = "mean",
    ):  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ArgumentError(f"MultiMarginLoss: p is 1 or 2, not {p}")
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(Loss):
    """Sum of max(0, 1 - input[y] + input[i]) over targets y and non-targets i, divided by the number of classes.

    Args:
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Shape:
        Input and target `(N, C)` or `(C)`. A row's targets are class indices up to the first -1.

    Example:
        >>> wg.nn.MultiLabelMarginLoss()(wg.tensor([[0.0, 0.0]]), wg.tensor([[1, -1]]))
        tensor(0.5000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(WeightedLoss):
    """Binary cross-entropy of logits, averaged over the classes.

    Args:
        weight: Weight of each class, shape `(C)`.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Shape:
        Input `(N, C)` of logits and target `(N, C)` of 0 and 1.

    Example:
        >>> wg.nn.MultiLabelSoftMarginLoss()(wg.tensor([[0.0, 0.0]]), wg.tensor([[1.0, 0.0]]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class CTCLoss(Loss):
    """Connectionist temporal classification (Graves et al. 2006).

    The loss is minus the log-probability of a label sequence, summed over all its alignments.

    Args:
        blank: Index of the blank class.
        reduction: `"mean"` divides each loss by its number of labels and averages; `"sum"` or `"none"`.
        zero_infinity: Replace infinite losses and their gradients by 0. A loss is infinite if the labels have no
            alignment, because the input is too short.

    Shape:
        Log-probabilities `(T, N, C)` or `(T, C)`, class indices `(N, S)` or all of them concatenated, N input lengths
        and N target lengths. See `functional.ctc_loss`.

    Example:
        >>> log_probabilities = wg.zeros(4, 1, 3).log_softmax(2)
        >>> wg.nn.CTCLoss()(log_probabilities, wg.tensor([[1, 2]]), wg.tensor([4]), wg.tensor([2])).shape
        weftgrad.Size([])
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int],
        target_lengths: Tensor | Sequence[int],
    ) -> Tensor:  # fmt: skip
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )
