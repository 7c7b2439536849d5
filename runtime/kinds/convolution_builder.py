"""Sizes of a convolution, and the builder that collects its launches for all schedules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..layout import pack_longs, split
from ..records import registry
from ..schedules import Choice, choose
from . import Request, contraction
from .elementwise import elementwise_parts

__all__ = ["Builder", "Sizes", "Triple", "extend_to_triple"]

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


def extend_to_triple(values: tuple[int, ...] | list[int], fill: int) -> Triple:
    """Return one to three `values` as three numbers, with `fill` in front."""
    padded = (*(fill,) * (3 - len(values)), *values)
    return padded[0], padded[1], padded[2]


class Builder:
    """The launches of one call, and the scratch buffers that they need."""

    def __init__(self, request: Request, sizes: Sizes, element: DType, result: Meta):
        self.request, self.sizes, self.element, self.result = request, sizes, element, result
        self.caps = request.capabilities
        self.layouts = [m for _, m in request.tensors]
        self.kind = request.record.name.removeprefix("convolution").removeprefix("_") or "forward"
        self.bias = 2 if len(self.layouts) > 2 else None  # position of the operand
        self.lanes = self.caps.vector_lanes(element.itemsize)
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
        return first, second, extend_to_triple(space, 0)

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
        if self.caps.takes_runs:
            all_defines += (("VU", f"{element}{lanes}_u" if lanes > 1 else element),)
            if lanes >= 8 and types[0] is self.element:  # elements are copied without conversion
                all_defines += (("HALF", f"{element}{lanes // 2}_u"), ("QUARTER", f"{element}{lanes // 4}_u"))
        text = self.request.text
        slots = tuple(Slot(t.name, "raw" if t is dtypes.int64 else "value") for t in types)
        # The name is that of the kind, not of the op: the three ops share kernels.
        instance = Instance("convolution", text.source, f"convolution_{entry}", element, lanes, slots, all_defines)
        group = 1 if self.caps.takes_runs else self.caps.group_size(self.params["group"])
        local = (group, *(1,) * (len(size) - 1))
        size = (-(-size[0] // group) * group, *size[1:])
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

    def bias_buffer(self) -> tuple[int, DType]:
        """Return the buffer and dtype of the bias, or of another operand, which is not read, if there is no bias."""
        position = 1 if self.bias is None else self.bias
        return position, self.layouts[position].dtype

    def add_sum(self, source: int, parts: int) -> None:
        """Add the launch that sums `parts` results, stored one after the other."""
        total = self.result.numel
        target_tasks = elementwise_parts(total * parts, self.caps.cores) if self.caps.takes_runs else total
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
        parts = 1 if self.caps.takes_runs else area
        planes = self.sizes.batch * channels
        self.launch(
            "bias", (self.bias, self.target), types, (planes, channels, area, area // parts), (planes * parts,),
            self.result.numel,
        )  # fmt: skip
