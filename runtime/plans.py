"""Plans of calls: what `dispatch` needs to run calls with the same op, static arguments and layouts.

`make_plan` makes the plan of a call that has none, from a family of plans (`plan_families`) or by the planner of the
op's kind (`kinds`). A thread's plans are bounded in number and memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from . import context, device, native, schedules
from .autograd.node import Recipe, recipe_of
from .device import Meta
from .errors import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError
from .kinds import Planned, Request
from .layout import has_internal_overlap
from .plan_families import ABOVE_ONE, BELOW_ZERO, Into, Operands, Search, signature_of
from .planners import planner
from .records import OpRecord, registry
from .tensor import Tensor

if TYPE_CHECKING:
    from .backends.protocol import Driver
    from .call_types import Launcher, Statics
    from .context import State

__all__ = ["Plan", "make_plan", "plan_for"]

_MAX_PLANS = 16384  # per thread
_MAX_PLAN_BYTES = 64 << 20  # per thread; convolutions, with three steps per plan, reach this limit first
_PLANS_BETWEEN_CHECKS = 1024  # a check takes up to a millisecond
# Estimated memory of a plan, from the growth of the process over plans of 15 ops that have 0 to 3 steps.
_PLAN_BYTES, _STEP_BYTES, _OPERAND_BYTES = 1300, 3300, 64
_NUMBERS = (bool, int, float)


class Plan:
    """A cached recipe for running all calls with the same record, static arguments and layouts.

    Attributes:
        planned: The planner's result; None in a plan from a family.
        device: The device of the call.
        driver: The driver of the device; None for a view, which needs none.
        outputs: (layout, bytes) of each result.
        run: The launcher `run(tensors, numbers, stream)`, or None if there is nothing to launch.
        tensors: Positions of the tensors among the operands.
        numbers: Positions of the numbers among the operands.
        has_only_tensors: True if all operands are tensors.
        view: For a view op, the offset in bytes of the result's first element from the operand's; else None.
        recipe: What `Node` needs to record the call for backward; None if nothing is recorded.
        single: (layout, bytes) of the result if the fast path applies: one result, only tensors as operands, a launch,
            no view, and nothing to record. Else None.
        visible: Number of results that callers get. Results that only backward reads follow them in `outputs`.
        nbytes: Estimated memory of the plan.
    """

    __slots__ = (
        "device", "driver", "has_only_tensors", "nbytes", "numbers", "outputs", "planned", "recipe", "run", "single",
        "tensors", "view", "visible",
    )  # fmt: skip

    def __init__(self, planned: Planned, request: Request, recipe: Recipe | None):
        operands = request.operands
        self.device = request.device
        self.driver: Driver = request.device.driver if planned.view is None else None  # type: ignore[assignment]
        self.tensors = tuple(i for i, o in enumerate(operands) if isinstance(o, Meta))
        self.numbers = tuple(i for i, o in enumerate(operands) if o is not None and not isinstance(o, Meta))
        self.has_only_tensors = len(self.tensors) == len(operands)
        self.visible = len(planned.outputs) - sum(o.saved for o in request.record.outputs)
        self.nbytes = _PLAN_BYTES + _OPERAND_BYTES * (len(operands) + len(request.statics))
        self.nbytes += sum(_STEP_BYTES + len(step.geometry) for step in planned.steps)
        self._set_parts(planned, recipe)
        self.planned: Planned | None = planned

    def _set_parts(self, planned: Planned, recipe: Recipe | None) -> None:
        """Set the attributes that depend on sizes."""
        self.planned = None
        self.recipe = recipe
        self.view = planned.view
        self.outputs = tuple([(layout, layout.nbytes) for layout in planned.outputs])
        self.run: Launcher | None = None
        self.single: tuple[Meta, int] | None = None
        if planned.steps:
            self.run = self.device.driver.launcher(planned.steps, planned.scratch)
            if recipe is None and self.has_only_tensors and len(self.outputs) == 1 and planned.view is None:
                self.single = self.outputs[0]

    def refill(self, planned: Planned, recipe: Recipe | None) -> Plan:
        """Return the plan of a call that differs from this plan's in sizes only."""
        plan = object.__new__(Plan)
        plan.device, plan.driver, plan.visible, plan.nbytes = self.device, self.driver, self.visible, self.nbytes
        plan.tensors, plan.numbers, plan.has_only_tensors = self.tensors, self.numbers, self.has_only_tensors
        plan._set_parts(planned, recipe)
        return plan


