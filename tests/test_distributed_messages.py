"""The messages of small groups: what every collective sends beside its data, and small and large `all_reduce`s."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator

import pytest
from distributed_ranks import run_ranks

from weftgrad.runtime import native

PROGRAM = "distributed_message_checks.py"
REDUCTIONS = "every_size,messages_in_parts,averages,sums_are_in_the_order_of_the_ranks,layouts"
CALLS = "calls_in_any_state,many_layouts,wrong_arguments"


def test_two_ranks() -> None:
    run_ranks(PROGRAM, f"{REDUCTIONS},{CALLS}", 2)


def test_two_ranks_without_the_c_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFTGRAD_NATIVE", "0")
    run_ranks(PROGRAM, f"layouts,messages_in_parts,{CALLS}", 2)


def test_five_ranks_and_smaller_groups() -> None:
    run_ranks(PROGRAM, "subgroups,calls_in_any_state", 5)


def test_four_ranks() -> None:
    run_ranks(PROGRAM, "messages_in_parts,calls_in_any_state", 4)


@pytest.mark.parametrize("uses_c", [True, False])
def test_messages_of_different_numbers_of_parts(uses_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not uses_c:
        monkeypatch.setenv("WEFTGRAD_NATIVE", "0")
    run_ranks(PROGRAM, "different_numbers_of_parts", 2)


START = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
TEST = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.c_void_p)
ARRIVED, PENDING, DIFFERENT, BUSY = range(4)
SEND, RECEIVE, DATA, SEND_REST, RECEIVE_REST = range(1, 6)  # handles of requests


class StandIn:
    """Functions in MPI's place. Requests are addresses of numbers.

    Attributes:
        tests_left: How many tests of each request are unsuccessful.
        error: What each function returns.
        started: The requests that were started, in order.
    """

    def __init__(self) -> None:
        self.tests_left = dict.fromkeys(range(1, 6), 0)
        self.error = 0
        self.started: list[int] = []
        self.handles = {number: ctypes.c_int(number) for number in range(1, 6)}
        self.row, self.peer_row = ctypes.create_string_buffer(100), ctypes.create_string_buffer(100)
        self.start, self.test = START(self._start), TEST(self._test)
        self.values = ctypes.create_string_buffer(b"values of a rank")
        words = (1, 16, *map(ctypes.addressof, (self.row, self.handles[SEND], self.handles[RECEIVE], self.peer_row)))
        self.plan = struct.pack("=6Q", *words)

    def send_in_two_parts(self) -> None:
        """Let the message to the other rank consist of two parts."""
        handles = [ctypes.addressof(self.handles[n]) for n in (SEND, SEND_REST, RECEIVE, RECEIVE_REST)]
        words = (2, 16, ctypes.addressof(self.row), *handles, ctypes.addressof(self.peer_row), 0)
        self.plan = struct.pack("=9Q", *words)

    def _start(self, request: int) -> int:
        self.started.append(ctypes.c_int.from_address(request).value)
        return self.error

    def _test(self, request: int, is_complete: ctypes._Pointer[ctypes.c_int], status: int) -> int:
        number = ctypes.c_int.from_address(request).value
        is_complete[0] = self.tests_left[number] == 0
        self.tests_left[number] = max(0, self.tests_left[number] - 1)
        return self.error

    def exchange(self, number: int = 7, request: int = 0, polls: int = 10) -> int:
        values, handle = ctypes.addressof(self.values), ctypes.addressof(self.handles[request]) if request else 0
        return native._native.exchange_messages(self.plan, number, values, handle, polls, polls)


@pytest.fixture
def mpi() -> Iterator[StandIn]:
    if not native.present:
        pytest.skip("the C extension is not used")
    functions = StandIn()
    address = [ctypes.cast(function, ctypes.c_void_p).value for function in (functions.start, functions.test)]
    native._native.set_mpi_functions(*address)
    yield functions
    native._native.set_mpi_functions(0, 0)


def test_messages_that_arrive_at_once(mpi: StandIn) -> None:
    mpi.peer_row[:4] = b"\x07\0\0\0"
    assert mpi.exchange() == ARRIVED
    assert mpi.started == [SEND, RECEIVE]
    assert mpi.row.raw[:4] == b"\x07\0\0\0"
    assert mpi.row.raw[64:80] == b"values of a rank"


def test_messages_that_come_late(mpi: StandIn) -> None:
    mpi.tests_left[RECEIVE] = 15
    mpi.peer_row[:4] = b"\x07\0\0\0"
    assert mpi.exchange() == PENDING
    assert mpi.exchange(number=-1) == ARRIVED
    assert mpi.started == [SEND, RECEIVE]  # not again


def test_a_message_that_is_still_being_sent(mpi: StandIn) -> None:
    mpi.tests_left[SEND] = 50
    mpi.row[:4] = b"\x06\0\0\0"
    assert mpi.exchange() == BUSY
    assert mpi.started == []
    assert mpi.row.raw[:4] == b"\x06\0\0\0"  # the message that MPI is sending


def test_headers_that_differ(mpi: StandIn) -> None:
    mpi.peer_row[:5] = b"\x07\0\0\0\x01"
    assert mpi.exchange() == DIFFERENT
    mpi.peer_row[:5] = b"\x07\0\0\0\0"
    assert mpi.exchange() == ARRIVED
    mpi.peer_row[63:64] = b"\x01"
    assert mpi.exchange() == DIFFERENT


def test_a_message_in_two_parts(mpi: StandIn) -> None:
    mpi.send_in_two_parts()
    mpi.tests_left[RECEIVE_REST] = 15
    mpi.peer_row[:4] = b"\x07\0\0\0"
    assert mpi.exchange() == PENDING
    assert mpi.started == [SEND, SEND_REST, RECEIVE, RECEIVE_REST]
    assert mpi.exchange(number=-1) == ARRIVED


def test_headers_that_differ_before_the_second_part_has_arrived(mpi: StandIn) -> None:
    mpi.send_in_two_parts()
    mpi.tests_left[RECEIVE_REST] = 1 << 30
    mpi.peer_row[:5] = b"\x07\0\0\0\x01"
    assert mpi.exchange() == DIFFERENT


def test_values_that_travel_beside_the_header(mpi: StandIn) -> None:
    mpi.tests_left[DATA] = 15
    mpi.peer_row[:4] = b"\x07\0\0\0"
    assert mpi.exchange(request=DATA) == PENDING
    assert mpi.exchange(number=-1, request=DATA) == ARRIVED


def test_errors_of_mpi(mpi: StandIn) -> None:
    mpi.error = 15
    assert mpi.exchange() == -15
    with pytest.raises(ValueError, match="not a plan"):
        native._native.exchange_messages(mpi.plan[:-8], 0, 0, 0, 0, 0)
    with pytest.raises(TypeError, match="expects a plan"):
        native._native.exchange_messages(mpi.plan, 0)


def test_without_mpi(mpi: StandIn) -> None:
    native._native.set_mpi_functions(0, 0)
    with pytest.raises(TypeError, match="expects a plan"):
        mpi.exchange()
