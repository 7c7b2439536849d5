"""Layers that interpolate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..runtime.tensor import Tensor
from . import functional as F
from .module import Module

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """Signals, images or volumes (N, C, spatial...) in another size: see `nn.functional.interpolate`."""

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ):
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        several = isinstance(scale_factor, (tuple, list))
        factors: Any = tuple(float(f) for f in scale_factor) if several else scale_factor  # type: ignore[union-attr]
        self.scale_factor = factors if several or not scale_factor else float(factors)
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        given = "size" if self.scale_factor is None else "scale_factor"
        return f"{given}={getattr(self, given)!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Images (N, C, H, W) in another size, by the nearest element."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Images (N, C, H, W) in another size, by lines between corners that stay in place."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
