"""`torch._prims_common`: helpers that libraries take from there."""

from __future__ import annotations

from ...runtime.tensor import Tensor

__all__ = ["alert_not_deterministic", "is_contiguous_or_false"]


def alert_not_deterministic(caller: str) -> None:
    """Do nothing: every algorithm is deterministic."""


def is_contiguous_or_false(a: Tensor) -> bool:
    """Return whether the tensor is row-major."""
    return bool(a.is_contiguous())
