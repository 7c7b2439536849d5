"""What launches know of an OpenCL stream, whoever makes them: Python, or C (`runtime.native`)."""

from __future__ import annotations

from typing import Any

from ..errors import LaunchError
from ..pool import Pool
from .protocol import Step

__all__ = ["CALLING", "DEVICE", "WORKERS", "Counter", "QueueStream", "launch_error"]

# Where a step is launched: in the calling thread once nothing is pending; by workers, whose event is kept with the
# stream and with all storages; or on a device whose order is all that matters.
CALLING, WORKERS, DEVICE = range(3)


class Counter:
    """How many kernels a driver has launched."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class QueueStream:
    """A stream over OpenCL queues.

    pending: the last event that work of other queues has to wait for, or None. deep: the address of the stream's queue
    and swift: that of its queue in the calling thread, where C may launch, else 0.
    """

    __slots__ = ("__weakref__", "deep", "pending", "pool", "swift")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.pending: Any = None
        self.deep = self.swift = 0


def launch_error(name: str, step: Step, device: str, error: Exception) -> LaunchError:
    """The error of a launch that the driver refused, with what it was."""
    return LaunchError(
        f"{name}: {step.instance.entry} failed to launch on {device} with global size {step.global_size}, "
        f"local size {step.local_size}: {error}"
    )
