"""`DataLoader`: iterate over a data set in batches of tensors. `iterating` makes an epoch, `workers` runs processes."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import Generic

from ...random import Generator, default_generator
from ...runtime.backends.processor import cores
from ...runtime.errors import ArgumentError
from ._types import (
    Batch,
    Collate,
    EpochStart,
    Position,
    SampleIndex,
    Samples,
    StateDict,
    StatefulSampler,
    T_co,
    UserDataset,
)
from .collate import default_collate, default_convert
from .dataset import IterableDataset, count_samples
from .iterating import Progress, SingleIterator, WorkerIterator
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed
from .workers import start_context

__all__ = ["DataLoader"]

_READ_ONLY_ATTRIBUTES = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _InfiniteSampler(Sampler[None]):
    """A sampler for iterable data sets, whose samples have no index: yields None without end."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(Generic[T_co]):
    """Iterate over `dataset` in batches, in order or shuffled, in this process or with worker processes.

    Worker processes start by `fork` on Linux, as in PyTorch, and inherit the data set. Once the library of OpenCL or
    CUDA has been loaded, which does not survive a fork, they start by `forkserver`: they import the main module, which
    must do its work under `if __name__ == "__main__":`, and each gets the data set once, when iteration begins. Of
    that, tensors of 64 KiB and more are shared, so do not write to them; all else is pickled. Batches return in shared
    memory, without a copy, as `cpu` tensors. Worker i seeds the random generators of weftgrad, Python and NumPy with
    base + i, where base is drawn from `generator`, and then calls `worker_init_fn(i)`.

    An exception in a worker is raised here in place of its batch, with the worker's traceback, and iteration can
    continue. A worker that is killed or exits raises `WorkerError` at once, with its pid and signal, and the other
    workers are ended. Workers also end with the iterator, and with this process, however it ends.

    `state_dict()` returns the position within an epoch, to continue exactly there. More workers than cores cause a
    warning.

    Args:
        dataset: A data set with `__getitem__` and `__len__`, or an `IterableDataset`.
        batch_size: Samples per batch; None yields single samples, through `default_convert`.
        shuffle: Draw a random order.
        sampler: The order, as an iterable of indices. At most one of shuffle, sampler and batch_sampler may be used.
        batch_sampler: The batches, as an iterable of lists of indices. Excludes batch_size and drop_last, too.
        num_workers: The number of worker processes; 0 makes the batches in this process.
        collate_fn: Makes a batch of a list of samples, or converts one sample if the loader makes no batches. None:
            `default_collate` or `default_convert`.
        pin_memory: Put batches into page-locked memory for fast copies to a CUDA device, if there is one.
        drop_last: Leave out a last batch that is shorter.
        timeout: Seconds to wait for a batch before `WorkerTimeout`; 0 waits as long as the workers live.
        worker_init_fn: Called in each worker with its number.
        multiprocessing_context: A start method or a context of multiprocessing; None: as above.
        generator: Draws the order and the workers' seeds; None: the default generator. The same state gives the same
            order in every run and for every number of workers.
        prefetch_factor: Batches that each worker makes ahead; None: 2.
        persistent_workers: Keep the workers for the next epoch.
        pin_memory_device: The CUDA device to lock memory for; "": the first one.
        in_order: Yield batches in order; False yields each batch as soon as it is ready.

    Raises:
        ArgumentError: If options exclude each other, a number is out of range, or workers cannot be started by the
            method of `multiprocessing_context`.

    Example:
        >>> loader = wg.utils.data.DataLoader(wg.utils.data.TensorDataset(wg.arange(5)), batch_size=2)
        >>> for (batch,) in loader:
        ...     print(batch)
        ...
        tensor([0, 1])
        tensor([2, 3])
        tensor([4])
    """

    __initialized = False

    def __init__(
        self,
        dataset: Samples[T_co] | Iterable[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[SampleIndex] | None = None,
        batch_sampler: Iterable[SampleIndex] | None = None,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ):
        _check_worker_options(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset: UserDataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.is_iterable = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
        if self.is_iterable and (shuffle or sampler is not None or batch_sampler is not None):
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
            if self.is_iterable:
                sampler = _InfiniteSampler()
            else:
                sampler = _index_sampler(dataset, bool(shuffle), generator)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        self.is_batched = batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if self.is_batched else default_convert)
        self.persistent_workers = persistent_workers
        self._iterator: WorkerIterator | None = None
        self._progress: Progress | None = None
        self._resume_position: Position | None = None
        # The length of an iterable data set, once `__len__` has read it. Iterators warn if more samples come.
        self._expected_length: int | None = None
        self.__initialized = True
        self.check_worker_number_rationality()

    def __setattr__(self, name: str, value: object) -> None:
        if self.__initialized and name in _READ_ONLY_ATTRIBUTES:
            raise ArgumentError(f"DataLoader: {name} cannot be changed; make a new loader")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> BaseContext | None:
        """The multiprocessing context that starts workers; None for the default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: str | BaseContext | None) -> None:
        if context is not None:
            if not self.num_workers:
                raise ArgumentError("DataLoader: multiprocessing_context applies to workers; set num_workers")
            if isinstance(context, str):
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ArgumentError(f"DataLoader: multiprocessing_context {context!r} is none of {methods}")
                context = multiprocessing.get_context(context)
            if not isinstance(context, BaseContext):
                raise ArgumentError(
                    "DataLoader: multiprocessing_context is a start method's name or a context of multiprocessing, "
                    f"not {type(context).__name__}"
                )
            start_context(context)
        self._context = context

    def check_worker_number_rationality(self) -> None:
        """Warn if there are more workers than cores available to this process.

        Example:
            >>> wg.utils.data.DataLoader([1, 2], num_workers=1).check_worker_number_rationality()
        """
        if self.num_workers > cores():
            warnings.warn(
                f"DataLoader: {self.num_workers} workers, but this process may use {cores()} cores: more workers than "
                "cores are slower, not faster",
                stacklevel=3,
            )

    def __iter__(self) -> Iterator[Batch]:
        if self._iterator is not None and self._iterator.reset(self):
            return self._iterator
        if not self.num_workers:
            return SingleIterator(self)
        iterator = WorkerIterator(self)
        if self.persistent_workers:
            self._iterator = iterator
        return iterator

    def __len__(self) -> int:
        """Return the number of batches per epoch.

        For an iterable data set it is computed from the data set's length, and so assumes that every sample comes from
        one worker only.
        """
        if not self.is_iterable:
            return count_samples(self.batch_sampler if self.is_batched else self.sampler)
        count = self._expected_length = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    # position

    def state_dict(self) -> StateDict:
        """Return the position, from which another loader with the same arguments continues with the next batch.

        It contains only ints, lists and dicts, so that `save` accepts it. It does not include random numbers that the
        data set draws: in workers these start again; in this process they come from the default generators of
        weftgrad, Python and NumPy, whose states you save separately.

        Returns:
            {"yielded": number of batches yielded in the current epoch, 0 once it is over; "generators": states of
            `generator` and of the samplers' generators; "default": state of the default generator; "sampler": the
            sampler's own `state_dict()`, if it has one}. All states are those at the start of the epoch.

        Example:
            >>> loader = wg.utils.data.DataLoader([10, 20, 30])
            >>> batches = iter(loader)
            >>> next(batches)
            tensor([10])
            >>> loader.state_dict()['yielded']
            1
        """
        progress = self._progress
        if progress is not None and progress.yielded and not progress.is_complete:
            return {"yielded": progress.yielded, **progress.start}
        if self._resume_position is not None:
            return dict(self._resume_position)
        return {"yielded": 0, **self._epoch_start()}

    def load_state_dict(self, state: StateDict) -> None:
        """Let the next iteration continue from a position returned by `state_dict`.

        Earlier samples are skipped if samples have indices; those of an iterable data set are computed and dropped. The
        default generator is not changed, so its own state can be restored before or after.

        Args:
            state: Result of `state_dict`.

        Raises:
            ArgumentError: If `state` does not come from `state_dict`, or comes from a loader with another number of
                generators.

        Example:
            >>> loader = wg.utils.data.DataLoader([10, 20, 30])
            >>> next(iter(loader))
            tensor([10])
            >>> resumed = wg.utils.data.DataLoader([10, 20, 30])
            >>> resumed.load_state_dict(loader.state_dict())
            >>> list(resumed)
            [tensor([20]), tensor([30])]
        """
        if not isinstance(state, dict) or not {"yielded", "generators", "default"} <= set(state):
            raise ArgumentError("DataLoader.load_state_dict: takes what state_dict() returned")
        if len(state["generators"]) != len(self._generators()):
            raise ArgumentError(
                f"DataLoader.load_state_dict: a position of a loader with {len(state['generators'])} generators; this "
                f"one has {len(self._generators())}"
            )
        position: Position = {
            "yielded": state["yielded"], "generators": state["generators"], "default": state["default"],
        }  # fmt: skip
        if "sampler" in state:
            position["sampler"] = state["sampler"]
        self._resume_position = position
        self._progress = None
        if not position["yielded"]:
            self._restore(position)

    def _begin(self) -> tuple[Iterator[SampleIndex], int, int]:
        """Begin an epoch.

        Returns:
            The indices of its batches, the workers' seed, and the number of batches that the iterator has to compute
            and drop. That number is 0 if samples have indices, because this method skips the indices.
        """
        position, self._resume_position = self._resume_position, None
        batches_to_skip = 0 if position is None else position["yielded"]
        default_state = _generator_state(default_generator)
        if position is not None and batches_to_skip:  # draw the seed and the order as at the start of the saved epoch
            self._restore(position)
            _set_generator_state(default_generator, position["default"])
        self._progress = Progress(self._epoch_start(), batches_to_skip)
        seed = draw_seed(self.generator)
        indices = iter(self.batch_sampler if self.batch_sampler is not None else self.sampler)
        if batches_to_skip:
            if not self.is_iterable:
                for _ in range(batches_to_skip):
                    next(indices, None)
            _set_generator_state(default_generator, default_state)  # the program may have restored it already
        return indices, seed, batches_to_skip if self.is_iterable else 0

    def _epoch_start(self) -> EpochStart:
        """Return the states that an epoch beginning now depends on."""
        position: EpochStart = {
            "generators": [_generator_state(generator) for generator in self._generators()],
            "default": _generator_state(default_generator),
        }
        stateful_sampler = self._stateful_sampler()
        if stateful_sampler is not None:
            position["sampler"] = stateful_sampler.state_dict()
        return position

    def _restore(self, state: EpochStart) -> None:
        """Restore the states of the loader's and the samplers' generators, and of the sampler."""
        for generator, generator_state in zip(self._generators(), state["generators"], strict=True):
            _set_generator_state(generator, generator_state)
        stateful_sampler = self._stateful_sampler()
        if stateful_sampler is not None and "sampler" in state:
            stateful_sampler.load_state_dict(state["sampler"])

    def _samplers(self) -> list[object]:
        """Return the batch sampler, its sampler, and the sampler; None in place of one that does not exist."""
        return [self.batch_sampler, getattr(self.batch_sampler, "sampler", None), self.sampler]

    def _generators(self) -> list[Generator]:
        """Return the generators of the loader and of its samplers, each once."""
        candidates = [getattr(owner, "generator", None) for owner in (self, *self._samplers())]
        return list({id(g): g for g in candidates if isinstance(g, Generator)}.values())

    def _stateful_sampler(self) -> StatefulSampler | None:
        return next((sampler for sampler in self._samplers() if isinstance(sampler, StatefulSampler)), None)


def _index_sampler(dataset: UserDataset, shuffle: bool, generator: Generator | None) -> Sampler[int]:
    return RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)


def _generator_state(generator: Generator) -> list[int]:
    return [generator.initial_seed(), generator.offset]


def _set_generator_state(generator: Generator, state: list[int]) -> None:
    seed, offset = state
    generator.manual_seed(seed).offset = offset


def _check_worker_options(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if num_workers < 0:
        raise ArgumentError(f"DataLoader: num_workers must not be negative, got {num_workers}; 0 means no workers")
    if timeout < 0:
        raise ArgumentError(f"DataLoader: timeout must not be negative, got {timeout}")
    if prefetch_factor is not None and not num_workers:
        raise ArgumentError(
            "DataLoader: prefetch_factor applies to workers; set num_workers, or leave prefetch_factor out"
        )
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ArgumentError(f"DataLoader: prefetch_factor must be at least 1, got {prefetch_factor}")
    if persistent_workers and not num_workers:
        raise ArgumentError("DataLoader: persistent_workers needs num_workers above 0")
