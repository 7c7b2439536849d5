"""`torch.distributed.nn`: differentiable collectives."""

from . import functional as functional

__all__ = ["functional"]
