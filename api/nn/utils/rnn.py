"""Sequences of different lengths for recurrent networks: padded to one tensor, or packed step by step.

Packed, sequences are sorted by falling length, so that step t has `batch_sizes[t]` rows, those of the sequences that
are still going on. Names and arguments are PyTorch's. What is packed is gathered by one kernel, and what is padded is
written by one; sizes and lengths lie on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ..._checks import only_tensors
from ..._generated import ops
from ...assembling import assembled
from ...factories import arange, empty_like, full, tensor
from ...runtime import dtypes, views
from ...runtime.device import meta
from ...runtime.dispatch import empty
from ...runtime.errors import ArgumentError, IndexOutOfRange, ShapeError
from ...runtime.tensor import Tensor

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
    """Sequences packed step by step: what `pack_padded_sequence` and `pack_sequence` give, and networks take and give.

    data: (rows, ...), the rows of step t behind those of step t - 1. batch_sizes: int64 on the host, how many rows each
    step has. sorted_indices: which sequence of the batch comes first, second, ...; None where they were in order;
    unsorted_indices: the way back. Raises `ArgumentError`, a `ValueError`, for batch sizes that are not on the host.
    """

    def __new__(
        cls,
        data: Any,
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
                f"PackedSequence: batch_sizes must be on the host, not on {batch_sizes.meta.device}; make packed "
                "sequences with pack_padded_sequence() or pack_sequence()"
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """With data in another dtype or on another device, and indices there; itself where nothing changes."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        place = data.meta.device
        order, back = (None if i is None else i.to(place) for i in (self.sorted_indices, self.unsorted_indices))
        return type(self)(data, self.batch_sizes, order, back)

    def cuda(self, device: Any = None, **_: Any) -> PackedSequence:
        """On a CUDA device, the first by default."""
        return self.to("cuda:0" if device is None else device)

    def cpu(self) -> PackedSequence:
        """On the host."""
        return self.to("cpu")

    def double(self) -> PackedSequence:
        """With float64 data."""
        return self.to(dtypes.float64)

    def float(self) -> PackedSequence:
        """With float32 data."""
        return self.to(dtypes.float32)

    def half(self) -> PackedSequence:
        """With float16 data."""
        return self.to(dtypes.float16)

    def long(self) -> PackedSequence:
        """With int64 data."""
        return self.to(dtypes.int64)

    def int(self) -> PackedSequence:
        """With int32 data."""
        return self.to(dtypes.int32)

    def short(self) -> PackedSequence:
        """With int16 data."""
        return self.to(dtypes.int16)

    def char(self) -> PackedSequence:
        """With int8 data."""
        return self.to(dtypes.int8)

    def byte(self) -> PackedSequence:
        """With uint8 data."""
        return self.to(dtypes.uint8)

    def pin_memory(self) -> PackedSequence:
        """With data in memory from which devices copy without waiting."""
        return type(self)(self.data.pin_memory(), self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def is_pinned(self) -> bool:
        """Whether data lies in such memory."""
        return bool(self.data.is_pinned())

    @property
    def is_cuda(self) -> bool:
        """Whether data is on a CUDA device."""
        return self.data.meta.device.type == "cuda"


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes `permutation`, int64 of one dimension; None for None."""
    if permutation is None:
        return None
    only_tensors("invert_permutation", permutation)
    places = arange(permutation.meta.numel, device=permutation.meta.device)
    return empty_like(permutation).scatter_(0, permutation, places)


def _lengths(lengths: Any, where: str) -> list[int]:
    """Lengths as integers; reading a tensor's waits for it."""
    given = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    if not all(float(n).is_integer() for n in given):
        raise ArgumentError(f"{where}: lengths must be whole numbers, not {given[:10]}")
    return [int(n) for n in given]


def _batch_sizes(lengths: Sequence[int]) -> list[int]:
    """How many of the sequences, whose lengths fall, each step has."""
    sizes = []
    going = len(lengths)
    for step in range(lengths[0]):
        while lengths[going - 1] <= step:
            going -= 1
        sizes.append(going)
    return sizes


def _index(values: Sequence[int], like: Tensor) -> Tensor:
    return tensor(list(values), dtype="int64", device=like.meta.device)


def _two_dimensions(where: str, input: Tensor) -> None:
    only_tensors(where, input)
    if input.meta.ndim < 2:
        raise IndexOutOfRange(f"{where}: a batch of sequences has 2 dimensions or more, not {list(input.meta.shape)}")


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """A batch of padded sequences, packed.

    input: (length, batch, ...), or with `batch_first` (batch, length, ...), of any dtype. lengths: of every sequence, a
    list or a tensor on the host. enforce_sorted: lengths fall already; without, sequences are sorted, and
    `pad_packed_sequence` and the networks restore their order.

    Raises `ShapeError`, a `RuntimeError`, for lengths that are not one for each sequence, not positive, longer than the
    input, or not in order.
    """
    where = "pack_padded_sequence"
    _two_dimensions(where, input)
    if batch_first:
        input = ops.transpose(input, 0, 1)
    shape = input.meta.shape
    sizes = _lengths(lengths, where)
    if len(sizes) != shape[1]:
        raise ShapeError(
            f"{where}: {len(sizes)} lengths for a batch of {shape[1]}; there must be one for each sequence"
        )
    if not sizes or min(sizes) <= 0:
        raise ShapeError(f"{where}: every sequence must have a step at least; lengths are {sizes[:20]}")
    if max(sizes) > shape[0]:
        raise ShapeError(f"{where}: a length of {max(sizes)}, in an input of {shape[0]} steps")
    order = list(range(len(sizes)))
    if not enforce_sorted:
        order.sort(key=lambda i: -sizes[i])
    elif any(later > earlier for earlier, later in pairwise(sizes)):
        raise ShapeError(f"{where}: lengths must fall, not {sizes[:20]}; pass enforce_sorted=False to have them sorted")
    counts = _batch_sizes([sizes[i] for i in order])
    flat = views.reshape(input, (shape[0] * shape[1], *shape[2:]))
    rows = [t * shape[1] + i for t, n in enumerate(counts) for i in order[:n]]
    data = (
        ops.contiguous_copy(flat)
        if rows == list(range(flat.meta.shape[0]))
        else flat.index_select(0, _index(rows, input))
    )
    batch_sizes = tensor(counts, dtype="int64")
    if enforce_sorted:
        return PackedSequence(data, batch_sizes)
    back = sorted(range(len(order)), key=order.__getitem__)
    return PackedSequence(data, batch_sizes, _index(order, input), _index(back, input))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """What was packed, padded with `padding_value`, in its first order, and the lengths.

    Gives (length, batch, ...), or with `batch_first` (batch, length, ...), `total_length` long if given, and int64
    lengths on the host. Raises `ShapeError`, a `ValueError`, for a `total_length` that is too short.
    """
    where = "pad_packed_sequence"
    if not isinstance(sequence, PackedSequence):
        raise ArgumentError(f"{where}: takes a PackedSequence, not {type(sequence).__name__}")
    data = sequence.data
    counts: list[int] = sequence.batch_sizes.tolist()
    length, batch = len(counts), counts[0]
    if total_length is not None and total_length < length:
        raise ShapeError(f"{where}: total_length is {total_length}, and the longest sequence has {length} steps")
    order = list(range(batch)) if sequence.sorted_indices is None else sequence.sorted_indices.tolist()
    sizes = [0] * batch
    for place, i in enumerate(order):
        sizes[i] = sum(n > place for n in counts)
    whole = (total_length or length, batch, *data.meta.shape[1:])
    rows = [t * batch + i for t, n in enumerate(counts) for i in order[:n]]
    flat = (whole[0] * batch, *whole[2:])
    padded = full(flat, padding_value, dtype=data.meta.dtype, device=data.meta.device)
    found = views.reshape(padded.index_copy(0, _index(rows, data), data), whole)
    return ops.transpose(found, 0, 1) if batch_first else found, tensor(sizes, dtype="int64")


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences, each (length, ...) with its own length, in one tensor, padded on the `padding_side`.

    Gives (length, batch, ...), or with `batch_first` (batch, length, ...), of the first one's dtype. Raises
    `ShapeError`, a `RuntimeError`, for no sequences, and for ones that differ behind the first dimension.
    """
    where = "pad_sequence"
    given = _sequences(where, sequences)
    if padding_side not in ("left", "right"):
        raise ShapeError(f"{where}: padding_side is 'left' or 'right', not {padding_side!r}")
    first = given[0].meta
    for each in given:
        if not each.meta.ndim or each.meta.shape[1:] != first.shape[1:]:
            raise ShapeError(
                f"{where}: sequences must be alike behind their first dimension: {list(first.shape)} and "
                f"{list(each.meta.shape)}"
            )
    length = max(each.meta.shape[0] for each in given)
    shape = (len(given), length) if batch_first else (length, len(given))
    parts = []
    for i, each in enumerate(given):
        size = each.meta.shape[0]
        start = length - size if padding_side == "left" else 0
        parts.append((each, [("select", (int(not batch_first), i)), ("narrow", (0, start, size))]))
    whole = (*shape, *first.shape[1:])
    base = full((), padding_value, dtype=first.dtype, device=first.device).expand(whole) if padding_value else None
    return assembled(where, empty(meta(first.dtype, whole, None, first.device)), parts, base=base)


def _sequences(where: str, given: Any) -> list[Tensor]:
    if isinstance(given, Tensor):
        return list(given.unbind(0))
    if not isinstance(given, Iterable):
        raise ShapeError(f"{where}: takes a list of tensors, not {type(given).__name__}")
    found = list(given)
    if not found:
        raise ShapeError(f"{where}: takes at least one sequence")
    only_tensors(where, *found)
    return found


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch, without their padding: views, each (length, ...)."""
    where = "unpad_sequence"
    _two_dimensions(where, padded_sequences)
    turned = padded_sequences if batch_first else ops.transpose(padded_sequences, 0, 1)
    sizes = _lengths(lengths, where)
    if len(sizes) > turned.meta.shape[0]:
        raise ShapeError(f"{where}: {len(sizes)} lengths for a batch of {turned.meta.shape[0]}")
    return [ops.narrow(ops.select(turned, 0, i), 0, 0, min(n, turned.meta.shape[1])) for i, n in enumerate(sizes)]


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """Sequences, each (length, ...) with its own length, packed; see `pack_padded_sequence`."""
    given = _sequences("pack_sequence", sequences)
    lengths = [each.meta.shape[0] if each.meta.ndim else 0 for each in given]
    return pack_padded_sequence(pad_sequence(given), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed, in their first order: each (length, ...)."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
