"""Memory shared by processes: mapped anonymous files.

A `Segment` is a memory file (`memfd_create`) without a name: there is nothing under /dev/shm to remove, and a killed
process leaves nothing behind. It is sent to other processes as a file descriptor over a Unix socket (`SCM_RIGHTS`). The
kernel counts the descriptors and mappings of all processes, and frees the memory with the last one, no matter how the
processes ended.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable

import numpy as np

from .dtypes import Array
from .errors import SharedMemoryError, format_bytes

__all__ = ["PAGE", "Segment"]

PAGE = 4096


class Segment:
    """A shared memory segment.

    All memory is allocated at once, so no later write can fail.

    Attributes:
        array: The bytes, as a uint8 array.
        fd: The file descriptor to send to other processes; -1 after `forget`.
        nbytes: The size in bytes.

    Args:
        nbytes: The size in bytes.
        hole: Bytes at the front that get no memory.
        purpose: What the memory is for, for the error message.
        content: Initial content as (offset, array), with ascending offsets. Pages that it fills are not cleared first.

    Raises:
        SharedMemoryError: The system has no memory left.
    """

    __slots__ = ("__weakref__", "array", "fd", "nbytes")

    def __init__(
        self,
        nbytes: int,
        hole: int = 0,
        purpose: str = "a tensor",
        content: Iterable[tuple[int, Array]] = (),
    ):
        self.fd = -1
        self.nbytes = nbytes
        try:
            self.fd = _create_anonymous_file()
            os.ftruncate(self.fd, nbytes)
            for offset, array in content:
                _write(self.fd, offset, array)
            os.posix_fallocate(self.fd, hole, nbytes - hole)
            self.array = _map_file(self.fd, nbytes, hole == 0 and not content)
        except OSError as error:
            self.forget()
            raise SharedMemoryError(
                f"shared memory is full: {format_bytes(nbytes - hole)} for {purpose} could not be had "
                f"({error.strerror or error}). Use smaller batches, fewer workers or a lower prefetch_factor, or raise "
                "the limit on memory that these processes run under (a container's --memory, ulimit -f, ulimit -v)",
                error.errno or 0,
            ) from error

    @classmethod
    def from_fd(cls, fd: int, nbytes: int, private: bool = False) -> Segment:
        """Map the segment of `nbytes` bytes of a file descriptor, and take ownership of the descriptor.

        private: copy on write, so that writes stay in this process.
        """
        segment = cls.__new__(cls)
        segment.fd, segment.nbytes = fd, nbytes
        try:
            segment.array = _map_file(fd, nbytes, False, private)
        except OSError as error:
            raise SharedMemoryError(
                f"shared memory: {format_bytes(nbytes)} could not be mapped ({error.strerror})", error.errno or 0
            ) from error
        return segment

    def forget(self) -> None:
        """Close the descriptor. The memory stays, but cannot be sent any more."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.forget()


def _create_anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("weftgrad", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    os.unlink(path)
    return fd


def _write(fd: int, offset: int, content: Array) -> None:
    remaining = content.data
    while remaining:
        written = os.pwrite(fd, remaining, offset)
        remaining, offset = remaining[written:], offset + written


def _map_file(fd: int, nbytes: int, populate: bool, private: bool = False) -> Array:
    flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
    if populate:
        flags |= getattr(mmap, "MAP_POPULATE", 0)
    return np.frombuffer(mmap.mmap(fd, nbytes, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE), np.uint8)
