"""Losses of values, probabilities and distances as modules; `classification_losses` has those of class scores.

The functions of `nn.functional` have the formulas, shapes and errors. `reduction` is `"mean"` (default), `"sum"` or
`"none"`, which returns a loss per element. `size_average` and `reduce` are its deprecated forms.
"""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from . import functional as F
from ._loss_layer import Loss
from .classification_losses import *  # noqa: F403 (pickled modules of version 0.2 name this module)
from .layers import PairwiseDistance

__all__ = [
    "CosineEmbeddingLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class L1Loss(Loss):
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


class MSELoss(Loss):
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


class SmoothL1Loss(Loss):
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

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
    ):
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, beta=self.beta, reduction=self.reduction)


class HuberLoss(Loss):
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


class KLDivLoss(Loss):
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
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ):
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, log_target=self.log_target, reduction=self.reduction)


class PoissonNLLLoss(Loss):
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
        self, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = 1e-8,
        reduce: bool | None = None, reduction: str = "mean",
    ):  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(Loss):
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


class SoftMarginLoss(Loss):
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


class HingeEmbeddingLoss(Loss):
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

    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(Loss):
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

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(Loss):
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

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(Loss):
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
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
        size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
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


class TripletMarginWithDistanceLoss(Loss):
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
