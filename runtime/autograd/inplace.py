"""Histories after a write in place.

A tensor written to becomes the result of the call that wrote it. If it is a view, its base becomes the result of
"copy these elements into that slice", and every view of that base gets its history from the base's new one when it is
next asked for (`refresh`): so gradients are right whichever of the aliases is used afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..device import Meta, meta
from ..dispatch import call, call_into, empty
from ..errors import GradientError
from ..records import Operand, OpRecord, registry
from ..tensor import Extra, Tensor
from .node import Node, Recipe

__all__ = ["Retained", "before", "check", "rebase", "refresh"]

_COPY_SLICE = OpRecord("copy_slice", "custom", (Operand("base"),), gradients={})


def check(record: OpRecord, out: Tensor) -> None:
    """Raise `GradientError` if `out` is a leaf that wants a gradient, or a view of one."""
    base = out.extra.base if out.extra is not None else None
    if out.needs and out.node is None:
        raise GradientError(
            f"{record.name}_: a leaf tensor that requires grad is being written in place, so its gradient would be "
            "lost; do it under no_grad(), or on a clone()"
        )
    # A leaf that is a view itself has views whose base is its own: they want gradients, and that base has no history.
    if base is not None and base.storage is out.storage and (out.needs or base.needs) and base.node is None:
        raise GradientError(
            f"{record.name}_: a view of a leaf tensor that requires grad is being written in place; "
            "do it under no_grad(), or on a clone()"
        )


def before(target: Tensor) -> Tensor:
    """What `target`, about to be written, holds now: memory of its own, but the same history, for backward to read."""
    kept: Tensor = call(registry["copy"], (Tensor(target.storage, target.meta, target.start),), (None,))
    kept.node, kept.output, kept.needs = target.node, target.output, target.needs
    return kept


def refresh(view: Tensor) -> None:
    """Give a view of a rewritten base its history: a slice of what the base now is."""
    extra = view.extra
    assert extra is not None
    assert extra.base is not None
    assert extra.base.extra is not None
    base = extra.base
    extra.seen = extra.base.extra.rewrites
    if base.storage is not view.storage:  # it was given other memory, and this is a view of nothing
        extra.base = None
        return
    if view.needs and view.node is None and not base.needs:  # a leaf over memory that a constant shares
        return
    old, view.needs = view.node, base.needs
    if base.needs:
        view.node = Node(_view_recipe(base, view), (base,), (view,), _geometry(base, view))
        view.output = 0
    else:
        view.node = None
    _retain(view, old)


def _geometry(base: Tensor, view: Tensor) -> tuple[Any, ...]:
    """The arguments of `as_strided` that make `view` of `base`."""
    return (view.meta.shape, view.meta.strides, (view.start - base.start) // view.meta.dtype.itemsize)


def _view_recipe(base: Tensor, view: Tensor) -> Recipe:
    record = registry["as_strided"]
    rule = registry.gradients(record)["input"]
    return Recipe(record, (base.meta,), (view.meta,), [(0, rule)], (True,), _geometry(base, view))


def rebase(out: Tensor, node: Node | None) -> None:
    """Make the history of `out`, which was just written, that of `node`.

    None is that of a constant. A tensor that has a history keeps it then, with gradients of 0.
    """
    extra, old = out.extra, out.node
    base = extra.base if extra is not None else None
    if base is not None and base.storage is not out.storage:  # it was given other memory
        base = extra.base = None  # type: ignore[union-attr]
    if base is None:
        if node is None or (out.node is not None and node.recipe.record.name == "copy"):
            node = _overwritten(out, node)
        out.node, out.output, out.needs = node, 0, True
        if extra is not None:
            extra.rewrites += 1
            _retain(out, old)
        return
    if not base.needs and node is None:
        return
    slice_node, old_of_base = _slice_node(base, out, node), base.node
    base.node, base.output, base.needs = slice_node, 0, True
    base.more().rewrites += 1
    _retain(base, old_of_base)
    refresh(out)


class Retained:
    """The hook of `retain_grad`: keeps a copy of a result's gradient in `grad`, as all other hooks have left it."""

    __slots__ = ("_extra",)

    def __init__(self, extra: Extra):
        self._extra = extra

    def __call__(self, grad: Tensor) -> None:
        have = self._extra.grad
        self._extra.grad = call(registry["copy"], (grad,), (None,)) if have is None else have + grad


