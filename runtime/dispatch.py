"""Dispatch of ops: every op on tensors ends in `call(record, operands, statics)`.

A call is a dictionary look-up and a launch. The key holds the record, the static arguments, each operand's `Meta`
(interned: dtype, shape, strides, device) or number type, and a bit mask of the operands that need gradients. The value
is a `Plan`: the layouts of the results, and a function that sets the kernel arguments and enqueues.

Plans are cheap to make, because compiled kernels are cached separately under keys without sizes. Each thread has its
own plans, because kernel objects are not thread-safe. The number of plans and their memory are bounded.

`call`, `call_into` and `empty` are C functions from `native_dispatch` that behave like `_call`, `_call_into` and
`_empty` here. The planners are in `kinds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from . import schedules
from .autograd.node import Node, Recipe, recipe_of
from .context import State, _local
from .device import Device, Meta, meta
from .errors import ArgumentError, DeviceError, GradientError, ShapeError
from .kinds import Planned, Request
from .layout import are_disjoint, has_internal_overlap
from .native_dispatch import bind
from .planners import planner
from .records import OpRecord, registry
from .storage import Storage
from .tensor import Extra, Tensor

if TYPE_CHECKING:
    from .backends.protocol import Driver, Stream
    from .call_types import Call, CallInto, CallMultiple, CallResult, Empty, Launcher, Statics

__all__ = [
    "Plan", "call", "call_into", "call_multiple", "empty", "fit", "plan_for", "plan_into", "set_inplace_history",
]  # fmt: skip

_MAX_PLANS = 16384  # per thread
_MAX_PLAN_BYTES = 64 << 20  # per thread; convolutions, with three steps per plan, reach this limit first
_PLANS_BETWEEN_CHECKS = 256
# Estimated memory of a plan, from the growth of the process over plans of 15 ops that have 0 to 3 steps.
_PLAN_BYTES, _STEP_BYTES, _OPERAND_BYTES = 1300, 3300, 64
_NUMBERS = (bool, int, float)


class InplaceHistory(Protocol):
    """Functions that keep the autograd history of tensors written in place (`autograd.inplace`, which calls ops)."""

    def check(self, record: OpRecord, out: Tensor) -> None: ...
    def copy_before_write(self, target: Tensor) -> Tensor: ...
    def rebase(self, out: Tensor, node: Node | None) -> None: ...
    def refresh(self, view: Tensor) -> None: ...


_inplace_history: InplaceHistory


def set_inplace_history(functions: InplaceHistory) -> None:
    """Set the functions that in-place ops call, the module `autograd.inplace`, which imports this one."""
    global _inplace_history
    _inplace_history = functions


class Plan:
    """A cached recipe for running all calls with the same record, static arguments and layouts.

    Attributes:
        planned: The planner's result.
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
        self.planned = planned
        self.device = request.device
        self.driver: Driver = request.device.driver if planned.view is None else None  # type: ignore[assignment]
        self.outputs = tuple((m, m.nbytes) for m in planned.outputs)
        self.tensors = tuple(i for i, o in enumerate(operands) if isinstance(o, Meta))
        self.numbers = tuple(i for i, o in enumerate(operands) if o is not None and not isinstance(o, Meta))
        self.has_only_tensors = len(self.tensors) == len(operands)
        self.view = planned.view
        self.visible = len(self.outputs) - sum(o.saved for o in request.record.outputs)
        self.recipe = recipe
        self.run: Launcher | None = None
        if planned.steps:
            self.run = request.device.driver.launcher(planned.steps, planned.scratch)
        is_single_launch = len(self.outputs) == 1 and self.has_only_tensors and self.run is not None and recipe is None
        self.single = self.outputs[0] if is_single_launch and self.view is None else None
        self.nbytes = _PLAN_BYTES + _OPERAND_BYTES * (len(operands) + len(request.statics))
        self.nbytes += sum(_STEP_BYTES + len(step.geometry) for step in planned.steps)


