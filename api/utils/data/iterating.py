"""One epoch of a loader: batches made here, or by workers."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ...runtime.errors import NotSupported
from ...runtime.tensor import Tensor
from .fetching import Fetcher, Recipe
from .worker import Failure
from .workers import Workers

if TYPE_CHECKING:
    from .dataloader import DataLoader

__all__ = ["Progress", "SingleIterator", "WorkerIterator", "pin"]


class Progress:
    """How far an epoch is. start: what it depended on when it began. The loader keeps it when the iterator is gone."""

    def __init__(self, start: dict[str, Any], yielded: int):
        self.start, self.yielded, self.over = start, yielded, False


class _Iterator:
    """What both kinds share."""

    def __init__(self, loader: DataLoader):
        self._pins = loader.pin_memory
        self._pin_device = loader.pin_memory_device or None
        self._recipe = Recipe(loader.dataset, loader.collate_fn, loader.iterable, loader.together, loader.drop_last)
        self._broken = False  # workers ended before the epoch did
        self._begin(loader)

    def _begin(self, loader: DataLoader) -> None:
        self._numbers, self.seed, self._dropping = loader._begin()
        assert loader._progress is not None
        self.progress = loader._progress
        self._length_told = loader._length_told
        self._workers_count = loader.num_workers

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                batch = self._next()
            except StopIteration:
                self.progress.over = not self._broken
                raise
            except Exception:  # this batch is none, and the next one's turn comes
                self.progress.yielded += 1
                raise
            if not self._dropping:
                break
            self._dropping -= 1
        self.progress.yielded += 1
        told = self._length_told
        if told is not None and self._recipe.iterable and self.progress.yielded > told:
            self._length_told = None
            hint = "" if not self._workers_count else ": each worker gives all samples unless __iter__ takes its share"
            warnings.warn(
                f"DataLoader: the data set's length is {told}, and more samples or batches came{hint}", stacklevel=2
            )
        return pin(batch, self._pin_device) if self._pins else batch

    def _next(self) -> Any:
        raise NotImplementedError

    def __reduce__(self) -> Any:
        raise NotImplementedError("an iterator of a DataLoader cannot be pickled; send the loader")


class SingleIterator(_Iterator):
    """An epoch whose batches are made in this process."""

    def __init__(self, loader: DataLoader):
        super().__init__(loader)
        self._fetcher = Fetcher(self._recipe)

    def _next(self) -> Any:
        return self._fetcher.fetch(next(self._numbers))


class WorkerIterator(_Iterator):
    """An epoch whose batches workers make.

    Task n is the n-th batch. Tasks go round the workers in turn, so that which worker makes which batch does not depend
    on time; each has `prefetch_factor` tasks ahead on average. Every task is answered once: by a batch, an error, or
    the end of that worker's share of an iterable data set.
    """

    def __init__(self, loader: DataLoader):
        super().__init__(loader)
        assert loader.prefetch_factor is not None
        self._count = loader.num_workers
        self._ahead = loader.prefetch_factor
        self._ordered = loader.in_order
        self._persistent = loader.persistent_workers
        self._epoch = 0
        recipe = self._recipe
        options = (recipe.iterable, recipe.together, recipe.drop_last)
        value = (recipe.dataset, recipe.collate_fn, loader.worker_init_fn, options)
        self._workers: Workers | None = Workers(
            value, self._count, self._ahead, self.seed, loader.timeout, loader.multiprocessing_context
        )
        self._start()

    def _start(self) -> None:
        self._asked = self._given = 0  # tasks
        self._turn = 0
        self._share = [True] * self._count  # which workers have samples left
        self._at: dict[int, int] = {}  # tasks not answered yet, and their workers
        self._come: dict[int, tuple[str, Any]] = {}  # answers not given yet
        self._exhausted = False
        for _ in range(self._ahead * self._count):
            self._ask()

    def reset(self, loader: DataLoader) -> bool:
        """Begin another epoch with the same workers; False if they are gone."""
        if self._workers is None:
            return False
        self._begin(loader)
        self._epoch += 1
        self._workers.renew(self._epoch)
        self._start()
        return True

    def pids(self) -> list[int]:
        """The workers' process ids; empty once they have ended."""
        return [] if self._workers is None else self._workers.pids()

    def _ask(self) -> None:
        if self._exhausted or self._workers is None or not any(self._share):
            return
        try:
            index = next(self._numbers)
        except StopIteration:
            self._exhausted = True
            return
        while not self._share[self._turn]:
            self._turn = (self._turn + 1) % self._count
        self._at[self._asked] = self._turn
        self._workers.ask(self._turn, self._epoch, self._asked, index)
        self._asked += 1
        self._turn = (self._turn + 1) % self._count

    def _next(self) -> Any:
        try:
            return self._awaited_next()
        except KeyboardInterrupt:
            self._broken = True
            self.close(0.0)
            raise

    def _awaited_next(self) -> Any:
        if self._workers is None:
            raise StopIteration
        self._listen(False)
        while True:
            found = self._due()
            if found is not None:
                self._ask()
                kind, value = found
                if kind == "error":
                    assert isinstance(value, Failure)
                    value.reraise()
                return value
            if not self._at:
                if not self._persistent:
                    self.close()
                raise StopIteration
            self._listen(True)

    def _due(self) -> tuple[str, Any] | None:
        """The answer whose turn it is, if it has come."""
        if not self._ordered:
            while self._come:
                found = self._come.pop(next(iter(self._come)))
                if found[0] != "end":
                    return found
                self._ask()
            return None
        while self._given in self._come:
            found = self._come.pop(self._given)
            self._given += 1
            if found[0] != "end":
                return found
            self._ask()
        return None

    def _listen(self, wait: bool) -> None:
        assert self._workers is not None
        try:
            for number, epoch, task, kind, value in self._workers.answers(wait, self._awaited):
                if epoch != self._epoch:
                    continue
                del self._at[task]
                self._come[task] = kind, value
                if kind == "end":
                    self._share[number] = False
        except Exception:
            self._workers, self._broken = None, True
            raise

    def _awaited(self) -> str:
        assert self._workers is not None
        task = self._given if self._given in self._at else min(self._at)
        number = self._at[task]
        return f"batch {task} of worker {number} (pid {self._workers.pids()[number]}) has not come"

    def close(self, grace: float | None = None) -> None:
        """End the workers."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.close(grace)


def pin(data: Any, device: Any = None) -> Any:
    """`data` with its `cpu` tensors in page-locked memory for a CUDA device; as it is where there is none to use.

    Containers are gone into; other objects are asked by their `pin_memory()`, if they have it.
    """
    from ...runtime.backends import cuda_devices

    if not cuda_devices():
        return data
    try:
        return _pinned(data, device)
    except NotSupported:  # the GPU is too old for kernels
        return data


def _pinned(data: Any, device: Any) -> Any:
    if isinstance(data, Tensor):
        return data.pin_memory(device) if data.meta.device.type == "cpu" else data
    if isinstance(data, dict):
        pairs = {key: _pinned(value, device) for key, value in data.items()}
        return pairs if type(data) is dict else _updated(data, pairs)
    if isinstance(data, tuple):
        parts = [_pinned(part, device) for part in data]
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    if isinstance(data, list):
        return [_pinned(part, device) for part in data]
    own = getattr(data, "pin_memory", None)
    return own() if callable(own) else data


def _updated(data: Any, pairs: Any) -> Any:
    import copy

    made = copy.copy(data)
    made.update(pairs)
    return made
