"""What runs in a loader's worker process: it makes the batches that it is told to, and nothing else.

Nothing here launches a kernel or opens a driver; a data set that does so itself gets one thread. The forkserver imports
this module ahead (see `multiprocessing`), so that a new worker has little left to do.
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
from typing import Any

import numpy as np
import numpy.random  # NumPy imports it when it is first named, which would be in each worker

from ...random import manual_seed
from ...runtime.backends import cpu  # noqa: F401  # the same: the driver of `cpu`, which imports no OpenCL
from ...runtime.device import set_default_device
from ...runtime.errors import NotPicklable
from . import collate
from .channel import Channel
from .fetching import Fetcher, Recipe
from .packing import Arena, Parcel, pack

__all__ = ["GRACE", "Failure", "WorkerInfo", "get_worker_info", "run"]

GRACE = 2.0
"""Seconds that a worker has for its last batch once it is told to end, or its parent is gone."""

_INLINE = 2048  # bytes of a batch's pickle that go beside the memory


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Which worker this is: `id` of `num_workers`, the `seed` of its random numbers, and its copy of the `dataset`."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker of a `DataLoader`, which one it is; None in any other process."""
    return _info


class Failure:
    """An exception on its way to another process: its class and its traceback as text."""

    def __init__(self, error: BaseException, where: str):
        self.kind: Any = type(error)
        name = self.kind.__name__
        text = "".join(traceback.format_exception(error))
        self.message = f"Caught {name} in {where}.\nOriginal {text}"

    def reraise(self) -> None:
        """Raise it here: as its own class where that takes a message, else as `RuntimeError`."""
        message: str = _Verbatim(self.message) if issubclass(self.kind, KeyError) else self.message
        try:
            error = self.kind(message)
        except Exception:
            error = RuntimeError(message)
        raise error from None

    def plain(self) -> Failure:
        """The same for a class that cannot be pickled."""
        self.kind = RuntimeError
        return self


class _Verbatim(str):
    """A `KeyError` shows the repr of its message, which would put a traceback on one line."""

    def __repr__(self) -> str:
        return str(self)


class _Inbox:
    """Messages of the loader, read by a thread, so that its end is noticed whatever the data set is doing."""

    def __init__(self, channel: Channel):
        self.messages: SimpleQueue[Any] = SimpleQueue()
        self.epoch = 0
        self._channel = channel
        self._idle = threading.Event()
        threading.Thread(target=self._read, name="weftgrad-inbox", daemon=True).start()

    def _read(self) -> None:
        parent = process.parent_process()
        channel: Any = self._channel
        watched: list[Any] = [channel] + ([parent.sentinel] if parent is not None else [])
        try:
            while channel in connection.wait(watched):
                message, _ = channel.receive()
                if message[0] == "epoch":
                    self.epoch = message[1]
                self.messages.put(message)
        except (EOFError, OSError):
            pass
        self.messages.put(("stop",))
        if not self._idle.wait(GRACE):  # the data set hangs
            os._exit(1)

    def done(self) -> None:
        """The last batch is made: the process may end by itself."""
        self._idle.set()


def run(end: socket.socket, number: int, count: int, seed: int, late: Any) -> None:
    """A worker process, from its start to its end. late: what could only be pickled while the process was started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends the workers
    channel = Channel(end)
    try:
        told, fds = channel.receive()
        inbox = None
        try:
            recipe, keep = _prepared(told, fds, channel, number, count, seed, late)
            arena = Arena(keep)
            collate.room = arena.take
            inbox = _Inbox(channel)
            _work(channel, inbox, recipe, arena, number)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            _send_failure(channel, ("failed",), error, number)
        if inbox is not None:
            inbox.done()
    except (EOFError, OSError):
        pass  # the loader is gone


def _prepared(
    told: Any, fds: list[int], channel: Channel, number: int, count: int, seed: int, late: Any
) -> tuple[Recipe, int]:
    """The recipe and how many free slots to keep, with the process set up as a worker."""
    global _info
    for name in ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("POCL_AFFINITY", "0")
    set_default_device("cpu")
    data, sizes, places, segment_sizes, keep = told
    while len(fds) < (sizes is not None) + len(segment_sizes):
        fds += channel.receive()[1]
    memory = (fds.pop(0), sizes) if sizes is not None else None
    data = late.data if late is not None else data
    segments = list(zip(fds, segment_sizes, strict=True))
    try:
        dataset, collate_fn, init, options = Parcel.open(data, memory, places, segments)
    except (AttributeError, ImportError) as error:
        raise NotPicklable(
            f"a worker cannot find what the loader uses ({error}): workers are new processes, which import the modules "
            "of the data set, collate_fn and worker_init_fn. Define these in a module, or in a script that starts its "
            'work under `if __name__ == "__main__":`; not in an interactive session'
        ) from error
    own = (seed + number) & ((1 << 64) - 1)
    random.seed(own)
    manual_seed(own)
    np.random.seed(np.random.SeedSequence([seed & ((1 << 64) - 1), number]).generate_state(4))
    _info = WorkerInfo(number, count, own, dataset)
    if init is not None:
        init(number)
    return Recipe(dataset, collate_fn, *options), keep


def _work(channel: Channel, inbox: _Inbox, recipe: Recipe, arena: Arena, number: int) -> None:
    fetcher: Fetcher | None = None
    ended = False
    while True:
        message = inbox.messages.get()
        if message[0] == "stop":
            return
        if message[0] == "epoch":
            fetcher, ended = None, False
            continue
        _, epoch, task, index, freed = message
        arena.release(freed)
        if epoch != inbox.epoch:
            continue
        if ended:
            channel.send(("end", epoch, task))
            continue
        try:
            arena.begin()
            if fetcher is None:
                fetcher = Fetcher(recipe)
            try:
                batch = fetcher.fetch(index)
            except StopIteration:
                if not recipe.iterable:
                    raise
                ended = True
                channel.send(("end", epoch, task))
                continue
            data, buffers = pack(batch)
            del batch
            if len(data) > _INLINE:
                buffers.append(np.frombuffer(data, np.uint8))
                data = b""
            slot, made, places = arena.place(buffers)
        except Exception as error:
            _send_failure(channel, ("error", epoch, task), error, number)
            continue
        dropped, arena.dropped = arena.dropped, []
        size = made.nbytes if made is not None else 0
        channel.send(("batch", epoch, task, data, slot, size, places, dropped), [made.fd] if made is not None else [])
        if made is not None:
            made.forget()
        del buffers, data, made
        arena.settle()


def _send_failure(channel: Channel, head: tuple[Any, ...], error: Exception, number: int) -> None:
    failure = Failure(error, f"DataLoader worker process {number}")
    try:
        channel.send((*head, failure))
    except (OSError, EOFError):
        raise
    except Exception:  # its class lives where pickles do not find it
        channel.send((*head, failure.plain()))
    sys.stderr.flush()
