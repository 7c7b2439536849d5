"""Dispatch of ops: every op on tensors ends in `call(record, operands, statics)`.

A call is a dictionary look-up and a launch. The key holds the record, the static arguments, each operand's `Meta`
(interned: dtype, shape, strides, device) or number type, and a bit mask of the operands that need gradients. The value
is a `Plan`: the layouts of the results, and a function that sets the kernel arguments and enqueues.

Plans are cheap to make (`plans`), because compiled kernels are cached separately under keys without sizes. Each thread
has its own plans, because kernel objects are not thread-safe.

`call`, `call_into` and `empty` are C functions from `native_dispatch` that behave like `_call`, `_call_into` and
`_empty` here. The planners are in `kinds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .autograd.node import Node
from .context import _local
from .device import Meta, meta
from .errors import ArgumentError, GradientError, ShapeError
from .layout import are_disjoint
from .native_dispatch import bind
from .overriding import MISSING, intercept
from .overriding import classes as _overriding_classes
from .plans import Plan, make_plan, plan_for
from .records import OpRecord
from .storage import Storage
from .tensor import Extra, Tensor

if TYPE_CHECKING:
    from .backends.protocol import Stream
    from .call_types import Call, CallInto, CallMultiple, CallResult, Empty, Statics

__all__ = [
    "Plan", "call", "call_into", "call_multiple", "empty", "fit", "plan_for", "plan_into", "set_inplace_history",
]  # fmt: skip

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


def _call(record: OpRecord, operands: Sequence[object], statics: Statics = ()) -> CallResult:
    """Run an op and return its result, or a tuple of its results.

    Args:
        record: The op.
        operands: Tensors, numbers or None (an optional operand that is absent), in the order of the record.
        statics: The static arguments, in the order of the record.

    Raises:
        ShapeError, DTypeError, DeviceError, ArgumentError: The message names the op, shapes, dtypes and the remedy.
    """
    if _overriding_classes and not _overriding_classes.isdisjoint(map(type, operands)):
        handled = intercept(operands)
        if handled is not MISSING:
            return handled
    state = _local.state
    if state.mode is not None:
        return state.mode.call(record, operands, statics, None, False)
    key: list[object] = [record, statics]
    grad_mask = 0
    grad = state.grad
    bit = 1
    for operand in operands:
        if isinstance(operand, Tensor):
            key.append(operand.meta)
            extra = operand.extra
            if extra is not None and extra.base is not None and extra.seen_rewrites != extra.base.extra.rewrites:  # type: ignore[union-attr]
                refresh(operand)  # a view whose base was written in place
            if grad and operand.needs_grad:
                grad_mask |= bit
        elif operand is None:
            key.append(None)
        else:
            key.append(type(operand))
        bit += bit
    key.append(grad_mask)
    plan = state.plans.get(tuple(key))
    if plan is None:
        if (python_operands := _with_python_numbers(operands)) is not None:
            return _call(record, python_operands, statics)
        if (handled := intercept(operands)) is not MISSING:
            return handled
        plan = make_plan(state, tuple(key), record, operands, statics, grad_mask)
        if call is not _call and state.plans.get(tuple(key)) is plan:
            return call(record, operands, statics)  # the rest is faster in C
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
                out.needs_grad = True
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
        out.needs_grad = True
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
    if _overriding_classes and not _overriding_classes.isdisjoint(map(type, (*operands, *outs))):
        handled = intercept(operands, outs)
        if handled is not MISSING:
            return handled
    state = _local.state
    if state.mode is not None:
        return state.mode.call(record, operands, statics, outs, in_place)
    if not in_place and not all(isinstance(out, Tensor) for out in outs):
        if (handled := intercept(operands, outs)) is not MISSING:
            return handled
        raise ArgumentError(f"{record.name}: out must be a tensor, not {', '.join(type(o).__name__ for o in outs)}")
    refresh_views(*operands, *outs)
    grad_mask = 0
    if state.grad:
        for i, operand in enumerate(operands):
            if isinstance(operand, Tensor) and operand.needs_grad:
                grad_mask |= 1 << i
        if not in_place and (grad_mask or any(o.needs_grad for o in outs)):
            raise GradientError(f"{record.name}(out=...): out= does not record gradients; use it under no_grad()")
    if not in_place and not all(out.meta.numel for out in outs):
        operands = _fit_outputs(record, operands, statics, outs)
    for out in outs:
        for operand in operands:
            if isinstance(operand, Tensor) and operand.storage is out.storage and operand is not out:
                _check_overlap(record, out, operand)
        if state.grad and grad_mask | out.needs_grad:
            _inplace_history.check(record, out)
    key = (record, statics, *map(_key_part, operands), grad_mask, tuple(o.meta for o in outs))
    plan = state.plans.get(key)
    if plan is None:
        if (python_operands := _with_python_numbers(operands)) is not None:
            return _call_into(record, python_operands, statics, outs, in_place=in_place)
        if (handled := intercept(operands, outs)) is not MISSING:
            return handled
        plan = make_plan(state, key, record, operands, statics, grad_mask, tuple(o.meta for o in outs))
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
    if state.grad and in_place and (node is not None or outs[0].needs_grad):
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
    return state.plans.get(key) or make_plan(state, key, record, operands, statics, 0, into)


def refresh(view: Tensor) -> None:
    """Update the autograd history of a view after its base was written in place."""
    _inplace_history.refresh(view)


def refresh_views(*operands: object) -> None:
    """Call `refresh` on each view among `operands` whose base was written in place.

    Call this before reading an operand's `needs_grad` or `node`. Operands that are not tensors are skipped.
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
    return any(isinstance(operand, Tensor) and operand.needs_grad for operand in operands)


def _with_python_numbers(operands: Sequence[object]) -> list[object] | None:
    """Return `operands` with NumPy scalars converted to Python numbers, or None if there is nothing to convert.

    The planner accepts Python numbers only. `np.float64` is a subclass of `float` and stays.
    """
    for operand in operands:
        if isinstance(operand, np.generic) and not isinstance(operand, _NUMBERS):
            return [o.item() if isinstance(o, np.generic) and not isinstance(o, _NUMBERS) else o for o in operands]
    return None


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
