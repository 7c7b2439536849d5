"""Operands of the audited calls: without values for planning, with random values where a GPU runs the call."""

from __future__ import annotations

from dataclasses import dataclass

import weftgrad as wg

from ...runtime.device import Device
from ...runtime.dtypes import DType
from ...runtime.tensor import Tensor

__all__ = ["Operands"]


@dataclass(frozen=True, slots=True)
class Operands:
    """Makes tensors of a case.

    Attributes:
        device: Where they are.
        dtype: Of tensors of values.
        has_values: Fill them. Without, memory stays untouched.
    """

    device: Device
    dtype: DType
    has_values: bool = False

    def tensor(self, *shape: int, grad: bool = False, dtype: DType | None = None) -> Tensor:
        """Return a tensor of standard normal numbers."""
        make = wg.randn if self.has_values else wg.empty
        return make(shape, dtype=dtype or self.dtype, device=self.device, requires_grad=grad)

    def index(self, limit: int, *shape: int) -> Tensor:
        """Return int64 numbers from 0 to `limit` - 1."""
        if self.has_values:
            return wg.randint(0, limit, shape, device=self.device)
        return wg.empty(shape, dtype=wg.int64, device=self.device)

    def mask(self, *shape: int) -> Tensor:
        """Return booleans."""
        if self.has_values:
            return wg.randn(shape, device=self.device) > 0
        return wg.empty(shape, dtype=wg.bool, device=self.device)
