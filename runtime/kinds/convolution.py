"""Plan convolutions and their two gradients.

The gradients are convolutions too: the input's is one of the incoming gradient with the reversed weight, the weight's
one of the input with the incoming gradient. Ops have one, two or three spatial dimensions; the planner always has
three, and gives missing ones size 1.

A convolution with a kernel of one pixel, strides of 1 and no padding is planned as a matrix product (`contraction.py`).
Otherwise `convolution_cpu.py` plans it for CPUs, `triton/convolution.py` for Triton, and on OpenCL GPUs one work-item
computes one element.
"""

from __future__ import annotations

from dataclasses import replace

from .. import dtypes
from ..backends.protocol import Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, ShapeError
from ..records import registry
from . import Planned, Request, convolution_cpu, pointwise
from .convolution_builder import Builder, Sizes, extend_to_triple
from .elementwise import compute_dtype

__all__ = ["LAUNCHES", "plan"]


def plan(request: Request) -> Planned:
    """Plan one convolution or gradient.

    Raises:
        ArgumentError: An argument has a wrong type or value, or an output tensor was given.
        DTypeError: The operands' dtypes differ.
        ShapeError: The operands' shapes do not fit together.
    """
    compute_type = compute_dtype(request)
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: has no form that writes into a given tensor")
    sizes, shape = _bind_sizes(request)
    result = meta(compute_type, shape, None, request.device)
    if not result.numel:
        return Planned((result,))
    if not all(m.numel for _, m in request.tensors):  # the weight gradient of an empty batch
        return Planned((result,), _zero_steps(request, result))
    is_half = compute_type.is_floating_point and compute_type.itemsize == 2
    builder = Builder(request, sizes, dtypes.float32 if is_half else compute_type, result)
    LAUNCHES[builder.caps.style](builder)
    return Planned((result,), tuple(builder.steps), tuple(builder.scratch))


def _launch_cpu(builder: Builder) -> None:
    if _is_product(builder):
        builder.add_matrix_product()
    else:
        convolution_cpu.launch(builder)


def _launch_gpu(builder: Builder) -> None:
    if _is_product(builder):
        builder.add_matrix_product()
    else:
        builder.add_grid()


def _launch_triton(builder: Builder) -> None:
    from .triton.convolution import launch  # lazy: Triton devices only

    # A product has one pass over the images; that of parts of a weight gradient would need a kernel for their sum.
    if builder.sizes.is_matrix_product and builder.kind != "weight" and builder.bias is None:
        builder.add_matrix_product()
    else:
        launch(builder)


LAUNCHES = ByStyle("convolutions", cpu=_launch_cpu, gpu=_launch_gpu, triton=_launch_triton)


def _is_product(builder: Builder) -> bool:
    """Return True if the convolution is a matrix product, and a bias needs no conversion of the result."""
    return builder.sizes.is_matrix_product and (builder.bias is None or builder.result.dtype is builder.element)


def _zero_steps(request: Request, result: Meta) -> tuple[Step, ...]:
    """Return the launch that fills the result with zeros. Empty operands have no memory to pass to a kernel."""
    fill = Request(registry["zero_like"], (result,), (), request.device, (result,))
    result_position = len(request.tensors)
    return tuple(replace(s, buffers=(result_position, result_position)) for s in pointwise.plan(fill).steps)


def _int_tuple(request: Request, name: str, count: int, minimum: int) -> tuple[int, ...]:
    value = request.static(name)
    if not isinstance(value, tuple) or len(value) != count or any(not isinstance(n, int) or n < minimum for n in value):
        phrase = {1: "an integer", 2: "two integers", 3: "three integers"}[count]
        raise ArgumentError(f"{request.where()}: {name} must be {phrase} of at least {minimum}, not {value!r}")
    return value


