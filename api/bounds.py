"""Whether indices lie in the tensor they index: looked at before anything is launched, or when the device tells."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import _hosting
from ._checks import only_tensors
from .runtime import deferred, dtypes
from .runtime.device import Device
from .runtime.dispatch import call
from .runtime.errors import DTypeError, IndexOutOfRange
from .runtime.records import OpRecord, registry
from .runtime.tensor import Tensor

__all__ = ["Check", "bounds_check", "check_bounds", "check_classes", "check_range", "unchecked"]

_unchecked: set[Device] = set()
_OVERLAPPED = 1 << 16  # indices from which on they are checked while they are used


def check_bounds(index: Tensor, size: int, where: str, *, negative: bool = False) -> int:
    """The smallest index, or a number below 0 if there may be one. Raises `IndexOutOfRange` unless all indices are in
    [0, size), or in [-size, size) if `negative`.

    On `cpu` the host waits for the index and looks at its extremes before anything is launched. On other devices
    nothing waits: kernels find the extremes, and what is wrong is raised when the host next waits for the device, or
    makes another check (`runtime.deferred`). A kernel given a place outside of its tensor reads 0 and writes nothing,
    so memory is safe meanwhile.
    """
    only_tensors(where, index)
    if index.meta.dtype.kind not in "ui":
        raise DTypeError(f"{where}: an index must hold integers, not {index.meta.dtype.name}; convert it with .long()")
    low = -size if negative else 0
    if not index.meta.numel:
        return 0
    device = index.meta.device
    if device.type == "cpu":
        least, most = (0, -1) if device in _unchecked else _extremes_in_memory(index, size)
        check_range(least, most, size, where, low)
        return least
    _defer(index, lambda least, most: check_range(least, most, size, where, low))
    return -1 if negative and index.meta.dtype.kind == "i" else 0


def bounds_check(index: Tensor, size: int, where: str) -> Check:
    """`check_bounds` around a call that reads or writes at `index` (see `Check`). Small indices are checked at once."""
    if index.meta.device.type != "cpu" or index.meta.numel < _OVERLAPPED or not index.meta.contiguous:
        check_bounds(index, size, where)
        return _DONE
    only_tensors(where, index)
    if index.meta.dtype is not dtypes.int64 or index.meta.device in _unchecked:
        check_bounds(index, size, where)
        return _DONE
    return _Open(index, size, where)


class Check:
    """Indices that are known to be right."""

    __slots__ = ()

    def __call__(self) -> None:
        """Raise `IndexOutOfRange` now: before anything is written in place."""

    def around(self, record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...]) -> Any:
        """The new result of an op that has the index among its `operands`. Raises `IndexOutOfRange`."""
        return call(record, operands, statics)


_DONE = Check()


class _Open(Check):
    """Many indices on `cpu`, which are looked at while they are used: by the kernel itself where it tells of `misses`,
    else by the host."""

    __slots__ = ("index", "size", "where")

    def __init__(self, index: Tensor, size: int, where: str):
        self.index, self.size, self.where = index, size, where

    def __call__(self) -> None:
        self._look(_memory(self.index))

    def _look(self, values: np.ndarray[Any, Any]) -> None:
        if int(values.view(np.uint64).max()) >= self.size:
            check_range(int(values.min()), int(values.max()), self.size, self.where, 0)

    def around(self, record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...]) -> Any:
        if "misses" in record.statics:
            found, misses = call(record, operands, (*statics, True))
            if _memory(misses).any():
                self()
            return found
        values = _memory(self.index)  # waited for here: not for the launch
        found = call(record, operands, statics)
        self._look(values)
        return found


def check_classes(target: Tensor, classes: int, ignore_index: int, where: str) -> bool:
    """Raise `IndexOutOfRange` unless all of `target`, integers, are in [0, classes) or equal to `ignore_index`.

    When that is raised is as with `check_bounds`. The result: whether none is known to equal `ignore_index`.
    """
    if not target.meta.numel:
        return False
    device = target.meta.device
    if device.type != "cpu":
        known = target
        if classes and not 0 <= ignore_index < classes:
            ignored = call(registry["eq"], (target.detach(), ignore_index))  # type: ignore[attr-defined]
            known = call(registry["masked_fill"], (target.detach(), ignored, 0))  # type: ignore[attr-defined]

        def judge(least: int, most: int) -> None:
            wrong = [v for v in (least, most) if not 0 <= v < classes and v != ignore_index]
            if wrong:
                raise _wrong_class(wrong[0], classes, ignore_index, where)

        _defer(known, judge)
        return False
    if device in _unchecked:
        return False
    least, most = _extremes_in_memory(target, classes)
    if least >= 0 and most < classes:
        return not least <= ignore_index <= most
    values = _hosting.to_host(target.detach())  # type: ignore[attr-defined]
    wrong = values[((values < 0) | (values >= classes)) & (values != ignore_index)]
    if wrong.size:
        raise _wrong_class(int(wrong[0]), classes, ignore_index, where)
    return False


def _wrong_class(found: int, classes: int, ignore_index: int, where: str) -> IndexOutOfRange:
    known = f"numbered 0 to {classes - 1}" if classes else "so that no target is right"
    return IndexOutOfRange(
        f"{where}: target {found} is out of bounds: the input has {classes} classes, {known}; correct the target, "
        f"or pass ignore_index={found} for targets that do not count (it is {ignore_index})"
    )


def _defer(index: Tensor, judge: Callable[[int, int], None]) -> None:
    """Let a device find the smallest and the largest index, for `judge` to see when they are known."""
    device = index.meta.device
    deferred.poll(device)
    low, high = call(registry["index_bounds"], (index.detach(),))  # type: ignore[attr-defined]
    if device not in _unchecked:
        deferred.defer(low, high, judge)


def _extremes_in_memory(index: Tensor, size: int) -> tuple[int, int]:
    layout = index.meta
    if layout.contiguous:
        values = _memory(index)
        if layout.dtype is dtypes.int64:  # negative ones are huge without a sign, so one pass finds that all are good
            most = int(values.view(np.uint64).max())
            if most < size:
                return 0, most
    else:
        values = _hosting.to_host(index)
    return int(values.min()), int(values.max())


def _memory(index: Tensor) -> np.ndarray[Any, Any]:
    """The values of a contiguous tensor on `cpu`, which is waited for, and nothing else."""
    driver: Any = index.meta.device.driver
    driver.wait_for(index.storage)
    start = index.start - index.storage.start
    memory: Any = driver.host_view(index.storage)
    return memory[start : start + index.meta.nbytes].view(index.meta.dtype.numpy)  # type: ignore[no-any-return]


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
