"""Channels rearranged: into pixels, back, and among groups. Each is one copy of a view."""

from __future__ import annotations

from ._checks import only_tensors
from ._generated import ops
from .runtime import views
from .runtime.errors import ShapeError
from .runtime.tensor import Tensor

__all__ = ["channel_shuffle", "pixel_shuffle", "pixel_unshuffle"]


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C r r, H, W) to (*, C, H r, W r), r = upscale_factor: each group of r r channels becomes a square of pixels
    (Shi et al. 2016).

    Raises `ShapeError` for fewer than three dimensions, or channels that are no multiple of r r.
    """
    only_tensors("pixel_shuffle", input)
    r = upscale_factor
    if input.meta.ndim < 3:
        raise ShapeError(f"pixel_shuffle: takes (*, C, H, W), not shape {list(input.meta.shape)}")
    *lead, channels, height, width = input.meta.shape
    if r < 1 or channels % (r * r):
        raise ShapeError(f"pixel_shuffle: {channels} channels are no multiple of upscale_factor squared, {r * r}")
    n = len(lead)
    apart = views.reshape(input, (*lead, channels // (r * r), r, r, height, width))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return _merged(ops.permute(apart, order), (*lead, channels // (r * r), height * r, width * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H r, W r) to (*, C r r, H, W), r = downscale_factor: what `pixel_shuffle` did, undone.

    Raises `ShapeError` for fewer than three dimensions, or sizes that are no multiples of r.
    """
    only_tensors("pixel_unshuffle", input)
    r = downscale_factor
    if input.meta.ndim < 3:
        raise ShapeError(f"pixel_unshuffle: takes (*, C, H, W), not shape {list(input.meta.shape)}")
    *lead, channels, height, width = input.meta.shape
    if r < 1 or height % r or width % r:
        raise ShapeError(f"pixel_unshuffle: {height} by {width} pixels are no multiple of downscale_factor={r}")
    n = len(lead)
    apart = views.reshape(input, (*lead, channels, height // r, r, width // r, r))
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return _merged(ops.permute(apart, order), (*lead, channels * r * r, height // r, width // r))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """(N, C, *) with channels taken in turn from each of `groups` equal groups of them (Zhang et al. 2017).

    Raises `ShapeError` for fewer than three dimensions, or channels that are no multiple of groups.
    """
    only_tensors("channel_shuffle", input)
    if input.meta.ndim < 3:
        raise ShapeError(f"channel_shuffle: takes (N, C, *), not shape {list(input.meta.shape)}")
    batch, channels, *rest = input.meta.shape
    if groups < 1 or channels % groups:
        raise ShapeError(f"channel_shuffle: {channels} channels are no multiple of groups={groups}")
    apart = views.reshape(input, (batch, groups, channels // groups, *rest))
    return _merged(ops.transpose(apart, 1, 2), input.meta.shape)


def _merged(view: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A contiguous copy in another shape."""
    return views.reshape(ops.contiguous_copy(view), tuple(shape))
