"""Padding layers: constant, reflection, replication and circular padding of the last one, two or three dimensions.

`padding` is one int for all sides, or (left, right, top, bottom, front, back) for as many dimensions as are padded. The
input is `(N, C, ...)` or `(C, ...)`; see `functional.pad`.
"""

from __future__ import annotations

from ..arguments.types import IntOrInts
from ..layer_functions.padding import pad
from ..layer_functions.spatial_arguments import repeat_number
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Module):
    """Base class: pads the last `_dims` dimensions in mode `_mode`."""

    _dims = 1
    _mode = "constant"

    def __init__(self, padding: IntOrInts):
        super().__init__()
        amounts = repeat_number(padding, 2 * self._dims)
        if len(amounts) != 2 * self._dims or any(type(n) is not int for n in amounts):
            raise ArgumentError(f"{type(self).__name__}: padding must be an int or {2 * self._dims}, not {padding!r}")
        self.padding = amounts

    def forward(self, input: Tensor) -> Tensor:
        return pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_Pad):
    """Pad both ends of the last dimension with `value`.

    Args:
        padding: Elements at both ends, or `(left, right)`.
        value: The value of padded elements.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ConstantPad1d(1, 0.5)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 12])
    """

    def __init__(self, padding: IntOrInts, value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad2d(ConstantPad1d):
    """Pad the last two dimensions with `value`.

    Args:
        padding: Elements at each of the four ends, or `(left, right, top, bottom)`.
        value: The value of padded elements.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ConstantPad2d(1, 0.5)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 12, 12])
    """

    _dims = 2


class ConstantPad3d(ConstantPad1d):
    """Pad the last three dimensions with `value`.

    Args:
        padding: Elements at each of the six ends, or `(left, right, top, bottom, front, back)`.
        value: The value of padded elements.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ConstantPad3d(1, 0.5)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 12, 12, 12])
    """

    _dims = 3


class ZeroPad1d(ConstantPad1d):
    """Pad both ends of the last dimension with zeros.

    Args:
        padding: Elements at both ends, or `(left, right)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ZeroPad1d(1)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 12])
    """

    def __init__(self, padding: IntOrInts):
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ZeroPad1d):
    """Pad the last two dimensions with zeros.

    Args:
        padding: Elements at each of the four ends, or `(left, right, top, bottom)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ZeroPad2d(1)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 12, 12])
    """

    _dims = 2


class ZeroPad3d(ZeroPad1d):
    """Pad the last three dimensions with zeros.

    Args:
        padding: Elements at each of the six ends, or `(left, right, top, bottom, front, back)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ZeroPad3d(1)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 12, 12, 12])
    """

    _dims = 3


class ReflectionPad1d(_Pad):
    """Pad the last dimension by reflection at its ends.

    Args:
        padding: Elements at both ends, or `(left, right)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ReflectionPad1d(1)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 12])
    """

    _mode = "reflect"


class ReflectionPad2d(ReflectionPad1d):
    """Pad the last two dimensions by reflection at their ends.

    Args:
        padding: Elements at each of the four ends, or `(left, right, top, bottom)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ReflectionPad2d(1)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 12, 12])
    """

    _dims = 2


class ReflectionPad3d(ReflectionPad1d):
    """Pad the last three dimensions by reflection at their ends.

    Args:
        padding: Elements at each of the six ends, or `(left, right, top, bottom, front, back)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ReflectionPad3d(1)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 12, 12, 12])
    """

    _dims = 3


class ReplicationPad1d(_Pad):
    """Pad the last dimension by repeating its edge elements.

    Args:
        padding: Elements at both ends, or `(left, right)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ReplicationPad1d(1)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 12])
    """

    _mode = "replicate"


class ReplicationPad2d(ReplicationPad1d):
    """Pad the last two dimensions by repeating their edge elements.

    Args:
        padding: Elements at each of the four ends, or `(left, right, top, bottom)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ReplicationPad2d(1)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 12, 12])
    """

    _dims = 2


class ReplicationPad3d(ReplicationPad1d):
    """Pad the last three dimensions by repeating their edge elements.

    Args:
        padding: Elements at each of the six ends, or `(left, right, top, bottom, front, back)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.ReplicationPad3d(1)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 12, 12, 12])
    """

    _dims = 3


class CircularPad1d(_Pad):
    """Pad the last dimension periodically.

    Args:
        padding: Elements at both ends, or `(left, right)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.CircularPad1d(1)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 12])
    """

    _mode = "circular"


class CircularPad2d(CircularPad1d):
    """Pad the last two dimensions periodically.

    Args:
        padding: Elements at each of the four ends, or `(left, right, top, bottom)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.CircularPad2d(1)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 12, 12])
    """

    _dims = 2


class CircularPad3d(CircularPad1d):
    """Pad the last three dimensions periodically.

    Args:
        padding: Elements at each of the six ends, or `(left, right, top, bottom, front, back)`.

    Raises:
        ArgumentError: If `padding` is neither an int nor as many ints as ends.

    Example:
        >>> wg.nn.CircularPad3d(1)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 12, 12, 12])
    """

    _dims = 3
