"""Tensors cut in pieces along a dimension. The pieces are views."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ._checks import only_tensors
from .runtime import layout
from .runtime.dispatch import call
from .runtime.errors import ArgumentError, ShapeError
from .runtime.records import registry
from .runtime.spelling import spelled_dim
from .runtime.tensor import Tensor

__all__ = [
    "chunk", "dsplit", "hsplit", "split", "split_with_sizes", "tensor_split", "unsafe_chunk", "unsafe_split",
    "unsafe_split_with_sizes", "vsplit",
]  # fmt: skip

Pieces = tuple[Tensor, ...]


def _dimension(tensor: Tensor, dim: int, where: str) -> tuple[int, int]:
    """(the dimension counted from the front, its size)."""
    only_tensors(where, tensor)
    if not tensor.meta.ndim:
        raise ShapeError(f"{where}: a 0-d tensor has no dimension to cut")
    at = layout.normalize_dim(dim, tensor.meta.ndim, where)
    return at, tensor.meta.shape[at]


def _pieces(tensor: Tensor, dim: int, sizes: Sequence[int]) -> Pieces:
    found, start = [], 0
    for size in sizes:
        found.append(call(registry["narrow"], (tensor,), (dim, start, size)))
        start += size
    return tuple(found)


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{where}: sizes are ints, not {value!r}")
    return int(value.__index__())


def split(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> Pieces:
    """Views of pieces of `tensor` along `dim`: of one size (the last may be shorter), or of given sizes."""
    if isinstance(split_size_or_sections, (tuple, list)):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    at, length = _dimension(tensor, dim, "split")
    size = _whole(split_size_or_sections, "split")
    if size < 0 or (size == 0 and length):
        raise ShapeError(f"split: the size of a piece must be positive, not {size}")
    sizes = [min(size, length - i) for i in range(0, length, size)] if length else [0]
    return _pieces(tensor, at, sizes)


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> Pieces:
    """Views of pieces of the given sizes along `dim`, which add up to its size."""
    at, length = _dimension(input, dim, "split_with_sizes")
    sizes = [_whole(n, "split_with_sizes") for n in split_sizes]
    if sum(sizes) != length or any(n < 0 for n in sizes):
        raise ShapeError(f"split: sizes {sizes} do not add up to {length}, the size of dimension {at}")
    return _pieces(input, at, sizes)


def unsafe_split(input: Tensor, split_size: int | Sequence[int], dim: int = 0) -> Pieces:
    """`split`, under the name that PyTorch has for pieces whose writes it does not follow; these are followed."""
    return split(input, split_size, dim)


def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> Pieces:
    """`split_with_sizes`; see `unsafe_split`."""
    return split_with_sizes(input, split_sizes, dim)


def chunk(input: Tensor, chunks: int, dim: int = 0, *, axis: int | None = None) -> Pieces:
    """At most `chunks` views of equal size along `dim`; the last may be shorter."""
    if axis is not None:
        dim = spelled_dim("chunk", dim, 0, axis)
    at, length = _dimension(input, dim, "chunk")
    chunks = _whole(chunks, "chunk")
    if chunks < 1:
        raise ShapeError(f"chunk: the number of chunks must be positive, not {chunks}")
    return split(input, -(-length // chunks), at) if length else _pieces(input, at, [0] * chunks)


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> Pieces:
    """`chunk`; see `unsafe_split`."""
    return chunk(input, chunks, dim)


def tensor_split(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | Tensor | None = None,
    dim: int = 0,
    *,
    indices: Sequence[int] | None = None,
    sections: int | None = None,
    tensor_indices_or_sections: Tensor | None = None,
    axis: int | None = None,
) -> Pieces:
    """Views along `dim`: a number of nearly equal pieces, or pieces cut at given positions.

    Numbers in a tensor are waited for. The last three names are those of PyTorch's overloads.
    """
    if axis is not None:
        dim = spelled_dim("tensor_split", dim, 0, axis)
    given = [x for x in (indices_or_sections, indices, sections, tensor_indices_or_sections) if x is not None]
    if len(given) != 1:
        raise ArgumentError("tensor_split: give either a number of pieces or the positions to cut at")
    where: Any = given[0]
    at, length = _dimension(input, dim, "tensor_split")
    if isinstance(where, Tensor):
        if where.meta.ndim > 1 or where.meta.dtype.name != "int64":
            raise ShapeError(
                f"tensor_split: positions are int64, in at most one dimension, not {where.meta.dtype.name} of shape "
                f"{list(where.meta.shape)}"
            )
        where = where.tolist()  # type: ignore[attr-defined]
    if isinstance(where, (tuple, list)):
        cuts = [None, *(_whole(n, "tensor_split") for n in where), None]
        return tuple(call(registry["slice"], (input,), (at, a, b, 1)) for a, b in pairwise(cuts))
    count = _whole(where, "tensor_split")
    if count < 1:
        raise ShapeError(f"tensor_split: the number of pieces must be positive, not {count}")
    base, more = divmod(length, count)
    return _pieces(input, at, [base + (i < more) for i in range(count)])


def _split_at(input: Tensor, where: Any, dim: int, least: int, name: str) -> Pieces:
    only_tensors(name, input)
    if input.meta.ndim < least:
        raise ShapeError(f"{name}: takes {least} dimensions or more, not shape {list(input.meta.shape)}")
    if isinstance(where, int) and (where < 1 or input.meta.shape[dim] % where):
        raise ShapeError(
            f"{name}: dimension {dim} of size {input.meta.shape[dim]} does not split into {where} equal pieces"
        )
    return tensor_split(input, where, dim)


def hsplit(input: Tensor, indices_or_sections: Any) -> Pieces:
    """`tensor_split` along dimension 1 (0 of vectors), into equal pieces."""
    return _split_at(input, indices_or_sections, 0 if input.meta.ndim == 1 else 1, 1, "hsplit")


def vsplit(input: Tensor, indices_or_sections: Any) -> Pieces:
    """`tensor_split` along dimension 0, into equal pieces."""
    return _split_at(input, indices_or_sections, 0, 2, "vsplit")


def dsplit(input: Tensor, indices_or_sections: Any) -> Pieces:
    """`tensor_split` along dimension 2, into equal pieces."""
    return _split_at(input, indices_or_sections, 2, 3, "dsplit")


def _split(self: Tensor, split_size: int | Sequence[int], dim: int = 0) -> Pieces:
    return split(self, split_size, dim)


_split.__name__, _split.__doc__ = "split", split.__doc__

METHODS = {name: globals()[name] for name in __all__} | {"split": _split}
