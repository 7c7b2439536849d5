"""Tensor's methods for copies, conversion to another dtype or device, and exchange with Python and NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ..arguments.memory_formats import copy_in_format, has_format, suggested_format
from ..arguments.types import MemoryFormat, Operand
from ..creation import legacy_constructors
from ..creation.legacy_constructors import LegacyType
from ..runtime import host_data
from ..runtime.autograd import inplace
from ..runtime.context import current_stream
from ..runtime.device import Device, DeviceLike, meta
from ..runtime.device import device as to_device
from ..runtime.dispatch import call, call_into, empty, is_recorded
from ..runtime.dtypes import Array, DType, DTypeLike
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.modes import notify_host_read
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from .argument_checks import to_dtype_number
from .conversion_arguments import parse_conversion
from .transfers import transfer

__all__ = ["Conversions"]

if TYPE_CHECKING:
    from ..execution.streams import Stream
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object

# A string in the first position names a device.
_PositionalDType = DType | type[bool] | type[int] | type[float] | np.dtype[np.generic] | type[np.generic]


class Conversions(TensorBase):
    """Methods that `methods.install` copies to `Tensor`, so `self` is a Tensor."""

    def clone(self, *, memory_format: MemoryFormat | None = None) -> Tensor:
        """Return a copy; gradients flow back to this tensor.

        Args:
            memory_format: Order of dimensions in memory; None: the order of this tensor, without gaps.

        Returns:
            Tensor with memory of its own.

        Raises:
            ShapeError: `memory_format` is for tensors of another rank.

        Example:
            >>> wg.tensor([1, 2]).clone()
            tensor([1, 2])
        """
        if memory_format is not None:
            return copy_in_format("clone", self, memory_format)
        return call(registry["copy"], (self,), (None,))

    def copy_(self, source: Operand, non_blocking: bool = False) -> Tensor:
        """Copy `source` into this tensor; it is broadcast and converted.

        Args:
            source: Tensor on any device, or a number.
            non_blocking: Accepted for compatibility with PyTorch.

        Returns:
            This tensor.

        Raises:
            ShapeError: If the shape of `source` does not expand to this tensor's.

        Example:
            >>> wg.zeros(2, 2).copy_(wg.tensor([1, 2]))
            tensor([[1., 2.],
                    [1., 2.]])
        """
        if not isinstance(source, Tensor):
            return call_into(registry["fill"], (self, source), (), (self,), in_place=True)
        operand: Tensor = source
        if operand.meta.device is not self.meta.device:
            operand = transfer(operand, self.meta.device)
        if operand.meta.shape != self.meta.shape:
            operand = call(registry["expand"], (operand,), (self.meta.shape,))
        if not self.meta.numel and not is_recorded(operand):
            return self
        if operand.storage is self.storage and operand.start == self.start and operand.meta is self.meta:
            if is_recorded(self):
                inplace.check(registry["copy"], self)
            return self
        return call_into(registry["copy"], (operand,), (None,), (self,), in_place=True)

    def fill_(self, value: Operand) -> Tensor:
        """Set every element to a number or a 0-d tensor, whose gradient is the sum of this tensor's gradient.

        Args:
            value: Number, or a tensor of shape `()`.

        Returns:
            This tensor.

        Raises:
            ShapeError: `value` is a tensor of several elements, or has dimensions and requires grad.

        Example:
            >>> wg.empty(2).fill_(3)
            tensor([3., 3.])
        """
        if isinstance(value, Tensor) and is_recorded(value):
            if value.meta.ndim:
                raise ShapeError(f"fill_: takes a number or a tensor without dimensions, not shape {list(value.shape)}")
            return self.copy_(value)
        number = value.item() if isinstance(value, Tensor) else value
        number = to_dtype_number(number, self.meta.dtype, "fill_")
        if not self.meta.numel:
            return self
        return call_into(registry["fill"], (self, number), (), (self,), in_place=True)

    def zero_(self) -> Tensor:
        """Set every element to 0.

        Returns:
            This tensor.

        Example:
            >>> wg.empty(2).zero_()
            tensor([0., 0.])
        """
        return self.fill_(0)

    @overload
    def to(
        self, dtype: _PositionalDType, non_blocking: bool = False, copy: bool = False, *,
        memory_format: MemoryFormat | None = None,
    ) -> Tensor: ...  # fmt: skip
    @overload
    def to(
        self, device: DeviceLike | None = None, dtype: DTypeLike | None = None, non_blocking: bool = False,
        copy: bool = False, *, memory_format: MemoryFormat | None = None,
    ) -> Tensor: ...  # fmt: skip
    @overload
    def to(
        self, other: Tensor, /, non_blocking: bool = False, copy: bool = False, *,
        memory_format: MemoryFormat | None = None,
    ) -> Tensor: ...  # fmt: skip
    def to(
        self, *args: DeviceLike | DTypeLike | Tensor | None, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None, copy: bool | None = None, non_blocking: bool = False,
        memory_format: MemoryFormat | None = None,
    ) -> Tensor:  # fmt: skip
        """Convert to another device, another dtype, or both.

        `to(device, dtype, non_blocking, copy)`, `to(dtype, non_blocking, copy)` or `to(tensor, non_blocking, copy)`.

        Args:
            *args: A device, a dtype (also NumPy's, or `float`, `int`, `bool`), or a tensor that has both; then the
                bools `non_blocking` and `copy`. A text is a device.
            device: Target device.
            dtype: Target dtype.
            copy: Whether to copy even if nothing changes; otherwise the tensor itself is returned.
            non_blocking: Accepted for compatibility with PyTorch.
            memory_format: Order of dimensions in memory, such as `channels_last`; None: the order of this tensor.

        Returns:
            This tensor if nothing changes and `copy` is False, else a converted copy.

        Raises:
            ArgumentError: An argument is none of these, or a device, a dtype or `copy` is passed twice.
            ShapeError: `memory_format` is for tensors of another rank.
            UnknownDevice: There is no device of that name.

        Example:
            >>> wg.tensor([1, 2]).to(wg.float32)
            tensor([1., 2.])
        """
        target_device, target_dtype, should_copy = parse_conversion("to", args, device, dtype, copy)
        result: Tensor = self
        if memory_format is not None and memory_format != "preserve_format":
            result = _convert_format(self, memory_format, target_device, target_dtype, should_copy)
        elif target_dtype is not None and target_dtype is not self.meta.dtype:
            result = call(registry["copy"], (result,), (target_dtype,))
        if target_device is not None and target_device is not self.meta.device:
            return transfer(result, target_device)
        return result.clone() if should_copy and result is self else result

    @overload
    def type(self, dtype: None = None, non_blocking: bool = False) -> str: ...
    @overload
    def type(self, dtype: DTypeLike | LegacyType, non_blocking: bool = False) -> Tensor: ...
    def type(self, dtype: DTypeLike | LegacyType | None = None, non_blocking: bool = False) -> str | Tensor:
        """Return the legacy type name, such as `weftgrad.FloatTensor`; with `dtype`, convert to it.

        `dtype` is a dtype, a legacy class, or the name of one, which may begin with `torch.`.

        Args:
            dtype: A dtype, a legacy class, or the name of one, which may begin with `torch.`; None returns the name.
            non_blocking: Accepted for compatibility with PyTorch.

        Returns:
            Text, or a tensor of that dtype.

        Example:
            >>> wg.tensor([1.5, 2.5], device='cpu').type()
            'weftgrad.FloatTensor'
            >>> wg.tensor([1.5, 2.5]).type(wg.int64)
            tensor([1, 2])
        """
        if dtype is None:
            return legacy_constructors.type_name(self)
        return self.to(dtype=legacy_constructors.dtype_of(dtype), non_blocking=non_blocking)

    def type_as(self, other: Tensor) -> Tensor:
        """Convert to the dtype and the device of `other`.

        Args:
            other: Tensor whose dtype and device the result has.

        Returns:
            This tensor if it has both already, else a converted copy.

        Example:
            >>> wg.tensor([1]).type_as(wg.tensor([0.5]))
            tensor([1.])
        """
        return self.to(other)

    def cpu(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Copy to the host, or return the tensor itself if it is there.

        Args:
            memory_format: Order of dimensions in memory; None: the order of this tensor.

        Returns:
            This tensor if it is there already, else a copy.

        Example:
            >>> wg.tensor([1]).cpu().device
            device(type='cpu')
        """
        return self.to(device="cpu", memory_format=memory_format)

    def cuda(
        self, device: DeviceLike | None = None, non_blocking: bool = False, memory_format: MemoryFormat | None = None
    ) -> Tensor:
        """Copy to a CUDA device (default `cuda:0`).

        Args:
            device: The device; None: `cuda:0`.
            non_blocking: Accepted for compatibility with PyTorch.
            memory_format: Order of dimensions in memory; None: the order of this tensor.

        Returns:
            This tensor if it is there already, else a copy.

        Raises:
            DriverNotFound: If there is no GPU, or a package that it needs is missing.

        Example:
            >>> if wg.cuda.is_available():
            ...     x = wg.ones(2).cuda()
            ...
        """
        return self.to(device=device if device is not None else "cuda:0", memory_format=memory_format)

    def to_dense(self, dtype: DTypeLike | None = None, *, masked_grad: bool | None = None) -> Tensor:
        """Return this tensor, which is dense, converted to `dtype` if that is another one.

        Args:
            dtype: Dtype of the result; None: that of this tensor.
            masked_grad: Accepted for compatibility with PyTorch.

        Returns:
            This tensor, or a converted copy.

        Example:
            >>> x = wg.ones(2)
            >>> x.to_dense() is x
            True
        """
        return self if dtype is None else self.to(dtype=dtype)

    def pin_memory(self, device: DeviceLike | None = None) -> Tensor:
        """Return a copy in page-locked host memory, which makes copies to a CUDA device fast and asynchronous.

        Args:
            device: CUDA device; None: `cuda:0`.

        Returns:
            Tensor on `cpu`.

        Raises:
            DriverNotFound: If there is no GPU, or a package that it needs is missing.

        Example:
            >>> if wg.cuda.is_available():
            ...     x = wg.ones(2, device='cpu').pin_memory()
            ...
        """
        return host_data.pin_memory(self, to_device("cuda:0" if device is None else device))

    def is_pinned(self, device: DeviceLike | None = None) -> bool:
        """Return True if the memory is page-locked for a CUDA device.

        Args:
            device: Accepted for compatibility with PyTorch.

        Returns:
            Python bool.

        Example:
            >>> wg.tensor([1]).is_pinned()
            False
        """
        return host_data.is_pinned(self, to_device("cuda:0" if device is None else device))

    def share_memory_(self) -> Tensor:
        """Move the storage to memory shared between processes (see `multiprocessing`); views stay valid.

        Returns:
            This tensor.

        Example:
            >>> wg.tensor([1]).share_memory_().is_shared()
            True
        """
        from ..multiprocessing import sharing  # lazy: start-up

        sharing.share_tensors([self])
        return self

    def is_shared(self) -> bool:
        """Return True if the storage is in memory shared between processes.

        Returns:
            Python bool.

        Example:
            >>> wg.tensor([1], device='cpu').is_shared()
            False
        """
        from ..multiprocessing import sharing  # lazy: start-up

        return sharing.is_shared(self)

    def numpy(self, *, force: bool = False) -> Array:
        """Return a NumPy array that shares the memory.

        Args:
            force: Detach the tensor and copy it to the host first, if necessary.

        Returns:
            NumPy array of the same shape.

        Raises:
            GradientError: The tensor requires grad, and `force` is False.
            DeviceError: The tensor is not on `cpu`, and `force` is False.
            ArgumentError: The dtype is bfloat16, which NumPy does not have.

        Example:
            >>> wg.tensor([[1, 2], [3, 4]], device='cpu').numpy().tolist()
            [[1, 2], [3, 4]]
        """
        return host_data.to_numpy(self, force=force)

    def tolist(self) -> Any:  # lists nested as deep as the shape says, or a number
        """Return the elements as nested lists of Python numbers.

        Returns:
            Nested lists of Python numbers; a number for a tensor of shape `()`.

        Example:
            >>> wg.tensor([[1, 2], [3, 4]]).tolist()
            [[1, 2], [3, 4]]
        """
        notify_host_read(self)
        return host_data.host_array(self).tolist()

    def item(self) -> bool | int | float:
        """Return the single element as a Python number.

        Returns:
            bool, int or float.

        Raises:
            ShapeError: The tensor does not have exactly one element.

        Example:
            >>> wg.tensor([2.5]).item()
            2.5
        """
        if self.meta.numel != 1:
            raise ShapeError(f"item: takes a tensor of one element; this one has shape {list(self.meta.shape)}")
        notify_host_read(self)
        return host_data.number(self)

    def record_stream(self, stream: Stream) -> None:
        """Keep the memory from being reused until the work now queued on `stream` is done.

        Args:
            stream: The stream.

        Example:
            >>> if wg.cuda.is_available():
            ...     wg.ones(2, device='cuda').record_stream(wg.cuda.Stream())
            ...
        """
        if self.storage.block is not None:
            self.storage.block.pool.record_stream(self.storage.block, stream.record_event())


def _convert_format(
    tensor: Tensor, memory_format: MemoryFormat, device: Device | None, dtype: DType | None, should_copy: bool
) -> Tensor:
    """Return `tensor` in a format and a dtype: itself if it has both, unless it is to be copied here."""
    if device is not None and device is not tensor.meta.device:  # the copy to the device has no gaps
        is_in_format = has_format(tensor.meta, memory_format)
    else:
        is_in_format = suggested_format(tensor.meta) == memory_format and not should_copy
    if is_in_format and (dtype is None or dtype is tensor.meta.dtype):
        return tensor
    return copy_in_format("to", tensor, memory_format, dtype)


def _as_type(tensor_type: type[Tensor], tensor: Tensor, needs_grad: bool) -> Tensor:
    """Return `tensor` as an instance of `tensor_type`, Tensor or a subclass."""
    needs_grad = bool(needs_grad)  # C compares it with True
    if tensor_type is Tensor:
        tensor.needs_grad = needs_grad
        return tensor
    instance = object.__new__(tensor_type)  # not `tensor_type.__new__`, which may take other arguments
    Tensor.__init__(instance, tensor.storage, tensor.meta, tensor.start, needs_grad)
    return instance


def _unpickle(tensor_type: type[Tensor], array: Array, dtype: DType, device_name: str, needs_grad: bool) -> Tensor:
    if type(array) is not np.ndarray or array.dtype != dtype.numpy:  # the driver writes as many bytes as it has
        raise ArgumentError(f"load: a tensor of {dtype.name} has an array of another dtype")
    output = empty(meta(dtype, array.shape, None, to_device(device_name)))
    if output.meta.numel:
        output.meta.device.driver.write(
            output.storage, 0, np.ascontiguousarray(array), current_stream(output.meta.device)
        )
    return _as_type(tensor_type, output, needs_grad)
