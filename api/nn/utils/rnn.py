"""Batches of sequences of different lengths for recurrent networks, padded or packed.

A packed batch stores the sequences sorted by decreasing length, step by step: step t has `batch_sizes[t]` rows, one for
each sequence that is longer than t. Packing is one gather kernel, padding one scatter kernel. Batch sizes and lengths
are on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ..._generated import ops
from ...creation.factories import full
from ...creation.from_data import tensor
from ...runtime import views
from ...runtime.device import meta
from ...runtime.dispatch import empty
from ...runtime.errors import ArgumentError, IndexOutOfRange, ShapeError
from ...runtime.modes import call_composite
from ...runtime.records import Operand, OpRecord
from ...runtime.tensor import Tensor
from ...shape.assembling import assemble
from ...tensor_methods.argument_checks import only_tensors
from ._packed_sequence import PackedSequence, invert_permutation

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
    "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip

# What modes see of packing and padding, instead of the ops inside, which depend on the values of the lengths.
_PACK = OpRecord("pack_padded_sequence", "composite", (Operand("input"), Operand("lengths")), (), ("batch_first",))
_PAD = OpRecord(
    "pad_packed_sequence", "composite", (Operand("data"),), (), ("batch_first", "padding_value", "total_length")
)


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
    _check_at_least_2d("pack_padded_sequence", input)
    return call_composite(
        _PACK, (input, lengths if isinstance(lengths, Tensor) else tensor(list(lengths), dtype="int64")),
        (bool(batch_first),), lambda: _pack(input, lengths, batch_first, enforce_sorted),
    )  # fmt: skip


def _pack(input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool, enforce_sorted: bool) -> PackedSequence:
    caller = "pack_padded_sequence"
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
    return call_composite(
        _PAD, (sequence.data,), (bool(batch_first), float(padding_value), total_length),
        lambda: _unpack(caller, sequence, batch_first, padding_value, total_length),
    )  # fmt: skip


def _unpack(
    caller: str, sequence: PackedSequence, batch_first: bool, padding_value: float, total_length: int | None
) -> tuple[Tensor, Tensor]:
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
