"""Notices between ranks about failures, and what each rank is doing: a control connection beside MPI.

MPI has no portable way to learn that another process has died, has raised an error, or waits in another collective.
Rank 0 therefore runs a `Hub`, a thread that passes every line it receives on to all other ranks, and adds a notice when
a connection closes: the operating system closes it when a process is killed. Each rank has a `Watcher`, a thread that
reads the notices, and that answers questions about its rank while the main thread computes. No tensor travels here.

Lines are JSON objects. `kind` is one of:

    hello     rank and the world's secret; the first line of a connection
    failed    the rank has raised an error: `text`
    ended     the rank has ended its program without an error
    ask       ranks shall report what they do
    state     the answer: `text`
    lost      (by the hub) the connection of a rank closed without `ended`
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from .errors import DistNetworkError

__all__ = ["Hub", "Watcher"]

_MAX_LINE = 1 << 20
_CONNECT_SECONDS = 30.0


class _LineReader:
    """Splits what arrives at a socket into JSON lines."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self._rest = b""

    def read(self) -> list[dict[str, Any]] | None:
        """Return the complete lines that have arrived; None if the connection has closed."""
        try:
            chunk = self.connection.recv(65536)
        except OSError:
            return None
        if not chunk or len(self._rest) > _MAX_LINE:
            return None
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        notices = []
        for line in lines:
            try:
                notice = json.loads(line)
            except ValueError:
                return None
            if not isinstance(notice, dict):
                return None
            notices.append(notice)
        return notices


def _send(connection: socket.socket, notice: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the other side has died: its connection says so
        connection.sendall(json.dumps(notice).encode() + b"\n")


class Hub:
    """The thread in rank 0 that passes notices on.

    Args:
        world_size: The number of ranks.
        secret: What a connection must say first, so that no stranger takes part.
        host: The address to listen at; "" for all of the machine's.

    Attributes:
        port: The port it listens at.
    """

    def __init__(self, world_size: int, secret: str, host: str = ""):
        self._world_size = world_size
        self._secret = secret
        self._listener = socket.create_server((host, 0), backlog=max(16, world_size))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ranks: dict[socket.socket, int] = {}
        self._ended: set[int] = set()
        threading.Thread(target=self._run, name="weftgrad-hub", daemon=True).start()

    def close_in_child(self) -> None:
        """Close a forked child's copies of the sockets; the parent's stay open."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._receive(key.data)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.settimeout(5.0)  # a rank that is stopped must not stop the hub
            self._selector.register(connection, selectors.EVENT_READ, _LineReader(connection))

    def _receive(self, reader: _LineReader) -> None:
        connection = reader.connection
        notices = reader.read()
        if notices is None:
            self._selector.unregister(connection)
            connection.close()
            rank = self._ranks.pop(connection, None)
            if rank is not None and rank not in self._ended:
                self._pass_on({"kind": "lost", "rank": rank}, rank)
            return
        for notice in notices:
            if connection not in self._ranks:
                if notice.get("secret") != self._secret:
                    self._selector.unregister(connection)
                    connection.close()
                    return
                self._ranks[connection] = int(notice["rank"])
                continue
            rank = self._ranks[connection]
            if notice.get("kind") == "ended":
                self._ended.add(rank)
            self._pass_on({**notice, "rank": rank}, rank)

    def _pass_on(self, notice: dict[str, Any], sender: int) -> None:
        for connection, rank in list(self._ranks.items()):
            if rank != sender:
                _send(connection, notice)


class Watcher:
    """The thread of a rank that reads the notices of others.

    Args:
        rank: This process's rank.
        addresses: Host names or addresses of the hub's machine, of which one must answer.
        port: The hub's port.
        secret: The world's secret.
        report: Returns what this rank does, in words.
        on_failure: Called in the watcher's thread at each failure of another rank, with the rank and what happened in
            words.

    Attributes:
        failures: What the failed ranks have reported, by rank.
        ended: The ranks that have ended their program, and when that became known (`time.monotonic`).

    Raises:
        DistNetworkError: No address answers.
    """

    def __init__(
        self,
        rank: int,
        addresses: list[str],
        port: int,
        secret: str,
        report: Callable[[], str],
        on_failure: Callable[[int, str], None],
    ):
        self.failures: dict[int, str] = {}
        self.ended: dict[int, float] = {}
        self._states: dict[int, str] = {}
        self._report = report
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._connection = _connect(addresses, port)
        self.send({"kind": "hello", "rank": rank, "secret": secret})
        threading.Thread(target=self._run, name="weftgrad-watcher", daemon=True).start()

    def send(self, notice: dict[str, Any]) -> None:
        """Send a notice to all other ranks."""
        with self._lock:
            _send(self._connection, notice)

    def close_in_child(self) -> None:
        """Close a forked child's copy of the connection; the parent's stays open."""
        self._connection.close()

    def announce_failure(self, text: str) -> None:
        """Tell all other ranks that this one has failed."""
        self.send({"kind": "failed", "text": text})

    def announce_end(self) -> None:
        """Tell all other ranks that this one has ended without an error."""
        self.send({"kind": "ended"})

    def ask_states(self, ranks: list[int], seconds: float) -> dict[int, str]:
        """Return what other ranks report that they do; ranks that do not answer within `seconds` are missing."""
        with self._changed:
            self._states.clear()
        self.send({"kind": "ask"})
        missing = set(ranks)
        deadline = time.monotonic() + seconds
        with self._changed:
            while missing := missing - self._states.keys() - self.failures.keys() - self.ended.keys():
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            return {rank: text for rank, text in self._states.items() if rank in ranks}

    def wait_until_ended(self, ranks: set[int], seconds: float) -> bool:
        """Wait until each of `ranks` has ended or failed. Return False if that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while ranks - self.ended.keys() - self.failures.keys():
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                self._changed.wait(min(remaining, 60.0))
            return True

    def _run(self) -> None:
        reader = _LineReader(self._connection)
        while (notices := reader.read()) is not None:
            for notice in notices:
                self._handle(notice)
        if 0 not in self.ended:
            self._add_failure(0, "was killed or its machine is unreachable (its control connection closed)")

    def _handle(self, notice: dict[str, Any]) -> None:
        kind, rank = notice.get("kind"), int(notice.get("rank", -1))
        if kind == "ask":
            self.send({"kind": "state", "text": self._report()})
        elif kind == "failed":
            self._add_failure(rank, f"failed: {notice['text']}")
        elif kind == "lost":
            self._add_failure(rank, "was killed or its machine is unreachable (its control connection closed)")
        else:
            with self._changed:
                if kind == "ended":
                    self.ended[rank] = time.monotonic()
                elif kind == "state":
                    self._states[rank] = str(notice["text"])
                self._changed.notify_all()

    def _add_failure(self, rank: int, text: str) -> None:
        with self._changed:
            is_new = rank not in self.failures
            self.failures.setdefault(rank, text)
            self._changed.notify_all()
        if is_new:
            self._on_failure(rank, text)


def _connect(addresses: list[str], port: int) -> socket.socket:
    deadline = time.monotonic() + _CONNECT_SECONDS
    errors = []
    while True:
        for address in addresses:
            try:
                connection = socket.create_connection((address, port), timeout=5.0)
            except OSError as error:
                errors.append(f"{address}: {error.strerror or error}")
                continue
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        if time.monotonic() > deadline:
            raise DistNetworkError(
                f"init_process_group: rank 0 does not answer at port {port} ({'; '.join(errors[-len(addresses) :])}); "
                "set MASTER_ADDR to an address of rank 0's machine that every machine reaches"
            )
        time.sleep(0.2)
