"""The state of a thread: gradient mode, the stack of modes, current streams, cached plans. Anomaly mode."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from .autocast import Region
    from .backends.protocol import Stream
    from .device import Device
    from .dispatch import Plan
    from .modes import Mode
    from .plan_families import Lineage

__all__ = ["Anomaly", "State", "anomaly", "current_stream", "entered_device", "forget_plans", "set_stream", "state"]


class Anomaly:
    """Anomaly mode, which belongs to the process, as in PyTorch: backward may run in another thread than forward.

    Attributes:
        is_enabled: True if nodes store the Python stack of their forward call.
        checks_nan: True if backward checks gradients for NaN while the mode is enabled.
    """

    __slots__ = ("checks_nan", "is_enabled")

    def __init__(self) -> None:
        self.is_enabled = False
        self.checks_nan = True


anomaly = Anomaly()


class State:
    """The state of one thread.

    Attributes:
        grad: True if gradients are recorded.
        inference: True in inference mode.
        mode: The innermost mode, or None.
        overriding_disabled: True while no argument takes over calls (`overriding.Disabled`).
        autocast: The innermost autocast region, or None.
        streams: Current streams by device; devices that are missing use their default stream.
        plans: The plans of `dispatch`, by key.
    """

    __slots__ = ("__weakref__", "autocast", "grad", "inference", "mode", "overriding_disabled", "plans", "streams")

    def __init__(self) -> None:
        self.grad = True
        self.inference = False
        self.mode: Mode | None = None
        self.overriding_disabled = False
        self.autocast: Region | None = None
        self.streams: dict[Device, Stream] | None = None
        self.plans: dict[tuple[object, ...], Plan] = {}
        with _lock:
            _states.add(self)

    def has_active_mode(self) -> bool:
        """Return True if a mode must see every call separately. A `passive` mode only observes and does not count."""
        mode = self.mode
        while mode is not None:
            if not mode.passive:
                return True
            mode = mode._below
        return False


# The plan families that all threads share, by what the calls have in common (`plan_families`).
lineages: dict[tuple[object, ...], Lineage] = {}
_lock = threading.Lock()
_states: WeakSet[State] = WeakSet()


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = State()


_local = _Local()


def state() -> State:
    """Return the calling thread's state."""
    return _local.state


def forget_plans() -> None:
    """Drop the plans of all threads, and all plan families, after a change of a setting that planners read."""
    global lineages
    with _lock:
        lineages = {}
        for thread_state in _states:
            thread_state.plans = {}  # not cleared: its thread may be using it


def current_stream(device: Device) -> Stream:
    """Return the stream on which this thread's work for `device` runs."""
    streams = _local.state.streams
    if streams is not None and device in streams:
        return streams[device]
    return device.driver.default_stream


def set_stream(device: Device, stream: Stream | None) -> Stream | None:
    """Make `stream` this thread's stream for `device` (None: the default stream), and return the previous one."""
    thread_state = _local.state
    previous = (thread_state.streams or {}).get(device)
    streams = dict(thread_state.streams or {})
    streams.pop(device, None)
    if stream is not None:
        streams[device] = stream  # the last entry is the stream that was set last: see `entered_device`
    thread_state.streams = streams or None
    return previous


def entered_device(kind: str | None = None) -> Device | None:
    """Return the device, of type `kind` if given, for which this thread set a stream last; None if there is none."""
    streams = reversed(_local.state.streams or {})
    return next((device for device in streams if kind in (None, device.type)), None)
