"""Bounds checks of index tensors.

On `cpu` the host checks an index tensor before the launch, or, if it is long, while the kernel runs. On other devices
checks are deferred (`runtime.deferred`): a kernel finds the indices that are out of range, and the host looks at its
result later. Some devices have a *miss word*, memory that the host reads directly. On these, the kernel that uses the
indices also checks them. On other devices another kernel computes the extremes of the indices.

A *judge* is a function that gets the smallest and the largest index, and raises an exception if one is out of range.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..runtime import deferred, dtypes, host_data
from ..runtime.device import Device
from ..runtime.dispatch import call, call_into, call_multiple
from ..runtime.dtypes import Array
from ..runtime.errors import DomainError, DTypeError, IndexOutOfRange
from ..runtime.records import OpRecord, registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "CHECKED", "Check", "check_bounds", "check_classes", "check_interval", "check_range", "checked",
    "defer_class_check", "prepare_check", "prepare_judged_check", "unchecked",
]  # fmt: skip

_unchecked_devices: set[Device] = set()  # devices on which `unchecked` is in effect
_OVERLAP_MIN_INDICES = 1 << 16  # from this many indices on, the check overlaps with the kernel


def check_bounds(index: Tensor, size: int, where: str, *, negative: bool = False) -> int:
    """Check that all indices are in [0, size), or in [-size, size) with `negative`.

    On `cpu` the host waits for the index tensor and checks its extremes before anything is launched. On other devices
    nothing waits: a kernel computes the extremes, and an error is raised when the host next waits for the device or
    makes another check (`runtime.deferred`). Memory is safe meanwhile: for an index out of range, kernels read 0 and
    write nothing.

    Args:
        index: Integer tensor.
        size: Size of the indexed dimension.
        where: Name of the calling function, for error messages.
        negative: Whether negative indices are allowed.

    Returns:
        A negative number if an index is or may be negative; otherwise 0 or a positive number.

    Raises:
        IndexOutOfRange: An index is out of range.
        DTypeError: The dtype is not an integer one.
    """
    only_tensors(where, index)
    return _check_integers(index, size, where, negative)


def _check_integers(index: Tensor, size: int, where: str, negative: bool) -> int:
    """Check index tensors as `check_bounds` does, which also checks that they are tensors."""
    _require_integers(index, where)
    low = -size if negative else 0
    if not index.meta.numel:
        return 0
    device = index.meta.device
    if device.type == "cpu":
        lowest, highest = (0, -1) if device in _unchecked_devices else _extremes_in_memory(index, size)
        check_range(lowest, highest, size, where, low)
        return lowest
    if not size:  # the planner refuses such a call as well, and a deferred error would come on top of its own
        raise IndexOutOfRange(f"{where}: every index is out of range for a dimension of size 0")
    _defer(index, _range_judge(size, where, negative))
    return -1 if negative and index.meta.dtype.kind == "i" else 0


def _require_integers(index: Tensor, where: str) -> None:
    if index.meta.dtype.kind not in "ui":
        raise DTypeError(f"{where}: an index must hold integers, not {index.meta.dtype.name}; convert it with .long()")


def prepare_check(index: Tensor, size: int, where: str, *, negative: bool = False) -> Check:
    """Return a `Check` for a call that uses the indices. Small index tensors on `cpu` are checked at once.

    Args:
        index: Integer tensor.
        size: Size of the indexed dimension.
        where: Name of the calling function, for error messages.
        negative: Whether negative indices count from the end.

    Raises:
        IndexOutOfRange: An index is out of range. `check_bounds` says when this is raised.
        DTypeError: The dtype is not an integer one.
    """
    only_tensors(where, index)
    layout = index.meta
    device = layout.device
    if device.type == "cpu":
        is_long = not negative and layout.numel >= _OVERLAP_MIN_INDICES and layout.contiguous
        if is_long and layout.dtype is dtypes.int64 and device not in _unchecked_devices:
            return _OverlappedCheck(index, size, where)
    elif hasattr(device.driver, "miss_word"):
        _require_integers(index, where)
        return _KernelCheck(index, size, where, _range_judge(size, where, negative), negative)
    return CHECKED if _check_integers(index, size, where, negative) >= 0 else _CHECKED_NEGATIVE


def prepare_judged_check(index: Tensor, size: int, where: str, judge: Callable[[int, int], None]) -> Check:
    """Return a `Check` with a judge of its own, for other devices than `cpu`.

    Args:
        index: Integer tensor; an index is out of range unless it is in [0, size).
        size: Number of positions.
        where: Key of the judge: calls with the same `where` and `size` must have equivalent judges, and share one.
        judge: Called with the smallest and the largest index. If the kernel that uses the indices checks them: called
            with one index out of range, for both arguments.
    """
    if hasattr(index.meta.device.driver, "miss_word"):
        return _KernelCheck(index, size, where, judge, False)
    if index.meta.numel:
        _defer(index, judge)
    return CHECKED


def _range_judge(size: int, where: str, negative: bool) -> Callable[[int, int], None]:
    """Return a judge that raises `IndexOutOfRange` unless the extremes of the indices are in range."""
    low = -size if negative else 0
    return lambda lowest, highest: check_range(lowest, highest, size, where, low)


class Check:
    """A bounds check for one call.

    An object of this class itself stands for a check that has passed or is deferred, so it checks nothing. Objects of
    subclasses still have to check.

    Args:
        negative: Whether indices may be negative. Negative ones count from the end.
    """

    __slots__ = ("negative",)

    def __init__(self, negative: bool):
        self.negative = negative

    def __call__(self) -> None:
        """Check now, unless the check was made when this object was prepared.

        Raises:
            IndexOutOfRange: An index is out of range. `check_bounds` says when this is raised.
        """

    def run(self, record: OpRecord, operands: Sequence[object], statics: tuple[object, ...]) -> Tensor:
        """Call the op `record`, which has the index among its `operands`. Raises `IndexOutOfRange`."""
        return call(record, operands, self._add_check_arguments(record, statics) if self.negative else statics)

    def run_in_place(self, record: OpRecord, operands: Sequence[Tensor], statics: tuple[object, ...]) -> None:
        """Call the op `record` in place of its first operand.

        Raises:
            IndexOutOfRange: An index is out of range. On `cpu` nothing has been written in this case.
        """
        self()
        call_into(record, operands, self._add_check_arguments(record, statics), operands[:1], in_place=True)

    def _add_check_arguments(
        self, record: OpRecord, statics: tuple[object, ...], number: int = 0, misses: bool = False
    ) -> tuple[object, ...]:
        """Append the arguments of the op that are about checks to `statics`, unless all have their default values.

        Args:
            record: The op. Its other static arguments come first.
            statics: The values of these.
            number: The value of `check`, the number of the check that the kernel makes; 0: none.
            misses: The value of `misses`: whether the op also returns 1 for each work-item that read an index out of
                range, else 0.
        """
        if not (number or misses or self.negative):
            return statics
        values: dict[str, object] = {"misses": misses, "check": number, "negative": self.negative}
        return (*statics, *[values[name] for name in record.statics[len(statics) :]])


CHECKED = Check(False)
_CHECKED_NEGATIVE = Check(True)


def checked(negative: bool) -> Check:
    """Return a check that has passed or is deferred. negative: whether an index is or may be negative."""
    return _CHECKED_NEGATIVE if negative else CHECKED


class _KernelCheck(Check):
    """A check by the kernel that uses the indices, on a device with a miss word (`runtime.deferred`).

    An op that has the static argument `check` can do this. For other ops, and for calls without elements, whose own
    kernel is not launched, another kernel computes the extremes of the indices.
    """

    __slots__ = ("index", "judge", "size", "where")

    def __init__(self, index: Tensor, size: int, where: str, judge: Callable[[int, int], None], negative: bool):
        super().__init__(negative)
        self.index, self.size, self.where, self.judge = index, size, where, judge

    def __call__(self) -> None:
        if self.index.meta.numel:
            _defer(self.index, self.judge)

    def run(self, record: OpRecord, operands: Sequence[object], statics: tuple[object, ...]) -> Tensor:
        return call(
            record, operands, self._add_check_arguments(record, statics, self._kernel_check_number(record, operands))
        )

    def run_in_place(self, record: OpRecord, operands: Sequence[Tensor], statics: tuple[object, ...]) -> None:
        number = self._kernel_check_number(record, operands)
        call_into(record, operands, self._add_check_arguments(record, statics, number), operands[:1], in_place=True)

    def _kernel_check_number(self, record: OpRecord, operands: Sequence[object]) -> int:
        """Return the number of the check that the op's kernel makes. If it cannot check, check now and return 0."""
        number = 0
        if "check" in record.statics and all(o.meta.numel for o in operands if isinstance(o, Tensor)):
            number = deferred.number_check(self.index.meta.device, self.where, self.size, self.judge)
        if not number:
            self()
        return number


