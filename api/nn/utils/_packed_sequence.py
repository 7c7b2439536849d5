"""`PackedSequence`, a batch of sequences of different lengths; `rnn` creates them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...creation.factories import empty_like
from ...creation.sequences import arange
from ...runtime import dtypes
from ...runtime.device import DeviceLike
from ...runtime.errors import ArgumentError
from ...runtime.tensor import Tensor
from ...tensor_methods.argument_checks import only_tensors

if TYPE_CHECKING:
    from .._types import Argument

__all__ = ["PackedSequence", "invert_permutation"]


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """Sequences packed step by step, as recurrent layers accept and return them.

    Create it with `pack_padded_sequence` or `pack_sequence`.

    Args:
        data: `(rows, ...)`; the rows of step t follow those of step t - 1.
        batch_sizes: int64 on the host; rows of each step.
        sorted_indices: For each position, the index of the sequence in the original batch; None if it was sorted.
        unsorted_indices: The inverse permutation.

    Raises:
        ArgumentError: If `batch_sizes` is not on the host. It is also a `ValueError`.

    Example:
        >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
        >>> packed.data, packed.batch_sizes
        (tensor([1, 4, 2, 3]), tensor([2, 1, 1]))
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise ArgumentError("PackedSequence: takes data and batch_sizes, or a tuple of both")
            data, batch_sizes = data
        only_tensors("PackedSequence", data, batch_sizes)
        assert batch_sizes is not None
        if batch_sizes.meta.device.type != "cpu":
            raise ArgumentError(
                f"PackedSequence: batch_sizes must be on the host, not on {batch_sizes.meta.device}; create packed "
                "sequences with pack_padded_sequence() or pack_sequence()"
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Argument, **kwargs: Argument) -> PackedSequence:
        """Convert data to another dtype or device, with the indices; return itself if nothing changes.

        Args:
            *args: Arguments of `Tensor.to`.
            **kwargs: Arguments of `Tensor.to`.

        Returns:
            `PackedSequence`. `batch_sizes` stays on the host.

        Example:
            >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
            >>> packed.to(wg.float32).data.dtype
            weftgrad.float32
        """
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        device = data.meta.device
        order, inverse = (None if i is None else i.to(device) for i in (self.sorted_indices, self.unsorted_indices))
        return type(self)(data, self.batch_sizes, order, inverse)

    def cuda(self, device: DeviceLike | None = None, **_: object) -> PackedSequence:
        """Move to a CUDA device, by default the first.

        Args:
            device: The device; None: the first CUDA device.
            **_: Ignored.

        Returns:
            `PackedSequence`.
        """
        return self.to("cuda:0" if device is None else device)

    def cpu(self) -> PackedSequence:
        """Move to the CPU.

        Returns:
            `PackedSequence`.

        Example:
            >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
            >>> packed.cpu() is packed
            True
        """
        return self.to("cpu")

    def double(self) -> PackedSequence:
        """Convert data to float64.

        Returns:
            `PackedSequence`.

        Example:
            >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
            >>> packed.double().data.dtype
            weftgrad.float64
        """
        return self.to(dtypes.float64)

    def float(self) -> PackedSequence:
        """Convert data to float32.

        Returns:
            `PackedSequence`.

        Example:
            >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
            >>> packed.float().data.dtype
            weftgrad.float32
        """
        return self.to(dtypes.float32)

    def half(self) -> PackedSequence:
        """Convert data to float16.

        Returns:
            `PackedSequence`.

        Example:
            >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
            >>> packed.half().data.dtype
            weftgrad.float16
        """
        return self.to(dtypes.float16)

    def long(self) -> PackedSequence:
        """Convert data to int64.

        Returns:
            `PackedSequence`.

        Example:
            >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
            >>> packed.long().data.dtype
            weftgrad.int64
        """
        return self.to(dtypes.int64)

    def int(self) -> PackedSequence:
        """Convert data to int32.

        Returns:
            `PackedSequence`.

        Example:
            >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
            >>> packed.int().data.dtype
            weftgrad.int32
        """
        return self.to(dtypes.int32)

    def short(self) -> PackedSequence:
        """Convert data to int16.

        Returns:
            `PackedSequence`.

        Example:
            >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
            >>> packed.short().data.dtype
            weftgrad.int16
        """
        return self.to(dtypes.int16)

    def char(self) -> PackedSequence:
        """Convert data to int8.

        Returns:
            `PackedSequence`.

        Example:
            >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
            >>> packed.char().data.dtype
            weftgrad.int8
        """
        return self.to(dtypes.int8)

    def byte(self) -> PackedSequence:
        """Convert data to uint8.

        Returns:
            `PackedSequence`.

        Example:
            >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
            >>> packed.byte().data.dtype
            weftgrad.uint8
        """
        return self.to(dtypes.uint8)

    def pin_memory(self) -> PackedSequence:
        """Copy data to pinned memory, from which devices copy asynchronously.

        Returns:
            `PackedSequence`.
        """
        return type(self)(self.data.pin_memory(), self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def is_pinned(self) -> bool:
        """Return whether data is in pinned memory.

        Returns:
            Python bool.

        Example:
            >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
            >>> packed.is_pinned()
            False
        """
        return bool(self.data.is_pinned())

    @property
    def is_cuda(self) -> bool:
        """Whether data is on a CUDA device."""
        return self.data.meta.device.type == "cuda"


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Return the inverse of a 1-D int64 permutation; None for None.

    Args:
        permutation: int64 vector that holds each of 0, ..., n - 1 once, or None.

    Returns:
        int64 vector r with `r[permutation[i]] == i`, or None.

    Example:
        >>> wg.nn.utils.rnn.invert_permutation(wg.tensor([2, 0, 1]))
        tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    only_tensors("invert_permutation", permutation)
    positions = arange(permutation.meta.numel, device=permutation.meta.device)
    return empty_like(permutation).scatter_(0, permutation, positions)
