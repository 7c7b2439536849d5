"""Checks of optimizer options, and conversion of options that may be tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import SupportsFloat

import numpy as np

from ..runtime.errors import ArgumentError, DomainError, NotSupported
from ..runtime.tensor import Tensor

__all__ = ["check_betas", "check_learning_rate", "check_modes", "check_not_negative", "round_to_float32", "to_float"]


def to_float(value: SupportsFloat) -> float:
    """Return `value` as a float. A one-element tensor is read from its device, and the host waits, as in PyTorch."""
    return float(value.item()) if isinstance(value, Tensor) else float(value)


def round_to_float32(value: float) -> float:
    """Return `value` rounded to float32, the dtype in which PyTorch stores scalar state."""
    return float(np.float32(value))


def check_learning_rate(title: str, lr: float | Tensor) -> None:
    """Raise `ArgumentError` if the learning rate is negative, NaN, or a tensor of several elements."""
    if isinstance(lr, Tensor) and lr.meta.numel != 1:
        raise ArgumentError(f"{title}: lr as a tensor has one element, not shape {list(lr.meta.shape)}")
    check_not_negative(title, lr=to_float(lr))


def check_not_negative(title: str, **options: SupportsFloat) -> None:
    """Raise `ArgumentError` if an option is below 0 or NaN."""
    for name, value in options.items():
        if not to_float(value) >= 0:
            raise ArgumentError(f"{title}: {name} must not be negative, got {value}")


def check_betas(title: str, betas: Iterable[SupportsFloat]) -> None:
    """Raise `ArgumentError` if a decay rate lies outside [0, 1)."""
    if not all(0 <= to_float(b) < 1 for b in betas):
        raise ArgumentError(f"{title}: betas lie in [0, 1), not {betas}")


def check_modes(title: str, *, differentiable: bool, foreach: bool | None = None, fused: bool | None = None) -> None:
    """Check the options by which PyTorch selects an implementation.

    weftgrad always uses one fused kernel, so that `foreach` and `fused` change nothing.

    Raises:
        DomainError: For a combination that PyTorch refuses.
        NotSupported: For `differentiable=True`.
    """
    if fused and differentiable:
        raise DomainError(f"{title}: fused does not support differentiable")
    if fused and foreach:
        raise DomainError(f"{title}: fused and foreach cannot be True together")
    if differentiable:
        raise NotSupported(
            f"{title}: updates are not recorded for backward; to differentiate through a step, write the update with "
            "tensor operations (new = param - lr * param.grad)"
        )
