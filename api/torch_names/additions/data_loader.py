"""The iterators of `torch.utils.data.dataloader`, for programs that ask which one they have."""

from ...utils.data.iterating import SingleIterator as _SingleProcessDataLoaderIter
from ...utils.data.iterating import WorkerIterator as _MultiProcessingDataLoaderIter
from ...utils.data.iterating import _Iterator as _BaseDataLoaderIter

__all__ = ["_BaseDataLoaderIter", "_DatasetKind", "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"]


class _DatasetKind:
    """The two kinds of data sets: with indices, and iterated over."""

    Map = 0
    Iterable = 1
