"""Storages in shared memory, and how they get from one process to another.

**Which memory.** `share` moves storages of `cpu` into a `Segment` (`runtime.shared`): memory behind a file without a
name. All tensors over a storage move with it, since they find their memory through it. Storages shared together lie in
one segment, so that a module takes one descriptor and not one a parameter.

**How it is sent.** A pickled tensor holds no data, but the address of this process's `Desk` and a ticket for it. Who
unpickles it goes to that desk, a Unix socket that a thread serves, shows the ticket, and is handed the segment's
descriptor. A ticket is good once, and whoever unpickles must do so while the sender lives; a child process that ends
waits up to `PATIENCE` seconds for its tickets to be used.

**How long it lives.** References are counted by the kernel alone: each process holds a descriptor and a mapping for as
long as it has tensors over the segment, and the desk holds them for tickets that were not used yet. When the last
process lets go, or dies in whatever way, the memory is free. Nothing has a name, so nothing can be left behind.

**What stays together.** A segment has a random token, and a process that is sent one it knows gives the storage it has
already. So views sent apart share memory on the other side too, and a tensor that comes home is itself again.
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
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..runtime.device import device
from ..runtime.errors import DeviceError, WorkerError
from ..runtime.shared import PAGE, Segment
from ..runtime.storage import Hold, Storage
from ..runtime.tensor import Tensor

__all__ = ["PATIENCE", "Place", "desk", "is_shared", "place_of", "share", "share_tensors", "storage_at"]

PATIENCE = 5.0
_ALIGNMENT = 512
_TICKET = 16


class Place(NamedTuple):
    """Where a storage lies: nbytes from `offset` on, in the segment of that token."""

    token: bytes
    offset: int
    nbytes: int
    segment: Segment


_lock = threading.RLock()
_places: WeakKeyDictionary[Storage, Place] = WeakKeyDictionary()
_segments: WeakValueDictionary[bytes, Segment] = WeakValueDictionary()
_storages: WeakValueDictionary[tuple[bytes, int], Storage] = WeakValueDictionary()


def place_of(storage: Storage) -> Place | None:
    """Where a storage lies in shared memory; None if it does not."""
    return _places.get(storage)


def is_shared(tensor: Tensor) -> bool:
    """Whether the tensor's memory can be seen by other processes."""
    return tensor.storage in _places


def share_tensors(tensors: Iterable[Tensor]) -> None:
    """Move the storages of `tensors` into shared memory, those that are not there yet into one segment.

    Raises `DeviceError` for a tensor that is not on `cpu`, `SharedMemoryError` where memory is short.
    """
    storages = {}
    for tensor in tensors:
        check(tensor)
        if tensor.meta.numel:
            storages[id(tensor.storage)] = tensor.storage
    share(list(storages.values()))


def check(tensor: Tensor) -> None:
    """Raise `DeviceError` for a tensor that is not on `cpu`."""
    if tensor.meta.device.type != "cpu":
        raise DeviceError(
            f"a tensor on {tensor.meta.device} cannot be shared between processes: memory of devices stays in the "
            "process that has it; send x.cpu() and move it to the device on the other side"
        )