def _call(record: OpRecord, operands: Sequence[object], statics: Statics = ()) -> CallResult:
    """Run an op and return its result, or a tuple of its results.

    Args:
        record: The op.
        operands: Tensors, numbers or None (an optional operand that is absent), in the order of the record.
        statics: The static arguments, in the order of the record.

    Raises:
        ShapeError, DTypeError, DeviceError, ArgumentError: The message names the op, shapes, dtypes and the remedy.
    """
    state = _local.state
    if state.mode is not None:
        return state.mode.call(record, operands, statics, None, False)
    key: list[object] = [record, statics]
    needs = 0
    grad = state.grad
    bit = 1
    for operand in operands:
        if isinstance(operand, Tensor):
            key.append(operand.meta)
            extra = operand.extra
            if extra is not None and extra.base is not None and extra.seen_rewrites != extra.base.extra.rewrites:  # type: ignore[union-attr]
                refresh(operand)  # a view whose base was written in place
            if grad and operand.needs:
                needs |= bit
        elif operand is None:
            key.append(None)
        else:
            key.append(type(operand))
        bit += bit
    key.append(needs)
    plan = state.plans.get(tuple(key))
    if plan is None:
        if (python_operands := _with_python_numbers(operands)) is not None:
            return _call(record, python_operands, statics)
        plan = _make_plan(state, tuple(key), record, operands, statics, needs)
    if plan.view is not None:
        return _view(plan, operands, statics)
    device, driver = plan.device, plan.driver
    streams = state.streams
    stream = driver.default_stream if streams is None else streams.get(device) or driver.default_stream
    if plan.single is not None:
        layout, nbytes = plan.single
        storage = driver.allocate(nbytes, stream)
        out = Tensor(storage, layout, storage.start)
        plan.run((*operands, out), (), stream)  # type: ignore[misc]
        return out
    outs = []
    for layout, nbytes in plan.outputs:
        if nbytes:
            storage = driver.allocate(nbytes, stream)
            outs.append(Tensor(storage, layout, storage.start))
        else:
            outs.append(Tensor(Storage(device, 0, None, None, None, 0), layout, 0))
    if plan.run is not None:
        if plan.has_only_tensors:
            plan.run([*operands, *outs], (), stream)
        else:
            plan.run([*[operands[i] for i in plan.tensors], *outs], [operands[i] for i in plan.numbers], stream)
    if plan.recipe is not None:
        node = Node(plan.recipe, operands, outs, statics)
        for i, differentiable in enumerate(plan.recipe.differentiable):
            if differentiable:
                out = outs[i]
                out.needs = True
                out.node = node
                out.output = i
    return outs[0] if plan.visible == 1 else tuple(outs[: plan.visible])


def _view(plan: Plan, operands: Sequence[object], statics: Statics) -> Tensor:
    """Return a view of `operands[0]`: a tensor on the same storage that follows the in-place writes to its base."""
    source: Tensor = operands[0]  # type: ignore[assignment]
    out = Tensor(source.storage, plan.outputs[0][0], source.start + plan.view)  # type: ignore[operator]
    extra = source.extra
    if extra is None:
        extra = source.extra = Extra()
    base = source if extra.base is None else extra.base
    out.extra = Extra(base, base.extra.rewrites)  # type: ignore[union-attr]
    if plan.recipe is not None:
        out.node = Node(plan.recipe, operands, (out,), statics)
        out.needs = True
    return out


