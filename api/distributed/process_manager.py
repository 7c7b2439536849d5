"""A process manager for ranks that no MPI launcher has started: the part of it that MPI needs to connect them.

`torchrun`, and schedulers with the same variables, start processes and set `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and
`MASTER_PORT`. Slurm's `srun --mpi=none` sets variables of its own in place of the first two. MPI asks its process
manager for its rank, and exchanges addresses through the manager's table of keys and values. MPICH and the libraries
that come from it do so in lines of text over a socket: the Process Management Interface, version 1 (RFC 13 of the Flux
project describes the lines). `join_by_environment` starts a server of this
table beside rank 0, connects every rank to it, and names the socket in `PMI_FD`, where MPI looks for it. From then on
MPI works as under its own launcher.

The server is a program of its own, which runs this file: MPI starts with the interpreter's lock held, so no thread of
rank 0 could answer. It imports nothing of the package. It ends when the last rank has disconnected, and at the latest
`_SECONDS_AFTER_RANK_0` after rank 0.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping

__all__ = ["find_meeting_point", "has_launcher", "join_by_environment"]

_LAUNCHER_VARIABLES = (
    "PMI_FD", "PMI_PORT", "PMI_RANK", "PMI2_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS",
)  # fmt: skip
_HELLO = "weftgrad-rank"
_MAX_LINE = 1 << 16
_BIND_SECONDS = 10.0  # after a restart, the last run's server may still have the port
_SECONDS_AFTER_RANK_0 = 30.0

_servers: list[subprocess.Popen[bytes]] = []
"""The server of rank 0. It ends when its standard input does, so this process must hold that open."""


def has_launcher(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether a launcher of MPI has started this process, so that MPI knows its rank.

    Args:
        environment: The variables; None: those of this process.

    Example:
        >>> from weftgrad.distributed.process_manager import has_launcher
        >>> has_launcher({'PMI_RANK': '0'})
        True
    """
    variables = os.environ if environment is None else environment
    return any(name in variables for name in _LAUNCHER_VARIABLES)


def find_meeting_point(environment: Mapping[str, str] | None = None) -> tuple[str, int] | None:
    """Return address and port at which the ranks of a job meet; None if there is one rank, or an MPI launcher.

    `RANK` and `WORLD_SIZE`, or Slurm's `SLURM_PROCID` and `SLURM_NTASKS`, tell how many ranks there are. The address
    is `MASTER_ADDR`. The port is `WEFTGRAD_MASTER_PORT` or `MASTER_PORT`. Where `torchrun`'s agent listens at
    `MASTER_PORT`, which `TORCHELASTIC_USE_AGENT_STORE` tells, it is the next port.

    Args:
        environment: The variables; None: those of this process.

    Returns:
        (address, port), or None.

    Example:
        >>> from weftgrad.distributed.process_manager import find_meeting_point
        >>> find_meeting_point({'RANK': '0', 'WORLD_SIZE': '2', 'MASTER_ADDR': 'node1', 'MASTER_PORT': '29500'})
        ('node1', 29500)
    """
    variables = os.environ if environment is None else environment
    if has_launcher(variables):
        return None
    try:
        rank, size = _read_rank(variables)
        if size < 2 or rank < 0:
            return None
        address, port = variables["MASTER_ADDR"], int(variables["MASTER_PORT"])
        if "WEFTGRAD_MASTER_PORT" in variables:
            port = int(variables["WEFTGRAD_MASTER_PORT"])
        elif variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            port += 1
    except (KeyError, ValueError):
        return None
    return address, port


def _read_rank(variables: Mapping[str, str]) -> tuple[int, int]:
    """Return rank and number of ranks by torchrun's variables, or else by Slurm's. Raise `KeyError` without them."""
    if "RANK" in variables:
        return int(variables["RANK"]), int(variables["WORLD_SIZE"])
    return int(variables["SLURM_PROCID"]), int(variables["SLURM_NTASKS"])


