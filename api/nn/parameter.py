"""Tensors that a module owns, and those whose shape is known only once the module sees its first input."""

from __future__ import annotations

from typing import Any

from .._checks import only_tensors
from ..runtime import dtypes
from ..runtime.device import device as to_device
from ..runtime.errors import DomainError
from ..runtime.tensor import Tensor

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "is_lazy"]


class Parameter(Tensor):
    """A tensor that is a module's to learn: assigned to a module's attribute, it is listed by `parameters()`.

    It shares the memory of `data` and requires a gradient unless told otherwise.
    """

    def __init__(self, data: Any = None, requires_grad: bool = True):
        if data is None:
            from ..factories import empty

            data = empty(0)
        only_tensors("Parameter", data)
        Tensor.__init__(self, data.storage, data.meta, data.start)
        if requires_grad:
            self.requires_grad_(True)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"Parameter containing:\n{Tensor.__repr__(self)}"


class Buffer(Tensor):
    """A tensor that belongs to a module's state without being learned: listed by `buffers()`; in its `state_dict` if
    `persistent`."""

    persistent = True

    def __init__(self, data: Any = None, *, persistent: bool = True):
        if data is None:
            from ..factories import empty

            data = empty(0)
        only_tensors("Buffer", data)
        Tensor.__init__(self, data.storage, data.meta, data.start)
        self.persistent = persistent


class _Uninitialized:
    """A dtype and a device, but no shape: anything that needs one raises `DomainError` until `materialize`."""

    becomes: type = Tensor
    needs: bool

    def _lay(self, dtype: Any, device: Any, requires_grad: bool) -> None:
        from ..factories import empty

        held: Any = empty(0, dtype=dtype, device=device)
        self._held: Any = held
        Tensor.__init__(self, held.storage, held.meta, held.start, requires_grad)  # type: ignore[arg-type]

    @property
    def meta(self) -> Any:
        raise DomainError(
            f"this {type(self).__name__} has no shape yet: call its module with an input first, "
            "or give it a shape with materialize(shape)"
        )

    @meta.setter
    def meta(self, value: Any) -> None:
        """The layout comes with `materialize`."""

    @property
    def dtype(self) -> Any:
        """The element type it will have."""
        return self._held.meta.dtype

    @property
    def device(self) -> Any:
        """Where its memory will be."""
        return self._held.meta.device

    @property
    def shape(self) -> Any:
        """Not known yet: raises `DomainError`, a `RuntimeError` and a `ValueError`."""
        return self.meta.shape

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a `Parameter` (or a tensor) of `shape`, uninitialised, on `device` and in `dtype` if given."""
        from ..factories import empty

        made: Any = empty(
            tuple(shape),
            dtype=self.dtype if dtype is None else dtype,
            device=self.device if device is None else device,
        )
        needs = self.needs
        del self._held
        self.__class__ = self.becomes  # type: ignore[assignment]
        Tensor.__init__(self, made.storage, made.meta, made.start, needs)  # type: ignore[arg-type]

    def convert(self, change: Any) -> None:
        """Take the dtype and the device that `change` gives a tensor of this one's."""
        changed = change(self._held)
        self._lay(changed.meta.dtype, changed.meta.device, self.needs)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Whether a gradient will be wanted."""
        self.needs = requires_grad
        return self

    def detach(self) -> Any:
        """Itself: there is nothing to share yet."""
        return self

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = _lazy_again(type(self), self.dtype, str(self.device), self.needs)
        return memo[id(self)]

    def __reduce__(self) -> Any:
        return _lazy_again, (type(self), self.dtype, str(self.device), self.needs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter whose shape the first input of its module decides."""

    becomes = Parameter

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None):
        self._lay(dtype, device, requires_grad)


class UninitializedBuffer(_Uninitialized, Tensor):
    """A buffer whose shape the first input of its module decides."""

    becomes = Buffer

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True, **_: Any
    ):
        self.persistent = persistent
        self._lay(dtype, device, requires_grad)


def _lazy_again(kind: Any, dtype: Any, device: str, needs: bool) -> Any:
    return kind(needs, to_device(device), dtypes.parse(dtype))


def is_lazy(tensor: Any) -> bool:
    """Whether the tensor's shape is still unknown."""
    return isinstance(tensor, _Uninitialized)
