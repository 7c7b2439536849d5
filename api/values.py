"""Values for writes: numbers, arrays and tensors as tensors of a layout; copies, masks as lists of places."""

from __future__ import annotations

from typing import Any

import numpy as np

from .runtime import views
from .runtime.context import current_stream
from .runtime.device import Device, meta
from .runtime.dispatch import call, call_into, empty
from .runtime.dtypes import bool_, int64
from .runtime.errors import DTypeError, ShapeError
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = [
    "apart",
    "clone",
    "is_single",
    "masked_fill_",
    "on_device",
    "positions",
    "tensor_value",
    "upload",
    "value_of",
]


def on_device(tensor: Tensor, device: Device) -> Tensor:
    return tensor if tensor.meta.device is device else tensor.to(device=device)  # type: ignore[attr-defined,no-any-return]


def upload(array: np.ndarray[Any, Any], device: Device) -> Tensor:
    """An int64 array as a tensor."""
    made = empty(meta(int64, array.shape, None, device))
    if array.size:
        device.driver.write(made.storage, 0, np.ascontiguousarray(array), current_stream(device))
    return made


def clone(tensor: Tensor) -> Tensor:
    return call(registry["copy"], (tensor,), (None,))  # type: ignore[no-any-return]


def is_single(value: Any) -> bool:
    """Whether a value is one number or a tensor of one element."""
    if isinstance(value, Tensor):
        return value.meta.ndim == 0
    return isinstance(value, (bool, int, float, np.generic))


def value_of(value: Any, like: Tensor, shape: tuple[int, ...]) -> Any:
    """What is assigned: a Python number as it is, anything else as a tensor of `shape` on the device of `like`."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, Tensor):
        from .factories import tensor

        value = tensor(value, device=like.meta.device)
    value = on_device(value, like.meta.device)
    lead = value.meta.ndim - len(shape)
    if lead > 0 and all(n == 1 for n in value.meta.shape[:lead]):
        value = views.reshape(value, value.meta.shape[lead:])
    if value.meta.shape == shape:
        return value
    try:
        return call(registry["expand"], (value,), (shape,))
    except ShapeError:
        raise ShapeError(
            f"assignment: a value of shape {list(value.meta.shape)} does not broadcast to the indexed shape "
            f"{list(shape)}"
        ) from None


def tensor_value(value: Any, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """As `value_of`, a tensor in any case, in the dtype of `like`."""
    found = value_of(value, like, shape)
    if not isinstance(found, Tensor):
        found = call(registry["expand"], (_number(found, like),), (shape,))
    if found.meta.dtype is not like.meta.dtype:
        found = call(registry["copy"], (found,), (like.meta.dtype,))
    return found  # type: ignore[no-any-return]


def _number(value: Any, like: Tensor) -> Tensor:
    """A 0-d tensor of `like`'s dtype."""
    from .factories import full

    return full((), value, dtype=like.meta.dtype, device=like.meta.device)


def apart(value: Tensor, target: Tensor) -> Tensor:
    """`value`, copied if it shares memory with `target`, so that nothing is read that was just written."""
    return call(registry["copy"], (value,), (None,)) if value.storage is target.storage else value


def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Set the elements where `mask` (bool, broadcast) holds to a number or a 0-d tensor, in place."""
    if mask.meta.dtype is not bool_:
        raise DTypeError(f"masked_fill_: the mask must be bool, not {mask.meta.dtype.name}; convert it with .bool()")
    if isinstance(value, Tensor):
        if value.meta.ndim:
            raise ShapeError(
                f"masked_fill: value must be a number or a 0-d tensor, not of shape {list(value.meta.shape)}"
            )
        value = apart(on_device(value, self.meta.device), self)
    elif isinstance(value, np.generic):
        value = value.item()
    if self.meta.numel:
        call_into(registry["masked_fill"], (self, on_device(mask, self.meta.device), value), (), (self,), in_place=True)
    return self


def positions(mask: Tensor) -> Tensor:
    """The linear positions of the elements that are not 0: int64, in order.

    The host waits for their number, on which the shape of everything that follows depends.
    """
    mask = views.contiguous(mask.detach())  # type: ignore[attr-defined]
    if not mask.meta.numel:
        return empty(meta(int64, (0,), None, mask.meta.device))
    offsets = call(registry["mask_counts"], (mask,))
    total = int(call(registry["select"], (offsets,), (0, -1)).item())  # type: ignore[attr-defined]
    return call(registry["mask_positions"], (mask, offsets), (total,))  # type: ignore[no-any-return]
