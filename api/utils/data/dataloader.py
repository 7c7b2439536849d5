"""`DataLoader`: batches of a data set, as tensors."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import Any

from ...random import Generator, default_generator
from ...runtime.backends.processor import cores
from ...runtime.errors import ArgumentError
from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .iterating import Progress, SingleIterator, WorkerIterator
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed
from .workers import start_context

__all__ = ["DataLoader"]

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _Forever(Sampler):
    """The numbers of an iterable data set's samples, which have none."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader:
    """Batches of `dataset`, in order or shuffled, collated into tensors, made here or by worker processes.

    dataset: with `__getitem__` and `__len__`, or an `IterableDataset`.
    batch_size: samples a batch; None gives samples one by one, through `default_convert`.
    shuffle, sampler, batch_sampler: the order, at most one of them. drop_last: leave out a last batch that is shorter.
    collate_fn: makes a batch of a list of samples (`default_collate`).
    generator: draws the order and the workers' seeds; without it the default generator does. With the same state, the
        order is the same in every run and for every number of workers.

    Worker processes (`num_workers` > 0) start by `forkserver`, or as `multiprocessing_context` says ("spawn"; "fork" is
    refused: drivers do not survive it). Batches come back in shared memory, without a copy, as `cpu` tensors.
    A worker is sent the data set once, when iteration begins: tensors of 64 KiB and more are shared with it, so write
    to none of them; all else is copied. Worker i draws its random numbers from seed base + i, where base is drawn
    from `generator`: weftgrad's, Python's and NumPy's generators start from it, before `worker_init_fn(i)` is called.
    prefetch_factor: batches that a worker has ahead (2). persistent_workers: keep them for the next epoch.
    in_order: give batches in their order; False gives each as it comes.
    timeout: seconds to wait for a batch before `WorkerTimeout`; 0 waits as long as the workers live.
    pin_memory: put batches into page-locked memory where there is a CUDA device, for fast copies to it; elsewhere
    nothing happens. pin_memory_device: the device to lock memory for (the first).

    What a worker raises is raised here in the turn of its batch, with the worker's traceback, and iteration may go on.
    A worker that is killed or exits raises `WorkerError` at once, naming pid and signal; the others are ended. They
    also end with the iterator, and with this process, however it ends.

    `state_dict()` is the position within an epoch, to go on exactly there (see there).
    """

    __initialized = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ):
        _check_numbers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.iterable = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
        if self.iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError("DataLoader: an iterable data set has its own order; shuffle and samplers do not apply")
        if sampler is not None and shuffle:
            raise ArgumentError("DataLoader: give sampler or shuffle, not both")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ArgumentError("DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last")
            batch_size = None
        elif batch_size is None and drop_last:
            raise ArgumentError("DataLoader: batch_size=None makes no batches, so drop_last does not apply")
        if sampler is None:
            if self.iterable:
                sampler = _Forever()
            else:
                sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        self.together = batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if self.together else default_convert)
        self.persistent_workers = persistent_workers
        self._iterator: WorkerIterator | None = None
        self._progress: Progress | None = None
        self._resume: dict[str, Any] | None = None
        self._length_told: int | None = None
        self.__initialized = True
        self.check_worker_number_rationality()

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__initialized and name in _FIXED:
            raise ArgumentError(f"DataLoader: {name} cannot be changed; make a new loader")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """The context that workers are started by; None for the default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, given: Any) -> None:
        if given is not None:
            if not self.num_workers:
                raise ArgumentError("DataLoader: multiprocessing_context applies to workers; set num_workers")
            if isinstance(given, str):
                methods = multiprocessing.get_all_start_methods()
                if given not in methods:
                    raise ArgumentError(f"DataLoader: multiprocessing_context {given!r} is none of {methods}")
                given = multiprocessing.get_context(given)
            if not isinstance(given, BaseContext):
                raise ArgumentError(
                    "DataLoader: multiprocessing_context is a start method's name or a context of multiprocessing, "
                    f"not {type(given).__name__}"
                )
            start_context(given)
        self._context = given

    def check_worker_number_rationality(self) -> None:
        """Warn of more workers than there are cores for this process."""
        if self.num_workers > cores():
            warnings.warn(
                f"DataLoader: {self.num_workers} workers, but this process may use {cores()} cores: more workers than "
                "cores are slower, not faster",
                stacklevel=3,
            )

    def __iter__(self) -> Iterator[Any]:
        if self._iterator is not None and self._iterator.reset(self):
            return self._iterator
        if not self.num_workers:
            return SingleIterator(self)
        made = WorkerIterator(self)
        if self.persistent_workers:
            self._iterator = made
        return made

    def __len__(self) -> int:
        """Batches an epoch. For an iterable data set, what follows from its `__len__`: true if workers share it out."""
        if not self.iterable:
            return len(self.batch_sampler if self.together else self.sampler)  # type: ignore[arg-type]
        count = self._length_told = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    # position

    def state_dict(self) -> dict[str, Any]:
        """The position, with which another loader of the same arguments goes on with the next batch.

        {"yielded": batches given in the epoch that was begun last, 0 once it is over; "generators": the states, when
        that epoch began, of `generator` and those of the samplers; "default": of the default generator; "sampler": the
        sampler's own `state_dict()` then, if it has one}. Nothing but ints, lists and dicts, so that `save` takes it.
        Random numbers that a data set draws in workers are no part of it: they begin anew. Those drawn in this process
        are the default generators' of weftgrad, Python and NumPy, whose states are saved on their own.
        """
        progress = self._progress
        if progress is not None and progress.yielded and not progress.over:
            return {"yielded": progress.yielded, **progress.start}
        if self._resume is not None:
            return dict(self._resume)
        return {"yielded": 0, **self._position()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next iteration go on from a position of `state_dict`.

        Samples in front of it are not made again if samples have numbers; those of an iterable data set are, and are
        dropped. The default generator is not moved, so its own state may be restored before or after.
        """
        if not isinstance(state, dict) or not {"yielded", "generators", "default"} <= set(state):
            raise ArgumentError("DataLoader.load_state_dict: takes what state_dict() gave")
        if len(state["generators"]) != len(self._generators()):
            raise ArgumentError(
                f"DataLoader.load_state_dict: a position of a loader with {len(state['generators'])} generators; this "
                f"one has {len(self._generators())}"
            )
        self._resume = dict(state)
        self._progress = None
        if not state["yielded"]:
            self._restore(state)

    def _begin(self) -> tuple[Iterator[Any], int, int]:
        """Begin an epoch: the numbers of its batches, the workers' seed, and how many batches were given before."""
        resume, self._resume = self._resume, None
        skipped = resume["yielded"] if resume is not None else 0
        before = default_generator.initial_seed(), default_generator.offset
        if skipped:
            assert resume is not None
            self._restore(resume)
            default_generator.manual_seed(resume["default"][0]).offset = resume["default"][1]
        self._progress = Progress(self._position(), skipped)
        seed = draw_seed(self.generator)
        numbers = iter(self.batch_sampler if self.batch_sampler is not None else self.sampler)
        if skipped:
            if not self.iterable:
                for _ in range(skipped):
                    next(numbers, None)
            default_generator.manual_seed(before[0]).offset = before[1]
        return numbers, seed, skipped if self.iterable else 0

    def _position(self) -> dict[str, Any]:
        """What an epoch that begins now depends on."""
        found: dict[str, Any] = {
            "generators": [[g.initial_seed(), g.offset] for g in self._generators()],
            "default": [default_generator.initial_seed(), default_generator.offset],
        }
        stateful = self._stateful()
        if stateful is not None:
            found["sampler"] = stateful.state_dict()
        return found

    def _restore(self, state: dict[str, Any]) -> None:
        for generator, (seed, offset) in zip(self._generators(), state["generators"], strict=True):
            generator.manual_seed(seed).offset = offset
        stateful = self._stateful()
        if stateful is not None and "sampler" in state:
            stateful.load_state_dict(state["sampler"])

    def _samplers(self) -> list[Any]:
        return [self.batch_sampler, getattr(self.batch_sampler, "sampler", None), self.sampler]

    def _generators(self) -> list[Generator]:
        found = [getattr(each, "generator", None) for each in (self, *self._samplers())]
        return list({id(each): each for each in found if isinstance(each, Generator)}.values())

    def _stateful(self) -> Any:
        return next((each for each in self._samplers() if hasattr(each, "load_state_dict")), None)


def _check_numbers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool) -> None:
    if num_workers < 0:
        raise ArgumentError(f"DataLoader: num_workers must not be negative, got {num_workers}; 0 means no workers")
    if timeout < 0:
        raise ArgumentError(f"DataLoader: timeout must not be negative, got {timeout}")
    if prefetch_factor is not None and not num_workers:
        raise ArgumentError("DataLoader: prefetch_factor applies to workers; set num_workers, or leave it None")
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ArgumentError(f"DataLoader: prefetch_factor must be at least 1, got {prefetch_factor}")
    if persistent_workers and not num_workers:
        raise ArgumentError("DataLoader: persistent_workers needs num_workers above 0")
