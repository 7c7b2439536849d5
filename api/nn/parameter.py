"""Tensors that a module owns, including lazy ones whose shape depends on the module's first input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self, TypeGuard

from ..creation.factories import empty
from ..runtime import dtypes
from ..runtime.device import Device, DeviceLike, Meta
from ..runtime.device import device as to_device
from ..runtime.dtypes import DType, DTypeLike
from ..runtime.errors import DomainError
from ..runtime.overriding import disabled_torch_function
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from ..tensor_methods.size import Size

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "is_lazy"]


class Parameter(Tensor):
    """A tensor that a module learns. Assigned to a module's attribute, it is listed by `parameters()`.

    Args:
        data: The tensor whose memory it shares; None for an empty one.
        requires_grad: Whether gradients are computed.

    Raises:
        ArgumentError: If `data` is not a tensor.

    Example:
        >>> wg.nn.Parameter(wg.zeros(2)).requires_grad
        True
    """

    __torch_function__ = disabled_torch_function  # type: ignore[assignment]  # results are plain tensors

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True):
        if data is None:
            data = empty(0)
        only_tensors("Parameter", data)
        Tensor.__init__(self, data.storage, data.meta, data.start)
        if requires_grad:
            self.requires_grad_(True)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{Tensor.__repr__(self)}"


class Buffer(Tensor):
    """A tensor that is part of a module's state but not learned. It is listed by `buffers()`.

    Args:
        data: The tensor whose memory it shares; None for an empty one.
        persistent: Include it in `state_dict`.

    Example:
        >>> layer = wg.nn.Module()
        >>> layer.mean = wg.nn.Buffer(wg.zeros(2))
        >>> list(layer.state_dict())
        ['mean']
    """

    __torch_function__ = disabled_torch_function  # type: ignore[assignment]
    persistent = True

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True):
        if data is None:
            data = empty(0)
        only_tensors("Buffer", data)
        Tensor.__init__(self, data.storage, data.meta, data.start)
        self.persistent = persistent


class _Uninitialized(Tensor):
    """A tensor with dtype and device but no shape. Accessing its shape raises `DomainError` until `materialize`."""

    __torch_function__ = disabled_torch_function  # type: ignore[assignment]
    materialized_class: type[Tensor] = Tensor

    def __init__(self, requires_grad: bool = True, device: DeviceLike | None = None, dtype: DTypeLike | None = None):
        self._set_placeholder(dtype, device, requires_grad)

    def _set_placeholder(self, dtype: DTypeLike | None, device: DeviceLike | None, requires_grad: bool) -> None:
        placeholder = empty(0, dtype=dtype, device=device)
        self._placeholder = placeholder
        Tensor.__init__(self, placeholder.storage, placeholder.meta, placeholder.start, bool(requires_grad))

    @property
    def meta(self) -> Meta:
        raise DomainError(
            f"this {type(self).__name__} has no shape yet: call its module with an input first, "
            "or give it a shape with materialize(shape)"
        )

    @meta.setter
    def meta(self, value: Meta) -> None:
        """Ignore the value: `materialize` sets the layout."""

    @property
    def dtype(self) -> DType:
        """The dtype that the tensor will have."""
        return self._placeholder.meta.dtype

    @property
    def device(self) -> Device:
        """The device that the tensor will be on."""
        return self._placeholder.meta.device

    @property
    def shape(self) -> Size:
        """Unknown: raises `DomainError`, which is a `RuntimeError` and a `ValueError`."""
        return Size(self.meta.shape)

    def materialize(
        self, shape: Sequence[int], device: DeviceLike | None = None, dtype: DTypeLike | None = None
    ) -> None:
        """Become a `Parameter` (or `Buffer`) of `shape` with uninitialized memory.

        Args:
            shape: The shape.
            device: The device; None leaves it.
            dtype: The dtype; None leaves it.

        Example:
            >>> weight = wg.nn.UninitializedParameter()
            >>> weight.materialize((2, 3))
            >>> type(weight).__name__, weight.shape
            ('Parameter', weftgrad.Size([2, 3]))
        """
        tensor = empty(
            tuple(shape),
            dtype=self.dtype if dtype is None else dtype,
            device=self.device if device is None else device,
        )
        requires_grad = self.needs_grad
        del self._placeholder
        object.__setattr__(self, "__class__", self.materialized_class)  # type checkers refuse `self.__class__ = …`
        Tensor.__init__(self, tensor.storage, tensor.meta, tensor.start, requires_grad)

    def convert(self, convert: Callable[[Tensor], Tensor]) -> None:
        """Take the dtype and device that `convert`, such as `lambda t: t.to(...)`, returns for a tensor like this."""
        converted = convert(self._placeholder)
        self._set_placeholder(converted.meta.dtype, converted.meta.device, self.needs_grad)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether gradients are computed once the tensor has a shape."""
        self.needs_grad = bool(requires_grad)  # C compares it with True
        return self

    def detach(self) -> Self:
        """Return the tensor itself, because there is no memory to share yet."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Tensor:
        copy = memo.get(id(self))
        if not isinstance(copy, Tensor):
            copy = memo[id(self)] = _rebuild_lazy(type(self), self.dtype, str(self.device), self.needs_grad)
        return copy

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_lazy, (type(self), self.dtype, str(self.device), self.needs_grad)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter that gets its shape from its module's first input.

    Args:
        requires_grad: Whether gradients are computed.
        device: Device of the parameter; None: the default device.
        dtype: Dtype of the parameter; None: the default dtype.

    Example:
        >>> wg.nn.LazyLinear(3).weight
        <UninitializedParameter>
    """

    materialized_class = Parameter


class UninitializedBuffer(_Uninitialized, Tensor):
    """A buffer that gets its shape from its module's first input.

    Args:
        requires_grad: Whether gradients are computed.
        device: Device of the buffer; None: the default device.
        dtype: Dtype of the buffer; None: the default dtype.
        persistent: Include it in `state_dict`.
        **_: Ignored.

    Example:
        >>> wg.nn.LazyBatchNorm1d().running_mean
        <UninitializedBuffer>
    """

    materialized_class = Buffer

    def __init__(
        self, requires_grad: bool = False, device: DeviceLike | None = None, dtype: DTypeLike | None = None,
        persistent: bool = True, **_: object,
    ):  # fmt: skip
        self.persistent = persistent
        self._set_placeholder(dtype, device, requires_grad)


def _rebuild_lazy(cls: type[_Uninitialized], dtype: DTypeLike, device: str, needs_grad: bool) -> _Uninitialized:
    return cls(needs_grad, to_device(device), dtypes.parse(dtype))


def is_lazy(tensor: object) -> TypeGuard[_Uninitialized]:
    """Return whether the tensor's shape is still unknown.

    Args:
        tensor: An object of any type.

    Returns:
        Python bool.

    Example:
        >>> wg.nn.parameter.is_lazy(wg.nn.LazyLinear(3).weight)
        True
    """
    return isinstance(tensor, _Uninitialized)
