"""The memory behind tensors, and how versions of it are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .device import Device
    from .pool import Block, Pool

__all__ = ["Hold", "Storage"]


class Hold:
    """What arrays over a storage's memory hold beside the storage, which may move (into shared memory).

    kept: the storage of the memory that was left, for as long as arrays show it.
    """

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept: Storage | None = None


class Storage:
    """A run of bytes on one device, shared by a tensor and its views.

    buffer: what the backend's kernels are given: a handle, or in host memory and for Triton an address. None where
    there are no bytes.
    start: where the storage begins in that buffer, in bytes.
    version: counts writes in place. A saved tensor remembers it, and backward refuses another.
    pending: of `cpu`: the launch that waits for its kernel to be compiled and uses this memory, the last of them.
    owner: keeps foreign memory (a NumPy array, a DLPack capsule) alive; in host memory it is the bytes at
    `buffer`. Where the pool owns the block it is None, or a `Hold` once arrays were made over it.

    The block returns to its pool the moment the last reference goes: work already queued on the same stream runs
    before any later work that reuses it.
    """

    __slots__ = ("__weakref__", "_pool", "block", "buffer", "device", "nbytes", "owner", "pending", "start", "version")

    def __init__(
        self,
        device: Device,
        nbytes: int,
        block: Block | None,
        pool: Pool | None,
        buffer: Any,
        start: int,
        owner: Any = None,
    ):
        self.device = device
        self.nbytes = nbytes
        self.block = block
        self._pool = pool
        self.buffer = buffer
        self.start = start
        self.owner = owner
        self.version = 0
        self.pending: Any = None

    def __del__(self) -> None:
        block = self.block
        if block is not None:
            self._pool.free(block)  # type: ignore[union-attr]
        elif self.owner is not None:
            self.device.driver.retire(self.owner, self.buffer)
