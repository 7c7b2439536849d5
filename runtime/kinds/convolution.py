"""Plan convolutions and their two gradients.

The gradients are convolutions too: the input's is one of the incoming gradient with the reversed weight, the weight's
one of the input with the incoming gradient. Ops have one, two or three spatial dimensions; the planner always has
three, and gives missing ones size 1.

A convolution with a kernel of one pixel, strides of 1 and no padding is planned as a matrix product (`contraction.py`).
Otherwise `convolution_cpu.py` plans it for CPUs, `triton/convolution.py` for Triton, and on OpenCL GPUs one work-item
computes one element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import pack_longs, split
from ..records import registry
from ..schedules import Choice, choose
from . import Planned, Request, contraction, pointwise
from .pointwise import compute_dtype, elementwise_parts

__all__ = ["Builder", "Sizes", "Triple", "plan"]

Triple = tuple[int, int, int]
_UNIT: Triple = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one convolution. Triples are along depth, height and width.

    Attributes:
        batch: Number of images.
        groups: Number of groups of channels.
        ins: Input channels of a group.
        outs: Output channels of a group.
        size: Size of the input.
        taps: Size of the kernel.
        out: Size of the output.
        stride: Input pixels from one output to the next.
        padding: Zeros in front of the input. The number of zeros behind it follows from `out`.
        dilation: Input pixels from one tap to the next.
    """

    batch: int
    groups: int
    ins: int
    outs: int
    size: Triple
    taps: Triple
    out: Triple
    stride: Triple
    padding: Triple
    dilation: Triple

    @property
    def tap_count(self) -> int:
        """Return the number of taps of the kernel."""
        return self.taps[0] * self.taps[1] * self.taps[2]

    @property
    def is_matrix_product(self) -> bool:
        """Return whether the convolution is a matrix product of channels."""
        return self.taps == self.stride == _UNIT and self.padding == (0, 0, 0) and self.size == self.out


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
    if builder.caps.style == "triton":
        from .triton.convolution import launch

        launch(builder)
    elif sizes.is_matrix_product and (builder.bias is None or result.dtype is builder.element):
        builder.add_matrix_product()
    elif builder.caps.style == "gpu":
        builder.add_grid()
    else:
        from .convolution_cpu import launch as launch_cpu

        launch_cpu(builder)
    return Planned((result,), tuple(builder.steps), tuple(builder.scratch))


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


def _triple(values: tuple[int, ...] | list[int], fill: int) -> Triple:
    padded = (*(fill,) * (3 - len(values)), *values)
    return padded[0], padded[1], padded[2]


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
    size3, taps3, out3, stride3 = (_triple(v, 1) for v in (size, taps, out, stride))
    sizes = Sizes(
        batch, groups, ins, outs // groups, size3, taps3, out3, stride3, _triple(padding, 0), _triple(dilation, 1)
    )
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


