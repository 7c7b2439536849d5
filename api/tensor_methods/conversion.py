"""Tensor methods for copies, dtype and device conversion, NumPy interchange, and Python protocols."""

from __future__ import annotations

import builtins
import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, Unpack, overload

import numpy as np

from .. import autograd
from ..arguments.types import Index, MemoryFormat, NestedSequence, NewTensorOptions, Operand, Sizes
from ..indexing import subscripts
from ..runtime import dtypes, host_data
from ..runtime.autograd import inplace
from ..runtime.context import current_stream
from ..runtime.device import Device, DeviceLike, meta
from ..runtime.device import device as to_device
from ..runtime.dispatch import call, call_into, empty, is_recorded
from ..runtime.dtypes import Array, DType, DTypeLike
from ..runtime.errors import ArgumentError, DomainError, GradientError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..runtime.views import contiguous
from . import printing
from .argument_checks import to_dtype_number
from .conversion_arguments import parse_conversion

__all__ = ["Conversions"]


if TYPE_CHECKING:
    import numpy.typing as npt

    from ..creation.legacy_constructors import LegacyType
    from ..execution.streams import Stream
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object

# A string in the first position names a device.
_PositionalDType = DType | type[bool] | type[int] | type[float] | np.dtype[np.generic] | type[np.generic]


