"""The engine: gradients flow from roots to leaves, latest call first.

A node's consumers were all recorded after it, so that taking nodes by falling sequence number sees every consumer
before its producer, and no dependency has to be counted. Nothing here recurses: a graph may be 100,000 calls deep.
Gradients of leaves are summed until the end and stored then, so that no gradient still to be read is written over.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from .. import tracing
from ..context import State, _local, current_stream
from ..device import Meta
from ..dispatch import call, call_into, freshen
from ..errors import GradientError, ShapeError
from ..records import registry
from ..tensor import Tensor
from .inplace import Retained
from .node import Node
from .rules import gradients_of
from .view_rules import zeros

__all__ = ["run"]


class _Buffer:
    """Gradients waiting for one node's outputs or for one leaf."""

    __slots__ = ("grads", "owned")

    def __init__(self, count: int):
        self.grads: list[Tensor | None] = [None] * count
        self.owned = [False] * count

    def add(self, index: int, grad: Tensor, keep: bool) -> None:
        """Add `grad`. The sum of two is ours to add to in place, unless it is recorded (`keep`)."""
        have = self.grads[index]
        if have is None:
            self.grads[index] = grad
        elif self.owned[index] and not keep and have.meta is grad.meta:
            call_into(registry["add"], (have, grad), (), (have,), in_place=True)
        else:
            self.grads[index] = call(registry["add"], (have, grad))
            self.owned[index] = True

    def add_cut(self, index: int, node: Node, grad: Tensor) -> None:
        """Add the gradient of a view that is a part of what this is the gradient of: only that part is touched, where
        the rest was begun by another part."""
        have = self.grads[index]
        begun = have is not None
        if have is None:
            have = self.grads[index] = zeros(node.recipe.metas[0])  # type: ignore[arg-type]
        elif not self.owned[index]:
            have = self.grads[index] = call(registry["copy"], (have,), (None,))
        self.owned[index] = True
        whole = Tensor(have.storage, have.meta, have.start)  # a view makes its base one that is shared
        part = call(node.recipe.record, (whole,), node.statics)
        if grad.meta.numel:
            operands = (part, grad) if begun else (grad,)
            call_into(registry["add" if begun else "copy"], operands, () if begun else (None,), (part,), in_place=True)


def run(
    roots: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    *,
    retain: bool,
    create: bool,
    inputs: Sequence[Tensor] | None = None,
) -> list[Tensor | None]:
    """Propagate `grads` from `roots`. With `inputs`, return their gradients and touch no leaf's `grad`; without,
    accumulate into the leaves.

    Raises `GradientError` for a root without history, a second pass through a freed graph, or a changed saved tensor.
    """
    freshen(*roots, *(inputs or ()))
    state = _local.state
    before = state.grad
    state.grad = create
    try:
        backward = _Backward(state, retain, create, inputs)
        if (recording := tracing.current) is not None:
            backward._step = recording.backward(backward._step)  # type: ignore[method-assign]
        return backward.run(roots, grads)
    finally:
        state.grad = before


