"""Losses with the names and argument orders that PyTorch has in `torch` itself, where `reduction` is a number."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from . import functional as F

__all__ = [
    "binary_cross_entropy_with_logits", "cosine_embedding_loss", "ctc_loss", "hinge_embedding_loss", "kl_div",
    "margin_ranking_loss", "poisson_nll_loss", "triplet_margin_loss",
]  # fmt: skip

_REDUCTIONS = ("none", "mean", "sum")


def _reduction_name(where: str, reduction: int) -> str:
    if reduction not in (0, 1, 2):
        raise ArgumentError(f"{where}: reduction is 0 (none), 1 (mean) or 2 (sum), not {reduction!r}")
    return _REDUCTIONS[reduction]


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 1,
) -> Tensor:  # fmt: skip
    """Call `nn.functional.binary_cross_entropy_with_logits`, whose `reduction` is a word.

    Args:
        input: Logits.
        target: Tensor of the same shape.
        weight: Factor of each loss; None: 1.
        pos_weight: Factor of the losses of positive targets; None: 1.
        reduction: 0: a loss for each element; 1: their mean; 2: their sum.

    Returns:
        Tensor; of shape `()` unless `reduction` is 0.

    Raises:
        ArgumentError: `reduction` is another number.

    Example:
        >>> wg.binary_cross_entropy_with_logits(wg.zeros(2), wg.tensor([0.0, 1.0]))
        tensor(0.6931)
    """
    return F.binary_cross_entropy_with_logits(
        input,
        target,
        weight,
        pos_weight=pos_weight,
        reduction=_reduction_name("binary_cross_entropy_with_logits", reduction),
    )


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1,
) -> Tensor:  # fmt: skip
    """Call `nn.functional.cosine_embedding_loss`, whose `reduction` is a word.

    Args:
        input1: Vectors.
        input2: Vectors.
        target: 1 for pairs that should be similar, -1 for others.
        margin: Cosine below which pairs of target -1 cost nothing.
        reduction: 0: a loss for each element; 1: their mean; 2: their sum.

    Returns:
        Tensor; of shape `()` unless `reduction` is 0.

    Raises:
        ArgumentError: `reduction` is another number.

    Example:
        >>> wg.cosine_embedding_loss(wg.eye(2), wg.eye(2), wg.tensor([1, -1]))
        tensor(0.5000)
    """
    return F.cosine_embedding_loss(
        input1, input2, target, margin, reduction=_reduction_name("cosine_embedding_loss", reduction)
    )


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int], target_lengths: Tensor | Sequence[int],
    blank: int = 0, reduction: int = 1, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Call `nn.functional.ctc_loss`, whose `reduction` is a word.

    Args:
        log_probs: Log-probabilities of shape `(T, N, C)` or `(T, C)`.
        targets: Labels of shape `(N, S)`, or all in one vector.
        input_lengths: Number of steps of each sequence.
        target_lengths: Number of labels of each sequence.
        blank: Number of the blank label.
        zero_infinity: Whether infinite losses become 0.
        reduction: 0: a loss for each element; 1: their mean; 2: their sum.

    Returns:
        Tensor; of shape `()` unless `reduction` is 0.

    Raises:
        ArgumentError: `reduction` is another number.

    Example:
        >>> wg.ctc_loss(wg.zeros(1, 1, 2), wg.tensor([[1]]), [1], [1])
        tensor(0.)
    """
    return F.ctc_loss(
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        blank,
        zero_infinity=zero_infinity,
        reduction=_reduction_name("ctc_loss", reduction),
    )


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1) -> Tensor:
    """Call `nn.functional.hinge_embedding_loss`, whose `reduction` is a word.

    Args:
        input: Distances.
        target: 1 for pairs that should be near, -1 for others.
        margin: Distance from which pairs of target -1 cost nothing.
        reduction: 0: a loss for each element; 1: their mean; 2: their sum.

    Returns:
        Tensor; of shape `()` unless `reduction` is 0.

    Raises:
        ArgumentError: `reduction` is another number.

    Example:
        >>> wg.hinge_embedding_loss(wg.tensor([0.5, 0.2]), wg.tensor([1.0, -1.0]))
        tensor(0.6500)
    """
    return F.hinge_embedding_loss(input, target, margin, reduction=_reduction_name("hinge_embedding_loss", reduction))


