"""The memory of tensors, with a version that counts in-place writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .call_types import Memory
    from .device import Device
    from .pool import Block, Pool

__all__ = ["Hold", "Storage"]


class Hold:
    """Keeps memory alive for NumPy arrays over a storage, which may move into shared memory.

    old_storage: the storage of the memory before the move, kept as long as arrays refer to it.
    """

    __slots__ = ("old_storage",)

    def __init__(self) -> None:
        self.old_storage: Storage | None = None


class Storage:
    """A range of bytes on one device, shared by a tensor and its views.

    When the last reference goes, the block returns to its pool immediately: work already queued on the stream runs
    before any later work that reuses the block.

    Attributes:
        buffer: What kernels are given: a handle, or an address for host memory and Triton. None for 0 bytes.
        start: Offset of the storage in the buffer, in bytes.
        version: Number of in-place writes. Backward refuses saved tensors whose version has changed.
        pending: On `cpu`, True if a launch that uses this memory may wait for its kernel to be compiled; else None.
        owner: Keeps foreign memory alive (a NumPy array, a DLPack capsule); in host memory, the bytes at `buffer`.
            For a block of the pool it is None, or a `Hold` once NumPy arrays refer to the memory.
    """

    __slots__ = ("__weakref__", "_pool", "block", "buffer", "device", "nbytes", "owner", "pending", "start", "version")

    def __init__(
        self,
        device: Device,
        nbytes: int,
        block: Block | None,
        pool: Pool | None,
        buffer: Memory,
        start: int,
        owner: Memory = None,
    ):
        self.device = device
        self.nbytes = nbytes
        self.block = block
        self._pool = pool
        self.buffer = buffer
        self.start = start
        self.owner = owner
        self.version = 0
        self.pending: bool | None = None

    def __del__(self) -> None:
        block = self.block
        if block is not None:
            self._pool.free(block)  # type: ignore[union-attr]
        elif self.owner is not None:
            self.device.driver.retire(self.owner, self.buffer)
