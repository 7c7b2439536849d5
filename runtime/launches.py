"""Entries of launched kernels, which backends' tracers make while `tracing.Recording` is active."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Launch", "Tracer", "now"]

now = time.perf_counter_ns


@dataclass(slots=True)
class Launch:
    """The launch of a kernel. Times are in nanoseconds.

    Attributes:
        name: The kernel's name.
        device: The device's name, such as `cuda:0`.
        stream: The number of the device's queue.
        thread: Identifier of the host thread that launched the kernel.
        queued: Time at which the host called the launch function.
        returned: Time at which the launch function returned.
        begin: Time at which the device started the kernel. None if it is unknown, for example because the device was
            opened during the recording.
        end: Time at which the device finished the kernel, or None.
    """

    name: str
    device: str
    stream: int
    thread: int
    queued: int
    returned: int
    begin: int | None = None
    end: int | None = None


class Tracer(Protocol):
    """A backend's recorder of launches. `stop` waits for the device and fills in the times."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
