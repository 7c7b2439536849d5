"""Plan a run of the register machine, or its gradient: one launch.

A work-group or a Triton program computes one run; on CPUs a work-item computes as many as a vector has elements.
"""

from dataclasses import dataclass

import weftgrad as wg
from weftgrad.runtime.backends.protocol import Instance, Slot, Step
from weftgrad.runtime.device import meta
from weftgrad.runtime.errors import ArgumentError, NotSupported, ShapeError, UnsupportedDType
from weftgrad.runtime.kinds import Planned
from weftgrad.runtime.layout import pack_longs

from .register_machine import OPERANDS

_INTEGERS = ("cells", "targets")
_GROUP = 64  # work-items of a group; rows have at most some 45 elements
_MIN_LANES = 4  # shorter vectors are no faster
_SEGMENT_BYTES = 768 << 10  # what a CPU's gradient works on; with 256 KiB, sort takes 1.9 times as long
_STACK_BYTES = 1 << 20  # and must fit on a thread's stack
_MAX_SEGMENT = 8


@dataclass(frozen=True)
class Sizes:
    """Sizes of a call: M memory cells, values and lines; R registers."""

    seeds: int
    samples: int
    cells: int
    registers: int
    steps: int

    @property
    def runs(self):
        return self.seeds * self.samples

    @property
    def state(self):
        """Numbers of a machine's state."""
        return (self.cells + self.registers + 1) * self.cells

    @property
    def gates(self):
        """Numbers that choose a line's arguments, output and opcode."""
        return 3 * self.registers + 11

    def local_elements(self, part, segment):
        """Return the numbers of a run that the OpenCL kernel of `part` holds, as its declarations list them."""
        step = self.gates + 11 * self.cells
        logits = (self.gates + self.registers + 1) * self.cells
        goal = 3 * self.cells + 1
        if part != "gradient":
            return logits + 2 * self.state + step + goal
        gradients = logits + 2 * self.cells**2 + segment * self.gates + 11 * self.cells
        return logits + (segment + 1) * self.state + segment * step + goal + gradients


@dataclass(frozen=True)
class Division:
    """How the OpenCL kernels divide the work."""

    lanes: int  # runs of a work-group
    segment: int  # steps between two saved states


def divide(sizes, itemsize, capabilities):
    """Return the `Division` of a call for a device, which is the same for a run and its gradient."""
    if not capabilities.takes_runs:
        return Division(1, 1)
    lanes = capabilities.vector_lanes(itemsize)

    def count_bytes(segment):
        return sizes.local_elements("gradient", segment) * lanes * itemsize

    while lanes > _MIN_LANES and sizes.runs <= (capabilities.cores - 1) * lanes:
        lanes //= 2  # a shorter vector for every core
    while lanes > 1 and count_bytes(1) > _STACK_BYTES:
        lanes //= 2
    step_bytes = count_bytes(2) - count_bytes(1)
    segment = 1 + (_SEGMENT_BYTES - count_bytes(1)) // step_bytes
    return Division(lanes, min(max(segment, 1), _MAX_SEGMENT, sizes.steps))


