"""From numbers of samples to a batch: what the loader does itself without workers, and a worker for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .collate import default_collate, rows
from .dataset import Subset, TensorDataset

__all__ = ["Fetcher", "Recipe"]


class Recipe:
    """How batches of a loader are made. together: whether samples come as batches."""

    def __init__(self, dataset: Any, collate_fn: Any, iterable: bool, together: bool, drop_last: bool):
        self.dataset, self.collate_fn = dataset, collate_fn
        self.iterable, self.together, self.drop_last = iterable, together, drop_last


class Fetcher:
    """Makes batches for one pass over a data set; `fetch` raises `StopIteration` where an iterable one has ended."""

    def __init__(self, recipe: Recipe):
        self._recipe = recipe
        self._dataset = recipe.dataset
        self._samples: Iterator[Any] | None = iter(recipe.dataset) if recipe.iterable else None
        many = getattr(recipe.dataset, "__getitems__", None)
        self._many = many if callable(many) else None
        plain = recipe.collate_fn is default_collate and recipe.together and not recipe.iterable
        self._rows = _whole_rows(recipe.dataset) if plain else None

    def fetch(self, index: Any) -> Any:
        """The batch of a list of numbers, or the sample of one."""
        recipe = self._recipe
        if self._samples is not None:
            return self._next(len(index) if recipe.together else 0)
        if self._rows is not None:
            tensors, chosen = self._rows
            return rows(tensors, index if chosen is None else [chosen[i] for i in index])
        try:
            if not recipe.together:
                return recipe.collate_fn(self._dataset[index])
            samples = self._many(index) if self._many is not None else [self._dataset[i] for i in index]
            return recipe.collate_fn(samples)
        except StopIteration as error:  # which would end the epoch, and nobody would know
            raise RuntimeError(f"the data set or collate_fn raised StopIteration for samples {index}") from error

    def _next(self, count: int) -> Any:
        assert self._samples is not None
        recipe = self._recipe
        if not recipe.together:
            return recipe.collate_fn(next(self._samples))
        batch = []
        for sample in self._samples:
            batch.append(sample)
            if len(batch) == count:
                break
        if not batch or (recipe.drop_last and len(batch) < count):
            raise StopIteration
        return recipe.collate_fn(batch)


def _whole_rows(dataset: Any) -> tuple[Any, Any] | None:
    """The tensors of a `TensorDataset` whose rows can be taken a batch at a time, and a subset's numbers of rows."""
    if type(dataset) is TensorDataset:
        return dataset.tensors, None
    if type(dataset) is Subset and type(dataset.dataset) is TensorDataset:
        return dataset.dataset.tensors, dataset.indices
    return None
