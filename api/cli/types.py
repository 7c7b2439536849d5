"""Types that several commands share, as aliases for annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from ..runtime import dtypes
from ..runtime.dtypes import DType
from ..runtime.tensor import Tensor

__all__ = ["Call", "MakeTensor", "OpFunction", "Shape"]

Shape: TypeAlias = tuple[int, ...]
"""The sizes of a tensor."""

Call: TypeAlias = Callable[[], object]
"""A sample call of an op or a function. Its result is not used."""

OpFunction: TypeAlias = Callable[..., Tensor | tuple[Tensor, ...]]
"""The generated function of an op."""


class MakeTensor(Protocol):
    """`calls.blank` with a device, and perhaps a dtype and `grad`: a function from sizes to a tensor."""

    def __call__(self, *shape: int, dtype: DType = dtypes.float32, grad: bool = False) -> Tensor: ...
