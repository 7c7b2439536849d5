"""Samplers: the order of samples, and their grouping into batches.

Random orders are drawn on the host from a `Generator`, without a kernel. The same state gives the same order on every
machine, but not the order that PyTorch draws from the same seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Generic

import numpy as np

from ...creation.from_data import tensor
from ...random import Generator, default_generator, host_permutation, multinomial, philox
from ...runtime import dtypes, host_data
from ...runtime.dtypes import Array
from ...runtime.errors import ArgumentError, ShapeError
from ...runtime.tensor import Tensor
from ._types import SampleIndex, SizedSamples, T_co
from .dataset import count_samples

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
    "draw_seed",
]  # fmt: skip


def draw_seed(generator: Generator | None) -> int:
    """Draw a 63-bit integer from a generator (None: the default one), to seed other generators."""
    return int(philox(1, *(generator or default_generator).take(1))[0]) >> 1


class Sampler(Generic[T_co]):
    """The base of samplers: define `__iter__()`, which yields indices, and `__len__()` if it is known.

    Args:
        data_source: Ignored.

    Example:
        >>> class Backwards(wg.utils.data.Sampler):
        ...     def __iter__(self):
        ...         return iter([2, 1, 0])
        ...
        >>> list(wg.utils.data.DataLoader(range(3), batch_size=3, sampler=Backwards()))
        [tensor([2, 1, 0])]
    """

    def __init__(self, data_source: object = None):
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__()")


class SequentialSampler(Sampler[int]):
    """All indices in order: 0, 1, 2, ….

    Args:
        data_source: The data set, or any object with a length.

    Example:
        >>> list(wg.utils.data.SequentialSampler(range(3)))
        [0, 1, 2]
    """

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All samples in random order, or `num_samples` of them, drawn with or without `replacement`.

    Without a generator, the default generator draws one seed for the whole order when iteration begins. So other
    random draws during the iteration do not change the order.

    Args:
        data_source: The data set, or any object with a length.
        replacement: Draw each sample independently.
        num_samples: Number of samples to draw; None: as many as the data set has.
        generator: Source of random numbers; None: the default generator.

    Raises:
        ArgumentError: If `replacement` is not a bool, or the number of samples is not a positive int.

    Example:
        >>> sorted(wg.utils.data.RandomSampler(range(4)))
        [0, 1, 2, 3]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ):
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise ArgumentError(f"RandomSampler: replacement must be a bool, not {replacement!r}")
        _check_positive(self.num_samples, "RandomSampler: num_samples")

    @property
    def num_samples(self) -> int:
        """The number of samples drawn; by default the current length of the data set."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        count = len(self.data_source)
        generator = self.generator
        if generator is None:
            generator = Generator().manual_seed(draw_seed(None))
        if self.replacement:
            remaining = self.num_samples
            while remaining > 0:  # in blocks: num_samples may be huge
                words = philox(min(remaining, 1024), *generator.take(1))
                yield from (words % np.uint64(count)).tolist()
                remaining -= len(words)
            return
        for _ in range(self.num_samples // count):
            yield from host_permutation(count, generator)
        remainder = self.num_samples % count
        if remainder:
            yield from host_permutation(count, generator)[:remainder]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[T_co]):
    """The elements of `indices` in random order.

    Args:
        indices: Sequence of indices.
        generator: Source of random numbers; None: the default generator.

    Example:
        >>> sorted(wg.utils.data.SubsetRandomSampler([7, 5, 3]))
        [3, 5, 7]
    """

    def __init__(self, indices: SizedSamples[T_co], generator: Generator | None = None):
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[T_co]:
        for i in host_permutation(len(self.indices), self.generator):
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Draws `num_samples` indices from 0 to len(weights) - 1, with probabilities proportional to `weights`.

    Args:
        weights: Nonnegative numbers, stored as float64.
        num_samples: Number of indices to draw.
        replacement: Whether an index may be drawn several times.
        generator: Source of random numbers; None: the default generator.

    Raises:
        ArgumentError: If `num_samples` is not a positive int, or `replacement` is not a bool. Iteration raises it if
            weights are negative or all 0, or if there are fewer weights than samples to draw without replacement.
        ShapeError: If `weights` is not 1-D.

    Example:
        >>> list(wg.utils.data.WeightedRandomSampler([0.0, 1.0, 0.0], 2))
        [1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float] | Tensor | Array,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ):
        _check_positive(num_samples, "WeightedRandomSampler: num_samples")
        if not isinstance(replacement, bool):
            raise ArgumentError(f"WeightedRandomSampler: replacement must be a bool, not {replacement!r}")
        values = host_data.host_array(weights.detach()) if isinstance(weights, Tensor) else np.asarray(weights)
        if values.ndim != 1:
            raise ShapeError(f"WeightedRandomSampler: weights are a sequence of numbers, not of shape {values.shape}")
        self.weights = tensor(values.astype(np.float64), dtype=dtypes.float64, device="cpu")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        indices = multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from indices.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[SampleIndex]]):
    """Groups the indices of another sampler into lists of `batch_size`.

    Args:
        sampler: Iterable of indices.
        batch_size: Indices per list.
        drop_last: Leave out a shorter last list.

    Raises:
        ArgumentError: If `batch_size` is not a positive int, or `drop_last` is not a bool.

    Example:
        >>> list(wg.utils.data.BatchSampler(range(5), 2, drop_last=False))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[SampleIndex], batch_size: int, drop_last: bool):
        _check_positive(batch_size, "BatchSampler: batch_size")
        if not isinstance(drop_last, bool):
            raise ArgumentError(f"BatchSampler: drop_last must be a bool, not {drop_last!r}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[SampleIndex]]:
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch

    def __len__(self) -> int:
        count = count_samples(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def _check_positive(number: object, name: str) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ArgumentError(f"{name} must be a positive int, not {number!r}")
