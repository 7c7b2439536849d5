"""Types of arguments that many functions accept, as aliases for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np

from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.tensor import Tensor

__all__ = [
    "Array", "FloatOrFloats", "IntOrInts", "Layout", "MemoryFormat", "Number", "Operand", "TensorOptions",
]  # fmt: skip

Array: TypeAlias = np.ndarray[Any, Any]
"""A NumPy array of any shape and dtype."""

Layout: TypeAlias = Literal["strided"]
"""The layout of every tensor, `weftgrad.strided`."""

MemoryFormat: TypeAlias = Literal["contiguous_format", "preserve_format", "channels_last", "channels_last_3d"]
"""The memory formats of PyTorch, such as `weftgrad.channels_last`."""

Number: TypeAlias = bool | int | float | np.generic
"""A number of Python or NumPy."""

IntOrInts: TypeAlias = int | Sequence[int]
"""One integer for all dimensions, or one for each."""

FloatOrFloats: TypeAlias = float | Sequence[float]
"""One number for all dimensions, or one for each."""

Operand: TypeAlias = Tensor | Number | Array
"""What pointwise functions accept besides a tensor: numbers and arrays."""


class TensorOptions(TypedDict):
    """Device and dtype of new tensors, which layers pass on to the layers that they contain."""

    device: DeviceLike | None
    dtype: DTypeLike | None
