"""Checks of values whose outcome is known when the device has come so far: nothing waits for them.

A check is two numbers that kernels compute, the least and the most of some values. They are copied to the host behind
the work that computes them, and looked at later: when the host waits for the device anyway (it reads values, it
synchronises), and when the next check is made, if they have arrived. What is wrong is raised then, once; at the latest
when the process ends. A check made while a graph is captured is a part of the graph, and made again by every replay.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .context import current_stream
from .device import Device
from .errors import IndexOutOfRange
from .tensor import Tensor

__all__ = ["defer", "look", "pending", "poll"]

Judge = Callable[[int, int], None]
_MOST = 4096  # checks that wait at a time; one more waits for the oldest


class _Check:
    """low, high: 0-d tensors. arrived: what is copied into, None where it is read when looked at."""

    __slots__ = ("arrived", "event", "high", "judge", "low")

    def __init__(self, low: Tensor, high: Tensor, judge: Judge, stream: Any):
        self.low, self.high, self.judge = low, high, judge
        driver: Any = low.meta.device.driver
        later = getattr(driver, "read_later", None)
        if later is None:  # nothing is ever queued: the values are there
            self.event = self.arrived = None
        else:
            self.arrived, self.event = later([low, high], stream)

    def raise_wrong(self) -> None:
        """Raise what the judge has to say of the values."""
        if self.arrived is None:
            device = self.low.meta.device
            self.arrived = [np.empty((), t.meta.dtype.numpy) for t in (self.low, self.high)]
            for tensor, array in zip((self.low, self.high), self.arrived, strict=True):
                device.driver.read(tensor.storage, tensor.start - tensor.storage.start, array, current_stream(device))
        self.judge(int(self.arrived[0]), int(self.arrived[1]))


_waiting: dict[Device, deque[_Check]] = {}
_lock = threading.Lock()


def defer(low: Tensor, high: Tensor, judge: Judge) -> None:
    """Let `judge(least, most)`, which raises what is wrong, see the values of two 0-d tensors when they are known."""
    device = low.meta.device
    stream: Any = current_stream(device)
    capture = getattr(stream, "capture", None)
    if capture is not None:
        capture.checks.append(lambda stream: _queue(low, high, judge, stream))
    else:
        _queue(low, high, judge, stream)


def _queue(low: Tensor, high: Tensor, judge: Judge, stream: Any) -> None:
    device = low.meta.device
    with _lock:
        waiting = _waiting.setdefault(device, deque())
        waiting.append(_Check(low, high, judge, stream))
        many = len(waiting) > _MOST
    if many:
        look(device, wait=True)


def look(device: Device, *, wait: bool) -> None:
    """Raise what is wrong in the checks of `device` whose values have arrived; `wait`: in all of them.

    For where the host has waited for the device, and may read its memory.
    """
    _look(device, wait, True)


def poll(device: Device) -> None:
    """Raise what is wrong in the checks of `device` whose values have come to the host by themselves."""
    _look(device, False, False)


def _look(device: Device, wait: bool, read: bool) -> None:
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


def pending(device: Device) -> int:
    """How many checks have not been looked at."""
    return len(_waiting.get(device, ()))


@atexit.register
def _at_exit() -> None:
    for device in list(_waiting):
        try:
            look(device, wait=True)
        except IndexOutOfRange:
            raise
        except Exception:  # a driver that is gone by now: nothing can be looked at, and nobody is left to be told
            pass