class _OverlappedCheck(Check):
    """A check of many indices on `cpu` that overlaps with the kernel that uses them.

    An op with the static argument `misses` checks the indices itself. For other ops the host checks them while the
    kernel runs.
    """

    __slots__ = ("index", "size", "where")

    def __init__(self, index: Tensor, size: int, where: str):
        super().__init__(negative=False)
        self.index, self.size, self.where = index, size, where

    def __call__(self) -> None:
        self._check_values(_host_values(self.index))

    def _check_values(self, values: Array) -> None:
        if int(values.view(np.uint64).max()) >= self.size:
            check_range(int(values.min()), int(values.max()), self.size, self.where, 0)

    def run(self, record: OpRecord, operands: Sequence[object], statics: tuple[object, ...]) -> Tensor:
        if "misses" in record.statics:
            output, misses = call_multiple(record, operands, self._add_check_arguments(record, statics, misses=True))
            if _host_values(misses).any():
                self()
            return output
        values = _host_values(self.index)  # waits for the index; after the launch it would wait for the op, too
        result = call(record, operands, self._add_check_arguments(record, statics))
        self._check_values(values)
        return result


def check_classes(target: Tensor, classes: int, ignore_index: int, where: str) -> bool:
    """Check that all integers of `target` are in [0, classes) or equal to `ignore_index`.

    The error is raised at the same time as that of `check_bounds`.

    Returns:
        True if it is known that no target equals `ignore_index`.

    Raises:
        IndexOutOfRange: A target is out of range.
    """
    if not target.meta.numel:
        return False
    device = target.meta.device
    if device.type != "cpu":
        target_to_check = target
        if classes and not 0 <= ignore_index < classes:
            # 0 is in range, so the judge does not see ignored targets.
            is_ignored = call(registry["eq"], (target.detach(), ignore_index))
            target_to_check = call(registry["masked_fill"], (target.detach(), is_ignored, 0))
        _defer(target_to_check, _class_judge(classes, ignore_index, where))
        return False
    if device in _unchecked_devices:
        return False
    lowest, highest = _extremes_in_memory(target, classes)
    if lowest >= 0 and highest < classes:
        return not lowest <= ignore_index <= highest
    values = host_data.to_host(target.detach())
    wrong = values[((values < 0) | (values >= classes)) & (values != ignore_index)]
    if wrong.size:
        raise _wrong_class(int(wrong[0]), classes, ignore_index, where)
    return False