class Conversions(TensorBase):
    """Methods that `methods.install` copies to `Tensor`, so `self` is a Tensor."""

    # Copies

    def clone(self, *, memory_format: MemoryFormat | None = None) -> Tensor:
        """Return a copy; gradients flow back to this tensor.

        Args:
            memory_format: Accepted for compatibility with PyTorch.

        Returns:
            Tensor with memory of its own.

        Example:
            >>> wg.tensor([1, 2]).clone()
            tensor([1, 2])
        """
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
            operand = _transfer(operand, self.meta.device)
        if operand.meta.shape != self.meta.shape:
            operand = call(registry["expand"], (operand,), (self.meta.shape,))
        if not self.meta.numel:
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
        self, dtype: _PositionalDType, non_blocking: builtins.bool = False, copy: builtins.bool = False, *,
        memory_format: MemoryFormat | None = None,
    ) -> Tensor: ...  # fmt: skip
    @overload
    def to(
        self, device: DeviceLike | None = None, dtype: DTypeLike | None = None, non_blocking: builtins.bool = False,
        copy: builtins.bool = False, *, memory_format: MemoryFormat | None = None,
    ) -> Tensor: ...  # fmt: skip
    @overload
    def to(
        self, other: Tensor, /, non_blocking: builtins.bool = False, copy: builtins.bool = False, *,
        memory_format: MemoryFormat | None = None,
    ) -> Tensor: ...  # fmt: skip
    def to(
        self, *args: DeviceLike | DTypeLike | Tensor | None, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None, copy: builtins.bool | None = None, non_blocking: builtins.bool = False,
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
            memory_format: Accepted for compatibility with PyTorch.

        Returns:
            This tensor if nothing changes and `copy` is False, else a converted copy.

        Raises:
            ArgumentError: An argument is none of these, or a device, a dtype or `copy` is passed twice.
            UnknownDevice: There is no device of that name.

        Example:
            >>> wg.tensor([1, 2]).to(wg.float32)
            tensor([1., 2.])
        """
        target_device, target_dtype, should_copy = parse_conversion("to", args, device, dtype, copy)
        result: Tensor = self
        if target_dtype is not None and target_dtype is not self.meta.dtype:
            result = call(registry["copy"], (result,), (target_dtype,))
        if target_device is not None and target_device is not self.meta.device:
            return _transfer(result, target_device)
        return result.clone() if should_copy and result is self else result

    @overload
    def type(self, dtype: None = None, non_blocking: builtins.bool = False) -> str: ...
    @overload
    def type(self, dtype: DTypeLike | LegacyType, non_blocking: builtins.bool = False) -> Tensor: ...
    def type(self, dtype: DTypeLike | LegacyType | None = None, non_blocking: builtins.bool = False) -> str | Tensor:
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
        from ..creation import legacy_constructors

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

    def cpu(self) -> Tensor:
        """Copy to the host, or return the tensor itself if it is there.

        Returns:
            This tensor if it is there already, else a copy.

        Example:
            >>> wg.tensor([1]).cpu().device
            device(type='cpu')
        """
        return self.to(device="cpu")

    def cuda(self, device: DeviceLike | None = None) -> Tensor:
        """Copy to a CUDA device (default `cuda:0`).

        Args:
            device: The device; None: `cuda:0`.

        Returns:
            This tensor if it is there already, else a copy.

        Raises:
            DriverNotFound: If there is no GPU, or a package that it needs is missing.

        Example:
            >>> if wg.cuda.is_available():
            ...     x = wg.ones(2).cuda()
            ...
        """
        return self.to(device=device if device is not None else "cuda:0")

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

    def is_pinned(self, device: DeviceLike | None = None) -> builtins.bool:
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
        from ..multiprocessing import sharing

        sharing.share_tensors([self])
        return self

    def is_shared(self) -> builtins.bool:
        """Return True if the storage is in memory shared between processes.

        Returns:
            Python bool.

        Example:
            >>> wg.tensor([1], device='cpu').is_shared()
            False
        """
        from ..multiprocessing import sharing

        return sharing.is_shared(self)

    def float(self) -> Tensor:
        """Convert to float32.

        Returns:
            This tensor if it has the dtype already, else a converted copy.

        Example:
            >>> wg.tensor([0.0, 2.5]).float()
            tensor([0.0000, 2.5000])
        """
        return self.to(dtype=dtypes.float32)

    def double(self) -> Tensor:
        """Convert to float64.

        Returns:
            This tensor if it has the dtype already, else a converted copy.

        Example:
            >>> wg.tensor([0.0, 2.5]).double()
            tensor([0.0000, 2.5000], dtype=weftgrad.float64)
        """
        return self.to(dtype=dtypes.float64)

    def half(self) -> Tensor:
        """Convert to float16.

        Returns:
            This tensor if it has the dtype already, else a converted copy.

        Example:
            >>> wg.tensor([0.0, 2.5]).half()
            tensor([0.0000, 2.5000], dtype=weftgrad.float16)
        """
        return self.to(dtype=dtypes.float16)

    def bfloat16(self) -> Tensor:
        """Convert to bfloat16.

        Returns:
            This tensor if it has the dtype already, else a converted copy.

        Example:
            >>> wg.tensor([0.0, 2.5]).bfloat16()
            tensor([0.0000, 2.5000], dtype=weftgrad.bfloat16)
        """
        return self.to(dtype=dtypes.bfloat16)

    def long(self) -> Tensor:
        """Convert to int64.

        Returns:
            This tensor if it has the dtype already, else a converted copy.

        Example:
            >>> wg.tensor([0.0, 2.5]).long()
            tensor([0, 2])
        """
        return self.to(dtype=dtypes.int64)

    def int(self) -> Tensor:
        """Convert to int32.

        Returns:
            This tensor if it has the dtype already, else a converted copy.

        Example:
            >>> wg.tensor([0.0, 2.5]).int()
            tensor([0, 2], dtype=weftgrad.int32)
        """
        return self.to(dtype=dtypes.int32)

    def short(self) -> Tensor:
        """Convert to int16.

        Returns:
            This tensor if it has the dtype already, else a converted copy.

        Example:
            >>> wg.tensor([0.0, 2.5]).short()
            tensor([0, 2], dtype=weftgrad.int16)
        """
        return self.to(dtype=dtypes.int16)

    def char(self) -> Tensor:
        """Convert to int8.

        Returns:
            This tensor if it has the dtype already, else a converted copy.

        Example:
            >>> wg.tensor([0.0, 2.5]).char()
            tensor([0, 2], dtype=weftgrad.int8)
        """
        return self.to(dtype=dtypes.int8)

    def byte(self) -> Tensor:
        """Convert to uint8.

        Returns:
            This tensor if it has the dtype already, else a converted copy.

        Example:
            >>> wg.tensor([0.0, 2.5]).byte()
            tensor([0, 2], dtype=weftgrad.uint8)
        """
        return self.to(dtype=dtypes.uint8)

    def bool(self) -> Tensor:
        """Convert to bool.

        Returns:
            This tensor if it has the dtype already, else a converted copy.

        Example:
            >>> wg.tensor([0.0, 2.5]).bool()
            tensor([False,  True])
        """
        return self.to(dtype=dtypes.bool_)

    def numpy(self, *, force: builtins.bool = False) -> Array:
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
        return host_data.host_array(self).tolist()

    def item(self) -> builtins.bool | builtins.int | builtins.float:
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
        return host_data.number(self)

    def new(self, *args: object, device: DeviceLike | None = None) -> Tensor:
        """Call the legacy constructor with this tensor's dtype and device.

        The arguments are data, or the sizes of an uninitialised tensor.

        Args:
            *args: Data, or the sizes of an uninitialised tensor.
            device: Device of the result; None: that of this tensor.

        Returns:
            Tensor of this tensor's dtype.

        Raises:
            ArgumentError: If `args` are neither sizes nor one sequence, or a tensor has another dtype.

        Example:
            >>> wg.tensor([0.5]).new([1, 2])
            tensor([1., 2.])
        """
        from ..creation.legacy_constructors import build

        return build(args, self.meta.dtype, self.meta.device if device is None else device)

    def new_tensor(
        self, data: object, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
        requires_grad: builtins.bool = False, pin_memory: builtins.bool = False,
    ) -> Tensor:  # fmt: skip
        """Create a tensor from `data` with this tensor's dtype and device.

        Args:
            data: A number, nested sequences, a NumPy array, or a tensor.
            dtype: Dtype of the result; None: that of this tensor.
            device: Device of the result; None: that of this tensor.
            requires_grad: Whether to record operations on the result.
            pin_memory: Whether to use page-locked host memory.

        Returns:
            Tensor with memory of its own.

        Example:
            >>> wg.tensor([0.5]).new_tensor([1, 2])
            tensor([1., 2.])
        """
        from ..creation.from_data import tensor

        return tensor(
            data,
            dtype=self.meta.dtype if dtype is None else dtype,
            device=self.meta.device if device is None else device,
            requires_grad=requires_grad,
            pin_memory=pin_memory,
        )

    def new_zeros(self, *size: Sizes, **options: Unpack[NewTensorOptions]) -> Tensor:
        """Create zeros with this tensor's dtype and device.

        Args:
            *size: The shape, as ints or as one sequence.
            **options: `dtype`, `device`, `requires_grad` and further options of the function that creates tensors.

        Returns:
            Tensor of shape `size`.

        Example:
            >>> wg.tensor([1]).new_zeros(2)
            tensor([0, 0])
        """
        from ..creation.factories import zeros

        return zeros(*size, **_options_like(self, options))

    def new_ones(self, *size: Sizes, **options: Unpack[NewTensorOptions]) -> Tensor:
        """Create ones with this tensor's dtype and device.

        Args:
            *size: The shape, as ints or as one sequence.
            **options: `dtype`, `device`, `requires_grad` and further options of the function that creates tensors.

        Returns:
            Tensor of shape `size`.

        Example:
            >>> wg.tensor([1]).new_ones(2)
            tensor([1, 1])
        """
        from ..creation.factories import ones

        return ones(*size, **_options_like(self, options))

    def new_full(
        self, size: Sequence[SupportsIndex], fill_value: Operand, **options: Unpack[NewTensorOptions]
    ) -> Tensor:
        """Create a tensor filled with `fill_value`, with this tensor's dtype and device.

        Args:
            size: The shape, as ints or as one sequence.
            fill_value: Number.
            **options: `dtype`, `device`, `requires_grad` and further options of the function that creates tensors.

        Returns:
            Tensor of shape `size`.

        Example:
            >>> wg.tensor([1]).new_full((2,), 7)
            tensor([7, 7])
        """
        from ..creation.factories import full

        return full(size, fill_value, **_options_like(self, options))

    def new_empty(self, *size: Sizes, **options: Unpack[NewTensorOptions]) -> Tensor:
        """Create an uninitialised tensor with this tensor's dtype and device.

        Args:
            *size: The shape, as ints or as one sequence.
            **options: `dtype`, `device`, `requires_grad` and further options of the function that creates tensors.

        Returns:
            Tensor, whose elements are undefined.

        Example:
            >>> wg.tensor([1]).new_empty(2, 3).shape
            weftgrad.Size([2, 3])
        """
        from ..creation.factories import empty as make

        return make(*size, **_options_like(self, options))

    # Python protocols

    def __repr__(self) -> str:
        return printing.show(self)

    def __format__(self, spec: str) -> str:
        if not self.meta.ndim:  # format a 0-d tensor like its number
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __len__(self) -> builtins.int:
        if not self.meta.ndim:
            raise ArgumentError("len() of a 0-d tensor")
        return self.meta.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.meta.ndim:
            raise ArgumentError("iteration over a 0-d tensor")
        return iter([subscripts.get(self, i) for i in range(self.meta.shape[0])])

    def __reversed__(self) -> Tensor:
        """Return a tensor with the rows in reverse order (Python's default would iterate over the rows)."""
        return self.flip(0) if self.meta.ndim else self

    def __pos__(self) -> Tensor:
        return self.positive()

    def __bool__(self) -> builtins.bool:
        if self.meta.numel != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {list(self.meta.shape)} is ambiguous; use .any() or .all()"
            )
        return self.item() != 0

    def __float__(self) -> builtins.float:
        return builtins.float(self.item())

    def __int__(self) -> builtins.int:
        return builtins.int(self.item())

    def __index__(self) -> builtins.int:
        if self.meta.dtype.kind == "f" or self.meta.numel != 1:
            raise ArgumentError("only integer tensors of one element can be used as an index")
        return builtins.int(self.item())

    def __contains__(self, item: Operand) -> builtins.bool:
        if not isinstance(item, (Tensor, int, float, np.generic)):
            raise DomainError(f"in: a tensor has numbers in it, and can be asked for tensors of them; not {item!r}")
        return builtins.bool((self == item).any())

    __array_priority__ = 1000  # NumPy then leaves mixed operators to Tensor

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: builtins.bool | None = None) -> Array:
        array = host_data.to_numpy(self)
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **options: object) -> Any:  # a PyCapsule, which has no name in Python 3.11
        return host_data.to_numpy(self).__dlpack__()

    def __dlpack_device__(self) -> tuple[builtins.int, builtins.int]:
        return (1, 0)

    def __copy__(self) -> Tensor:
        """Return a leaf tensor that shares the memory, without a `grad`."""
        duplicate = _as_type(type(self), Tensor(self.storage, self.meta, self.start), self.needs)
        duplicate.__dict__.update(self.__dict__)
        return duplicate

    def __deepcopy__(self, memo: dict[builtins.int, object]) -> Tensor:
        if self.node is not None:
            raise GradientError("only leaf tensors can be deep-copied; use .detach() or .clone()")
        known_copy = memo.get(builtins.id(self))
        if isinstance(known_copy, Tensor):
            return known_copy
        with autograd.no_grad():
            copied = call(registry["copy"], (self,), (None,)) if self.meta.numel else empty(self.meta)
        duplicate = _as_type(type(self), copied, self.needs)
        if self.grad is not None:
            duplicate.grad = self.grad.__deepcopy__(memo)
        memo[builtins.id(self)] = duplicate
        if self.__dict__:  # attributes that the user has set
            duplicate.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return duplicate

    def __reduce__(self) -> tuple[object, ...]:
        array = np.asarray(host_data.to_host(self), order="C")
        reduced = _unpickle, (type(self), array, self.meta.dtype, str(self.meta.device), self.needs)
        return (*reduced, self.__dict__) if self.__dict__ else reduced  # and the attributes that the user has set

    def __getitem__(self, item: Index) -> Tensor:
        return subscripts.get(self, item)

    def __setitem__(self, item: Index, value: Operand | Array | NestedSequence) -> None:
        subscripts.set(self, item, value)

    def __delitem__(self, item: object) -> None:
        raise ArgumentError("a tensor's elements cannot be deleted; select those that stay, or use cat()")

    def __hash__(self) -> builtins.int:
        return builtins.id(self)

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


