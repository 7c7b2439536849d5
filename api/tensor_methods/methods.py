"""Tensor methods that are not ops: shape, strides, views and autograd history.

`conversion` has copies, casts and Python protocols. `install` adds both to the class.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, SupportsIndex, TypeVar, overload

from .. import autograd
from ..arguments.aliases import resolve_axis_alias
from ..arguments.types import Layout, MemoryFormat, Sizes
from ..runtime import views
from ..runtime.autograd.inplace import Retained
from ..runtime.autograd.node import Node
from ..runtime.autograd.rules import sum_to
from ..runtime.backends.host import HostDriver
from ..runtime.dispatch import call, refresh_views
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, DeviceError, DTypeError, GradientError, IndexOutOfRange, ShapeError
from ..runtime.layout import infer_shape, normalize_dim
from ..runtime.records import registry
from ..runtime.storage import Hold
from ..runtime.tensor import Tensor
from .conversion import Conversions
from .size import Size

__all__ = ["install"]

_hook_ids = itertools.count()
_Hook = TypeVar("_Hook")


class Handle:
    """The handle of a hook; `remove()` removes the hook.

    Args:
        hooks: Dict of hooks.
        key: Key of the hook in that dict.

    Example:
        >>> x = wg.ones(1, requires_grad=True)
        >>> handle = x.register_hook(lambda grad: grad * 10)
        >>> handle.remove()
        >>> x.sum().backward()
        >>> x.grad
        tensor([1.])
    """

    def __init__(self, hooks: dict[int, _Hook], key: int):
        self._key = key
        self._remove = partial(hooks.pop, key, None)

    def remove(self) -> None:
        self._remove()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


if TYPE_CHECKING:
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object


class _Methods(TensorBase):
    """Methods that `install` copies to `Tensor`, so `self` is a Tensor."""

    # Shape and views

    @property
    def shape(self) -> Size:
        """The sizes of the dimensions."""
        return Size(self.meta.shape)

    @overload
    def size(self, dim: None = None) -> Size: ...
    @overload
    def size(self, dim: int) -> int: ...
    def size(self, dim: int | None = None) -> Size | int:
        """Return the shape, or the size of one dimension.

        Args:
            dim: The dimension; None: all of them.

        Returns:
            The shape, or the size of one dimension.

        Example:
            >>> wg.ones(2, 3).size()
            weftgrad.Size([2, 3])
            >>> wg.ones(2, 3).size(0)
            2
        """
        return Size(self.meta.shape) if dim is None else self.meta.shape[_dim(dim, self.meta.ndim, "size")]

    @overload
    def stride(self, dim: None = None) -> tuple[int, ...]: ...
    @overload
    def stride(self, dim: int) -> int: ...
    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        """Return the strides in elements, or that of one dimension.

        Args:
            dim: The dimension; None: all of them.

        Returns:
            Distances between neighbours, in elements.

        Example:
            >>> wg.ones(2, 3).stride()
            (3, 1)
        """
        return self.meta.strides if dim is None else self.meta.strides[_dim(dim, self.meta.ndim, "stride")]

    def storage_offset(self) -> int:
        """Return the number of elements between the start of the storage and the first element.

        Returns:
            Elements.

        Example:
            >>> wg.arange(4)[1:].storage_offset()
            1
        """
        return (self.start - self.storage.start) // self.meta.dtype.itemsize

    def numel(self) -> int:
        """Return the number of elements.

        Returns:
            Python int.

        Example:
            >>> wg.ones(2, 3).numel()
            6
        """
        return int(self.meta.numel)

    nelement = numel

    def dim(self) -> int:
        """Return the number of dimensions.

        Returns:
            Python int.

        Example:
            >>> wg.ones(2, 3).dim()
            2
        """
        return int(self.meta.ndim)

    def element_size(self) -> int:
        """Return the size of one element in bytes.

        Returns:
            Bytes.

        Example:
            >>> wg.ones(2, 3).element_size()
            4
        """
        return int(self.meta.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.meta.nbytes)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.meta.dtype.itemsize)

    def is_contiguous(self, memory_format: MemoryFormat | None = None) -> bool:
        """Return True if the memory is row-major without gaps, or channels-last if `memory_format` says so.

        Args:
            memory_format: `"channels_last"` (4 dimensions) or `"channels_last_3d"` (5) asks for channels as the
                innermost dimension; everything else for row-major order.

        Returns:
            Python bool.

        Example:
            >>> wg.ones(2, 3).T.is_contiguous()
            False
        """
        if memory_format in ("channels_last", "channels_last_3d"):
            dims = 4 if memory_format == "channels_last" else 5
            return bool(self.meta.ndim == dims and self.movedim(1, -1).is_contiguous())
        return bool(self.meta.contiguous)

    def data_ptr(self) -> int:
        """Return the address of the first element on `cpu`; on other devices, its offset in the buffer.

        Returns:
            Python int.

        Example:
            >>> wg.arange(4, device='cpu')[1:].data_ptr() > 0
            True
        """
        driver = self.meta.device.driver
        if not self.meta.numel or not isinstance(driver, HostDriver):
            return int(self.start)
        driver.synchronize()
        if self.storage.owner is None:  # readers of the address do not wait, so later launches must not be deferred
            self.storage.owner = Hold()
        return int(driver.address(self.storage)) + int(self.start)

    def is_floating_point(self) -> bool:
        """Return True if the dtype is floating.

        Returns:
            Python bool.

        Example:
            >>> wg.ones(2, 3).is_floating_point()
            True
        """
        return bool(self.meta.dtype.is_floating_point)

    def is_complex(self) -> bool:
        """Return False: there are no complex dtypes.

        Returns:
            False.

        Example:
            >>> wg.ones(2).is_complex()
            False
        """
        return False

    @property
    def is_cpu(self) -> bool:
        """Whether the device is `cpu`."""
        return bool(self.meta.device.type == "cpu")

    @property
    def is_sparse(self) -> bool:
        """False: every tensor is dense."""
        return False

    @property
    def is_quantized(self) -> bool:
        """False: there are no quantized dtypes."""
        return False

    @property
    def layout(self) -> Layout:
        """`weftgrad.strided`: every tensor is dense."""
        return "strided"

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a CUDA device."""
        return bool(self.meta.device.type == "cuda")

    def get_device(self) -> int:
        """Return the index of the device, -1 for `cpu`.

        Returns:
            Python int.

        Example:
            >>> wg.ones(2, device='cpu').get_device()
            -1
        """
        return -1 if self.meta.device.index is None else int(self.meta.device.index)

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
        if not self.meta.ndim:
            return views.reshape(self, (1,))
        a, b = (normalize_dim(d, self.meta.ndim, "flatten") for d in (start_dim, end_dim))
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
            memory_format: Accepted for compatibility with PyTorch.

        Returns:
            This tensor if it is row-major, else a copy.

        Example:
            >>> wg.ones(2, 3).T.contiguous().stride()
            (2, 1)
        """
        return views.contiguous(self)

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

    # Autograd history

    @property
    def requires_grad(self) -> bool:
        """Whether autograd records operations on this tensor."""
        refresh_views(self)
        return bool(self.needs)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether autograd records operations on this tensor.

        Args:
            requires_grad: Whether to record operations on this tensor.

        Returns:
            This tensor.

        Raises:
            GradientError: `requires_grad` is False for a tensor that is not a leaf, or True for one that is not
                floating.

        Example:
            >>> wg.ones(2).requires_grad_()
            tensor([1., 1.], requires_grad=True)
        """
        if self.node is not None and not requires_grad:
            raise GradientError(
                "requires_grad_: only leaves can be changed; use .detach() for a tensor without history"
            )
        if requires_grad and self.meta.dtype.kind != "f":
            raise GradientError(f"requires_grad_: only floating tensors have gradients, not {self.meta.dtype.name}")
        self.needs = bool(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded call computed this tensor."""
        refresh_views(self)
        return self.node is None

    @property
    def grad_fn(self) -> Node | None:
        """The recorded call that computed this tensor, or None."""
        refresh_views(self)
        return self.node

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf, or None."""
        return None if self.extra is None else self.extra.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise ArgumentError(f"grad: must be a tensor or None, not {type(value).__name__}")
            if value.meta.shape != self.meta.shape:
                raise ShapeError(f"grad: has shape {list(value.meta.shape)}, the tensor {list(self.meta.shape)}")
            if value.meta.dtype is not self.meta.dtype:
                raise DTypeError(
                    f"grad: is {value.meta.dtype.name}, the tensor {self.meta.dtype.name}; convert it with .to(tensor)"
                )
            if value.meta.device is not self.meta.device:
                raise DeviceError(
                    f"grad: is on {value.meta.device}, the tensor on {self.meta.device}; move it with .to(tensor)"
                )
        self.more().grad = value

    @grad.deleter
    def grad(self) -> None:
        if self.extra is not None:
            self.extra.grad = None

    @property
    def _version(self) -> int:
        """How often the memory was written in place."""
        return int(self.storage.version)

    @property
    def _base(self) -> Tensor | None:
        """The tensor this is a view of, or None."""
        return None if self.extra is None else self.extra.base

    def _is_view(self) -> bool:
        return self.extra is not None and self.extra.base is not None

    @property
    def output_nr(self) -> int:
        """Which result of `grad_fn` this tensor is."""
        return int(self.output)

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Compute gradients and add them to the `grad` of every leaf that this tensor depends on.

        Args:
            gradient: Gradient of this tensor; 1 by default, for a tensor of one element.
            retain_graph: Whether to keep saved tensors for another backward; None: as `create_graph`.
            create_graph: Whether to record the computation of the gradients.
            inputs: Tensors to compute gradients for, instead of all leaves.

        Raises:
            GradientError: If this tensor does not require grad, has several elements and no `gradient`, or the graph
                was freed.

        Example:
            >>> x = wg.tensor([1.0, 2.0], requires_grad=True)
            >>> (x * x).sum().backward()
            >>> x.grad
            tensor([2., 4.])
        """
        autograd.backward(self, gradient, retain_graph, create_graph, inputs)

    def detach(self) -> Tensor:
        """Return a tensor without history that shares this memory.

        Returns:
            Tensor that does not require grad.

        Example:
            >>> wg.ones(2, requires_grad=True).detach()
            tensor([1., 1.])
        """
        out = Tensor(self.storage, self.meta, self.start)
        return out

    def detach_(self) -> Tensor:
        """Drop this tensor's history in place; a view is no longer a view of its base.

        Returns:
            This tensor.

        Example:
            >>> (wg.ones(2, requires_grad=True) * 2).detach_()
            tensor([2., 2.])
        """
        self.node = None
        self.needs = False
        if self.extra is not None:
            self.extra.base = None
        return self

    @property
    def data(self) -> Tensor:
        """The same memory without history."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentError(f"data: must be a tensor, not {type(value).__name__}; make one with tensor()")
        self.storage, self.meta, self.start = value.storage, value.meta, value.start

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Handle:
        """Call `hook(grad)` when the gradient of this tensor is computed.

        Args:
            hook: Function; its result, if not None, replaces the gradient.

        Returns:
            Handle, whose `remove()` removes the hook.

        Raises:
            GradientError: If the tensor does not require grad. From backward, if the result of `hook` has another
                shape, dtype or device than the gradient.

        Example:
            >>> x = wg.ones(2, requires_grad=True)
            >>> handle = x.register_hook(lambda grad: grad * 10)
            >>> x.sum().backward()
            >>> x.grad
            tensor([10., 10.])
        """
        refresh_views(self)
        if not self.needs:
            raise GradientError("register_hook: the tensor does not require grad")
        key = next(_hook_ids)
        if self.node is None:
            extra = self.more()
            extra.hooks = extra.hooks or {}
            extra.hooks[key] = hook
            return Handle(extra.hooks, key)
        self.node.hooks = self.node.hooks or {}
        self.node.hooks[key] = (self.output, hook)
        return Handle(self.node.hooks, key)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Handle:
        """Call `hook(tensor)` whenever a backward has added to this leaf's `grad`, for example for an optimizer step.

        Args:
            hook: Function that returns None.

        Returns:
            Handle, whose `remove()` removes the hook.

        Raises:
            GradientError: If the tensor is not a leaf or does not require grad.

        Example:
            >>> x = wg.ones(2, requires_grad=True)
            >>> handle = x.register_post_accumulate_grad_hook(lambda tensor: print(tensor.grad))
            >>> x.sum().backward()
            tensor([1., 1.])
        """
        refresh_views(self)
        if not self.needs or self.node is not None:
            raise GradientError("register_post_accumulate_grad_hook: takes leaves that require grad")
        extra = self.more()
        extra.stored = extra.stored or {}
        key = next(_hook_ids)
        extra.stored[key] = hook
        return Handle(extra.stored, key)

    def retain_grad(self) -> None:
        """Store the gradient of this non-leaf tensor in `grad`.

        Raises:
            GradientError: If the tensor does not require grad.

        Example:
            >>> y = wg.ones(2, requires_grad=True) * 2
            >>> y.retain_grad()
            >>> y.sum().backward()
            >>> y.grad
            tensor([1., 1.])
        """
        refresh_views(self)
        if not self.needs:
            raise GradientError("retain_grad: the tensor does not require grad, so none will be there to keep")
        extra = self.more()
        if self.node is None or extra.retains:
            return
        retained = Retained(extra)
        extra.retains = (self.register_hook(retained)._key, retained)

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return self.extra is not None and bool(self.extra.retains)


def _dim(dim: int, ndim: int, where: str) -> int:
    if not ndim:
        raise IndexOutOfRange(f"{where}: the tensor has no dimensions, so none is {dim!r}")
    return normalize_dim(dim, ndim, where)


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


def install() -> None:
    """Add all methods to `Tensor`."""
    skipped_names = ("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__qualname__")
    for source in (_Methods, Conversions):
        for name, value in vars(source).items():
            if name not in skipped_names:
                setattr(Tensor, name, value)
