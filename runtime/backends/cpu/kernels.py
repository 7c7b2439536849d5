"""Kernels of `cpu` by name: found in the cache, or compiled by background threads while the program goes on.

As many threads as there are cores wait for work. A thread that is free takes its share of the kernels that wait, and
compiles them as one translation unit: the first kernel is compiled alone at once, and those that came meanwhile are
compiled together, which costs half of what they cost alone.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from ... import native, program
from ...errors import CompileError
from ..processor import cores
from ..protocol import Instance
from .objects import ObjectStore

__all__ = ["ClangKernels", "Kernel"]

MAX_BATCH = 16  # kernels in one translation unit: more would keep one core busy while the others have nothing
PROGRESS_DELAY = 0.5  # seconds of waiting without a word


class Kernel:
    """A kernel as launchers know it where there is no C path: its address is 0 until it is compiled."""

    __slots__ = ("address", "name")

    def __init__(self, name: str):
        self.name = name
        self.address = 0


class ClangKernels:
    """What launchers ask for kernels. Threads share it."""

    def __init__(self, store: ObjectStore):
        self.store = store
        self._kernels: dict[Instance, Any] = {}
        self._start()
        os.register_at_fork(after_in_child=self._start)
        atexit.register(self._stop)

    def _start(self) -> None:
        """Begin with no thread. What was waiting when a process was forked waits in the child, too."""
        self._changed = threading.Condition()
        self._waiting: dict[Instance, None] = dict.fromkeys(i for i, k in self._kernels.items() if not k.address)
        self._failures: dict[Instance, CompileError] = {}
        self._running = 0
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def kernel(self, instance: Instance) -> Any:
        """Return the kernel of an instance; if nobody has compiled it yet, that begins now."""
        kernel = self._kernels.get(instance)
        if kernel is None:
            kernel = native.kernel(program.entry_name(instance)) if native.present else Kernel(instance.entry)
            kernel.address = self.store.find(instance) or 0
            kernel = self._kernels.setdefault(instance, kernel)
        if not kernel.address:
            self._request([instance])
        return kernel

    def build(self, instances: Sequence[Instance]) -> int:
        """Compile those that are missing, and wait for them. Returns how many there were."""
        missing = [i for i in dict.fromkeys(instances) if not self.kernel(i).address]
        self.wait(missing)
        return len(missing)

    def wait(self, instances: Iterable[Instance]) -> None:
        """Wait until these kernels are there.

        Raises:
            CompileError: One of them does not compile.
        """
        unique = dict.fromkeys(instances)
        progress = None
        begun = time.monotonic()
        try:
            with self._changed:
                self._request(unique)
                while True:
                    for instance in unique:
                        if instance in self._failures:
                            raise self._failures.pop(instance)
                    left = sum(not self._kernels[i].address for i in unique)
                    if not left:
                        return
                    if progress is None and time.monotonic() - begun > PROGRESS_DELAY:
                        progress = _progress_bar(len(unique))
                    if progress is not None:
                        progress.update(len(unique) - left - progress.n)
                    self._changed.wait(0.1)
        finally:
            if progress is not None:
                progress.close()

    def _request(self, instances: Iterable[Instance]) -> None:
        with self._changed:
            if self._stopped:
                raise CompileError("the process is about to end: no kernel is compiled any more")
            for instance in instances:
                if not self._kernels[instance].address and instance not in self._failures:
                    self._waiting.setdefault(instance)
            useful = min(cores(), len(self._waiting) + self._running)
            while self._waiting and len(self._threads) < useful:
                thread = threading.Thread(target=self._work, name="weftgrad-compile", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify_all()

    def _work(self) -> None:
        """What a thread does: compile its share of what waits; end when nothing does."""
        while True:
            with self._changed:
                batch = self._take_batch()
                if not batch:
                    self._threads.remove(threading.current_thread())
                    return
                self._running += 1
            failure: BaseException | None = None
            try:
                self.store.compile(batch)
            except BaseException as error:
                failure = error
            with self._changed:
                self._running -= 1
                for instance in batch:
                    address = self.store.find(instance)
                    if address:
                        self._kernels[instance].address = address
                    elif isinstance(failure, InterruptedError):
                        self._waiting.setdefault(instance)
                    elif isinstance(failure, CompileError):
                        self._failures[instance] = failure
                    else:
                        self._failures[instance] = CompileError(f"{instance.name}: cannot be compiled: {failure}")
                self._changed.notify_all()

    def _take_batch(self) -> list[Instance]:
        if self._stopped:
            return []
        share = min(-(-len(self._waiting) // cores()), MAX_BATCH)
        batch = list(self._waiting)[:share]
        for instance in batch:
            del self._waiting[instance]
        return batch

    def _stop(self) -> None:
        """The interpreter ends: what nobody waits for is not compiled."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            threads = list(self._threads)
        for thread in threads:
            with suppress(RuntimeError):
                thread.join()


def _progress_bar(total: int) -> Any:
    """One line on a terminal or in a notebook; silent elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a notebook without widgets
        from tqdm.auto import tqdm
    return tqdm(total=total, desc="weftgrad: compiling kernels", unit="kernel", leave=False, disable=None)
