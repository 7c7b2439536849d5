"""The one choke point: every op of every tensor ends in `call(record, operands, statics)`.

A call is a look-up and a launch. The key holds the record, the static arguments, each operand's `Meta` (interned:
dtype, shape, strides, device) or number type, and which operands want gradients. Behind it lies a `Plan`: the results'
layouts and a function that sets arguments and enqueues. Plans are cheap to make (their kernels are kept apart, under
keys without sizes) and their number is bounded; they belong to a thread, because kernel objects do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from . import native, schedules
from .autograd.node import Node, Recipe, recipe_of
from .context import State, _local
from .device import Device, Meta, meta
from .errors import ArgumentError, DeviceError, GradientError, ShapeError
from .kinds import Planned, Request, planner
from .layout import disjoint, has_internal_overlap
from .records import OpRecord, registry
from .storage import Storage
from .tensor import Extra, Tensor

__all__ = ["Plan", "call", "call_into", "empty", "fit", "plan_for", "plan_into"]

_MOST_PLANS = 16384  # of a thread
_MOST_PLAN_BYTES = 64 << 20  # of a thread: plans of convolutions, of three steps each, reach this bound first
_PLANS_BETWEEN_CHECKS = 256
# What a plan takes: by the growth of the process over plans of 15 ops, which have 0 to 3 steps.
_PLAN_BYTES, _STEP_BYTES, _OPERAND_BYTES = 1300, 3300, 64
_NUMBERS = (bool, int, float)


class Plan:
    """What one combination of record, statics and layouts needs.

    outputs: (layout, bytes) of each result. run: the launcher, None where there is nothing to launch. tensors,
    numbers: positions of the tensors and of the numbers among the operands; whole: all operands are tensors.
    view: bytes by which a view starts after its operand. recipe: how to record the call for backward, or None.
    single: the result's layout and bytes where all that there is to do is to compute it from tensors. visible: how many
    of the results callers see, the first. nbytes: an estimate of the memory that the plan takes.
    """

    __slots__ = (
        "device", "driver", "nbytes", "numbers", "outputs", "planned", "recipe", "run", "single", "tensors", "view",
        "visible", "whole",
    )  # fmt: skip

    def __init__(self, planned: Planned, request: Request, recipe: Recipe | None):
        operands = request.operands
        self.planned = planned
        self.device = request.device
        self.driver: Any = request.device.driver if planned.view is None else None  # a view needs none
        self.outputs = tuple((m, m.nbytes) for m in planned.outputs)
        self.tensors = tuple(i for i, o in enumerate(operands) if isinstance(o, Meta))
        self.numbers = tuple(i for i, o in enumerate(operands) if o is not None and not isinstance(o, Meta))
        self.whole = len(self.tensors) == len(operands)
        self.view = planned.view
        self.visible = len(self.outputs) - sum(o.saved for o in request.record.outputs)
        self.recipe = recipe
        self.run = request.device.driver.launcher(planned.steps, planned.scratch) if planned.steps else None
        plain = len(self.outputs) == 1 and self.whole and self.run is not None and recipe is None
        self.single = self.outputs[0] if plain and self.view is None else None
        self.nbytes = _PLAN_BYTES + _OPERAND_BYTES * (len(operands) + len(request.statics))
        self.nbytes += sum(_STEP_BYTES + len(step.geometry) for step in planned.steps)


def _call(record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...] = ()) -> Any:
    """Run `record` on `operands` (tensors, numbers or None, in the record's order); a Tensor or a tuple of them.

    Raises `ShapeError`, `DTypeError`, `DeviceError` or `ArgumentError`, naming the op, shapes, dtypes and the remedy.
    """
    state = _local.state
    if state.mode is not None:
        return state.mode.call(record, operands, statics, None, False)
    key: list[Any] = [record, statics]
    needs = 0
    grad = state.grad
    bit = 1
    for operand in operands:
        if isinstance(operand, Tensor):
            key.append(operand.meta)
            extra = operand.extra
            if extra is not None and extra.base is not None and extra.seen != extra.base.extra.rewrites:  # type: ignore[union-attr]
                refresh(operand)  # a view whose base was written to since
            if grad and operand.needs:
                needs |= bit
        elif operand is None:
            key.append(None)
        else:
            key.append(type(operand))
        bit += bit
    key.append(needs)
    try:
        plan = state.plans[tuple(key)]
    except KeyError:
        if (numbers := _of_python(operands)) is not None:
            return _call(record, numbers, statics)
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
        if plan.whole:
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


def _view(plan: Plan, operands: Sequence[Any], statics: tuple[Any, ...]) -> Tensor:
    source: Tensor = operands[0]
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
    record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...], outs: Sequence[Tensor], *, in_place: bool
) -> Any:
    """Run `record` with its results written to `outs`: an in-place form (`outs[0]` is `operands[0]`) or `out=`.

    Bumps the versions of what is written, and for an in-place op makes `outs[0]`'s history that of this call. Where
    backward needs what an in-place op writes over, as in `x.sin_()`, a copy of it is saved.
    Raises `ShapeError` for results that overlap themselves or another operand, `GradientError` for leaves in use.
    """
    state = _local.state
    if state.mode is not None:
        return state.mode.call(record, operands, statics, outs, in_place)
    if not in_place and not all(isinstance(out, Tensor) for out in outs):
        raise ArgumentError(f"{record.name}: out must be a tensor, not {', '.join(type(o).__name__ for o in outs)}")
    freshen(*operands, *outs)
    needs = 0
    if state.grad:
        for i, operand in enumerate(operands):
            if isinstance(operand, Tensor) and operand.needs:
                needs |= 1 << i
        if not in_place and (needs or any(o.needs for o in outs)):
            raise GradientError(f"{record.name}(out=...): out= does not record gradients; use it under no_grad()")
    if not in_place and not all(out.meta.numel for out in outs):
        operands = _fitted(record, operands, statics, outs)
    for out in outs:
        for operand in operands:
            if isinstance(operand, Tensor) and operand.storage is out.storage and operand is not out:
                _check_overlap(record, out, operand)
        if state.grad and needs | out.needs:
            _inplace().check(record, out)
    key = (record, statics, *map(_part, operands), needs, tuple(o.meta for o in outs))
    plan = state.plans.get(key)
    if plan is None:
        if (numbers := _of_python(operands)) is not None:
            return _call_into(record, numbers, statics, outs, in_place=in_place)
        plan = _make_plan(state, key, record, operands, statics, needs, tuple(o.meta for o in outs))
    node = None
    if (recipe := plan.recipe) is not None:
        kept = operands
        if in_place and any(operands[i] is outs[0] for i in recipe.saved_operands):
            before = _inplace().before(outs[0])
            kept = [before if operand is outs[0] else operand for operand in operands]
        node = Node(recipe, kept, outs, statics)
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
        _inplace().rebase(outs[0], node)
    return outs[0] if len(outs) == 1 else tuple(outs)


def _fitted(
    record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...], outs: Sequence[Tensor]
) -> Sequence[Any]:
    """`fit` each of `outs` to its result; the operands, which stay what they were where they are one of `outs`."""
    outputs = plan_for(record, _of_python(operands) or operands, statics).outputs
    kept = [Tensor(o.storage, o.meta, o.start) if any(o is out for out in outs) else o for o in operands]
    for out, layout in zip(outs, outputs, strict=False):
        fit(out, layout.shape)
    return kept


def fit(out: Tensor, shape: tuple[int, ...]) -> None:
    """Give `out`, where it has no elements, new memory for a result of `shape`; any other stays what it is."""
    if not out.meta.numel and out.meta.shape != shape:
        made = _empty(meta(out.meta.dtype, shape, None, out.meta.device))
        out.storage, out.meta, out.start = made.storage, made.meta, made.start
        if out.extra is not None:
            out.extra.base = None


def plan_into(record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...], outs: Sequence[Tensor]) -> Plan:
    """The plan of a call that writes to `outs` and records nothing, for callers that launch it again and again, on
    tensors of the same layouts: they look after overlaps, versions and modes themselves."""
    state = _local.state
    into = tuple(o.meta for o in outs)
    key = (record, statics, *map(_part, operands), 0, into)
    return state.plans.get(key) or _make_plan(state, key, record, operands, statics, 0, into)


def refresh(view: Tensor) -> None:
    """Give a view of a base that was written to its new history."""
    _inplace().refresh(view)


def freshen(*operands: Any) -> None:
    """`refresh` those of `operands`, tensors or not, that are views of a base that was written to since: before their
    `needs` or `node` is read."""
    for operand in operands:
        extra = operand.extra if isinstance(operand, Tensor) else None
        if extra is not None and extra.base is not None and extra.seen != extra.base.extra.rewrites:  # type: ignore[union-attr]
            refresh(operand)


def is_recorded(*operands: Any) -> bool:
    """Whether a call that reads these leaves a node: gradients are on, and one of the tensors wants one."""
    if not _local.state.grad:
        return False
    freshen(*operands)
    return any(isinstance(operand, Tensor) and operand.needs for operand in operands)


@cache
def _inplace() -> Any:
    from .autograd import inplace  # which calls ops itself

    return inplace


def _of_python(operands: Sequence[Any]) -> list[Any] | None:
    """The operands with Python's numbers for NumPy's, which have no plans; None if there are none of these."""
    found = [o.item() if isinstance(o, np.generic) and not isinstance(o, _NUMBERS) else o for o in operands]
    return found if any(type(a) is not type(b) for a, b in zip(found, operands, strict=True)) else None


def _part(operand: Any) -> Any:
    if isinstance(operand, Tensor):
        return operand.meta
    return None if operand is None else type(operand)


def _check_overlap(record: OpRecord, out: Tensor, operand: Tensor) -> None:
    """Raise `ShapeError` if `operand` shares memory with `out` without being the same elements."""
    same = operand.start == out.start and operand.meta.strides == out.meta.strides
    if same and operand.meta.shape == out.meta.shape and operand.meta.dtype.itemsize == out.meta.dtype.itemsize:
        return
    if operand.meta.numel and out.meta.numel and _extents_meet(operand, out) and not _interleave(operand, out):
        raise ShapeError(
            f"{record.name}: the result and an operand share memory but are not the same elements; "
            "call .clone() on one of them first"
        )


def _interleave(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are known to lie in one stretch of memory without a common element, as two columns do."""
    size = a.meta.dtype.itemsize
    if b.meta.dtype.itemsize != size:
        return False
    low = min(a.start, b.start)
    starts = ((a.start - low) // size, (b.start - low) // size)
    return disjoint((a.meta.shape, a.meta.strides, starts[0]), (b.meta.shape, b.meta.strides, starts[1]))


def _extents_meet(a: Tensor, b: Tensor) -> bool:
    (a_low, a_high), (b_low, b_high) = _extent(a), _extent(b)
    return a_low < b_high and b_low < a_high


def _extent(tensor: Tensor) -> tuple[int, int]:
    """The bytes of the buffer between which a tensor's elements lie."""
    size = tensor.meta.dtype.itemsize
    low = high = tensor.start
    for extent, stride in zip(tensor.meta.shape, tensor.meta.strides, strict=True):
        reach = (extent - 1) * stride * size
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return low, high + size


def _make_plan(
    state: State,
    key: tuple[Any, ...],
    record: OpRecord,
    operands: Sequence[Any],
    statics: tuple[Any, ...],
    needs: int,
    into: tuple[Meta, ...] | None = None,
) -> Plan:
    for layout in into or ():
        if has_internal_overlap(layout):
            raise ShapeError(
                f"{record.name}: cannot write to a tensor of shape {list(layout.shape)} with strides "
                f"{list(layout.strides)}: several indices are the same element; call .clone() first"
            )
    plans = state.plans  # before planning: what a setting that changes meanwhile makes stale goes with the old ones
    request = _request(record, operands, statics, into, needs)
    chosen = request.record
    planned = planner(chosen.kind)(request)
    wanted = planned.outputs[0].dtype if needs and "dtype" in chosen.statics else None
    if wanted is not None and wanted.kind != "f" and chosen.kind in ("reduction", "scan"):
        raise GradientError(
            f"{request.where()}: a result of {wanted.name} has no gradient, but one of the operands wants it; give a "
            "floating dtype, or take .detach() of the operands"
        )
    recipe = recipe_of(chosen, request.operands, planned.outputs, needs, statics) if needs else None
    plan = Plan(planned, request, recipe)
    if schedules.on_plan is not None:
        schedules.on_plan(plan, request, operands)
    if plans and len(plans) % _PLANS_BETWEEN_CHECKS == 0:
        _drop_oldest(plans)
    plans[key] = plan
    return plan


def _drop_oldest(plans: dict[Any, Plan]) -> None:
    """If plans are too many, or take too much memory, forget the oldest until a quarter of the room is free."""
    sizes = [(key, plan.nbytes) for key, plan in list(plans.items())]  # dicts keep insertion order
    count, nbytes = len(sizes), sum(size for _, size in sizes)
    if count < _MOST_PLANS and nbytes < _MOST_PLAN_BYTES:
        return
    for key, size in sizes:
        if count <= _MOST_PLANS * 3 // 4 and nbytes <= _MOST_PLAN_BYTES * 3 // 4:
            break
        plans.pop(key, None)  # a finalizer may plan, and drop plans, meanwhile
        count, nbytes = count - 1, nbytes - size


def _request(
    record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...], into: tuple[Meta, ...] | None, needs: int = 0
) -> Request:
    given: list[Any] = []
    device: Device | None = into[0].device if into else None
    scalar_devices: set[Device] = set()
    for operand in operands:
        if isinstance(operand, Tensor):
            layout = operand.meta
            given.append(layout)
            if device is None:
                device = layout.device
            elif device is not layout.device:
                scalar_devices.add(layout.device)
        elif operand is None:
            given.append(None)
        elif isinstance(operand, _NUMBERS):
            given.append(next(t for t in _NUMBERS if isinstance(operand, t)))
        else:
            raise ArgumentError(
                f"{record.name}: takes tensors and numbers, not {type(operand).__name__}; make a tensor with tensor()"
            )
    if device is None:
        raise ArgumentError(f"{record.name}: at least one argument must be a tensor")
    if scalar_devices:
        shown = ", ".join(f"{o.meta.device}" for o in operands if isinstance(o, Tensor))
        raise DeviceError(f"{record.name}: tensors on different devices ({shown}); move them with .to(device)")
    if record.variants:
        present = tuple(g is not None for o, g in zip(record.operands, given, strict=True) if o.role == "optional")
        name = record.variants.get(present)
        if name is not None:
            record = registry[name]
    if record.bare and not needs:
        record = registry[record.bare]
    return Request(record, tuple(given), statics, device, into)


def plan_for(record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...] = ()) -> Planned:
    """What a call would do, without doing it: for `weftgrad show`, prebuilding and shape-only runs."""
    request = _request(record, operands, statics, None)
    return planner(request.record.kind)(request)


def _empty(layout: Meta, stream: Any = None) -> Tensor:
    """An uninitialised tensor of `layout`; memory for its whole extent."""
    device = layout.device
    if not layout.numel:
        return Tensor(Storage(device, 0, None, None, None, 0), layout, 0)
    if stream is None:
        streams = _local.state.streams
        stream = (streams or {}).get(device) or device.driver.default_stream
    extent = 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))
    storage = device.driver.allocate(extent * layout.dtype.itemsize, stream)
    return Tensor(storage, layout, storage.start)


call: Callable[..., Any]
call_into: Callable[..., Any]
empty: Callable[..., Tensor]
call, call_into, empty = native.bind(Plan, _call, _call_into, _empty)
