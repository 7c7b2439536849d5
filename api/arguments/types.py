"""Types of arguments that many functions accept, as aliases for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Literal, Protocol, SupportsIndex, TypeAlias, TypedDict

import numpy as np

from ..runtime.device import DeviceLike
from ..runtime.dtypes import Array, DTypeLike
from ..runtime.tensor import Tensor

__all__ = [
    "Dims", "FloatOrFloats", "Index", "IntOrInts", "Layout", "MemoryFormat", "NestedSequence", "NewTensorOptions",
    "Number", "Operand", "Sizes", "TensorOptions",
]  # fmt: skip

Number: TypeAlias = bool | int | float | np.generic
"""A number of Python or NumPy."""

Operand: TypeAlias = Tensor | bool | int | float | np.generic
"""A tensor or a number: what pointwise functions accept."""

Dims: TypeAlias = int | Sequence[int] | None
"""One dimension, several, or all of them (None)."""

Sizes: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
"""An argument of functions that accept sizes as `(2, 3)` and as `2, 3`."""

IntOrInts: TypeAlias = int | Sequence[int]
"""One integer for all dimensions, or one for each."""

FloatOrFloats: TypeAlias = float | Sequence[float]
"""One number for all dimensions, or one for each."""


class NestedSequence(Protocol):
    """A list, a tuple or a range, whose elements may be sequences again.

    `str` does not match, because its `__contains__` takes only strings.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, position: SupportsIndex, /) -> object: ...
    def __contains__(self, value: object, /) -> bool: ...


Index: TypeAlias = SupportsIndex | slice | EllipsisType | Tensor | Array | np.bool_ | NestedSequence | None
"""What may stand between the brackets of `x[...]`."""

Layout: TypeAlias = Literal["strided"]
"""The layout of every tensor, `weftgrad.strided`."""

MemoryFormat: TypeAlias = Literal["contiguous_format", "preserve_format", "channels_last", "channels_last_3d"]
"""The memory formats of PyTorch, such as `weftgrad.channels_last`."""


class TensorOptions(TypedDict):
    """Device and dtype of new tensors, which layers pass on to the layers that they contain."""

    device: DeviceLike | None
    dtype: DTypeLike | None


class NewTensorOptions(TypedDict, total=False):
    """Keyword arguments of `Tensor.new_zeros` and its siblings."""

    dtype: DTypeLike | None
    device: DeviceLike | None
    layout: Layout | None
    requires_grad: bool
    pin_memory: bool
