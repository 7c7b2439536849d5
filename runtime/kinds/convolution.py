"""Convolution and its two gradients, which are convolutions again: of the incoming gradient with the weight turned
around, and of the input with the incoming gradient. In one, two or three spatial dimensions: here always three, of
which the first have size 1.

Schedules. CPU: `convolution_cpu`. GPU: a work-item an element. Where the kernel is one pixel, strides are 1 and there
is no padding, it is a matrix product, and is planned as one.
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
from . import Planned, Request, planner
from .pointwise import compute_dtype, elementwise_parts

__all__ = ["Builder", "Sizes", "Triple", "plan"]

Triple = tuple[int, int, int]
_UNIT: Triple = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class Sizes:
    """One convolution: `ins` and `outs` are channels a group; the others are along depth, height and width. padding:
    zeros in front; there may be as many behind, or others, which `out` says."""

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
    def count(self) -> int:
        """How many taps there are."""
        return self.taps[0] * self.taps[1] * self.taps[2]

    @property
    def product(self) -> bool:
        """Whether it is a matrix product of channels."""
        return self.taps == self.stride == _UNIT and self.padding == (0, 0, 0) and self.size == self.out


def plan(request: Request) -> Planned:
    """The result's layout and the launches."""
    computed = compute_dtype(request)
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: has no form that writes into a given tensor")
    sizes, shape = _bind(request)
    result = meta(computed, shape, None, request.device)
    if not result.numel:
        return Planned((result,))
    if not all(m.numel for _, m in request.tensors):  # the weight's gradient of an empty batch
        return Planned((result,), _zeros(request, result))
    half = computed.is_floating_point and computed.itemsize == 2
    builder = Builder(request, sizes, dtypes.float32 if half else computed, result)
    if builder.able.style == "triton":
        from .triton.convolution import launch

        launch(builder)
    elif sizes.product and (builder.bias is None or result.dtype is builder.element):
        builder.product()
    elif builder.able.style == "gpu":
        builder.grid()
    else:
        from .convolution_cpu import launch as launch_cpu

        launch_cpu(builder)
    return Planned((result,), tuple(builder.steps), tuple(builder.scratch))


def _zeros(request: Request, result: Meta) -> tuple[Step, ...]:
    """The launch that fills the result with zeros: empty operands have no memory that a kernel could be given."""
    inner = Request(registry["zero_like"], (result,), (), request.device, (result,))
    at = len(request.tensors)
    return tuple(replace(s, buffers=(at, at)) for s in planner("pointwise")(inner).steps)


def _numbers(request: Request, name: str, count: int, least: int) -> tuple[int, ...]:
    value = request.static(name)
    if not isinstance(value, tuple) or len(value) != count or any(not isinstance(n, int) or n < least for n in value):
        many = {1: "an integer", 2: "two integers", 3: "three integers"}[count]
        raise ArgumentError(f"{request.where()}: {name} must be {many} of at least {least}, not {value!r}")
    return value