def kl_div(input: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False) -> Tensor:
    """Call `nn.functional.kl_div`, whose `reduction` is a word.

    Args:
        input: Log-probabilities.
        target: Probabilities, or their logarithms if `log_target`.
        log_target: Whether targets are logarithms.
        reduction: 0: a loss for each element; 1: their mean; 2: their sum.

    Returns:
        Tensor; of shape `()` unless `reduction` is 0.

    Raises:
        ArgumentError: `reduction` is another number.

    Example:
        >>> wg.kl_div(wg.zeros(2), wg.ones(2), 2)
        tensor(0.)
    """
    name = _reduction_name("kl_div", reduction)
    losses = F.kl_div(input, target, log_target=log_target, reduction="none" if name == "mean" else name)
    return losses.mean() if name == "mean" else losses  # not by `F`, which warns of the mean


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1,
) -> Tensor:  # fmt: skip
    """Call `nn.functional.margin_ranking_loss`, whose `reduction` is a word.

    Args:
        input1: Scores.
        input2: Scores.
        target: 1 where `input1` should be the larger one, -1 where `input2` should.
        margin: Least difference that costs nothing.
        reduction: 0: a loss for each element; 1: their mean; 2: their sum.

    Returns:
        Tensor; of shape `()` unless `reduction` is 0.

    Raises:
        ArgumentError: `reduction` is another number.

    Example:
        >>> wg.margin_ranking_loss(wg.tensor([1.0]), wg.tensor([3.0]), wg.tensor([1.0]))
        tensor(2.)
    """
    return F.margin_ranking_loss(
        input1, input2, target, margin, reduction=_reduction_name("margin_ranking_loss", reduction)
    )


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """Call `nn.functional.poisson_nll_loss`, whose `reduction` is a word.

    Args:
        input: The rate, or its logarithm if `log_input`.
        target: Counts.
        log_input: Whether `input` is the logarithm of the rate.
        full: Whether to add Stirling's approximation of log(target!).
        eps: Added to the rate before its logarithm.
        reduction: 0: a loss for each element; 1: their mean; 2: their sum.

    Returns:
        Tensor; of shape `()` unless `reduction` is 0.

    Raises:
        ArgumentError: `reduction` is another number.

    Example:
        >>> wg.poisson_nll_loss(wg.zeros(1), wg.ones(1), True, False, 1e-8, 1)
        tensor(1.)
    """
    return F.poisson_nll_loss(
        input, target, log_input, full, eps=eps, reduction=_reduction_name("poisson_nll_loss", reduction)
    )


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, reduction: int = 1,
) -> Tensor:  # fmt: skip
    """Call `nn.functional.triplet_margin_loss`, whose `reduction` is a word.

    Args:
        anchor: Vectors.
        positive: Vectors that should be near the anchors.
        negative: Vectors that should be far from them.
        margin: Difference of distances from which a triplet costs nothing.
        p: Norm of the distances.
        eps: Added to differences.
        swap: Whether the distance of `positive` from `negative` counts, where it is the smaller one.
        reduction: 0: a loss for each element; 1: their mean; 2: their sum.

    Returns:
        Tensor; of shape `()` unless `reduction` is 0.

    Raises:
        ArgumentError: `reduction` is another number.

    Example:
        >>> wg.triplet_margin_loss(wg.zeros(1, 2), wg.zeros(1, 2), wg.zeros(1, 2))
        tensor(1.)
    """
    return F.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap, reduction=_reduction_name("triplet_margin_loss", reduction)
    )