class _Backward:
    def __init__(self, state: State, retain: bool, create: bool, inputs: Sequence[Tensor] | None):
        self.state = state
        self.retain = retain
        self.create = create
        self.inputs = inputs
        self.buffers: dict[Node, _Buffer] = {}
        self.leaves: dict[int, tuple[Tensor, _Buffer]] = {}
        self.heap: list[tuple[int, Node]] = []
        self.captured: dict[tuple[Node, int], Tensor] = {}
        self.wanted_nodes: set[Node] = set()
        self.wanted_leaves: set[int] = set()
        for tensor in inputs or ():
            if tensor.node is None:
                self.wanted_leaves.add(id(tensor))
            else:
                self.wanted_nodes.add(tensor.node)
        self.useful: set[Node] | None = None
        self.flat: list[tuple[Any, int]] = []  # edges along which the gradient is zero whatever arrives

    def run(self, roots: Sequence[Tensor], grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        if self.inputs is not None:
            self.useful = self._useful([r.node for r in roots if r.node is not None])
        for root, grad in zip(roots, grads, strict=True):
            self._send((root.node, root.output) if root.node is not None else (root, 0), _seed(root, grad))
        while self.heap:
            self._step(heapq.heappop(self.heap)[1])
        return self._finish()

    def _useful(self, starts: list[Node]) -> set[Node]:
        """Nodes from which a wanted tensor is reached."""
        seen: set[Node] = set()
        stack = list(starts)
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack.extend(target for target, _ in node.edges if isinstance(target, Node))
        useful: set[Node] = set()
        for node in sorted(seen, key=lambda n: n.sequence):
            if any(
                (t in useful or t in self.wanted_nodes) if isinstance(t, Node) else id(t) in self.wanted_leaves
                for t, _ in node.edges
            ):
                useful.add(node)
        return useful

    def _send(self, edge: tuple[Any, int], grad: Tensor) -> None:
        found = self._waiting(edge)
        if found is not None:
            found[0].add(found[1], grad, self.create)

    def _waiting(self, edge: tuple[Any, int]) -> tuple[_Buffer, int] | None:
        """Where gradients that go along `edge` are summed; None if nobody wants them."""
        target, output = edge
        if isinstance(target, Node):
            if self.useful is not None and target not in self.useful and target not in self.wanted_nodes:
                return None
            buffer = self.buffers.get(target)
            if buffer is None:
                buffer = self.buffers[target] = _Buffer(len(target.recipe.out_metas))
                heapq.heappush(self.heap, (-target.sequence, target))
            return buffer, output
        if not self._is_wanted(target):
            return None
        found = self.leaves.get(id(target))
        if found is None:
            found = self.leaves[id(target)] = (target, _Buffer(1))
        return found[1], 0

    def _is_wanted(self, leaf: Tensor) -> bool:
        if self.inputs is not None:
            return id(leaf) in self.wanted_leaves
        return leaf.needs  # its user may have switched that off since the call

    def _step(self, node: Node) -> None:
        grads = self.buffers.pop(node).grads
        if node.hooks is not None:
            _run_hooks(node, grads)
        if node in self.wanted_nodes:
            for output, grad in enumerate(grads):
                if grad is not None:
                    self.captured[node, output] = grad
        if self.useful is not None and node not in self.useful:
            return
        if node.recipe.cuts and not (node.function or node.freed or self.create or self.state.anomaly):
            found = self._waiting(node.edges[0])
            if found is not None:
                found[0].add_cut(found[1], node, grads[0])  # type: ignore[arg-type]
            if not self.retain:
                node.release()
            return
        results = gradients_of(node, grads, self.state)
        for edge, result in zip(node.edges, results, strict=True):
            if result is not None:
                self._send(edge, result)
            elif node.function is None:
                self.flat.append(edge)
        if not self.retain:
            node.release()

    def _fill(self) -> None:
        """Zeros for what only edges of zero gradient lead to: it was used, so its gradient is not missing.

        Rules leave such gradients out, and here they are followed once all others are known; most need no memory then.
        """
        seen: set[Node] = set()
        while self.flat:
            target, output = self.flat.pop()
            if not isinstance(target, Node):
                if id(target) not in self.leaves and self._is_wanted(target):
                    buffer = self.leaves.setdefault(id(target), (target, _Buffer(1)))[1]
                    buffer.add(0, zeros(target.meta), self.create)
                continue
            if target in self.wanted_nodes and (target, output) not in self.captured:
                self.captured[target, output] = zeros(target.recipe.out_metas[output])
            if target not in seen and (self.useful is None or target in self.useful):
                seen.add(target)
                self.flat.extend(target.edges)
                if not self.retain:
                    target.release()

    def _finish(self) -> list[Tensor | None]:
        if self.flat:
            self._fill()
        taken = {id(one.storage) for one in _ones.values()}
        for leaf, buffer in self.leaves.values():
            grad = buffer.grads[0]
            if grad is not None and leaf.extra is not None and leaf.extra.hooks:
                for hook in list(leaf.extra.hooks.values()):
                    replaced = hook(grad)
                    grad = grad if replaced is None else replaced
                buffer.grads[0] = grad
            if self.inputs is None and grad is not None:
                accumulate(leaf, grad, self.create, taken)
                buffer.grads[0] = grad = None  # a hook may let go of it
                if leaf.extra.stored:  # type: ignore[union-attr]
                    for hook in list(leaf.extra.stored.values()):  # type: ignore[union-attr]
                        hook(leaf)
        if self.inputs is None:
            return []
        found: list[Tensor | None] = []
        for tensor in self.inputs:
            if tensor.node is None:
                leaf_buffer = self.leaves.get(id(tensor))
                found.append(None if leaf_buffer is None else leaf_buffer[1].grads[0])
            else:
                found.append(self.captured.get((tensor.node, tensor.output)))
        return found


def _seed(root: Tensor, grad: Tensor | None) -> Tensor:
    if not root.needs:
        raise GradientError(
            "backward: the tensor does not require grad and nothing that computed it does; "
            "set requires_grad=True on what gradients are wanted of"
        )
    if grad is None:
        if root.meta.numel != 1:
            raise GradientError(
                "backward: a gradient can be made up for a scalar only; "
                f"this tensor has shape {list(root.meta.shape)}: "
                "pass gradient=, or call .sum() first"
            )
        if root.meta.dtype.kind != "f":
            raise GradientError(f"backward: {root.meta.dtype.name} tensors have no gradient")
        return ones_like(root)
    if grad.meta.shape != root.meta.shape:
        raise ShapeError(
            f"backward: the gradient has shape {list(grad.meta.shape)}, the tensor {list(root.meta.shape)}; "
            "they must agree"
        )
    return grad


_ones: dict[Meta, Tensor] = {}


def ones_like(tensor: Tensor) -> Tensor:
    """A one in the layout of `tensor`, of one element: the seed of its backward. Shared, and never written."""
    found = _ones.get(tensor.meta)
    if found is None:
        state = _local.state
        before, state.grad = state.grad, False
        try:
            found = call(registry["full_like_as"], (tensor, 1.0), (None,))
        finally:
            state.grad = before
        device = tensor.meta.device
        if getattr(current_stream(device), "capture", None) is not None:
            return found  # a part of the graph that is captured, with a value only when that is replayed
        device.driver.synchronize()  # other streams and threads read it
        found = _ones.setdefault(tensor.meta, found)
    return found


def forget_ones() -> None:
    """Drop the shared ones: for callers under which nothing was computed."""
    _ones.clear()


def _run_hooks(node: Node, grads: list[Tensor | None]) -> None:
    hooks = sorted(node.hooks.values(), key=lambda each: isinstance(each[1], Retained))  # type: ignore[union-attr]
    for output, hook in hooks:
        grad = grads[output]
        if grad is not None:
            replaced = hook(grad)
            if replaced is not None:
                grads[output] = replaced


def accumulate(leaf: Tensor, grad: Tensor, create: bool, taken: set[int]) -> None:
    """Add `grad` to `leaf.grad`. The first one is kept as it is, unless its memory is a view or another leaf's."""
    extra = leaf.more()
    if extra.grad is not None:
        if create:
            extra.grad = call(registry["add"], (extra.grad, grad))
        else:
            call_into(registry["add"], (extra.grad, grad), (), (extra.grad,), in_place=True)
        return
    shared = id(grad.storage) in taken or grad.extra is not None or not grad.meta.contiguous
    if shared and not create:
        grad = call(registry["copy"], (grad,), (None,))
    taken.add(id(grad.storage))
    if not create:
        grad = Tensor(grad.storage, grad.meta, grad.start)
    extra.grad = grad
