"""Split tensors along a dimension. The pieces are views of the input."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..arguments.aliases import resolve_axis_alias
from ..runtime import layout
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .size_arguments import to_int

__all__ = [
    "chunk", "dsplit", "hsplit", "split", "split_with_sizes", "tensor_split", "unsafe_chunk", "unsafe_split",
    "unsafe_split_with_sizes", "vsplit",
]  # fmt: skip

Pieces = tuple[Tensor, ...]


def _dimension(tensor: Tensor, dim: int, where: str) -> tuple[int, int]:
    """Return the normalized dimension and its size."""
    only_tensors(where, tensor)
    if not tensor.meta.ndim:
        raise ShapeError(f"{where}: a 0-d tensor has no dimension to cut")
    axis = layout.normalize_dim(dim, tensor.meta.ndim, where)
    return axis, tensor.meta.shape[axis]


def _narrow_pieces(tensor: Tensor, dim: int, sizes: Sequence[int]) -> Pieces:
    pieces, start = [], 0
    for size in sizes:
        pieces.append(call(registry["narrow"], (tensor,), (dim, start, size)))
        start += size
    return tuple(pieces)


def split(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> Pieces:
    """Split `tensor` along `dim` into views.

    Args:
        tensor: Tensor of any dtype, with at least one dimension.
        split_size_or_sections: Size of each piece (the last one may be shorter), or a list of sizes that add up to the
            dimension's size.
        dim: The dimension to split.

    Returns:
        A tuple of views.

    Raises:
        ShapeError: Sizes are negative, or do not add up.
        ArgumentError: A size is not an integer.

    Example:
        >>> wg.split(wg.arange(5), 2)
        (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    if isinstance(split_size_or_sections, (tuple, list)):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    axis, length = _dimension(tensor, dim, "split")
    size = to_int(split_size_or_sections, "split")
    if size < 0 or (size == 0 and length):
        raise ShapeError(f"split: the size of a piece must be positive, not {size}")
    sizes = [min(size, length - i) for i in range(0, length, size)] if length else [0]
    return _narrow_pieces(tensor, axis, sizes)


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> Pieces:
    """Split `input` along `dim` into views of the sizes in `split_sizes`, which add up to the dimension's size.

    Args:
        input: Tensor of any dtype.
        split_sizes: Size of each piece.
        dim: The dimension.

    Returns:
        A view for each size.

    Raises:
        ShapeError: A size is negative, or the sizes do not add up.

    Example:
        >>> wg.split_with_sizes(wg.arange(5), [2, 3])
        (tensor([0, 1]), tensor([2, 3, 4]))
    """
    axis, length = _dimension(input, dim, "split_with_sizes")
    sizes = [to_int(n, "split_with_sizes") for n in split_sizes]
    if sum(sizes) != length or any(n < 0 for n in sizes):
        raise ShapeError(f"split: sizes {sizes} do not add up to {length}, the size of dimension {axis}")
    return _narrow_pieces(input, axis, sizes)


def unsafe_split(input: Tensor, split_size: int | Sequence[int], dim: int = 0) -> Pieces:
    """Do the same as `split`: other than in PyTorch, in-place writes to the pieces are tracked.

    Args:
        input: Tensor of any dtype.
        split_size: Size of each piece, or a list of sizes.
        dim: The dimension to split.

    Returns:
        A tuple of views.

    Raises:
        ShapeError: Sizes are negative, or do not add up.

    Example:
        >>> wg.unsafe_split(wg.arange(5), 2)
        (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    return split(input, split_size, dim)


def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> Pieces:
    """Do the same as `split_with_sizes`; see `unsafe_split`.

    Args:
        input: Tensor of any dtype.
        split_sizes: Size of each piece.
        dim: The dimension to split.

    Returns:
        A tuple of views.

    Raises:
        ShapeError: Sizes are negative, or do not add up.

    Example:
        >>> wg.unsafe_split_with_sizes(wg.arange(5), [2, 3])
        (tensor([0, 1]), tensor([2, 3, 4]))
    """
    return split_with_sizes(input, split_sizes, dim)


def chunk(input: Tensor, chunks: int, dim: int = 0, *, axis: int | None = None) -> Pieces:
    """Split `input` along `dim` into at most `chunks` views of equal size; the last one may be shorter.

    Args:
        input: Tensor of any dtype.
        chunks: Largest number of pieces.
        dim: The dimension.
        axis: NumPy's name for `dim`.

    Returns:
        A tuple of views.

    Raises:
        ShapeError: `chunks` is not positive.

    Example:
        >>> wg.chunk(wg.arange(5), 3)
        (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    if axis is not None:
        dim = resolve_axis_alias("chunk", dim, 0, axis)
    axis_index, length = _dimension(input, dim, "chunk")
    chunks = to_int(chunks, "chunk")
    if chunks < 1:
        raise ShapeError(f"chunk: the number of chunks must be positive, not {chunks}")
    return split(input, -(-length // chunks), axis_index) if length else _narrow_pieces(input, axis_index, [0] * chunks)


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> Pieces:
    """Do the same as `chunk`; see `unsafe_split`.

    Args:
        input: Tensor of any dtype.
        chunks: Largest number of pieces.
        dim: The dimension to split.

    Returns:
        A tuple of views.

    Raises:
        ShapeError: `chunks` is not positive.

    Example:
        >>> wg.unsafe_chunk(wg.arange(5), 3)
        (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
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
    """Split `input` along `dim` into views: a number of nearly equal pieces, or pieces between positions.

    Args:
        input: Tensor of any dtype, with at least one dimension.
        indices_or_sections: An int (number of pieces), a sequence of positions, or an int64 tensor with either (the
            host waits for its values).
        dim: The dimension to split.
        indices: Positions, under the name of one of PyTorch's overloads.
        sections: Number of pieces, likewise.
        tensor_indices_or_sections: int64 tensor with either, likewise.
        axis: NumPy's name for `dim`.

    Returns:
        A tuple of views.

    Raises:
        ArgumentError: Not exactly one of the four arguments is passed.
        ShapeError: The number of pieces is not positive, or a tensor has the wrong shape or dtype.

    Example:
        >>> wg.tensor_split(wg.arange(5), 3)
        (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    if axis is not None:
        dim = resolve_axis_alias("tensor_split", dim, 0, axis)
    arguments = [x for x in (indices_or_sections, indices, sections, tensor_indices_or_sections) if x is not None]
    if len(arguments) != 1:
        raise ArgumentError("tensor_split: give either a number of pieces or the positions to cut at")
    split_spec = arguments[0]
    axis_index, length = _dimension(input, dim, "tensor_split")
    if isinstance(split_spec, Tensor):
        if split_spec.meta.ndim > 1 or split_spec.meta.dtype.name != "int64":
            raise ShapeError(
                f"tensor_split: positions are int64, in at most one dimension, not {split_spec.meta.dtype.name} of "
                f"shape {list(split_spec.meta.shape)}"
            )
        split_spec = split_spec.tolist()
    if isinstance(split_spec, (tuple, list)):
        bounds = [None, *(to_int(n, "tensor_split") for n in split_spec), None]
        return tuple(call(registry["slice"], (input,), (axis_index, a, b, 1)) for a, b in pairwise(bounds))
    count = to_int(split_spec, "tensor_split")
    if count < 1:
        raise ShapeError(f"tensor_split: the number of pieces must be positive, not {count}")
    base, remainder = divmod(length, count)
    return _narrow_pieces(input, axis_index, [base + (i < remainder) for i in range(count)])


def _split_at(input: Tensor, split_spec: int | Sequence[int] | Tensor, dim: int, min_ndim: int, name: str) -> Pieces:
    only_tensors(name, input)
    if input.meta.ndim < min_ndim:
        raise ShapeError(f"{name}: takes {min_ndim} dimensions or more, not shape {list(input.meta.shape)}")
    if isinstance(split_spec, int) and (split_spec < 1 or input.meta.shape[dim] % split_spec):
        raise ShapeError(
            f"{name}: dimension {dim} of size {input.meta.shape[dim]} does not split into {split_spec} equal pieces"
        )
    return tensor_split(input, split_spec, dim)


def hsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> Pieces:
    """Split along dimension 1 (dimension 0 of a vector) with `tensor_split`.

    A number of pieces must divide the size.

    Args:
        input: Tensor of at least one dimension.
        indices_or_sections: Number of pieces, or the positions at which pieces begin.

    Returns:
        A tuple of views.

    Example:
        >>> wg.hsplit(wg.arange(4), 2)
        (tensor([0, 1]), tensor([2, 3]))
    """
    return _split_at(input, indices_or_sections, 0 if input.meta.ndim == 1 else 1, 1, "hsplit")


def vsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> Pieces:
    """Split along dimension 0 with `tensor_split`; a number of pieces must divide the size.

    Args:
        input: Tensor of at least two dimensions.
        indices_or_sections: Number of pieces, or the positions at which pieces begin.

    Returns:
        A tuple of views.

    Example:
        >>> wg.vsplit(wg.tensor([[1, 2], [3, 4]]), 2)
        (tensor([[1, 2]]), tensor([[3, 4]]))
    """
    return _split_at(input, indices_or_sections, 0, 2, "vsplit")


def dsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> Pieces:
    """Split along dimension 2 with `tensor_split`; a number of pieces must divide the size.

    Args:
        input: Tensor of at least three dimensions.
        indices_or_sections: Number of pieces, or the positions at which pieces begin.

    Returns:
        A tuple of views.

    Example:
        >>> [piece.shape for piece in wg.dsplit(wg.ones(2, 3, 4), [1])]
        [weftgrad.Size([2, 3, 1]), weftgrad.Size([2, 3, 3])]
    """
    return _split_at(input, indices_or_sections, 2, 3, "dsplit")


def _split(self: Tensor, split_size: int | Sequence[int], dim: int = 0) -> Pieces:
    return split(self, split_size, dim)


_split.__name__, _split.__doc__ = "split", split.__doc__

METHODS = {name: globals()[name] for name in __all__} | {"split": _split}
