"""The backward engine: gradients flow from the roots to the leaves, the latest call first.

The consumers of a node are recorded after it. So nodes are processed in the order of falling sequence numbers, which
visits every consumer before its producer without counting dependencies. There is no recursion: a graph may be 100,000
calls deep. Gradients of leaves are summed in buffers and stored at the end, so that no gradient is overwritten while it
may still be read.

`node` describes the graph, `rules` how a node's gradients are computed, and `inplace` the history of in-place writes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .. import tracing
from ..context import _local, anomaly, current_stream
from ..device import Meta
from ..dispatch import call, call_into, refresh_views
from ..errors import ArgumentError, GradientError, ShapeError
from ..records import registry
from ..tensor import Tensor
from .inplace import Retained
from .node import Node
from .rules import gradients_of
from .view_rules import zeros

if TYPE_CHECKING:
    from ..call_types import Edge, GradientHook

__all__ = ["run"]


class _Buffer:
    """Sums of the gradients that arrive at a node, one for each output; or at a leaf, whose only sum has index 0.

    Attributes:
        grads: The sums; None while no gradient has arrived.
        is_owned: For each sum, whether only this buffer uses its memory, so that it may be added to in place.
    """

    __slots__ = ("grads", "is_owned")

    def __init__(self, count: int):
        self.grads: list[Tensor | None] = [None] * count
        self.is_owned = [False] * count

    def add(self, index: int, grad: Tensor, create_graph: bool) -> None:
        """Add `grad` to the sum at `index`. With `create_graph` the addition is recorded, and never in place."""
        total = self.grads[index]
        if total is None:
            self.grads[index] = grad
        elif self.is_owned[index] and not create_graph and total.meta is grad.meta:
            call_into(registry["add"], (total, grad), (), (total,), in_place=True)
        else:
            self.grads[index] = call(registry["add"], (total, grad))
            self.is_owned[index] = True

    def add_to_part(self, index: int, node: Node, grad: Tensor) -> None:
        """Add the gradient of a view, such as a slice, to the part of the base's sum that the view covers.

        This avoids a gradient of the base's size for every view, most of it zeros.

        Args:
            index: The index of the base's sum.
            node: The node of the view.
            grad: The gradient of the view.
        """
        total = self.grads[index]
        has_gradient = total is not None
        if total is None:
            total = self.grads[index] = zeros(node.operand_layout(0))
        elif not self.is_owned[index]:
            total = self.grads[index] = call(registry["copy"], (total,), (None,))
        self.is_owned[index] = True
        unshared = Tensor(total.storage, total.meta, total.start)  # `total` itself must not become the base of a view
        view = call(node.recipe.record, (unshared,), node.statics)
        if not grad.meta.numel:
            return
        if has_gradient:
            call_into(registry["add"], (view, grad), (), (view,), in_place=True)
        else:
            call_into(registry["copy"], (grad,), (None,), (view,), in_place=True)


def run(
    roots: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    *,
    retain_graph: bool,
    create_graph: bool,
    inputs: Sequence[Tensor] | None = None,
) -> list[Tensor | None]:
    """Compute gradients from `roots` back to the leaves, or to `inputs`.

    Args:
        roots: The tensors to differentiate.
        grads: A gradient for each root; None for 1, if the root has one element.
        retain_graph: Keep the saved tensors of the graph for another backward.
        create_graph: Record the computation of the gradients, for higher derivatives.
        inputs: Return the gradients of these tensors, and change no leaf's `grad`. If None, accumulate into the leaves.

    Returns:
        The gradients of `inputs`, None for those that no root depends on; an empty list without `inputs`.

    Raises:
        GradientError: A root has no history, the graph was freed by an earlier backward, or a saved tensor was changed
            in place.
    """
    refresh_views(*roots, *(inputs or ()))
    state = _local.state
    outer_grad_mode = state.grad
    state.grad = create_graph
    try:
        backward = _Backward(retain_graph, create_graph, inputs)
        step = backward.step if tracing.current is None else tracing.current.backward(backward.step)
        return backward.run(roots, grads, step)
    finally:
        state.grad = outer_grad_mode


class _Backward:
    """The state of one backward.

    Attributes:
        buffers: The sums for nodes that are in `heap`.
        leaves: Each leaf that a gradient has arrived at, and its sum, by the `id` of the leaf.
        heap: `(-sequence, node)` of nodes that wait to be processed. The latest call comes first.
        captured: Gradients of non-leaf `inputs`, by node and output.
        requested_nodes: Nodes that computed non-leaf `inputs`.
        requested_leaves: `id`s of the leaves in `inputs`.
        reaching_nodes: Nodes from which one of `inputs` can be reached; None without `inputs`.
        zero_edges: Edges whose gradient is zero, and not computed.
        seed_storages: `id`s of the storages of the roots' gradients.
    """

    def __init__(self, retain_graph: bool, create_graph: bool, inputs: Sequence[Tensor] | None):
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.inputs = inputs
        self.buffers: dict[Node, _Buffer] = {}
        self.leaves: dict[int, tuple[Tensor, _Buffer]] = {}
        self.heap: list[tuple[int, Node]] = []
        self.captured: dict[tuple[Node, int], Tensor] = {}
        self.requested_nodes: set[Node] = set()
        self.requested_leaves: set[int] = set()
        for tensor in inputs or ():
            if tensor.node is None:
                self.requested_leaves.add(id(tensor))
            else:
                self.requested_nodes.add(tensor.node)
        self.reaching_nodes: set[Node] | None = None
        self.zero_edges: list[Edge] = []
        self.seed_storages: set[int] = set()

    def run(
        self, roots: Sequence[Tensor], grads: Sequence[Tensor | None], step: Callable[[Node], None]
    ) -> list[Tensor | None]:
        """Return the gradients of `inputs`, or store those of the leaves.

        `step` is `self.step`, or a profiler's wrapper of it.
        """
        if self.inputs is not None:
            self.reaching_nodes = self._nodes_reaching_inputs([r.node for r in roots if r.node is not None])
        for root, grad in zip(roots, grads, strict=True):
            seed = _seed(root, grad)
            self.seed_storages.add(id(seed.storage))
            self._send((root.node, root.output) if root.node is not None else (root, 0), seed)
        while self.heap:
            step(heapq.heappop(self.heap)[1])
        return self._finish()

    def _nodes_reaching_inputs(self, starts: list[Node]) -> set[Node]:
        """Return the nodes from which one of `inputs` can be reached."""
        visited: set[Node] = set()
        stack = list(starts)
        while stack:
            node = stack.pop()
            if node not in visited:
                visited.add(node)
                stack.extend(target for target, _ in node.edges if isinstance(target, Node))
        reaching_nodes: set[Node] = set()
        for node in sorted(visited, key=lambda n: n.sequence):
            if any(
                (t in reaching_nodes or t in self.requested_nodes)
                if isinstance(t, Node)
                else id(t) in self.requested_leaves
                for t, _ in node.edges
            ):
                reaching_nodes.add(node)
        return reaching_nodes

    def _send(self, edge: Edge, grad: Tensor) -> None:
        """Add `grad` to the sum at the target of `edge`, unless it is not needed."""
        if (destination := self._buffer_of(edge)) is not None:
            buffer, index = destination
            buffer.add(index, grad, self.create_graph)

    def _buffer_of(self, edge: Edge) -> tuple[_Buffer, int] | None:
        """Return the buffer and the index for gradients along `edge`, or None if they are not needed."""
        target, output = edge
        if isinstance(target, Node):
            if (
                self.reaching_nodes is not None
                and target not in self.reaching_nodes
                and target not in self.requested_nodes
            ):
                return None
            buffer = self.buffers.get(target)
            if buffer is None:
                buffer = self.buffers[target] = _Buffer(len(target.recipe.out_metas))
                heapq.heappush(self.heap, (-target.sequence, target))
            return buffer, output
        if not self._needs_gradient(target):
            return None
        entry = self.leaves.get(id(target))
        if entry is None:
            entry = self.leaves[id(target)] = (target, _Buffer(1))
        return entry[1], 0

    def _needs_gradient(self, leaf: Tensor) -> bool:
        """Return True if the gradient of a leaf is stored or returned."""
        if self.inputs is not None:
            return id(leaf) in self.requested_leaves
        return leaf.needs  # the user may have switched `requires_grad` off since the call

    def step(self, node: Node) -> None:
        """Pass the gradients of a node's results on to its operands. All of its consumers have been processed."""
        grads = self.buffers.pop(node).grads
        if node.hooks is not None:
            _run_hooks(node, grads)
        if node in self.requested_nodes:
            for output, grad in enumerate(grads):
                if grad is not None:
                    self.captured[node, output] = grad
        if self.reaching_nodes is not None and node not in self.reaching_nodes:
            return
        if node.recipe.is_partial_view and not (node.function or node.freed or self.create_graph or anomaly.is_enabled):
            # In place, so not with `create_graph`. Freed graphs and anomaly mode need the checks in `gradients_of`.
            if (destination := self._buffer_of(node.edges[0])) is not None:
                buffer, index = destination
                assert grads[0] is not None
                buffer.add_to_part(index, node, grads[0])
            if not self.retain_graph:
                node.release()
            return
        results = gradients_of(node, grads)
        for edge, result in zip(node.edges, results, strict=True):
            if result is not None:
                self._send(edge, result)
            elif node.function is None:  # a custom function's None means no gradient, a rule's None means zeros
                self.zero_edges.append(edge)
        if not self.retain_graph:
            node.release()

    def _send_zeros(self) -> None:
        """Set the gradient to zeros for leaves and `inputs` that gradients reach only along `zero_edges`.

        This runs after all other gradients are known, so zeros are allocated only where no other gradient has arrived.
        """
        visited: set[Node] = set()
        while self.zero_edges:
            target, output = self.zero_edges.pop()
            if not isinstance(target, Node):
                if id(target) not in self.leaves and self._needs_gradient(target):
                    buffer = self.leaves.setdefault(id(target), (target, _Buffer(1)))[1]
                    buffer.add(0, zeros(target.meta), self.create_graph)
                continue
            if target in self.requested_nodes and (target, output) not in self.captured:
                self.captured[target, output] = zeros(target.recipe.out_metas[output])
            if target not in visited and (self.reaching_nodes is None or target in self.reaching_nodes):
                visited.add(target)
                self.zero_edges.extend(target.edges)
                if not self.retain_graph:
                    target.release()

    def _finish(self) -> list[Tensor | None]:
        """Call the hooks of leaves; then accumulate into the leaves, or return the gradients of `inputs`."""
        if self.zero_edges:
            self._send_zeros()
        # A root's gradient is the caller's tensor or in `_ones`. Later writes to a leaf's `grad` must not change it.
        unshareable = self.seed_storages
        for leaf, buffer in self.leaves.values():
            grad = buffer.grads[0]
            if grad is not None and leaf.extra is not None and leaf.extra.hooks:
                for hook in list(leaf.extra.hooks.values()):
                    grad = _call_hook(hook, grad)
                buffer.grads[0] = grad
            if self.inputs is None and grad is not None:
                accumulate(leaf, grad, self.create_graph, unshareable)
                buffer.grads[0] = grad = None  # so that a hook can free the memory
                _run_accumulation_hooks(leaf)
        if self.inputs is None:
            return []
        gradients: list[Tensor | None] = []
        for tensor in self.inputs:
            if tensor.node is None:
                leaf_buffer = self.leaves.get(id(tensor))
                gradients.append(None if leaf_buffer is None else leaf_buffer[1].grads[0])
            else:
                gradients.append(self.captured.get((tensor.node, tensor.output)))
        for i, gradient in enumerate(gradients):
            # The caller may write to the result. If it is not contiguous, it is an expanded seed, which refuses writes.
            if gradient is not None and gradient.meta.contiguous and _is_cached_seed(gradient):
                gradients[i] = call(registry["copy"], (gradient,), (None,))
        return gradients


