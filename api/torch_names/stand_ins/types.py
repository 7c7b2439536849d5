"""`torch.types`: names for annotations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from ...runtime import device as _devices
from ...runtime.dtypes import DType
from ...runtime.tensor import Tensor
from ...tensor_methods.size import Size

__all__ = ["Device", "FileLike", "IntLikeType", "Number", "Storage", "Tensor"]

_device: TypeAlias = _devices.Device
_dtype: TypeAlias = DType
Number: TypeAlias = int | float | bool
_int, _float, _bool = int, float, bool
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_symsize = _size
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
Device: TypeAlias = _device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | Any  # Any: an open file, as PyTorch's IO[bytes]
IntLikeType, FloatLikeType, BoolLikeType = int, float, bool  # PyTorch's may be symbolic as well
PySymType: TypeAlias = int | float | bool
Storage = object
_layout = str
