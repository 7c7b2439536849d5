"""What is done to many tensors at once: one kernel for all of a device and dtype, written in place."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from ._generated import ops
from .runtime.backends.host import HostDriver
from .runtime.context import current_stream, state
from .runtime.device import Meta, meta
from .runtime.dispatch import Plan, call_into, empty, plan_into
from .runtime.layout import dense
from .runtime.multi_tensor import MultiTensor
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = ["average", "limit", "norms", "place", "scale"]


class _Local(threading.local):
    """A thread's launchers by op: each remembers where the tensors of its last call were, but keeps none of them."""

    def __init__(self) -> None:
        self.found: dict[str, MultiTensor] = {}
        self.places: dict[Meta, Tensor] = {}


_local = _Local()


def _update(name: str, lists: list[list[Tensor]], numbers: tuple[float, ...] = ()) -> None:
    if name not in _local.found:
        _local.found[name] = MultiTensor(registry[name])
    _local.found[name](lists, numbers)


def scale(tensors: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Multiply each tensor by its factor, a 0-d tensor on its device; nothing is waited for."""
    alone = state().watched()
    together = [not alone and dense(t.meta) for t in tensors]
    if any(together):
        chosen = [[x for x, t in zip(each, together, strict=True) if t] for each in (tensors, factors)]
        versions = {id(f): (f, f.storage.version) for f in chosen[1]}
        _update("scale_step", chosen)
        for factor, version in versions.values():
            factor.storage.version = version  # a flag is an operand to write, but this one stays as it is
    for tensor, factor, done in zip(tensors, factors, together, strict=True):
        if not done and tensor.meta.numel:
            call_into(registry["mul"], (tensor, factor), (), (tensor,), in_place=True)


def place(like: Tensor) -> Tensor | None:
    """Where a factor for `scale`, of the layout of `like`, may be put: always the same place of host memory, so that
    the table of places is still right. None on other devices, and beside other streams."""
    own = like.meta
    if own.shape or state().streams is not None or not isinstance(own.device.driver, HostDriver):
        return None
    if own not in _local.places:
        _local.places[own] = Tensor(own.device.driver.adopt(np.zeros(1, np.float64)), own, 0)
    return _local.places[own]


def limit(tensors: Sequence[Tensor], most: float) -> None:
    """Limit every element to [-most, most]."""
    if tensors:
        _update("limit_step", [list(tensors)], (most,))


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of each of the tensors, of one device and dtype, in a vector."""
    first = tensors[0].meta
    found = empty(meta(first.dtype, (len(tensors),), None, first.device))
    one = meta(first.dtype, (), None, first.device)
    plans: dict[Meta, Plan] | None = None if state().watched() else {}  # looked up once for tensors of one layout
    stream = current_stream(first.device)
    for i, tensor in enumerate(tensors):
        slot = Tensor(found.storage, one, found.start + i * first.dtype.itemsize)
        if plans is None:
            ops.euclidean_norm(tensor.detach(), out=slot)  # type: ignore[attr-defined]
            continue
        plan = plans.get(tensor.meta)
        if plan is None:
            plan = plans[tensor.meta] = plan_into(registry["euclidean_norm"], (tensor,), (None, False), (slot,))
        if plan.run is not None:
            plan.run([tensor, slot], (), stream)
    return found


def average(averages: Sequence[Tensor], current: Sequence[Tensor], weight: float) -> None:
    """Move averages by `weight` of their distance to `current`, tensors of the same shapes and dtypes."""
    if averages:
        _update("average_step", [list(averages), list(current)], (weight,))
