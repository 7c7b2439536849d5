"""Memory that several processes see: files without a name, mapped.

A `Segment` is a file of the kernel's memory (`memfd_create`) that has no name anywhere: nothing under /dev/shm, nothing
to remove, nothing that a killed process could leave behind. It travels as a file descriptor over a Unix socket
(`SCM_RIGHTS`). The kernel counts its references, which are the descriptors and mappings of all processes, and frees
the memory with the last one, whatever ended the processes that held them.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from .errors import SharedMemoryError, format_bytes

__all__ = ["PAGE", "Segment"]

PAGE = 4096


class Segment:
    """Shared memory: `array` is its bytes, `fd` what another process opens it by (-1 once `forget` was called).

    nbytes: the size. hole: bytes at the front that are addresses only, without memory behind them. content: what is
    written into it, as (offset, bytes) with ascending offsets; pages that are written whole are not cleared first.
    Raises `SharedMemoryError` where the system has no more; all of it is taken at once, so no later write can fail.
    """

    __slots__ = ("__weakref__", "array", "fd", "nbytes")

    def __init__(
        self,
        nbytes: int,
        hole: int = 0,
        what: str = "a tensor",
        content: Iterable[tuple[int, np.ndarray[Any, Any]]] = (),
    ):
        self.fd = -1
        self.nbytes = nbytes
        try:
            self.fd = _nameless()
            os.ftruncate(self.fd, nbytes)
            for offset, each in content:
                _write(self.fd, offset, each)
            os.posix_fallocate(self.fd, hole, nbytes - hole)
            self.array = _mapped(self.fd, nbytes, hole == 0 and not content)
        except OSError as error:
            self.forget()
            raise SharedMemoryError(
                f"shared memory is full: {format_bytes(nbytes - hole)} for {what} could not be had "
                f"({error.strerror or error}). Use smaller batches, fewer workers or a lower prefetch_factor, or raise "
                "the limit on memory that these processes run under (a container's --memory, ulimit -f, ulimit -v)",
                error.errno or 0,
            ) from error

    @classmethod
    def opened(cls, fd: int, nbytes: int, private: bool = False) -> Segment:
        """The segment of `nbytes` bytes behind a descriptor, which it owns from now on.

        private: writes stay in this process (the pages written are copied).
        """
        made = cls.__new__(cls)
        made.fd, made.nbytes = fd, nbytes
        try:
            made.array = _mapped(fd, nbytes, False, private)
        except OSError as error:
            raise SharedMemoryError(
                f"shared memory: {format_bytes(nbytes)} could not be mapped ({error.strerror})", error.errno or 0
            ) from error
        return made

    def forget(self) -> None:
        """Close the descriptor: the segment cannot be sent any more, its memory stays."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.forget()


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("weftgrad", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    os.unlink(path)
    return fd


def _write(fd: int, offset: int, content: Any) -> None:
    left = memoryview(content)
    while left:
        done = os.pwrite(fd, left, offset)
        left, offset = left[done:], offset + done


def _mapped(fd: int, nbytes: int, at_once: bool, private: bool = False) -> np.ndarray[Any, Any]:
    flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
    if at_once:
        flags |= getattr(mmap, "MAP_POPULATE", 0)
    return np.frombuffer(mmap.mmap(fd, nbytes, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE), np.uint8)
