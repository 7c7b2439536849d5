"""Advance the operations of `async_op=True` in a background thread, so that transfers overlap with computation.

MPI transfers data only during calls of its functions, so a thread has to call it while an operation (a `Work`) is
pending. This module's progress thread does so as long as the program computes.

Each time the progress thread wakes up, it takes the interpreter's lock from the program, and a processor if no core is
idle. So it sleeps while another thread waits for a work: the waiting thread then advances all works.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .works import Work
    from .world import World

__all__ = ["leave_in_background", "make_progress", "paused_thread"]

_INTERVAL_SECONDS = 2e-4  # between two calls of MPI by the progress thread
# Delay of the progress thread before its first call of MPI for new works. A program whose steps take a few ms waits for
# its works before the delay ends.
_DELAY_SECONDS = 1e-3


class _ProgressThread:
    """The progress thread: it advances asynchronous works while no other thread waits for one."""

    def __init__(self, world: World):
        self._world = world
        self._works: deque[Work] = deque()
        self._wake = threading.Event()  # set while the thread should advance the works
        self._waiting_threads = 0  # number of threads that wait for a work, and so advance all works
        threading.Thread(target=self._run, name="weftgrad-progress", daemon=True).start()

    def add(self, work: Work) -> None:
        """Advance a work until it is finished."""
        with self._world.lock:
            self._works.append(work)
            if not self._waiting_threads:
                self._wake.set()

    def pause(self) -> None:
        """Let the progress thread sleep, because the calling thread waits for a work and advances all."""
        with self._world.lock:
            self._waiting_threads += 1
            self._wake.clear()

    def resume(self) -> None:
        """End a `pause`. When no thread waits any more, wake the progress thread if works are unfinished."""
        with self._world.lock:
            self._waiting_threads -= 1
            if not self._waiting_threads and not all(work.is_finished for work in self._works):
                self._wake.set()

    def advance_all(self) -> None:
        """Advance each work once, the oldest first, and remove those that are finished."""
        with self._world.lock:
            works = self._works
            if self._world.is_ending:
                works.clear()
            for _ in range(len(works)):
                work = works.popleft()
                if not work._advance_safely():
                    works.append(work)

    def _run(self) -> None:
        while True:
            if not self._wake.is_set():
                self._wake.wait()
                time.sleep(_DELAY_SECONDS)
                continue
            self.advance_all()
            with self._world.lock:
                if not self._works:
                    self._wake.clear()
                    continue
            time.sleep(_INTERVAL_SECONDS)


_progress: _ProgressThread | None = None


def leave_in_background(work: Work) -> None:
    """Have the progress thread advance a work until it is finished."""
    global _progress
    if work.is_finished:
        return
    if _progress is None:
        _progress = _ProgressThread(work._world)
    _progress.add(work)


def make_progress() -> None:
    """Advance all asynchronous works once, in the calling thread.

    A thread that polls one work calls it as well, because the progress thread sleeps meanwhile.
    """
    if _progress is not None:
        _progress.advance_all()


@contextmanager
def paused_thread() -> Iterator[None]:
    """Let the progress thread sleep in a `with` block, in which the calling thread waits for works."""
    progress = _progress
    if progress is None:
        yield
        return
    progress.pause()
    try:
        yield
    finally:
        progress.resume()
