"""The register machine's run as one op: what `machine.run` computes by some thirty calls a step, in one kernel.

`register_machine.py` is the op's kind, with its gradient; `planner.py` lays out its launches; `register_machine.yaml`
is the spec; `templates/` has the kernels, one for `cpu` and OpenCL devices and one for Triton.
"""

from functools import cache
from pathlib import Path

import weftgrad as wg
from weftgrad.runtime.planners import register_planner

from ..machine import Trace
from . import planner, register_machine

__all__ = ["run"]

register_planner("register_machine", planner.plan)


@cache
def load_op():
    """Return the function of the spec."""
    return wg.ops.load(Path(register_machine.__file__).with_suffix(".yaml")).run_machine


def run(logits, cells, targets, mask, max_steps, exact_stop=False):
    """Run S programs on B memories each: the arguments and results of `machine.run`, for `max_steps` steps always."""
    return Trace(*load_op()(logits, cells, targets, mask.to(logits.dtype), max_steps, exact_stop))
