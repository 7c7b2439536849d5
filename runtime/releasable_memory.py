"""Memory that is given back to its pool and allocated anew while tensors over it exist.

Sharded training gathers parameters before a module's forward, releases them after it, and gathers them again for
backward, which reads them through tensors that were saved in between.
"""

from __future__ import annotations

from .backends.host import HostDriver
from .context import current_stream
from .device import Device
from .storage import Storage

__all__ = ["ReleasableMemory"]


class ReleasableMemory:
    """A storage whose memory comes and goes.

    On `cpu` and `interpreter`, `release` returns the memory to the pool. On all other devices the memory stays.

    Args:
        device: The device.
        nbytes: Size of the storage, at least 1.

    Attributes:
        storage: The storage. Its memory must not be read while `is_allocated` is False.
        is_allocated: Whether the storage has memory.
    """

    def __init__(self, device: Device, nbytes: int):
        self._device, self._nbytes = device, nbytes
        self._is_releasable = isinstance(device.driver, HostDriver)
        self._block_storage: Storage | None = None
        self.is_allocated = False
        if self._is_releasable:
            self.storage = Storage(device, nbytes, None, None, 0, 0)
        else:
            self.storage = device.driver.allocate(nbytes, current_stream(device))
            self.is_allocated = True

    def allocate(self) -> None:
        """Give the storage memory, whose content is undefined; do nothing if it has memory."""
        if self.is_allocated:
            return
        driver = self._device.driver
        assert isinstance(driver, HostDriver)
        block_storage = driver.allocate(self._nbytes, current_stream(self._device))
        self._block_storage = block_storage
        self.storage.buffer = (block_storage.buffer or 0) + block_storage.start
        self.storage.owner = driver.host_view(block_storage)
        self.is_allocated = True

    def release(self) -> None:
        """Return the memory to its pool, if the device can. Launches that use it have to be queued before."""
        if not self._is_releasable or not self.is_allocated:
            return
        # a launch whose kernel is still being compiled reads the address only when that is done
        self._device.driver.synchronize()
        self.storage.owner, self.storage.buffer = None, 0
        self._block_storage = None
        self.is_allocated = False