def _call_into(
    record: OpRecord, operands: Sequence[object], statics: Statics, outs: Sequence[Tensor], *, in_place: bool
) -> CallResult:
    """Run an op and write its results to `outs`: for in-place ops, and for `out=`.

    The versions of the written storages are incremented. An in-place op becomes the newest node in the history of
    `outs[0]`. If backward needs the values that an in-place op overwrites, as for `x.sin_()`, a copy of them is saved.

    Args:
        record: The op.
        operands: Tensors, numbers or None.
        statics: The static arguments.
        outs: The tensors to write.
        in_place: True for an in-place op: `outs[0]` is `operands[0]`. False for `out=`, which records no gradients.

    Raises:
        ShapeError: Elements of an output share memory with each other, or with different elements of an operand.
        GradientError: A leaf that requires a gradient would be written, or `out=` is used while gradients are recorded.
    """
    state = _local.state
    if state.mode is not None:
        return state.mode.call(record, operands, statics, outs, in_place)
    if not in_place and not all(isinstance(out, Tensor) for out in outs):
        raise ArgumentError(f"{record.name}: out must be a tensor, not {', '.join(type(o).__name__ for o in outs)}")
    refresh_views(*operands, *outs)
    needs = 0
    if state.grad:
        for i, operand in enumerate(operands):
            if isinstance(operand, Tensor) and operand.needs:
                needs |= 1 << i
        if not in_place and (needs or any(o.needs for o in outs)):
            raise GradientError(f"{record.name}(out=...): out= does not record gradients; use it under no_grad()")
    if not in_place and not all(out.meta.numel for out in outs):
        operands = _fit_outputs(record, operands, statics, outs)
    for out in outs:
        for operand in operands:
            if isinstance(operand, Tensor) and operand.storage is out.storage and operand is not out:
                _check_overlap(record, out, operand)
        if state.grad and needs | out.needs:
            _inplace_history.check(record, out)
    key = (record, statics, *map(_key_part, operands), needs, tuple(o.meta for o in outs))
    plan = state.plans.get(key)
    if plan is None:
        if (python_operands := _with_python_numbers(operands)) is not None:
            return _call_into(record, python_operands, statics, outs, in_place=in_place)
        plan = _make_plan(state, key, record, operands, statics, needs, tuple(o.meta for o in outs))
    node = None
    if (recipe := plan.recipe) is not None:
        node_operands = operands
        if in_place and any(operands[i] is outs[0] for i in recipe.saved_operands):
            old_value = _inplace_history.copy_before_write(outs[0])
            node_operands = [old_value if operand is outs[0] else operand for operand in operands]
        node = Node(recipe, node_operands, outs, statics)
    driver = plan.driver
    streams = state.streams
    stream = driver.default_stream if streams is None else streams.get(plan.device) or driver.default_stream
    if plan.run is not None:
        tensors = [operands[i] for i in plan.tensors]
        plan.run([*tensors, *outs], [operands[i] for i in plan.numbers], stream)
    for out in outs:
        out.storage.version += 1
    if node is not None:
        node.refresh_saved_outputs(outs)
    if state.grad and in_place and (node is not None or outs[0].needs):
        _inplace_history.rebase(outs[0], node)
    return outs[0] if len(outs) == 1 else tuple(outs)


def _fit_outputs(
    record: OpRecord, operands: Sequence[object], statics: Statics, outs: Sequence[Tensor]
) -> Sequence[object]:
    """Resize each tensor of `outs` that has no elements to its result's shape, and return the operands to compute from.

    An operand that is also one of `outs` is replaced by a tensor with its old storage and layout.
    """
    output_layouts = plan_for(record, _with_python_numbers(operands) or operands, statics).outputs
    unaliased = [
        Tensor(o.storage, o.meta, o.start) if isinstance(o, Tensor) and any(o is out for out in outs) else o
        for o in operands
    ]
    for out, layout in zip(outs, output_layouts, strict=False):
        fit(out, layout.shape)
    return unaliased


def fit(out: Tensor, shape: tuple[int, ...]) -> None:
    """If `out` has no elements, resize it to `shape` and give it new memory. Otherwise do nothing."""
    if not out.meta.numel and out.meta.shape != shape:
        replacement = _empty(meta(out.meta.dtype, shape, None, out.meta.device))
        out.storage, out.meta, out.start = replacement.storage, replacement.meta, replacement.start
        if out.extra is not None:
            out.extra.base = None


def plan_into(record: OpRecord, operands: Sequence[object], statics: Statics, outs: Sequence[Tensor]) -> Plan:
    """Return the plan of a call that writes to `outs` and records nothing.

    For callers that launch one plan repeatedly, on tensors of the same layouts. They must check overlaps, increment
    the versions of the storages and handle dispatch modes themselves.
    """
    state = _local.state
    into = tuple(o.meta for o in outs)
    key = (record, statics, *map(_key_part, operands), 0, into)
    return state.plans.get(key) or _make_plan(state, key, record, operands, statics, 0, into)


def refresh(view: Tensor) -> None:
    """Update the autograd history of a view after its base was written in place."""
    _inplace_history.refresh(view)


def refresh_views(*operands: object) -> None:
    """Call `refresh` on each view among `operands` whose base was written in place.

    Call this before reading an operand's `needs` or `node`. Operands that are not tensors are skipped.
    """
    for operand in operands:
        if isinstance(operand, Tensor):
            extra = operand.extra
            if extra is not None and extra.base is not None and extra.seen_rewrites != extra.base.extra.rewrites:  # type: ignore[union-attr]
                refresh(operand)


