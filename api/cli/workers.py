"""Processes of their own that Ctrl-C ends without a word.

A terminal sends SIGINT to every process of the foreground, and one that is still importing when it comes prints a
traceback. So workers start with the signal held back, and let it through once they can end quietly: by its default.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

__all__ = ["interruptible", "interrupts_held", "spread"]


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Around the start of workers, which inherit the hold. An interrupt of this process waits for the end of it.

    The mask is what workers inherit. It does not spare this thread: the signal may be taken by one of a driver's, and
    Python then raises here.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handler = signal.getsignal(signal.SIGINT)
    deferred = callable(handler) and threading.current_thread() is threading.main_thread()
    came: list[Any] = []
    try:
        if deferred:
            signal.signal(signal.SIGINT, lambda *event: came.append(event))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if deferred:
            signal.signal(signal.SIGINT, handler)
    if came and callable(handler):
        handler(*came[0])


def interruptible() -> None:
    """In a worker: from here on, also for an interrupt that came before, SIGINT ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def spread(work: Callable[[Any], Any], items: Iterable[Any], jobs: int, chunk: int) -> Iterator[Any]:
    """`work` of each item, in order, by `jobs` processes that are given `chunk` items at a time.

    They are spawned: a forked child could not use a driver that this process has open.
    """
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=interruptible) as pool:
        with interrupts_held():
            results = pool.map(work, items, chunksize=chunk)
        yield from results
