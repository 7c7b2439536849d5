"""Buckets: gradients of many parameters in one buffer each, which the ranks reduce with one collective."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...runtime.device import Device, meta
from ...runtime.dispatch import empty
from ...runtime.dtypes import DType
from ...runtime.errors import ShapeError
from ...runtime.tensor import Tensor

__all__ = ["Bucket", "GradBucket", "assign_buckets", "view_of"]


def view_of(buffer: Tensor, offset: int, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor over elements of a contiguous vector.

    Unlike a view by indexing, the tensor has no base. Writing to it is not recorded in a base's history, so it can
    serve as a gradient.
    """
    layout = buffer.meta
    start = buffer.start + offset * layout.dtype.itemsize
    return Tensor(buffer.storage, meta(layout.dtype, shape, None, layout.device), start)


class Bucket:
    """Parameters whose gradients share a buffer.

    The order of the gradients in the buffer is the order of `indices`, without gaps.

    Args:
        indices: Numbers of the parameters.
        params: The parameters. They have one dtype and device.

    Attributes:
        indices: Numbers of the parameters.
        params: The parameters.
        buffer: The gradients as one vector; None while there is no buffer.
        views: A tensor over each gradient in `buffer`.
        pending: Number of gradients that backward has not written yet.
    """

    def __init__(self, indices: Sequence[int], params: Sequence[Tensor]):
        self.indices, self.params = list(indices), list(params)
        self._shapes = [param.meta.shape for param in params]
        self._numel = sum(prod(shape) for shape in self._shapes)
        self.buffer: Tensor | None = None
        self.views: list[Tensor] = []
        self.pending = len(self.params)

    def allocate(self) -> None:
        """Give the bucket a new buffer, whose elements are not initialized."""
        layout = self.params[0].meta
        self.set_buffer(empty(meta(layout.dtype, (self._numel,), None, layout.device)))

    def set_buffer(self, buffer: Tensor) -> None:
        """Use another vector as the buffer.

        Raises:
            ShapeError: The number of elements differs from the gradients'.
        """
        if buffer.meta.numel != self._numel:
            raise ShapeError(f"a bucket of {self._numel} elements: got a buffer of shape {list(buffer.meta.shape)}")
        self.buffer, self.views, offset = buffer, [], 0
        for shape in self._shapes:
            self.views.append(view_of(buffer, offset, shape))
            offset += prod(shape)

    def drop_buffer(self) -> None:
        """Release the buffer. Gradients that are views of it keep the memory."""
        self.buffer, self.views = None, []


class GradBucket:
    """A bucket as a communication hook sees it.

    Args:
        bucket: The bucket.
        index: Number of the bucket; the bucket with number 0 is complete first.
        count: Number of buckets.
    """

    def __init__(self, bucket: Bucket, index: int, count: int):
        self._bucket, self._index, self._count = bucket, index, count

    def buffer(self) -> Tensor:
        """Return the gradients as one vector. They are not divided by the number of ranks."""
        assert self._bucket.buffer is not None  # hooks run after backward has written all gradients
        return self._bucket.buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Replace the vector of gradients.

        Args:
            buffer: A vector with as many elements.
        """
        self._bucket.set_buffer(buffer)

    def gradients(self) -> list[Tensor]:
        """Return the gradients, as views of `buffer()`."""
        return list(self._bucket.views)

    def parameters(self) -> list[Tensor]:
        """Return the parameters in the order of `gradients()`."""
        return list(self._bucket.params)

    def index(self) -> int:
        """Return the number of the bucket."""
        return self._index

    def is_last(self) -> bool:
        """Return True for the bucket that is reduced last in a backward."""
        return self._index == self._count - 1


def assign_buckets(params: Sequence[Tensor], order: Sequence[int], first_limit: int, limit: int) -> list[list[int]]:
    """Divide parameters between buckets, in the order in which their gradients become complete.

    A bucket is closed once it has at least the limit's bytes. The first bucket of each dtype and device is small, so
    that the first collective starts early.

    Args:
        params: The parameters.
        order: Their numbers, in the order of their gradients.
        first_limit: Bytes of the first bucket.
        limit: Bytes of each other bucket.

    Returns:
        The numbers of the parameters of each bucket, in the order in which the buckets become complete.
    """
    open_buckets: dict[tuple[DType, Device], tuple[list[int], int]] = {}
    limits: dict[tuple[DType, Device], int] = {}
    buckets: list[list[int]] = []
    for index in order:
        layout = params[index].meta
        key = layout.dtype, layout.device
        indices, nbytes = open_buckets.get(key, ([], 0))
        indices.append(index)
        nbytes += layout.numel * layout.dtype.itemsize
        if nbytes >= limits.get(key, first_limit):
            buckets.append(indices)
            open_buckets.pop(key, None)
            limits[key] = limit
        else:
            open_buckets[key] = indices, nbytes
    buckets += [indices for indices, _ in open_buckets.values()]
    position_of = {index: position for position, index in enumerate(order)}
    return sorted(buckets, key=lambda indices: max(position_of[index] for index in indices))
