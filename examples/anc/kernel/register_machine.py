"""A kind of op: a run of the differentiable register machine (Bunel et al. 2016), all steps in one kernel.

The plain tensor code launches some thirty ops a step, and as many again backward. Here a work-group does a whole run of
one seed on one sample, with the machine's state in local memory; on CPUs a work-item does as many runs as a vector has
elements. Importing this module registers the kind.

A spec has one field of its own, `part`: `run` (the default), `final` (a run that saves nothing for a gradient) or
`gradient`; `derive` and `bare` write the last two.
"""

import sys
from pathlib import Path

from weftgrad.codegen.kind_modules import register_kind
from weftgrad.codegen.kinds import Derived, OutputRow, Rendered, Source
from weftgrad.codegen.model import SpecError

FIELDS = {
    "part": ((str,), "run, final (a run that saves nothing for a gradient) or gradient"),
    "out": ((dict,), "errors, halting and memory: `value`, or `constant` if the result has no gradient"),
}
REQUIRED = ()
DEFAULT_DTYPES = "float"
OPERANDS = {
    "run": ("logits", "cells", "targets", "weights"),
    "final": ("logits", "cells", "targets", "weights"),
    "gradient": ("grad_errors", "grad_halting", "logits", "targets", "weights", "halting", "states"),
}
_TEMPLATES = Path(__file__).resolve().parent / "templates"


def part_of(op):
    """Return the part of the computation that the op is."""
    return str(op.fields.get("part", "run"))


def check(op):
    """Raise `SpecError` unless the op has the operands of its part, in their order."""
    part = part_of(op)
    if part not in OPERANDS:
        raise SpecError(f"one of {', '.join(OPERANDS)}", field="part")
    if tuple(p.name for p in op.operands) != OPERANDS[part]:
        raise SpecError(f"the operands of part {part} are {', '.join(OPERANDS[part])}", field="op")


def render(op, environment):
    """Return the kernels' text, which is the same for all parts, and the results.

    The result `states` is saved for the gradient, in the layout that the device's kernels use.
    """
    outputs = [OutputRow(name, "value", op.result, "full", role == "value") for name, role in op.outputs.items()]
    if part_of(op) == "run":
        outputs.append(OutputRow("states", "value", op.result, "full", False, saved=True))
    sources = {
        target: Source((_TEMPLATES / f"register_machine.{suffix}").read_text(encoding="utf-8"), ("exp",))
        for target, suffix in (("opencl", "cl"), ("triton", "triton"))
    }
    return Rendered(tuple(outputs) or (OutputRow(),), sources, {"part": part_of(op)})


def derive(op):
    """Return the gradient of the logits. The gradient itself cannot be differentiated."""
    if part_of(op) != "run":
        return {}
    operands = "grad_errors, grad_halting, logits, targets: Index, weights, halting, states"
    spec = {
        "op": f"{op.name}_gradient({operands}, steps: int, exact_stop: bool)",
        "kind": op.kind,
        "dtypes": op.dtypes,
        "part": "gradient",
    }
    return {"logits": Derived(OPERANDS["gradient"], spec)}


def bare(op):
    """Return the spec of a run that saves no states, for calls without a gradient."""
    if part_of(op) != "run":
        return None
    signature = str(op.spec["op"])
    return {**op.spec, "op": f"{op.name}_final{signature[len(op.name) :]}", "part": "final"}


register_kind(sys.modules[__name__])
