"""Make a batch from sample indices, in the loader's process or in a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...runtime.dtypes import Array
from ...runtime.tensor import Tensor
from ._types import Batch, Collate, Sample, SampleIndex, UserDataset
from .collate import default_collate, select_rows
from .dataset import Subset, TensorDataset

__all__ = ["Fetcher", "Recipe"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a loader makes batches.

    Attributes:
        dataset: The data set.
        collate_fn: Makes a batch of a list of samples; of one sample, if `is_batched` is False.
        is_iterable: Whether the data set is iterated over, because its samples have no indices.
        is_batched: Whether samples are combined into batches.
        drop_last: Whether a last batch that is shorter is dropped.
    """

    dataset: UserDataset
    collate_fn: Collate
    is_iterable: bool
    is_batched: bool
    drop_last: bool


class Fetcher:
    """Makes batches for one pass over a data set. `fetch` raises `StopIteration` at the end of an iterable one."""

    def __init__(self, recipe: Recipe):
        self._recipe = recipe
        self._dataset = recipe.dataset
        self._samples: Iterator[Sample] | None = iter(recipe.dataset) if recipe.is_iterable else None
        fetch_many = getattr(recipe.dataset, "__getitems__", None)
        self._fetch_many = fetch_many if callable(fetch_many) else None
        is_plain = recipe.collate_fn is default_collate and recipe.is_batched and not recipe.is_iterable
        self._rows = _tensor_rows(recipe.dataset) if is_plain else None

    def fetch(self, index: SampleIndex) -> Batch:
        """Return the batch of a list of indices, or the sample of one index."""
        recipe = self._recipe
        if self._samples is not None:
            return self._next(len(index) if recipe.is_batched else 0)
        if self._rows is not None:
            tensors, indices = self._rows
            return select_rows(tensors, index if indices is None else [indices[i] for i in index])
        try:
            if not recipe.is_batched:
                return recipe.collate_fn(self._dataset[index])
            samples = self._fetch_many(index) if self._fetch_many is not None else [self._dataset[i] for i in index]
            return recipe.collate_fn(samples)
        except StopIteration as error:  # otherwise it would end the epoch silently
            raise RuntimeError(f"the data set or collate_fn raised StopIteration for samples {index}") from error

    def _next(self, count: int) -> Batch:
        assert self._samples is not None
        recipe = self._recipe
        if not recipe.is_batched:
            return recipe.collate_fn(next(self._samples))
        batch = []
        for sample in self._samples:
            batch.append(sample)
            if len(batch) == count:
                break
        if not batch or (recipe.drop_last and len(batch) < count):
            raise StopIteration
        return recipe.collate_fn(batch)


def _tensor_rows(
    dataset: UserDataset,
) -> tuple[tuple[Tensor, ...], Sequence[SampleIndex] | Tensor | Array | None] | None:
    """Return the tensors of a `TensorDataset`, and the indices of its subset or None; None for other data sets."""
    if type(dataset) is TensorDataset:
        return dataset.tensors, None
    if type(dataset) is Subset and type(dataset.dataset) is TensorDataset:
        return dataset.dataset.tensors, dataset.indices
    return None
