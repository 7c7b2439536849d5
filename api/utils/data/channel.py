"""Message channel between a loader and its workers: packets over a Unix socket.

A packet is a pickle of a few hundred bytes, plus file descriptors. A larger message goes into shared memory whose
descriptor is sent instead. So a packet never fills the socket buffer, and sending does not wait for the receiver.
"""

from __future__ import annotations

import os
import pickle
import socket
import weakref
from typing import Any, Generic, TypeVar

from ...runtime.shared import Segment

__all__ = ["Channel", "pair"]

_MAX_PACKET_BYTES = 4096  # larger messages go into shared memory
_MAX_DESCRIPTORS = 64

_Sent = TypeVar("_Sent")
_Received = TypeVar("_Received")


class Channel(Generic[_Sent, _Received]):
    """One end of a channel. `receive` raises `EOFError` once the other end is closed or its process has ended."""

    def __init__(self, connected_socket: socket.socket):
        self.socket = connected_socket
        _channels.add(self)

    def fileno(self) -> int:
        """Return the socket's file descriptor, for `poll`."""
        return self.socket.fileno()

    def send(self, message: _Sent, fds: list[int] | None = None) -> None:
        """Send a picklable message and up to 63 file descriptors. Raises `OSError` if the other end is closed."""
        payload = pickle.dumps(message, protocol=5)
        descriptors = list(fds or ())
        if len(payload) <= _MAX_PACKET_BYTES:
            self._send(b"." + payload, descriptors)
            return
        segment = Segment(len(payload), purpose="a message to or from a worker")
        segment.array[:] = memoryview(payload)
        self._send(b"+%d" % len(payload), [*descriptors, segment.fd])

    def _send(self, packet: bytes, fds: list[int]) -> None:
        if fds:
            socket.send_fds(self.socket, [packet], fds)
        else:
            self.socket.send(packet)

    def receive(self, wait: bool = True) -> tuple[_Received, list[int]]:
        """Return a message and its file descriptors, which the caller must close.

        Args:
            wait: Wait for a message.

        Raises:
            BlockingIOError: There is no message, and `wait` is False.
            EOFError: The other end is closed.
        """
        flags = 0 if wait else socket.MSG_DONTWAIT
        try:
            packet, fds, _, _ = socket.recv_fds(self.socket, _MAX_PACKET_BYTES + 1, _MAX_DESCRIPTORS, flags)
        except ConnectionError:  # the other end closed with unread messages; what it sent before can still be read
            packet, fds, _, _ = socket.recv_fds(self.socket, _MAX_PACKET_BYTES + 1, _MAX_DESCRIPTORS, flags)
        if not packet:
            raise EOFError
        for fd in fds:
            os.set_inheritable(fd, False)
        if packet[:1] == b".":
            return pickle.loads(memoryview(packet)[1:]), fds
        segment = Segment.from_fd(fds.pop(), int(packet[1:]))
        return pickle.loads(segment.array.data), fds

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


_channels: weakref.WeakSet[Channel[Any, Any]] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close the ends that a forked process inherits. Otherwise a worker would not notice that its loader has ended."""
    for channel in list(_channels):
        channel.close()


os.register_at_fork(after_in_child=_close_in_child)


def pair() -> tuple[Channel[_Sent, _Received], socket.socket]:
    """Return a channel and the socket of its other end, which another process wraps in a `Channel`."""
    local_socket, remote_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(local_socket), remote_socket
