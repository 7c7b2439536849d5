"""Switches of cuDNN, which is not used. They can be set but change nothing: our kernels are deterministic."""

from __future__ import annotations

__all__ = ["allow_tf32", "benchmark", "deterministic", "enabled", "is_available", "version"]

enabled = False
benchmark = False
deterministic = True
allow_tf32 = False


def is_available() -> bool:
    """Return False: convolutions and recurrent networks use our own kernels, not cuDNN.

    Returns:
        False.

    Example:
        >>> wg.backends.cudnn.is_available()
        False
    """
    return False


def version() -> None:
    """Return None: there is no cuDNN.

    Example:
        >>> print(wg.backends.cudnn.version())
        None
    """
    return