def make_plan(
    state: State,
    key: tuple[object, ...],
    record: OpRecord,
    operands: Sequence[object],
    statics: Statics,
    grad_mask: int,
    into: Into = None,
) -> Plan:
    """Plan a call, and store the plan under `key`.

    Args:
        state: The state of the calling thread.
        key: The key of the call.
        record: The op.
        operands: Tensors, Python numbers or None.
        statics: The static arguments.
        grad_mask: Bit mask of the operands that need gradients.
        into: Layouts of existing outputs (`out=`, in place), or None.

    Returns:
        The plan.

    Raises:
        ArgumentError, DeviceError, DTypeError, GradientError, ShapeError: The op does not take these operands.
    """
    plans = state.plans  # read before planning: if `forget_plans` runs meanwhile, this plan must be forgotten, too
    layouts = _layouts(record, operands)
    plan = native.fill_plan(record, layouts, statics, grad_mask, into)
    if plan is None:
        plan = _plan_in_python(record, operands, layouts, statics, grad_mask, into)
    if plans and len(plans) % _PLANS_BETWEEN_CHECKS == 0:
        _drop_oldest(plans)
    plans[key] = plan
    return plan


def _plan_in_python(
    record: OpRecord, operands: Sequence[object], layouts: Operands, statics: Statics, grad_mask: int, into: Into
) -> Plan:
    """Plan a call by a family, or by the planner if no family fits; then add a family if it is time."""
    search = Search(record, layouts, statics, grad_mask, into) if schedules.has_settled() else None
    match = search.find() if search is not None else None
    if match is not None:
        template, planned, recipe = match
        plan = template.refill(planned, recipe)
    else:
        request, planned, recipe = plan_parts(record, layouts, statics, grad_mask, into)
        plan = Plan(planned, request, recipe)
        if schedules.on_plan is not None:
            schedules.on_plan(plan, request, operands)
        if search is not None:
            search.add_family(plan, plan_parts)
    return plan


def _drop_oldest(plans: dict[tuple[object, ...], Plan]) -> None:
    """If plans exceed the limit of their number or memory, drop the oldest until both are at 3/4 of their limits."""
    nbytes = sum(map(attrgetter("nbytes"), list(plans.values())))
    if len(plans) < _MAX_PLANS and nbytes < _MAX_PLAN_BYTES:
        return
    sizes = [(key, plan.nbytes) for key, plan in list(plans.items())]  # dicts keep insertion order
    count, nbytes = len(sizes), sum(size for _, size in sizes)
    for key, size in sizes:
        if count <= _MAX_PLANS * 3 // 4 and nbytes <= _MAX_PLAN_BYTES * 3 // 4:
            break
        plans.pop(key, None)  # a finalizer may have run ops meanwhile, and dropped the plan
        count, nbytes = count - 1, nbytes - size


def _layouts(record: OpRecord, operands: Sequence[object]) -> list[Meta | type | None]:
    """Return what a planner gets of operands: the layout of a tensor, the type of a number, or None."""
    layouts: list[Meta | type | None] = []
    for operand in operands:
        if isinstance(operand, Tensor):
            layouts.append(operand.meta)
        elif operand is None:
            layouts.append(None)
        elif isinstance(operand, _NUMBERS):
            layouts.append(next(t for t in _NUMBERS if isinstance(operand, t)))
        else:
            raise ArgumentError(
                f"{record.name}: takes tensors and numbers, not {type(operand).__name__}; make a tensor with tensor()"
            )
    return layouts


