"""In which order samples are taken, and how they are grouped.

An order is drawn on the host from a `Generator`, without a kernel: the same state gives the same order on every
machine. (The numbers are not those that PyTorch draws from the same seed.)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ... import _hosting
from ...factories import tensor
from ...random import Generator, default_generator, multinomial, philox, randperm
from ...runtime import dtypes
from ...runtime.errors import ArgumentError, ShapeError
from ...runtime.tensor import Tensor

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
    "draw_seed",
]  # fmt: skip


def draw_seed(generator: Generator | None) -> int:
    """An integer of 63 bits from a generator (None: the default one), as seed for others."""
    return int(philox(1, *(generator or default_generator).take(1))[0]) >> 1


def _permutation(count: int, generator: Generator | None) -> list[int]:
    return randperm(count, generator=generator, device="cpu").tolist()  # type: ignore[no-any-return]


class Sampler:
    """Numbers of samples: define `__iter__()`, and `__len__()` where it is known."""

    def __init__(self, data_source: Any = None):
        pass

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__()")

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


class SequentialSampler(Sampler):
    """0, 1, 2, …."""

    def __init__(self, data_source: Any):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """All samples in random order, or `num_samples` of them, each drawn from all if `replacement`.

    Without a generator, a seed for the whole order is drawn from the default one when iteration begins, so that what
    else is drawn meanwhile does not matter.
    """

    def __init__(
        self,
        data_source: Any,
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
        _positive(self.num_samples, "RandomSampler: num_samples")

    @property
    def num_samples(self) -> int:
        """How many are drawn: as given, else the length of the data set now."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        count = len(self.data_source)
        generator = self.generator
        if generator is None:
            generator = Generator().manual_seed(draw_seed(None))
        if self.replacement:
            left = self.num_samples
            while left > 0:  # piece by piece: there may be no end in sight
                words = philox(min(left, 1024), *generator.take(1))
                yield from (words % np.uint64(count)).tolist()
                left -= len(words)
            return
        for _ in range(self.num_samples // count):
            yield from _permutation(count, generator)
        rest = self.num_samples % count
        if rest:
            yield from _permutation(count, generator)[:rest]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Given numbers in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in _permutation(len(self.indices), self.generator):
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """`num_samples` of the numbers 0 to len(weights) - 1, with probabilities in proportion to `weights`.

    weights: a sequence of numbers that are not negative, kept in float64. Without `replacement` no number comes twice.
    Raises `ArgumentError` for more samples than can be drawn without replacement.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ):
        _positive(num_samples, "WeightedRandomSampler: num_samples")
        if not isinstance(replacement, bool):
            raise ArgumentError(f"WeightedRandomSampler: replacement must be a bool, not {replacement!r}")
        values = _hosting.host_array(weights.detach()) if isinstance(weights, Tensor) else np.asarray(weights)
        if values.ndim != 1:
            raise ShapeError(f"WeightedRandomSampler: weights are a sequence of numbers, not of shape {values.shape}")
        self.weights = tensor(values.astype(np.float64), dtype=dtypes.float64, device="cpu")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn: Any = multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of `batch_size` numbers of another sampler; the last one is shorter, or left out with `drop_last`."""

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool):
        _positive(batch_size, "BatchSampler: batch_size")
        if not isinstance(drop_last, bool):
            raise ArgumentError(f"BatchSampler: drop_last must be a bool, not {drop_last!r}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def _positive(number: Any, what: str) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ArgumentError(f"{what} must be a positive int, not {number!r}")