def join_by_environment(seconds: float) -> dict[str, str]:
    """Connect this process to the server of its job, and return the variables by which MPI finds it.

    They must be in the environment while MPI starts, and not afterwards: child processes would take them for theirs.

    Args:
        seconds: How long to wait for the other ranks.

    Returns:
        `PMI_FD`, `PMI_RANK` and `PMI_SIZE`; empty without a meeting point.

    Raises:
        ConnectionError: Rank 0 does not answer, or another rank has not come.
    """
    meeting_point = find_meeting_point()
    if meeting_point is None:
        return {}
    address, port = meeting_point
    rank, size = _read_rank(os.environ)
    job = os.environ.get("TORCHELASTIC_RUN_ID", os.environ.get("SLURM_JOB_ID", ""))
    run_id = f"{job}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '')}"
    if rank == 0:
        _servers.append(_start_server(port, size, run_id, min(seconds, _BIND_SECONDS)))
    connection = _connect(address, port, seconds)
    connection.settimeout(seconds)
    try:
        connection.sendall(f"{_HELLO} {size} {rank} {run_id}\n".encode())
        answer = connection.recv(1)  # comes when all ranks are there: MPI's own start has no timeout
    except TimeoutError as error:
        raise ConnectionError(f"not all {size} ranks have come to {address}:{port} within {seconds:g} s") from error
    if answer != b"+":
        raise ConnectionError(
            f"{address}:{port} has closed the connection: another rank has ended, or what listens there is not rank 0 "
            f"of this job of {size} ranks; in the second case name a free port by WEFTGRAD_MASTER_PORT"
        )
    connection.settimeout(None)
    return {"PMI_FD": str(connection.detach()), "PMI_RANK": str(rank), "PMI_SIZE": str(size)}


def _start_server(port: int, size: int, run_id: str, seconds: float) -> subprocess.Popen[bytes]:
    """Start the server, and return when it listens."""
    server = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(port), str(size), run_id, str(seconds)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert server.stdout is not None
    answer = server.stdout.readline().decode().strip()
    if answer != "listening":
        raise ConnectionError(f"port {port} of rank 0's machine: {answer}; name a free port by WEFTGRAD_MASTER_PORT")
    return server


