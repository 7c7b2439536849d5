"""One epoch of a loader, whose batches are made in this process or by workers."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Literal, NoReturn, Self, TypeAlias

from ...runtime.backends import cuda_devices
from ...runtime.device import DeviceLike
from ...runtime.errors import NotSupported
from ...runtime.tensor import Tensor
from ._types import Batch, EpochStart
from .fetching import Fetcher, Recipe
from .worker import Failure
from .workers import Workers

if TYPE_CHECKING:
    from .dataloader import DataLoader

__all__ = ["Progress", "SingleIterator", "WorkerIterator", "pin"]


_Answer: TypeAlias = tuple[Literal["batch", "task_failed", "end"], Batch]


class Progress:
    """The progress of an epoch, which the loader keeps after the iterator is deleted.

    Attributes:
        start: The states that the epoch depends on, when it began.
        yielded: The number of batches yielded.
        is_complete: Whether the epoch is over.
    """

    def __init__(self, start: EpochStart, yielded: int):
        self.start, self.yielded, self.is_complete = start, yielded, False


class _Iterator:
    """The common base of both iterators: it counts batches, skips those before a restored position, and pins them."""

    def __init__(self, loader: DataLoader):
        self._pins = loader.pin_memory
        self._pin_device = loader.pin_memory_device or None
        self._recipe = Recipe(
            loader.dataset, loader.collate_fn, loader.is_iterable, loader.is_batched, loader.drop_last
        )
        self._broken = False  # workers ended before the epoch did
        self._begin(loader)

    def _begin(self, loader: DataLoader) -> None:
        self._indices, self.seed, self._batches_to_skip = loader._begin()
        assert loader._progress is not None
        self.progress = loader._progress
        self._expected_length = loader._expected_length
        self._workers_count = loader.num_workers

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        while True:
            try:
                batch = self._next()
            except StopIteration:
                self.progress.is_complete = not self._broken
                raise
            except Exception:  # this batch failed; iteration can continue with the next one
                self.progress.yielded += 1
                raise
            if not self._batches_to_skip:
                break
            self._batches_to_skip -= 1
        self.progress.yielded += 1
        expected_length = self._expected_length
        if expected_length is not None and self._recipe.is_iterable and self.progress.yielded > expected_length:
            self._expected_length = None
            hint = "" if not self._workers_count else ": each worker yields all samples unless __iter__ takes its share"
            warnings.warn(
                f"DataLoader: the data set's length is {expected_length}, and more samples or batches came{hint}",
                stacklevel=2,
            )
        return pin(batch, self._pin_device) if self._pins else batch

    def _next(self) -> Batch:
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise NotImplementedError("an iterator of a DataLoader cannot be pickled; send the loader")


class SingleIterator(_Iterator):
    """An epoch whose batches are made in this process."""

    def __init__(self, loader: DataLoader):
        super().__init__(loader)
        self._fetcher = Fetcher(self._recipe)

    def _next(self) -> Batch:
        return self._fetcher.fetch(next(self._indices))


class WorkerIterator(_Iterator):
    """An epoch whose batches are made by workers.

    Task n is the n-th batch. Tasks go to the workers in turn, so the assignment does not depend on timing. Each worker
    has `prefetch_factor` pending tasks on average. Every task gets one answer: a batch, an error, or the end of that
    worker's share of an iterable data set.
    """

    def __init__(self, loader: DataLoader):
        super().__init__(loader)
        assert loader.prefetch_factor is not None
        self._count = loader.num_workers
        self._prefetch_factor = loader.prefetch_factor
        self._ordered = loader.in_order
        self._persistent = loader.persistent_workers
        self._epoch = 0
        recipe = self._recipe
        options = (recipe.is_iterable, recipe.is_batched, recipe.drop_last)
        value = (recipe.dataset, recipe.collate_fn, loader.worker_init_fn, options)
        self._workers: Workers | None = Workers(
            value, self._count, self._prefetch_factor, self.seed, loader.timeout, loader.multiprocessing_context
        )
        self._start()

    def _start(self) -> None:
        self._next_task = self._next_answer = 0  # tasks
        self._next_worker = 0
        self._has_samples = [True] * self._count  # whether each worker has samples left
        self._workers_by_task: dict[int, int] = {}  # worker of each task without an answer
        self._answers: dict[int, _Answer] = {}  # answers that were not returned yet
        self._exhausted = False
        for _ in range(self._prefetch_factor * self._count):
            self._send_next_task()

    def reset(self, loader: DataLoader) -> bool:
        """Begin another epoch with the same workers. Return False if they have ended."""
        if self._workers is None:
            return False
        self._begin(loader)
        self._epoch += 1
        self._workers.begin_epoch(self._epoch)
        self._start()
        return True

    def pids(self) -> list[int]:
        """Return the workers' process ids; empty once they have ended."""
        return [] if self._workers is None else self._workers.pids()

    def _send_next_task(self) -> None:
        if self._exhausted or self._workers is None or not any(self._has_samples):
            return
        try:
            index = next(self._indices)
        except StopIteration:
            self._exhausted = True
            return
        while not self._has_samples[self._next_worker]:
            self._next_worker = (self._next_worker + 1) % self._count
        self._workers_by_task[self._next_task] = self._next_worker
        self._workers.send_task(self._next_worker, self._epoch, self._next_task, index)
        self._next_task += 1
        self._next_worker = (self._next_worker + 1) % self._count

    def _next(self) -> Batch:
        try:
            return self._wait_for_next()
        except KeyboardInterrupt:
            self._broken = True
            self.close(0.0)
            raise

    def _wait_for_next(self) -> Batch:
        if self._workers is None:
            raise StopIteration
        self._collect_answers(False)
        while True:
            answer = self._pop_answer()
            if answer is not None:
                self._send_next_task()
                kind, value = answer
                if kind == "task_failed":
                    assert isinstance(value, Failure)
                    value.reraise()
                return value
            if not self._workers_by_task:
                if not self._persistent:
                    self.close()
                raise StopIteration
            self._collect_answers(True)

    def _pop_answer(self) -> _Answer | None:
        """Remove and return the answer that is next, if it has arrived."""
        if not self._ordered:
            while self._answers:
                answer = self._answers.pop(next(iter(self._answers)))
                if answer[0] != "end":
                    return answer
                self._send_next_task()
            return None
        while self._next_answer in self._answers:
            answer = self._answers.pop(self._next_answer)
            self._next_answer += 1
            if answer[0] != "end":
                return answer
            self._send_next_task()
        return None

    def _collect_answers(self, wait: bool) -> None:
        assert self._workers is not None
        try:
            for number, epoch, task, kind, value in self._workers.answers(wait, self._describe_wait):
                if epoch != self._epoch:
                    continue
                del self._workers_by_task[task]
                self._answers[task] = kind, value
                if kind == "end":
                    self._has_samples[number] = False
        except Exception:
            self._workers, self._broken = None, True
            raise

    def _describe_wait(self) -> str:
        assert self._workers is not None
        task = self._next_answer if self._next_answer in self._workers_by_task else min(self._workers_by_task)
        number = self._workers_by_task[task]
        return f"batch {task} of worker {number} (pid {self._workers.pids()[number]}) has not arrived"

    def close(self, grace: float | None = None) -> None:
        """End the workers."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.close(grace)


def pin(data: Batch, device: DeviceLike | None = None) -> Batch:
    """Copy the `cpu` tensors of `data` into page-locked memory; return it unchanged without a usable CUDA device.

    Containers are copied recursively. Other objects are replaced by the result of their `pin_memory()`, if any.
    """
    if not cuda_devices():
        return data
    try:
        return _pin(data, device)
    except NotSupported:  # the GPU is too old for kernels
        return data


def _pin(data: Batch, device: DeviceLike | None) -> Batch:
    if isinstance(data, Tensor):
        return data.pin_memory(device) if data.meta.device.type == "cpu" else data
    if isinstance(data, dict):
        pairs = {key: _pin(value, device) for key, value in data.items()}
        return pairs if type(data) is dict else _copy_with(data, pairs)
    if isinstance(data, tuple):
        parts = [_pin(part, device) for part in data]
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    if isinstance(data, list):
        return [_pin(part, device) for part in data]
    pin_method = getattr(data, "pin_memory", None)
    return pin_method() if callable(pin_method) else data


def _copy_with(data: dict[object, object], pairs: dict[object, object]) -> dict[object, object]:
    copied = copy.copy(data)
    copied.update(pairs)
    return copied
