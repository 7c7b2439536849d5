"""In-place operations on many tensors at once: one kernel launch for all tensors of a device and dtype."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from .._generated import ops
from ..runtime.backends.host import HostDriver
from ..runtime.context import current_stream, state
from ..runtime.device import Meta, meta
from ..runtime.dispatch import Plan, call_into, empty, plan_into
from ..runtime.layout import is_dense
from ..runtime.multi_tensor import MultiTensor
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["clamp_elements", "euclidean_norms", "factor_slot", "scale", "update_averages"]


class _Local(threading.local):
    """A thread's launchers by op. A launcher caches the addresses of its last call's tensors, without owning them."""

    def __init__(self) -> None:
        self.launchers: dict[str, MultiTensor] = {}
        self.factor_slots: dict[Meta, Tensor] = {}


_local = _Local()


def _update(name: str, lists: list[list[Tensor]], numbers: tuple[float, ...] = ()) -> None:
    """Run the multi-tensor op `name` with this thread's launcher."""
    if name not in _local.launchers:
        _local.launchers[name] = MultiTensor(registry[name])
    _local.launchers[name](lists, numbers)


def scale(tensors: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Multiply each tensor in place by its factor, a 0-d tensor on the same device, without waiting for the device."""
    has_active_mode = state().has_active_mode()  # it must see a call for each tensor
    shares_launch = [not has_active_mode and is_dense(t.meta) for t in tensors]
    if any(shares_launch):
        lists = [[x for x, shares in zip(s, shares_launch, strict=True) if shares] for s in (tensors, factors)]
        versions = {id(f): (f, f.storage.version) for f in lists[1]}
        _update("scale_step", lists)
        for factor, version in versions.values():
            factor.storage.version = version  # the kernel declares the factor as written, but does not change it
    for tensor, factor, is_done in zip(tensors, factors, shares_launch, strict=True):
        if not is_done and tensor.meta.numel:
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


def euclidean_norms(tensors: Sequence[Tensor]) -> Tensor:
    """Return a vector with the Euclidean norm of each tensor. All tensors have one device and dtype."""
    first = tensors[0].meta
    output = empty(meta(first.dtype, (len(tensors),), None, first.device))
    scalar_layout = meta(first.dtype, (), None, first.device)
    plans: dict[Meta, Plan] | None = None if state().has_active_mode() else {}  # one lookup for all tensors of a layout
    stream = current_stream(first.device)
    for i, tensor in enumerate(tensors):
        slot = Tensor(output.storage, scalar_layout, output.start + i * first.dtype.itemsize)
        if plans is None:
            ops.euclidean_norm(tensor.detach(), out=slot)
            continue
        plan = plans.get(tensor.meta)
        if plan is None:
            plan = plans[tensor.meta] = plan_into(registry["euclidean_norm"], (tensor,), (None, False), (slot,))
        if plan.run is not None:
            plan.run([tensor, slot], (), stream)
    return output


def update_averages(averages: Sequence[Tensor], current: Sequence[Tensor], weight: float) -> None:
    """Update running averages in place: `average += weight * (current - average)`. Shapes and dtypes are equal."""
    if averages:
        _update("average_step", [list(averages), list(current)], (weight,))