def plan_parts(
    record: OpRecord, layouts: Operands, statics: Statics, grad_mask: int, into: Into,
    request_class: type[Request] = Request,
) -> tuple[Request, Planned, Recipe | None]:  # fmt: skip
    """Plan a call by the planner of its op's kind.

    Args:
        record: The op.
        layouts: The layout of each tensor, the type of each number, or None.
        statics: The static arguments.
        grad_mask: Bit mask of the operands that need gradients.
        into: The layouts of existing results, or None.
        request_class: The class of the planner's request.

    Returns:
        The request, the planner's result, and the recipe for backward (None without gradients).

    Raises:
        DTypeError: The call computes, reads or writes float64, which the device lacks.
        GradientError: An operand needs a gradient, but the result has a dtype without gradients.
        ShapeError: Elements of an existing result share memory.
    """
    for layout in into or ():
        if has_internal_overlap(layout):
            raise ShapeError(
                f"{record.name}: cannot write to a tensor of shape {list(layout.shape)} with strides "
                f"{list(layout.strides)}: several indices are the same element; call .clone() first"
            )
    request = _request(record, layouts, statics, into, grad_mask, request_class)
    variant = request.record
    planned = planner(variant.kind)(request)
    if planned.steps and not request.capabilities.fp64:
        _check_float64(request, planned)
    result_dtype = planned.outputs[0].dtype if grad_mask and "dtype" in variant.statics else None
    if result_dtype is not None and result_dtype.kind != "f" and variant.kind in ("reduction", "scan"):
        raise GradientError(
            f"{request.where()}: a result of {result_dtype.name} has no gradient, but an operand requires one; "
            "give a floating dtype, or take .detach() of the operands"
        )
    recipe = recipe_of(variant, request.operands, planned.outputs, grad_mask, statics) if grad_mask else None
    return request, planned, recipe


def _check_float64(request: Request, planned: Planned) -> None:
    """Raise `DTypeError` if a kernel uses float64; the device has none."""
    for step in planned.steps:
        kernel = step.instance
        if kernel.element == "double" or any(slot.dtype == "float64" for slot in kernel.slots):
            raise DTypeError(f"{request.where()}: {request.device} has no float64; use float32 there")


def _request(
    record: OpRecord, layouts: Operands, statics: Statics, into: Into, grad_mask: int, request_class: type[Request]
) -> Request:
    """Build the planner's request: check the operands, and choose the variant of the op that fits the call."""
    devices = [layout.device for layout in (*(into or ()), *layouts) if isinstance(layout, Meta)]
    if not devices:
        raise ArgumentError(f"{record.name}: at least one argument must be a tensor")
    for role, layout in zip(record.operands, layouts, strict=False):
        if layout is None and role.role not in ("optional", "absent"):
            kind = "a number" if role.role in ("scalar", "number") else "a tensor"
            raise ArgumentError(f"{record.called or record.name}: {role.name} must be {kind}, not None")
    if any(device is not devices[0] for device in devices):
        device_names = ", ".join(f"{o.device}" for o in layouts if isinstance(o, Meta))
        raise DeviceError(f"{record.name}: tensors on different devices ({device_names}); move them with .to(device)")
    if record.variants:
        present = tuple(m is not None for o, m in zip(record.operands, layouts, strict=True) if o.role == "optional")
        name = record.variants.get(present)
        if name is not None:
            record = registry[name]
    if record.bare and not grad_mask:
        record = registry[record.bare]
    return request_class(record, tuple(layouts), statics, devices[0], into)


def plan_for(record: OpRecord, operands: Sequence[object], statics: Statics = ()) -> Planned:
    """Plan a call without running it: for `weftgrad show`, for compiling ahead of time, and to infer shapes.

    Args:
        record: The op.
        operands: Tensors, Python numbers or None.
        statics: The static arguments.

    Returns:
        The planner's result.
    """
    request = _request(record, _layouts(record, operands), statics, None, 0, Request)
    return planner(request.record.kind)(request)


native.bind_families(
    context, signature_of, ABOVE_ONE, BELOW_ZERO, schedules.has_settled, _drop_oldest, device.meta, device._recent,
    _PLANS_BETWEEN_CHECKS,
)  # fmt: skip