def _retain(out: Tensor, old: Node | None) -> None:
    """Let the gradient that `retain_grad` keeps be that of what `out` holds now, and not of its `old` node's result."""
    assert out.extra is not None
    if out.extra.retains and out.node is not None:
        key, hook = out.extra.retains
        if old is not None and old.hooks:
            old.hooks.pop(key, None)
        out.node.hooks = out.node.hooks or {}
        out.node.hooks[key] = (out.output, hook)  # type: ignore[assignment]


def _overwritten(out: Tensor, source: Node | None) -> Node:
    """The node of a tensor with a history in which a constant, or what `source` copied, took every element's place."""
    node = Node(Recipe(_COPY_SLICE, (out.meta,), (out.meta,), (), (True,)), (), (), ())
    node.edges = ((out.node, out.output), *(() if source is None else source.edges))

    def backward(_: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        from ..context import state
        from .rules import gradients_of

        copied = () if source is None else gradients_of(source, grads, state())
        return [call(registry["zero_like"], (grads[0],)), *copied]

    node.function = _Written(backward, source)
    return node


class _Written:
    """The way back through a write, and through the call that computed what was written."""

    def __init__(self, backward: Callable[..., Any], inner: Node | None):
        self._backward, self._inner = backward, inner

    def __call__(self, node: Node, grads: Sequence[Tensor | None]) -> Any:
        return self._backward(node, grads)

    def release(self) -> None:
        if self._inner is not None:
            self._inner.release()


def _slice_node(base: Tensor, view: Tensor, inner: Node | None) -> Node:
    """The base after `view` of it was written by `inner`.

    Edges: the base's old history, then those operands of `inner` that are not the view itself. Its gradient: the base's
    with the slice replaced by what `inner` passes on to the view (nothing, if it was overwritten).
    """
    recipe = Recipe(_COPY_SLICE, (base.meta,), (base.meta,), (), (True,))
    node = Node(recipe, (), (), ())
    own = 0 if inner is not None and 0 in inner.recipe.edges and inner.recipe.edges[0] == 0 else None
    if inner is not None and inner.recipe.record.name == "copy":
        own = None  # copy_(view, source): its one operand is the source
    others = () if inner is None else tuple(e for k, e in enumerate(inner.edges) if k != own)
    base_edge = (base.node, base.output) if base.node is not None else (base, 0)
    wants_base = base.needs
    node.edges = ((base_edge,) if wants_base else ()) + others
    geometry = _geometry(base, view)
    base_layout = base.meta

    def backward(_: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        from ..context import state
        from .rules import gradients_of

        grad = grads[0]
        assert grad is not None
        found: list[Tensor | None] = []
        piece = call(registry["as_strided"], (_laid_out(grad, base_layout),), geometry)
        passed = list(gradients_of(inner, [piece], state())) if inner is not None else []
        if wants_base:
            whole = _laid_out(grad, base_layout, copy=True)
            target = call(registry["as_strided"], (whole,), geometry)
            if own is None:
                call_into(registry["fill"], (target, 0.0), (), (target,), in_place=True)
            else:
                call_into(registry["copy"], (passed[own],), (None,), (target,), in_place=True)
            found.append(whole)
        found += [p for k, p in enumerate(passed) if k != own]
        return found

    node.function = _Written(backward, inner)
    return node


def _laid_out(grad: Tensor, layout: Meta, *, copy: bool = False) -> Tensor:
    """`grad` with the strides of `layout`, which the geometry of a slice supposes; a copy if `copy` or needed."""
    if grad.meta.strides == layout.strides and not copy:
        return grad
    made = empty(meta(grad.meta.dtype, layout.shape, layout.strides, layout.device))
    return call_into(registry["copy"], (grad,), (None,), (made,), in_place=True)  # type: ignore[no-any-return]
