"""Tensor's methods that are not ops: geometry and history; `conversion` has the rest. `install` puts them on the
class."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from . import autograd
from .conversion import Conversions
from .runtime import views
from .runtime.autograd.inplace import Retained
from .runtime.autograd.rules import sum_to
from .runtime.dispatch import call, freshen
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError, GradientError, IndexOutOfRange, ShapeError
from .runtime.layout import normalize_dim
from .runtime.records import registry
from .runtime.spelling import spelled_dim
from .runtime.storage import Hold
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
        return Size(self.meta.shape) if dim is None else self.meta.shape[_dim(dim, self.meta.ndim, "size")]

    def stride(self, dim: int | None = None) -> Any:
        """Strides in elements, or one of them."""
        return self.meta.strides if dim is None else self.meta.strides[_dim(dim, self.meta.ndim, "stride")]

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
        """Whether elements lie row-major without gaps; or with channels last, if `memory_format` says so."""
        if memory_format in ("channels_last", "channels_last_3d"):
            dims = 4 if memory_format == "channels_last" else 5
            return bool(self.meta.ndim == dims and self.movedim(1, -1).is_contiguous())  # type: ignore[attr-defined]
        return bool(self.meta.contiguous)

    def data_ptr(self) -> int:
        """The address of the first element: of host memory on `cpu`, an offset in its buffer elsewhere."""
        driver: Any = self.meta.device.driver
        if not self.meta.numel or driver.host_view(self.storage) is None:
            return int(self.start)
        driver.synchronize()
        if self.storage.owner is None:  # nobody waits at the address, so later launches may not be queued
            self.storage.owner = Hold()
        return int(driver.address(self.storage)) + int(self.start)

    def is_floating_point(self) -> bool:
        """Whether the dtype is floating."""
        return bool(self.meta.dtype.is_floating_point)

    def is_complex(self) -> bool:
        """False: there are no complex dtypes."""
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
    def layout(self) -> str:
        """`weftgrad.strided`: every tensor is dense."""
        return "strided"

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
        """The transpose of a matrix; what has fewer dimensions as it is."""
        if self.meta.ndim > 2:
            raise ShapeError(f"t: takes at most 2 dimensions, the tensor has {self.meta.ndim}; use .transpose()")
        return call(registry["permute"], (self,), ((1, 0)[2 - self.meta.ndim :],))

    def view(self, *shape: Any) -> Any:
        """The same elements in another shape, without copying; or, of a dtype, the same bits as numbers of that dtype,
        in more or fewer along the last dimension where its size is another.

        Raises `ShapeError` where strides do not allow it, `GradientError` for bits of what wants a gradient.
        """
        if len(shape) == 1 and isinstance(shape[0], DType):
            return views.seen_as(self, shape[0])  # type: ignore[arg-type]
        return call(registry["view"], (self,), (_sizes(shape),))

    def view_as(self, other: Tensor) -> Any:
        """A view in the shape of `other`."""
        return call(registry["view"], (self,), (other.meta.shape,))

    def sum_to_size(self, *size: Any) -> Any:
        """Summed over the dimensions along which `size` broadcasts to this shape. Raises `ShapeError`."""
        wanted = _sizes(size)
        padded = (1,) * (self.meta.ndim - len(wanted)) + wanted
        if len(wanted) > self.meta.ndim or any(n not in (1, m) for n, m in zip(padded, self.meta.shape, strict=True)):
            raise ShapeError(f"sum_to_size: {list(wanted)} does not broadcast to {list(self.meta.shape)}")
        return sum_to(self, wanted)  # type: ignore[arg-type]

    def reshape(self, *shape: Any) -> Any:
        """The same elements in another shape, copied only if strides demand it."""
        return views.reshape(self, _sizes(shape))  # type: ignore[arg-type]

    def reshape_as(self, other: Tensor) -> Any:
        """Reshaped to the shape of `other`."""
        return views.reshape(self, other.meta.shape)  # type: ignore[arg-type]

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        """Dimensions start_dim to end_dim merged into one."""
        if not self.meta.ndim:
            return views.reshape(self, (1,))  # type: ignore[arg-type]
        a, b = (normalize_dim(d, self.meta.ndim, "flatten") for d in (start_dim, end_dim))
        if a > b:
            raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
        if a == b:
            return self
        shape = self.meta.shape
        merged = 1
        for n in shape[a : b + 1]:
            merged *= n
        return views.reshape(self, (*shape[:a], merged, *shape[b + 1 :]))  # type: ignore[arg-type]

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Any:
        """One dimension split into several."""
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

    def unbind(self, dim: int = 0, *, axis: int | None = None) -> tuple[Any, ...]:
        """The slices along a dimension."""
        if axis is not None:
            dim = spelled_dim("unbind", dim, 0, axis)
        return tuple(call(registry["select"], (self,), (dim, i)) for i in range(self.shape[dim]))

    # history

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are wanted of this tensor, or of something it was computed from."""
        freshen(self)
        return bool(self.needs)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Set whether gradients of this leaf are wanted. Raises `GradientError` for results and integer tensors."""
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
        freshen(self)
        return self.node is None

    @property
    def grad_fn(self) -> Any:
        """The recorded call that computed this tensor, or None."""
        freshen(self)
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
            wanted: list[Any] = [inputs] if isinstance(inputs, Tensor) else list(inputs)
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
        """Drop this tensor's history; a view is none of its base any more."""
        self.node = None
        self.needs = False
        if self.extra is not None:
            self.extra.base = None
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
        freshen(self)
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

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], None]) -> Handle:
        """Call `hook(tensor)` whenever a backward has added to this leaf's `grad`: to take a step of an optimizer then,
        for example. It must return None. Raises `GradientError` for what is no leaf, or wants no gradient."""
        freshen(self)
        if not self.needs or self.node is not None:
            raise GradientError("register_post_accumulate_grad_hook: takes leaves that require grad")
        extra = self.more()  # type: ignore[attr-defined]
        extra.stored = extra.stored or {}
        key = next(_hook_ids)
        extra.stored[key] = hook
        return Handle(extra.stored, key)

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf tensor in `grad`. Raises `GradientError` where it requires none."""
        freshen(self)
        if not self.needs:
            raise GradientError("retain_grad: the tensor does not require grad, so none will be there to keep")
        if self.node is None or self.more().retains:  # type: ignore[attr-defined]
            return
        keep = Retained(self.extra)
        self.extra.retains = (self.register_hook(keep)._key, keep)

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return self.extra is not None and bool(self.extra.retains)


def _dim(dim: int, ndim: int, where: str) -> int:
    if not ndim:
        raise IndexOutOfRange(f"{where}: the tensor has no dimensions, so none is {dim!r}")
    return normalize_dim(dim, ndim, where)


def _sizes(given: tuple[Any, ...]) -> tuple[int, ...]:
    found = tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    if any(not isinstance(n, int) for n in found):
        try:
            return tuple(n.__index__() for n in found)
        except AttributeError:
            raise ArgumentError(f"sizes and dimensions are ints, not {found!r}") from None
    return found


def install() -> None:
    """Put everything on `Tensor`."""
    kept = ("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__qualname__")
    for source in (_Methods, Conversions):
        for name, value in vars(source).items():
            if name not in kept:
                setattr(Tensor, name, value)
