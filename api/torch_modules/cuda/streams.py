"""Queues of work on a GPU, and points in them."""

from __future__ import annotations

from ..execution import streams
from ..runtime.context import entered_device
from ..runtime.device import Device, DeviceLike
from .devices import describe_gpu, open_driver, resolve_device

__all__ = ["Event", "Stream", "current_stream", "default_stream"]


class Stream(streams.Stream):
    """A queue of work on a GPU.

    Args:
        device: An index, a name or a `Device`; None: the current GPU.
        priority: Work with a lower number runs first (-5 to 0 on most GPUs).

    Raises:
        ArgumentError: If `device` is no CUDA device.
        DriverNotFound: If there is no GPU, or a package that it needs is missing.

    Example:
        >>> if wg.cuda.is_available():
        ...     with wg.cuda.Stream():
        ...         x = wg.ones(2, device='cuda')
        ...
    """

    def __init__(self, device: DeviceLike | None = None, priority: int = 0):
        driver = open_driver(device)
        super().__init__(driver.device, _stream=driver.new_stream(priority))


class Event(streams.Event):
    """A point in a GPU's stream. With `enable_timing`, the time between two events can be measured.

    Args:
        enable_timing: Whether to record the event's time.
        device: The GPU; None: that of the stream that first records the event.

    Example:
        >>> if wg.cuda.is_available():
        ...     event = wg.cuda.Event(enable_timing=True)
        ...     event.record()
        ...
    """

    def _resolve_device(self) -> Device:
        """Return the event's GPU; before it is recorded, the GPU of the stream entered last, else the current GPU."""
        return self.device or entered_device("cuda") or resolve_device(None)


@describe_gpu
def current_stream(device: DeviceLike | None = None) -> streams.Stream:
    """Return the stream on which this thread queues work for a GPU.

    Returns:
        The stream, as a `wg.Stream`.

    Raises:
        ArgumentError: If `device` is no CUDA device.

    Example:
        >>> if wg.cuda.is_available():
        ...     stream = wg.cuda.current_stream()
        ...
    """
    return streams.current_stream(resolve_device(device))


@describe_gpu
def default_stream(device: DeviceLike | None = None) -> streams.Stream:
    """Return the stream on which a GPU's work is queued unless another stream is current.

    Returns:
        The stream, as a `wg.Stream`.

    Raises:
        ArgumentError: If `device` is no CUDA device.

    Example:
        >>> if wg.cuda.is_available():
        ...     stream = wg.cuda.default_stream()
        ...
    """
    return streams.default_stream(resolve_device(device))
