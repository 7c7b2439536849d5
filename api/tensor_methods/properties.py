"""Tensor's properties, such as its shape, strides and device, and the methods that return them."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from ..arguments.memory_formats import has_format
from ..arguments.types import Layout, MemoryFormat
from ..runtime.backends.host import HostDriver
from ..runtime.errors import IndexOutOfRange
from ..runtime.layout import normalize_dim
from ..runtime.storage import Hold
from .size import Size

__all__ = ["Properties"]

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object


class Properties(TensorBase):
    """Methods that `methods.install` copies to `Tensor`, so `self` is a Tensor."""

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
        return self.meta.contiguous if memory_format is None else has_format(self.meta, memory_format)

    def dense_dim(self) -> int:
        """Return the number of dimensions, all of which are dense.

        Returns:
            Python int.

        Example:
            >>> wg.ones(2, 3).dense_dim()
            2
        """
        return self.meta.ndim

    def sparse_dim(self) -> int:
        """Return 0: no dimension is sparse.

        Returns:
            Python int.

        Example:
            >>> wg.ones(2, 3).sparse_dim()
            0
        """
        return 0

    def is_set_to(self, tensor: Tensor) -> bool:
        """Return True if both tensors have the same memory, first element, shape and strides.

        Args:
            tensor: The other tensor.

        Returns:
            Python bool.

        Example:
            >>> x = wg.ones(2, 3)
            >>> x.is_set_to(x[:]), x.is_set_to(x.T)
            (True, False)
        """
        is_same_view = self.meta.shape == tensor.meta.shape and self.meta.strides == tensor.meta.strides
        return is_same_view and self.storage is tensor.storage and self.start == tensor.start

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

    @property
    def is_mps(self) -> bool:
        """False: there is no device of this type."""
        return False

    @property
    def is_xpu(self) -> bool:
        """False: there is no device of this type."""
        return False

    @property
    def is_meta(self) -> bool:
        """Whether the device is `meta`: the tensor has a shape and no values."""
        return bool(self.meta.device.type == "meta")

    @property
    def is_nested(self) -> bool:
        """False: every tensor has one shape."""
        return False

    @property
    def is_mkldnn(self) -> bool:
        """False: every tensor is row-major or a view of one."""
        return False

    def get_device(self) -> int:
        """Return the index of the device, -1 for `cpu`.

        Returns:
            Python int.

        Example:
            >>> wg.ones(2, device='cpu').get_device()
            -1
        """
        return -1 if self.meta.device.index is None else int(self.meta.device.index)


def _dim(dim: int, ndim: int, where: str) -> int:
    if not ndim:
        raise IndexOutOfRange(f"{where}: the tensor has no dimensions, so none is {dim!r}")
    return normalize_dim(dim, ndim, where)
