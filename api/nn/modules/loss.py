"""Losses, under PyTorch's module path."""

from __future__ import annotations

from .. import losses
from ..losses import *
from ..losses import _Loss, _WeightedLoss

__all__ = [*losses.__all__, "_Loss", "_WeightedLoss"]
