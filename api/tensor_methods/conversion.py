"""Tensor methods for copies, dtype and device conversion, NumPy interchange, and Python protocols."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import autograd
from ..indexing import subscripts
from ..runtime import dtypes, host_data
from ..runtime.autograd import inplace
from ..runtime.context import current_stream
from ..runtime.device import Device, meta
from ..runtime.device import device as to_device
from ..runtime.dispatch import call, call_into, empty, is_recorded
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, DomainError, GradientError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..runtime.views import contiguous
from . import printing
from .argument_checks import to_dtype_number

__all__ = ["Conversions"]


class Conversions:
    """Methods that `methods.install` copies to `Tensor`, so `self` is a Tensor."""

    meta: Any
    storage: Any
    node: Any
    grad: Any
    needs: bool
    start: int

    # Copies

    def clone(self, *, memory_format: Any = None) -> Any:
        """Return a copy; gradients flow back to this tensor."""
        return call(registry["copy"], (self,), (None,))

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        """Copy `source`, a tensor or a number, into this tensor; it is broadcast and converted."""
        if not isinstance(source, Tensor):
            return call_into(registry["fill"], (self, source), (), (self,), in_place=True)  # type: ignore[arg-type]
        if source.meta.device is not self.meta.device:
            source = _transfer(source, self.meta.device)
        if source.meta.shape != self.meta.shape:
            source = call(registry["expand"], (source,), (self.meta.shape,))
        if not self.meta.numel:
            return self
        if source.storage is self.storage and source.start == self.start and source.meta is self.meta:
            if is_recorded(self):
                inplace.check(registry["copy"], self)  # type: ignore[arg-type]
            return self
        return call_into(registry["copy"], (source,), (None,), (self,), in_place=True)  # type: ignore[arg-type]

    def fill_(self, value: Any) -> Any:
        """Set every element to a number or a 0-d tensor, whose gradient is the sum of this tensor's gradient."""
        if is_recorded(value):
            if value.meta.ndim:
                raise ShapeError(f"fill_: takes a number or a tensor without dimensions, not shape {list(value.shape)}")
            return self.copy_(value)
        number = value.item() if isinstance(value, Tensor) else value  # type: ignore[attr-defined]
        number = to_dtype_number(number, self.meta.dtype, "fill_")
        if not self.meta.numel:
            return self
        return call_into(registry["fill"], (self, number), (), (self,), in_place=True)  # type: ignore[arg-type]

    def zero_(self) -> Any:
        """Set every element to 0."""
        return self.fill_(0)

    def to(
        self,
        *args: Any,
        device: Any = None,
        dtype: Any = None,
        copy: bool = False,
        non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Any:
        """Convert to another device, another dtype, or both.

        Args:
            *args: A device, a dtype, or a tensor that has both.
            device: Target device.
            dtype: Target dtype.
            copy: Whether to copy even if nothing changes; otherwise the tensor itself is returned.
            non_blocking: Accepted for compatibility with PyTorch, as is `memory_format`.
        """
        for arg in args:
            if isinstance(arg, Tensor):
                device, dtype = arg.meta.device, arg.meta.dtype
            elif isinstance(arg, DType) or arg in (float, int, bool):
                dtype = arg
            elif isinstance(arg, (Device, str)) or (isinstance(arg, int) and not isinstance(arg, bool)):
                device = arg
        target_dtype = self.meta.dtype if dtype is None else dtypes.parse(dtype)
        target_device = self.meta.device if device is None else to_device(device)
        result: Any = self
        if target_dtype is not self.meta.dtype:
            result = call(registry["copy"], (result,), (target_dtype,))
        if target_device is not self.meta.device:
            return _transfer(result, target_device)
        return result.clone() if copy and result is self else result

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """Return the legacy type name, such as `weftgrad.FloatTensor`; with `dtype`, convert to it.

        `dtype` is a dtype, a legacy class, or the name of one, which may begin with `torch.`.
        """
        from ..creation import legacy_constructors

        if dtype is None:
            return legacy_constructors.type_name(self)  # type: ignore[arg-type]
        return self.to(dtype=legacy_constructors.dtype_of(dtype), non_blocking=non_blocking)

    def type_as(self, other: Tensor) -> Any:
        """Convert to the dtype of `other`."""
        return self.to(dtype=other.meta.dtype)

    def cpu(self) -> Any:
        """Copy to the host, or return the tensor itself if it is there."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None) -> Any:
        """Copy to a CUDA device (default `cuda:0`)."""
        return self.to(device=device if device is not None else "cuda:0")

    def pin_memory(self, device: Any = None) -> Any:
        """Return a copy in page-locked host memory, which makes copies to a CUDA device fast and asynchronous."""
        return host_data.pin_memory(self, to_device("cuda:0" if device is None else device))  # type: ignore[arg-type]

    def is_pinned(self, device: Any = None) -> Any:
        """Return True if the memory is page-locked for a CUDA device."""
        return host_data.is_pinned(self, to_device("cuda:0" if device is None else device))  # type: ignore[arg-type]

    def share_memory_(self) -> Any:
        """Move the storage to memory shared between processes (see `multiprocessing`); views stay valid."""
        from ..multiprocessing import sharing

        sharing.share_tensors([self])  # type: ignore[list-item]
        return self

    def is_shared(self) -> Any:
        """Return True if the storage is in memory shared between processes."""
        from ..multiprocessing import sharing

        return sharing.is_shared(self)  # type: ignore[arg-type]

    def float(self) -> Any:
        """Convert to float32."""
        return self.to(dtype=dtypes.float32)

    def double(self) -> Any:
        """Convert to float64."""
        return self.to(dtype=dtypes.float64)

    def half(self) -> Any:
        """Convert to float16."""
        return self.to(dtype=dtypes.float16)

    def bfloat16(self) -> Any:
        """Convert to bfloat16."""
        return self.to(dtype=dtypes.bfloat16)

    def long(self) -> Any:
        """Convert to int64."""
        return self.to(dtype=dtypes.int64)

    def int(self) -> Any:
        """Convert to int32."""
        return self.to(dtype=dtypes.int32)

    def short(self) -> Any:
        """Convert to int16."""
        return self.to(dtype=dtypes.int16)

    def char(self) -> Any:
        """Convert to int8."""
        return self.to(dtype=dtypes.int8)

    def byte(self) -> Any:
        """Convert to uint8."""
        return self.to(dtype=dtypes.uint8)

    def bool(self) -> Any:
        """Convert to bool."""
        return self.to(dtype=dtypes.bool_)

    def numpy(self, *, force: Any = False) -> np.ndarray[Any, Any]:
        """Return a NumPy array that shares the memory; see `host_data.to_numpy`."""
        return host_data.to_numpy(self, force=force)  # type: ignore[arg-type]

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers."""
        return host_data.host_array(self).tolist()  # type: ignore[arg-type]

    def item(self) -> Any:
        """Return the single element as a Python number. Raises `ShapeError` for several elements."""
        if self.meta.numel != 1:
            raise ShapeError(f"item: takes a tensor of one element; this one has shape {list(self.meta.shape)}")
        return host_data.number(self)  # type: ignore[arg-type]

    def new(self, *args: Any, device: Any = None) -> Any:
        """Call the legacy constructor with this tensor's dtype and device.

        The arguments are data, or the sizes of an uninitialised tensor.
        """
        from ..creation.legacy_constructors import build

        return build(args, self.meta.dtype, self.meta.device if device is None else device)

    def new_tensor(self, data: Any, **options: Any) -> Any:
        """Create a tensor from `data` with this tensor's dtype and device."""
        from ..creation.factories import tensor

        return tensor(data, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    def new_zeros(self, *size: Any, **options: Any) -> Any:
        """Create zeros with this tensor's dtype and device."""
        from ..creation.factories import zeros

        return zeros(*size, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    def new_ones(self, *size: Any, **options: Any) -> Any:
        """Create ones with this tensor's dtype and device."""
        from ..creation.factories import ones

        return ones(*size, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    def new_full(self, size: Sequence[Any], fill_value: Any, **options: Any) -> Any:
        """Create a tensor filled with `fill_value`, with this tensor's dtype and device."""
        from ..creation.factories import full

        return full(size, fill_value, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    def new_empty(self, *size: Any, **options: Any) -> Any:
        """Create an uninitialised tensor with this tensor's dtype and device."""
        from ..creation.factories import empty as make

        return make(*size, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    # Python protocols

    def __repr__(self) -> str:
        return printing.show(self)  # type: ignore[arg-type]

    def __format__(self, spec: str) -> str:
        if not self.meta.ndim:  # format a 0-d tensor like its number
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __len__(self) -> Any:
        if not self.meta.ndim:
            raise ArgumentError("len() of a 0-d tensor")
        return self.meta.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.meta.ndim:
            raise ArgumentError("iteration over a 0-d tensor")
        return iter([subscripts.get(self, i) for i in range(self.meta.shape[0])])  # type: ignore[arg-type]

    def __reversed__(self) -> Any:
        """Return a tensor with the rows in reverse order (Python's default would iterate over the rows)."""
        return self.flip(0) if self.meta.ndim else self  # type: ignore[attr-defined]

    def __pos__(self) -> Any:
        return self.positive()  # type: ignore[attr-defined]

    def __bool__(self) -> Any:
        if self.meta.numel != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {list(self.meta.shape)} is ambiguous; use .any() or .all()"
            )
        return self.item() != 0

    def __float__(self) -> Any:
        return _builtin_float(self.item())

    def __int__(self) -> Any:
        return _builtin_int(self.item())

    def __index__(self) -> Any:
        if self.meta.dtype.kind == "f" or self.meta.numel != 1:
            raise ArgumentError("only integer tensors of one element can be used as an index")
        return _builtin_int(self.item())

    def __contains__(self, item: Any) -> Any:
        if not isinstance(item, (Tensor, int, float, np.generic)):
            raise DomainError(f"in: a tensor has numbers in it, and can be asked for tensors of them; not {item!r}")
        return _builtin_bool((self == item).any())  # type: ignore[attr-defined, union-attr]

    __array_priority__ = 1000  # NumPy then leaves mixed operators to Tensor

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        array = host_data.to_numpy(self)  # type: ignore[arg-type]
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return host_data.to_numpy(self).__dlpack__()  # type: ignore[arg-type]

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return (1, 0)

    def __copy__(self) -> Any:
        """Return a leaf tensor that shares the memory, without a `grad`."""
        duplicate = _as_type(type(self), Tensor(self.storage, self.meta, self.start), self.needs)  # type: ignore[arg-type]
        duplicate.__dict__.update(self.__dict__)
        return duplicate

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        if self.node is not None:
            raise GradientError("only leaf tensors can be deep-copied; use .detach() or .clone()")
        if _builtin_id(self) in memo:
            return memo[_builtin_id(self)]
        with autograd.no_grad():
            copied = call(registry["copy"], (self,), (None,)) if self.meta.numel else empty(self.meta)
        duplicate = _as_type(type(self), copied, self.needs)
        if self.grad is not None:
            duplicate.grad = self.grad.__deepcopy__(memo)
        memo[_builtin_id(self)] = duplicate
        if self.__dict__:  # attributes that the user has set
            duplicate.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return duplicate

    def __reduce__(self) -> tuple[Any, ...]:
        array = np.asarray(host_data.to_host(self), order="C")  # type: ignore[arg-type, call-overload]
        reduced = _unpickle, (type(self), array, self.meta.dtype, str(self.meta.device), self.needs)
        return (*reduced, self.__dict__) if self.__dict__ else reduced  # and the attributes that the user has set

    def __getitem__(self, item: Any) -> Any:
        return subscripts.get(self, item)  # type: ignore[arg-type]

    def __setitem__(self, item: Any, value: Any) -> None:
        subscripts.set(self, item, value)  # type: ignore[arg-type]

    def __delitem__(self, item: Any) -> None:
        raise ArgumentError("a tensor's elements cannot be deleted; select those that stay, or use cat()")

    def __hash__(self) -> Any:
        return _builtin_id(self)

    def record_stream(self, stream: Any) -> None:
        """Keep the memory from being reused until the work now queued on `stream` is done."""
        if self.storage.block is not None:
            self.storage.block.pool.record_stream(self.storage.block, stream.record_event())


_builtin_float, _builtin_int, _builtin_bool, _builtin_id = float, int, bool, id


def _transfer(source: Any, target: Device) -> Any:
    """Copy `source` to another device; gradients are copied back."""
    if is_recorded(source):
        return _Transfer.apply(source, target)
    layout = meta(source.meta.dtype, source.meta.shape, None, target)
    output = empty(layout)
    if not layout.numel:
        return output
    driver: Any = target.driver
    if target.type == source.meta.device.type == "cuda":  # without the host, and without waiting
        source_stream = current_stream(source.meta.device)
        driver.receive(contiguous(source), output.storage, source_stream, current_stream(target))
    else:
        driver.write(output.storage, 0, np.ascontiguousarray(host_data.to_host(source)), current_stream(target))
    return output


class _Transfer(autograd.Function):
    """Autograd function of a copy between devices."""

    @staticmethod
    def forward(ctx: Any, source: Any, target: Any) -> Any:
        ctx.source_device = source.meta.device
        return _transfer(source.detach(), target)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.to(device=ctx.source_device), None


def _as_type(tensor_type: type, tensor: Any, needs: bool) -> Any:
    """Return `tensor` as an instance of `tensor_type`, Tensor or a subclass."""
    if tensor_type is Tensor:
        tensor.needs = needs
        return tensor
    instance: Any = tensor_type.__new__(tensor_type)  # type: ignore[call-overload]
    Tensor.__init__(instance, tensor.storage, tensor.meta, tensor.start, needs)
    return instance


def _unpickle(tensor_type: type, array: np.ndarray[Any, Any], dtype: DType, device_name: str, needs: bool) -> Any:
    output = empty(meta(dtype, array.shape, None, to_device(device_name)))
    if output.meta.numel:
        output.meta.device.driver.write(
            output.storage, 0, np.ascontiguousarray(array), current_stream(output.meta.device)
        )
    return _as_type(tensor_type, output, needs)
