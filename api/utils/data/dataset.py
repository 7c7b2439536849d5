"""Data sets: anything with `__getitem__` and `__len__`, or with `__iter__`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from ...random import Generator, randperm
from ...runtime.errors import ArgumentError, ShapeError
from ...runtime.tensor import Tensor

__all__ = ["ConcatDataset", "Dataset", "IterableDataset", "Subset", "TensorDataset", "random_split"]


class Dataset:
    """Samples by number: define `__getitem__(index)` and `__len__()`."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no __getitem__(index)")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset:
    """Samples in the order in which they come: define `__iter__()`."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__()")


class TensorDataset(Dataset):
    """Sample i is row i of every tensor."""

    def __init__(self, *tensors: Tensor):
        sizes = {t.meta.shape[0] if t.meta.ndim else None for t in tensors}
        if len(sizes) != 1 or None in sizes:
            raise ShapeError(
                "TensorDataset: tensors of as many rows each are wanted, "
                f"not shapes {[list(t.meta.shape) for t in tensors]}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(t[index] for t in self.tensors)  # type: ignore[index]

    def __len__(self) -> int:
        return self.tensors[0].meta.shape[0]


class Subset(Dataset):
    """Some samples of another data set."""

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Data sets one after the other."""

    def __init__(self, datasets: Sequence[Any]):
        if not datasets:
            raise ArgumentError("ConcatDataset: takes at least one data set")
        self.datasets = list(datasets)
        self.ends = list(accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range of {len(self)} samples")
        index %= len(self)
        which = bisect_right(self.ends, index)
        return self.datasets[which][index - (self.ends[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.ends[-1]


def random_split(dataset: Any, lengths: Sequence[float], generator: Generator | None = None) -> list[Subset]:
    """Disjoint random subsets of given lengths, or of fractions that add up to 1."""
    count = len(dataset)
    sizes = list(lengths)
    if abs(sum(sizes) - 1) < 1e-6 and all(isinstance(n, float) for n in sizes):
        whole = [int(count * n) for n in sizes]
        for i in range(count - sum(whole)):
            whole[i % len(whole)] += 1
        sizes = list(whole)
    if sum(sizes) != count:
        raise ArgumentError(f"random_split: lengths {list(lengths)} do not add up to {count} samples")
    order: list[int] = randperm(count, generator=generator, device="cpu").tolist()  # type: ignore[attr-defined]
    ends = list(accumulate(int(n) for n in sizes))
    return [Subset(dataset, order[end - int(n) : end]) for n, end in zip(sizes, ends, strict=True)]