class Builder:
    """The launches of one call, and the scratch buffers that they need."""

    def __init__(self, request: Request, sizes: Sizes, element: DType, result: Meta):
        self.request, self.sizes, self.element, self.result = request, sizes, element, result
        self.caps = request.capabilities
        self.layouts = [m for _, m in request.tensors]
        self.kind = request.record.name.removeprefix("convolution").removeprefix("_") or "forward"
        self.bias = 2 if len(self.layouts) > 2 else None  # position of the operand
        self.lanes = self.caps.lanes // (2 if element.itemsize == 8 else 1) if self.caps.style == "cpu" else 1
        self.steps: list[Step] = []
        self.scratch: list[int] = []

    @cached_property
    def params(self) -> Choice:
        """Return the schedule parameters of the convolution."""
        s = self.sizes
        sizes = {"batch": s.batch, "ins": s.ins, "outs": s.outs, "pixels": prod(s.out), "taps": s.tap_count}
        layout = "".join(map(str, s.stride)) + "+" + "".join(map(str, s.dilation))
        return choose(self.request, "convolution", sizes, self.layouts[0].dtype.name, layout=layout)

    @property
    def target(self) -> int:
        """Return the position of the result's buffer."""
        return len(self.layouts)

    def strides(self, operand: int) -> tuple[int, int, Triple]:
        """Return an operand's strides along its first two dimensions, and along depth, height and width."""
        first, second, *space = self.layouts[operand].strides
        return first, second, _triple(space, 0)

    def allocate(self, count: int, itemsize: int = 0) -> int:
        """Add a scratch buffer of `count` elements, and return its position. itemsize: 0 for the compute type's."""
        self.scratch.append(max(count, 1) * (itemsize or self.element.itemsize))
        return len(self.layouts) + len(self.scratch)

    def launch(
        self, entry: str, buffers: tuple[int, ...], types: tuple[DType, ...], geometry: tuple[int, ...],
        size: tuple[int, ...], work: int, **defines: int,
    ) -> None:  # fmt: skip
        """Add one launch of an OpenCL kernel.

        Args:
            entry: Name of the schedule.
            buffers: Positions of the buffers.
            types: Dtypes of the buffers.
            geometry: Integers of the kernel's `Geometry`.
            size: Work-items along each dimension.
            work: Elements whose copying takes about as long.
            defines: Macros of the kernel.
        """
        element, lanes = self.element.compute, self.lanes
        all_defines = ((f"SCHEDULE_{entry.upper()}", "1"), *((k, str(v)) for k, v in defines.items()))
        if self.caps.style == "cpu":
            all_defines += (("VU", f"{element}{lanes}_u" if lanes > 1 else element),)
            if lanes >= 8 and types[0] is self.element:  # elements are copied without conversion
                all_defines += (("HALF", f"{element}{lanes // 2}_u"), ("QUARTER", f"{element}{lanes // 4}_u"))
        text = self.request.record.texts[self.request.device.driver.target]
        slots = tuple(Slot(t.name, "raw" if t is dtypes.int64 else "value") for t in types)
        # The name is that of the kind, not of the op: the three ops share kernels.
        instance = Instance("convolution", text.source, f"convolution_{entry}", element, lanes, slots, all_defines)
        local = (1,) * len(size)
        if self.caps.style == "gpu":
            local = (min(self.params["group"], self.caps.max_group),)
            size = (-(-size[0] // local[0]) * local[0],)
        self.steps.append(Step(instance, buffers, pack_longs(geometry), size, local, work))

    def add_grid(self) -> None:
        """Add the GPU launch, with one work-item for each element of the result."""
        s = self.sizes
        geometry = [self.result.numel, s.batch, s.groups, s.ins, s.outs]
        for triple in (s.size, s.out, s.taps, s.stride, s.padding, s.dilation):
            geometry += triple
        for operand in (0, 1):
            first, second, space = self.strides(operand)
            geometry += [first, second, *space]
        types = (*(m.dtype for m in self.layouts), self.result.dtype)
        total = self.result.numel
        self.launch(
            f"grid_{self.kind}", tuple(range(len(types))), types, tuple(geometry), (total,), total,
            BIAS=int(self.bias is not None),
        )  # fmt: skip

    # Convolutions that are matrix products.

    def add_matrix_product(self) -> None:
        """Add the launches for a kernel of one pixel: a matrix product for every image and group."""
        s = self.sizes
        first, weight = self._pixel_view(0), self._pixel_view(1)
        if self.kind == "weight":
            operands = self.layouts[0].numel + self.layouts[1].numel
            # Summing over the images in turn costs less than writing a result for each and summing them.
            if s.batch * self.result.numel > operands:
                return self._add_product("ngozyx,ngizyx->goi", (1, 0), (weight, first), self.target, self.result.dtype)
            parts = s.batch
            target = self.target if parts == 1 else self.allocate(parts * self.result.numel)
            dtype = self.result.dtype if parts == 1 else self.element
            self._add_product("ngozyx,ngizyx->ngoi", (1, 0), (weight, first), target, dtype)
            if parts > 1:
                self.add_sum(target, parts)
            return
        pixels, weights = first, self._weight_view(1)
        equation = "goi,ngizyx->ngozyx" if self.kind == "forward" else "goi,ngozyx->ngizyx"
        self._add_product(equation, (1, 0), (weights, pixels), self.target, self.result.dtype)
        if self.bias is not None:
            self.add_bias()

    def _pixel_view(self, operand: int) -> Meta:
        """Return the layout of an image operand as `(image, group, channel, z, y, x)`."""
        first, second, space = self.strides(operand)
        layout, groups = self.layouts[operand], self.sizes.groups
        channels = layout.shape[1] // groups
        shape = (layout.shape[0], groups, channels, *self.sizes.out)
        return meta(layout.dtype, shape, (first, channels * second, second, *space), self.request.device)

    def _weight_view(self, operand: int) -> Meta:
        """Return the layout of the weight as `(group, output, input)`."""
        first, second, _ = self.strides(operand)
        s = self.sizes
        shape = (s.groups, s.outs, s.ins)
        return meta(self.layouts[operand].dtype, shape, (s.outs * first, first, second), self.request.device)

    def _add_product(
        self, equation: str, operands: tuple[int, int], layouts: tuple[Meta, Meta], target: int, dtype: DType
    ) -> None:
        """Add the launches of a contraction of two operands."""
        record = replace(registry["bmm"], detail={**registry["bmm"].detail, "equation": equation})
        request = Request(record, layouts, (), self.request.device)
        planned = contraction.plan(request)
        if planned.outputs[0].dtype is not dtype:  # parts of half-precision results are summed before they are rounded
            out = meta(dtype, planned.outputs[0].shape, None, self.request.device)
            planned = contraction.plan(replace(request, into=(out,)))
        positions = {0: operands[0], 1: operands[1], 2: target}
        for position, nbytes in enumerate(planned.scratch):
            positions[3 + position] = self.allocate(nbytes, 1)
        self.steps += [replace(s, buffers=tuple(positions[b] for b in s.buffers)) for s in planned.steps]

    def add_sum(self, source: int, parts: int) -> None:
        """Add the launch that sums `parts` results, stored one after the other."""
        total = self.result.numel
        target_tasks = elementwise_parts(total * parts, self.caps.cores) if self.caps.style == "cpu" else total
        task_size, tasks = split(total, target_tasks, self.lanes)
        self.launch(
            "sum", (source, self.target), (self.element, self.result.dtype), (parts, total, task_size), (tasks,),
            total * parts,
        )  # fmt: skip

    def add_bias(self) -> None:
        """Add the launch that adds the bias to the result in place."""
        assert self.bias is not None
        area = self.sizes.out[0] * self.sizes.out[1] * self.sizes.out[2]
        channels = self.sizes.groups * self.sizes.outs
        types = (self.layouts[self.bias].dtype, self.result.dtype)
        parts = 1 if self.caps.style == "cpu" else area
        planes = self.sizes.batch * channels
        self.launch(
            "bias", (self.bias, self.target), types, (planes, channels, area, area // parts), (planes * parts,),
            self.result.numel,
        )  # fmt: skip
