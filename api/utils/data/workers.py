"""The loader's side of its worker processes: start them, send tasks, receive batches, and end them.

The module `worker` is the code of the processes. Each worker has its own channel. Processes share no lock or queue, so
nothing blocks if a worker dies: the loader waits for all channels and all processes at once, and notices immediately.

A forked worker inherits the data set, so that scripts without `if __name__ == "__main__":`, notebooks and lambdas work
as in PyTorch. The libraries of OpenCL and CUDA do not survive a fork. Once one is loaded, workers are started by
`forkserver`: they import the main module, and receive the data set pickled.

A batch arrives in a slot, a segment of shared memory that the worker writes and the loader maps. The tensors of the
batch hold a lease on the slot. When they are deleted, the lease ends, and the next task tells the worker that the slot
is free (`packing`).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import operator
import os
import select
import signal
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import process
from multiprocessing.context import BaseContext
from time import monotonic
from typing import Literal, TypeAlias

from ...multiprocessing.spawning import process_class
from ...runtime.device import drivers_survive_fork, open_drivers
from ...runtime.dtypes import Array
from ...runtime.errors import ArgumentError, NotPicklable, WorkerError, WorkerTimeout
from ...runtime.shared import Segment
from . import worker
from ._types import Answer, Batch, BatchAnswer, Request, SampleIndex, SetupMessage, Workload
from .channel import Channel, pair
from .packing import Lease, LeaseReference, Parcel, unpack

__all__ = ["Workers", "start_context"]

_MAX_PACKET_FDS = 32  # the largest number of file descriptors in one packet
_SIGNAL_HINTS: dict[int, str] = {  # by the signal that killed a worker: text for the error message
    signal.SIGKILL: " Is the system short of memory? Use fewer workers, smaller batches or a lower prefetch_factor.",
    signal.SIGBUS: " The system had no memory for a mapped page, or a file that the worker had mapped became shorter.",
    signal.SIGSEGV: " A library that the data set uses crashed.",
}


_WorkerAnswer: TypeAlias = tuple[int, int, int, Literal["batch", "task_failed", "end"], Batch | worker.Failure]
"""Number of the worker, epoch, task, kind, and the batch or the failure; None for "end"."""


def start_context(user_context: BaseContext | None) -> BaseContext:
    """Return the multiprocessing context for workers.

    Args:
        user_context: What the user chose. None: `fork` on Linux as long as no library has been loaded that does not
            survive it, else `forkserver`.

    Raises:
        ArgumentError: `user_context` forks, and the library of OpenCL or CUDA has been loaded.
    """
    survives_fork = drivers_survive_fork()
    if user_context is None:
        return multiprocessing.get_context("fork" if survives_fork and sys.platform == "linux" else "forkserver")
    if user_context.get_start_method() == "fork" and not survives_fork:
        raise ArgumentError(
            "DataLoader: workers cannot be started by 'fork' any more: the library of OpenCL or CUDA has been loaded, "
            "which does not survive a fork; use multiprocessing_context='forkserver' or 'spawn'"
        )
    return user_context


class _NameIgnoringInterrupt(str):
    """A process name whose unpickling makes the new process ignore Ctrl-C.

    The name is the first of our objects that a new process unpickles, before it imports the main module. That import
    may take long, and a Ctrl-C during it would make every worker print a traceback. Only the standard library is
    imported at that point, so the pickle uses nothing else. In the millisecond between the fork and the name, a Ctrl-C
    ends the process.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return operator.getitem, ((str(self), _IgnoreInterrupt()), 0)


class _IgnoreInterrupt:
    def __reduce__(self) -> tuple[object, ...]:
        return signal.signal, (signal.SIGINT, signal.SIG_IGN)


class _DeferredParcel:
    """A workload with locks or queues of multiprocessing, which can be pickled only while a process is started.

    It is an argument of the process. When `multiprocessing` pickles the arguments, this object pickles the workload.
    """

    def __init__(self, workload: Workload):
        self._workload = workload
        self.parcel: Parcel | None = None

    def __reduce__(self) -> tuple[object, ...]:
        self.parcel = Parcel(self._workload)
        return _PickledParcel, (self.parcel.data,)