def plan(request):
    """Return the results' layouts and the launch.

    Results of a run are errors and stop probabilities `(seeds, samples, steps + 1)`, the final memory
    `(seeds, samples, M, M)`, and for a gradient the states. The gradient `(samples, seeds, 4 R + 12, M)` begins with
    the samples, over which the engine sums.

    Raises:
        ArgumentError: The call has `out=`, or `steps` is not positive.
        NotSupported: The device has too little local memory.
        ShapeError: Shapes contradict each other.
        UnsupportedDType: An operand has another dtype than float32 or float64, or the device has no float64.
    """
    layouts = {operand.name: layout for operand, layout in request.tensors}
    part, logits = request.record.detail["part"], layouts["logits"]
    sizes = _check_operands(request, layouts)
    division = divide(sizes, logits.dtype.itemsize, request.capabilities)
    per_step = (sizes.seeds, sizes.samples, sizes.steps + 1)
    shapes = [per_step, per_step, (sizes.seeds, sizes.samples, sizes.cells, sizes.cells)]
    if part == "run":
        groups, segments = -(-sizes.runs // division.lanes), -(-sizes.steps // division.segment)
        shapes.append((groups, segments, sizes.state, division.lanes))
    elif part == "gradient":
        shapes = [(sizes.samples, *logits.shape)]
    results = tuple(meta(logits.dtype, shape, None, request.device) for shape in shapes)
    if not results[0].numel:
        return Planned(results)
    slots = [Slot(layouts[n].dtype.name, "index" if n in _INTEGERS else "value") for n in OPERANDS[part]]
    slots += [Slot(result.dtype.name) for result in results]
    if request.device.driver.target == "triton":
        return _plan_triton(request, layouts, sizes, slots, results)
    return _plan_opencl(request, layouts, sizes, slots, results, division)


def _plan_opencl(request, layouts, sizes, slots, results, division):
    part = request.record.detail["part"]
    local_bytes = sizes.local_elements(part, division.segment) * results[0].dtype.itemsize
    group = request.capabilities.group_size(_GROUP)
    if group > 1 and local_bytes > request.capabilities.local_memory:
        raise NotSupported(
            f"{request.where()}: needs {local_bytes} bytes of local memory, the device has "
            f"{request.capabilities.local_memory}; use fewer cells or registers, or machine.run"
        )
    defines = {"CELLS": sizes.cells, "REGS": sizes.registers, "SEGMENT": division.segment, "BUFFERS": len(slots)}
    defines |= {"SCHEDULE_GRADIENT": 1} if part == "gradient" else {"SCHEDULE_RUN": 1}
    defines |= {"KEEPS_STATES": 1} if part == "run" else {}
    by_error, by_halting = _gradient_strides(layouts)
    geometry = (sizes.seeds, sizes.samples, sizes.steps, int(request.static("exact_stop")), *by_error, *by_halting)
    defines = {name: str(value) for name, value in defines.items()}
    kernel = _instance(request, results[0], division.lanes, slots, defines)
    groups = -(-sizes.runs // division.lanes)
    step = Step(kernel, tuple(range(len(slots))), pack_longs(geometry), (groups * group,), (group,), _work(sizes, part))
    return Planned(results, (step,))


def _plan_triton(request, layouts, sizes, slots, results):
    part = request.record.detail["part"]
    block = max(16, 1 << (sizes.cells - 1).bit_length())
    height = max(16, 1 << (sizes.registers - 1).bit_length())
    warps = 4 if block <= 16 else 8  # with fewer, the matrices of 32 rows do not fit into registers
    constants = {"CELLS": sizes.cells, "REGS": sizes.registers, "WIDTH": block, "HEIGHT": height, "num_warps": warps}
    buffers, slots = [*range(len(slots) + 1)], [*slots, Slot(results[0].dtype.name)]  # the last: cyclic shifts
    if part == "gradient":
        exact_stop = int(request.static("exact_stop"))
        geometry = (sizes.seeds, sizes.samples, sizes.steps, exact_stop, *_gradient_strides(layouts))
    else:
        geometry = (sizes.samples, sizes.steps)
        constants["KEEPS_STATES"] = int(part == "run")
        if part == "final":  # the kernel has a parameter for the states all the same
            buffers.insert(7, 6)
            slots.insert(7, slots[6])
    kernel = _instance(request, results[0], 1, slots, constants)
    step = Step(kernel, tuple(buffers), geometry, (sizes.runs,), None, _work(sizes, part))
    return Planned(results, (step,), (sizes.runs * block * results[0].dtype.itemsize,))


def _instance(request, result, lanes, slots, defines):
    text = request.text
    entry = "machine_gradient" if request.record.detail["part"] == "gradient" else "machine_run"
    constants = tuple(defines.items())
    return Instance(
        "run_machine", text.source, entry, result.dtype.compute, lanes, tuple(slots), constants, text.functions
    )


def _gradient_strides(layouts):
    """Return the strides of the incoming gradients along seeds, samples and steps."""
    return [layouts[n].strides if n in layouts else (0, 0, 0) for n in ("grad_errors", "grad_halting")]


def _work(sizes, part):
    """Estimate a launch's work: a step takes some 6 M^2 + 70 M units of half a nanosecond, its gradient twice that."""
    per_step = 6 * sizes.cells**2 + 70 * sizes.cells
    return sizes.runs * sizes.steps * per_step * (2 if part == "gradient" else 1)


def _check_operands(request, layouts):
    """Check shapes, dtypes and contiguity, and return the `Sizes`."""
    where, logits, targets = request.where(), layouts["logits"], layouts["targets"]
    steps = request.static("steps")
    if request.into is not None:
        raise ArgumentError(f"{where}: does not support out=")
    if steps < 1:
        raise ArgumentError(f"{where}: steps must be at least 1, not {steps}")
    if logits.ndim != 3 or targets.ndim != 3 or logits.shape[1] < 16 or logits.shape[1] % 4:
        raise ShapeError(f"{where}: logits are (seeds, 4 R + 12, M), targets (seeds, samples, M)")
    if logits.dtype not in (wg.float32, wg.float64):
        raise UnsupportedDType(f"{where}: takes float32 and float64, not {logits.dtype.name}; use .float()")
    if logits.dtype is wg.float64 and not request.capabilities.fp64:
        raise UnsupportedDType(f"{where}: the device has no float64; use float32 there")
    (seeds, rows, cells), samples = logits.shape, targets.shape[1]
    for name, layout in layouts.items():
        if name in ("cells", "targets", "weights") and layout.shape != (seeds, samples, cells):
            raise ShapeError(f"{where}: {name} must have shape {[seeds, samples, cells]}")
        expected = wg.int64 if name in _INTEGERS else logits.dtype
        if layout.dtype is not expected:
            raise UnsupportedDType(f"{where}: {name} must be {expected.name}")
        if not layout.contiguous and not name.startswith("grad_"):
            raise ShapeError(f"{where}: {name} must be contiguous; call .contiguous()")
    return Sizes(seeds, samples, cells, (rows - 12) // 4, steps)