def defer_class_check(lowest: Tensor, highest: Tensor, classes: int, ignore_index: int, where: str) -> None:
    """Check targets, as `check_classes` does, by extremes that a kernel has computed.

    Args:
        lowest: The smallest target. Ignored targets count as 0.
        highest: The largest target.
        classes: Number of classes.
        ignore_index: The target that is ignored.
        where: Name of the calling function, for error messages.

    Raises:
        IndexOutOfRange: A target of an earlier check is out of range.
    """
    device = lowest.meta.device
    deferred.poll(device)
    if device not in _unchecked_devices:
        deferred.defer(lowest, highest, _class_judge(classes, ignore_index, where))


def _class_judge(classes: int, ignore_index: int, where: str) -> Callable[[int, int], None]:
    """Return a judge that raises `IndexOutOfRange` unless the extremes of the targets are classes or ignored."""

    def judge(lowest: int, highest: int) -> None:
        wrong = [v for v in (lowest, highest) if not 0 <= v < classes and v != ignore_index]
        if wrong:
            raise _wrong_class(wrong[0], classes, ignore_index, where)

    return judge


def check_interval(values: Tensor, low: float, high: float, where: str, name: str) -> None:
    """Check that all values are numbers in [low, high].

    On other devices than `cpu` this does nothing, because it would have to wait.

    Args:
        values: Tensor of any dtype.
        low: Lowest value that is allowed.
        high: Highest value that is allowed; may be infinite.
        where: Name of the calling function, for the message.
        name: Name of its argument, for the message.

    Raises:
        DomainError: A value is outside, or is NaN.
    """
    layout = values.meta
    if layout.device.type != "cpu" or layout.device in _unchecked_devices or not layout.numel:
        return
    is_readable = layout.contiguous and layout.dtype is not dtypes.bfloat16
    array = _host_values(values) if is_readable else host_data.host_array(values.detach())
    lowest, highest = array.min(), array.max()
    if not (lowest >= low and highest <= high):  # false for NaN, too
        wrong = highest if lowest >= low else lowest
        interval = f"at least {low:g}" if high == float("inf") else f"between {low:g} and {high:g}"
        raise DomainError(f"{where}: all elements of {name} must be {interval}, not {wrong:g}")