def _seed(root: Tensor, grad: Tensor | None) -> Tensor:
    """Return the gradient of a root: `grad`, or 1 if it is None.

    Raises:
        GradientError: The root does not require grad, or `grad` is None and the root has several elements or no
            floating dtype.
        ShapeError: `grad` does not have the root's shape.
    """
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


_ones: dict[Meta, tuple[Tensor, int]] = {}  # for each layout a cached 1, and its storage's version when it was 1


def ones_like(tensor: Tensor) -> Tensor:
    """Return a 1 in the layout of the one-element `tensor`, as the gradient of a root.

    The tensor is cached, and shared by all runs of backward. A hook or a custom function may write to it: this changes
    the version of its storage, so the next call fills a new one.
    """
    seed, version = _ones.get(tensor.meta, (None, 0))
    if seed is None or seed.storage.version != version:
        state = _local.state
        outer_grad_mode, state.grad = state.grad, False
        try:
            seed = call(registry["full_like_as"], (tensor, 1.0), (None,))
        finally:
            state.grad = outer_grad_mode
        device = tensor.meta.device
        if getattr(current_stream(device), "capture", None) is not None:
            return seed  # belongs to the graph that is being captured, and has a value only when that is replayed
        device.driver.synchronize()  # other streams and threads will read it
        _ones[tensor.meta] = seed, seed.storage.version
    return seed


