"""Helpers of index writes: convert assigned values to tensors, copy on aliasing, turn masks into positions."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

from ..arguments.types import Operand
from ..creation.factories import full
from ..creation.from_data import tensor
from ..runtime import views
from ..runtime.context import current_stream
from ..runtime.device import Device, meta
from ..runtime.dispatch import call, call_into, empty, is_recorded
from ..runtime.dtypes import Array, bool_, int64
from ..runtime.errors import DTypeError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import to_dtype_number

__all__ = [
    "assignment_value",
    "at_least_1d",
    "clone",
    "copy_if_aliased",
    "is_single",
    "masked_fill_",
    "on_device",
    "positions",
    "record_empty_write",
    "tensor_value",
    "upload",
]


def on_device(tensor: Tensor, device: Device) -> Tensor:
    """Return `tensor`, copied to `device` if it is on another one."""
    return tensor if tensor.meta.device is device else tensor.to(device=device)


def upload(array: Array, device: Device) -> Tensor:
    """Copy an int64 array to a new tensor on `device`."""
    output = empty(meta(int64, array.shape, None, device))
    if array.size:
        device.driver.write(output.storage, 0, np.ascontiguousarray(array), current_stream(device))
    return output


def at_least_1d(tensor: Tensor) -> Tensor:
    """Return `tensor`, viewed as a vector of one element if it is 0-d."""
    return tensor if tensor.meta.ndim else views.reshape(tensor, (1,))


def clone(tensor: Tensor) -> Tensor:
    """Return a contiguous copy."""
    return call(registry["copy"], (tensor,), (None,))


def is_single(value: object) -> TypeGuard[Operand]:
    """Return True for a number or a 0-d tensor."""
    if isinstance(value, Tensor):
        return value.meta.ndim == 0
    return isinstance(value, (bool, int, float, np.generic))


def assignment_value(value: object, like: Tensor, shape: tuple[int, ...]) -> Tensor | bool | int | float:
    """Return a Python number unchanged, and any other value as a tensor of `shape` on the device of `like`."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, np.generic):
        number: bool | int | float = value.item()
        return number
    source = value if isinstance(value, Tensor) else tensor(value, device=like.meta.device)
    source = on_device(source, like.meta.device)
    extra_dims = source.meta.ndim - len(shape)
    if extra_dims > 0 and all(n == 1 for n in source.meta.shape[:extra_dims]):
        source = views.reshape(source, source.meta.shape[extra_dims:])
    if source.meta.shape == shape:
        return source
    try:
        expanded: Tensor = call(registry["expand"], (source,), (shape,))
    except ShapeError:
        raise ShapeError(
            f"assignment: a value of shape {list(source.meta.shape)} does not broadcast to the indexed shape "
            f"{list(shape)}"
        ) from None
    return expanded


def tensor_value(value: object, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return `value` as a tensor of `shape` with the dtype and device of `like`."""
    output = assignment_value(value, like, shape)
    if not isinstance(output, Tensor):
        output = call(registry["expand"], (_scalar_tensor(output, like),), (shape,))
    if output.meta.dtype is not like.meta.dtype:
        output = call(registry["copy"], (output,), (like.meta.dtype,))
    return output


def _scalar_tensor(value: int | float, like: Tensor) -> Tensor:
    """Create a 0-d tensor with the dtype and device of `like`."""
    return full((), value, dtype=like.meta.dtype, device=like.meta.device)


def copy_if_aliased(value: Tensor, target: Tensor) -> Tensor:
    """Return `value`, or a copy if it shares memory with `target`: a kernel must not read what it just wrote."""
    return call(registry["copy"], (value,), (None,)) if value.storage is target.storage else value


def record_empty_write(target: Tensor, source: Tensor) -> None:
    """Record that `target` depends on `source`, of which no element was written: its gradient is zeros, not None.

    Args:
        target: Tensor that an index write found no elements of.
        source: Values for them, of no elements and the dtype and device of `target`.
    """
    if is_recorded(source):
        view = call(registry["narrow"], (at_least_1d(target),), (0, 0, 0))
        call_into(registry["copy"], (views.reshape(source, view.meta.shape),), (None,), (view,), in_place=True)


def masked_fill_(self: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """Set the elements where `mask` (bool, broadcast) is true to a number or a 0-d tensor, in place.

    Args:
        mask: bool tensor that broadcasts to this tensor's shape.
        value: Number, or a tensor of shape `()`.

    Returns:
        This tensor.

    Raises:
        DTypeError: If `mask` is not bool.
        ArgumentError: If the dtype does not hold the number `value`, such as infinity in an integer tensor.
        ShapeError: If `value` is a tensor with dimensions.

    Example:
        >>> wg.zeros(3).masked_fill_(wg.tensor([True, False, True]), 5)
        tensor([5., 0., 5.])
    """
    if mask.meta.dtype is not bool_:
        raise DTypeError(f"masked_fill_: the mask must be bool, not {mask.meta.dtype.name}; convert it with .bool()")
    if isinstance(value, Tensor):
        if value.meta.ndim:
            raise ShapeError(
                f"masked_fill_: value must be a number or a 0-d tensor, not of shape {list(value.meta.shape)}"
            )
        value = copy_if_aliased(on_device(value, self.meta.device), self)
    else:
        value = to_dtype_number(value, self.meta.dtype, "masked_fill_")
    if self.meta.numel:
        call_into(registry["masked_fill"], (self, on_device(mask, self.meta.device), value), (), (self,), in_place=True)
    return self


def positions(mask: Tensor) -> Tensor:
    """Return the row-major positions of the elements that are not 0, as an ascending int64 vector.

    The host waits for their number, because the shape of the result depends on it.
    """
    mask = views.contiguous(mask.detach())
    if not mask.meta.numel:
        return empty(meta(int64, (0,), None, mask.meta.device))
    offsets = call(registry["mask_counts"], (mask,))
    total = int(call(registry["select"], (offsets,), (0, -1)).item())
    return call(registry["mask_positions"], (mask, offsets), (total,))
