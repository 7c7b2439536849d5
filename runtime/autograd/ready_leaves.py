"""Leaves whose gradient a callback takes during backward, as soon as it is complete.

The engine stores the gradients of other leaves when all nodes are processed. Training over several processes sends
gradients while backward computes the next ones, so it takes the gradient of a parameter once the last node that
contributes to it has been processed. Nodes are processed by falling sequence numbers, so that last node has the lowest
number of those with an edge to the leaf.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..tensor import Tensor
from .node import Node

if TYPE_CHECKING:
    from ..call_types import ReadyHook

__all__ = ["backward_runs", "hook_count", "is_reached", "queue_callback", "set_ready_hook"]

_Callback: TypeAlias = Callable[[], None]

hook_count = 0  # number of ready hooks that were set and not removed; without any, the engine searches for none


class BackwardRuns(threading.local):
    """The runs of backward that are in progress in a thread.

    Attributes:
        depth: Number of nested runs. Reentrant checkpoints run backward inside backward.
        callbacks: What `queue_callback` has queued, called at the end of the outermost run.
        reached: `id`s of the leaves with a ready hook that the current run reaches; None if it did not search,
            or if a node of its graph runs backward itself and so may reach any leaf.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.callbacks: list[_Callback] = []
        self.reached: set[int] | None = None


backward_runs = BackwardRuns()


def set_ready_hook(leaf: Tensor, hook: ReadyHook | None) -> None:
    """Let `hook(leaf, grad)` take the gradients of a leaf as soon as they are complete; None removes the hook.

    The hook accumulates `grad`, and the engine does not. It must neither write to `grad` nor store it, because other
    tensors may use its memory. The leaf's hooks of `register_hook` run before it, those of
    `register_post_accumulate_grad_hook` after it. Runs of backward that return gradients (`autograd.grad`), or
    accumulate only those of `inputs`, call no ready hooks.
    """
    global hook_count
    extra = leaf.ensure_extra()
    hook_count += (hook is not None) - (extra.ready_hook is not None)
    extra.ready_hook = hook


def is_reached(leaf: Tensor) -> bool:
    """Return whether the graph of the current run of backward contains this leaf with a ready hook.

    True also if the run has not searched.
    """
    return backward_runs.reached is None or id(leaf) in backward_runs.reached


def queue_callback(callback: _Callback) -> None:
    """Call `callback` when the outermost run of backward in this thread has ended without an error."""
    backward_runs.callbacks.append(callback)


def run_callbacks() -> None:
    """Call and remove the queued callbacks, including those that callbacks queue. An error removes all."""
    callbacks = backward_runs.callbacks
    try:
        while callbacks:
            callbacks.pop(0)()
    finally:
        callbacks.clear()


def schedule_leaves(roots: Sequence[Tensor]) -> list[tuple[int, Tensor]]:
    """Return the leaves with ready hooks that the graphs of `roots` reach; the last one becomes complete first.

    Returns:
        Pairs of the lowest sequence number among the nodes with an edge to the leaf, and the leaf, in rising order.
    """
    last_nodes: dict[int, tuple[int, Tensor]] = {}
    start_nodes = [root.node for root in roots if root.node is not None]
    visited: set[Node] = set(start_nodes)
    stack = list(visited)
    runs_backward = False
    while stack:
        node = stack.pop()
        runs_backward = runs_backward or getattr(node.function, "runs_backward", False)
        sequence = node.sequence
        for target, _ in node.edges:
            if isinstance(target, Node):
                if target not in visited:
                    visited.add(target)
                    stack.append(target)
            elif target.extra is not None and target.extra.ready_hook is not None:
                entry = last_nodes.get(id(target))
                if entry is None or sequence < entry[0]:
                    last_nodes[id(target)] = sequence, target
    schedule = sorted(last_nodes.values(), key=_sequence)
    backward_runs.reached = None if runs_backward else {*last_nodes, *[id(root) for root in roots if root.node is None]}
    return schedule


def _sequence(entry: tuple[int, Tensor]) -> int:
    return entry[0]