def _is_cached_seed(tensor: Tensor) -> bool:
    """Return True if `tensor` uses the memory of a cached seed, which other runs of backward use too."""
    return any(seed.storage is tensor.storage for seed, _ in _ones.values())


def forget_ones() -> None:
    """Drop the cached seeds. For callers that replaced the driver, so that the seeds may never have been filled."""
    _ones.clear()


def accumulate_into(
    leaves: Sequence[Tensor], grads: Sequence[Tensor | None], seeds: Sequence[Tensor | None], create_graph: bool
) -> None:
    """Add `grads` to the `grad` of the leaves, and call their hooks: for `backward(inputs=leaves)`.

    Args:
        leaves: The tensors; the caller may pass some that are no leaves.
        grads: Their gradients as `run` returned them, None for leaves that no root depends on.
        seeds: The gradients of the roots that the caller passed. No leaf's `grad` will share their memory.
        create_graph: Record the additions.
    """
    unshareable = {id(seed.storage) for seed in seeds if seed is not None}
    for leaf, grad in zip(leaves, grads, strict=True):
        if grad is not None:
            accumulate(leaf, grad, create_graph, unshareable)
            _run_accumulation_hooks(leaf)


def _run_accumulation_hooks(leaf: Tensor) -> None:
    if leaf.extra is not None and leaf.extra.stored:
        for hook in list(leaf.extra.stored.values()):
            hook(leaf)


