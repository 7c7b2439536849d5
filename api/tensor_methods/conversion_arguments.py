"""Read the arguments of `Tensor.to` and `Module.to`, which may come in any order."""

from __future__ import annotations

import numpy as np

from ..runtime import dtypes
from ..runtime.device import Device, DeviceLike
from ..runtime.device import device as to_device
from ..runtime.dtypes import DType, DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor

__all__ = ["parse_conversion"]


def parse_conversion(
    where: str, args: tuple[object, ...], device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    copy: bool | None = None,
) -> tuple[Device | None, DType | None, bool]:  # fmt: skip
    """Return the device, the dtype and `copy` from the arguments of `to`; None stands for "as it is".

    Args:
        where: Name of the method, for messages.
        args: A device, a dtype, or a tensor that has both; then the bools `non_blocking` and `copy`. A text is a
            device, and after a device a dtype.
        device: The argument of this name.
        dtype: The argument of this name.
        copy: The argument of this name; None if it is missing.

    Raises:
        ArgumentError: An argument is none of these, or a device, a dtype or `copy` is passed twice.
    """
    parsed_device = None if device is None else to_device(device)
    parsed_dtype = None if dtype is None else dtypes.parse(dtype)
    flags: list[bool] = []
    for arg in args:
        if isinstance(arg, bool):
            flags.append(arg)
            continue
        if arg is None and not flags:
            continue
        is_dtype_name = isinstance(arg, str) and parsed_device is not None and parsed_dtype is None
        new_device, new_dtype = (None, dtypes.parse(arg)) if is_dtype_name else _device_and_dtype(where, arg)
        if flags:
            raise ArgumentError(f"{where}: {arg!r} comes after non_blocking, where only the bool copy may stand")
        if (new_device and parsed_device) or (new_dtype and parsed_dtype):
            raise ArgumentError(f"{where}: {arg!r} is a second device or dtype; pass one of each")
        parsed_device, parsed_dtype = new_device or parsed_device, new_dtype or parsed_dtype
    if len(flags) > 2 or (len(flags) == 2 and copy is not None):
        raise ArgumentError(f"{where}: too many bools; the first is non_blocking, the second is copy")
    return parsed_device, parsed_dtype, flags[1] if len(flags) == 2 else bool(copy)


def _device_and_dtype(where: str, arg: object) -> tuple[Device | None, DType | None]:
    if isinstance(arg, Tensor):
        return arg.meta.device, arg.meta.dtype
    if isinstance(arg, (DType, np.dtype, type)):
        return None, dtypes.parse(arg)
    if isinstance(arg, (Device, str, int)):
        return to_device(arg), None
    raise ArgumentError(
        f"{where}: takes a device, a dtype or a tensor, then non_blocking and copy, not {arg!r}; "
        "write for example to('cpu', torch.float64)"
    )
