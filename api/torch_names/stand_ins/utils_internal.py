"""`torch._utils`: helpers that libraries take from there."""

from __future__ import annotations

from ...runtime.device import Device, DeviceLike, device
from ...runtime.dtypes import DType
from ..placeholders import placeholder

__all__ = ["ExceptionWrapper", "_element_size", "_get_device_index"]

_REMEDY = "Load the file with torch.load."
ExceptionWrapper = placeholder("torch._utils.ExceptionWrapper", "Let the exception pass.")
_rebuild_parameter = placeholder("torch._utils._rebuild_parameter", _REMEDY)
_rebuild_tensor_v2 = placeholder("torch._utils._rebuild_tensor_v2", _REMEDY)
_rebuild_tensor_v3 = placeholder("torch._utils._rebuild_tensor_v3", _REMEDY)


def _element_size(dtype: DType) -> int:
    """Return the bytes of an element."""
    return dtype.itemsize


def _get_device_index(device_like: DeviceLike | int | None, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index of a device; -1 for `cpu`."""
    target = device_like if isinstance(device_like, Device) else device(device_like)
    return -1 if target.index is None else int(target.index)
