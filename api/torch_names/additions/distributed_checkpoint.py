"""Placeholders for the names of `torch.distributed.checkpoint` that weftgrad's module does not have."""

from ..placeholders import PlaceholderModule
from ..tables import remedy_of

__all__ = ["__getattr__"]

_NAME = "torch.distributed.checkpoint"
__getattr__ = PlaceholderModule(_NAME, remedy_of(_NAME) or "").__getattr__