def is_recorded(*operands: object) -> bool:
    """Return True if a call on `operands` is recorded: gradients are enabled, and an operand requires one."""
    if not _local.state.grad:
        return False
    refresh_views(*operands)
    return any(isinstance(operand, Tensor) and operand.needs for operand in operands)


def _with_python_numbers(operands: Sequence[object]) -> list[object] | None:
    """Return `operands` with NumPy scalars converted to Python numbers, or None if there is nothing to convert.

    The planner accepts Python numbers only. `np.float64` is a subclass of `float` and stays.
    """
    converted = [o.item() if isinstance(o, np.generic) and not isinstance(o, _NUMBERS) else o for o in operands]
    return converted if any(type(a) is not type(b) for a, b in zip(converted, operands, strict=True)) else None


def _key_part(operand: object) -> Meta | type | None:
    """Return what an operand adds to a plan's key: the layout of a tensor, the type of a number, or None."""
    if isinstance(operand, Tensor):
        return operand.meta
    return None if operand is None else type(operand)


def _check_overlap(record: OpRecord, out: Tensor, operand: Tensor) -> None:
    """Raise `ShapeError` if `operand` and `out` share memory, unless they are exactly the same elements."""
    has_same_layout = operand.meta.shape == out.meta.shape and operand.meta.strides == out.meta.strides
    if has_same_layout and operand.start == out.start and operand.meta.dtype.itemsize == out.meta.dtype.itemsize:
        return
    if operand.meta.numel and out.meta.numel and _extents_overlap(operand, out) and not _interleave(operand, out):
        raise ShapeError(
            f"{record.name}: the result and an operand share memory but are not the same elements; "
            "call .clone() on one of them first"
        )


