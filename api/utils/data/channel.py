"""How a loader and its workers talk: packets over a Unix socket, memory beside them.

A packet is a pickle of a few hundred bytes, and file descriptors. Whatever is larger lies in shared memory whose
descriptor comes along, so a packet never fills the socket, and sending one does not wait for the other side.
"""

from __future__ import annotations

import os
import pickle
import socket
from typing import Any

from ...runtime.shared import Segment

__all__ = ["Channel", "pair"]

_LARGEST = 4096  # bytes of a packet
_MOST_FDS = 64


class Channel:
    """One end. `receive` raises `EOFError` once the other end is closed, or its process gone."""

    def __init__(self, made: socket.socket):
        self.socket = made

    def fileno(self) -> int:
        """For `poll`."""
        return self.socket.fileno()

    def send(self, message: Any, fds: list[int] | None = None) -> None:
        """Send what pickles, and up to 63 descriptors. Raises `OSError` where nobody is there."""
        data = pickle.dumps(message, protocol=5)
        given = list(fds or ())
        if len(data) <= _LARGEST:
            self._send(b"." + data, given)
            return
        beside = Segment(len(data), what="a message to or from a worker")
        beside.array[:] = memoryview(data)
        self._send(b"+%d" % len(data), [*given, beside.fd])

    def _send(self, packet: bytes, fds: list[int]) -> None:
        if fds:
            socket.send_fds(self.socket, [packet], fds)
        else:
            self.socket.send(packet)

    def receive(self, wait: bool = True) -> tuple[Any, list[int]]:
        """A message and the descriptors that came with it, which are the caller's to close.

        Raises `BlockingIOError` if there is none and it is not to be waited for.
        """
        flags = 0 if wait else socket.MSG_DONTWAIT
        try:
            packet, fds, _, _ = socket.recv_fds(self.socket, _LARGEST + 1, _MOST_FDS, flags)
        except ConnectionError:  # the other end was closed with messages unread; what it sent before is still here
            packet, fds, _, _ = socket.recv_fds(self.socket, _LARGEST + 1, _MOST_FDS, flags)
        if not packet:
            raise EOFError
        for fd in fds:
            os.set_inheritable(fd, False)
        if packet[:1] == b".":
            return pickle.loads(memoryview(packet)[1:]), fds
        beside = Segment.opened(fds.pop(), int(packet[1:]))
        return pickle.loads(beside.array.data), fds

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


def pair() -> tuple[Channel, socket.socket]:
    """A channel and the socket of its other end, to be sent to a process and made a `Channel` there."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(here), there
