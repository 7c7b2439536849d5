"""Tensor's conversions: copies, other dtypes and devices, NumPy, Python's protocols."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import _hosting, autograd, indexing, printing
from ._checks import number_for
from .runtime import dtypes
from .runtime.autograd import inplace
from .runtime.context import current_stream
from .runtime.device import Device, meta
from .runtime.device import device as to_device
from .runtime.dispatch import call, call_into, empty, is_recorded
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError, DomainError, GradientError, ShapeError
from .runtime.records import registry
from .runtime.tensor import Tensor
from .runtime.views import contiguous

__all__ = ["Conversions"]


class Conversions:
    """Collected here and copied to `Tensor`; `self` is a Tensor throughout."""

    meta: Any
    storage: Any
    node: Any
    grad: Any
    needs: bool
    start: int

    # copies

    def clone(self, *, memory_format: Any = None) -> Any:
        """A copy; gradients flow back to this tensor."""
        return call(registry["copy"], (self,), (None,))

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        """Write the values of `source`, broadcast and converted, into this tensor."""
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
        """Set every element to a number, or to a tensor of one, which gets the sum of the gradients."""
        if is_recorded(value):
            if value.meta.ndim:
                raise ShapeError(f"fill_: takes a number or a tensor without dimensions, not shape {list(value.shape)}")
            return self.copy_(value)
        number = value.item() if isinstance(value, Tensor) else value  # type: ignore[attr-defined]
        number = number_for(number, self.meta.dtype, "fill_")
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
        """The tensor on another device, in another dtype, or both; itself if nothing changes (unless `copy`)."""
        for arg in args:
            if isinstance(arg, Tensor):
                device, dtype = arg.meta.device, arg.meta.dtype
            elif isinstance(arg, DType) or arg in (float, int, bool):
                dtype = arg
            elif isinstance(arg, (Device, str)) or (isinstance(arg, int) and not isinstance(arg, bool)):
                device = arg
        wanted = self.meta.dtype if dtype is None else dtypes.parse(dtype)
        place = self.meta.device if device is None else to_device(device)
        result: Any = self
        if wanted is not self.meta.dtype:
            result = call(registry["copy"], (result,), (wanted,))
        if place is not self.meta.device:
            return _transfer(result, place)
        return result.clone() if copy and result is self else result

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the class of such tensors, `weftgrad.FloatTensor`; with a dtype, such a class or its name, which
        may begin with `torch.`, the tensor converted to it."""
        from . import legacy

        if dtype is None:
            return legacy.type_name(self)  # type: ignore[arg-type]
        return self.to(dtype=legacy.dtype_of(dtype), non_blocking=non_blocking)

    def type_as(self, other: Tensor) -> Any:
        """Converted to the dtype of `other`."""
        return self.to(dtype=other.meta.dtype)

    def cpu(self) -> Any:
        """On the host."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None) -> Any:
        """On a CUDA device."""
        return self.to(device=device if device is not None else "cuda:0")

    def pin_memory(self, device: Any = None) -> Any:
        """A copy in page-locked host memory, from which copies to a CUDA device are asynchronous and fast."""
        return _hosting.pinned(self, to_device("cuda:0" if device is None else device))  # type: ignore[arg-type]

    def is_pinned(self, device: Any = None) -> Any:
        """Whether the memory is page-locked, for a CUDA device."""
        return _hosting.is_pinned(self, to_device("cuda:0" if device is None else device))  # type: ignore[arg-type]

    def share_memory_(self) -> Any:
        """Move the memory to where other processes can see it (see `multiprocessing`); views move along."""
        from .multiprocessing import sharing

        sharing.share_tensors([self])  # type: ignore[list-item]
        return self

    def is_shared(self) -> Any:
        """Whether other processes can see the memory."""
        from .multiprocessing import sharing

        return sharing.is_shared(self)  # type: ignore[arg-type]

    def float(self) -> Any:
        """As float32."""
        return self.to(dtype=dtypes.float32)

    def double(self) -> Any:
        """As float64."""
        return self.to(dtype=dtypes.float64)

    def half(self) -> Any:
        """As float16."""
        return self.to(dtype=dtypes.float16)

    def bfloat16(self) -> Any:
        """As bfloat16."""
        return self.to(dtype=dtypes.bfloat16)

    def long(self) -> Any:
        """As int64."""
        return self.to(dtype=dtypes.int64)

    def int(self) -> Any:
        """As int32."""
        return self.to(dtype=dtypes.int32)

    def short(self) -> Any:
        """As int16."""
        return self.to(dtype=dtypes.int16)

    def char(self) -> Any:
        """As int8."""
        return self.to(dtype=dtypes.int8)

    def byte(self) -> Any:
        """As uint8."""
        return self.to(dtype=dtypes.uint8)

    def bool(self) -> Any:
        """As bool."""
        return self.to(dtype=dtypes.bool_)

    def numpy(self, *, force: Any = False) -> np.ndarray[Any, Any]:
        """A NumPy array over the same memory (see `_hosting.to_numpy`)."""
        return _hosting.to_numpy(self, force=force)  # type: ignore[arg-type]

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return _hosting.host_array(self).tolist()  # type: ignore[arg-type]

    def item(self) -> Any:
        """The one element as a Python number. Raises `ShapeError` for more than one."""
        if self.meta.numel != 1:
            raise ShapeError(f"item: takes a tensor of one element; this one has shape {list(self.meta.shape)}")
        return _hosting.number(self)  # type: ignore[arg-type]

    def new(self, *given: Any, device: Any = None) -> Any:
        """A tensor of data or, uninitialised, of sizes, as `Tensor(...)` makes it, with this one's dtype and device."""
        from .legacy import build

        return build(given, self.meta.dtype, self.meta.device if device is None else device)

    def new_tensor(self, data: Any, **options: Any) -> Any:
        """A tensor of `data` with this one's dtype and device."""
        from .factories import tensor

        return tensor(data, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    def new_zeros(self, *size: Any, **options: Any) -> Any:
        """Zeros with this tensor's dtype and device."""
        from .factories import zeros

        return zeros(*size, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    def new_ones(self, *size: Any, **options: Any) -> Any:
        """Ones with this tensor's dtype and device."""
        from .factories import ones

        return ones(*size, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    def new_full(self, size: Sequence[Any], fill_value: Any, **options: Any) -> Any:
        """`fill_value` with this tensor's dtype and device."""
        from .factories import full

        return full(size, fill_value, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    def new_empty(self, *size: Any, **options: Any) -> Any:
        """Uninitialised, with this tensor's dtype and device."""
        from .factories import empty as make

        return make(*size, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    # Python's protocols

    def __repr__(self) -> str:
        return printing.show(self)  # type: ignore[arg-type]

    def __format__(self, spec: str) -> str:
        if not self.meta.ndim:  # one number shows as that
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __len__(self) -> Any:
        if not self.meta.ndim:
            raise ArgumentError("len() of a 0-d tensor")
        return self.meta.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.meta.ndim:
            raise ArgumentError("iteration over a 0-d tensor")
        return iter([indexing.get(self, i) for i in range(self.meta.shape[0])])  # type: ignore[arg-type]

    def __reversed__(self) -> Any:
        """The rows in reverse order: a tensor, where Python's own `reversed` would give them one by one."""
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

    __array_priority__ = 1000  # NumPy leaves operators on its arrays and ours to us

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        array = _hosting.to_numpy(self)  # type: ignore[arg-type]
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return _hosting.to_numpy(self).__dlpack__()  # type: ignore[arg-type]

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return (1, 0)

    def __copy__(self) -> Any:
        """Another tensor of the same memory, as a leaf without a `grad`."""
        made = _rebuilt(type(self), Tensor(self.storage, self.meta, self.start), self.needs)  # type: ignore[arg-type]
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        if self.node is not None:
            raise GradientError("only leaf tensors can be deep-copied; use .detach() or .clone()")
        if _builtin_id(self) in memo:
            return memo[_builtin_id(self)]
        with autograd.no_grad():
            copied = call(registry["copy"], (self,), (None,)) if self.meta.numel else empty(self.meta)
        made = _rebuilt(type(self), copied, self.needs)
        if self.grad is not None:
            made.grad = self.grad.__deepcopy__(memo)
        memo[_builtin_id(self)] = made
        if self.__dict__:  # what the user set on it
            made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        array = np.asarray(_hosting.to_host(self), order="C")  # type: ignore[arg-type, call-overload]
        made = _unpickle, (type(self), array, self.meta.dtype, str(self.meta.device), self.needs)
        return (*made, self.__dict__) if self.__dict__ else made  # with what the user set on it

    def __getitem__(self, item: Any) -> Any:
        return indexing.get(self, item)  # type: ignore[arg-type]

    def __setitem__(self, item: Any, value: Any) -> None:
        indexing.set(self, item, value)  # type: ignore[arg-type]

    def __delitem__(self, item: Any) -> None:
        raise ArgumentError("a tensor's elements cannot be deleted; select those that stay, or use cat()")

    def __hash__(self) -> Any:
        return _builtin_id(self)

    def record_stream(self, stream: Any) -> None:
        """Keep the memory from being reused before the work now on `stream` is done."""
        if self.storage.block is not None:
            self.storage.block.pool.record_stream(self.storage.block, stream.record_event())


_builtin_float, _builtin_int, _builtin_bool, _builtin_id = float, int, bool, id


def _transfer(source: Any, place: Device) -> Any:
    """`source` on another device; gradients are carried back."""
    if is_recorded(source):
        return _Transfer.apply(source, place)
    layout = meta(source.meta.dtype, source.meta.shape, None, place)
    made = empty(layout)
    if not layout.numel:
        return made
    driver: Any = place.driver
    if place.type == source.meta.device.type == "cuda":  # without the host, and without waiting
        before = current_stream(source.meta.device)
        driver.receive(contiguous(source), made.storage, before, current_stream(place))
    else:
        driver.write(made.storage, 0, np.ascontiguousarray(_hosting.to_host(source)), current_stream(place))
    return made


class _Transfer(autograd.Function):
    """A copy to another device, and its gradient's copy back."""

    @staticmethod
    def forward(ctx: Any, source: Any, place: Any) -> Any:
        ctx.place = source.meta.device
        return _transfer(source.detach(), place)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.to(device=ctx.place), None


def _rebuilt(kind: type, made: Any, needs: bool) -> Any:
    """`made` as the (sub)class it was copied from."""
    if kind is Tensor:
        made.needs = needs
        return made
    new: Any = kind.__new__(kind)  # type: ignore[call-overload]
    Tensor.__init__(new, made.storage, made.meta, made.start, needs)
    return new


def _unpickle(kind: type, array: np.ndarray[Any, Any], dtype: DType, place: str, needs: bool) -> Any:
    made = empty(meta(dtype, array.shape, None, to_device(place)))
    if made.meta.numel:
        made.meta.device.driver.write(made.storage, 0, np.ascontiguousarray(array), current_stream(made.meta.device))
    return _rebuilt(kind, made, needs)
