"""Names of `torch.cuda` that programs use in annotations only."""

from contextlib import AbstractContextManager as StreamContext

__all__ = ["StreamContext"]
