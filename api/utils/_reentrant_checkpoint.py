"""Checkpoints with reentry: the function is one node of the graph, whose backward calls backward again."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from .. import autograd
from ..runtime.context import state
from ..runtime.tensor import Tensor
from ._recomputation import CheckpointError, Replay

__all__ = ["Value", "call_reentrant"]

Value: TypeAlias = Any
"""An argument or the result of a user's function, which decides on the types."""


def call_reentrant(function: Callable[..., object], args: tuple[object, ...], preserve_rng_state: bool) -> Value:
    """Call `function(*args)` without a graph, as one node, and return its result."""
    if state().grad and not any(isinstance(a, Tensor) and a.requires_grad for a in args):
        warnings.warn(
            "checkpoint: none of the arguments requires grad, so nothing inside gets a gradient; "
            "use use_reentrant=False",
            stacklevel=3,
        )
    result_template: list[object] = []  # gets the function's result: `apply` returns only the tensors in it
    outputs = _Reentrant.apply(function, Replay(preserve_rng_state), result_template, *args)
    if not isinstance(result_template[0], tuple):
        return outputs[0] if isinstance(result_template[0], Tensor) else result_template[0]
    tensors = iter(outputs)
    return tuple(next(tensors) if isinstance(part, Tensor) else part for part in result_template[0])


def _tensors(result: object) -> list[Tensor]:
    """Return the tensors in a result, which is one object or a tuple."""
    return [r for r in (result if isinstance(result, tuple) else (result,)) if isinstance(r, Tensor)]


class _ReentrantContext(Protocol):
    """The context of a `_Reentrant` call: what backward needs to run the function again.

    Attributes:
        function: The function.
        replay: The random state, mode and autocast of the first run.
        args: The arguments, with None in place of tensors.
    """

    function: Callable[..., object]
    replay: Replay
    args: list[object]

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]: ...
    def save_for_backward(self, *tensors: Tensor | None) -> None: ...
    def set_materialize_grads(self, value: bool) -> None: ...


class _Reentrant(autograd.Function):
    """Run a function without a graph; backward runs it again with a graph, and calls backward on that."""

    runs_backward = True

    @staticmethod
    def forward(
        ctx: _ReentrantContext,
        function: Callable[..., object],
        replay: Replay,
        result_template: list[object],
        *args: object,
    ) -> tuple[Tensor, ...]:
        ctx.function, ctx.replay = function, replay
        ctx.set_materialize_grads(False)
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[a if isinstance(a, Tensor) else None for a in args])
        result = function(*args)
        result_template.append(result)
        return tuple(_tensors(result))

    @staticmethod
    def backward(ctx: _ReentrantContext, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        inputs: list[object] = [
            a if t is None else t.detach().requires_grad_(t.needs_grad)
            for a, t in zip(ctx.args, ctx.saved_tensors, strict=True)
        ]
        with ctx.replay:
            result = ctx.function(*inputs)
        pairs = [(r, g) for r, g in zip(_tensors(result), grads, strict=True) if g is not None and r.requires_grad]
        if not pairs:
            raise CheckpointError("checkpoint: none of the results requires grad, so backward has nothing to compute")
        autograd.backward([r for r, _ in pairs], [g for _, g in pairs])
        return (None, None, None, *[g.grad if isinstance(g, Tensor) else None for g in inputs])
