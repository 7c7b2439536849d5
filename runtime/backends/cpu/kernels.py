"""Compile the kernels of `cpu` in the background, and map instances to compiled kernels.

A request for kernels starts up to one thread per core; the threads end when no request is left. A thread compiles its
share of the requested kernels as one translation unit. So the first kernel is compiled alone and at once. Kernels that
are requested in the meantime are compiled together, in half of the time that they would take one by one.
"""

from __future__ import annotations

import atexit
import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from ... import native, program
from ...errors import CompileError
from ..processor import cores
from ..protocol import Instance
from .objects import ObjectStore

__all__ = ["CallableKernel", "ClangKernels", "Kernel"]

MAX_BATCH = 16  # kernels per translation unit; larger batches would leave other cores idle
MAX_INTERRUPTIONS = 2  # times that a signal may end a kernel's compiler before that is an error
PROGRESS_DELAY = 0.5  # seconds of waiting before a progress bar is shown
JOIN_TIMEOUT = 5.0  # seconds that the end of the process waits for a compilation


class CallableKernel(Protocol):
    """A kernel whose function is at `address`, which is 0 until it is compiled: a `_native.Kernel` or a `Kernel`."""

    address: int


class Kernel:
    """Replacement for `_native.Kernel` without the C extension; `address` is 0 until the kernel is compiled."""

    __slots__ = ("address", "name")

    def __init__(self, name: str):
        self.name = name
        self.address = 0


