"""The main function of a loader's worker process, which makes the batches that the loader requests.

This module launches no kernel and opens no driver. If the data set does, kernels run on one thread. The forkserver
imports this module before it starts workers (see `multiprocessing`), so that they start quickly. `workers` is the
loader's side.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing import connection, process
from queue import SimpleQueue
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import numpy as np
import numpy.random  # NumPy imports it lazily. Imported here, the forkserver does it once for all workers

from ...random import manual_seed
from ...runtime.backends import cpu  # noqa: F401  # for the same reason; it does not import OpenCL
from ...runtime.device import set_default_device
from ...runtime.errors import NotPicklable
from . import collate
from ._types import Answer, Places, Request, SetupMessage, UserDataset, Workload
from .channel import Channel
from .fetching import Fetcher, Recipe
from .packing import Arena, Parcel, pack

if TYPE_CHECKING:
    from .workers import _PickledParcel

__all__ = ["GRACE_SECONDS", "Failure", "WorkerInfo", "get_worker_info", "run"]

GRACE_SECONDS = 2.0
"""Seconds that a worker has to finish its batch after a request to end, or after the death of its parent."""

_Channel: TypeAlias = Channel[Answer, Request]
_MAX_INLINE_BYTES = 2048  # the largest pickle of a batch that is in the message; a larger one is in the slot


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """The current worker of a `DataLoader`.

    Args:
        id: Number of the worker, from 0 on.
        num_workers: Number of workers.
        seed: Seed of the worker's random numbers.
        dataset: The worker's copy of the data set.

    Example:
        >>> print(wg.utils.data.get_worker_info())
        None
    """

    id: int
    num_workers: int
    seed: int
    dataset: UserDataset


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Return the current `DataLoader` worker; None in any other process.

    Returns:
        `WorkerInfo` or None.

    Example:
        >>> print(wg.utils.data.get_worker_info())
        None
    """
    return _info


class Failure:
    """An exception to send to another process: its class, and its traceback as text."""

    def __init__(self, error: BaseException, where: str):
        self.kind: type[BaseException] = type(error)
        name = self.kind.__name__
        text = "".join(traceback.format_exception(error))
        self.message = f"Caught {name} in {where}.\nOriginal {text}"

    def reraise(self) -> NoReturn:
        """Raise the exception as its own class if that accepts a message, else as `RuntimeError`."""
        message: str = _VerbatimMessage(self.message) if issubclass(self.kind, KeyError) else self.message
        try:
            error = self.kind(message)
        except Exception:  # the class takes other arguments than a message
            error = RuntimeError(message)
        raise error from None

    def replace_class(self) -> None:
        """Replace the class, which cannot be pickled, by `RuntimeError`."""
        self.kind = RuntimeError


class _VerbatimMessage(str):
    """A message whose repr is itself: `KeyError` shows the repr, which would put the traceback on one line."""

    def __repr__(self) -> str:
        return str(self)


class _Inbox:
    """The loader's messages. A thread reads them, and notices the end of the loader even while the data set is busy.

    When the loader has ended, the worker has `GRACE_SECONDS` to finish its batch. Then the thread ends the process.

    Attributes:
        messages: The messages in order; the last one is ("stop",).
        epoch: Number of the latest epoch.
    """

    def __init__(self, channel: _Channel):
        self.messages: SimpleQueue[Request] = SimpleQueue()
        self.epoch = 0
        self._channel = channel
        self._is_exit_allowed = threading.Event()
        threading.Thread(target=self._read, name="weftgrad-inbox", daemon=True).start()

    def _read(self) -> None:
        loader_socket = self._channel.socket
        watched: list[socket.socket | int] = [loader_socket, *_loader_process()]
        try:
            while loader_socket in connection.wait(watched):
                message, _ = self._channel.receive()
                if message[0] == "epoch":
                    self.epoch = message[1]
                self.messages.put(message)
        except (EOFError, OSError):
            pass
        self.messages.put(("stop",))
        if not self._is_exit_allowed.wait(GRACE_SECONDS):  # the data set hangs
            os._exit(1)

    def allow_exit(self) -> None:
        """Report that the last batch is done, so that the thread need not end the process."""
        self._is_exit_allowed.set()


def _loader_process() -> list[int]:
    """Return a descriptor that becomes readable when the loader's process ends.

    The sentinel of multiprocessing is a pipe, which workers that were forked later keep open.
    """
    parent = process.parent_process()
    if parent is None or parent.pid is None:
        return []
    try:
        return [os.pidfd_open(parent.pid)]
    except (AttributeError, OSError):  # not Linux, an old kernel, or a container that forbids it
        return [parent.sentinel]


