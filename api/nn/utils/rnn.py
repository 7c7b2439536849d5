"""Batches of sequences of different lengths for recurrent networks, padded or packed.

A packed batch stores the sequences sorted by decreasing length, step by step: step t has `batch_sizes[t]` rows, one for
each sequence that is longer than t. Packing is one gather kernel, padding one scatter kernel. Batch sizes and lengths
are on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ..._generated import ops
from ...creation.factories import empty_like, full
from ...creation.from_data import tensor
from ...creation.sequences import arange
from ...runtime import dtypes, views
from ...runtime.device import DeviceLike, meta
from ...runtime.dispatch import empty
from ...runtime.errors import ArgumentError, IndexOutOfRange, ShapeError
from ...runtime.tensor import Tensor
from ...shape.assembling import assemble
from ...tensor_methods.argument_checks import only_tensors

if TYPE_CHECKING:
    from .._types import Argument

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
    "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip


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
        """
        return self.to("cpu")

    def double(self) -> PackedSequence:
        """Convert data to float64.

        Returns:
            `PackedSequence`.
        """
        return self.to(dtypes.float64)

    def float(self) -> PackedSequence:
        """Convert data to float32.

        Returns:
            `PackedSequence`.
        """
        return self.to(dtypes.float32)

    def half(self) -> PackedSequence:
        """Convert data to float16.

        Returns:
            `PackedSequence`.
        """
        return self.to(dtypes.float16)

    def long(self) -> PackedSequence:
        """Convert data to int64.

        Returns:
            `PackedSequence`.
        """
        return self.to(dtypes.int64)

    def int(self) -> PackedSequence:
        """Convert data to int32.

        Returns:
            `PackedSequence`.
        """
        return self.to(dtypes.int32)

    def short(self) -> PackedSequence:
        """Convert data to int16.

        Returns:
            `PackedSequence`.
        """
        return self.to(dtypes.int16)

    def char(self) -> PackedSequence:
        """Convert data to int8.

        Returns:
            `PackedSequence`.
        """
        return self.to(dtypes.int8)

    def byte(self) -> PackedSequence:
        """Convert data to uint8.

        Returns:
            `PackedSequence`.
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


def _as_int_lengths(lengths: Tensor | Sequence[int], caller: str) -> list[int]:
    """Return the lengths as ints. Reading a tensor waits for its device."""
    values = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    if not all(float(n).is_integer() for n in values):
        raise ArgumentError(f"{caller}: lengths must be whole numbers, not {values[:10]}")
    return [int(n) for n in values]


def _batch_sizes(lengths: Sequence[int]) -> list[int]:
    """Return the number of sequences that are longer than t, for each step t. `lengths` must be decreasing."""
    sizes = []
    active = len(lengths)
    for step in range(lengths[0]):
        while lengths[active - 1] <= step:
            active -= 1
        sizes.append(active)
    return sizes


def _index_tensor(values: Sequence[int], reference: Tensor) -> Tensor:
    return tensor(list(values), dtype="int64", device=reference.meta.device)


def _check_at_least_2d(caller: str, input: Tensor) -> None:
    only_tensors(caller, input)
    if input.meta.ndim < 2:
        raise IndexOutOfRange(f"{caller}: a batch of sequences has 2 dimensions or more, not {list(input.meta.shape)}")


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a batch of padded sequences.

    Args:
        input: `(length, batch, ...)`, or `(batch, length, ...)` with `batch_first`; any dtype.
        lengths: Length of each sequence; a list or a tensor on the host.
        batch_first: Whether the batch is the first dimension.
        enforce_sorted: Require decreasing lengths. False sorts the sequences; `pad_packed_sequence` and the recurrent
            layers restore the original order.

    Returns:
        `PackedSequence` with `sum(lengths)` rows.

    Raises:
        ShapeError: If there is not one length per sequence, or a length is not positive, longer than the input, or out
            of order. It is also a `RuntimeError`.
        IndexOutOfRange: If `input` has fewer than 2 dimensions.
        ArgumentError: If a length is not a whole number.

    Example:
        >>> padded = wg.tensor([[1, 2, 3], [4, 0, 0]])
        >>> wg.nn.utils.rnn.pack_padded_sequence(padded, [3, 1], batch_first=True).data
        tensor([1, 4, 2, 3])
    """
    caller = "pack_padded_sequence"
    _check_at_least_2d(caller, input)
    if batch_first:
        input = ops.transpose(input, 0, 1)
    shape = input.meta.shape
    sequence_lengths = _as_int_lengths(lengths, caller)
    if len(sequence_lengths) != shape[1]:
        raise ShapeError(
            f"{caller}: {len(sequence_lengths)} lengths for a batch of {shape[1]}; there must be one for each sequence"
        )
    if not sequence_lengths or min(sequence_lengths) <= 0:
        raise ShapeError(f"{caller}: every sequence must have at least one step; lengths are {sequence_lengths[:20]}")
    if max(sequence_lengths) > shape[0]:
        raise ShapeError(f"{caller}: the longest sequence has {max(sequence_lengths)} steps, the input only {shape[0]}")
    order = list(range(len(sequence_lengths)))
    if not enforce_sorted:
        order.sort(key=lambda i: -sequence_lengths[i])
    elif any(later > earlier for earlier, later in pairwise(sequence_lengths)):
        raise ShapeError(
            f"{caller}: lengths must not increase, as in {sequence_lengths[:20]}; pass enforce_sorted=False to sort"
        )
    step_sizes = _batch_sizes([sequence_lengths[i] for i in order])
    flat = views.reshape(input, (shape[0] * shape[1], *shape[2:]))
    rows = [t * shape[1] + i for t, n in enumerate(step_sizes) for i in order[:n]]
    data = (
        ops.contiguous_copy(flat)
        if rows == list(range(flat.meta.shape[0]))
        else flat.index_select(0, _index_tensor(rows, input))
    )
    batch_sizes = tensor(step_sizes, dtype="int64")
    if enforce_sorted:
        return PackedSequence(data, batch_sizes)
    inverse_order = sorted(range(len(order)), key=order.__getitem__)
    return PackedSequence(data, batch_sizes, _index_tensor(order, input), _index_tensor(inverse_order, input))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Unpack sequences into one padded tensor, in their original order.

    Args:
        sequence: The packed sequences.
        batch_first: Return `(batch, length, ...)` instead of `(length, batch, ...)`.
        padding_value: Value of the padding.
        total_length: Length of the result; None means the longest sequence's.

    Returns:
        (padded tensor, lengths as an int64 tensor on the host).

    Raises:
        ShapeError: If `total_length` is too short. It is also a `ValueError`.
        ArgumentError: If `sequence` is not a `PackedSequence`.

    Example:
        >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
        >>> wg.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        (tensor([[1, 2, 3],
                [4, 0, 0]]), tensor([3, 1]))
    """
    caller = "pad_packed_sequence"
    if not isinstance(sequence, PackedSequence):
        raise ArgumentError(f"{caller}: takes a PackedSequence, not {type(sequence).__name__}")
    data = sequence.data
    step_sizes: list[int] = sequence.batch_sizes.tolist()
    length, batch = len(step_sizes), step_sizes[0]
    if total_length is not None and total_length < length:
        raise ShapeError(f"{caller}: total_length is {total_length}, and the longest sequence has {length} steps")
    order = list(range(batch)) if sequence.sorted_indices is None else sequence.sorted_indices.tolist()
    sequence_lengths = [0] * batch
    for rank, i in enumerate(order):
        sequence_lengths[i] = sum(n > rank for n in step_sizes)
    padded_shape = (total_length or length, batch, *data.meta.shape[1:])
    rows = [t * batch + i for t, n in enumerate(step_sizes) for i in order[:n]]
    flat_shape = (padded_shape[0] * batch, *padded_shape[2:])
    padded = full(flat_shape, padding_value, dtype=data.meta.dtype, device=data.meta.device)
    output = views.reshape(padded.index_copy(0, _index_tensor(rows, data), data), padded_shape)
    return ops.transpose(output, 0, 1) if batch_first else output, tensor(sequence_lengths, dtype="int64")


def pad_sequence(
    sequences: Tensor | Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:  # fmt: skip
    """Pad sequences of different lengths into one tensor.

    Args:
        sequences: Tensors of shape `(length, ...)` with equal trailing dimensions.
        batch_first: Return `(batch, length, ...)` instead of `(length, batch, ...)`.
        padding_value: Value of the padding.
        padding_side: `"right"` or `"left"`.

    Returns:
        A tensor of the first sequence's dtype.

    Raises:
        ShapeError: If there are no sequences, or trailing dimensions differ. It is also a `RuntimeError`.

    Example:
        >>> wg.nn.utils.rnn.pad_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])], batch_first=True)
        tensor([[1, 2, 3],
                [4, 0, 0]])
    """
    caller = "pad_sequence"
    sequence_list = _as_sequence_list(caller, sequences)
    if padding_side not in ("left", "right"):
        raise ShapeError(f"{caller}: padding_side is 'left' or 'right', not {padding_side!r}")
    first_layout = sequence_list[0].meta
    for sequence in sequence_list:
        if not sequence.meta.ndim or sequence.meta.shape[1:] != first_layout.shape[1:]:
            raise ShapeError(
                f"{caller}: sequences must have equal shapes after the first dimension, not "
                f"{list(first_layout.shape)} and {list(sequence.meta.shape)}"
            )
    length = max(sequence.meta.shape[0] for sequence in sequence_list)
    shape = (len(sequence_list), length) if batch_first else (length, len(sequence_list))
    placements = []
    for i, sequence in enumerate(sequence_list):
        sequence_length = sequence.meta.shape[0]
        start = length - sequence_length if padding_side == "left" else 0
        placements.append((sequence, [("select", (int(not batch_first), i)), ("narrow", (0, start, sequence_length))]))
    padded_shape = (*shape, *first_layout.shape[1:])
    padding = (
        full((), padding_value, dtype=first_layout.dtype, device=first_layout.device).expand(padded_shape)
        if padding_value
        else None
    )
    return assemble(
        caller, empty(meta(first_layout.dtype, padded_shape, None, first_layout.device)), placements, base=padding
    )


def _as_sequence_list(caller: str, sequences: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """Return the sequences as a list of tensors. Rows of a tensor are sequences, too."""
    if isinstance(sequences, Tensor):
        return list(sequences.unbind(0))
    if not isinstance(sequences, Iterable):
        raise ShapeError(f"{caller}: takes a list of tensors, not {type(sequences).__name__}")
    sequence_list = list(sequences)
    if not sequence_list:
        raise ShapeError(f"{caller}: takes at least one sequence")
    only_tensors(caller, *sequence_list)
    return sequence_list


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """Return the sequences of a padded batch without padding: views of shape `(length, ...)`.

    Args:
        padded_sequences: `(length, batch, ...)`, or `(batch, length, ...)` with `batch_first`.
        lengths: Length of each sequence; a list or a tensor.
        batch_first: Whether the batch is the first dimension.

    Returns:
        One tensor for each length.

    Raises:
        IndexOutOfRange: If the batch has fewer than 2 dimensions.
        ShapeError: If there are more lengths than sequences.
        ArgumentError: If a length is not a whole number.

    Example:
        >>> wg.nn.utils.rnn.unpad_sequence(wg.tensor([[1, 2, 3], [4, 0, 0]]), [3, 1], batch_first=True)
        [tensor([1, 2, 3]), tensor([4])]
    """
    caller = "unpad_sequence"
    _check_at_least_2d(caller, padded_sequences)
    batch_first_view = padded_sequences if batch_first else ops.transpose(padded_sequences, 0, 1)
    sequence_lengths = _as_int_lengths(lengths, caller)
    if len(sequence_lengths) > batch_first_view.meta.shape[0]:
        raise ShapeError(f"{caller}: {len(sequence_lengths)} lengths for a batch of {batch_first_view.meta.shape[0]}")
    return [
        ops.narrow(ops.select(batch_first_view, 0, i), 0, 0, min(n, batch_first_view.meta.shape[1]))
        for i, n in enumerate(sequence_lengths)
    ]


def pack_sequence(sequences: Tensor | Iterable[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of shape `(length, ...)`; see `pack_padded_sequence`.

    Args:
        sequences: Tensors of shape `(length, ...)` with equal trailing dimensions.
        enforce_sorted: Require decreasing lengths; False sorts the sequences.

    Returns:
        `PackedSequence`.

    Raises:
        ShapeError: If there are no sequences, one is empty, lengths increase, or trailing dimensions differ.

    Example:
        >>> wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])]).data
        tensor([1, 4, 2, 3])
    """
    sequence_list = _as_sequence_list("pack_sequence", sequences)
    lengths = [sequence.meta.shape[0] if sequence.meta.ndim else 0 for sequence in sequence_list]
    return pack_padded_sequence(pad_sequence(sequence_list), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Return the packed sequences in their original order, each of shape `(length, ...)`.

    Args:
        packed_sequences: The packed sequences.

    Returns:
        One tensor for each sequence.

    Example:
        >>> packed = wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2, 3]), wg.tensor([4])])
        >>> wg.nn.utils.rnn.unpack_sequence(packed)
        [tensor([1, 2, 3]), tensor([4])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