class ClangKernels:
    """Map instances to compiled kernels; compile missing ones in background threads. Thread-safe.

    Args:
        store: Compiles kernels and caches them.
    """

    def __init__(self, store: ObjectStore):
        self.store = store
        self._kernels: dict[Instance, CallableKernel] = {}
        self.restart()
        atexit.register(self._stop)

    def restart(self) -> None:
        """Reset to no threads and no requests, for the child of a fork. `wait` requests the missing kernels again."""
        self._changed = threading.Condition()
        self._requested: dict[Instance, None] = {}
        self._failures: dict[Instance, CompileError] = {}
        self._interruptions: dict[Instance, int] = {}
        self._threads: list[threading.Thread] = []
        self._compiling: set[Instance] = set()
        self._stopped = False

    def kernel(self, instance: Instance) -> CallableKernel:
        """Return the kernel of an instance, and start to compile it if necessary."""
        kernel = self._kernels.get(instance)
        if kernel is None:
            kernel = native.kernel(program.entry_name(instance)) if native.present else Kernel(instance.entry)
            kernel.address = self.store.load(instance) or 0
            kernel = self._kernels.setdefault(instance, kernel)
        if not kernel.address:
            self._request([instance])
        return kernel

    def build(self, instances: Sequence[Instance]) -> int:
        """Compile kernels that are missing, and wait for them.

        Returns:
            How many were missing.

        Raises:
            CompileError: One of them does not compile.
        """
        missing = [i for i in dict.fromkeys(instances) if not self.kernel(i).address]
        self.wait(missing)
        return len(missing)

    def wait(self, instances: Iterable[Instance]) -> None:
        """Wait until these kernels, which `kernel` has returned, are compiled.

        Raises:
            CompileError: One of them does not compile. Another wait tries it again.
        """
        unique = dict.fromkeys(instances)
        bar, begin = None, time.monotonic()
        with self._changed:
            for instance in unique:
                self._failures.pop(instance, None)  # memory or disk space may have been short: try again
        try:
            while True:
                batch: list[Instance] = []
                with self._changed:
                    failures = [self._failures.pop(i) for i in unique if i in self._failures]
                    if failures:
                        raise failures[0]
                    num_pending = sum(not self._kernels[i].address for i in unique)
                    if not num_pending:
                        return
                    self._request(unique)  # each time: another waiting thread may have popped a failure
                    if self._threads or not self._requested:
                        self._changed.wait(0.1)
                    else:  # no thread can be started: too many threads, or the interpreter is shutting down
                        batch = self._take_batch()
                if batch:
                    self._compile(batch)
                if bar is None and time.monotonic() - begin > PROGRESS_DELAY:
                    bar = _progress_bar(len(unique))
                if bar is not None:
                    bar.update(len(unique) - num_pending - bar.n)
        finally:
            if bar is not None:
                bar.close()

    def _request(self, instances: Iterable[Instance]) -> None:
        """Queue kernels that are neither compiled nor failed, and start threads for them."""
        with self._changed:
            for instance in instances:
                is_known = instance in self._compiling or instance in self._failures
                if not is_known and not self._kernels[instance].address:
                    self._requested.setdefault(instance)
            target_threads = 0 if self._stopped else min(cores(), len(self._requested) + len(self._compiling))
            while self._requested and len(self._threads) < target_threads:
                thread = threading.Thread(target=self._work, name="weftgrad-compile", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # thread limit reached: `wait` compiles in its own thread if necessary
                    break
                self._threads.append(thread)

    def _work(self) -> None:
        """Compile batches until no request is left."""
        while True:
            with self._changed:
                batch = [] if self._stopped else self._take_batch()
                if not batch:
                    with suppress(ValueError):  # Ctrl-C interrupted `_request` before it listed the thread
                        self._threads.remove(threading.current_thread())
                    self._changed.notify_all()
                    return
            self._compile(batch)

    def _compile(self, batch: Sequence[Instance]) -> None:
        """Compile a batch from `_take_batch`, and record addresses and failures."""
        failures: dict[Instance, CompileError] = {}
        addresses: dict[Instance, int | None] = {}
        try:
            failures = self.store.compile(batch)
            addresses = {instance: self.store.load(instance) for instance in batch}
        except InterruptedError as error:
            failures = self._after_interruption(batch, error)
        except Exception as error:
            failures = {i: CompileError(f"{i.name}: cannot be compiled: {error!r}") for i in batch}
        finally:
            with self._changed:
                self._compiling.difference_update(batch)
                self._failures.update(failures)
                for instance, address in addresses.items():
                    if address:
                        self._kernels[instance].address = address
                self._changed.notify_all()

    def _after_interruption(self, batch: Sequence[Instance], error: InterruptedError) -> dict[Instance, CompileError]:
        """Request a batch again whose compiler was ended by a signal, a limited number of times."""
        failures = {}
        with self._changed:
            for instance in batch:
                self._interruptions[instance] = count = self._interruptions.get(instance, 0) + 1
                if count > MAX_INTERRUPTIONS:
                    failures[instance] = CompileError(f"{instance.name}: {error}; is memory short?")
                    self._interruptions[instance] = 0
                else:
                    self._requested.setdefault(instance)
        return failures

    def _take_batch(self) -> list[Instance]:
        """Move the next requests to `_compiling`, and return them. The caller holds the lock."""
        size = min(-(-len(self._requested) // cores()), MAX_BATCH)
        if any(self._interruptions.get(i) for i in self._requested):
            size = 1  # a smaller translation unit needs less memory
        batch = list(self._requested)[:size]
        for instance in batch:
            del self._requested[instance]
        self._compiling.update(batch)
        return batch

    def _stop(self) -> None:
        """At interpreter shutdown: stop background threads. `wait` then compiles in the waiting thread."""
        with self._changed:
            self._stopped = True
            self._requested.clear()
            threads = list(self._threads)
        for thread in threads:
            with suppress(RuntimeError):
                thread.join(JOIN_TIMEOUT)


class _ProgressBar(Protocol):
    """The members of tqdm's bars that are used here. n: finished units."""

    n: int

    def update(self, n: int) -> object: ...
    def close(self) -> None: ...


def _progress_bar(total: int) -> _ProgressBar:
    """Return tqdm's bar: one line on a terminal or in a notebook, nothing elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a notebook without widgets
        from tqdm.auto import tqdm  # lazy: start-up
    return tqdm(total=total, desc="weftgrad: compiling kernels", unit="kernel", leave=False, disable=None)