def _connect(address: str, port: int, seconds: float) -> socket.socket:
    """Connect to the server, which may not have started yet. Raise `ConnectionError` after some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection = socket.create_connection((address, port), timeout=max(1.0, seconds))
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConnectionError(
                    f"rank 0 does not answer at {address}:{port} (MASTER_ADDR and MASTER_PORT) within {seconds:g} s: "
                    f"{error.strerror or error}"
                ) from error
            time.sleep(0.1)
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


class _Server:
    """The table of keys and values, and the ranks' connections.

    If a rank disconnects before MPI's end, the server also disconnects the ranks that wait in a barrier, because they
    would wait for ever.
    """

    def __init__(self, port: int, size: int, run_id: str, seconds: float):
        self._size, self._run_id = size, run_id
        self._name = f"weftgrad_{os.urandom(8).hex()}"  # MPICH names shared memory after it
        self._values: dict[str, str] = {}
        self._unread: dict[socket.socket, bytes] = {}  # the beginning of a line, for each connection
        self._ranks: dict[socket.socket, int] = {}
        self._are_all_here = False
        self._in_barrier: set[socket.socket] = set()
        self._finalized: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()
        self._listener = _listen(port, seconds)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)

    def serve(self) -> None:
        """Answer until all ranks have disconnected."""
        deadline = float("inf")
        while (self._ranks or not self._are_all_here) and time.monotonic() < deadline:
            for key, _ in self._selector.select(1.0):
                if key.fileobj is sys.stdin:  # rank 0 has ended; the others may be about to
                    self._selector.unregister(sys.stdin)
                    deadline = time.monotonic() + (_SECONDS_AFTER_RANK_0 if self._are_all_here else 0.0)
                elif key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._receive(key.fileobj)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> None:
        if connection not in self._unread:
            return  # dropped since the selector has named it
        try:
            chunk = connection.recv(65536)
        except OSError:
            chunk = b""
        *lines, rest = (self._unread[connection] + chunk).split(b"\n")
        self._unread[connection] = rest
        if not chunk or len(rest) > _MAX_LINE:
            self._drop(connection)
            return
        for line in lines:
            text = line.decode(errors="replace")
            if connection in self._ranks:
                self._answer(connection, text)
            elif not self._admit(connection, text):
                self._drop(connection)
                return

    def _drop(self, connection: socket.socket) -> None:
        """Close a connection. If it is a rank's before MPI's end, also close those of the ranks that wait for it."""
        if self._unread.pop(connection, None) is None:
            return
        self._selector.unregister(connection)
        connection.close()
        self._in_barrier.discard(connection)
        if self._ranks.pop(connection, None) is not None and connection not in self._finalized:
            for waiting in list(self._in_barrier if self._are_all_here else self._ranks):
                self._drop(waiting)

    def _admit(self, connection: socket.socket, line: str) -> bool:
        """Return whether a connection's first line is that of a rank of this job that is not here yet."""
        name, _, rest = line.partition(" ")
        size, _, rest = rest.partition(" ")
        rank, _, run_id = rest.partition(" ")
        if (name, size, run_id) != (_HELLO, str(self._size), self._run_id) or not rank.isdigit():
            return False
        if int(rank) >= self._size or int(rank) in self._ranks.values():
            return False
        self._ranks[connection] = int(rank)
        if len(self._ranks) == self._size:
            self._are_all_here = True
            for member in list(self._ranks):
                _send(member, "+")
        return True

    def _answer(self, connection: socket.socket, line: str) -> None:
        """Answer a line of words `name=value`, of which the first is the command. A value may contain spaces."""
        head, has_value, value = line.partition(" value=")
        words = dict(word.partition("=")[::2] for word in head.split())
        command = words.get("cmd", "")
        if command == "barrier_in":
            self._in_barrier.add(connection)
            if len(self._in_barrier) == self._size:
                for member in self._in_barrier:
                    _send(member, "cmd=barrier_out rc=0\n")
                self._in_barrier.clear()
            return
        if command == "finalize":
            self._finalized.add(connection)
        if command == "put" and has_value:
            self._values[words.get("key", "")] = value.rstrip()
            answer = "cmd=put_result rc=0 msg=success"
        elif command == "get":
            stored = self._values.get(words.get("key", ""))
            answer = "cmd=get_result rc=-1 msg=key_not_found value=unknown"
            if stored is not None:
                answer = f"cmd=get_result rc=0 msg=success value={stored}"
        else:
            answer = {
                "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
                "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=256 vallen_max=1024 rc=0",
                "get_appnum": "cmd=appnum appnum=0 rc=0",
                "get_my_kvsname": f"cmd=my_kvsname kvsname={self._name} rc=0",
                "get_universe_size": f"cmd=universe_size size={self._size} rc=0",
                "finalize": "cmd=finalize_ack rc=0",
            }.get(command, "")
        if answer:
            _send(connection, answer + "\n")


def _send(connection: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):  # the rank has died: its connection says so
        connection.sendall(text.encode())


def _listen(port: int, seconds: float) -> socket.socket:
    """Listen at a port of all addresses. Raise `OSError` if it is not free within some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
            return socket.create_server(("", port), backlog=128)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _main() -> None:
    port, size, run_id, seconds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    try:
        server = _Server(port, size, run_id, seconds)
    except OSError as error:
        print(error.strerror or error, flush=True)
        return
    print("listening", flush=True)
    server.serve()


if __name__ == "__main__":
    _main()
