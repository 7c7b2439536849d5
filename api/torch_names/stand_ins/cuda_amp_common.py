"""`torch.cuda.amp.common`: whether mixed precision on CUDA is impossible here."""

from ...cuda import is_available

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """Return True if there is no CUDA device."""
    return not is_available()
