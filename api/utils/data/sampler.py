"""In which order samples are taken, and how they are grouped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...random import Generator, randint, randperm
from ...runtime.errors import ArgumentError

__all__ = ["BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler"]


class Sampler:
    """Numbers of samples: define `__iter__()`, and `__len__()` where it is known."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__()")


class SequentialSampler(Sampler):
    """0, 1, 2, …."""

    def __init__(self, data_source: Any):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """All samples in random order, or `num_samples` of them, each drawn from all if `replacement`."""

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ):
        self.data_source = data_source
        self.replacement = replacement
        self.num_samples = len(data_source) if num_samples is None else num_samples
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        count = len(self.data_source)
        if self.replacement:
            drawn: Any = randint(0, count, (self.num_samples,), generator=self.generator, device="cpu")
            yield from drawn.tolist()
            return
        left = self.num_samples
        while left > 0:
            order: list[int] = randperm(count, generator=self.generator, device="cpu").tolist()  # type: ignore[attr-defined]
            yield from order[:left]
            left -= count

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Given numbers in random order."""

    def __init__(self, indices: Iterable[int], generator: Generator | None = None):
        self.indices = list(indices)
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        order: Any = randperm(len(self.indices), generator=self.generator, device="cpu")
        return (self.indices[i] for i in order.tolist())

    def __len__(self) -> int:
        return len(self.indices)


class BatchSampler(Sampler):
    """Lists of `batch_size` numbers of another sampler; the last one is shorter, or left out with `drop_last`."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool):
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ArgumentError(f"batch_size must be a positive int, not {batch_size!r}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        batch: list[Any] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
