"""What belongs to a thread: gradient mode, the mode on top of the stack, current streams, and its plans."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from .autocast import Region
    from .device import Device
    from .modes import Mode

__all__ = ["State", "current_stream", "entered_device", "forget_plans", "set_stream", "state"]


class State:
    """One thread's state."""

    __slots__ = ("__weakref__", "anomaly", "autocast", "grad", "inference", "mode", "plans", "streams")

    def __init__(self) -> None:
        self.grad = True
        self.inference = False
        self.anomaly = False
        self.mode: Mode | None = None
        self.autocast: Region | None = None
        self.streams: dict[Device, Any] | None = None
        self.plans: dict[Any, Any] = {}
        with _lock:
            _states.add(self)

    def watched(self) -> bool:
        """Whether a mode wants every call by itself, on tensors of its own; a `passive` one only looks on."""
        mode = self.mode
        while mode is not None:
            if not mode.passive:
                return True
            mode = mode._below
        return False


_lock = threading.Lock()
_states: WeakSet[State] = WeakSet()


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = State()


_local = _Local()


def state() -> State:
    """The calling thread's state."""
    return _local.state


def forget_plans() -> None:
    """Have every thread plan its calls anew: a setting changed that planners read."""
    with _lock:
        for each in _states:
            each.plans = {}  # not cleared: its thread may be using it


def current_stream(device: Device) -> Any:
    """The stream on which this thread's work for `device` goes."""
    streams = _local.state.streams
    if streams is not None and device in streams:
        return streams[device]
    return device.driver.default_stream


def set_stream(device: Device, stream: Any) -> Any:
    """Make `stream` this thread's stream for `device` (None: the default one); returns what was there before."""
    own = _local.state
    previous = (own.streams or {}).get(device)
    streams = dict(own.streams or {})
    streams.pop(device, None)
    if stream is not None:
        streams[device] = stream  # the last one is that set last
    own.streams = streams or None
    return previous


def entered_device(kind: str | None = None) -> Device | None:
    """The device, of that type where one is named, of the stream that this thread set last; None without any."""
    streams = reversed(_local.state.streams or {})
    return next((device for device in streams if kind in (None, device.type)), None)
