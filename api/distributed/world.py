"""The MPI world of this process: its start, its end, and how failures of other ranks reach it.

MPI is started by `mpi4py` at the first `init_process_group`, with the thread level `MPI_THREAD_MULTIPLE`: the program's
threads and the progress thread (`works`) may call it at the same time. If MPI grants less, one lock covers all calls.

How a program ends, so that nobody waits for a rank that is gone:

- Without an error, each rank tells the others so, waits until all have, and calls `MPI_Finalize`.
- With an error, a rank tells the others its error, and waits up to `_GRACE_SECONDS` until they have ended with errors
  of their own. If some have not, it calls `MPI_Abort`, by which the launcher kills ranks that are stopped or busy.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from .errors import CollectiveTimeout, DistBackendError, DistNetworkError, RankFailure
from .headers import describe
from .launchers import Place, read_environment
from .process_manager import join_by_environment
from .watching import Hub, Watcher

if TYPE_CHECKING:
    from .exchanges import DirectMessages, Exchange
    from .works import Work

__all__ = ["World", "current_world", "start_world", "timeout_error"]

_GRACE_SECONDS = 5.0
_MEETING_SECONDS = 30.0
_PROGRESS_SECONDS = 0.01
_SECONDS_OF_OUTPUT = 1.0  # for what other ranks still print
_INSTALL = "pip install 'weftgrad[distributed]', or mpi4py and an MPI library (MPICH, Open MPI)"


class World:
    """All processes of a job, and the connection to them.

    Attributes:
        mpi: The module `mpi4py.MPI`.
        comm: A duplicate of `MPI_COMM_WORLD`.
        rank: This process's rank.
        size: The number of ranks.
        has_thread_safe_mpi: Whether MPI has granted `MPI_THREAD_MULTIPLE`.
        failure: The first failure of another rank that this process has learnt of, in words; None if there is none.
        failed_rank: The rank that failed.
        lock: Held while requests are tested and works are moved on.
        failure_hooks: Called when a rank has failed.
        end_hooks: Called before MPI ends.
        last_call: The last call, for messages to other ranks.
        is_ending: MPI is about to end: the progress thread calls it no more.
    """

    def __init__(self, timeout: float):
        self.mpi = _import_mpi(timeout)
        self.has_thread_safe_mpi = self.mpi.Query_thread() == self.mpi.THREAD_MULTIPLE
        self.place: Place = read_environment()
        self.lock = threading.RLock()
        self.failure: str | None = None
        self.failed_rank = -1
        self.last_call: DirectMessages | Exchange | _LastWork | None = None
        self.failure_hooks: list[Callable[[], None]] = []
        self.end_hooks: list[Callable[[], None]] = []
        self.is_ending = False
        self._guarded: str | None = None
        self._has_raised = False
        self._hub: Hub | None = None
        _check_size(self.mpi.COMM_WORLD.size, self.place)
        _ignore_cleanup_signal()
        with _start_limit(timeout, self.mpi):
            self.comm = self.mpi.COMM_WORLD.Dup()
            self.rank: int = self.comm.rank
            self.size: int = self.comm.size
            self.watcher = self._connect() if self.size > 1 else None
            self.comm.Barrier()
            _unlink_shared_memory()
        self._previous_hook = sys.excepthook
        sys.excepthook = self._on_uncaught
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._leave_in_child)

    def _connect(self) -> Watcher:
        on_one_machine = self.comm.Split_type(self.mpi.COMM_TYPE_SHARED)
        is_local = on_one_machine.size == self.size
        on_one_machine.Free()
        contact = None
        if self.rank == 0:
            secret = secrets.token_hex(16)
            hub = self._hub = Hub(self.size, secret, "127.0.0.1" if is_local else "")
            contact = (["127.0.0.1"] if is_local else _own_addresses(), hub.port, secret)
        addresses, port, secret = self.comm.bcast(contact)
        return Watcher(self.rank, addresses, port, secret, self._report, self._on_failure)

    def set_last_work(self, work: Work, header: bytes) -> None:
        """Remember a work as the last call. The work, and its tensors, may go before the next."""
        self.last_call = _LastWork(weakref.ref(work), header)

    def _describe_activity(self) -> str:
        last_call = self.last_call
        if last_call is None:
            return "has not called a collective yet"
        call = describe(last_call.header)
        if last_call.is_finished:
            return f"has completed {call} and called none since"
        return f"waits in {call}"

    def _report(self) -> str:
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        location = f"; its main thread is in {_location_of(frame)}" if frame is not None else ""
        return self._describe_activity() + location

    def _on_failure(self, rank: int, text: str) -> None:
        if self.failure is None:
            self.failed_rank = rank
            self.failure = f"rank {rank} {text}"
            self._run_hooks()
        guarded = self._guarded
        if guarded is not None:  # the main thread is in MPI, where no exception can reach it
            self._abort(f"{guarded}: {self.failure}")

    def _run_hooks(self) -> None:
        for hook in self.failure_hooks:
            hook()

    def raise_failure(self, call: str) -> None:
        """Raise `RankFailure` for a call that cannot complete, since another rank has failed."""
        raise RankFailure(f"{call}: {self.failure}")

    def fail(self, text: str) -> None:
        """Tell the other ranks that this one has failed. Later collectives raise here, too."""
        if self.failure is None:
            self.failure, self.failed_rank = f"rank {self.rank} failed: {text}", self.rank
            self._run_hooks()
        if self.watcher is not None:
            self.watcher.announce_failure(text)

    def explain_absence(self, ranks: list[int], call: str) -> str:
        """Return what ranks do, in words, after a call has timed out: which have not called it, or do not answer."""
        if self.watcher is None:
            return ""
        others = [rank for rank in ranks if rank != self.rank]
        states = self.watcher.ask_states(others, 1.0)
        parts = []
        for rank in others:
            if rank in self.watcher.failures:
                parts.append(f"rank {rank} {self.watcher.failures[rank]}")
            elif rank in self.watcher.ended:
                parts.append(f"rank {rank} has ended its program")
            elif rank not in states:
                parts.append(f"rank {rank} does not answer: it is stopped, or its machine is unreachable")
            elif not states[rank].startswith(f"waits in {call}"):
                parts.append(f"rank {rank} {states[rank]}")
        return "; ".join(parts) or "all other ranks wait in it, too: the connection between them is slow or broken"

    @contextlib.contextmanager
    def guard(self, call: str, timeout: float) -> Iterator[None]:
        """Let MPI block in the body. If a rank fails meanwhile, or time runs out, print why and abort the job."""
        if self.failure is not None:
            self.raise_failure(call)
        timer = threading.Timer(timeout, self._abort, (f"{call}: not completed within {timeout:g} s",))
        timer.daemon = True
        timer.start()
        self._guarded = call
        try:
            yield
        finally:
            self._guarded = None
            timer.cancel()

    def _abort(self, text: str) -> None:
        print(f"weftgrad: rank {self.rank}: {text}", file=sys.stderr, flush=True)
        if self.watcher is not None:
            self.watcher.announce_failure(text)
            self.watcher.wait_until_ended(set(range(self.size)) - {self.rank}, _GRACE_SECONDS)
        self.mpi.COMM_WORLD.Abort(1)

    def _on_uncaught(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:  # sys.excepthook
        self._previous_hook(kind, error, trace)
        self._has_raised = True
        if self.watcher is not None:
            summary = "".join(traceback.format_exception_only(kind, error)).strip()
            self.watcher.announce_failure(summary)

    def _meet(self) -> bool:
        """Wait until all ranks know that all have ended. Return False if one fails first, or after `_MEETING_SECONDS`.

        `MPI.Finalize` holds the interpreter's lock and waits for the other ranks; from then on the hub's thread in rank
        0 passes on nothing.
        """
        assert self.watcher is not None
        request = self.comm.Ibarrier()
        deadline = time.monotonic() + _MEETING_SECONDS
        while not request.Test():
            if self.watcher.failures or time.monotonic() > deadline:
                return False
            time.sleep(1e-3)
        return True

    def _end(self) -> None:
        """End MPI when the program ends."""
        sys.stdout.flush()
        sys.stderr.flush()
        if self.watcher is None:
            if not self.mpi.Is_finalized():
                self._finalize()
            return
        others = set(range(self.size)) - {self.rank}
        if not self._has_raised and self.failure is None:
            self.watcher.announce_end()
            while not self.watcher.wait_until_ended(others, _PROGRESS_SECONDS):
                self.comm.Iprobe()  # MPI sends what it has buffered for others only inside of its functions
            if not self.watcher.failures and self._meet():
                self._finalize()
                return
        are_all_done = self.watcher.wait_until_ended(others, _GRACE_SECONDS)
        if not self._has_raised:
            # A rank or a collective has failed, although no error has ended this program. MPI cannot be finalized, so
            # let the others print, then abort the job.
            time.sleep(_SECONDS_OF_OUTPUT)
        if not are_all_done or not self._has_raised:
            sys.stderr.flush()
            self.mpi.COMM_WORLD.Abort(1)

    def _finalize(self) -> None:
        with self.lock:  # the progress thread tests works under it
            self.is_ending = True
            for hook in self.end_hooks:
                hook()
        self.mpi.Finalize()

    def _leave_in_child(self) -> None:
        """Leave the world to the parent, in a process that it has forked: the child must not keep its sockets open."""
        atexit.unregister(self._end)
        if sys.excepthook == self._on_uncaught:
            sys.excepthook = self._previous_hook
        if self.watcher is not None:
            self.watcher.close_in_child()
        if self._hub is not None:
            self._hub.close_in_child()


@dataclass(frozen=True)
class _LastWork:
    """The last call, if it is a `Work`."""

    reference: weakref.ref[Work]
    header: bytes

    @property
    def is_finished(self) -> bool:
        work = self.reference()
        return work is None or work.is_finished


_world: World | None = None


def start_world(timeout: float) -> World:
    """Start MPI unless it runs, and return the world.

    Args:
        timeout: Seconds after which the job is aborted if other ranks do not start.

    Raises:
        DistBackendError: mpi4py or an MPI library is missing, or the launcher's variables promise more ranks than MPI
            has.
    """
    global _world
    if _world is None:
        _world = World(timeout)
    return _world


def current_world() -> World | None:
    """Return the world; None before `start_world`."""
    return _world


def _import_mpi(timeout: float) -> Any:
    variables: dict[str, str] = {}
    try:
        import mpi4py  # lazy: optional

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.finalize = False  # `World._end` does it, unless a rank is gone
            variables = join_by_environment(timeout)
            os.environ.update(variables)
        from mpi4py import MPI  # lazy: starts MPI
    except ConnectionError as error:
        raise DistNetworkError(f"init_process_group: {error}") from error
    except (ImportError, RuntimeError) as error:
        raise DistBackendError(f"init_process_group: MPI is not available ({error}). Install {_INSTALL}") from error
    finally:
        for name in variables:
            os.environ.pop(name, None)
    return MPI


def _check_size(size: int, place: Place) -> None:
    if place.size > 1 and size != place.size:
        raise DistBackendError(
            f"init_process_group: {place.launcher}'s variables promise {place.size} ranks, and MPI has {size}. Start "
            f"the program with `weftgrad launch -n {place.size}` or with the mpiexec of the MPI library that mpi4py "
            "uses (under Slurm: srun --mpi=pmi2 or --mpi=pmix, as that library was built). torchrun and srun --mpi=none"
            " work with MPICH and the libraries that come from it, if MASTER_ADDR and MASTER_PORT are set and MPI has "
            "not started before"
        )


def _ignore_cleanup_signal() -> None:
    """Ignore SIGUSR1, by which MPICH's launcher reports a rank's death: our notices tell more."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _unlink_shared_memory() -> None:
    """Remove the name of the memory that MPICH shares between the ranks of a machine, once all of them have mapped it.

    MPICH removes it at its end, which a job does not reach if a rank is killed: some MB would stay in /dev/shm.
    """
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:  # not Linux; another rank
        for path in {line.split()[-1] for line in maps if "/dev/shm/mpich_shm_" in line}:
            os.unlink(path)


