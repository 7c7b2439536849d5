"""Layers that pad: with a number, by reflection, with edge elements, or around in a circle.

Each takes the places at either end of the last one, two or three dimensions: one int for all of them, or (left, right,
top, bottom, front, back) as far as there are dimensions. Input (N, C, …) or (C, …); see `functional.pad`.
"""

from __future__ import annotations

from typing import Any

from ..padding import pad
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Module):
    """Pads the last `_dims` dimensions in mode `_mode`."""

    _dims = 1
    _mode = "constant"

    def __init__(self, padding: Any):
        super().__init__()
        found = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * (2 * self._dims)
        if len(found) != 2 * self._dims or any(type(n) is not int for n in found):
            raise ArgumentError(f"{type(self).__name__}: padding must be an int or {2 * self._dims}, not {padding!r}")
        self.padding = found

    def forward(self, input: Tensor) -> Tensor:
        return pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_Pad):
    """`value` at both ends of the last dimension."""

    def __init__(self, padding: Any, value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad2d(ConstantPad1d):
    """`value` around the last two dimensions."""

    _dims = 2


class ConstantPad3d(ConstantPad1d):
    """`value` around the last three dimensions."""

    _dims = 3


class ZeroPad1d(ConstantPad1d):
    """Zeros at both ends of the last dimension."""

    def __init__(self, padding: Any):
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ZeroPad1d):
    """Zeros around the last two dimensions."""

    _dims = 2


class ZeroPad3d(ZeroPad1d):
    """Zeros around the last three dimensions."""

    _dims = 3


class ReflectionPad1d(_Pad):
    """The last dimension mirrored at its ends."""

    _mode = "reflect"


class ReflectionPad2d(ReflectionPad1d):
    """The last two dimensions mirrored at their ends."""

    _dims = 2


class ReflectionPad3d(ReflectionPad1d):
    """The last three dimensions mirrored at their ends."""

    _dims = 3


class ReplicationPad1d(_Pad):
    """The edge elements of the last dimension repeated."""

    _mode = "replicate"


class ReplicationPad2d(ReplicationPad1d):
    """The edge elements of the last two dimensions repeated."""

    _dims = 2


class ReplicationPad3d(ReplicationPad1d):
    """The edge elements of the last three dimensions repeated."""

    _dims = 3


class CircularPad1d(_Pad):
    """The last dimension closed to a ring."""

    _mode = "circular"


class CircularPad2d(CircularPad1d):
    """The last two dimensions closed to rings."""

    _dims = 2


class CircularPad3d(CircularPad1d):
    """The last three dimensions closed to rings."""

    _dims = 3
