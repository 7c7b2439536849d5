"""Gradients divided by a scaler's factor, and whether any of them was not finite."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.context import state
from ..runtime.dispatch import call, call_into
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["unscale"]


def unscale(grads: Sequence[Tensor], inverse: float) -> list[Tensor]:
    """Multiply `grads` by `inverse` in place; for each of their devices and dtypes, a 0-d tensor that says whether any
    element was infinite or NaN. Nothing is waited for."""
    own = state()
    before, own.grad = own.grad, False
    try:
        found = []
        for grad in grads:
            found.append(call(registry["not_finite"], (grad,), (None, False)))
            call_into(registry["mul"], (grad, inverse), (), (grad,), in_place=True)
        return found
    finally:
        own.grad = before