@contextlib.contextmanager
def _start_limit(timeout: float, mpi: Any) -> Iterator[None]:
    def give_up() -> None:
        print(
            f"weftgrad: rank {mpi.COMM_WORLD.rank}: init_process_group: not all {mpi.COMM_WORLD.size} ranks have "
            f"called it within {timeout:g} s",
            file=sys.stderr,
            flush=True,
        )
        mpi.COMM_WORLD.Abort(1)

    timer = threading.Timer(timeout, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _own_addresses() -> list[str]:
    """Return the names and addresses at which other machines may reach this one, the likeliest first."""
    named = os.environ.get("MASTER_ADDR")
    hostname = socket.gethostname()
    addresses = [hostname]
    with contextlib.suppress(OSError):
        addresses += [str(entry[4][0]) for entry in socket.getaddrinfo(hostname, None, proto=socket.IPPROTO_TCP)]
    return list(dict.fromkeys(([named] if named else []) + addresses))


def _location_of(frame: FrameType) -> str:
    """Return file, line and function of the innermost frame outside of this package."""
    package = os.path.dirname(os.path.dirname(__file__))
    current: FrameType | None = frame
    while current is not None and current.f_code.co_filename.startswith(package):
        current = current.f_back
    if current is None:
        current = frame
    return f"{current.f_code.co_filename}:{current.f_lineno} ({current.f_code.co_name})"


def timeout_error(call: str, seconds: float, explanation: str) -> CollectiveTimeout:
    """Return the error of a call that has timed out."""
    return CollectiveTimeout(f"{call}: not completed within {seconds:g} s; {explanation}")