def share(storages: list[Storage]) -> None:
    """Move storages of `cpu` into shared memory, in one segment.

    Tensors hold the absolute position of their first element in the storage's buffer, which therefore may not change:
    a storage that began at byte n of a pool's segment begins at byte n of its new buffer. What is in front of it is
    other storages' memory, or the hole at the front of the segment, which takes no memory. A NumPy array over a tensor
    goes on showing the memory it was made of.
    """
    with _lock:
        moving = [s for s in storages if s not in _places]
        if not moving:
            return
        driver: Any = device("cpu").driver
        driver.synchronize()
        at = max(s.start for s in moving)
        hole = at = -(-at // PAGE) * PAGE
        offsets = []
        for storage in moving:
            offsets.append(at)
            at += -(-storage.nbytes // _ALIGNMENT) * _ALIGNMENT
        content = [(o, driver.host_view(s)[: s.nbytes]) for s, o in zip(moving, offsets, strict=True)]
        segment = Segment(at, hole, "shared tensors", content)
        token = os.urandom(16)
        _segments[token] = segment
        for storage, offset in zip(moving, offsets, strict=True):
            end = offset + storage.nbytes
            block, owner = storage.block, storage.owner
            foreign = owner if block is None else None
            old = Storage(storage.device, storage.nbytes, block, storage._pool, storage.buffer, storage.start, foreign)
            storage.owner, storage.block = segment.array[offset - storage.start : end], None
            storage.buffer = storage.owner.ctypes.data
            if isinstance(owner, Hold):
                owner.kept = old  # else its memory is free as soon as nothing runs that uses it
            _places[storage] = Place(token, offset, storage.nbytes, segment)
            _storages[token, offset] = storage


def storage_at(segment: Segment, token: bytes, offset: int, nbytes: int) -> Storage:
    """The storage at that place: the one that this process has, or a new one."""
    with _lock:
        found = _storages.get((token, offset))
        if found is None:
            segment = _segments.setdefault(token, segment)
            found = device("cpu").driver.adopt(segment.array[offset : offset + nbytes])
            _places[found] = Place(token, offset, nbytes, segment)
            _storages[token, offset] = found
        return found


def known(token: bytes) -> Segment | None:
    """The segment of that token, if this process has it."""
    return _segments.get(token)


class Desk:
    """Where other processes fetch this one's segments. It opens with the first ticket."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._held: dict[bytes, Segment] = {}
        self._socket: socket.socket | None = None
        self.address = ""

    def ticket(self, segment: Segment) -> tuple[str, bytes]:
        """The desk's address, and a new ticket for `segment`."""
        with self._lock:
            if self._socket is None:
                self._open()
            made = os.urandom(_TICKET)
            self._held[made] = segment
            return self.address, made

    def _open(self) -> None:
        self._socket = made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.address = f"weftgrad-{os.getpid()}-{os.urandom(8).hex()}"
        made.bind(f"\0{self.address}")  # an abstract name: no file
        made.listen(64)
        threading.Thread(target=self._serve, args=(made,), name="weftgrad-desk", daemon=True).start()
        if process.parent_process() is not None:
            util.Finalize(None, self._wait, exitpriority=-100)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):  # the other side may be gone
                self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        client.settimeout(1.0)
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        asked = client.recv(_TICKET + 1)
        if struct.unpack("3i", credentials)[1] != os.getuid():
            return
        segment = self._held.get(asked[:_TICKET])
        if segment is None:
            client.send(b"?")
        elif asked[_TICKET:]:
            client.send(b".")
        else:
            socket.send_fds(client, [b"."], [segment.fd])
        with self._lock:  # after the answer, which the process that waits here must not take along
            self._held.pop(asked[:_TICKET], None)
            self._lock.notify_all()

    def _wait(self) -> None:
        end = monotonic() + PATIENCE
        with self._lock:
            while self._held and monotonic() < end:
                self._lock.wait(end - monotonic())


desk = Desk()


def fetch(address: str, ticket: bytes, token: bytes, nbytes: int) -> Segment:
    """The segment for a ticket, which is given back if the segment is here already.

    Raises `WorkerError` if the process that gave the ticket has ended.
    """
    have = known(token)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(30.0)
            client.connect(f"\0{address}")
            client.send(ticket + (b"." if have is not None else b""))
            answer, fds, _, _ = socket.recv_fds(client, 1, 1)
    except OSError as error:
        if have is not None:
            return have
        raise WorkerError(
            f"a tensor that process {address.split('-')[1]} sent could not be fetched from it ({error}): its memory "
            "lives in the process that sent it until it is received; let that process live until then (join it after "
            "receiving)"
        ) from error
    if have is not None:
        return have
    if answer != b"." or not fds:
        raise WorkerError(
            "a tensor was unpickled a second time from the same bytes: what a pickle for another process refers to is "
            "handed out once; pickle it again for every receiver"
        )
    return Segment.opened(fds[0], nbytes)


def _forked() -> None:
    global desk, _lock
    desk = Desk()
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)