def _run_hooks(node: Node, grads: list[Tensor | None]) -> None:
    assert node.hooks is not None
    # The hooks of `retain_grad` run last, because they store the gradient that the other hooks have returned.
    hooks = sorted(node.hooks.values(), key=lambda entry: isinstance(entry[1], Retained))
    for output, hook in hooks:
        grad = grads[output]
        if grad is not None:
            grads[output] = _call_hook(hook, grad)


def _call_hook(hook: GradientHook, grad: Tensor) -> Tensor:
    """Return the hook's result, or `grad` if that is None.

    Raises:
        ArgumentError: The result is not a tensor.
        GradientError: Its shape, dtype or device is not that of `grad`.
    """
    result = hook(grad)
    if result is None:
        return grad
    name = getattr(hook, "__name__", type(hook).__name__)
    if not isinstance(result, Tensor):
        raise ArgumentError(f"hook {name}: must return a tensor or None, not {type(result).__name__}")
    actual, expected = result.meta, grad.meta
    if (actual.shape, actual.dtype, actual.device) != (expected.shape, expected.dtype, expected.device):
        raise GradientError(
            f"hook {name}: returned a tensor of shape {list(actual.shape)} and dtype {actual.dtype.name} on "
            f"{actual.device} for a gradient of shape {list(expected.shape)} and dtype {expected.dtype.name} on "
            f"{expected.device}; it must keep all three"
        )
    return result


def accumulate(leaf: Tensor, grad: Tensor, create_graph: bool, unshareable: set[int]) -> None:
    """Add `grad` to `leaf.grad`.

    The first gradient is stored without a copy, unless it is a view, not contiguous, or in memory that is shared.

    Args:
        leaf: The leaf.
        grad: Its gradient.
        create_graph: Record the addition.
        unshareable: `id`s of storages that `leaf.grad` must not share, because a root's gradient or another leaf's
            `grad` uses them. Changed in place: includes the storage of `leaf.grad` afterwards.
    """
    extra = leaf.more()
    if extra.grad is not None:
        if create_graph:
            extra.grad = call(registry["add"], (extra.grad, grad))
        else:
            call_into(registry["add"], (extra.grad, grad), (), (extra.grad,), in_place=True)
        return
    needs_copy = id(grad.storage) in unshareable or grad.extra is not None or not grad.meta.contiguous
    if needs_copy:
        grad = call(registry["copy"], (grad,), (None,))
    unshareable.add(id(grad.storage))
    if not create_graph:  # without hooks or history
        grad = Tensor(grad.storage, grad.meta, grad.start)
    extra.grad = grad
