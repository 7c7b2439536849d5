"""A loader's worker processes, seen from the loader: what is asked of them, what comes back, and how they may end.

Each worker has a channel of its own. There is no lock, queue or thread that processes share, so that nothing waits for
a worker that died: the loader waits on all channels and all processes at once, and knows at once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import operator
import os
import select
import signal
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import process
from time import monotonic
from typing import Any

import numpy as np

from ...runtime.errors import ArgumentError, NotPicklable, WorkerError, WorkerTimeout
from ...runtime.shared import Segment
from . import worker
from .channel import pair
from .packing import Lease, Parcel, unpack

__all__ = ["Workers", "start_context"]

_FDS = 32  # descriptors in one packet
_HINTS = {
    signal.SIGKILL: " Was it the system, short of memory? Use fewer workers, smaller batches, a lower prefetch_factor.",
    signal.SIGBUS: " Memory that was promised could not be had, or a file that it had mapped became shorter.",
    signal.SIGSEGV: " A library that the data set uses crashed.",
}


def start_context(given: Any) -> Any:
    """The multiprocessing context for workers: as given, else `forkserver`. Raises `ArgumentError` for `fork`."""
    context = multiprocessing.get_context("forkserver") if given is None else given
    if context.get_start_method() == "fork":
        raise ArgumentError(
            "DataLoader: workers cannot be started by 'fork': OpenCL and CUDA do not work in a forked process, and "
            "threads of theirs may hold locks; use multiprocessing_context='forkserver' (the default) or 'spawn'"
        )
    return context


class _Quiet(str):
    """A process's name that has the process ignore Ctrl-C from the moment it learns the name.

    The name is the first thing of ours that a new process unpickles, before it imports the main module, which may take
    long; a Ctrl-C meanwhile would have every worker print a traceback. Only the standard library is there by then.
    The millisecond between the fork and the name is the standard library's: a Ctrl-C ends the process there.
    """

    def __reduce__(self) -> Any:
        return operator.getitem, ((str(self), _Ignoring()), 0)


class _Ignoring:
    def __reduce__(self) -> Any:
        return signal.signal, (signal.SIGINT, signal.SIG_IGN)


class _Late:
    """What holds locks or queues of multiprocessing, which pickle only while a process is being started."""

    def __init__(self, value: Any):
        self._value = value
        self.data = b""
        self.parcel: Parcel | None = None

    def __reduce__(self) -> Any:
        self.parcel = Parcel(self._value)
        return _Packed, (self.parcel.data,)


class _Packed:
    def __init__(self, data: bytes):
        self.data = data


class _Worker:
    """One worker process and its end of the channel."""

    def __init__(self, context: Any, arguments: tuple[Any, ...], value: Any, parcel: Parcel | None, keep: int):
        self.channel, end = pair()
        self.freed: deque[int] = deque()
        self.slots: dict[int, np.ndarray[Any, Any]] = {}
        late = _Late(value) if parcel is None else None
        self.number = arguments[0]
        name = _Quiet(f"DataLoader-worker-{self.number}")
        self.process = context.Process(target=worker.run, args=(end, *arguments, late), name=name, daemon=True)
        with end:
            self.process.start()
        self.process.name = str(name)
        sent = parcel if late is None else late.parcel
        assert sent is not None
        self._hand_over(sent, keep)

    def _hand_over(self, parcel: Parcel, keep: int) -> None:
        segments = [segment for _, segment in sorted(parcel.segments.values(), key=lambda each: each[0])]
        fds = ([parcel.memory.fd] if parcel.memory is not None else []) + [each.fd for each in segments]
        size = parcel.memory.nbytes if parcel.memory is not None else None
        message: Any = (parcel.data, size, parcel.places, [each.nbytes for each in segments], keep)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died; the loader will see how
            self.channel.send(message, fds[:_FDS])
            for at in range(_FDS, len(fds), _FDS):
                self.channel.send(None, fds[at : at + _FDS])

    def open(self, message: tuple[Any, ...], fds: list[int]) -> Any:
        """The batch of a message, over its slot's memory."""
        _, _, _, data, slot, size, places, dropped = message
        for each in dropped:
            self.slots.pop(each, None)
        if slot is None:
            return unpack(data, [])
        if fds:
            made = Segment.opened(fds.pop(), size)
            made.forget()
            self.slots[slot] = made.array
        whole = Lease(slot, self.slots[slot], self.freed).array()
        buffers = [whole[at : at + nbytes] for at, nbytes in places]
        return unpack(data or buffers.pop(), buffers)

    def taken(self) -> list[int]:
        """The slots that nothing uses any more."""
        found = []
        while self.freed:
            found.append(self.freed.popleft())
        return found

    def ended(self, wanted: str) -> WorkerError:
        """The error of a worker that is gone."""
        self.process.join(5)
        code, pid = self.process.exitcode, self.process.pid
        who = f"DataLoader worker {self.number} (pid {pid})"
        if code is not None and code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = "signal"
            return WorkerError(f"{who} was killed by {name} (signal {-code}) {wanted}.{_HINTS.get(-code, '')}")
        return WorkerError(
            f"{who} ended with exit code {code} {wanted}; what it printed tells more. Does the data set exit the "
            'process, or the main module start work when it is imported, not under `if __name__ == "__main__":`?'
        )


