"""Conversion of the weights of convolutions to another order in memory."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from ...arguments.types import MemoryFormat
from ...autograd import no_grad
from ..convolutions import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from ..module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

_Module = TypeVar("_Module", bound=Module)
_Convolution: TypeAlias = Conv2d | ConvTranspose2d | Conv3d | ConvTranspose3d


def convert_conv2d_weight_memory_format(module: _Module, memory_format: MemoryFormat) -> _Module:
    """Store the weights of all two-dimensional convolutions in a format; the parameters remain the same objects.

    Args:
        module: The module, which may contain others.
        memory_format: `channels_last` or `contiguous_format`.

    Returns:
        `module`.

    Raises:
        ShapeError: The format is not for four dimensions.

    Example:
        >>> layer = wg.nn.Conv2d(2, 3, 3)
        >>> wg.nn.utils.convert_conv2d_weight_memory_format(layer, wg.channels_last).weight.stride()
        (18, 1, 6, 2)
    """
    return _convert(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: _Module, memory_format: MemoryFormat) -> _Module:
    """Store the weights of all three-dimensional convolutions in a format; the parameters remain the same objects.

    Args:
        module: The module, which may contain others.
        memory_format: `channels_last_3d` or `contiguous_format`.

    Returns:
        `module`.

    Raises:
        ShapeError: The format is not for five dimensions.

    Example:
        >>> layer = wg.nn.Conv3d(2, 3, 1)
        >>> wg.nn.utils.convert_conv3d_weight_memory_format(layer, wg.channels_last_3d).weight.stride()
        (2, 1, 2, 2, 2)
    """
    return _convert(module, memory_format, (Conv3d, ConvTranspose3d))


def _convert(module: _Module, memory_format: MemoryFormat, layers: tuple[type[_Convolution], ...]) -> _Module:
    for part in module.modules():
        if isinstance(part, layers):
            with no_grad():
                part.weight.data = part.weight.data.clone(memory_format=memory_format)
    return module