def _padding(request: Request, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Zeros in front and behind; `padding` has one number a dimension, or all in front and then all behind, where less
    than none are rows that no window reaches."""
    value = request.static("padding")
    if isinstance(value, tuple) and len(value) == 2 * count and all(isinstance(n, int) for n in value):
        if min(value[:count]) < 0:
            raise ArgumentError(f"{request.where()}: padding in front must be at least 0, not {value[:count]!r}")
        return value[:count], value[count:]
    found = _numbers(request, "padding", count, 0)
    return found, found


def _triple(values: tuple[int, ...] | list[int], fill: int) -> Triple:
    whole = (*(fill,) * (3 - len(values)), *values)
    return whole[0], whole[1], whole[2]


def _bind(request: Request) -> tuple[Sizes, tuple[int, ...]]:
    """The sizes of the convolution and the shape of what is asked for. Raises `ShapeError`, `ArgumentError`."""
    where, name = request.where(), request.record.name
    first, second = request.tensors[0][1], request.tensors[1][1]
    if any(layout.dtype is not first.dtype for _, layout in request.tensors):
        raise DTypeError(f"{where}: operands must have one dtype; convert them with .to(dtype)")
    if first.ndim != second.ndim or first.ndim not in (3, 4, 5):
        raise ShapeError(f"{where}: both operands need the same 3, 4 or 5 dimensions")
    space = first.ndim - 2
    stride, dilation = _numbers(request, "stride", space, 1), _numbers(request, "dilation", space, 1)
    (padding, behind), groups = _padding(request, space), request.static("groups")
    if not isinstance(groups, int) or groups < 1:
        raise ArgumentError(f"{where}: groups must be a positive integer, not {groups!r}")
    if name == "convolution":
        outs, ins, *taps = second.shape
        batch, channels, *size = first.shape
        if channels == ins * groups and outs % groups == 0 and 0 not in taps:
            _reaches(where, size, taps, padding, behind, dilation)
        out = [
            (n + p + q - d * (k - 1) - 1) // s + 1
            for n, p, q, d, k, s in zip(size, padding, behind, dilation, taps, stride, strict=True)
        ]
        for operand, layout in request.tensors[2:]:
            if layout.shape != (outs,):
                raise ShapeError(f"{where}: {operand.name} must have shape [{outs}]")
        shape: tuple[int, ...] = (batch, outs, *out)
    elif name == "convolution_input":
        outs, ins, *taps = second.shape
        batch, given, *out = first.shape
        size = list(_numbers(request, "size", space, 0))
        channels, shape = ins * groups, (batch, ins * groups, *size)
        if given != outs:
            raise ShapeError(f"{where}: the weight is for {outs} output channels, the gradient has {given}")
    else:
        batch, channels, *size = first.shape
        also, outs, *out = second.shape
        taps = list(_numbers(request, "size", space, 1))
        ins, shape = channels // groups, (outs, channels // groups, *taps)
        if also != batch:
            raise ShapeError(f"{where}: the batches differ: {batch} and {also}")
    if channels != ins * groups or outs % groups:
        raise ShapeError(
            f"{where}: {channels} input channels in {groups} groups do not fit a weight of {ins} inputs "
            f"and {outs} outputs"
        )
    if 0 in taps:
        raise ShapeError(f"{where}: sizes of the kernel must not be 0")
    one, two, three, four = (_triple(v, 1) for v in (size, taps, out, stride))
    made = Sizes(
        batch, groups, ins, outs // groups, one, two, three, four, _triple(padding, 0), _triple(dilation, 1)
    )
    return made, shape


def _reaches(
    where: str, size: list[int], taps: list[int], before: tuple[int, ...], behind: tuple[int, ...],
    dilation: tuple[int, ...],
) -> None:  # fmt: skip
    """Raise `ShapeError` unless the padded input is as large as the kernel."""
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, taps, strict=True)]
    padded = [n + p + q for n, p, q in zip(size, before, behind, strict=True)]
    if any(r > n for r, n in zip(reach, padded, strict=True)):
        raise ShapeError(f"{where}: the kernel reaches {reach} pixels, the padded input has {padded}")


class Builder:
    """Collects the launches of one call and the scratch they need."""

    def __init__(self, request: Request, sizes: Sizes, element: DType, result: Meta):
        self.request, self.sizes, self.element, self.result = request, sizes, element, result
        self.able = request.capabilities
        self.layouts = [m for _, m in request.tensors]
        self.kind = request.record.name.removeprefix("convolution").removeprefix("_") or "forward"
        self.bias = 2 if len(self.layouts) > 2 else None  # the position of that operand
        self.lanes = self.able.lanes // (2 if element.itemsize == 8 else 1) if self.able.style == "cpu" else 1
        self.steps: list[Step] = []
        self.scratch: list[int] = []

    @cached_property
    def chosen(self) -> Choice:
        """What a schedule says of it."""
        s = self.sizes
        sizes = {"batch": s.batch, "ins": s.ins, "outs": s.outs, "pixels": prod(s.out), "taps": s.count}
        layout = "".join(map(str, s.stride)) + "+" + "".join(map(str, s.dilation))
        return choose(self.request, "convolution", sizes, self.layouts[0].dtype.name, layout=layout)

    @property
    def target(self) -> int:
        """The buffer of the result."""
        return len(self.layouts)

    def strides(self, operand: int) -> tuple[int, int, Triple]:
        """Strides of the first two dimensions, and of depth, height and width."""
        first, second, *space = self.layouts[operand].strides
        return first, second, _triple(space, 0)

    def allocate(self, count: int, itemsize: int = 0) -> int:
        """A scratch buffer of so many elements."""
        self.scratch.append(max(count, 1) * (itemsize or self.element.itemsize))
        return len(self.layouts) + len(self.scratch)

    def launch(
        self, entry: str, buffers: tuple[int, ...], types: tuple[DType, ...], geometry: tuple[int, ...],
        size: tuple[int, ...], work: int, **defines: int,
    ) -> None:  # fmt: skip
        """Add one launch of an OpenCL schedule."""
        element, lanes = self.element.compute, self.lanes
        given = ((f"SCHEDULE_{entry.upper()}", "1"), *((k, str(v)) for k, v in defines.items()))
        if self.able.style == "cpu":
            given += (("VU", f"{element}{lanes}_u" if lanes > 1 else element),)
            if lanes >= 8 and types[0] is self.element:  # what is copied as it is
                given += (("HALF", f"{element}{lanes // 2}_u"), ("QUARTER", f"{element}{lanes // 4}_u"))
        text = self.request.record.texts[self.request.device.driver.target]
        slots = tuple(Slot(t.name, "raw" if t is dtypes.int64 else "value") for t in types)
        # Named for the kind, not the op: the three ops share kernels.
        instance = Instance("convolution", text.source, f"convolution_{entry}", element, lanes, slots, given)
        local = (1,) * len(size)
        if self.able.style == "gpu":
            local = (min(self.chosen["group"], self.able.max_group),)
            size = (-(-size[0] // local[0]) * local[0],)
        self.steps.append(Step(instance, buffers, pack_longs(geometry), size, local, work))

    def grid(self) -> None:
        """GPU: one launch, a work-item an element."""
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

    # matrix products

    def product(self) -> None:
        """A kernel of one pixel: channels times channels, for every image and group."""
        s = self.sizes
        first, weight = self._pixels(0), self._pixels(1)
        if self.kind == "weight":
            operands = self.layouts[0].numel + self.layouts[1].numel
            if s.batch * self.result.numel > operands:  # images one after another cost less than results apart
                return self._multiply("ngozyx,ngizyx->goi", (1, 0), (weight, first), self.target, self.result.dtype)
            parts = s.batch
            target = self.target if parts == 1 else self.allocate(parts * self.result.numel)
            dtype = self.result.dtype if parts == 1 else self.element
            self._multiply("ngozyx,ngizyx->ngoi", (1, 0), (weight, first), target, dtype)
            if parts > 1:
                self.sum(target, parts)
            return
        pixels, weights = first, self._channels(1)
        equation = "goi,ngizyx->ngozyx" if self.kind == "forward" else "goi,ngozyx->ngizyx"
        self._multiply(equation, (1, 0), (weights, pixels), self.target, self.result.dtype)
        if self.bias is not None:
            self.add_bias()

    def _pixels(self, operand: int) -> Meta:
        """An image as [image, group, channel, z, y, x]."""
        first, second, space = self.strides(operand)
        layout, groups = self.layouts[operand], self.sizes.groups
        channels = layout.shape[1] // groups
        shape = (layout.shape[0], groups, channels, *self.sizes.out)
        return meta(layout.dtype, shape, (first, channels * second, second, *space), self.request.device)

    def _channels(self, operand: int) -> Meta:
        """The weight as [group, output, input]."""
        first, second, _ = self.strides(operand)
        s = self.sizes
        shape = (s.groups, s.outs, s.ins)
        return meta(self.layouts[operand].dtype, shape, (s.outs * first, first, second), self.request.device)

    def _multiply(
        self, equation: str, operands: tuple[int, int], layouts: tuple[Meta, Meta], target: int, dtype: DType
    ) -> None:
        """Add the launches of a contraction of two operands."""
        record = replace(registry["bmm"], detail={**registry["bmm"].detail, "equation": equation})
        request = Request(record, layouts, (), self.request.device)
        planned = planner("contraction")(request)
        if planned.outputs[0].dtype is not dtype:  # half types' parts, which are summed before they are rounded
            into = meta(dtype, planned.outputs[0].shape, None, self.request.device)
            planned = planner("contraction")(replace(request, into=(into,)))
        places = {0: operands[0], 1: operands[1], 2: target}
        for position, nbytes in enumerate(planned.scratch):
            places[3 + position] = self.allocate(nbytes, 1)
        self.steps += [replace(s, buffers=tuple(places[b] for b in s.buffers)) for s in planned.steps]

    def sum(self, source: int, parts: int) -> None:
        """Add up `parts` results that lie one after another."""
        total = self.result.numel
        wanted = elementwise_parts(total * parts, self.able.cores) if self.able.style == "cpu" else total
        share, shares = split(total, wanted, self.lanes)
        self.launch(
            "sum", (source, self.target), (self.element, self.result.dtype), (parts, total, share), (shares,),
            total * parts,
        )  # fmt: skip

    def add_bias(self) -> None:
        """Add the bias to the result, in place."""
        assert self.bias is not None
        area = self.sizes.out[0] * self.sizes.out[1] * self.sizes.out[2]
        channels = self.sizes.groups * self.sizes.outs
        types = (self.layouts[self.bias].dtype, self.result.dtype)
        shares = 1 if self.able.style == "cpu" else area
        planes = self.sizes.batch * channels
        self.launch(
            "bias", (self.bias, self.target), types, (planes, channels, area, area // shares), (planes * shares,),
            self.result.numel,
        )  # fmt: skip
