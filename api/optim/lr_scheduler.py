"""Learning rate schedules under `torch.optim.lr_scheduler`'s names. They change `lr`, and some change momentum."""

from ._composite_schedules import ChainedScheduler, SequentialLR
from ._cosine_schedules import CosineAnnealingLR, CosineAnnealingWarmRestarts
from ._cyclic_schedules import CyclicLR, OneCycleLR
from ._epoch_schedules import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from ._plateau_schedule import ReduceLROnPlateau
from ._scheduler import LRScheduler

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

_LRScheduler = LRScheduler  # PyTorch's former name
