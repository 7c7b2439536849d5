"""Rearrange channels: to pixels, back, and among groups. Each function is one copy of a permuted view."""

from __future__ import annotations

from .._generated import ops
from ..runtime import views
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["channel_shuffle", "pixel_shuffle", "pixel_unshuffle"]


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Rearrange `(*, C * r * r, H, W)` to `(*, C, H * r, W * r)`, with r = `upscale_factor`.

    Each group of r * r channels becomes a square of r by r pixels (Shi et al. 2016).

    Args:
        input: Tensor of shape `(*, C * r**2, H, W)`.
        upscale_factor: The factor r.

    Returns:
        Tensor of shape `(*, C, H * r, W * r)`.

    Raises:
        ShapeError: `input` has fewer than three dimensions, or r * r does not divide the number of channels.

    Example:
        >>> wg.nn.functional.pixel_shuffle(wg.ones(1, 4, 3, 3), 2).shape
        weftgrad.Size([1, 1, 6, 6])
    """
    only_tensors("pixel_shuffle", input)
    r = upscale_factor
    if input.meta.ndim < 3:
        raise ShapeError(f"pixel_shuffle: takes (*, C, H, W), not shape {list(input.meta.shape)}")
    *batch_shape, channels, height, width = input.meta.shape
    if r < 1 or channels % (r * r):
        raise ShapeError(f"pixel_shuffle: {channels} channels are no multiple of upscale_factor squared, {r * r}")
    n = len(batch_shape)
    grouped = views.reshape(input, (*batch_shape, channels // (r * r), r, r, height, width))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return _merged(ops.permute(grouped, order), (*batch_shape, channels // (r * r), height * r, width * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Rearrange `(*, C, H * r, W * r)` to `(*, C * r * r, H, W)`, with r = `downscale_factor`.

    This is the inverse of `pixel_shuffle`.

    Args:
        input: Tensor of shape `(*, C, H * r, W * r)`.
        downscale_factor: The factor r.

    Returns:
        Tensor of shape `(*, C * r**2, H, W)`.

    Raises:
        ShapeError: `input` has fewer than three dimensions, or r does not divide the spatial sizes.

    Example:
        >>> wg.nn.functional.pixel_unshuffle(wg.ones(1, 1, 6, 6), 2).shape
        weftgrad.Size([1, 4, 3, 3])
    """
    only_tensors("pixel_unshuffle", input)
    r = downscale_factor
    if input.meta.ndim < 3:
        raise ShapeError(f"pixel_unshuffle: takes (*, C, H, W), not shape {list(input.meta.shape)}")
    *batch_shape, channels, height, width = input.meta.shape
    if r < 1 or height % r or width % r:
        raise ShapeError(f"pixel_unshuffle: {height} by {width} pixels are no multiple of downscale_factor={r}")
    n = len(batch_shape)
    grouped = views.reshape(input, (*batch_shape, channels, height // r, r, width // r, r))
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return _merged(ops.permute(grouped, order), (*batch_shape, channels * r * r, height // r, width // r))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave the channels of `groups` equal groups, for `(N, C, *)` (ShuffleNet, Zhang et al. 2017).

    Args:
        input: Tensor of shape `(N, C, *)`.
        groups: Number of groups; it divides C.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: `input` has fewer than three dimensions, or `groups` does not divide the number of channels.

    Example:
        >>> wg.nn.functional.channel_shuffle(wg.arange(4).reshape(1, 4, 1), 2).flatten()
        tensor([0, 2, 1, 3])
    """
    only_tensors("channel_shuffle", input)
    if input.meta.ndim < 3:
        raise ShapeError(f"channel_shuffle: takes (N, C, *), not shape {list(input.meta.shape)}")
    batch, channels, *spatial_shape = input.meta.shape
    if groups < 1 or channels % groups:
        raise ShapeError(f"channel_shuffle: {channels} channels are no multiple of groups={groups}")
    grouped = views.reshape(input, (batch, groups, channels // groups, *spatial_shape))
    return _merged(ops.transpose(grouped, 1, 2), input.meta.shape)


def _merged(view: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a contiguous copy of a view, reshaped."""
    return views.reshape(ops.contiguous_copy(view), tuple(shape))
