"""A thread that moves on the works which `async_op=True` has left, so that transfers overlap with computation.

MPI moves data only inside of its functions, so somebody has to call it. While a thread waits for a work, that thread
moves on all works, and the thread of this module sleeps: each time it wakes, it takes the interpreter's lock from the
program, and on a machine without an idle core the processor, too.
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

_PROGRESS_SECONDS = 2e-4
_SECONDS_BEFORE_PROGRESS = 1e-3  # steps of a few ms wait for their works before the thread tests one


class _Progress:
    """The thread that moves on asynchronous works while nobody waits for one."""

    def __init__(self, world: World):
        self._world = world
        self._works: deque[Work] = deque()
        self._wake = threading.Event()
        self._waiting = 0  # threads that wait for a work: they move on all works
        threading.Thread(target=self._run, name="weftgrad-progress", daemon=True).start()

    def add(self, work: Work) -> None:
        with self._world.lock:
            self._works.append(work)
            if not self._waiting:
                self._wake.set()

    def pause(self) -> None:
        """Leave the works, and the processor, to a thread that waits for one of them."""
        with self._world.lock:
            self._waiting += 1
            self._wake.clear()

    def resume(self) -> None:
        """Go on with works that are left when a thread has waited."""
        with self._world.lock:
            self._waiting -= 1
            if not self._waiting and not all(work.is_finished for work in self._works):
                self._wake.set()

    def advance_all(self) -> None:
        """Move on each work, the oldest first."""
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
                time.sleep(_SECONDS_BEFORE_PROGRESS)
                continue
            self.advance_all()
            with self._world.lock:
                if not self._works:
                    self._wake.clear()
                    continue
            time.sleep(_PROGRESS_SECONDS)


_progress: _Progress | None = None


def leave_in_background(work: Work) -> None:
    """Have the progress thread move on a work until it is done."""
    global _progress
    if work.is_finished:
        return
    if _progress is None:
        _progress = _Progress(work._world)
    _progress.add(work)


def make_progress() -> None:
    """Advance all asynchronous works now. Code that computes for long between collectives calls it."""
    if _progress is not None:
        _progress.advance_all()


@contextmanager
def paused_thread() -> Iterator[None]:
    """Return a context in which the calling thread waits for works, one after the other, and the thread sleeps."""
    progress = _progress
    if progress is None:
        yield
        return
    progress.pause()
    try:
        yield
    finally:
        progress.resume()
