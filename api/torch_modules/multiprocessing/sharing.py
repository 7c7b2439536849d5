"""Move storages into shared memory, and send them from one process to another.

**Memory.** `share` moves `cpu` storages into a `Segment` (`runtime.shared`), which is memory of an anonymous file. All
tensors over a storage move with it, because they reach their memory through it. Storages that are shared together use
one segment, so a module needs one file descriptor instead of one per parameter.

**Sending.** A pickled tensor contains no data, but the address of this process's `Desk` and a ticket. The desk is a
Unix socket that a thread serves. The receiver connects, sends the ticket, and gets the segment's file descriptor. A
ticket is valid once, and only while the sender lives. A child process that ends therefore waits up to
`TICKET_TIMEOUT_SECONDS` for its tickets to be used.

**Lifetime of a segment.** The operating system counts the references: each process keeps a descriptor and a mapping as
long as it has tensors over the segment, and the desk keeps them for unused tickets. The memory is freed when the last
process closes its descriptor or dies. The file has no name, so it cannot be left behind.

**Identity.** Each segment has a random token. A process that receives a segment it already has uses its existing
storage. So views that are sent separately still share memory, and a tensor that is sent back is the same storage.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterable
from multiprocessing import process, util
from time import monotonic
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..runtime.device import device
from ..runtime.dtypes import Array
from ..runtime.errors import DeviceError, WorkerError
from ..runtime.shared import PAGE, Segment
from ..runtime.storage import Hold, Storage
from ..runtime.tensor import Tensor

__all__ = [
    "TICKET_TIMEOUT_SECONDS",
    "SharedLocation",
    "desk",
    "find_location",
    "is_shared",
    "share",
    "share_tensors",
    "storage_at",
]

TICKET_TIMEOUT_SECONDS = 5.0
_ALIGNMENT = 512
_TICKET_BYTES = 16


class SharedLocation(NamedTuple):
    """Where a storage is: `nbytes` bytes from `offset` on, in the segment with this token."""

    token: bytes
    offset: int
    nbytes: int
    segment: Segment


_lock = threading.RLock()
_locations: WeakKeyDictionary[Storage, SharedLocation] = WeakKeyDictionary()
_segments: WeakValueDictionary[bytes, Segment] = WeakValueDictionary()
_storages: WeakValueDictionary[tuple[bytes, int], Storage] = WeakValueDictionary()


def find_location(storage: Storage) -> SharedLocation | None:
    """Return the location of a storage in shared memory; None if it is not shared."""
    return _locations.get(storage)


def is_shared(tensor: Tensor) -> bool:
    """Return whether the tensor's memory is shared with other processes."""
    return tensor.storage in _locations


def share_tensors(tensors: Iterable[Tensor]) -> None:
    """Move the storages of `tensors` into shared memory. Those that are not shared yet go into one segment.

    Raises:
        DeviceError: A tensor is not on `cpu`.
        SharedMemoryError: There is not enough memory.
    """
    storages = {}
    for tensor in tensors:
        require_cpu(tensor)
        if tensor.meta.numel:
            storages[id(tensor.storage)] = tensor.storage
    share(list(storages.values()))


def require_cpu(tensor: Tensor) -> None:
    """Raise `DeviceError` if a tensor is not on `cpu`."""
    if tensor.meta.device.type != "cpu":
        raise DeviceError(
            f"a tensor on {tensor.meta.device} cannot be shared between processes: memory of devices stays in the "
            "process that has it; send x.cpu() and move it to the device on the other side"
        )


