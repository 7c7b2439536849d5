"""Layers that rearrange channels."""

from __future__ import annotations

from ..layer_functions.channel_shuffle import channel_shuffle, pixel_shuffle, pixel_unshuffle
from ..runtime.tensor import Tensor
from .module import Module

__all__ = ["ChannelShuffle", "PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """Rearrange `(*, C * r**2, H, W)` to `(*, C, H * r, W * r)`, r = upscale_factor.

    Source: Shi et al. 2016, arXiv 1609.05158.
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
    """

    def __init__(self, downscale_factor: int):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleave the channels of `groups` groups of `(N, C, *)` (Zhang et al. 2018, ShuffleNet, arXiv 1707.01083)."""

    def __init__(self, groups: int):
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
