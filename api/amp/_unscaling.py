"""Gradients divided by a scaler's factor, and whether any of them was not finite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._hosting import from_host
from ..runtime.context import state
from ..runtime.device import Device, meta
from ..runtime.dispatch import call, call_into, empty
from ..runtime.dtypes import float32
from ..runtime.layout import dense
from ..runtime.multi_tensor import MultiTensor
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["Unscaling"]


class Unscaling:
    """One optimizer's gradients: a kernel for all of a device and dtype, as long as they lie without gaps."""

    def __init__(self) -> None:
        self._together = MultiTensor(registry["unscale_step"])

    def __call__(self, grads: Sequence[Tensor], inverse: float) -> list[Tensor]:
        """Multiply `grads` by `inverse` in place; for each of their devices, a tensor of one element that is 0 if all
        elements were finite. Nothing is waited for."""
        own = state()
        before, own.grad = own.grad, False
        try:
            found: dict[Device, Tensor] = {}
            together = []
            for grad in grads:
                device = grad.meta.device
                if device not in found:
                    found[device] = from_host(np.zeros(1, np.float32), float32, device)
                if own.mode is None and dense(grad.meta):
                    together.append(grad)
                elif grad.meta.numel:
                    _alone(grad, found[device], inverse)
            if together:
                self._together([together, [found[g.meta.device] for g in together]], (inverse,))
            return list(found.values())
        finally:
            own.grad = before


def _alone(grad: Tensor, found: Tensor, inverse: float) -> None:
    """A gradient with gaps: with a flag an element, which are added up."""
    flags = empty(meta(float32, grad.meta.shape, None, grad.meta.device))
    call_into(registry["unscale_step"], (grad, flags, inverse), (), (grad, flags), in_place=False)
    total = call(registry["sum"], (flags,), (None, False, None))
    call_into(registry["add"], (found, total), (), (found,), in_place=True)