def share(storages: list[Storage]) -> None:
    """Move `cpu` storages into shared memory, in one segment.

    Tensors store the absolute position of their first element in the storage's buffer, so that position must not
    change: a storage that began at byte n of a pool's segment begins at byte n of its new buffer. The bytes before it
    belong to other storages, or to the hole at the front of the segment, which takes no memory. NumPy arrays over the
    tensors keep the old memory.
    """
    with _lock:
        to_move = [s for s in storages if s not in _locations]
        if not to_move:
            return
        driver = device("cpu").driver
        driver.synchronize()
        # A new buffer begins `start` bytes before its storage, and must not begin before the segment does.
        hole_bytes = -(-max(s.start for s in to_move) // PAGE) * PAGE
        end_offset, offsets = hole_bytes, []
        for storage in to_move:
            offsets.append(end_offset)
            end_offset += -(-storage.nbytes // _ALIGNMENT) * _ALIGNMENT
        content = [(o, _host_bytes(s)) for s, o in zip(to_move, offsets, strict=True)]
        segment = Segment(end_offset, hole_bytes, "shared tensors", content)
        token = os.urandom(16)
        _segments[token] = segment
        for storage, offset in zip(to_move, offsets, strict=True):
            end = offset + storage.nbytes
            block, owner = storage.block, storage.owner
            foreign_owner = owner if block is None else None
            old = Storage(
                storage.device, storage.nbytes, block, storage._pool, storage.buffer, storage.start, foreign_owner
            )
            storage.owner, storage.block = segment.array[offset - storage.start : end], None
            storage.buffer = storage.owner.ctypes.data
            if isinstance(owner, Hold):
                owner.old_storage = old  # otherwise the old memory is freed as soon as no running kernel uses it
            _locations[storage] = SharedLocation(token, offset, storage.nbytes, segment)
            _storages[token, offset] = storage


def _host_bytes(storage: Storage) -> Array:
    view = storage.device.driver.host_view(storage)
    assert view is not None  # the memory of `cpu` is the host's
    return view[: storage.nbytes]


def storage_at(segment: Segment, token: bytes, offset: int, nbytes: int) -> Storage:
    """Return the storage at a location: the existing one of this process, or a new one."""
    with _lock:
        storage = _storages.get((token, offset))
        if storage is None:
            segment = _segments.setdefault(token, segment)
            storage = device("cpu").driver.adopt(segment.array[offset : offset + nbytes])
            _locations[storage] = SharedLocation(token, offset, nbytes, segment)
            _storages[token, offset] = storage
        return storage


def find_segment(token: bytes) -> Segment | None:
    """Return the segment with this token; None if this process does not have it."""
    return _segments.get(token)


class Desk:
    """The socket from which other processes fetch this process's segments. It opens with the first ticket."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._tickets: dict[bytes, Segment] = {}
        self._socket: socket.socket | None = None
        self.address = ""

    def ticket(self, segment: Segment) -> tuple[str, bytes]:
        """Return the desk's address and a new ticket for `segment`."""
        with self._lock:
            if self._socket is None:
                self._open()
            new_ticket = os.urandom(_TICKET_BYTES)
            self._tickets[new_ticket] = segment
            return self.address, new_ticket

    def _open(self) -> None:
        self._socket = listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.address = f"weftgrad-{os.getpid()}-{os.urandom(8).hex()}"
        listener.bind(f"\0{self.address}")  # abstract socket address: no file is created
        listener.listen(64)
        threading.Thread(target=self._serve, args=(listener,), name="weftgrad-desk", daemon=True).start()
        if process.parent_process() is not None:
            util.Finalize(None, self._wait, exitpriority=-100)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):  # the client may have died
                self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        """Send the segment of the client's ticket, or "?" for an unknown ticket.

        A byte after the ticket says that the client has the segment already: the ticket is cancelled. Clients of other
        users get no answer.
        """
        client.settimeout(1.0)
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        request = client.recv(_TICKET_BYTES + 1)
        if struct.unpack("3i", credentials)[1] != os.getuid():
            return
        segment = self._tickets.get(request[:_TICKET_BYTES])
        if segment is None:
            client.send(b"?")
        elif request[_TICKET_BYTES:]:
            client.send(b".")
        else:
            socket.send_fds(client, [b"."], [segment.fd])
        with self._lock:  # only after the answer: `_wait` must not let this process end before it
            self._tickets.pop(request[:_TICKET_BYTES], None)
            self._lock.notify_all()

    def _wait(self) -> None:
        """Wait until all tickets are used, for `TICKET_TIMEOUT_SECONDS` at most."""
        end = monotonic() + TICKET_TIMEOUT_SECONDS
        with self._lock:
            while self._tickets and monotonic() < end:
                self._lock.wait(end - monotonic())


desk = Desk()


def fetch(address: str, ticket: bytes, token: bytes, nbytes: int) -> Segment:
    """Exchange a ticket for its segment. If this process has the segment already, the ticket is only cancelled.

    Args:
        address: The address of the sender's desk.
        ticket: The ticket.
        token: The segment's token.
        nbytes: The segment's size.

    Raises:
        WorkerError: The sender has ended, or the ticket has been used.
    """
    known_segment = find_segment(token)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(30.0)
            client.connect(f"\0{address}")
            client.send(ticket + (b"." if known_segment is not None else b""))
            answer, fds, _, _ = socket.recv_fds(client, 1, 1)
    except OSError as error:
        if known_segment is not None:
            return known_segment
        raise WorkerError(
            f"a tensor that process {address.split('-')[1]} sent could not be fetched from it ({error}): the sender "
            "must live until the tensor is received; join it after receiving"
        ) from error
    if known_segment is not None:
        return known_segment
    if answer != b"." or not fds:
        raise WorkerError(
            "a tensor was unpickled a second time from the same bytes: a tensor that was pickled for another process "
            "can be received only once; pickle it again for every receiver"
        )
    return Segment.from_fd(fds[0], nbytes)


def _reset_after_fork() -> None:
    global desk, _lock
    desk = Desk()
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_reset_after_fork)
