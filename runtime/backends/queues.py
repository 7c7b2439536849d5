"""Stream and launch-counter classes that launches from Python and from C (`runtime.native`) share."""

from __future__ import annotations

from ..errors import LaunchError
from ..pool import Pool
from .protocol import Step

__all__ = ["Counter", "QueueStream", "launch_error"]


class Counter:
    """The number of kernels that a driver has launched."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class QueueStream:
    """An in-order queue of work on a device, with a pool whose blocks are reused in that order.

    queue_address: address of the `cl_command_queue` on which C code launches; 0 if there is none, or if a profiler
    needs launches to go through Python.
    """

    __slots__ = ("__weakref__", "pool", "queue_address")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.queue_address = 0


def launch_error(name: str, step: Step, device: str, error: Exception) -> LaunchError:
    """Return the error for a launch that the driver refused, with its kernel and sizes."""
    return LaunchError(
        f"{name}: {step.instance.entry} failed to launch on {device} with global size {step.global_size}, "
        f"local size {step.local_size}: {error}"
    )