def _wrong_class(target: int, classes: int, ignore_index: int, where: str) -> IndexOutOfRange:
    """Return the exception for a target that is out of range."""
    class_range = f"numbered 0 to {classes - 1}" if classes else "so that no target is right"
    return IndexOutOfRange(
        f"{where}: target {target} is out of bounds: the input has {classes} classes, {class_range}; correct the "
        f"target, or pass ignore_index={target} for targets that do not count (it is {ignore_index})"
    )


def _defer(index: Tensor, judge: Callable[[int, int], None]) -> None:
    """Compute the smallest and largest index on the device, and call `judge` with them when the host knows them."""
    device = index.meta.device
    deferred.poll(device)
    lowest, highest = call_multiple(registry["index_bounds"], (index.detach(),))
    if device not in _unchecked_devices:
        deferred.defer(lowest, highest, judge)


def _extremes_in_memory(index: Tensor, size: int) -> tuple[int, int]:
    """Return the smallest and largest index. If all are in [0, size), the smallest is returned as 0 to save time."""
    layout = index.meta
    if layout.contiguous:
        values = _host_values(index)
        if layout.dtype is dtypes.int64:  # as unsigned, negative indices are huge: one maximum checks both bounds
            highest = int(values.view(np.uint64).max())
            if highest < size:
                return 0, highest
    else:
        values = host_data.to_host(index)
    return int(values.min()), int(values.max())


def _host_values(index: Tensor) -> Array:
    """Return the values of a contiguous `cpu` tensor, without a copy. Waits for this tensor only."""
    driver: Any = index.meta.device.driver  # `wait_for` is a method of drivers with host memory only
    driver.wait_for(index.storage)
    start = index.start - index.storage.start
    memory: Array = driver.host_view(index.storage)
    return memory[start : start + index.meta.nbytes].view(index.meta.dtype.numpy)


def check_range(lowest: int, highest: int, size: int, where: str, low: int) -> None:
    """Raise `IndexOutOfRange` unless all indices are in [low, size).

    Args:
        lowest: The smallest index.
        highest: The largest index.
        size: Size of the indexed dimension.
        where: Name of the calling function or of the index, for the message.
        low: The smallest index that is allowed, 0 or -size.
    """
    if lowest < low or highest >= size:
        wrong = lowest if lowest < low else highest
        reason = " (negative indices are not counted from the end here)" if low == 0 and -size <= wrong < 0 else ""
        raise IndexOutOfRange(f"{where}: index {wrong} is out of range for a dimension of size {size}{reason}")


@contextlib.contextmanager
def unchecked(device: Device) -> Iterator[None]:
    """Skip index checks on `device` in a `with` block. Launches that are only recorded have no index values."""
    _unchecked_devices.add(device)
    try:
        yield
    finally:
        _unchecked_devices.discard(device)