def _padding(request: Request, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the zeros in front and behind for each dimension.

    `padding` has one number for each dimension, or all numbers in front and then all behind. A negative number behind
    leaves out rows that no window reaches.
    """
    value = request.static("padding")
    if isinstance(value, tuple) and len(value) == 2 * count and all(isinstance(n, int) for n in value):
        if min(value[:count]) < 0:
            raise ArgumentError(f"{request.where()}: padding in front must be at least 0, not {value[:count]!r}")
        return value[:count], value[count:]
    padding = _int_tuple(request, "padding", count, 0)
    return padding, padding


def _bind_sizes(request: Request) -> tuple[Sizes, tuple[int, ...]]:
    """Return the sizes of the convolution and the shape of the result. Raises `ShapeError`, `ArgumentError`."""
    where, name = request.where(), request.record.name
    first, second = request.tensors[0][1], request.tensors[1][1]
    if any(layout.dtype is not first.dtype for _, layout in request.tensors):
        raise DTypeError(f"{where}: operands must have one dtype; convert them with .to(dtype)")
    if first.ndim != second.ndim or first.ndim not in (3, 4, 5):
        raise ShapeError(f"{where}: both operands need the same 3, 4 or 5 dimensions")
    space = first.ndim - 2
    stride, dilation = _int_tuple(request, "stride", space, 1), _int_tuple(request, "dilation", space, 1)
    (padding, padding_behind), groups = _padding(request, space), request.static("groups")
    if not isinstance(groups, int) or groups < 1:
        raise ArgumentError(f"{where}: groups must be a positive integer, not {groups!r}")
    if name == "convolution":
        outs, ins, *taps = second.shape
        batch, channels, *size = first.shape
        if channels == ins * groups and outs % groups == 0 and 0 not in taps:
            _check_kernel_fits(where, size, taps, padding, padding_behind, dilation)
        out = [
            (n + p + q - d * (k - 1) - 1) // s + 1
            for n, p, q, d, k, s in zip(size, padding, padding_behind, dilation, taps, stride, strict=True)
        ]
        for operand, layout in request.tensors[2:]:
            if layout.shape != (outs,):
                raise ShapeError(f"{where}: {operand.name} must have shape [{outs}]")
        shape: tuple[int, ...] = (batch, outs, *out)
    elif name == "convolution_input":
        outs, ins, *taps = second.shape
        batch, grad_channels, *out = first.shape
        size = list(_int_tuple(request, "size", space, 0))
        channels, shape = ins * groups, (batch, ins * groups, *size)
        if grad_channels != outs:
            raise ShapeError(f"{where}: the weight is for {outs} output channels, the gradient has {grad_channels}")
    else:
        batch, channels, *size = first.shape
        grad_batch, outs, *out = second.shape
        taps = list(_int_tuple(request, "size", space, 1))
        ins, shape = channels // groups, (outs, channels // groups, *taps)
        if grad_batch != batch:
            raise ShapeError(f"{where}: the batches differ: {batch} and {grad_batch}")
    if channels != ins * groups or outs % groups:
        raise ShapeError(
            f"{where}: {channels} input channels in {groups} groups do not fit a weight of {ins} inputs "
            f"and {outs} outputs"
        )
    if 0 in taps:
        raise ShapeError(f"{where}: sizes of the kernel must not be 0")
    size3, taps3, out3, stride3 = (extend_to_triple(v, 1) for v in (size, taps, out, stride))
    padding3, dilation3 = extend_to_triple(padding, 0), extend_to_triple(dilation, 1)
    sizes = Sizes(batch, groups, ins, outs // groups, size3, taps3, out3, stride3, padding3, dilation3)
    return sizes, shape


def _check_kernel_fits(
    where: str, size: list[int], taps: list[int], padding_front: tuple[int, ...], padding_behind: tuple[int, ...],
    dilation: tuple[int, ...],
) -> None:  # fmt: skip
    """Raise `ShapeError` unless the padded input is as large as the kernel."""
    kernel_extent = [d * (k - 1) + 1 for d, k in zip(dilation, taps, strict=True)]
    padded = [n + p + q for n, p, q in zip(size, padding_front, padding_behind, strict=True)]
    if any(r > n for r, n in zip(kernel_extent, padded, strict=True)):
        raise ShapeError(f"{where}: the kernel reaches {kernel_extent} pixels, the padded input has {padded}")
