"""Layers that rearrange channels."""

from __future__ import annotations

from ..layer_functions.channel_shuffle import channel_shuffle, pixel_shuffle, pixel_unshuffle
from ..runtime.tensor import Tensor
from .module import Module

__all__ = ["ChannelShuffle", "PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """Rearrange `(*, C * r**2, H, W)` to `(*, C, H * r, W * r)`, r = upscale_factor.

    Source: Shi et al. 2016, arXiv 1609.05158.

    Args:
        upscale_factor: The factor r.

    Example:
        >>> wg.nn.PixelShuffle(2)(wg.ones(1, 4, 3, 3)).shape
        weftgrad.Size([1, 1, 6, 6])
    """

    def __init__(self, upscale_factor: int):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Rearrange `(*, C, H * r, W * r)` to `(*, C * r**2, H, W)`, r = downscale_factor.

    This is the inverse of `PixelShuffle`.

    Args:
        downscale_factor: The factor r.

    Example:
        >>> wg.nn.PixelUnshuffle(2)(wg.ones(1, 1, 6, 6)).shape
        weftgrad.Size([1, 4, 3, 3])
    """

    def __init__(self, downscale_factor: int):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleave the channels of `groups` groups of `(N, C, *)` (Zhang et al. 2018, ShuffleNet, arXiv 1707.01083).

    Args:
        groups: Number of groups; it divides the number of channels.

    Example:
        >>> wg.nn.ChannelShuffle(2)(wg.arange(4).reshape(1, 4, 1)).flatten()
        tensor([0, 2, 1, 3])
    """

    def __init__(self, groups: int):
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
