"""Interpolation layers."""

from __future__ import annotations

from collections.abc import Sequence

from ..arguments.types import FloatOrFloats, IntOrInts
from ..runtime.tensor import Tensor
from . import functional as F
from .module import Module

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """Resize signals, images or volumes `(N, C, *spatial)`; see `nn.functional.interpolate`.

    Args:
        size: Spatial size of the output.
        scale_factor: Factor of the spatial size, if `size` is None.
        mode: `"nearest"`, `"nearest-exact"`, `"linear"`, `"bilinear"`, `"bicubic"`, `"trilinear"` or `"area"`.
        align_corners: Align the centers of the corner elements of input and output (linear and cubic modes).
        recompute_scale_factor: Interpolate with the ratio of the sizes instead of `scale_factor`.

    Example:
        >>> wg.nn.Upsample(scale_factor=2)(wg.ones(1, 3, 4, 4)).shape
        weftgrad.Size([1, 3, 8, 8])
    """

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
        self.scale_factor: float | tuple[float, ...] | None
        if isinstance(scale_factor, Sequence):
            self.scale_factor = tuple(float(f) for f in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        size_argument = "size" if self.scale_factor is None else "scale_factor"
        return f"{size_argument}={getattr(self, size_argument)!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resize images `(N, C, H, W)` by nearest-neighbor interpolation.

    Args:
        size: Spatial size of the result.
        scale_factor: Factor by which the spatial size grows, if `size` is None.

    Example:
        >>> wg.nn.UpsamplingNearest2d(scale_factor=2)(wg.ones(1, 3, 4, 4)).shape
        weftgrad.Size([1, 3, 8, 8])
    """

    def __init__(self, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None):
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Resize images `(N, C, H, W)` by bilinear interpolation with aligned corners.

    Args:
        size: Spatial size of the result.
        scale_factor: Factor by which the spatial size grows, if `size` is None.

    Example:
        >>> wg.nn.UpsamplingBilinear2d(scale_factor=2)(wg.ones(1, 3, 4, 4)).shape
        weftgrad.Size([1, 3, 8, 8])
    """

    def __init__(self, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None):
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
