"""What this process can use: mpi4py, NCCL, and whether a launcher has started it."""

from __future__ import annotations

import os
from importlib.util import find_spec

from .nccl import find_library

__all__ = [
    "is_available", "is_gloo_available", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
]  # fmt: skip


def is_available() -> bool:
    """Return whether mpi4py is installed, on which `weftgrad.distributed` is built.

    Returns:
        bool.

    Example:
        >>> wg.distributed.is_available() in (True, False)
        True
    """
    return find_spec("mpi4py") is not None


def is_mpi_available() -> bool:
    """Return whether the backend `mpi` can be used, as `is_available` does.

    Example:
        >>> wg.distributed.is_mpi_available() == wg.distributed.is_available()
        True
    """
    return is_available()


def is_gloo_available() -> bool:
    """Return whether programs can name the backend `gloo`, which means `mpi` here.

    Example:
        >>> wg.distributed.is_gloo_available() == wg.distributed.is_available()
        True
    """
    return is_available()


def is_nccl_available() -> bool:
    """Return whether NCCL's library is installed.

    Example:
        >>> wg.distributed.is_nccl_available() in (True, False)
        True
    """
    return find_library() is not None


def is_torchelastic_launched() -> bool:
    """Return whether `torchrun` or `weftgrad launch`, which sets its variables, has started the process.

    Example:
        >>> wg.distributed.is_torchelastic_launched() in (True, False)
        True
    """
    return "TORCHELASTIC_RUN_ID" in os.environ
