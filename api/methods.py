"""Tensor's methods that are not ops: history, conversion, Python's protocols. `install` puts them on the class."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import _hosting, autograd, indexing, printing
from .runtime import dtypes, views
from .runtime.context import current_stream
from .runtime.device import Device, meta
from .runtime.device import device as to_device
from .runtime.dispatch import call, call_into, empty, refresh
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError, GradientError, ShapeError
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = ["Size", "install"]

_hook_ids = itertools.count()


class Size(tuple[int, ...]):
    """A shape: a tuple of ints that knows its number of elements."""

    __slots__ = ()

    def numel(self) -> int:
        """The product of the sizes."""
        count = 1
        for n in self:
            count *= n
        return count

    def __repr__(self) -> str:
        return f"weftgrad.Size({list(self)})"

    def __getitem__(self, item: Any) -> Any:
        found = super().__getitem__(item)
        return Size(found) if isinstance(item, slice) else found


class Handle:
    """Returned by hooks: `remove()` takes the hook away."""

    def __init__(self, hooks: dict[int, Any], key: int):
        self._hooks = hooks
        self._key = key

    def remove(self) -> None:
        self._hooks.pop(self._key, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class _Methods:
    """Collected here and copied to `Tensor`; `self` is a Tensor throughout."""

    meta: Any
    storage: Any
    node: Any
    extra: Any
    needs: bool
    start: int

    # geometry

    @property
    def shape(self) -> Size:
        """The sizes of the dimensions."""
        return Size(self.meta.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return Size(self.meta.shape) if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Strides in elements, or one of them."""
        return self.meta.strides if dim is None else self.meta.strides[dim]

    def storage_offset(self) -> int:
        """Elements between the storage's start and the first element."""
        return (self.start - self.storage.start) // self.meta.dtype.itemsize

    def numel(self) -> int:
        """The number of elements."""
        return int(self.meta.numel)

    nelement = numel

    def dim(self) -> int:
        """The number of dimensions."""
        return int(self.meta.ndim)

    def element_size(self) -> int:
        """Bytes of one element."""
        return int(self.meta.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.meta.nbytes)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.meta.dtype.itemsize)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether elements lie row-major without gaps."""
        return bool(self.meta.contiguous)

    def data_ptr(self) -> int:
        """The address of the first element: of host memory on `cpu`, an offset in its buffer elsewhere."""
        whole = self.meta.device.driver.host_view(self.storage) if self.meta.numel else None
        return self.start if whole is None else int(whole.ctypes.data) + self.start - self.storage.start

    def is_floating_point(self) -> bool:
        """Whether the dtype is floating."""
        return bool(self.meta.dtype.is_floating_point)

    def is_complex(self) -> bool:
        """False: there are no complex dtypes."""
        return False

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a CUDA device."""
        return bool(self.meta.device.type == "cuda")

    def get_device(self) -> int:
        """The device's index, -1 for `cpu`."""
        return -1 if self.meta.device.index is None else int(self.meta.device.index)

    @property
    def T(self) -> Any:
        """Dimensions reversed."""
        return call(registry["permute"], (self,), (tuple(range(self.meta.ndim - 1, -1, -1)),))

    @property
    def mT(self) -> Any:
        """The last two dimensions exchanged."""
        return call(registry["transpose"], (self,), (-2, -1))

    def t(self) -> Any:
        """The transpose of a matrix; a vector itself."""
        if self.meta.ndim > 2:
            raise ShapeError(f"t: takes at most 2 dimensions, the tensor has {self.meta.ndim}; use .transpose()")
        return self if self.meta.ndim < 2 else call(registry["transpose"], (self,), (0, 1))

    def view(self, *shape: Any) -> Any:
        """The same elements in another shape, without copying. Raises `ShapeError` where strides do not allow it."""
        return call(registry["view"], (self,), (_sizes(shape),))

    def view_as(self, other: Tensor) -> Any:
        """A view in the shape of `other`."""
        return call(registry["view"], (self,), (other.meta.shape,))

    def reshape(self, *shape: Any) -> Any:
        """The same elements in another shape, copied only if strides demand it."""
        return views.reshape(self, _sizes(shape))  # type: ignore[arg-type]

    def reshape_as(self, other: Tensor) -> Any:
        """Reshaped to the shape of `other`."""
        return views.reshape(self, other.meta.shape)  # type: ignore[arg-type]

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        """Dimensions start_dim to end_dim merged into one."""
        from .runtime.layout import normalize_dim

        if not self.meta.ndim:
            return views.reshape(self, (1,))  # type: ignore[arg-type]
        a, b = (normalize_dim(d, self.meta.ndim, "flatten") for d in (start_dim, end_dim))
        if a > b:
            raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
        shape = self.meta.shape
        merged = 1
        for n in shape[a : b + 1]:
            merged *= n
        return views.reshape(self, (*shape[:a], merged, *shape[b + 1 :]))  # type: ignore[arg-type]

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Any:
        """One dimension split into several."""
        from .runtime.layout import normalize_dim

        at = normalize_dim(dim, self.meta.ndim, "unflatten")
        shape = self.meta.shape
        wanted = views.infer_shape(tuple(sizes), shape[at], "unflatten")
        return call(registry["view"], (self,), ((*shape[:at], *wanted, *shape[at + 1 :]),))

    def permute(self, *dims: Any) -> Any:
        """The dimensions in another order."""
        return call(registry["permute"], (self,), (_sizes(dims),))

    def expand(self, *sizes: Any) -> Any:
        """Dimensions of size 1 repeated without copying; -1 keeps a size."""
        return call(registry["expand"], (self,), (_sizes(sizes),))

    def expand_as(self, other: Tensor) -> Any:
        """Expanded to the shape of `other`."""
        return call(registry["expand"], (self,), (other.meta.shape,))

    def as_strided(self, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Any:
        """Any geometry over the storage. Raises `ShapeError` where it would leave the storage."""
        itemsize = self.meta.dtype.itemsize
        own = (self.start - self.storage.start) // itemsize
        offset = own if storage_offset is None else storage_offset
        reach = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=False) if n > 0)
        if offset < 0 or any(s < 0 for s in stride) or (0 not in size and (reach + 1) * itemsize > self.storage.nbytes):
            raise ShapeError(
                f"as_strided: size {list(size)}, stride {list(stride)}, offset {offset} leave a storage of "
                f"{self.storage.nbytes // itemsize} elements"
            )
        return call(registry["as_strided"], (self,), (tuple(size), tuple(stride), offset - own))

    def contiguous(self, memory_format: Any = None) -> Any:
        """The tensor itself if contiguous, else a contiguous copy."""
        return views.contiguous(self)  # type: ignore[arg-type]

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        """The slices along a dimension."""
        return tuple(call(registry["select"], (self,), (dim, i)) for i in range(self.shape[dim]))

    # history

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are wanted of this tensor, or of something it was computed from."""
        _fresh(self)
        return bool(self.needs)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Set whether gradients of this leaf are wanted. Raises `GradientError` for results and integer tensors."""
        if self.node is not None and not requires_grad:
            raise GradientError("requires_grad_: only leaves can be changed; use .detach() for a tensor without history")
        if requires_grad and self.meta.dtype.kind != "f":
            raise GradientError(f"requires_grad_: only floating tensors have gradients, not {self.meta.dtype.name}")
        self.needs = bool(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded call computed this tensor."""
        _fresh(self)
        return self.node is None

    @property
    def grad_fn(self) -> Any:
        """The recorded call that computed this tensor, or None."""
        _fresh(self)
        return self.node

    @property
    def grad(self) -> Any:
        """The accumulated gradient of a leaf, or None."""
        return None if self.extra is None else self.extra.grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise ArgumentError(f"grad: must be a tensor or None, not {type(value).__name__}")
            if value.meta.shape != self.meta.shape:
                raise ShapeError(f"grad: has shape {list(value.meta.shape)}, the tensor {list(self.meta.shape)}")
        self.more().grad = value  # type: ignore[attr-defined]

    @grad.deleter
    def grad(self) -> None:
        if self.extra is not None:
            self.extra.grad = None

    @property
    def _version(self) -> int:
        """How often the memory was written in place."""
        return int(self.storage.version)

    @property
    def _base(self) -> Any:
        """The tensor this is a view of, or None."""
        return None if self.extra is None else self.extra.base

    def _is_view(self) -> bool:
        return self.extra is not None and self.extra.base is not None

    @property
    def output_nr(self) -> int:
        """Which result of `grad_fn` this tensor is."""
        return int(self.output)  # type: ignore[attr-defined]

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        """Add this tensor's gradient to the `grad` of every leaf it depends on (see `autograd.backward`)."""
        if inputs is not None:
            wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
            found = autograd.grad(self, wanted, gradient, retain_graph, create_graph, allow_unused=True)  # type: ignore[arg-type]
            for leaf, grad in zip(wanted, found, strict=True):
                if grad is not None:
                    leaf.grad = grad if leaf.grad is None else leaf.grad + grad  # type: ignore[attr-defined]
            return
        autograd.backward(self, gradient, retain_graph, create_graph)  # type: ignore[arg-type]

    def detach(self) -> Any:
        """The same memory without history."""
        out = Tensor(self.storage, self.meta, self.start)
        return out

    def detach_(self) -> Any:
        """Drop this tensor's history."""
        self.node = None
        self.needs = False
        return self

    @property
    def data(self) -> Any:
        """The same memory without history."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        self.storage, self.meta, self.start = value.storage, value.meta, value.start

    def register_hook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call `hook(grad)` when this tensor's gradient is known; what it returns replaces the gradient."""
        _fresh(self)
        if not self.needs:
            raise GradientError("register_hook: the tensor does not require grad")
        key = next(_hook_ids)
        if self.node is None:
            extra = self.more()  # type: ignore[attr-defined]
            extra.hooks = extra.hooks or {}
            extra.hooks[key] = hook
            return Handle(extra.hooks, key)
        self.node.hooks = self.node.hooks or {}
        self.node.hooks[key] = (self.output, hook)  # type: ignore[attr-defined]
        return Handle(self.node.hooks, key)

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf tensor in `grad`."""
        if self.node is None or self.more().retains:  # type: ignore[attr-defined]
            return
        self.extra.retains = True
        extra = self.extra

        def keep(grad: Tensor) -> None:
            extra.grad = grad.detach() if extra.grad is None else extra.grad + grad  # type: ignore[attr-defined]

        self.register_hook(keep)

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return self.extra is not None and bool(self.extra.retains)

    # copies

    def clone(self, *, memory_format: Any = None) -> Any:
        """A copy; gradients flow back to this tensor."""
        return call(registry["copy"], (self,), (None,))

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        """Write the values of `source`, broadcast and converted, into this tensor."""
        if not isinstance(source, Tensor):
            return call_into(registry["fill"], (self, source), (), (self,), in_place=True)
        if source.meta.device is not self.meta.device:
            source = _transfer(source, self.meta.device)
        if source.meta.shape != self.meta.shape:
            source = call(registry["expand"], (source,), (self.meta.shape,))
        if not self.meta.numel:
            return self
        if source.storage is self.storage and source.start == self.start and source.meta is self.meta:
            return self
        return call_into(registry["copy"], (source,), (None,), (self,), in_place=True)

    def fill_(self, value: Any) -> Any:
        """Set every element to a number."""
        number = value.item() if isinstance(value, Tensor) else value  # type: ignore[attr-defined]
        kind = self.meta.dtype.kind
        number = bool(number) if kind == "b" else float(number) if kind == "f" else int(number)
        if not self.meta.numel:
            return self
        return call_into(registry["fill"], (self, number), (), (self,), in_place=True)

    def zero_(self) -> Any:
        """Set every element to 0."""
        return self.fill_(0)

    def to(self, *args: Any, device: Any = None, dtype: Any = None, copy: bool = False, non_blocking: bool = False, **_: Any) -> Any:
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

    def type(self, dtype: Any = None) -> Any:
        """The dtype's name, or the tensor converted to `dtype`."""
        return f"weftgrad.{self.meta.dtype.name}" if dtype is None else self.to(dtype=dtype)

    def type_as(self, other: Tensor) -> Any:
        """Converted to the dtype of `other`."""
        return self.to(dtype=other.meta.dtype)

    def cpu(self) -> Any:
        """On the host."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None) -> Any:
        """On a CUDA device."""
        return self.to(device=device if device is not None else "cuda:0")

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
        return _hosting.host_array(self).item()  # type: ignore[arg-type]

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

    def new_full(self, size: Sequence[Any], value: Any, **options: Any) -> Any:
        """`value` with this tensor's dtype and device."""
        from .factories import full

        return full(size, value, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    def new_empty(self, *size: Any, **options: Any) -> Any:
        """Uninitialised, with this tensor's dtype and device."""
        from .factories import empty as make

        return make(*size, **({"dtype": self.meta.dtype, "device": self.meta.device} | options))

    # Python's protocols

    def __repr__(self) -> str:
        return printing.show(self)  # type: ignore[arg-type]

    def __len__(self) -> Any:
        if not self.meta.ndim:
            raise ArgumentError("len() of a 0-d tensor")
        return self.meta.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.meta.ndim:
            raise ArgumentError("iteration over a 0-d tensor")
        return iter([indexing.get(self, i) for i in range(self.meta.shape[0])])  # type: ignore[arg-type]

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
        return _builtin_bool((self == item).any())  # type: ignore[union-attr]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        array = _hosting.to_numpy(self)  # type: ignore[arg-type]
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return _hosting.to_numpy(self).__dlpack__()  # type: ignore[arg-type]

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return (1, 0)

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
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        if self.node is not None:
            raise GradientError("only leaf tensors can be pickled; use .detach()")
        array = np.ascontiguousarray(_hosting.to_host(self))  # type: ignore[arg-type]
        return _unpickle, (type(self), array, self.meta.dtype, str(self.meta.device), self.needs)

    def __getitem__(self, item: Any) -> Any:
        return indexing.get(self, item)  # type: ignore[arg-type]

    def __setitem__(self, item: Any, value: Any) -> None:
        indexing.set(self, item, value)  # type: ignore[arg-type]

    def __hash__(self) -> Any:
        return _builtin_id(self)

    def record_stream(self, stream: Any) -> None:
        """Keep the memory from being reused before the work now on `stream` is done."""
        if self.storage.block is not None:
            self.storage.block.pool.record_stream(self.storage.block, stream.record_event())


_builtin_float, _builtin_int, _builtin_bool, _builtin_id = float, int, bool, id


def _fresh(tensor: Any) -> None:
    extra = tensor.extra
    if extra is not None and extra.base is not None and extra.seen != extra.base.extra.rewrites:
        refresh(tensor)


def _sizes(given: tuple[Any, ...]) -> tuple[int, ...]:
    found = tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    if any(not isinstance(n, int) for n in found):
        try:
            return tuple(n.__index__() for n in found)
        except AttributeError:
            raise ArgumentError(f"sizes and dimensions are ints, not {found!r}") from None
    return found


def _transfer(source: Any, place: Device) -> Any:
    """`source` on another device; gradients are carried back."""
    if source.needs and autograd.is_grad_enabled():
        return _Transfer.apply(source, place)
    layout = meta(source.meta.dtype, source.meta.shape, None, place)
    made = empty(layout)
    if layout.numel:
        place.driver.write(made.storage, 0, np.ascontiguousarray(_hosting.to_host(source)), current_stream(place))
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
    new = kind.__new__(kind)
    Tensor.__init__(new, made.storage, made.meta, made.start, needs)
    return new


def _unpickle(kind: type, array: np.ndarray[Any, Any], dtype: DType, place: str, needs: bool) -> Any:
    made = empty(meta(dtype, array.shape, None, to_device(place)))
    if made.meta.numel:
        made.meta.device.driver.write(made.storage, 0, np.ascontiguousarray(array), current_stream(made.meta.device))
    return _rebuilt(kind, made, needs)


def install() -> None:
    """Put everything on `Tensor`."""
    for name, value in vars(_Methods).items():
        if name not in ("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__qualname__"):
            setattr(Tensor, name, value)
