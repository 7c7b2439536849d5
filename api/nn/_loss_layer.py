"""The base classes of losses."""

from __future__ import annotations

from ..runtime.tensor import Tensor
from ._loss_reduction import resolve_reduction
from .module import Module

__all__ = ["Loss", "WeightedLoss"]


class Loss(Module):
    """Base class of losses with a `reduction`."""

    reduction: str

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.reduction = resolve_reduction(size_average, reduce, reduction, 4)


class WeightedLoss(Loss):
    """Base class of losses with a `weight` buffer."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
