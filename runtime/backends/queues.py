"""What launches know of a stream and its driver, whoever makes them: Python, or C (`runtime.native`)."""

from __future__ import annotations

from ..errors import LaunchError
from ..pool import Pool
from .protocol import Step

__all__ = ["Counter", "QueueStream", "launch_error"]


class Counter:
    """How many kernels a driver has launched."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class QueueStream:
    """An order of work on a device, with a pool whose blocks are reused in that order.

    deep: the address of the OpenCL queue by which C launches; 0 where there is none or Python watches launches.
    """

    __slots__ = ("__weakref__", "deep", "pool")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.deep = 0


def launch_error(name: str, step: Step, device: str, error: Exception) -> LaunchError:
    """The error of a launch that the driver refused, with what it was."""
    return LaunchError(
        f"{name}: {step.instance.entry} failed to launch on {device} with global size {step.global_size}, "
        f"local size {step.local_size}: {error}"
    )
