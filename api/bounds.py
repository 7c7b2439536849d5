"""Whether indices lie in the tensor they index: looked at before anything is launched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import _hosting
from ._checks import only_tensors
from .runtime import dtypes
from .runtime.context import current_stream
from .runtime.device import Device
from .runtime.dispatch import call
from .runtime.errors import DTypeError, IndexOutOfRange
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = ["check_bounds", "check_classes", "check_range", "unchecked"]

_unchecked: set[Device] = set()


def check_bounds(index: Tensor, size: int, where: str, *, negative: bool = False) -> int:
    """The smallest index. Raises `IndexOutOfRange` unless all are in [0, size), or in [-size, size) if `negative`.

    The host waits for the index and looks at its extremes before anything is launched: a kernel cannot raise, and an
    error that comes later would name neither the call nor the index. This is the price of indexing by a tensor. (A
    kernel given a place outside of its tensor reads 0 and writes nothing, so memory is safe without this.)
    """
    only_tensors(where, index)
    if index.meta.dtype.kind not in "ui":
        raise DTypeError(f"{where}: an index must hold integers, not {index.meta.dtype.name}; convert it with .long()")
    if not index.meta.numel:
        return 0
    least, most = _extremes(index, size)
    check_range(least, most, size, where, -size if negative else 0)
    return least


def check_classes(target: Tensor, classes: int, ignore_index: int, where: str) -> None:
    """Raise `IndexOutOfRange` unless all of `target`, integers, are in [0, classes) or equal to `ignore_index`.

    As with `check_bounds`, the host waits for the target. Only if some are outside of [0, classes) are they told apart
    from those to be ignored.
    """
    if not target.meta.numel:
        return
    least, most = _extremes(target, classes)
    if least >= 0 and most < classes:
        return
    values = _hosting.to_host(target.detach())  # type: ignore[attr-defined]
    wrong = values[((values < 0) | (values >= classes)) & (values != ignore_index)]
    if wrong.size:
        found = int(wrong[0])
        known = f"numbered 0 to {classes - 1}" if classes else "so that no target is right"
        raise IndexOutOfRange(
            f"{where}: target {found} is out of bounds: the input has {classes} classes, {known}; correct the target, "
            f"or pass ignore_index={found} for targets that do not count (it is {ignore_index})"
        )


def _extremes(index: Tensor, size: int) -> tuple[int, int]:
    """The smallest and the largest index; 0 for the smallest where all are in [0, size)."""
    device = index.meta.device
    if device.type == "cpu":
        return (0, -1) if device in _unchecked else _extremes_in_memory(index, size)
    if getattr(current_stream(device), "capture", None) is not None:
        return 0, -1  # a graph is captured: nothing has a value before its replay, so nothing can be looked at
    low, high = call(registry["index_bounds"], (index.detach(),))  # type: ignore[attr-defined]
    return (0, -1) if device in _unchecked else (int(low.item()), int(high.item()))


def _extremes_in_memory(index: Tensor, size: int) -> tuple[int, int]:
    layout = index.meta
    if layout.contiguous:
        driver: Any = layout.device.driver  # of the cpu: one that can wait for a storage
        driver.wait_for(index.storage)
        start = index.start - index.storage.start
        memory: Any = driver.host_view(index.storage)
        values = memory[start : start + layout.nbytes].view(layout.dtype.numpy)
        if layout.dtype is dtypes.int64:  # negative ones are huge without a sign, so one pass finds that all are good
            most = int(values.view(np.uint64).max())
            if most < size:
                return 0, most
    else:
        values = _hosting.to_host(index)
    return int(values.min()), int(values.max())


def check_range(least: int, most: int, size: int, where: str, low: int) -> None:
    if least < low or most >= size:
        wrong = least if least < low else most
        reason = " (negative indices are not counted from the end here)" if low == 0 and -size <= wrong < 0 else ""
        raise IndexOutOfRange(f"{where}: index {wrong} is out of range for a dimension of size {size}{reason}")


@contextlib.contextmanager
def unchecked(device: Device) -> Iterator[None]:
    """Indices on `device` are taken for right: where launches are only listed, they were never computed."""
    _unchecked.add(device)
    try:
        yield
    finally:
        _unchecked.discard(device)
