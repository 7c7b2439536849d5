"""Unscale gradients in place and detect non-finite values, for `GradScaler`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..runtime.context import state
from ..runtime.device import Device, meta
from ..runtime.dispatch import call, call_into, empty
from ..runtime.dtypes import float32
from ..runtime.host_data import from_host
from ..runtime.layout import is_dense
from ..runtime.multi_tensor import MultiTensor
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["Unscaling"]


class Unscaling:
    """Unscales one optimizer's gradients. Dense gradients of one device and dtype share one kernel launch."""

    def __init__(self) -> None:
        self._dense_kernel = MultiTensor(registry["unscale_step"])

    def __call__(self, grads: Sequence[Tensor], inverse: float) -> list[Tensor]:
        """Multiply `grads` by `inverse` in place.

        Args:
            grads: Gradients on any devices.
            inverse: 1 / the loss scale.

        Returns:
            One tensor of one element per device, 0 if all gradients there are finite. The host does not wait.
        """
        thread_state = state()
        previous_grad, thread_state.grad = thread_state.grad, False
        try:
            non_finite: dict[Device, Tensor] = {}
            dense_grads = []
            for grad in grads:
                device = grad.meta.device
                if device not in non_finite:
                    non_finite[device] = from_host(np.zeros(1, np.float32), float32, device)
                if thread_state.mode is None and is_dense(grad.meta):
                    dense_grads.append(grad)
                elif grad.meta.numel:
                    _unscale_strided(grad, non_finite[device], inverse)
            if dense_grads:
                self._dense_kernel([dense_grads, [non_finite[g.meta.device] for g in dense_grads]], (inverse,))
            return list(non_finite.values())
        finally:
            thread_state.grad = previous_grad


def _unscale_strided(grad: Tensor, non_finite: Tensor, inverse: float) -> None:
    """Unscale a gradient that is not dense.

    The kernel writes one flag per element; their sum is added to `non_finite`.
    """
    flags = empty(meta(float32, grad.meta.shape, None, grad.meta.device))
    call_into(registry["unscale_step"], (grad, flags, inverse), (), (grad, flags), in_place=False)
    total = call(registry["sum"], (flags,), (None, False, None))
    call_into(registry["add"], (non_finite, total), (), (non_finite,), in_place=True)
