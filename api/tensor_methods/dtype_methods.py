"""Tensor's methods that convert to one dtype: `float()`, `long()` and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arguments.descriptions import describe
from ..runtime import dtypes
from ..runtime.tensor import Tensor

__all__ = ["DTypeMethods"]

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object

_describe = describe({}, returns="This tensor if it has the dtype already, else a converted copy.")


class DTypeMethods(TensorBase):
    """Methods that `methods.install` copies to `Tensor`, so `self` is a Tensor."""

    @_describe
    def float(self) -> Tensor:
        """Convert to float32.

        Example:
            >>> wg.tensor([0.0, 2.5]).float()
            tensor([0.0000, 2.5000])
        """
        return self.to(dtype=dtypes.float32)

    @_describe
    def double(self) -> Tensor:
        """Convert to float64.

        Example:
            >>> wg.tensor([0.0, 2.5]).double()
            tensor([0.0000, 2.5000], dtype=weftgrad.float64)
        """
        return self.to(dtype=dtypes.float64)

    @_describe
    def half(self) -> Tensor:
        """Convert to float16.

        Example:
            >>> wg.tensor([0.0, 2.5]).half()
            tensor([0.0000, 2.5000], dtype=weftgrad.float16)
        """
        return self.to(dtype=dtypes.float16)

    @_describe
    def bfloat16(self) -> Tensor:
        """Convert to bfloat16.

        Example:
            >>> wg.tensor([0.0, 2.5]).bfloat16()
            tensor([0.0000, 2.5000], dtype=weftgrad.bfloat16)
        """
        return self.to(dtype=dtypes.bfloat16)

    @_describe
    def long(self) -> Tensor:
        """Convert to int64.

        Example:
            >>> wg.tensor([0.0, 2.5]).long()
            tensor([0, 2])
        """
        return self.to(dtype=dtypes.int64)

    @_describe
    def int(self) -> Tensor:
        """Convert to int32.

        Example:
            >>> wg.tensor([0.0, 2.5]).int()
            tensor([0, 2], dtype=weftgrad.int32)
        """
        return self.to(dtype=dtypes.int32)

    @_describe
    def short(self) -> Tensor:
        """Convert to int16.

        Example:
            >>> wg.tensor([0.0, 2.5]).short()
            tensor([0, 2], dtype=weftgrad.int16)
        """
        return self.to(dtype=dtypes.int16)

    @_describe
    def char(self) -> Tensor:
        """Convert to int8.

        Example:
            >>> wg.tensor([0.0, 2.5]).char()
            tensor([0, 2], dtype=weftgrad.int8)
        """
        return self.to(dtype=dtypes.int8)

    @_describe
    def byte(self) -> Tensor:
        """Convert to uint8.

        Example:
            >>> wg.tensor([0.0, 2.5]).byte()
            tensor([0, 2], dtype=weftgrad.uint8)
        """
        return self.to(dtype=dtypes.uint8)

    @_describe
    def bool(self) -> Tensor:
        """Convert to bool.

        Example:
            >>> wg.tensor([0.0, 2.5]).bool()
            tensor([False,  True])
        """
        return self.to(dtype=dtypes.bool_)
