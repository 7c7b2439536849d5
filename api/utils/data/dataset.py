"""Data sets: objects with `__getitem__` and `__len__` (map-style), or with `__iter__` (iterable-style)."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import accumulate
from typing import Generic, TypeVar

from ...random import Generator, host_permutation
from ...runtime.dtypes import Array
from ...runtime.errors import ArgumentError, IndexOutOfRange, NotSupported, ShapeError
from ...runtime.tensor import Tensor
from ._types import Sample, SampleIndex, Samples, SizedSamples, T_co

__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset",
    "random_split",
]  # fmt: skip

_T = TypeVar("_T")


def count_samples(dataset: object) -> int:
    """Return the length of a data set or a sampler.

    Raises:
        TypeError: If it has none.
    """
    if not isinstance(dataset, Sized):
        raise TypeError(f"object of type {type(dataset).__name__!r} has no len()")
    return len(dataset)


class Dataset(Generic[T_co]):
    """Samples by index: define `__getitem__(index)` and `__len__()`.

    If fetching many samples at once is faster, define `__getitems__(indices)` too, which returns a list of samples.

    Example:
        >>> class Squares(wg.utils.data.Dataset):
        ...     def __len__(self):
        ...         return 3
        ...     def __getitem__(self, index):
        ...         return index ** 2
        ...
        >>> list(wg.utils.data.DataLoader(Squares(), batch_size=3))
        [tensor([0, 1, 4])]
    """

    def __getitem__(self, index: SampleIndex) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} defines no __getitem__(index)")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """A stream of samples: define `__iter__()`.

    Every worker of a loader has a copy of the data set. If `__iter__` yields all samples, the loader gets each of them
    once per worker. So let it yield the share of its worker: `get_worker_info()` returns its `id` and `num_workers`.

    Example:
        >>> class Countdown(wg.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter([3, 2, 1])
        ...
        >>> list(wg.utils.data.DataLoader(Countdown(), batch_size=2))
        [tensor([3, 2]), tensor([1])]
    """

    def __add__(self, other: Dataset[T_co]) -> ChainDataset[T_co]:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is the tuple of row i of every tensor.

    Args:
        *tensors: Tensors with the same number of rows.

    Raises:
        ShapeError: If the numbers of rows differ, or a tensor has no dimension.

    Example:
        >>> wg.utils.data.TensorDataset(wg.tensor([1, 2]), wg.tensor([3, 4]))[1]
        (tensor(2), tensor(4))
    """

    def __init__(self, *tensors: Tensor):
        sizes = {t.meta.shape[0] if t.meta.ndim else None for t in tensors}
        if len(sizes) != 1 or None in sizes:
            raise ShapeError(
                "TensorDataset: the tensors must have the same number of rows, "
                f"but their shapes are {[list(t.meta.shape) for t in tensors]}"
            )
        self.tensors = tensors

    def __getitem__(self, index: SampleIndex) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].meta.shape[0]


class StackDataset(Dataset[Sample]):
    """Data sets in parallel: sample i is the tuple of their samples i, or a dict if they are keyword arguments.

    Args:
        *args: Data sets, for samples that are tuples.
        **kwargs: Data sets, for samples that are dicts.

    Raises:
        ArgumentError: If both or neither are passed, or lengths differ.

    Example:
        >>> wg.utils.data.StackDataset(x=[1, 2], y=[3, 4])[1]
        {'x': 2, 'y': 4}
    """

    datasets: tuple[SizedSamples[Sample], ...] | dict[str, SizedSamples[Sample]]

    def __init__(self, *args: SizedSamples[Sample], **kwargs: SizedSamples[Sample]):
        if bool(args) == bool(kwargs):
            raise ArgumentError("StackDataset: takes at least one data set, and all by position or all by name")
        self.datasets = kwargs or args
        lengths = [len(dataset) for dataset in (args or kwargs.values())]
        if len(set(lengths)) > 1:
            raise ArgumentError(f"StackDataset: the data sets must have the same length, but they have {lengths}")
        self._length = lengths[0]

    def __getitem__(self, index: SampleIndex) -> Sample:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: list[SampleIndex]) -> list[Sample]:
        """Return the samples with these indices, with one call per data set if it defines `__getitems__`."""
        names = list(self.datasets) if isinstance(self.datasets, dict) else None
        datasets = self.datasets.values() if isinstance(self.datasets, dict) else self.datasets
        rows = zip(*(_fetch_samples(dataset, indices) for dataset in datasets), strict=True)
        return list(rows) if names is None else [dict(zip(names, row, strict=True)) for row in rows]

    def __len__(self) -> int:
        return self._length


def _fetch_samples(dataset: Samples[_T], indices: list[SampleIndex]) -> list[_T]:
    """Return the samples with these indices, with one call if the data set defines `__getitems__`."""
    fetch = getattr(dataset, "__getitems__", None)
    if not callable(fetch):
        return [dataset[i] for i in indices]
    samples = fetch(indices)
    if len(samples) != len(indices):
        raise ArgumentError(
            f"{type(dataset).__name__}.__getitems__: returned {len(samples)} samples for {len(indices)} indices"
        )
    return samples