def _end(workers: list[_Worker], pid: int, grace: float) -> None:
    """Tell workers to end, and see that they do: at once, within `grace` seconds, or by force."""
    if os.getpid() != pid:  # a forked copy of the loader has no say
        return
    for each in workers:
        each.channel.close()
    end = monotonic() + grace
    for each in workers:
        each.process.join(max(0.0, end - monotonic()))
    left = [each.process for each in workers if each.process.is_alive()]
    for step in ("terminate", "kill"):
        for each in left:
            getattr(each, step)()
        end = monotonic() + 1.0
        for each in left:
            each.join(max(0.0, end - monotonic()))
        left = [each for each in left if each.is_alive()]


class Workers:
    """Processes that make the batches of a loader, numbered tasks each, and answer every task once.

    value: (dataset, collate_fn, worker_init_fn, options of `Recipe`). ahead: tasks that a worker has at a time.
    """

    def __init__(self, value: Any, count: int, ahead: int, seed: int, timeout: float, context: Any):
        if getattr(process.current_process(), "_inheriting", False):
            raise WorkerError(
                "DataLoader: workers are to be started while the main module is being imported by a worker: put what "
                'the script does under `if __name__ == "__main__":`'
            )
        self.timeout = timeout
        context = start_context(context)
        parcel = _parcel(value)
        self._workers: list[_Worker] = []
        self._finish = weakref.finalize(self, _end, self._workers, os.getpid(), worker.GRACE)
        try:
            for number in range(count):
                arguments = (number, count, seed)
                self._workers.append(_Worker(context, arguments, value, parcel, ahead + 2))
        except BaseException as error:
            self.close()
            if isinstance(error, (TypeError, AttributeError, ValueError)) and parcel is None:
                raise _unpicklable(value, error) from error
            raise
        self._poll = select.poll()
        self._by_fd: dict[int, _Worker] = {}
        for each in self._workers:
            for fd in (each.channel.fileno(), each.process.sentinel):
                self._poll.register(fd, select.POLLIN)
                self._by_fd[fd] = each

    def pids(self) -> list[int]:
        """The processes' ids."""
        return [each.process.pid for each in self._workers]

    def ask(self, number: int, epoch: int, task: int, index: Any) -> None:
        """Have worker `number` make a batch."""
        each = self._workers[number]
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died; waiting will tell
            each.channel.send(("task", epoch, task, index, each.taken()))

    def renew(self, epoch: int) -> None:
        """Begin another pass over the data set; answers of the one before do not count any more."""
        for each in self._workers:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                each.channel.send(("epoch", epoch))

    def answers(self, wait: bool, awaited: Callable[[], str]) -> Iterator[tuple[int, int, int, str, Any]]:
        """What has come: (worker, epoch, task, "batch" or "error" or "end", the batch or the `Failure`).

        With `wait`, at least one. awaited: what for, for messages. Raises `WorkerError` for a worker that is gone,
        `WorkerTimeout` after the timeout, and what a worker raised while it was set up; the workers are ended then.
        """
        end = monotonic() + self.timeout if self.timeout > 0 else None
        while True:
            left = 0 if not wait else -1 if end is None else max(0, int((end - monotonic()) * 1000) + 1)
            found = self._poll.poll(left)
            if not found:
                if not wait:
                    return
                if end is None or monotonic() < end:
                    continue
                who = awaited()
                self.close(0.0)
                raise WorkerTimeout(
                    f"DataLoader timed out after {self.timeout:g} seconds: {who}. Does the data set hang? Raise "
                    "timeout= if batches may take that long; workers were ended"
                )
            gone = None
            for each in dict.fromkeys(self._by_fd[fd] for fd, _ in found):
                try:
                    answer = self._answer(each)
                except (EOFError, BlockingIOError):
                    gone = gone or each
                    continue
                wait = False
                yield answer
            if gone is not None:
                error = gone.ended("before its work was done")
                self.close(0.0)
                raise error

    def _answer(self, each: _Worker) -> Any:
        """A worker's next answer. Raises `EOFError` or `BlockingIOError` where there is none: its process ended."""
        message, fds = each.channel.receive(wait=False)
        kind = message[0]
        if kind == "failed":
            self.close()
            message[1].reraise()
        if kind == "batch":
            return each.number, message[1], message[2], kind, each.open(message, fds)
        return each.number, message[1], message[2], kind, message[3] if kind == "error" else None

    def close(self, grace: float | None = None) -> None:
        """End all workers."""
        if self._finish.alive:
            self._finish.detach()
            _end(self._workers, os.getpid(), worker.GRACE if grace is None else grace)


def _parcel(value: Any) -> Parcel | None:
    """What is sent to every worker; None if it has to be pickled while a process is started."""
    try:
        return Parcel(value)
    except RuntimeError as error:
        if "inheritance" in str(error) or "spawning" in str(error):  # locks and queues of multiprocessing
            return None
        raise
    except Exception as error:
        raise _unpicklable(value, error) from error


def _unpicklable(value: Any, error: Exception) -> NotPicklable:
    parts = dict(zip(("dataset", "collate_fn", "worker_init_fn"), value, strict=False))
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
