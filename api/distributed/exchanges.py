"""What ranks send each other at every collective: its header, and the values of a small `all_reduce`.

A group of at most `MAX_DIRECT_RANKS` ranks has `DirectMessages`: each rank sends its message to every other rank by
persistent requests, which cost less than any of MPI's collectives. Larger groups gather the headers by `Iallgather`,
whose number of messages grows with the logarithm of the number of ranks.

The values of a small `all_reduce` travel behind the header, in one message each way, which is sent in parts of 8000
bytes. Small means up to 128 KiB on two ranks, 42 on three and 21 on four. Every rank combines the values of all ranks
itself, in the order of the ranks: all get the same bits, in every run. It compares the headers first, so values of
another shape, dtype or reduction are never combined.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..runtime import dtypes, native
from ..runtime.device import Meta, device, meta
from ..runtime.dispatch import empty
from ..runtime.tensor import Tensor
from .errors import CollectiveMismatch
from .headers import HEADER_BYTES, describe, find_mismatch
from .reduce_ops import ReduceOp
from .value_layouts import ValueLayout

__all__ = ["MAX_DIRECT_RANKS", "DirectMessages", "Exchange", "FailedRequest", "GatheredHeaders"]

MAX_DIRECT_RANKS = 4
_VALUE_BYTES = 1 << 18  # of all messages of a call together
# MPICH copies messages of up to 8 KiB, with its own header, through a queue in shared memory. For a larger one the
# ranks first agree on a copy from process to process, which takes 3 µs more; parts are faster up to 128 KiB.
_PART_BYTES = 8000
_TAG = 0  # collectives have no tags, and messages between two ranks use other communicators
_MAX_LAYOUTS = 64
# tests for messages before a `Work` waits for them: 100 to 200 µs. C holds the interpreter's lock meanwhile
_POLLS_IN_C = 2000
_POLLS_IN_PYTHON = 200
_CALLS_OF_C = 5
_ARRIVED, _PENDING, _DIFFERENT, _BUSY = range(4)  # what an exchange has come to, as in csrc/messages.c
_set_number = struct.Struct("<I").pack_into


def _check_headers(headers: bytes | bytearray, header: bytes, members: Sequence[int]) -> None:
    if headers == header * len(members):
        return
    raise CollectiveMismatch(
        f"{describe(header)}: the ranks have called different collectives: {find_mismatch(headers, members)}. Call the "
        "same collectives on every rank of the group, in the same order, with the same shapes and dtypes"
    )


class GatheredHeaders:
    """The headers of a call, gathered by MPI's `Iallgather`. To works it is a request.

    Args:
        comm: The communicator.
        header: This rank's header.
        members: The global ranks of the group.
    """

    def __init__(self, comm: Any, header: bytes, members: Sequence[int]):
        self._header, self._members = header, members
        self._headers = bytearray(HEADER_BYTES * len(members))
        self._request = comm.Iallgather(header, self._headers)

    def Test(self) -> bool:  # noqa: N802  # mpi4py's name
        """Return whether all headers are there and equal.

        Raises:
            CollectiveMismatch: They differ.
        """
        if not self._request.Test():
            return False
        _check_headers(self._headers, self._header, self._members)
        return True


class Exchange:
    """The messages of one call in a group with `DirectMessages`. To works it is a request.

    Args:
        messages: The group's messages.
        header: This rank's header.
        layout: How the values travel; None: there are none.
        tensor: The values, to be overwritten by the combined ones.

    Attributes:
        is_finished: Whether all messages have arrived, and their values have been combined.
    """

    __slots__ = ("_messages", "header", "is_finished", "layout", "tensor")

    def __init__(
        self,
        messages: DirectMessages,
        header: bytes,
        layout: ValueLayout | None = None,
        tensor: Tensor | None = None,
    ):
        self._messages = messages
        self.header = header
        self.layout, self.tensor = layout, tensor
        self.is_finished = False

    def Test(self) -> bool:  # noqa: N802  # mpi4py's name
        """Move on the group's messages, and return whether this exchange is finished.

        Raises:
            CollectiveMismatch: The headers of this or of an earlier call differ.
        """
        return self.is_finished or self._messages.advance(self)


class FailedRequest:
    """A request whose error was raised before its work could get it."""

    def __init__(self, error: Exception):
        self._error = error

    def Test(self) -> bool:  # noqa: N802  # mpi4py's name
        """Raise the error."""
        raise self._error


class DirectMessages:
    """The messages of a small group: one from every rank to every other, for each call, in the order of the calls.

    A rank sends the message of a call when it has received those of the calls before it. Its buffers have room for one
    call: a row for each rank, with the header and the values. Callers hold the world's lock.

    Args:
        mpi: The module `mpi4py.MPI`.
        comm: A communicator on which nothing else sends or receives messages.
        members: The global ranks of the group.

    Attributes:
        mpi: The module.
        rank: This process's rank in the group.
        row_nbytes: Bytes from one rank's row to the next.
        header_sends: Persistent requests that send a header without values.
        layouts: How the values travel that have been sent before, by reduction and layout.
        is_finished: Whether the last call of `reduce` is done.
    """

    def __init__(self, mpi: Any, comm: Any, members: Sequence[int]):
        self.mpi, self._comm, self._members = mpi, comm, members
        self.rank: int = comm.rank
        self._size: int = comm.size
        self._max_nbytes = _VALUE_BYTES // (self._size * (self._size - 1)) // HEADER_BYTES * HEADER_BYTES
        self.row_nbytes = HEADER_BYTES + self._max_nbytes
        self._rows = empty(meta(dtypes.uint8, (self._size * self.row_nbytes,), None, device("cpu")))
        # as eight integers: they compare in a third of the time of bytes
        self._headers = [
            memoryview(mpi.buffer.fromaddress(self._address(rank), HEADER_BYTES)).cast("B").cast("Q")
            for rank in range(self._size)
        ]
        self._header = self._headers[self.rank]
        self._header_bytes = self._header.cast("B")
        self._peers = [rank for rank in range(self._size) if rank != self.rank]
        self._peer_headers = [self._headers[rank] for rank in self._peers]
        self._receives = [comm.Recv_init(self._row_part(rank, 0, self.row_nbytes), rank, _TAG) for rank in self._peers]
        self.header_sends = self.make_requests(HEADER_BYTES)[0]
        self._exchange_in_c = _load_exchange(mpi)
        self._last_layout: ValueLayout | None = None  # whose header, but for the number, is in this rank's row
        self.layouts: list[dict[Meta, ValueLayout]] = [{} for _ in ReduceOp]  # hashing a ReduceOp takes 0.1 µs
        self.is_finished = True
        self._queue: deque[Exchange] = deque()
        self._active_sends: list[Any] = []
        self._active_receives: list[Any] = []  # of the messages' later parts
        self._is_front_sent = False
        self._error: Exception | None = None

    def _address(self, rank: int) -> int:
        return (self._rows.storage.buffer or 0) + self._rows.start + rank * self.row_nbytes

    def has_room(self, layout: Meta) -> bool:
        """Return whether `all_reduce` sends the values of tensors of a layout behind the header."""
        return layout.device.type == "cpu" and layout.numel * layout.dtype.itemsize <= self._max_nbytes

    def make_requests(self, nbytes: int) -> tuple[list[Any], list[Any]]:
        """Return persistent requests that send the first bytes of this rank's row to each other rank.

        Messages are sent in parts of `_PART_BYTES`.

        Args:
            nbytes: How many bytes.

        Returns:
            The requests that send: first those of the first parts, one for each other rank. And the requests that
            receive the later parts of the others' messages.
        """
        parts = [(begin, min(_PART_BYTES, nbytes - begin)) for begin in range(0, nbytes, _PART_BYTES)]
        comm, rank = self._comm, self.rank
        sends = [comm.Send_init(self._row_part(rank, *part), peer, _TAG) for part in parts for peer in self._peers]
        receives = [
            comm.Recv_init(self._row_part(peer, *part), peer, _TAG) for part in parts[1:] for peer in self._peers
        ]
        return sends, receives

    def _row_part(self, rank: int, begin: int, nbytes: int) -> list[Any]:
        """Return a part of a rank's row, for mpi4py."""
        return [self.mpi.buffer.fromaddress(self._address(rank) + begin, nbytes), self.mpi.BYTE]

    def row_bytes(self, nbytes: int) -> memoryview:
        """Return the bytes of this rank's values."""
        row = self.mpi.buffer.fromaddress(self._address(self.rank) + HEADER_BYTES, nbytes)
        return memoryview(row)

    def plan_of(self, layout: Meta, sends: Sequence[Any], receives: Sequence[Any], value_nbytes: int) -> bytes | None:
        """Return the plan by which C sends so many bytes of tensors of a layout; None if C cannot.

        Args:
            layout: The tensors' layout.
            sends: The requests that `make_requests` returns.
            receives: Likewise.
            value_nbytes: How many bytes of values travel behind the header.
        """
        if self._exchange_in_c is None or not layout.contiguous or not layout.numel:
            return None
        words = [len(sends), value_nbytes, self._address(self.rank)]
        words += [self.mpi._addressof(request) for request in (*sends, *self._receives, *receives)]
        words += [self._address(rank) for rank in self._peers] + [0] * len(receives)
        return struct.pack(f"={len(words)}Q", *words)

    def values(self, layout: Meta) -> list[Tensor]:
        """Return a contiguous tensor of a layout's dtype and shape over the values of each rank's row."""
        contiguous = meta(layout.dtype, layout.shape, None, layout.device)
        start = self._rows.start + HEADER_BYTES
        return [Tensor(self._rows.storage, contiguous, start + rank * self.row_nbytes) for rank in range(self._size)]

    def add_layout(self, layout: Meta, op: ReduceOp) -> ValueLayout:
        """Prepare for tensors of a layout and a reduction, and return how they travel."""
        layouts = self.layouts[op]
        if len(layouts) >= _MAX_LAYOUTS and not self._queue and self._are_sends_complete():
            self._free_layouts()
        entry = layouts[layout] = ValueLayout(self, layout, op)
        return entry

    def _free_layouts(self) -> None:
        for layouts in self.layouts:
            for layout in layouts.values():
                if layout.sends is not self.header_sends:
                    _free(layout.sends)
                    _free(layout.receives)
            layouts.clear()
        self._last_layout, self._active_sends, self._active_receives = None, [], []

    def post(self, exchange: Exchange) -> None:
        """Put a call behind the earlier ones, and send its messages if those are finished."""
        self._queue.append(exchange)
        if self._is_front_sent or self._error is not None:
            return
        try:
            self._send()
        except Exception as error:  # `advance` raises it
            self._error = error

    def advance(self, exchange: Exchange) -> bool:
        """Receive messages until an exchange is finished; return False if they have not arrived yet.

        Raises:
            CollectiveMismatch: The headers of a call differ. All later exchanges raise it, too.
        """
        if self._error is not None:
            raise self._error
        try:
            while not exchange.is_finished:
                if not self._is_front_sent and not self._send():
                    return False
                if not self._have_arrived():
                    return False
                self._finish()
        except Exception as error:
            self._error = error
            raise
        return True

    @property
    def header(self) -> bytes:
        """This rank's header of the last call whose messages were sent."""
        return bytes(self._header_bytes)

    def reduce(self, layout: ValueLayout, tensor: Tensor, number: int) -> Exchange | None:
        """Run a small `all_reduce`, if no other call is under way.

        Args:
            layout: How the values travel.
            tensor: The values, to be overwritten by the combined ones.
            number: The call's number.

        Returns:
            None if it is done; otherwise the exchange to wait for. `Exchange.Test` raises what has gone wrong.
        """
        self.is_finished = False
        state = _BUSY
        try:
            if (plan := layout.plan) is not None and self._is_ready_for(layout, number):
                layout.synchronize()
                address = tensor.storage.buffer + tensor.start
                result = self._exchange_in_c(plan, number, address, 0, _POLLS_IN_C, _POLLS_IN_C)
                if result < 0:
                    raise self.mpi.Exception(-result)
                state = result
            elif plan is None:
                state = self._exchange(layout, tensor, number, _POLLS_IN_C)
            if state == _ARRIVED:
                layout.store(tensor)
                self.is_finished = True
                return None
        except Exception as error:  # the exchange's Test raises it
            self._error = error
        return self._wait_for(Exchange(self, layout.header(number), layout, tensor), state)

    def reduce_beside(self, layout: ValueLayout, tensor: Tensor, number: int, requests: list[Any]) -> Exchange | None:
        """Send and compare the headers of an `all_reduce` whose values travel beside them.

        Args:
            layout: How the values travel.
            tensor: The values.
            number: The call's number.
            requests: The request by which MPI combines the values. If it fails, `FailedRequest` takes its place.

        Returns:
            None if all is done; otherwise the exchange to wait for, beside the request.
        """
        self.is_finished = False
        request, state = requests[0], _BUSY
        try:
            if (plan := layout.plan) is None:
                state = self._exchange(layout, tensor, number, 0)
                tests = _POLLS_IN_PYTHON
                while state == _PENDING and tests:
                    tests -= 1
                    if request.Test() and self._have_arrived():
                        state = _ARRIVED if self._are_headers_equal() else _DIFFERENT
            elif self._is_ready_for(layout, number):
                state, address = _PENDING, self.mpi._addressof(request)
                result = self._exchange_in_c(plan, number, 0, address, _POLLS_IN_C, _POLLS_IN_C)
                calls = _CALLS_OF_C
                while result == _PENDING and calls:
                    calls -= 1
                    result = self._exchange_in_c(plan, -1, 0, address, 0, _POLLS_IN_C)
                if result < 0:
                    raise self.mpi.Exception(-result)
                state = result
            if state == _ARRIVED:
                self.is_finished = True
                return None
        except Exception as error:
            requests[0] = FailedRequest(error)
        return self._wait_for(Exchange(self, layout.header(number), layout, tensor), state)

    def post_values(self, layout: ValueLayout, tensor: Tensor, number: int) -> Exchange:
        """Put an `all_reduce` behind the earlier calls."""
        exchange = Exchange(self, layout.header(number), layout, tensor)
        self.post(exchange)
        return exchange

    def _wait_for(self, exchange: Exchange, state: int) -> Exchange:
        if state == _BUSY:
            self.post(exchange)
        else:
            self._queue.append(exchange)
            self._is_front_sent = True
        return exchange

    def _is_ready_for(self, layout: ValueLayout, number: int) -> bool:
        """Return whether no other call is under way; then this rank's row has a header of the layout."""
        if self._last_layout is not layout or self._queue or self._error is not None:
            if self._queue or self._error is not None or not self._are_sends_complete():
                return False
            self._header_bytes[:] = layout.header(number)
            self._last_layout, self._active_sends, self._active_receives = layout, layout.sends, layout.receives
        return True

    def _exchange(self, layout: ValueLayout, tensor: Tensor, number: int, receive_polls: int) -> int:
        """Send and receive the messages of a call. csrc/messages.c does the same for contiguous tensors."""
        if not (self._is_ready_for(layout, number) and self._are_sends_complete()):
            return _BUSY
        _set_number(self._header_bytes, 0, number & 0xFFFFFFFF)
        layout.load(tensor)
        self._start_messages(layout.sends, layout.receives)
        for _ in range(min(receive_polls, _POLLS_IN_PYTHON)):
            if self._have_arrived():
                return _ARRIVED if self._are_headers_equal() else _DIFFERENT
        return _PENDING

    def _start_messages(self, sends: list[Any], receives: list[Any]) -> None:
        for send in sends:
            send.Start()
        self._active_sends, self._active_receives = sends, receives
        for receive in (*self._receives, *receives):
            receive.Start()

    def _have_arrived(self) -> bool:
        """Return whether all messages of the call have arrived. A persistent request stays complete.

        If headers differ, later parts of messages are not waited for: the other rank may not send them.
        """
        if not all(receive.Test() for receive in self._receives):
            return False
        receives = self._active_receives
        return not receives or not self._are_headers_equal() or all(receive.Test() for receive in receives)

    def _are_headers_equal(self) -> bool:
        return all(theirs == self._header for theirs in self._peer_headers)

    def _are_sends_complete(self) -> bool:
        return all(send.Test() for send in self._active_sends)

    def _send(self) -> bool:
        """Send the messages of the first exchange; return False if this rank's row is still being sent."""
        if not self._are_sends_complete():
            return False
        exchange = self._queue[0]
        sends, receives = self.header_sends, list[Any]()
        self._header_bytes[:] = exchange.header
        self._last_layout = layout = exchange.layout
        if layout is not None:
            sends, receives = layout.sends, layout.receives
            layout.load(exchange.tensor)
        self._start_messages(sends, receives)
        self._is_front_sent = True
        return True

    def _finish(self) -> None:
        """Compare the headers of the first exchange, combine its values, and send the next one's messages."""
        exchange = self._queue[0]
        if not self._are_headers_equal():
            _check_headers(b"".join(self._headers), exchange.header, self._members)
        layout = exchange.layout
        if layout is not None:
            layout.store(exchange.tensor)
            exchange.tensor = None
        self._queue.popleft()
        exchange.is_finished = True
        self._is_front_sent = False
        if self._queue:
            self._send()

    def close(self) -> None:
        """Free the requests. Nothing happens while a call is under way: MPI still uses them."""
        if self._queue or not self._are_sends_complete():
            return
        self._free_layouts()
        _free(self._receives)
        _free(self.header_sends)


def _load_exchange(mpi: Any) -> Any:
    """Return `native.exchange_messages` for the MPI that mpi4py has loaded; None if it cannot be used."""
    if sys.byteorder != "little":
        return None
    try:
        return native.set_mpi_library(mpi.__file__)
    except (AttributeError, OSError):  # mpi4py is built into Python, or its MPI has other names
        return None


def _free(requests: Sequence[Any]) -> None:
    for request in requests:
        request.Free()