class Subset(Dataset[T_co]):
    """A subset of another data set. A subclass that defines `__getitem__` must define `__getitems__` too.

    Args:
        dataset: The data set.
        indices: Indices of the samples.

    Raises:
        NotSupported: If a subclass defines `__getitem__` but not `__getitems__`.

    Example:
        >>> list(wg.utils.data.Subset([10, 20, 30], [2, 0]))
        [30, 10]
    """

    def __init__(self, dataset: Samples[T_co], indices: Sequence[int] | Tensor | Array):
        self.dataset = dataset
        self.indices = indices
        kind = type(self)
        if kind.__getitem__ is not Subset.__getitem__ and kind.__getitems__ is Subset.__getitems__:
            raise NotSupported(
                f"{kind.__name__} defines __getitem__ but not __getitems__, which the loader calls: define "
                "`def __getitems__(self, indices): return [self[i] for i in indices]`"
            )

    def __getitem__(self, index: SampleIndex) -> T_co:
        if isinstance(index, list):  # a data set such as TensorDataset takes a list of indices
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        """Return the samples with these indices."""
        return _fetch_samples(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[T_co]):
    """The concatenation of data sets.

    Args:
        datasets: Data sets with a length.

    Raises:
        ArgumentError: If there is no data set, or one is an `IterableDataset`.

    Example:
        >>> from weftgrad.utils.data import ConcatDataset, TensorDataset
        >>> ConcatDataset([TensorDataset(wg.tensor([1])), TensorDataset(wg.tensor([2, 3]))])[2]
        (tensor(3),)
    """

    def __init__(self, datasets: Iterable[Samples[T_co]]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("ConcatDataset: takes at least one data set")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ArgumentError("ConcatDataset: an IterableDataset cannot be indexed; use ChainDataset")
        self.cumulative_sizes = list(accumulate(count_samples(d) for d in self.datasets))

    def __getitem__(self, index: int) -> T_co:
        count = len(self)
        if not -count <= index < count:
            raise IndexOutOfRange(f"index {index} is out of range of {count} samples")
        index %= count
        dataset_index = bisect_right(self.cumulative_sizes, index)
        return self.datasets[dataset_index][index - (self.cumulative_sizes[dataset_index - 1] if dataset_index else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[T_co]):
    """The concatenation of iterable data sets.

    Args:
        datasets: Data sets, each an `IterableDataset`.

    Raises:
        ArgumentError: From iteration, if a data set is no `IterableDataset`.

    Example:
        >>> from weftgrad.utils.data import ChainDataset, IterableDataset
        >>> class Count(IterableDataset):
        ...     def __iter__(self):
        ...         return iter([1, 2])
        ...
        >>> list(ChainDataset([Count(), Count()]))
        [1, 2, 1, 2]
    """

    def __init__(self, datasets: Iterable[Dataset[T_co]]):
        self.datasets = datasets

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self.datasets:
            yield from _check_iterable(dataset)

    def __len__(self) -> int:
        return sum(count_samples(_check_iterable(dataset)) for dataset in self.datasets)


def _check_iterable(dataset: Dataset[_T]) -> IterableDataset[_T]:
    if not isinstance(dataset, IterableDataset):
        raise ArgumentError(f"ChainDataset: chains IterableDatasets, not {type(dataset).__name__}")
    return dataset


def random_split(
    dataset: Samples[_T], lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset[_T]]:
    """Split a data set into disjoint random subsets, and warn if one is empty.

    Args:
        dataset: The data set.
        lengths: The lengths of the subsets, or fractions that add up to 1. Fractions of the length are rounded down;
            the remaining samples go to the first subsets, one each.
        generator: Draws the order; None: the default generator.

    Returns:
        One `Subset` per length.

    Raises:
        ArgumentError: The lengths do not add up to the number of samples.

    Example:
        >>> [len(part) for part in wg.utils.data.random_split(range(10), [0.7, 0.3])]
        [7, 3]
    """
    count = count_samples(dataset)
    sizes = list(lengths)
    if math.isclose(sum(sizes), 1) and sum(sizes) <= 1:
        invalid = [(i, n) for i, n in enumerate(sizes) if not 0 <= n <= 1]
        if invalid:
            raise ArgumentError(
                f"random_split: the fraction with index {invalid[0][0]}, {invalid[0][1]}, is not between 0 and 1"
            )
        sizes = [math.floor(count * n) for n in sizes]
        for i in range(count - int(sum(sizes))):
            sizes[i % len(sizes)] += 1
        for i, n in enumerate(sizes):
            if n == 0:
                warnings.warn(f"random_split: the subset with index {i} is empty", stacklevel=2)
    if sum(sizes) != count:
        raise ArgumentError(f"random_split: lengths {list(lengths)} do not add up to {count} samples")
    order = host_permutation(count, generator)
    ends = accumulate(int(n) for n in sizes)
    return [Subset(dataset, order[end - int(n) : end]) for n, end in zip(sizes, ends, strict=True)]
