"""Base classes of the loss layers: `Loss`, and `WeightedLoss` for losses with weights."""

from __future__ import annotations

from ..runtime.tensor import Tensor
from ._loss_reduction import resolve_reduction
from .module import Module

__all__ = ["Loss", "WeightedLoss"]


class Loss(Module):
    """Base class of losses with a `reduction`.

    Args:
        size_average: Deprecated: False is `reduction="sum"`.
        reduce: Deprecated: False is `reduction="none"`.
        reduction: `"mean"`, `"sum"` or `"none"`. Other values raise an error when the loss is called.
    """

    reduction: str

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        # Deprecated arguments warn at the line that creates the layer, past the `__init__` of each subclass.
        classes = type(self).__mro__[: type(self).__mro__.index(Loss) + 1]
        init_frames = sum("__init__" in vars(cls) for cls in classes)
        self.reduction = resolve_reduction(size_average, reduce, reduction, stacklevel=2 + init_frames)


class WeightedLoss(Loss):
    """Base class of losses with a buffer `weight`.

    Args:
        weight: Weights, whose shape the loss defines; None: all are 1.
        size_average: Deprecated, see `Loss`.
        reduce: Deprecated, see `Loss`.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

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