def _options_like(tensor: Tensor, options: NewTensorOptions) -> NewTensorOptions:
    """Return the options of a function that creates tensors, with the dtype and device of `tensor` as defaults."""
    if options.get("dtype") is None:
        options["dtype"] = tensor.meta.dtype
    if options.get("device") is None:
        options["device"] = tensor.meta.device
    return options


def _transfer(source: Tensor, target: Device) -> Tensor:
    """Copy `source` to another device; gradients are copied back."""
    if is_recorded(source):
        return _Transfer.apply(source, target)
    layout = meta(source.meta.dtype, source.meta.shape, None, target)
    output = empty(layout)
    if not layout.numel:
        return output
    if target.type == source.meta.device.type == "cuda":  # without the host, and without waiting
        from ..runtime.backends.cuda import CudaDriver  # lazy: needs packages that only GPUs need

        assert isinstance(target.driver, CudaDriver)
        source_stream = current_stream(source.meta.device)
        target.driver.receive(contiguous(source), output.storage, source_stream, current_stream(target))
    else:
        target.driver.write(output.storage, 0, np.ascontiguousarray(host_data.to_host(source)), current_stream(target))
    return output


class _TransferContext(Protocol):
    """What `_Transfer.forward` stores for `backward`."""

    source_device: Device


class _Transfer(autograd.Function):
    """Autograd function of a copy between devices."""

    @staticmethod
    def forward(ctx: _TransferContext, source: Tensor, target: Device) -> Tensor:
        ctx.source_device = source.meta.device
        return _transfer(source.detach(), target)

    @staticmethod
    def backward(ctx: _TransferContext, grad: Tensor) -> tuple[Tensor, None]:
        return grad.to(device=ctx.source_device), None


def _as_type(tensor_type: type[Tensor], tensor: Tensor, needs: bool) -> Tensor:
    """Return `tensor` as an instance of `tensor_type`, Tensor or a subclass."""
    if tensor_type is Tensor:
        tensor.needs = needs
        return tensor
    instance = tensor_type.__new__(tensor_type)
    Tensor.__init__(instance, tensor.storage, tensor.meta, tensor.start, needs)
    return instance


def _unpickle(tensor_type: type[Tensor], array: Array, dtype: DType, device_name: str, needs: bool) -> Tensor:
    output = empty(meta(dtype, array.shape, None, to_device(device_name)))
    if output.meta.numel:
        output.meta.device.driver.write(
            output.storage, 0, np.ascontiguousarray(array), current_stream(output.meta.device)
        )
    return _as_type(tensor_type, output, needs)
