"""Operations on many tensors at once: one kernel launch for all tensors of a device and dtype, two for norms."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np

from ..runtime.backends.host import HostDriver
from ..runtime.context import state
from ..runtime.device import Meta
from ..runtime.dispatch import call_into
from ..runtime.layout import is_dense
from ..runtime.multi_reduction import MultiReduction
from ..runtime.multi_tensor import MultiTensor
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["clamp_elements", "factor_slot", "norms", "scale", "update_averages"]


class _Local(threading.local):
    """A thread's launchers by op. A launcher caches the addresses of its last call's tensors, without owning them."""

    def __init__(self) -> None:
        self.launchers: dict[str, MultiTensor] = {}
        self.reductions: dict[str, MultiReduction] = {}
        self.factor_slots: dict[Meta, Tensor] = {}


_local = _Local()


def _update(name: str, lists: list[list[Tensor]], numbers: tuple[float, ...] = ()) -> None:
    """Run the multi-tensor op `name` with this thread's launcher."""
    if name not in _local.launchers:
        _local.launchers[name] = MultiTensor(registry[name])
    _local.launchers[name](lists, numbers)


def scale(tensors: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply tensors in place by a 0-d tensor on the same device, without waiting for the device."""
    is_joint = not state().has_active_mode()  # which must see a call for each tensor
    joint = [t for t in tensors if t.meta.contiguous or is_dense(t.meta)] if is_joint else []
    if joint:
        version = factor.storage.version
        _update("scale_step", [joint, [factor] * len(joint)])
        factor.storage.version = version  # the kernel declares the factor as written, but does not change it
    if len(joint) < len(tensors):
        scaled = {id(t) for t in joint}
        for tensor in tensors:
            if id(tensor) not in scaled and tensor.meta.numel:
                call_into(registry["mul"], (tensor, factor), (), (tensor,), in_place=True)


def factor_slot(like: Tensor) -> Tensor | None:
    """Return a reusable 0-d tensor for a factor of `scale`, with the layout of `like`.

    The address is always the same, so that the launcher's cached table of addresses stays valid. None on devices
    without host memory, and where several streams are in use.
    """
    factor_layout = like.meta
    if factor_layout.shape or state().streams is not None or not isinstance(factor_layout.device.driver, HostDriver):
        return None
    if factor_layout not in _local.factor_slots:
        _local.factor_slots[factor_layout] = Tensor(
            factor_layout.device.driver.adopt(np.zeros(1, np.float64)), factor_layout, 0
        )
    return _local.factor_slots[factor_layout]


def clamp_elements(tensors: Sequence[Tensor], max_abs: float) -> None:
    """Clamp every element to [-max_abs, max_abs] in place."""
    if tensors:
        _update("limit_step", [list(tensors)], (max_abs,))


_NORMS = {1.0: "absolute_sum", 2.0: "euclidean_norm", math.inf: "largest_magnitude"}


def norms(tensors: Sequence[Tensor], order: float) -> list[Tensor]:
    """Return norms of which the norm of the same order is that of all elements: few of them for many tensors.

    For the orders 1, 2 and infinity, the tensors of a device and dtype have one norm, in two launches, and tensors
    without elements none. Otherwise each tensor has its own.
    """
    name = _NORMS.get(order)
    is_joint = all(t.meta.dtype.kind == "f" and (t.meta.numel or order < math.inf) for t in tensors)
    if name is None or not is_joint:  # also for the largest of no elements, which raises an error
        return [t.norm(order) for t in tensors]
    if name not in _local.reductions:
        _local.reductions[name] = MultiReduction(registry[name])
    return _local.reductions[name](list(tensors))


def update_averages(averages: Sequence[Tensor], current: Sequence[Tensor], weight: float) -> None:
    """Update running averages in place: `average += weight * (current - average)`. Shapes and dtypes are equal."""
    if averages:
        _update("average_step", [list(averages), list(current)], (weight,))