def run(
    end: socket.socket,
    number: int,
    count: int,
    seed: int,
    deferred: _PickledParcel | None,
    inherited: Workload | None,
) -> None:
    """Run a worker process.

    Args:
        end: The worker's end of the channel.
        number: The worker's number.
        count: The number of workers.
        seed: The base seed.
        deferred: The pickled workload, if it could be pickled only while the process was started; else None.
        inherited: The workload, if the process was forked; else None.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends the workers
    if inherited is not None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent's handler is not meant for its workers
    channel: _Channel = Channel(end)
    try:
        setup, fds = channel.receive()
        assert setup[0] == "setup"
        inbox = None
        try:
            recipe, max_free_slots = _set_up_worker(setup, fds, channel, number, count, seed, deferred, inherited)
            arena = Arena(max_free_slots)
            collate.allocate = arena.take
            inbox = _Inbox(channel)
            _make_batches(channel, inbox, recipe, arena, number)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            _send_failure(channel, error, number)
        if inbox is not None:
            inbox.allow_exit()
    except (EOFError, OSError):
        pass  # the loader has ended


def _set_up_worker(
    setup: SetupMessage,
    fds: list[int],
    channel: _Channel,
    number: int,
    count: int,
    seed: int,
    deferred: _PickledParcel | None,
    inherited: Workload | None,
) -> tuple[Recipe, int]:
    """Set up the process as a worker: threads, default device, random numbers, the data set and `worker_init_fn`.

    Args:
        setup: The loader's first message.
        fds: The file descriptors that came with it.
        channel: The channel, from which further descriptors may have to be received.
        number: The worker's number.
        count: The number of workers.
        seed: The base seed.
        deferred: As for `run`.
        inherited: As for `run`.

    Returns:
        The recipe, and the maximum number of free slots.
    """
    global _info
    for name in ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("POCL_AFFINITY", "0")
    set_default_device("cpu")
    _, data, memory_nbytes, places, segment_sizes, max_free_slots = setup
    while len(fds) < (memory_nbytes is not None) + len(segment_sizes):
        fds += channel.receive()[1]
    memory = (fds.pop(0), memory_nbytes) if memory_nbytes is not None else None
    data = deferred.data if deferred is not None else data
    segments = list(zip(fds, segment_sizes, strict=True))
    workload = _open_parcel(data, memory, places, segments) if inherited is None else inherited
    dataset, collate_fn, worker_init_fn, options = workload
    worker_seed = (seed + number) & ((1 << 64) - 1)
    random.seed(worker_seed)
    manual_seed(worker_seed)
    np.random.seed(np.random.SeedSequence([seed & ((1 << 64) - 1), number]).generate_state(4))
    _info = WorkerInfo(number, count, worker_seed, dataset)
    if worker_init_fn is not None:
        worker_init_fn(number)
    return Recipe(dataset, collate_fn, *options), max_free_slots


def _open_parcel(
    data: bytes, memory: tuple[int, int] | None, places: Places, segments: list[tuple[int, int]]
) -> Workload:
    """Unpickle the workload, as `Parcel.open` does. Raises `NotPicklable` if the worker cannot import a part of it."""
    try:
        return Parcel.open(data, memory, places, segments)
    except (AttributeError, ImportError) as error:
        raise NotPicklable(
            f"a worker cannot find what the loader uses ({error}): workers are new processes, which import the modules "
            "of the data set, collate_fn and worker_init_fn. Define these in a module, or in a script that starts its "
            'work under `if __name__ == "__main__":`; not in an interactive session'
        ) from error


def _make_batches(channel: _Channel, inbox: _Inbox, recipe: Recipe, arena: Arena, number: int) -> None:
    """Answer the loader's tasks by batches until it sends "stop".

    Args:
        channel: The channel to the loader.
        inbox: The loader's messages.
        recipe: How to make batches.
        arena: The worker's slots.
        number: The worker's number.
    """
    fetcher: Fetcher | None = None
    is_exhausted = False
    while True:
        message = inbox.messages.get()
        if message[0] == "stop":
            return
        if message[0] == "epoch":
            fetcher, is_exhausted = None, False
            continue
        assert message[0] == "task"
        _, epoch, task, index, free_slots = message
        arena.release(free_slots)
        if epoch != inbox.epoch:  # the loader ignores answers of earlier epochs
            continue
        if is_exhausted:
            channel.send(("end", epoch, task))
            continue
        try:
            arena.begin()
            if fetcher is None:
                fetcher = Fetcher(recipe)
            try:
                batch = fetcher.fetch(index)
            except StopIteration:
                if not recipe.is_iterable:
                    raise
                is_exhausted = True
                channel.send(("end", epoch, task))
                continue
            data, buffers = pack(batch)
            del batch
            if len(data) > _MAX_INLINE_BYTES:
                buffers.append(np.frombuffer(data, np.uint8))
                data = b""
            slot, new_segment, places = arena.place(buffers)
        except Exception as error:
            _send_failure(channel, error, number, (epoch, task))
            continue
        dropped, arena.dropped = arena.dropped, []
        size = new_segment.nbytes if new_segment is not None else 0
        channel.send(
            ("batch", epoch, task, data, slot, size, places, dropped),
            [new_segment.fd] if new_segment is not None else [],
        )
        if new_segment is not None:
            new_segment.forget()
        del buffers, data, new_segment
        arena.settle()


def _send_failure(channel: _Channel, error: Exception, number: int, task: tuple[int, int] | None = None) -> None:
    """Send an exception, as the answer to a task or as the worker's last message.

    Args:
        channel: The channel to the loader.
        error: The exception.
        number: The worker's number.
        task: Epoch and number of the task; None if the worker failed outside of a task.
    """
    failure = Failure(error, f"DataLoader worker process {number}")
    answer: Answer = ("worker_failed", failure) if task is None else ("task_failed", *task, failure)
    try:
        channel.send(answer)
    except (OSError, EOFError):
        raise
    except Exception:  # the class of the error cannot be pickled
        failure.replace_class()
        channel.send(answer)
    sys.stderr.flush()
