"""A kind of op: a run of the differentiable register machine (Bunel et al. 2016), all steps in one kernel.

The plain tensor code launches some 340 small ops a step. Here a work-group does a whole run of one seed on one sample,
with the machine's state in local memory. Importing this module registers the kind `register_machine`, so that
`wg.ops.load("register_machine.yaml")` knows it. Its kernels are beside it: `templates/register_machine.cl` for `cpu`
and OpenCL devices, `templates/register_machine.triton` for Triton.

A spec has one field of its own, `part`: `run` (the default), `final` (a run that saves nothing for a gradient) or
`gradient`, which `derive` and `bare` write.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import weftgrad as wg
from weftgrad.codegen.kind_modules import register_kind
from weftgrad.codegen.kinds import Derived, OutputRow, Rendered, Source
from weftgrad.codegen.model import Op, SpecError
from weftgrad.runtime.backends.protocol import Instance, Slot, Step
from weftgrad.runtime.device import Meta, meta
from weftgrad.runtime.errors import ArgumentError, ShapeError, UnsupportedDType
from weftgrad.runtime.kinds import Planned, Request
from weftgrad.runtime.layout import pack_longs
from weftgrad.runtime.planners import register_planner

__all__ = ["DEFAULT_DTYPES", "FIELDS", "REQUIRED", "bare", "check", "derive", "plan", "render"]

FIELDS = {
    "part": ((str,), "run, final (a run that saves nothing for a gradient) or gradient"),
    "out": ((dict,), "errors, halting and memory"),
}
REQUIRED = ()
DEFAULT_DTYPES = "float"

_TEMPLATES = Path(__file__).resolve().parent / "templates"
_OPCODES = 11
_OPERANDS = {
    "run": ("logits", "cells", "targets", "weights"),
    "final": ("logits", "cells", "targets", "weights"),
    "gradient": ("grad_errors", "grad_halting", "logits", "targets", "weights", "halting", "memory", "states"),
}
_INTEGERS = ("cells", "targets")
_MAX_LANES = 8  # rows of 7 to 21 elements would leave much of a longer vector unused
_GROUP = 64  # work-items of a group on devices that have groups; matrices have at most some 30 columns


def check(op: Op) -> None:
    """Raise `SpecError` unless the op has the operands of its part, in their order."""
    part = op.fields.get("part", "run")
    if part not in _OPERANDS:
        raise SpecError(f"one of {', '.join(_OPERANDS)}", field="part")
    if tuple(p.name for p in op.operands) != _OPERANDS[part]:
        raise SpecError(f"the operands of part {part} are {', '.join(_OPERANDS[part])}", field="op")


def render(op: Op, environment: Any) -> Rendered:
    """Return the kernels' text, which is the same for all parts, and the results."""
    part = str(op.fields.get("part", "run"))
    outputs = [OutputRow(name, "value", op.result, "full", role == "value") for name, role in op.outputs.items()]
    if part == "run":
        outputs.append(OutputRow("states", "value", op.result, "full", False, saved=True))
    sources = {
        "opencl": Source((_TEMPLATES / "register_machine.cl").read_text(encoding="utf-8"), ("exp",)),
        "triton": Source((_TEMPLATES / "register_machine.triton").read_text(encoding="utf-8"), ("exp",)),
    }
    return Rendered(tuple(outputs) or (OutputRow(),), sources, {"part": part})


def derive(op: Op) -> dict[str, Derived]:
    """Return the gradient of the logits. The gradient itself cannot be differentiated."""
    if op.fields.get("part", "run") != "run":
        return {}
    spec = {
        "op": f"{op.name}_gradient(grad_errors, grad_halting, logits, targets: Index, weights, halting, memory, states, "
        "steps: int, exact_stop: bool)",
        "kind": op.kind,
        "dtypes": op.dtypes,
        "part": "gradient",
    }
    return {"logits": Derived(_OPERANDS["gradient"], spec)}


def bare(op: Op) -> Mapping[str, Any] | None:
    """Return the spec of a run that saves no states, for calls without a gradient."""
    if op.fields.get("part", "run") != "run":
        return None
    return {**op.spec, "op": f"{op.name}_final{str(op.spec['op'])[len(op.name) :]}", "part": "final"}