class _PickledParcel:
    """What a worker receives for a `_DeferredParcel`: the pickle of the workload."""

    def __init__(self, data: bytes):
        self.data = data


class _Worker:
    """One worker process and its end of the channel."""

    def __init__(
        self,
        context: BaseContext,
        arguments: tuple[int, int, int],
        workload: Workload,
        parcel: Parcel | None,
        max_free_slots: int,
    ):
        """Start the worker.

        Args:
            context: The multiprocessing context.
            arguments: The worker's number, the number of workers and the base seed.
            workload: The data set, functions and options.
            parcel: The pickled workload; None if the process inherits it or pickles it when it is started.
            max_free_slots: The maximum number of free slots that the worker keeps.
        """
        self.channel: Channel[Request, Answer]
        self.channel, worker_end = pair()
        self._leases: set[LeaseReference] = set()
        self._ended_leases: deque[LeaseReference] = deque()
        self.slots: dict[int, Array] = {}  # the memory of each slot, by its number
        is_forked = context.get_start_method() == "fork"
        deferred = _DeferredParcel(workload) if parcel is None and not is_forked else None
        self.number = arguments[0]
        name = _NameIgnoringInterrupt(f"DataLoader-worker-{self.number}")
        self.process = process_class(context)(
            target=worker.run,
            args=(worker_end, *arguments, deferred, workload if is_forked else None),
            name=name,
            daemon=True,
        )
        with worker_end, warnings.catch_warnings():
            # Python warns if the process has any threads. `start_context` forks only if all open drivers survive it.
            warnings.filterwarnings("ignore", "This process .*multi-threaded", DeprecationWarning)
            self.process.start()
        assert self.process.pid is not None  # because it was started
        self.pid = self.process.pid
        self.process.name = str(name)
        if is_forked:
            self._send_setup(("setup", b"", None, [], [], max_free_slots), [])
        else:
            shared_parcel = parcel if deferred is None else deferred.parcel
            assert shared_parcel is not None
            self._send_parcel(shared_parcel, max_free_slots)

    def _send_parcel(self, parcel: Parcel, max_free_slots: int) -> None:
        """Send the pickled workload, and the descriptors of its segments of shared memory in their numbers' order."""
        segments = [segment for _, segment in sorted(parcel.segments.values(), key=lambda item: item[0])]
        fds = ([parcel.memory.fd] if parcel.memory is not None else []) + [segment.fd for segment in segments]
        memory_nbytes = parcel.memory.nbytes if parcel.memory is not None else None
        segment_sizes = [segment.nbytes for segment in segments]
        self._send_setup(
            ("setup", parcel.data, memory_nbytes, parcel.places, segment_sizes, max_free_slots),
            fds,
        )

    def _send_setup(self, message: SetupMessage, fds: list[int]) -> None:
        """Send the first message, and file descriptors, which do not fit into one packet if they are many."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the worker died; `answers` raises the error
            self.channel.send(message, fds[:_MAX_PACKET_FDS])
            for start in range(_MAX_PACKET_FDS, len(fds), _MAX_PACKET_FDS):
                self.channel.send(("descriptors",), fds[start : start + _MAX_PACKET_FDS])

    def unpack_batch(self, message: BatchAnswer, fds: list[int]) -> Batch:
        """Return the batch of a message. Its tensors use the memory of the slot, and hold a lease on it."""
        _, _, _, data, slot, size, places, dropped = message
        for old_slot in dropped:
            self.slots.pop(old_slot, None)
        if slot is None:
            return unpack(data, [])
        if fds:
            segment = Segment.from_fd(fds.pop(), size)
            segment.forget()
            self.slots[slot] = segment.array
        lease = Lease(self.slots[slot])
        reference = LeaseReference(lease, self._ended_leases.append)
        reference.slot = slot
        self._leases.add(reference)
        memory = lease.array()
        buffers = [memory[offset : offset + nbytes] for offset, nbytes in places]
        pickle = data or buffers.pop().data  # a large pickle is in the slot, as the last buffer
        return unpack(pickle, buffers)

    def take_free_slots(self) -> list[int]:
        """Return the slots that have become free since the last call, because their batches were deleted."""
        free_slots = []
        while self._ended_leases:
            reference = self._ended_leases.popleft()
            self._leases.discard(reference)
            free_slots.append(reference.slot)
        return free_slots

    def exit_error(self, situation: str) -> WorkerError:
        """Return the error for a worker whose process has ended. situation: when it ended, for the message."""
        self.process.join(5)
        code = self.process.exitcode
        worker_name = f"DataLoader worker {self.number} (pid {self.pid})"
        if code is not None and code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = "signal"
            return WorkerError(
                f"{worker_name} was killed by {name} (signal {-code}) {situation}.{_SIGNAL_HINTS.get(-code, '')}"
            )
        return WorkerError(
            f"{worker_name} ended with exit code {code} {situation}; see what it printed. Does the data set "
            'exit the process, or does the main module start work outside of `if __name__ == "__main__":`?'
        )


def _end_workers(workers: list[_Worker], pid: int, grace: float) -> None:
    """End workers: close their channels, wait `grace` seconds, then terminate and kill those that are alive.

    Args:
        workers: The workers.
        pid: Process that started them.
        grace: Seconds.
    """
    if os.getpid() != pid:  # a forked copy of the loader must not end them
        return
    for child in workers:
        child.channel.close()
    deadline = monotonic() + grace
    for child in workers:
        child.process.join(max(0.0, deadline - monotonic()))
    alive = [child.process for child in workers if child.process.is_alive()]
    for method in ("terminate", "kill"):
        for survivor in alive:
            getattr(survivor, method)()
        deadline = monotonic() + 1.0
        for survivor in alive:
            survivor.join(max(0.0, deadline - monotonic()))
        alive = [survivor for survivor in alive if survivor.is_alive()]


class Workers:
    """The worker processes of a loader. Each batch is a numbered task, and a worker answers each task once.

    Args:
        workload: (dataset, collate_fn, worker_init_fn, options of `Recipe`).
        count: The number of workers.
        prefetch_factor: The number of pending tasks per worker.
        seed: The base seed.
        timeout: Seconds to wait for an answer; 0 is no limit.
        context: A multiprocessing context; None is the default one of `start_context`.
    """

    def __init__(
        self,
        workload: Workload,
        count: int,
        prefetch_factor: int,
        seed: int,
        timeout: float,
        context: BaseContext | None,
    ):
        if getattr(process.current_process(), "_inheriting", False):
            raise WorkerError(
                "DataLoader: a worker imports the main module, and that import would start workers again: put what the "
                'script does under `if __name__ == "__main__":`'
            )
        self.timeout = timeout
        process_context = start_context(context)
        is_forked = process_context.get_start_method() == "fork"
        if is_forked:
            for driver in open_drivers():
                driver.synchronize()  # so that the values of the data set's tensors are complete before the fork
        parcel = None if is_forked else _pickle_workload(workload)
        self._workers: list[_Worker] = []
        self._finalizer = weakref.finalize(self, _end_workers, self._workers, os.getpid(), worker.GRACE_SECONDS)
        try:
            for number in range(count):
                arguments = (number, count, seed)
                self._workers.append(_Worker(process_context, arguments, workload, parcel, prefetch_factor + 2))
        except BaseException as error:
            self.close()
            if isinstance(error, (TypeError, AttributeError, ValueError)) and parcel is None and not is_forked:
                raise _not_picklable(workload, error) from error
            raise
        self._poll = select.poll()
        self._by_fd: dict[int, _Worker] = {}
        for child in self._workers:
            for fd in (child.channel.fileno(), child.process.sentinel):
                self._poll.register(fd, select.POLLIN)
                self._by_fd[fd] = child

    def pids(self) -> list[int]:
        """Return the process ids."""
        return [child.pid for child in self._workers]

    def send_task(self, number: int, epoch: int, task: int, index: SampleIndex) -> None:
        """Request a batch from worker `number`.

        Args:
            number: The worker's number.
            epoch: The pass over the data set.
            task: Number of the batch in the epoch.
            index: What the sampler yielded for the batch.
        """
        child = self._workers[number]
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the worker died; `answers` raises the error
            child.channel.send(("task", epoch, task, index, child.take_free_slots()))

    def begin_epoch(self, epoch: int) -> None:
        """Begin another pass over the data set. Answers of earlier passes are ignored."""
        for child in self._workers:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                child.channel.send(("epoch", epoch))

    def answers(self, wait: bool, describe_wait: Callable[[], str]) -> Iterator[_WorkerAnswer]:
        """Yield the answers that have arrived, as `_WorkerAnswer` describes them.

        Before any error is raised, all workers are ended. Errors include an exception from a worker's setup, which is
        raised as its own class.

        Args:
            wait: Wait for at least one answer.
            describe_wait: Returns a description of the pending batch, for the timeout message.

        Raises:
            WorkerError: A worker has ended.
            WorkerTimeout: No answer arrived within the timeout.
        """
        deadline = monotonic() + self.timeout if self.timeout > 0 else None
        while True:
            timeout_ms = 0 if not wait else -1 if deadline is None else max(0, int((deadline - monotonic()) * 1000) + 1)
            ready = self._poll.poll(timeout_ms)
            if not ready:
                if not wait:
                    return
                if deadline is None or monotonic() < deadline:
                    continue
                description = describe_wait()
                self.close(0.0)
                raise WorkerTimeout(
                    f"DataLoader timed out after {self.timeout:g} seconds: {description}. Does the data set hang? "
                    "Raise timeout= if batches may take that long; workers were ended"
                )
            dead_worker = None
            for child in dict.fromkeys(self._by_fd[fd] for fd, _ in ready):
                try:
                    answer = self._answer(child)
                except (EOFError, BlockingIOError):
                    dead_worker = dead_worker or child
                    continue
                wait = False
                yield answer
            if dead_worker is not None:
                error = dead_worker.exit_error("before its work was done")
                self.close(0.0)
                raise error

    def _answer(self, child: _Worker) -> _WorkerAnswer:
        """Return the next answer of a worker whose channel or process is ready.

        Raises:
            EOFError, BlockingIOError: The process has ended.
            Exception: The worker failed outside of a task, for example in its setup. All workers have been ended.
        """
        message, fds = child.channel.receive(wait=False)
        if message[0] == "worker_failed":
            self.close()
            message[1].reraise()
        if message[0] == "batch":
            return child.number, message[1], message[2], "batch", child.unpack_batch(message, fds)
        if message[0] == "task_failed":
            return child.number, message[1], message[2], "task_failed", message[3]
        return child.number, message[1], message[2], "end", None

    def close(self, grace: float | None = None) -> None:
        """End all workers, and allow them `grace` seconds (default: `worker.GRACE_SECONDS`)."""
        if self._finalizer.alive:
            self._finalizer.detach()
            _end_workers(self._workers, os.getpid(), worker.GRACE_SECONDS if grace is None else grace)


def _pickle_workload(workload: Workload) -> Parcel | None:
    """Return the pickled workload for all workers; None if it can be pickled only while a process is started."""
    try:
        return Parcel(workload)
    except RuntimeError as error:
        if "inheritance" in str(error) or "spawning" in str(error):  # locks and queues of multiprocessing
            return None
        raise
    except Exception as error:
        raise _not_picklable(workload, error) from error


def _not_picklable(workload: Workload, error: Exception) -> NotPicklable:
    """Return the exception for a workload that cannot be pickled; it names the part that is to blame."""
    parts = dict(zip(("dataset", "collate_fn", "worker_init_fn"), workload, strict=False))
    culprit = "what the loader uses"
    for name, part in parts.items():
        try:
            Parcel(part)
        except Exception:
            culprit = f"{name} ({type(part).__name__})"
            break
    return NotPicklable(
        f"DataLoader: {culprit} cannot be sent to worker processes: {error}. Workers are new processes, and are sent "
        "the data set, collate_fn and worker_init_fn pickled: define classes and functions at the top level of a "
        "module (no lambdas, nothing inside a function), open files in worker_init_fn or when first used, or set "
        "num_workers=0"
    )
