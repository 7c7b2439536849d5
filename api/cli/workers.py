"""Worker processes that end silently on Ctrl-C.

A terminal sends SIGINT to every process in the foreground, and a worker that is still importing would print a
traceback. So workers start with SIGINT blocked, and unblock it with its default action once they can end silently.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from types import FrameType
from typing import TypeVar

__all__ = ["block_sigint", "map_in_processes", "restore_sigint"]


T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def block_sigint() -> Iterator[None]:
    """Block SIGINT while workers start, so that they inherit the mask. Deliver an interrupt of this process afterwards.

    The mask alone does not protect this thread: a driver's thread may receive the signal, and Python then raises
    `KeyboardInterrupt` here. So the handler is replaced too.
    """
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handler = signal.getsignal(signal.SIGINT)
    defers_interrupt = callable(handler) and threading.current_thread() is threading.main_thread()
    events: list[tuple[int, FrameType | None]] = []
    try:
        if defers_interrupt:
            signal.signal(signal.SIGINT, lambda number, frame: events.append((number, frame)))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        if defers_interrupt:
            signal.signal(signal.SIGINT, handler)
    if events and callable(handler):
        handler(*events[0])


def restore_sigint() -> None:
    """Let SIGINT end this worker process from now on, also one that arrived while it was blocked."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def map_in_processes(work: Callable[[T], R], items: Iterable[T], jobs: int, chunk: int) -> Iterator[R]:
    """Yield `work(item)` of each item, in order, computed by `jobs` processes in chunks of `chunk` items.

    The processes are spawned, because a forked child cannot use a driver that this process has opened. After an
    interrupt of this process alone, they end with the chunks that they have begun.
    """
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=restore_sigint) as pool:
        try:
            with block_sigint():
                results = pool.map(work, items, chunksize=chunk)
            yield from results
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
