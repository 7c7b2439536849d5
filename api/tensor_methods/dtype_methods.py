"""Tensor's methods that convert to one dtype: `float()`, `long()` and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arguments.descriptions import describe
from ..arguments.types import MemoryFormat
from ..runtime import dtypes
from ..runtime.tensor import Tensor

__all__ = ["DTypeMethods"]

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object

_describe = describe(
    {"memory_format": "Order of dimensions in memory; None: the order of this tensor."},
    returns="This tensor if it has the dtype already, else a converted copy.",
)


class DTypeMethods(TensorBase):
    """Methods that `methods.install` copies to `Tensor`, so `self` is a Tensor."""

    @_describe
    def float(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Convert to float32.

        Example:
            >>> wg.tensor([0.0, 2.5]).float()
            tensor([0.0000, 2.5000])
        """
        return self.to(dtype=dtypes.float32, memory_format=memory_format)

    @_describe
    def double(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Convert to float64.

        Example:
            >>> wg.tensor([0.0, 2.5]).double()
            tensor([0.0000, 2.5000], dtype=weftgrad.float64)
        """
        return self.to(dtype=dtypes.float64, memory_format=memory_format)

    @_describe
    def half(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Convert to float16.

        Example:
            >>> wg.tensor([0.0, 2.5]).half()
            tensor([0.0000, 2.5000], dtype=weftgrad.float16)
        """
        return self.to(dtype=dtypes.float16, memory_format=memory_format)

    @_describe
    def bfloat16(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Convert to bfloat16.

        Example:
            >>> wg.tensor([0.0, 2.5]).bfloat16()
            tensor([0.0000, 2.5000], dtype=weftgrad.bfloat16)
        """
        return self.to(dtype=dtypes.bfloat16, memory_format=memory_format)

    @_describe
    def long(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Convert to int64.

        Example:
            >>> wg.tensor([0.0, 2.5]).long()
            tensor([0, 2])
        """
        return self.to(dtype=dtypes.int64, memory_format=memory_format)

    @_describe
    def int(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Convert to int32.

        Example:
            >>> wg.tensor([0.0, 2.5]).int()
            tensor([0, 2], dtype=weftgrad.int32)
        """
        return self.to(dtype=dtypes.int32, memory_format=memory_format)

    @_describe
    def short(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Convert to int16.

        Example:
            >>> wg.tensor([0.0, 2.5]).short()
            tensor([0, 2], dtype=weftgrad.int16)
        """
        return self.to(dtype=dtypes.int16, memory_format=memory_format)

    @_describe
    def char(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Convert to int8.

        Example:
            >>> wg.tensor([0.0, 2.5]).char()
            tensor([0, 2], dtype=weftgrad.int8)
        """
        return self.to(dtype=dtypes.int8, memory_format=memory_format)

    @_describe
    def byte(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Convert to uint8.

        Example:
            >>> wg.tensor([0.0, 2.5]).byte()
            tensor([0, 2], dtype=weftgrad.uint8)
        """
        return self.to(dtype=dtypes.uint8, memory_format=memory_format)

    @_describe
    def bool(self, memory_format: MemoryFormat | None = None) -> Tensor:
        """Convert to bool.

        Example:
            >>> wg.tensor([0.0, 2.5]).bool()
            tensor([False,  True])
        """
        return self.to(dtype=dtypes.bool_, memory_format=memory_format)
