"""Names for annotations: what calls, launches and gradient rules pass to one another.

Modules import these names under `TYPE_CHECKING` only, so they cost programs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from .autograd.node import Node
from .backends.protocol import Stream
from .device import Meta
from .records import OpRecord
from .tensor import Tensor

__all__ = [
    "BackwardFunction", "Call", "CallInto", "CallMultiple", "CallResult", "Edge", "Empty", "GradientFunction",
    "GradientHook", "Launcher", "Memory", "ReadyHook", "SavedValues", "Static", "Statics",
]  # fmt: skip

Memory: TypeAlias = Any
"""Memory as its backend refers to it: an address, pyopencl's buffer, a NumPy array, or an object that has one of them.

The runtime stores it and gives it back to the backend that made it."""

Static: TypeAlias = Any
"""The value of a static argument, such as `dim` or `keepdim`. The spec of the op declares its type."""

Statics: TypeAlias = tuple[Static, ...]
"""The values of an op's static arguments, in the order of its record."""

CallResult: TypeAlias = Tensor | tuple[Tensor, ...]
"""The result of an op, or a tuple of its results if it has several visible ones."""

SavedValues: TypeAlias = dict[str, Any]
"""Operands, results and incoming gradients of a node, by name: tensors, numbers or None, as the op's record says.

Gradient rules that share intermediate results also store them here, under names of their own."""

BackwardFunction: TypeAlias = Callable[[Node, Sequence[Tensor | None]], Sequence[Tensor | None]]
"""`function(node, grads)` returns the gradients of a node's edges, from those of its results; None stands for zeros."""

Edge: TypeAlias = tuple[Node | Tensor, int]
"""The node that computed an operand, and which of the node's results it is; or a leaf, and 0."""

GradientHook: TypeAlias = Callable[[Tensor], object]
"""A user's hook: it gets a gradient, and returns one to use instead, or None."""

ReadyHook: TypeAlias = Callable[[Tensor, Tensor], None]
"""It gets a leaf and its complete gradient, and accumulates that (`autograd.ready_leaves`)."""

GradientFunction: TypeAlias = Callable[..., Tensor | None]
"""`function(node, values, position)` returns the gradient of the operand at `position`; None stands for zeros.

Functions declare only the part of `SavedValues` that they read, for example `Mapping[str, Tensor]`."""

Launcher: TypeAlias = Callable[..., None]
"""`run(tensors, numbers, stream)` launches the steps of a plan. Backends make it (see `Driver.launcher`)."""


class Call(Protocol):
    """Type of `dispatch.call`, for ops with one result."""

    def __call__(self, record: OpRecord, operands: Sequence[object], statics: Statics = (), /) -> Tensor: ...


class CallMultiple(Protocol):
    """Type of `dispatch.call_multiple`, for ops with several results."""

    def __call__(
        self, record: OpRecord, operands: Sequence[object], statics: Statics = (), /
    ) -> tuple[Tensor, ...]: ...


class CallInto(Protocol):
    """Type of `dispatch.call_into`, for one tensor to write."""

    def __call__(
        self,
        record: OpRecord,
        operands: Sequence[object],
        statics: Statics,
        outs: Sequence[Tensor],
        /,
        *,
        in_place: bool,
    ) -> Tensor: ...


class Empty(Protocol):
    """Type of `dispatch.empty`."""

    def __call__(self, layout: Meta, stream: Stream | None = None, /) -> Tensor: ...
