"""Operands of the audited calls: without values for planning, with random values where a GPU runs the call."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

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
        library: weftgrad, or a library with PyTorch's names, whose device and dtypes the others then are.
    """

    device: Device
    dtype: DType
    has_values: bool = False
    library: ModuleType = wg

    def tensor(self, *shape: int, grad: bool = False, dtype: DType | None = None) -> Tensor:
        """Return a tensor of standard normal numbers."""
        make = self.library.randn if self.has_values else self.library.empty
        tensor: Tensor = make(shape, dtype=dtype or self.dtype, device=self.device, requires_grad=grad)
        return tensor

    def index(self, limit: int, *shape: int) -> Tensor:
        """Return int64 numbers from 0 to `limit` - 1."""
        index: Tensor = (
            self.library.randint(0, limit, shape, device=self.device) if self.has_values
            else self.library.empty(shape, dtype=self.library.int64, device=self.device)
        )  # fmt: skip
        return index

    def mask(self, *shape: int) -> Tensor:
        """Return booleans."""
        mask: Tensor = (
            self.library.randn(shape, device=self.device) > 0 if self.has_values
            else self.library.empty(shape, dtype=self.library.bool, device=self.device)
        )  # fmt: skip
        return mask
