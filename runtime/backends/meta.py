"""The `meta` device: its tensors have a shape, strides and a dtype, but no memory.

Ops compute the layouts of their results, by the planners of the device `cpu`. Nothing is compiled or launched. So a
model of any size can be constructed within `with device("meta"):`, and its parameters replaced by loaded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from ..device import Device
from ..dtypes import Array
from ..errors import NotSupported
from ..pool import Budget
from ..storage import Storage
from .host import HostEvent, SynchronousStream
from .protocol import Capabilities, Instance, Step, Stream

__all__ = ["MetaDriver"]


class MetaSegment:
    """A segment without memory, whose address is 0."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = 0


class MetaMemory:
    """The source of segments for the pools of the device."""

    def allocate(self, nbytes: int) -> MetaSegment:
        return MetaSegment()

    def release(self, segment: MetaSegment) -> None:
        """Do nothing: there is no memory."""

    def synchronize(self) -> None:
        """Do nothing: no work is queued."""


class MetaDriver:
    """The driver of `meta`, whose methods do nothing or return objects without memory.

    Args:
        device: The device `meta`.
    """

    target = "opencl"  # that of `cpu`: planners look up an op's kernel, although none is compiled
    name = "no memory"

    def __init__(self, device: Device):
        self.device = device
        self.memory = MetaMemory()
        self.budget = Budget(None)
        self.capabilities = Capabilities(style="cpu", cores=1)
        self.default_stream = SynchronousStream(self.device, self.memory, self.budget)

    def new_stream(self) -> SynchronousStream:
        return SynchronousStream(self.device, self.memory, self.budget)

    def new_event(self, timing: bool) -> HostEvent:
        return HostEvent(timing)

    def launcher(self, steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        """Return a function that does nothing."""
        return _launch_nothing

    def allocate(self, nbytes: int, stream: Stream) -> Storage:
        return Storage(self.device, nbytes, None, None, 0, 0)

    def adopt(self, array: Array) -> Storage:
        """Return a storage of the array's size, without its values."""
        return Storage(self.device, array.nbytes, None, None, 0, 0)

    def retire(self, owner: object, buffer: object) -> None:
        """Do nothing: there is no memory."""

    def write(self, storage: Storage, offset: int, array: Array, stream: Stream) -> None:
        """Do nothing: there is no memory."""

    def read(self, storage: Storage, offset: int, array: Array, stream: Stream) -> NoReturn:
        """Raise `NotSupported`: there are no values."""
        raise NotSupported(
            "a tensor on device meta has a shape and no values: it cannot be read, printed or copied to another "
            "device; create it there (Module.to_empty, empty_like(tensor, device='cpu')) and load its values"
        )

    def host_view(self, storage: Storage) -> None:
        """Return None: there is no memory."""
        return None

    def synchronize(self) -> None:
        """Do nothing: no work is queued."""

    def build(self, planned: Sequence[Step | Instance]) -> int:
        """Return 0: no kernel is compiled."""
        return 0


def _launch_nothing(tensors: object, scalars: object, stream: object) -> None:
    """Do nothing: shapes are known from the plan."""
