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


def _run_multi_tensor_op(name: str, lists: list[list[Tensor]], numbers: tuple[float, ...] = ()) -> None:
    """Run the multi-tensor op `name` with this thread's launcher."""
    if name not in _local.launchers:
        _local.launchers[name] = MultiTensor(registry[name])
    _local.launchers[name](lists, numbers)


def scale(tensors: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply tensors in place by a 0-d tensor on the same device, without waiting for the device.

    Args:
        tensors: Floating-point tensors of any shapes. One launch scales those without gaps; others have one each.
        factor: The factor. It is not changed.
    """
    # An active mode must see a call for each tensor.
    joint = [] if state().has_active_mode() else [t for t in tensors if t.meta.contiguous or is_dense(t.meta)]
    if joint:
        version = factor.storage.version
        _run_multi_tensor_op("scale_step", [joint, [factor] * len(joint)])
        factor.storage.version = version  # the op's record says that it writes the factor, but its kernel does not
    if len(joint) < len(tensors):
        scaled = {id(t) for t in joint}
        for tensor in tensors:
            if id(tensor) not in scaled and tensor.meta.numel:
                call_into(registry["mul"], (tensor, factor), (), (tensor,), in_place=True)


def factor_slot(like: Tensor) -> Tensor | None:
    """Return a reusable 0-d tensor for a factor of `scale`, with the layout of `like`.

    Its address is the same at every call of a thread, so that the launcher's cached table of addresses stays valid.
    The result is None on devices without host memory, and where several streams are in use.
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
        _run_multi_tensor_op("limit_step", [list(tensors)], (max_abs,))


_NORMS = {1.0: "absolute_sum", 2.0: "euclidean_norm", math.inf: "largest_magnitude"}


def norms(tensors: Sequence[Tensor], order: float) -> list[Tensor]:
    """Return norms of groups of tensors. The norm of these norms is the norm of all elements.

    For the orders 1, 2 and infinity, all tensors of a device and dtype are a group, whose norm takes two launches, and
    tensors without elements are in no group. For other orders each tensor is a group.

    Args:
        tensors: Tensors of any shapes, dtypes and devices.
        order: Order of the norm.

    Returns:
        0-d tensors, each on the device of its group.
    """
    name = _NORMS.get(order)
    is_joint = all(t.meta.dtype.kind == "f" and (t.meta.numel or order < math.inf) for t in tensors)
    if name is None or not is_joint:  # `Tensor.norm` raises the errors for integers and for the largest of no elements
        return [t.norm(order) for t in tensors]
    if name not in _local.reductions:
        _local.reductions[name] = MultiReduction(registry[name])
    return _local.reductions[name](list(tensors))


def update_averages(averages: Sequence[Tensor], current: Sequence[Tensor], weight: float) -> None:
    """Update running averages in place: `average += weight * (current - average)`. Shapes and dtypes are equal."""
    if averages:
        _run_multi_tensor_op("average_step", [list(averages), list(current)], (weight,))
