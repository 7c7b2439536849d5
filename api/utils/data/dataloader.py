"""`DataLoader`: batches of a data set, as tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ...factories import tensor
from ...joining import stack
from ...random import Generator
from ...runtime import dtypes
from ...runtime.errors import ArgumentError, NotSupported
from ...runtime.tensor import Tensor
from .dataset import IterableDataset, TensorDataset
from .sampler import BatchSampler, RandomSampler, SequentialSampler

__all__ = ["DataLoader", "default_collate"]


def default_collate(batch: list[Any]) -> Any:
    """Samples as one: tensors and arrays are stacked, numbers become a tensor, tuples and mappings are gone into."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch)
    if isinstance(first, np.ndarray):
        return tensor(np.stack(batch))
    if isinstance(first, (bool, int, np.integer, np.bool_)):
        return tensor(np.array(batch))
    if isinstance(first, (float, np.floating)):
        return tensor(np.array(batch), dtype=dtypes.float64)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(part)) for part in zip(*batch, strict=True)))
    if isinstance(first, (tuple, list)):
        if any(len(sample) != len(first) for sample in batch):
            raise ArgumentError("default_collate: samples of a batch must have as many parts each")
        return [default_collate(list(part)) for part in zip(*batch, strict=True)]
    raise ArgumentError(f"default_collate: cannot make a batch of {type(first).__name__}; pass collate_fn=")


class DataLoader:
    """Batches of `dataset`, in order or shuffled, collated into tensors.

    `generator` draws the order: with one, or after `manual_seed`, it is the same in every run. `batch_size=None` gives
    samples one by one. Rows of a `TensorDataset` are gathered a batch at a time. Samples are made in this process.
    """

    def __init__(
        self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None, sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0, collate_fn: Callable[[list[Any]], Any] | None = None, pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0, worker_init_fn: Any = None, generator: Generator | None = None, **_: Any,
    ):  # fmt: skip
        if num_workers:
            raise NotSupported("DataLoader: workers are not supported; leave num_workers at 0")
        self.dataset = dataset
        self.iterable = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
        if self.iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError("DataLoader: an iterable data set has its own order; shuffle and samplers do not apply")
        if batch_sampler is not None and (batch_size not in (1, None) or shuffle or sampler is not None or drop_last):
            raise ArgumentError("DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        if sampler is not None and shuffle:
            raise ArgumentError("DataLoader: give sampler or shuffle, not both")
        self.batch_size, self.drop_last, self.generator = batch_size, drop_last, generator
        self.collate_fn = collate_fn or default_collate
        if sampler is None and not self.iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.sampler = sampler
        if batch_sampler is None and batch_size is not None and not self.iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        elif batch_size is not None and self.iterable:
            batch_sampler = BatchSampler(dataset, batch_size, drop_last)
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Iterator[Any]:
        if self.batch_sampler is None:
            yield from self.dataset if self.iterable else (self.dataset[i] for i in self.sampler)
            return
        whole_rows = isinstance(self.dataset, TensorDataset) and self.collate_fn is default_collate
        for batch in self.batch_sampler:
            if self.iterable:
                yield self.collate_fn(batch)
            elif whole_rows:
                index = np.asarray(batch, np.int64)
                yield [t[index] for t in self.dataset.tensors]
            else:
                yield self.collate_fn([self.dataset[i] for i in batch])

    def __len__(self) -> int:
        if self.batch_sampler is not None and not self.iterable:
            return len(self.batch_sampler)
        count = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
