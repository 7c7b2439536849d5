"""Losses as modules. The functions of `nn.functional` have the formulas, shapes and errors.

`reduction` is `"mean"` (default), `"sum"` or `"none"`, which returns a loss per element. `size_average` and `reduce`
are its deprecated forms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from . import functional as F
from ._reducing import resolve_reduction
from .layers import PairwiseDistance
from .module import Module

if TYPE_CHECKING:
    from ._types import Argument

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]

Flag = bool | None


class _Loss(Module):
    """Base class of losses with a `reduction`."""

    reduction: str

    def __init__(self, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean"):
        super().__init__()
        self.reduction = resolve_reduction(size_average, reduce, reduction, 4)


class _WeightedLoss(_Loss):
    """Base class of losses with a `weight` buffer."""

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean"
    ):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """The absolute error, |input - target|. Shape: `(*)` and `(*)`.

    Args:
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> wg.nn.L1Loss()(wg.tensor([1.0, 2.0]), wg.tensor([1.0, 4.0]))
        tensor(1.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """The squared error, (input - target)**2. Shape: `(*)` and `(*)`.

    Args:
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> wg.nn.MSELoss()(wg.tensor([1.0, 2.0]), wg.tensor([1.0, 4.0]))
        tensor(2.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """The smooth L1 loss: (x - y)**2 / (2 beta) where |x - y| < beta, otherwise |x - y| - beta / 2 (Girshick 2015).

    Args:
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.
        beta: Error at which the loss becomes linear; 0 gives `L1Loss`.

    Example:
        >>> wg.nn.SmoothL1Loss()(wg.tensor([1.0, 2.0]), wg.tensor([1.0, 4.0]))
        tensor(0.7500)
    """

    def __init__(self, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean", beta: float = 1.0):
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, beta=self.beta, reduction=self.reduction)


class HuberLoss(_Loss):
    """The Huber loss: (x - y)**2 / 2 where |x - y| <= delta, otherwise delta (|x - y| - delta / 2) (Huber 1964).

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.
        delta: Error at which the loss becomes linear, above 0.

    Example:
        >>> wg.nn.HuberLoss()(wg.tensor([1.0, 2.0]), wg.tensor([1.0, 4.0]))
        tensor(0.7500)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, delta=self.delta, reduction=self.reduction)


class BCELoss(_WeightedLoss):
    """Binary cross-entropy of probabilities: -(y log(x) + (1 - y) log(1 - x)); logarithms are at least -100.

    Args:
        weight: Factor of each loss, broadcastable to the input.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> wg.nn.BCELoss()(wg.tensor([0.5]), wg.tensor([1.0]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """Binary cross-entropy of sigmoid(input), computed from the logits without loss of precision.

    Args:
        weight: Factor of each loss, broadcastable to the input.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.
        pos_weight: Factor of the losses of positive targets, broadcastable to the input.

    Example:
        >>> wg.nn.BCEWithLogitsLoss()(wg.tensor([0.0]), wg.tensor([1.0]))
        tensor(0.6931)
    """

    pos_weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ):  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence: target * (log(target) - input), where input holds log-probabilities.

    Args:
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"batchmean"` divides the sum by the batch size, as the definition does; `"mean"` divides it by the
            number of elements.
        log_target: Whether the target holds log-probabilities.

    Example:
        >>> p = wg.tensor([[0.5, 0.5]])
        >>> wg.nn.KLDivLoss(reduction='batchmean')(p.log(), p)
        tensor(0.)
    """

    def __init__(
        self, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean", log_target: bool = False
    ):
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, log_target=self.log_target, reduction=self.reduction)


