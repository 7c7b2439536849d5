"""Padded planes: how the CPU kernels of convolutions hold an image, one plane for each channel.

`Axis` is the layout of one dimension, `Planes` that of a whole image. `pad_to_planes` adds the launch that copies an
operand to planes. templates/opencl/convolution.cl.j2 explains planes, phases and classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from .convolution_builder import Builder, Triple

__all__ = [
    "IS_ROW_AXIS", "Axis", "Planes", "gradient_axis", "has_contiguous_strides", "image_axis", "pad_to_planes",
    "phase_axes", "row_major_strides", "spatial_size", "strided_axes", "unpadded_planes",
]  # fmt: skip

IS_ROW_AXIS = (False, False, True)  # of depth, height and width


@dataclass(frozen=True, slots=True)
class Axis:
    """How the planes hold one dimension of an image.

    Position q of phase f holds element `q * step + f * dilation % step - pad` of the image. Tap k reads phase
    `k % period`, at `k * dilation // step` positions after the output's.

    Attributes:
        phases: Number of phases.
        step: Elements of the image from one position to the next.
        dilation: Elements of the image from one tap to the next.
        pad: Zeros in front.
        extent: Stored positions of a phase.
        period: Number of taps after which phases repeat.
        full: Positions of a phase including those that neighbouring rows share.
        max_reads: For a gradient, the maximal number of positions that one output of any class reads.
    """

    phases: int
    step: int
    dilation: int
    pad: int
    extent: int
    period: int
    full: int = 0
    max_reads: int = 0


def image_axis(size: int, out: int, taps: int, stride: int, pad: int, dilation: int, is_row_axis: bool) -> Axis:
    """Return the layout of an image dimension whose outputs read `taps` elements at a distance of `dilation`.

    is_row_axis: along rows, the zeros after one row are those in front of the next.
    """
    period = stride // gcd(stride, dilation)
    phases, extent, shared = min(period, taps), 0, size + pad + out * stride + taps * dilation
    for phase in range(phases):
        begin = phase * dilation % stride - pad
        last = phase + (taps - 1 - phase) // period * period  # the last tap of this phase
        end = out + last * dilation // stride
        low, high = max(0, -(begin // stride)), min(end, max(0, -((begin - size) // stride)))
        extent, shared = max(extent, end), min(shared, low, max(end - high, 0))
    return Axis(phases, stride, dilation, pad, max(out, extent - shared * is_row_axis), period, max(out, extent))


def gradient_axis(
    size: int, out: int, taps: int, stride: int, pad: int, dilation: int, is_row_axis: bool
) -> tuple[Axis, int, int]:
    """Return the layout of a gradient's dimension, the number of classes, and the maximal number of taps of a class.

    The input, `size` long, reads the gradient in classes.
    """
    period = stride // gcd(stride, dilation)
    lowest, highest, firsts, max_taps = [], [], [], 0
    for first in range(min(stride, size)):
        class_taps = [k for k in range(taps) if (first + pad - k * dilation) % stride == 0]
        if class_taps:
            max_taps = max(max_taps, len(class_taps))
            lowest.append((first + pad - class_taps[-1] * dilation) // stride)
            firsts.append((first + pad - class_taps[0] * dilation) // stride)
            highest.append(firsts[-1] + (size - first - 1) // stride)
    pad_front = -min(lowest, default=0)
    end = pad_front + max(highest, default=0) + 1
    count = -(-size // stride)
    shared = max(0, min(pad_front, end - (pad_front + out)))
    max_reads = pad_front + max(firsts, default=0) + 1
    axis = Axis(1, 1, 0, pad_front, max(count, end - shared * is_row_axis), period, max(count, end), max_reads)
    return axis, min(stride, size), max_taps


def strided_axes(builder: Builder) -> tuple[Axis, ...]:
    """Return the layout of an input that is padded, but not separated into phases."""
    s = builder.sizes
    axis_sizes = zip(s.out, s.taps, s.stride, s.padding, s.dilation, strict=True)
    return tuple(Axis(1, 1, d, p, (n - 1) * q + (k - 1) * d + 1, 1) for n, k, q, p, d in axis_sizes)


def phase_axes(builder: Builder) -> tuple[Axis, ...]:
    """Return the layout of an input that is padded and separated into phases."""
    s = builder.sizes
    axis_sizes = zip(s.size, s.out, s.taps, s.stride, s.padding, s.dilation, IS_ROW_AXIS, strict=True)
    return tuple(image_axis(*sizes) for sizes in axis_sizes)


@dataclass(frozen=True, slots=True)
class Planes:
    """Padded copies of an operand, one plane for each channel.

    Strides are in elements, from image to image, from plane to plane, and along depth, height and width: `strides`
    between positions, `phase_strides` between phases.
    """

    buffer: int
    image_stride: int
    plane_stride: int
    strides: Triple
    phase_strides: Triple


def pad_to_planes(
    builder: Builder, operand: int, axes: tuple[Axis, ...], zeros_behind: int = 0, interleaves_channels: bool = False
) -> Planes:
    """Add the launch that copies an operand to padded planes.

    Args:
        builder: Collects the launches.
        operand: Position of the operand.
        axes: Layout of depth, height and width.
        zeros_behind: Zeros after a plane and a row of it. Sums over whole vectors add them up; other kernels compute
            results there, and drop them.
        interleaves_channels: Store the rows of all channels next to each other, for kernels that read one row of every
            channel at a time.
    """
    layout, lanes = builder.layouts[operand], builder.lanes
    depth, rows, columns = (a.extent for a in axes)
    phases = (axes[0].phases, axes[1].phases, axes[2].phases)
    batch, channels = layout.shape[:2]
    if interleaves_channels:
        plane = columns * phases[2]
        row = plane * channels
        strides, phase_strides = (rows * row, row, 1), (depth * rows * row * phases[1], depth * rows * row, columns)
        image, zeros_left = depth * rows * row * phases[0] * phases[1], 0
    else:
        phase_elements = depth * rows * columns
        plane_elements = phase_elements * phases[0] * phases[1] * phases[2]
        plane = -(-(plane_elements + columns + zeros_behind) // lanes) * lanes
        strides, phase_strides = (
            (rows * columns, columns, 1),
            (phase_elements * phases[2] * phases[1], phase_elements * phases[2], phase_elements),
        )
        image, zeros_left = channels * plane, plane - plane_elements
    image_stride, channel_stride, space = builder.strides(operand)
    size = spatial_size(builder, operand)
    buffer = builder.allocate(batch * image + plane + 8 * lanes)
    geometry: list[int] = [channels, *size, image_stride, channel_stride, *space]
    for values in zip(*((a.phases, a.step, a.dilation, a.pad, a.extent) for a in axes), strict=True):
        geometry += values
    is_contiguous, is_every_other = space[2] * axes[2].step == 1, space[2] == 1 and axes[2].step == 2 and lanes > 1
    builder.launch(
        "pad", (operand, buffer), (layout.dtype, builder.element),
        (*geometry, image, plane, *strides[:2], *phase_strides, zeros_left),
        (batch * channels,), batch * image, ROWS=1 if is_contiguous else 2 if is_every_other else 0,
    )  # fmt: skip
    return Planes(buffer, image, plane, strides, phase_strides)


def unpadded_planes(builder: Builder, axes: tuple[Axis, ...]) -> Planes | None:
    """Return the input itself as planes, or None if it needs padding or a conversion."""
    needs_no_padding = all(a.pad == 0 and a.extent <= n for a, n in zip(axes, builder.sizes.size, strict=True))
    if not needs_no_padding or builder.layouts[0].dtype is not builder.element:
        return None
    return Planes(0, *builder.strides(0), (0, 0, 0))


def spatial_size(builder: Builder, operand: int) -> Triple:
    """Return an operand's depth, height and width."""
    depth, height, width = (1,) * (5 - builder.layouts[operand].ndim) + builder.layouts[operand].shape[2:]
    return depth, height, width


def row_major_strides(size: Triple) -> Triple:
    """Return the strides of a contiguous tensor."""
    return size[1] * size[2], size[2], 1


def has_contiguous_strides(size: Triple, strides: tuple[int, ...]) -> bool:
    """Return True if a tensor with these strides is contiguous."""
    return all(n == 1 or a == b for n, a, b in zip(size, strides, row_major_strides(size), strict=True))
