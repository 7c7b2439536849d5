"""Deferred checks of index ranges: errors are raised later, so that the host never waits for the device.

A check consists of two numbers that kernels compute: the minimum and maximum of some values. They are copied to the
host asynchronously, and examined later: when the host waits for the device anyway (it reads values or synchronises), or
when the next check is made and they have arrived; at the latest when the process ends. An error is raised once. A check
that is made while a graph is captured becomes part of the graph, and is repeated by every replay.

On devices with a miss word, kernels that read by an index check it themselves. They store the first index out of
range and the number of the check (`number_check`) in the word, which is in memory that the host reads directly. It is
examined at the same times.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from .context import current_stream
from .device import Device
from .errors import IndexOutOfRange
from .tensor import Tensor

if TYPE_CHECKING:
    from .backends.protocol import Event, Stream
    from .dtypes import Array

__all__ = ["check_ready", "defer", "number_check", "pending_count", "poll"]

Judge = Callable[[int, int], None]
_MAX_WAITING_CHECKS = 4096  # per device; beyond that, the host waits for the device


class _Check:
    """One check. low, high: 0-d tensors. arrived: host arrays of their values; None until read if there is no queue."""

    __slots__ = ("arrived", "event", "high", "judge", "low")

    def __init__(self, low: Tensor, high: Tensor, judge: Judge, stream: Stream):
        self.low, self.high, self.judge = low, high, judge
        driver = low.meta.device.driver
        later = getattr(driver, "read_later", None)
        self.arrived: list[Array] | None = None
        self.event: Event | None = None
        if later is not None:  # other drivers queue nothing: the values are ready
            self.arrived, self.event = later([low, high], stream)

    def raise_wrong(self) -> None:
        """Call the judge, which raises if the values are wrong."""
        if self.arrived is None:
            device = self.low.meta.device
            self.arrived = [np.empty((), t.meta.dtype.numpy) for t in (self.low, self.high)]
            for tensor, array in zip((self.low, self.high), self.arrived, strict=True):
                device.driver.read(tensor.storage, tensor.start - tensor.storage.start, array, current_stream(device))
        self.judge(int(self.arrived[0]), int(self.arrived[1]))


_waiting: dict[Device, deque[_Check]] = {}
_lock = threading.Lock()
_INDEX_BITS = 44  # of a miss word; the number of the check is above them
_MAX_NUMBERED_CHECKS = 4096
_numbers: dict[tuple[str, int], int] = {}  # of checks, by the name of the function and the size of the dimension
_judges: list[Judge] = []  # by number - 1
_marking_drivers: WeakSet[Any] = WeakSet()  # drivers whose kernels may have written the miss word


def number_check(device: Device, where: str, size: int, judge: Judge) -> int:
    """Return the number of the check that `where` makes of indices into `size` elements, for kernels on `device`.

    Return 0 if kernels cannot make it: the device has no miss word, or there are too many checks. `judge(index, index)`
    raises the error for an index out of range. Errors of earlier calls are raised first.
    """
    driver = device.driver
    if not hasattr(driver, "miss_word"):
        return 0
    poll(device)
    with _lock:
        _marking_drivers.add(driver)
        number = _numbers.get((where, size), 0)
        if not number and len(_judges) < _MAX_NUMBERED_CHECKS:
            if len(_judges) % 16 == 15:
                _judges.append(judge)  # for a number that is not used: kernels are specialized for multiples of 16
            _judges.append(judge)
            number = _numbers[where, size] = len(_judges)
    return number


def _examine_miss_word(driver: Any) -> None:
    if driver not in _marking_drivers or not driver.miss_word.array[0]:
        return
    array = driver.miss_word.array
    with _lock:
        word, array[0] = int(array[0]), 0
    if word:
        half = 1 << (_INDEX_BITS - 1)
        index = (word + half) % (2 * half) - half
        _judges[(word >> _INDEX_BITS) - 1](index, index)


def defer(low: Tensor, high: Tensor, judge: Judge) -> None:
    """Call `judge(low, high)` with the values of two 0-d tensors once they are known. The judge raises errors."""
    device = low.meta.device
    if device.type == "meta":
        return  # there are no values
    stream = current_stream(device)
    capture = getattr(stream, "capture", None)
    if capture is not None:
        capture.checks.append(lambda stream: _queue(low, high, judge, stream))
    else:
        _queue(low, high, judge, stream)


def _queue(low: Tensor, high: Tensor, judge: Judge, stream: Stream) -> None:
    device = low.meta.device
    with _lock:
        waiting = _waiting.setdefault(device, deque())
        waiting.append(_Check(low, high, judge, stream))
        is_full = len(waiting) > _MAX_WAITING_CHECKS
    if is_full:
        check_ready(device, wait=True)


def check_ready(device: Device, *, wait: bool) -> None:
    """Examine the checks of `device` whose values have arrived, or with `wait` all of them, and raise errors.

    Call it after the host has waited for the device, so that it may read its memory.
    """
    _check_ready(device, wait, True)


def poll(device: Device) -> None:
    """Examine the checks of `device` whose values were copied to the host already, and raise errors."""
    _check_ready(device, False, False)


def _check_ready(device: Device, wait: bool, read: bool) -> None:
    if device._driver is not None:
        _examine_miss_word(device._driver)
    waiting = _waiting.get(device)
    while waiting:
        with _lock:
            if not waiting:
                return
            first = waiting[0]
            arrived = read if first.event is None else first.event.query()
            if not arrived and not wait:
                return
            waiting.popleft()
        if first.event is not None:
            first.event.synchronize()
        first.raise_wrong()


def pending_count(device: Device) -> int:
    """Return the number of checks that have not been examined."""
    return len(_waiting.get(device, ()))


@atexit.register
def _at_exit() -> None:
    for driver in list(_marking_drivers):
        with contextlib.suppress(Exception):  # as below
            driver.synchronize()
        _examine_miss_word(driver)
    for device in list(_waiting):
        try:
            check_ready(device, wait=True)
        except IndexOutOfRange:
            raise
        except Exception:  # the driver may be unloaded already: its checks cannot be examined any more
            pass
