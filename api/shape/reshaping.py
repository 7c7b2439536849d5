"""Functions that change the shape of tensors or the order of their elements: reshape, permute, flip."""

from __future__ import annotations

from collections.abc import Sequence

from .._generated import ops
from ..arguments.types import Dims, Sizes
from ..runtime import layout, views
from ..runtime.errors import IndexOutOfRange, ShapeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .size_arguments import to_ints

__all__ = [
    "adjoint",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "moveaxis",
    "movedim",
    "permute",
    "ravel",
    "reshape",
    "swapaxes",
    "t",
    "unbind",
    "unflatten",
    "view_as",
]


def reshape(input: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the elements in another shape: a view where strides allow it, else a copy.

    Args:
        input: Tensor of any dtype.
        shape: New shape; one -1 stands for the size that the others leave.

    Returns:
        Tensor of shape `shape`, a view of `input` where its strides allow that.

    Raises:
        ShapeError: The numbers of elements differ.

    Example:
        >>> wg.arange(6).reshape(2, -1)
        tensor([[0, 1, 2],
                [3, 4, 5]])
    """
    only_tensors("reshape", input)
    return views.reshape(input, tuple(shape))


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merge dimensions `start_dim` to `end_dim` into one.

    Args:
        input: Tensor of any dtype.
        start_dim: First dimension to merge.
        end_dim: Last dimension to merge, included.

    Returns:
        A view where strides allow it, else a copy.

    Example:
        >>> wg.ones(2, 3, 4).flatten(1).shape
        weftgrad.Size([2, 12])
    """
    only_tensors("flatten", input)
    return input.flatten(start_dim, end_dim)


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Split one dimension into several; `sizes` may have one -1.

    Args:
        input: Tensor of any dtype.
        dim: The dimension to split.
        sizes: Sizes of the new dimensions; one may be -1.

    Returns:
        A view of `input`.

    Example:
        >>> wg.ones(2, 12).unflatten(1, (3, -1)).shape
        weftgrad.Size([2, 3, 4])
    """
    only_tensors("unflatten", input)
    return input.unflatten(dim, sizes)


def ravel(input: Tensor) -> Tensor:
    """Flatten to one dimension.

    Args:
        input: Tensor of any dtype.

    Returns:
        Vector: a view where strides allow it, else a copy.

    Example:
        >>> wg.tensor([[1, 2], [3, 4]]).ravel()
        tensor([1, 2, 3, 4])
    """
    only_tensors("ravel", input)
    return views.reshape(input, (-1,))


def permute(input: Tensor, dims: Sequence[int]) -> Tensor:
    """Return a view with the dimensions in another order.

    Args:
        input: Tensor of any dtype.
        dims: Dimension of `input` for each dimension of the result.

    Returns:
        A view of `input`.

    Example:
        >>> wg.ones(2, 3, 4).permute(2, 0, 1).shape
        weftgrad.Size([4, 2, 3])
    """
    return ops.permute(input, tuple(dims))


def t(input: Tensor) -> Tensor:
    """Return the transpose of a matrix; a vector is returned as it is.

    Args:
        input: Tensor of at most two dimensions.

    Returns:
        A view of `input`.

    Raises:
        ShapeError: `input` has more than two dimensions.

    Example:
        >>> wg.tensor([[1, 2], [3, 4]]).t()
        tensor([[1, 3],
                [2, 4]])
    """
    only_tensors("t", input)
    return input.t()


swapaxes = ops.transpose


def movedim(input: Tensor, source: Dims, destination: Dims) -> Tensor:
    """Move dimensions from `source` to `destination` (ints or sequences); the other dimensions keep their order.

    Args:
        input: Tensor of any dtype.
        source: Dimensions to move.
        destination: Their positions in the result.

    Returns:
        A view of `input`.

    Raises:
        ShapeError: The numbers of dimensions differ, or a dimension appears twice.

    Example:
        >>> wg.ones(2, 3, 4).movedim(0, -1).shape
        weftgrad.Size([3, 4, 2])
    """
    only_tensors("movedim", input)
    ndim = input.meta.ndim
    sources = [source] if isinstance(source, int) else list(source or ())
    destinations = [destination] if isinstance(destination, int) else list(destination or ())
    if len(sources) != len(destinations):
        raise ShapeError("movedim: source and destination must name as many dimensions")
    start = [layout.normalize_dim(d, ndim, "movedim") for d in sources]
    end = [layout.normalize_dim(d, ndim, "movedim") for d in destinations]
    if len(set(start)) != len(start) or len(set(end)) != len(end):
        raise ShapeError("movedim: a dimension appears twice")
    remaining = iter([d for d in range(ndim) if d not in start])
    order = [start[end.index(d)] if d in end else next(remaining) for d in range(ndim)]
    return ops.permute(input, tuple(order))


moveaxis = movedim


def flip(input: Tensor, *along: Sizes, dims: Dims = None) -> Tensor:
    """Return a copy with the elements along `dims` (ints, or one sequence) in reverse order.

    Args:
        input: Tensor of any dtype.
        *along: The dimensions, as ints or as one sequence.
        dims: The dimensions by name.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        IndexOutOfRange: A dimension does not exist.

    Example:
        >>> wg.tensor([[1, 2], [3, 4]]).flip(1)
        tensor([[2, 1],
                [4, 3]])
    """
    only_tensors("flip", input)
    requested = to_ints(along if dims is None else (dims,), "flip")
    if not input.meta.ndim:  # a 0-d tensor; PyTorch accepts the dimensions 0 and -1
        if any(d not in (0, -1) for d in requested):
            raise IndexOutOfRange(f"flip: dims {list(requested)} of a tensor without dimensions")
        requested = ()
    return ops.copy(ops.flip_view(input, requested))


def fliplr(input: Tensor) -> Tensor:
    """Reverse the order of columns: flip the second dimension.

    Args:
        input: Tensor of at least two dimensions.

    Returns:
        A copy.

    Raises:
        ShapeError: `input` has fewer than two dimensions.

    Example:
        >>> wg.fliplr(wg.tensor([[1, 2], [3, 4]]))
        tensor([[2, 1],
                [4, 3]])
    """
    if input.meta.ndim < 2:
        raise ShapeError(f"fliplr: takes two dimensions or more, not shape {list(input.meta.shape)}")
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """Reverse the order of rows: flip the first dimension.

    Args:
        input: Tensor of at least one dimension.

    Returns:
        A copy.

    Raises:
        ShapeError: `input` has no dimensions.

    Example:
        >>> wg.flipud(wg.tensor([[1, 2], [3, 4]]))
        tensor([[3, 4],
                [1, 2]])
    """
    if input.meta.ndim < 1:
        raise ShapeError("flipud: takes one dimension or more, not a 0-d tensor")
    return flip(input, 0)


def adjoint(input: Tensor) -> Tensor:
    """Swap the last two dimensions. This is the conjugate transpose, since all dtypes are real.

    Args:
        input: Tensor of shape `(..., m, n)`.

    Returns:
        A view of shape `(..., n, m)`.

    Raises:
        ShapeError: `input` is a vector.

    Example:
        >>> wg.adjoint(wg.ones(5, 2, 3)).shape
        weftgrad.Size([5, 3, 2])
    """
    if input.meta.ndim == 1:
        raise ShapeError("adjoint: takes a matrix or a batch of them, not a vector")
    return input if not input.meta.ndim else ops.transpose(input, -2, -1)


def unbind(input: Tensor, dim: int = 0, *, axis: int | None = None) -> tuple[Tensor, ...]:
    """Return the slices along a dimension, as views without it.

    Args:
        input: Tensor of any dtype.
        dim: The dimension to remove.
        axis: NumPy's name for `dim`.

    Returns:
        As many views as the dimension has elements.

    Example:
        >>> wg.tensor([[1, 2], [3, 4]]).unbind(1)
        (tensor([1, 3]), tensor([2, 4]))
    """
    only_tensors("unbind", input)
    return input.unbind(dim, axis=axis)


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """Return a view in the shape of `other`.

    Args:
        input: Tensor of any dtype.
        other: Tensor whose shape the result has.

    Returns:
        A view of `input`.

    Example:
        >>> wg.arange(4).view_as(wg.ones(2, 2))
        tensor([[0, 1],
                [2, 3]])
    """
    return input.view_as(other)


def _matrix_transpose(self: Tensor) -> Tensor:
    """Swap the last two dimensions; mH is the same, since all dtypes are real."""
    if self.meta.ndim == 1:
        raise ShapeError("mT, mH: a vector has no last two dimensions; use .unsqueeze() first")
    return adjoint(self)


def _conjugate_transpose(self: Tensor) -> Tensor:
    """Return the transpose of a matrix, which is also its conjugate transpose, since all dtypes are real."""
    if self.meta.ndim not in (0, 2):
        raise ShapeError(f"H: takes a matrix, not shape {list(self.meta.shape)}; use .mH for batches of matrices")
    return adjoint(self)


METHODS: dict[str, object] = {
    name: globals()[name] for name in ("adjoint", "flip", "fliplr", "flipud", "moveaxis", "movedim", "ravel")
}
METHODS |= {
    "H": property(_conjugate_transpose), "mH": property(_matrix_transpose), "mT": property(_matrix_transpose),
}  # fmt: skip
