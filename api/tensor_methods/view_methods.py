"""Tensor's methods that return the same elements in another shape: views, or copies where strides forbid a view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, SupportsIndex, overload

from ..arguments.aliases import resolve_axis_alias
from ..arguments.memory_formats import copy_in_format, format_strides, has_format
from ..arguments.types import MemoryFormat, Sizes
from ..runtime import views
from ..runtime.autograd.rules import sum_to
from ..runtime.dispatch import call
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.layout import infer_shape, normalize_dim
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["ViewMethods"]

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object


class ViewMethods(TensorBase):
    """Methods that `methods.install` copies to `Tensor`, so `self` is a Tensor."""

    @property
    def T(self) -> Tensor:
        """A view with the dimensions in reverse order."""
        return call(registry["permute"], (self,), (tuple(range(self.meta.ndim - 1, -1, -1)),))

    @property
    def mT(self) -> Tensor:
        """A view with the last two dimensions swapped."""
        return call(registry["transpose"], (self,), (-2, -1))

    def t(self) -> Tensor:
        """Return the transpose of a matrix; vectors and scalars are returned as they are.

        Returns:
            A view of this tensor.

        Raises:
            ShapeError: The tensor has more than 2 dimensions.

        Example:
            >>> wg.tensor([[1, 2], [3, 4]]).t()
            tensor([[1, 3],
                    [2, 4]])
        """
        if self.meta.ndim > 2:
            raise ShapeError(f"t: takes at most 2 dimensions, the tensor has {self.meta.ndim}; use .transpose()")
        return call(registry["permute"], (self,), ((1, 0)[2 - self.meta.ndim :],))

    @overload
    def view(self, dtype: DType) -> Tensor: ...
    @overload
    def view(self, *shape: Sizes, size: Sequence[int] | None = None) -> Tensor: ...
    def view(self, *shape: Sizes | DType, size: Sequence[int] | None = None, dtype: DType | None = None) -> Tensor:
        """Return a view in another shape, or with the bits read as another dtype.

        Args:
            *shape: The shape as ints or one sequence, with at most one -1; or a single dtype. If that has another
                element size, the last dimension grows or shrinks.
            size: The shape by name.
            dtype: The dtype by name.

        Returns:
            A view of this tensor.

        Raises:
            ShapeError: The strides do not allow a view.
            GradientError: The dtype changes and the tensor requires grad.

        Example:
            >>> wg.arange(6).view(2, -1)
            tensor([[0, 1, 2],
                    [3, 4, 5]])
        """
        if dtype is not None or size is not None:
            shape = (*shape, *(named for named in (size, dtype) if named is not None))
        if len(shape) == 1 and isinstance(shape[0], DType):
            return views.view_as_dtype(self, shape[0])
        return call(registry["view"], (self,), (_sizes(shape),))

    def view_as(self, other: Tensor) -> Tensor:
        """Return a view in the shape of `other`.

        Args:
            other: Tensor whose shape the result has.

        Returns:
            A view of this tensor.

        Example:
            >>> wg.ones(2, 3).view_as(wg.ones(6)).shape
            weftgrad.Size([6])
        """
        return call(registry["view"], (self,), (other.meta.shape,))

    def sum_to_size(self, *size: Sizes) -> Tensor:
        """Sum over the dimensions along which `size` broadcasts to this shape.

        Args:
            *size: The shape, as ints or as one sequence.

        Returns:
            Tensor of shape `size`.

        Raises:
            ShapeError: If `size` does not broadcast to this shape.

        Example:
            >>> wg.ones(2, 3).sum_to_size(1, 3)
            tensor([[2., 2., 2.]])
        """
        target_shape = _sizes(size)
        padded = (1,) * (self.meta.ndim - len(target_shape)) + target_shape
        if len(target_shape) > self.meta.ndim or any(
            n not in (1, m) for n, m in zip(padded, self.meta.shape, strict=True)
        ):
            raise ShapeError(f"sum_to_size: {list(target_shape)} does not broadcast to {list(self.meta.shape)}")
        return sum_to(self, target_shape)

    def reshape(self, *sizes: Sizes, shape: Sequence[int] | None = None) -> Tensor:
        """Return the elements in another shape: a view where strides allow it, else a copy.

        Args:
            *sizes: New shape, as ints or as one sequence; one -1 stands for the size that the others leave.
            shape: The new shape by name.

        Returns:
            A view where strides allow it, else a copy.

        Example:
            >>> wg.arange(6).reshape(2, -1)
            tensor([[0, 1, 2],
                    [3, 4, 5]])
        """
        return views.reshape(self, _sizes(sizes if shape is None else (*sizes, shape)))

    def reshape_as(self, other: Tensor) -> Tensor:
        """Reshape to the shape of `other`.

        Args:
            other: Tensor whose shape the result has.

        Returns:
            A view where strides allow it, else a copy.

        Example:
            >>> wg.ones(2, 3).reshape_as(wg.ones(6)).shape
            weftgrad.Size([6])
        """
        return views.reshape(self, other.meta.shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """Merge dimensions `start_dim` to `end_dim` into one.

        Args:
            start_dim: First dimension.
            end_dim: Last dimension, included.

        Returns:
            A view where strides allow it, else a copy; shape `(1,)` for a tensor without dimensions.

        Raises:
            ShapeError: If `start_dim` comes after `end_dim`.

        Example:
            >>> wg.ones(2, 3, 4).flatten(1).shape
            weftgrad.Size([2, 12])
        """
        a, b = (normalize_dim(d, self.meta.ndim, "flatten") for d in (start_dim, end_dim))
        if not self.meta.ndim:
            return views.reshape(self, (1,))
        if a > b:
            raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
        if a == b:
            return self
        shape = self.meta.shape
        merged = 1
        for n in shape[a : b + 1]:
            merged *= n
        return views.reshape(self, (*shape[:a], merged, *shape[b + 1 :]))

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Tensor:
        """Split one dimension into several; `sizes` may have one -1.

        Args:
            dim: The dimension to split.
            sizes: Sizes of the new dimensions; one may be -1.

        Returns:
            A view of this tensor.

        Example:
            >>> wg.ones(2, 12).unflatten(1, (3, -1)).shape
            weftgrad.Size([2, 3, 4])
        """
        axis = normalize_dim(dim, self.meta.ndim, "unflatten")
        shape = self.meta.shape
        split_sizes = infer_shape(tuple(sizes), shape[axis], "unflatten")
        return call(registry["view"], (self,), ((*shape[:axis], *split_sizes, *shape[axis + 1 :]),))

    def permute(self, *axes: Sizes, dims: Sequence[int] | None = None) -> Tensor:
        """Return a view with the dimensions in another order.

        Args:
            *axes: Dimension of this tensor for each dimension of the result, as ints or as one sequence.
            dims: The dimensions by name.

        Returns:
            A view of this tensor.

        Example:
            >>> wg.ones(2, 3, 4).permute(2, 0, 1).shape
            weftgrad.Size([4, 2, 3])
        """
        return call(registry["permute"], (self,), (_sizes(axes if dims is None else (*axes, dims)),))

    def expand(self, *sizes: Sizes, size: Sequence[int] | None = None) -> Tensor:
        """Return a view with dimensions of size 1 expanded; -1 keeps a size.

        Args:
            *sizes: The shape, as ints or as one sequence; -1 keeps a size.
            size: The shape by name.

        Returns:
            A view, in which repeated elements share memory.

        Example:
            >>> wg.tensor([[1], [2]]).expand(-1, 2)
            tensor([[1, 1],
                    [2, 2]])
        """
        return call(registry["expand"], (self,), (_sizes(sizes if size is None else (*sizes, size)),))

    def expand_as(self, other: Tensor) -> Tensor:
        """Return a view expanded to the shape of `other`.

        Args:
            other: Tensor whose shape the result has.

        Returns:
            A view, in which repeated elements share memory.

        Example:
            >>> wg.tensor([[1], [2]]).expand_as(wg.ones(2, 2))
            tensor([[1, 1],
                    [2, 2]])
        """
        return call(registry["expand"], (self,), (other.meta.shape,))

    def as_strided(self, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
        """Return a view with any shape, strides and offset.

        Args:
            size: The shape.
            stride: Distance between neighbours in each dimension, in elements, not negative.
            storage_offset: Position of the first element in the storage, in elements; None: that of this tensor.

        Returns:
            A view of this tensor's storage.

        Raises:
            ShapeError: If the view leaves the storage, or a stride is negative.

        Example:
            >>> wg.arange(4).as_strided((2, 2), (1, 2))
            tensor([[0, 2],
                    [1, 3]])
        """
        itemsize = self.meta.dtype.itemsize
        current_offset = (self.start - self.storage.start) // itemsize
        offset = current_offset if storage_offset is None else storage_offset
        last_element = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=False) if n > 0)
        if (
            offset < 0
            or any(s < 0 for s in stride)
            or (0 not in size and (last_element + 1) * itemsize > self.storage.nbytes)
        ):
            raise ShapeError(
                f"as_strided: size {list(size)}, stride {list(stride)}, offset {offset} leave a storage of "
                f"{self.storage.nbytes // itemsize} elements"
            )
        return call(registry["as_strided"], (self,), (tuple(size), tuple(stride), offset - current_offset))

    def contiguous(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Return the tensor itself if it is contiguous, else a contiguous copy.

        Args:
            memory_format: `channels_last` or `channels_last_3d` for channels as the innermost dimension; None:
                row-major.

        Returns:
            This tensor if it has no gaps and is in that order, else a copy.

        Raises:
            ShapeError: `memory_format` is for tensors of another rank.
            ArgumentError: `memory_format` is `preserve_format`.

        Example:
            >>> wg.ones(2, 3).T.contiguous().stride()
            (2, 1)
        """
        if memory_format is None or memory_format == "contiguous_format":
            return views.contiguous(self)
        format_strides("contiguous", memory_format, self.meta.shape)  # raises an error for other ranks
        return self if has_format(self.meta, memory_format) else copy_in_format("contiguous", self, memory_format)

    def unbind(self, dim: int = 0, *, axis: int | None = None) -> tuple[Tensor, ...]:
        """Return the slices along a dimension, as views without it.

        Args:
            dim: The dimension to remove.
            axis: NumPy's name for `dim`.

        Returns:
            As many views as the dimension has elements.

        Example:
            >>> wg.tensor([[1, 2], [3, 4]]).unbind()
            (tensor([1, 2]), tensor([3, 4]))
        """
        if axis is not None:
            dim = resolve_axis_alias("unbind", dim, 0, axis)
        return tuple(call(registry["select"], (self,), (dim, i)) for i in range(self.shape[dim]))


def _sizes(args: Sequence[object]) -> tuple[int, ...]:
    """Return the ints of arguments that are ints (or other objects with `__index__`) or one sequence of them."""
    sizes = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    integers = tuple([n for n in sizes if isinstance(n, int)])
    if len(integers) == len(sizes):
        return integers
    indices = tuple([n.__index__() for n in sizes if isinstance(n, (int, SupportsIndex))])
    if len(indices) < len(sizes):
        raise ArgumentError(f"sizes and dimensions are ints, not {tuple(sizes)!r}")
    return indices
