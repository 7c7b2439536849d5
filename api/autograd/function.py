"""Differentiable functions with their own backward: `Function` and what it is told about a call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.autograd.node import Node, Recipe
from ..runtime.autograd.rules import cast_to, sum_to
from ..runtime.autograd.view_rules import zeros
from ..runtime.context import state
from ..runtime.device import Meta
from ..runtime.dispatch import freshen, is_recorded
from ..runtime.errors import GradientError
from ..runtime.records import OpRecord
from ..runtime.tensor import Tensor
from . import no_grad

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


class FunctionCtx:
    """What `forward` leaves for `backward` of one custom function call."""

    def __init__(self) -> None:
        self._saved: tuple[Tensor | None, ...] = ()
        self._versions: tuple[int, ...] = ()
        self.needs_input_grad: tuple[bool, ...] = ()
        self.dirty: tuple[Tensor, ...] = ()
        self.fixed: set[int] = set()
        self.freed = False

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward, with their versions."""
        self._saved = tensors
        self._versions = tuple(0 if t is None else t.storage.version for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What was saved. Raises `GradientError` if one was modified since, or the graph was freed."""
        if self.freed:
            raise GradientError("the saved tensors of this function were freed; pass retain_graph=True to backward")
        for tensor, version in zip(self._saved, self._versions, strict=True):
            if tensor is not None and tensor.storage.version != version:
                raise GradientError(
                    f"a tensor of shape {list(tensor.meta.shape)} saved for backward was modified in place: it has "
                    f"version {tensor.storage.version}, and was saved at version {version}"
                )
        return self._saved

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs `forward` wrote in place."""
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which results have no gradient."""
        self.fixed.update(id(t) for t in tensors)

    def set_materialize_grads(self, value: bool) -> None:
        """Accepted for compatibility; missing gradients are passed as None when False."""
        self.materialize = value

    materialize = True


_MOST_RECIPES = 256  # of a class


class Function:
    """A differentiable function with its own backward: define static `forward(ctx, …)` and `backward(ctx, *grads)`.

    Or `forward(…)` and `setup_context(ctx, inputs, output)`, which keeps what `backward` needs.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a Function defines forward(ctx, ...)")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Where a subclass defines it, `forward` takes no `ctx`, and this one notes what backward needs."""
        raise NotImplementedError("a Function that defines setup_context does so with (ctx, inputs, output)")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("a Function defines backward(ctx, *grads)")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call `forward`, and record `backward` if an argument requires grad."""
        ctx = FunctionCtx()
        freshen(*args)
        recorded = state().grad
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.needs for a in args)
        with no_grad():
            if cls.setup_context is Function.setup_context:
                result = cls.forward(ctx, *args)
            else:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
        if not recorded or not any(ctx.needs_input_grad):
            return result
        outs = result if isinstance(result, tuple) else (result,)
        tensors = [o.view_as(o) if any(o is a for a in args) and o not in ctx.dirty else o for o in outs]
        _attach(cls, ctx, args, tensors)
        return tuple(tensors) if isinstance(result, tuple) else tensors[0]


class _Backward:
    """A call's way back. It holds neither arguments nor results: only what was saved stays, and until `release`."""

    def __init__(self, cls: type[Function], ctx: FunctionCtx, count: int, positions: list[int], layouts: list[Meta]):
        self.cls, self.ctx, self.count, self.positions, self.layouts = cls, ctx, count, positions, layouts

    def __call__(self, current: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        ctx = self.ctx
        filled = [zeros(m) if g is None and ctx.materialize else g for g, m in zip(grads, self.layouts, strict=True)]
        found = self.cls.backward(ctx, *filled)
        found = found if isinstance(found, tuple) else (found,)
        if len(found) < self.count or any(g is not None for g in found[self.count :]):
            raise GradientError(
                f"{self.cls.__name__}.backward returned {len(found)} gradients for {self.count} arguments of forward; "
                "give one for each, None for those without"
            )
        metas = current.recipe.metas
        return [None if found[i] is None else self._fitted(i, found[i], metas[i]) for i in self.positions]

    def _fitted(self, position: int, grad: Any, layout: Any) -> Tensor:
        """A gradient in the shape and dtype of its argument: summed where that was broadcast."""
        if not isinstance(grad, Tensor):
            raise GradientError(
                f"{self.cls.__name__}.backward: gradients are tensors or None, not {type(grad).__name__} at {position}"
            )
        shape = grad.meta.shape
        if shape != layout.shape:
            wanted = (1,) * (len(shape) - len(layout.shape)) + layout.shape
            if len(wanted) > len(shape) or any(n not in (1, m) for n, m in zip(wanted, shape, strict=True)):
                raise GradientError(
                    f"{self.cls.__name__}.backward: the gradient at {position} has shape {list(shape)}, which does not "
                    f"sum to {list(layout.shape)}, the shape of its argument"
                )
        return cast_to(sum_to(grad, layout.shape), layout)

    def release(self) -> None:
        ctx = self.ctx
        ctx.freed, ctx._saved, ctx._versions = ctx.freed or bool(ctx._saved), (), ()


def _recipe(cls: type[Function], metas: tuple[Meta | None, ...], outs: tuple[Meta, ...]) -> Recipe:
    """How calls of `cls` on these layouts are recorded. Kept with the class: making one takes longer than a launch."""
    known: dict[Any, Recipe] | None = cls.__dict__.get("_recipes")
    if known is None or len(known) >= _MOST_RECIPES:
        known = {}
        cls._recipes = known  # type: ignore[attr-defined]
    found = known.get((metas, outs))
    if found is None:
        record = OpRecord(cls.__name__, "custom", (), gradients={})
        found = known[metas, outs] = Recipe(record, metas, outs, (), [True] * len(outs))
    return found


def _attach(cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], outs: list[Tensor]) -> None:
    positions = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.needs]
    metas = tuple([a.meta if isinstance(a, Tensor) else None for a in args])
    node = Node(_recipe(cls, metas, tuple([o.meta for o in outs])), (), (), ())
    node.edges = tuple((args[i].node, args[i].output) if args[i].node is not None else (args[i], 0) for i in positions)

    node.function = _Backward(cls, ctx, len(args), positions, [o.meta for o in outs])
    for i, out in enumerate(outs):
        if id(out) not in ctx.fixed and out.meta.dtype.kind == "f":
            out.node, out.output, out.needs = node, i, True


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a `backward` that cannot be differentiated: a second derivative then raises `GradientError`.

    Without it the derivative would be that of the ops inside, wrong if they see something as constant that is none.
    """

    @functools.wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            found = backward(ctx, *grads)
        if not is_recorded(*grads):
            return found
        if isinstance(found, tuple):
            return tuple(_Once.apply(f, *grads) if isinstance(f, Tensor) else f for f in found)
        return _Once.apply(found, *grads)

    return once


class _Once(Function):
    """A value that depends on what requires grad, and has no derivative."""

    @staticmethod
    def forward(ctx: Any, value: Any, *grads: Any) -> Any:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise GradientError("backward of a function that is once_differentiable cannot be differentiated again")