def _interleave(a: Tensor, b: Tensor) -> bool:
    """Return True if two tensors whose extents overlap provably share no element, such as two columns of a matrix."""
    size = a.meta.dtype.itemsize
    if b.meta.dtype.itemsize != size:
        return False
    low = min(a.start, b.start)
    starts = ((a.start - low) // size, (b.start - low) // size)
    return are_disjoint((a.meta.shape, a.meta.strides, starts[0]), (b.meta.shape, b.meta.strides, starts[1]))


def _extents_overlap(a: Tensor, b: Tensor) -> bool:
    (a_low, a_high), (b_low, b_high) = _extent(a), _extent(b)
    return a_low < b_high and b_low < a_high


def _extent(tensor: Tensor) -> tuple[int, int]:
    """Return the offsets in the buffer of the first byte of a tensor's elements and of the byte after the last."""
    size = tensor.meta.dtype.itemsize
    low = high = tensor.start
    for extent, stride in zip(tensor.meta.shape, tensor.meta.strides, strict=True):
        span = (extent - 1) * stride * size
        low, high = (low + span, high) if span < 0 else (low, high + span)
    return low, high + size


def _make_plan(
    state: State,
    key: tuple[object, ...],
    record: OpRecord,
    operands: Sequence[object],
    statics: Statics,
    needs: int,
    into: tuple[Meta, ...] | None = None,
) -> Plan:
    """Plan a call, and store the plan under `key`. into: layouts of existing outputs (`out=`, in place), or None."""
    for layout in into or ():
        if has_internal_overlap(layout):
            raise ShapeError(
                f"{record.name}: cannot write to a tensor of shape {list(layout.shape)} with strides "
                f"{list(layout.strides)}: several indices are the same element; call .clone() first"
            )
    plans = state.plans  # read before planning: if `forget_plans` runs meanwhile, this plan must be forgotten, too
    request = _request(record, operands, statics, into, needs)
    variant = request.record
    planned = planner(variant.kind)(request)
    result_dtype = planned.outputs[0].dtype if needs and "dtype" in variant.statics else None
    if result_dtype is not None and result_dtype.kind != "f" and variant.kind in ("reduction", "scan"):
        raise GradientError(
            f"{request.where()}: a result of {result_dtype.name} has no gradient, but one of the operands wants it; "
            "give a floating dtype, or take .detach() of the operands"
        )
    recipe = recipe_of(variant, request.operands, planned.outputs, needs, statics) if needs else None
    plan = Plan(planned, request, recipe)
    if schedules.on_plan is not None:
        schedules.on_plan(plan, request, operands)
    if plans and len(plans) % _PLANS_BETWEEN_CHECKS == 0:
        _drop_oldest(plans)
    plans[key] = plan
    return plan


def _drop_oldest(plans: dict[tuple[object, ...], Plan]) -> None:
    """If plans exceed the limit of their number or memory, drop the oldest until both are at 3/4 of their limits."""
    sizes = [(key, plan.nbytes) for key, plan in list(plans.items())]  # dicts keep insertion order
    count, nbytes = len(sizes), sum(size for _, size in sizes)
    if count < _MAX_PLANS and nbytes < _MAX_PLAN_BYTES:
        return
    for key, size in sizes:
        if count <= _MAX_PLANS * 3 // 4 and nbytes <= _MAX_PLAN_BYTES * 3 // 4:
            break
        plans.pop(key, None)  # a finalizer may have run ops meanwhile, and dropped the plan
        count, nbytes = count - 1, nbytes - size


def _request(
    record: OpRecord, operands: Sequence[object], statics: Statics, into: tuple[Meta, ...] | None, needs: int = 0
) -> Request:
    """Build the planner's request: check the operands, and choose the variant of the op that fits the call."""
    layouts: list[Meta | type | None] = []
    device: Device | None = into[0].device if into else None
    other_devices: set[Device] = set()
    for operand in operands:
        if isinstance(operand, Tensor):
            layout = operand.meta
            layouts.append(layout)
            if device is None:
                device = layout.device
            elif device is not layout.device:
                other_devices.add(layout.device)
        elif operand is None:
            layouts.append(None)
        elif isinstance(operand, _NUMBERS):
            layouts.append(next(t for t in _NUMBERS if isinstance(operand, t)))
        else:
            raise ArgumentError(
                f"{record.name}: takes tensors and numbers, not {type(operand).__name__}; make a tensor with tensor()"
            )
    if device is None:
        raise ArgumentError(f"{record.name}: at least one argument must be a tensor")
    for role, layout_or_type in zip(record.operands, layouts, strict=False):
        if layout_or_type is None and role.role not in ("optional", "absent"):
            kind = "a number" if role.role in ("scalar", "number") else "a tensor"
            raise ArgumentError(f"{record.called or record.name}: {role.name} must be {kind}, not None")
    if other_devices:
        device_names = ", ".join(f"{o.meta.device}" for o in operands if isinstance(o, Tensor))
        raise DeviceError(f"{record.name}: tensors on different devices ({device_names}); move them with .to(device)")
    if record.variants:
        present = tuple(m is not None for o, m in zip(record.operands, layouts, strict=True) if o.role == "optional")
        name = record.variants.get(present)
        if name is not None:
            record = registry[name]
    if record.bare and not needs:
        record = registry[record.bare]
    return Request(record, tuple(layouts), statics, device, into)


def plan_for(record: OpRecord, operands: Sequence[object], statics: Statics = ()) -> Planned:
    """Plan a call without running it: for `weftgrad show`, for compiling ahead of time, and to infer shapes."""
    request = _request(record, operands, statics, None)
    return planner(request.record.kind)(request)


def _empty(layout: Meta, stream: Stream | None = None) -> Tensor:
    """Return an uninitialised tensor of `layout`. If its strides leave gaps, the memory includes them."""
    device = layout.device
    if not layout.numel:
        return Tensor(Storage(device, 0, None, None, None, 0), layout, 0)
    if stream is None:
        streams = _local.state.streams
        stream = (streams or {}).get(device) or device.driver.default_stream
    extent = 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))
    storage = device.driver.allocate(extent * layout.dtype.itemsize, stream)
    return Tensor(storage, layout, storage.start)


call: Call
call_into: CallInto
empty: Empty
# A call returns a tensor, or a tuple of tensors if the op has several visible results. Type checkers cannot know which:
# the record says so. Hence the two names; `call_multiple` is for ops with several results.
call, call_into, empty = bind(Plan, _call, _call_into, _empty)  # type: ignore[arg-type]
call_multiple: CallMultiple = call  # type: ignore[assignment]
