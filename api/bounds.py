"""Whether indices lie in the tensor they index: looked at before anything is launched."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _hosting
from .runtime import dtypes
from .runtime.dispatch import call
from .runtime.errors import DTypeError, IndexOutOfRange
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = ["check_bounds", "check_range"]


def check_bounds(index: Tensor, size: int, where: str, *, negative: bool = False) -> int:
    """The smallest index. Raises `IndexOutOfRange` unless all are in [0, size), or in [-size, size) if `negative`.

    The host waits for the index and looks at its extremes before anything is launched: a kernel cannot raise, and an
    error that comes later would name neither the call nor the index. This is the price of indexing by a tensor. (A
    kernel given a place outside of its tensor reads 0 and writes nothing, so memory is safe without this.)
    """
    if index.meta.dtype.kind not in "ui":
        raise DTypeError(f"{where}: an index must hold integers, not {index.meta.dtype.name}; convert it with .long()")
    if not index.meta.numel:
        return 0
    if index.meta.device.type == "cpu":
        least, most = _extremes(index, size)
    else:
        low, high = call(registry["index_bounds"], (index.detach(),))  # type: ignore[attr-defined]
        least, most = int(low.item()), int(high.item())
    check_range(least, most, size, where, -size if negative else 0)
    return least


def _extremes(index: Tensor, size: int) -> tuple[int, int]:
    """The smallest and the largest index in host memory."""
    layout = index.meta
    if layout.contiguous:
        driver = layout.device.driver
        driver.synchronize()
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
