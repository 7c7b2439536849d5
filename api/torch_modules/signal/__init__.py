"""Signal processing under the names of `torch.signal`: window functions, in `windows`."""

from . import windows

__all__ = ["windows"]
