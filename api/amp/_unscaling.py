"""Gradients divided by a scaler's factor, and whether any of them was not finite."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.context import state
from ..runtime.device import meta
from ..runtime.dispatch import call, call_into, empty
from ..runtime.dtypes import bool_
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["unscale"]


def unscale(grads: Sequence[Tensor], inverse: float) -> list[Tensor]:
    """Multiply `grads` by `inverse` in place; for each of their devices, a 0-d tensor that says whether any element was
    infinite or NaN. Nothing is waited for."""
    own = state()
    before, own.grad = own.grad, False
    try:
        devices = dict.fromkeys(grad.meta.device for grad in grads)
        return [_of_one_device([g for g in grads if g.meta.device is device], inverse) for device in devices]
    finally:
        own.grad = before


def _of_one_device(grads: list[Tensor], inverse: float) -> Tensor:
    flags = empty(meta(bool_, (len(grads),), None, grads[0].meta.device))
    for i, grad in enumerate(grads):
        flag = call(registry["select"], (flags,), (0, i))
        call_into(registry["not_finite"], (grad,), (None, False), (flag,), in_place=False)
        call_into(registry["mul"], (grad, inverse), (), (grad,), in_place=True)
    return call(registry["any"], (flags,), (None, False))  # type: ignore[no-any-return]
