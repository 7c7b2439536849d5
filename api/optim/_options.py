"""Options of optimizers: what is checked of them, and numbers of what may be a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.errors import ArgumentError, DomainError, NotSupported
from ..runtime.tensor import Tensor

__all__ = ["check_betas", "check_modes", "check_rate", "not_negative", "number", "single"]


def number(value: Any) -> float:
    """A number, or that of a one-element tensor (for which the host waits, as it does in PyTorch)."""
    return float(value.item()) if isinstance(value, Tensor) else float(value)


def single(value: float) -> float:
    """`value` rounded to float32, in which PyTorch keeps numbers of state."""
    return float(np.float32(value))


def check_rate(title: str, lr: Any) -> None:
    """Raise `ArgumentError` for a learning rate that is negative, NaN, or a tensor of several elements."""
    if isinstance(lr, Tensor) and lr.meta.numel != 1:
        raise ArgumentError(f"{title}: lr as a tensor has one element, not shape {list(lr.meta.shape)}")
    not_negative(title, lr=number(lr))


def not_negative(title: str, **options: Any) -> None:
    """Raise `ArgumentError` for an option below 0, or NaN."""
    for name, value in options.items():
        if not number(value) >= 0:
            raise ArgumentError(f"{title}: {name} must not be negative, got {value}")


def check_betas(title: str, betas: Any) -> None:
    """Raise `ArgumentError` for rates of decay that do not lie in [0, 1)."""
    if not all(0 <= number(b) < 1 for b in betas):
        raise ArgumentError(f"{title}: betas lie in [0, 1), not {betas}")


def check_modes(title: str, *, differentiable: bool, foreach: bool | None = None, fused: bool | None = None) -> None:
    """Check what PyTorch chooses an implementation by. Updates are fused kernels over all parameters in any case.

    Raises `DomainError` for combinations that PyTorch refuses, `NotSupported` for `differentiable`.
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
