"""Losses, under PyTorch's module path."""

from __future__ import annotations

from .. import classification_losses, losses
from .._loss_layer import Loss as _Loss
from .._loss_layer import WeightedLoss as _WeightedLoss
from ..classification_losses import *
from ..losses import *

__all__ = [*losses.__all__, *classification_losses.__all__, "_Loss", "_WeightedLoss"]