def plan(request: Request) -> Planned:
    """Plan a run, `(seeds, samples, steps + 1)` errors and stop probabilities, or its gradient.

    Raises:
        ArgumentError: The call has `out=`, or `steps` is not positive.
        ShapeError: Shapes contradict each other.
        UnsupportedDType: An operand has another dtype than float32 or float64, or the device has no float64.
    """
    layouts = {operand.name: layout for operand, layout in request.tensors}
    part, logits = request.record.detail["part"], layouts["logits"]
    seeds, samples, registers = _check_operands(request, layouts)
    values = logits.shape[-1]
    steps, exact_stop = request.static("steps"), request.static("exact_stop")
    lanes = min(_MAX_LANES, request.capabilities.vector_lanes(logits.dtype.itemsize))
    width = -(-values // lanes) * lanes  # rows are whole vectors
    per_step, state = (seeds, samples, steps + 1), (values + registers + 1) * width
    shapes: list[tuple[int, ...]] = [per_step, per_step, (seeds, samples, values, values)]
    if part == "run":
        shapes.append((seeds, samples, steps, state))
    elif part == "gradient":  # with the samples in front, over which the engine sums
        shapes = [(samples, *logits.shape)]
    results = tuple(meta(logits.dtype, shape, None, request.device) for shape in shapes)
    if not results[0].numel:
        return Planned(results)
    grads = [layouts[name] for name in ("grad_errors", "grad_halting") if name in layouts]
    strides = [layout.strides for layout in grads] or [(0, 0, 0)] * 2
    text = request.text
    slots = [_slot(layouts[name], name) for name in _OPERANDS[part]] + [Slot(r.dtype.name) for r in results]
    entry = "machine_gradient" if part == "gradient" else "machine_run"
    sizes = {"CELLS": values, "REGS": registers}
    runs, work = (
        seeds * samples,
        seeds * samples * steps * (8 * values * values + 40 * values) * (1 + 2 * (part == "gradient")),
    )
    if request.device.driver.target == "triton":
        block, height = max(16, 1 << (values - 1).bit_length()), max(16, 1 << (registers - 1).bit_length())
        constants: dict[str, Any] = {**sizes, "WIDTH": block, "HEIGHT": height, "num_warps": 4}
        scratch = (runs * block * logits.dtype.itemsize,)
        buffers = [*range(len(slots)), len(slots)]
        slots.append(Slot(logits.dtype.name))
        geometry: Any = (seeds, samples, steps, int(exact_stop), *strides)
        if part != "gradient":
            constants["KEEPS_STATES"] = int(part == "run")
            geometry = (samples, steps)
            if part == "final":  # the kernel has a parameter for the states, which it does not use
                buffers.insert(7, 6)
                slots.insert(7, Slot(logits.dtype.name))
        kernel = Instance(
            "run_machine",
            text.source,
            entry,
            logits.dtype.compute,
            1,
            tuple(slots),
            tuple(constants.items()),
            text.functions,
        )
        return Planned(results, (Step(kernel, tuple(buffers), geometry, (runs,), None, work),), scratch)
    defines = {
        **sizes,
        "WIDTH": width,
        "BUFFERS": len(slots),
        f"SCHEDULE_{'GRADIENT' if part == 'gradient' else 'RUN'}": 1,
    }
    if part == "run":
        defines["KEEPS_STATES"] = 1
    kernel = Instance(
        "run_machine", text.source, entry, logits.dtype.compute, lanes, tuple(slots),
        tuple((name, str(value)) for name, value in defines.items()), text.functions,
    )  # fmt: skip
    group = request.capabilities.group_size(_GROUP)
    geometry = pack_longs((seeds, samples, steps, int(exact_stop), *strides[0], *strides[1]))
    return Planned(results, (Step(kernel, tuple(range(len(slots))), geometry, (runs * group,), (group,), work),))


def _slot(layout: Meta, name: str) -> Slot:
    return Slot(layout.dtype.name, "index" if name in _INTEGERS else "value")


def _check_operands(request: Request, layouts: dict[str, Meta]) -> tuple[int, int, int]:
    """Check shapes, dtypes and contiguity. Return the numbers of seeds, samples and registers."""
    where, logits, targets = request.where(), layouts["logits"], layouts["targets"]
    if request.into is not None:
        raise ArgumentError(f"{where}: does not support out=")
    if request.static("steps") < 1:
        raise ArgumentError(f"{where}: steps must be at least 1, not {request.static('steps')}")
    if logits.ndim != 3 or targets.ndim != 3 or logits.shape[1] < 16 or logits.shape[1] % 4:
        raise ShapeError(f"{where}: logits are (seeds, 4 registers + 12, values), targets (seeds, samples, values)")
    if logits.dtype not in (wg.float32, wg.float64):
        raise UnsupportedDType(f"{where}: takes float32 and float64, not {logits.dtype.name}; use .float()")
    if logits.dtype is wg.float64 and not request.capabilities.fp64:
        raise UnsupportedDType(f"{where}: the device has no float64; use float32 there")
    (seeds, rows, values), samples = logits.shape, targets.shape[1]
    for name, layout in layouts.items():
        if name in ("cells", "targets", "weights") and layout.shape != (seeds, samples, values):
            raise ShapeError(f"{where}: {name} must have shape {[seeds, samples, values]}")
        if layout.dtype is not (wg.int64 if name in _INTEGERS else logits.dtype):
            expected = "int64" if name in _INTEGERS else logits.dtype.name
            raise UnsupportedDType(f"{where}: {name} must be {expected}")
        if not layout.contiguous and not name.startswith("grad_"):
            raise ShapeError(f"{where}: {name} must be contiguous; call .contiguous()")
    return seeds, samples, (rows - 12) // 4


register_kind(sys.modules[__name__])
register_planner(__name__.rpartition(".")[2], plan)
