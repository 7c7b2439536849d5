"""Plan the weight gradients of CPU convolutions.

`weight` multiplies planes of the image with planes of the gradient. If there are enough output channels,
`channels_last` transposes the gradient to vectors of channels instead, and `outer` multiplies planes with these. Both
kernels work on parts of the batch, and `sum` adds the parts.
"""

from __future__ import annotations

from ..layout import split
from . import convolution_tiles as register_tiles
from .convolution_builder import Builder
from .convolution_planes import Axis, has_contiguous_strides, pad_to_planes, phase_axes, strided_axes, unpadded_planes

__all__ = ["add_weight_gradient"]

_SPAN_ELEMENTS = 1024  # elements of a plane that stay in a first-level cache beside those of other channels
_CACHED_PIXELS = 128  # pixels that stay in a first-level cache with four vectors of channels each


def add_weight_gradient(builder: Builder) -> None:
    """Add the launches of the weight gradient."""
    s, caps, lanes = builder.sizes, builder.caps, builder.lanes
    if lanes > 1 and s.outs > lanes // 2:
        return _add_outer(builder)
    axes = phase_axes(builder)
    image = pad_to_planes(builder, 0, axes, lanes)
    # Give the gradient as many rows and columns as the image, with zeros between its rows.
    extents = (s.out[0], axes[1].extent, axes[2].extent)
    grad = pad_to_planes(builder, 1, tuple(Axis(1, 1, 0, 0, extent, 1) for extent in extents), lanes)
    pairs = s.ins * s.tap_count  # of an input channel and a tap: columns of the weight as a matrix
    params = builder.params
    mr, tb = params["weight_tile"] or register_tiles.weight_tile(caps.registers, s.outs, pairs)
    blocks, pieces, total = -(-s.outs // mr), -(-pairs // (tb * params["tiles_per_part"])), builder.result.numel
    chunk, parts = split(s.batch, -(-params["min_items_per_core"] * caps.cores // (pieces * s.groups * blocks)))
    target = builder.target if parts == 1 else builder.allocate(parts * total)
    pixels = ((s.out[0] - 1) * extents[1] + s.out[1]) * extents[2]
    pixels = -(-pixels // lanes) * lanes
    images, span = max(1, _SPAN_ELEMENTS // pixels), min(_SPAN_ELEMENTS, pixels)
    geometry = [
        s.batch, chunk, s.groups, s.outs, s.ins, blocks, image.plane_stride, grad.plane_stride, pixels, images, span,
        total,
    ]  # fmt: skip
    geometry += [*s.taps, *(a.period for a in axes), *s.stride, *s.dilation, *image.strides, *image.phase_strides]
    builder.launch(
        "weight", (image.buffer, grad.buffer, target),
        (builder.element, builder.element, builder.result.dtype if parts == 1 else builder.element), tuple(geometry),
        (pieces, s.groups * blocks, parts), total * s.batch * s.out[0] * s.out[1] * s.out[2] // 8,
        MR=mr, TB=tb, PIECES=params["tiles_per_part"],
    )  # fmt: skip
    if parts > 1:
        builder.add_sum(target, parts)


def _add_outer(builder: Builder) -> None:
    """Add the launches of the weight gradient with vectors of output channels."""
    s, caps, lanes, axes = builder.sizes, builder.caps, builder.lanes, strided_axes(builder)
    image = unpadded_planes(builder, axes) or pad_to_planes(builder, 0, axes)
    pairs, total, pixels = s.ins * s.tap_count, builder.result.numel, s.out[0] * s.out[1] * s.out[2]
    vectors = -(-s.outs // lanes)
    params, shares_five_taps = builder.params, s.taps[2] == 5 and s.dilation[2] == 1
    nv, mr = register_tiles.outer_tile(caps.registers, vectors, shares_five_taps, params["outer_vectors"])
    blocks = -(-vectors // nv)
    # In an image that was not copied, neighbouring pixels may have channels in between.
    is_contiguous = s.dilation[2] == image.strides[2] == 1
    row_taps = s.taps[2] if s.taps[2] in register_tiles.SHARED_TAPS and is_contiguous and mr % s.taps[2] == 0 else 1
    transposed_buffer = builder.allocate(s.batch * s.groups * blocks * nv * lanes * pixels)
    image_stride, channel_stride, space = builder.strides(1)
    has_contiguous_pixels = has_contiguous_strides(s.out, space)
    builder.launch(
        "channels_last", (1, transposed_buffer), (builder.layouts[1].dtype, builder.element),
        (s.groups, s.outs, pixels, int(has_contiguous_pixels), image_stride, channel_stride, *s.out, *space),
        (s.batch * s.groups, blocks),
        s.batch * s.groups * s.outs * pixels * 2, NV=nv,
    )  # fmt: skip
    pieces = -(-pairs // (mr * params["tiles_per_part"]))
    chunk, parts = split(s.batch, -(-params["min_items_per_core"] * caps.cores // (pieces * s.groups * blocks)))
    target = builder.target if parts == 1 else builder.allocate(parts * total)
    images, span = max(1, _CACHED_PIXELS // pixels), max(1, _CACHED_PIXELS // s.out[2])
    pixel_strides = (a * q for a, q in zip(image.strides, s.stride, strict=True))
    tap_strides = (a * d for a, d in zip(image.strides, s.dilation, strict=True))
    geometry = [s.batch, chunk, s.groups, s.outs, s.ins, blocks, image.image_stride, image.plane_stride]
    geometry += [*pixel_strides, *s.out, images, span, total, *s.taps, *tap_strides]
    builder.launch(
        "outer", (image.buffer, transposed_buffer, target),
        (builder.element, builder.element, builder.result.dtype if parts == 1 else builder.element), tuple(geometry),
        (pieces, s.groups * blocks, parts), total * s.batch * pixels // 8, MR=mr, NV=nv, WIDE=row_taps,
        PIECES=params["tiles_per_part"],
    )  # fmt: skip
    if parts > 1:
        builder.add_sum(target, parts)