class PoissonNLLLoss(_Loss):
    """Poisson negative log-likelihood: exp(x) - y x, or x - y log(x + eps) without `log_input`.

    Args:
        log_input: Whether the input is the logarithm of the rate.
        full: Add Stirling's approximation of log(y!).
        size_average: Deprecated.
        eps: Added to the rate before its logarithm.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> wg.nn.PoissonNLLLoss()(wg.tensor([0.0]), wg.tensor([2.0]))
        tensor(1.)
    """

    def __init__(
        self, log_input: bool = True, full: bool = False, size_average: Flag = None, eps: float = 1e-8,
        reduce: Flag = None, reduction: str = "mean",
    ):  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(_Loss):
    """Gaussian negative log-likelihood: (log(var) + (x - y)**2 / var) / 2 (Nix and Weigend 1994).

    Args:
        full: Add the constant log(2 pi) / 2.
        eps: Smallest variance.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> wg.nn.GaussianNLLLoss()(wg.tensor([1.0]), wg.tensor([3.0]), wg.tensor([1.0]))
        tensor(2.)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input)), for targets of 1 and -1.

    Args:
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> wg.nn.SoftMarginLoss()(wg.tensor([0.0]), wg.tensor([1.0]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class HingeEmbeddingLoss(_Loss):
    """input where the target is 1, max(0, margin - input) where it is -1.

    Args:
        margin: Distance from which a pair with target -1 costs nothing.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> wg.nn.HingeEmbeddingLoss()(wg.tensor([2.0, 0.25]), wg.tensor([1.0, -1.0]))
        tensor(1.3750)
    """

    def __init__(self, margin: float = 1.0, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(_Loss):
    """max(0, -target * (input1 - input2) + margin).

    Target 1 means that input1 should be larger, -1 that it should be smaller.

    Args:
        margin: Difference from which a pair in the right order costs nothing.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> wg.nn.MarginRankingLoss()(wg.tensor([1.0]), wg.tensor([3.0]), wg.tensor([1.0]))
        tensor(2.)
    """

    def __init__(self, margin: float = 0.0, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cos(input1, input2) where the target is 1, max(0, cos(input1, input2) - margin) where it is -1.

    Args:
        margin: Cosine up to which a pair with target -1 costs nothing.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> wg.nn.CosineEmbeddingLoss()(wg.tensor([[1.0, 0.0]]), wg.tensor([[0.0, 1.0]]), wg.tensor([1.0]))
        tensor(1.)
    """

    def __init__(self, margin: float = 0.0, size_average: Flag = None, reduce: Flag = None, reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), with the p-norm distance d (Balntas et al. 2016).

    Args:
        margin: Required difference of the distances, above 0.
        p: Order of the norm.
        eps: Added to the differences.
        swap: Use d(positive, negative) if it is smaller than d(anchor, negative).
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ArgumentError: If `margin` is not above 0.

    Example:
        >>> wg.nn.TripletMarginLoss(eps=0.0)(wg.tensor([[0.0]]), wg.tensor([[2.0]]), wg.tensor([[1.0]]))
        tensor(2.)
    """

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, size_average: Flag = None,
        reduce: Flag = None, reduction: str = "mean",
    ):  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ArgumentError(f"TripletMarginLoss: margin must be greater than 0, got {margin}")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


class TripletMarginWithDistanceLoss(_Loss):
    """`TripletMarginLoss` with any distance function.

    Args:
        distance_function: Function of two tensors; None means `PairwiseDistance()`.
        margin: Required difference of the distances, above 0.
        swap: Use d(positive, negative) if it is smaller than d(anchor, negative).
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ArgumentError: If `margin` is not above 0.

    Example:
        >>> wg.nn.TripletMarginWithDistanceLoss()(wg.ones(2, 3), wg.ones(2, 3), wg.zeros(2, 3)).shape
        weftgrad.Size([])
    """

    def __init__(
        self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0,
        swap: bool = False, reduction: str = "mean",
    ):  # fmt: skip
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise ArgumentError(f"TripletMarginWithDistanceLoss: margin must be greater than 0, got {margin}")
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, margin=self.margin, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


class NLLLoss(_WeightedLoss):
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
        self, weight: Tensor | None = None, size_average: Flag = None, ignore_index: int = -100, reduce: Flag = None,
        reduction: str = "mean",
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


class CrossEntropyLoss(_WeightedLoss):
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
        self, weight: Tensor | None = None, size_average: Flag = None, ignore_index: int = -100, reduce: Flag = None,
        reduction: str = "mean", label_smoothing: float = 0.0,
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


class MultiMarginLoss(_WeightedLoss):
    """mean over classes i != y of max(0, margin - input[y] + input[i]) ** p (Crammer and Singer 2001 for p = 1).

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
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: Flag = None,
        reduce: Flag = None, reduction: str = "mean",
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


class MultiLabelMarginLoss(_Loss):
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


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross-entropy of logits, averaged over the classes.

    Args:
        weight: Weight of each class, shape `(C)`.
        size_average: Deprecated.
        reduce: Deprecated.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> wg.nn.MultiLabelSoftMarginLoss()(wg.tensor([[0.0, 0.0]]), wg.tensor([[1.0, 0.0]]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class CTCLoss(_Loss):
    """Connectionist temporal classification (Graves et al. 2006).

    The loss is minus the log-probability of a label sequence, summed over all its alignments.

    Args:
        blank: Index of the blank class.
        reduction: `"mean"` divides each loss by its number of labels and averages; `"sum"` or `"none"`.
        zero_infinity: Replace infinite losses, of labels without an alignment, and their gradients by 0.

    Shape:
        See `functional.ctc_loss`.

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
