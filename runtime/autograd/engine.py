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

from .. import native, tracing
from ..context import _local, anomaly, current_stream
from ..device import Meta
from ..dispatch import call, call_into, refresh_views
from ..errors import ArgumentError, GradientError, ShapeError
from ..records import registry
from ..tensor import Tensor
from ..views import reshape
from . import ready_leaves
from .backward_state import BackwardState, GradientSums
from .inplace import Retained
from .node import Node
from .rules import fit_to, gradients_of, reshape_unshared
from .view_rules import zeros

if TYPE_CHECKING:
    from ..call_types import GradientHook

__all__ = ["run"]

_advance = native.advance if native.present else None


def run(
    roots: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    *,
    retain_graph: bool,
    create_graph: bool,
    inputs: Sequence[Tensor] | None = None,
    accumulates: bool = False,
) -> list[Tensor | None]:
    """Compute gradients from `roots` back to the leaves, or to `inputs`.

    Args:
        roots: The tensors to differentiate.
        grads: A gradient for each root; None for 1, if the root has one element.
        retain_graph: Keep the saved tensors of the graph for another backward.
        create_graph: Record the computation of the gradients, for higher derivatives.
        inputs: Return the gradients of these tensors, and change no leaf's `grad`. If None, accumulate into the leaves.
        accumulates: Add the gradients of `inputs` to their `grad` as well, and call their hooks.

    Returns:
        The gradients of `inputs`, None for those that no root depends on; an empty list if they were accumulated.

    Raises:
        GradientError: A root has no history, the graph was freed by an earlier backward, or a saved tensor was changed
            in place.
    """
    refresh_views(*roots, *(inputs or ()))
    retain_graph, create_graph = bool(retain_graph), bool(create_graph)  # C compares them with True
    state = _local.state
    outer_grad_mode = state.grad
    state.grad = create_graph
    backward_runs = ready_leaves.backward_runs
    outer_reached, backward_runs.reached = backward_runs.reached, None
    backward_runs.depth += 1
    try:
        backward = _BackwardPass(retain_graph, create_graph, inputs)
        step = None if tracing.current is None else tracing.current.backward(backward.step)
        gradients = backward.run(roots, grads, step)
        if inputs is None:
            return []
        if accumulates:
            backward.accumulate_inputs(inputs, gradients)
            return []
        return [_without_cached_seed(gradient) for gradient in gradients]
    except BaseException:
        if backward_runs.depth == 1:
            backward_runs.callbacks.clear()
        raise
    finally:
        state.grad = outer_grad_mode
        backward_runs.reached = outer_reached
        backward_runs.depth -= 1
        if backward_runs.callbacks and not backward_runs.depth:
            ready_leaves.run_callbacks()


class _BackwardPass(BackwardState):
    """One run of backward.

    `native.advance` does what `step` does, for nodes without hooks whose rules need no Python; it calls `step` for all
    other nodes, and the methods below for uncommon operands. Change both together.
    """

    __slots__ = ()

    def run(
        self, roots: Sequence[Tensor], grads: Sequence[Tensor | None], step: Callable[[Node], None] | None
    ) -> list[Tensor | None]:
        """Return the gradients of `inputs`, or store those of the leaves.

        `step` is a profiler's wrapper of `self.step`; None without a profiler.
        """
        if self.inputs is not None:
            start_nodes = [r.node for r in roots if r.node is not None]
            if _advance is not None:
                native.set_reaching_nodes(self, start_nodes)
            else:
                self._set_reaching_nodes(start_nodes)
        for root, grad in zip(roots, grads, strict=True):
            seed = _seed(root, grad)
            self.user_storages.add(id(seed.storage))
            target, output = (root, 0) if root.node is None else (root.node, root.output)
            if self._is_needed(target):
                self._add(self._sums_at(target), output, seed)
        heap = self.heap
        if ready_leaves.hook_count and self.inputs is None:
            self._run_with_ready_hooks(ready_leaves.schedule_leaves(roots), step)
        elif step is None and _advance is not None:
            while heap:  # a loop in Python, so that other threads and Ctrl-C get their turn
                _advance(self)
        else:
            step = step or self.step
            while heap:
                step(heapq.heappop(heap)[1])
        return self._finish()

    def _run_with_ready_hooks(self, schedule: list[tuple[int, Tensor]], step: Callable[[Node], None] | None) -> None:
        """Process all nodes, and call the ready hook of each leaf of `schedule` as soon as its gradient is complete."""
        heap = self.heap
        use_native = step is None and _advance is not None
        step = step or self.step
        while heap:
            next_sequence = -heap[0][0]
            while schedule and schedule[-1][0] > next_sequence:
                self._take_ready_gradient(schedule.pop()[1])
            if use_native:
                _advance(self)  # type: ignore[misc]
            else:
                step(heapq.heappop(heap)[1])
        while schedule:
            self._take_ready_gradient(schedule.pop()[1])

    def _take_ready_gradient(self, leaf: Tensor) -> None:
        """Pass the gradient of a leaf to its ready hook. Gradients that are only zeros arrive at the end of the run."""
        entry = self.leaves.get(id(leaf))
        extra = leaf.extra
        if entry is None or extra is None or extra.ready_hook is None or (grad := entry[1].grads[0]) is None:
            return
        for hook in list((extra.hooks or {}).values()):
            grad = self._call_hook(hook, grad)
        entry[1].grads[0] = None
        extra.ready_hook(leaf, grad)
        _run_accumulation_hooks(leaf)

    def _set_reaching_nodes(self, starts: list[Node]) -> None:
        """Set `reaching_nodes` to the nodes from which one of `inputs` can be reached."""
        visited: set[Node] = set()
        stack = list(starts)
        while stack:
            node = stack.pop()
            if node not in visited:
                visited.add(node)
                stack.extend(target for target, _ in node.edges if isinstance(target, Node))
        self.reaching_nodes = set()
        for node in sorted(visited, key=lambda n: n.sequence):
            if any(self._is_needed(target) for target, _ in node.edges):
                self.reaching_nodes.add(node)

    def _is_needed(self, target: Node | Tensor) -> bool:
        """Return True if gradients of a node's results, or of a leaf, are passed on, stored or returned."""
        if isinstance(target, Node):
            return self.reaching_nodes is None or target in self.reaching_nodes or target in self.requested_nodes
        if self.inputs is not None:
            return id(target) in self.requested_leaves
        return target.needs_grad  # the user may have switched `requires_grad` off since the call

    def _sums_at(self, target: Node | Tensor) -> GradientSums:
        """Return the sums of a node or a leaf. A node whose first gradient arrives is added to `heap`."""
        if isinstance(target, Node):
            sums = self.node_sums.get(target)
            if sums is None:
                sums = self.node_sums[target] = GradientSums(len(target.recipe.out_metas))
                heapq.heappush(self.heap, (-target.sequence, target))
            return sums
        entry = self.leaves.get(id(target))
        if entry is None:
            entry = self.leaves[id(target)] = (target, GradientSums(1))
        return entry[1]

    def _add(self, sums: GradientSums, index: int, grad: Tensor) -> None:
        """Add `grad` to the sum at `index`. With `create_graph` the addition is recorded, and never in place."""
        total = sums.grads[index]
        if total is None:
            sums.grads[index] = grad
        elif sums.is_owned[index] and not self.create_graph and total.meta is grad.meta:
            call_into(self.add_record, (total, grad), (), (total,), in_place=True)
        else:
            sums.grads[index] = call(self.add_record, (total, grad))
            sums.is_owned[index] = True

    def add_to_part(self, sums: GradientSums, index: int, node: Node, grad: Tensor) -> None:
        """Add the gradient of a view, such as a slice, to the part of the base's sum that the view covers.

        This avoids a gradient of the base's size for every view, most of it zeros.

        Args:
            sums: The sums of the base's node, or of the base if it is a leaf.
            index: The index of the base's sum.
            node: The node of the view.
            grad: The gradient of the view.
        """
        total = sums.grads[index]
        has_gradient = total is not None
        if total is None:
            total = sums.grads[index] = zeros(node.operand_layout(0))
        elif not sums.is_owned[index]:
            total = sums.grads[index] = call(registry["copy"], (total,), (None,))
        sums.is_owned[index] = True
        unshared = Tensor(total.storage, total.meta, total.start)  # `total` itself must not become the base of a view
        view = call(node.recipe.record, (unshared,), node.statics)
        if not grad.meta.numel:
            return
        if has_gradient:
            call_into(self.add_record, (view, grad), (), (view,), in_place=True)
        else:
            call_into(registry["copy"], (grad,), (None,), (view,), in_place=True)

    # Called by C as methods, because its functions do not import Python modules:
    fit_to = staticmethod(fit_to)
    reshape = staticmethod(reshape)
    reshape_unshared = staticmethod(reshape_unshared)

    def step(self, node: Node) -> None:
        """Pass the gradients of a node's results on to its operands. All of its consumers have been processed."""
        grads = self.node_sums.pop(node).grads
        if node.hooks is not None:
            self._run_hooks(node, grads)
        if node in self.requested_nodes:
            for output, grad in enumerate(grads):
                if grad is not None:
                    self.captured[node, output] = grad
        if self.reaching_nodes is not None and node not in self.reaching_nodes:
            return
        is_needed = [self._is_needed(target) for target, _ in node.edges]
        if node.recipe.is_partial_view and not (node.function or node.freed or self.create_graph or anomaly.is_enabled):
            # In place, so not with `create_graph`. Freed graphs and anomaly mode need the checks in `gradients_of`.
            if is_needed[0]:
                assert grads[0] is not None
                target, output = node.edges[0]
                self.add_to_part(self._sums_at(target), output, node, grads[0])
        else:
            results = gradients_of(node, grads, is_needed)
            # A custom function may return a tensor that it saved, or one of the program's.
            if node.function is not None and not getattr(node.function, "holds_no_result", False):
                self.user_storages.update([id(result.storage) for result in results if result is not None])
            for edge, result, needed in zip(node.edges, results, is_needed, strict=True):
                if needed and result is not None:
                    self._add(self._sums_at(edge[0]), edge[1], result)
                elif needed and node.function is None:
                    self.zero_edges.append(edge)  # a rule's None means zeros; a custom function's None, no gradient
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
                if id(target) not in self.leaves and self._is_needed(target):
                    self._add(self._sums_at(target), 0, zeros(target.meta))
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
        pending: dict[int, int] = {}
        if self.inputs is None and len(self.leaves) > 1:
            pending = _count_storages([sums.grads[0] for _, sums in self.leaves.values()])
        for leaf, sums in self.leaves.values():
            grad = sums.grads[0]
            if grad is None:
                continue
            if pending:
                pending[id(grad.storage)] -= 1
            if leaf.extra is not None:
                if leaf.extra.hooks:
                    for hook in list(leaf.extra.hooks.values()):
                        grad = self._call_hook(hook, grad)
                    sums.grads[0] = grad
                if self.inputs is None and leaf.extra.ready_hook is not None:
                    leaf.extra.ready_hook(leaf, grad)
                    _run_accumulation_hooks(leaf)
                    continue
            if self.inputs is None:
                self._accumulate(leaf, grad, pending)
                sums.grads[0] = grad = None  # so that a hook can free the memory
                _run_accumulation_hooks(leaf)
        if self.inputs is None:
            return []
        gradients: list[Tensor | None] = []
        for tensor in self.inputs:
            if tensor.node is None:
                entry = self.leaves.get(id(tensor))
                gradients.append(None if entry is None else entry[1].grads[0])
            else:
                gradients.append(self.captured.get((tensor.node, tensor.output)))
        return gradients

    def accumulate_inputs(self, inputs: Sequence[Tensor], gradients: list[Tensor | None]) -> None:
        """Add `gradients`, as `run` returned them, to the `grad` of `inputs`, and call their hooks."""
        self.leaves.clear()
        self.captured.clear()
        pending = _count_storages(gradients)
        for i, tensor in enumerate(inputs):
            gradient = gradients[i]
            if gradient is not None:
                pending[id(gradient.storage)] -= 1
                self._accumulate(tensor, gradient, pending)
                gradients[i] = gradient = None
                _run_accumulation_hooks(tensor)

    def _accumulate(self, leaf: Tensor, grad: Tensor, pending: dict[int, int]) -> None:
        """Add `grad` to `leaf.grad`.

        The first gradient is stored without a copy, unless it is a view, not contiguous, or in memory that user code or
        a later leaf of this run may read.

        Args:
            leaf: The leaf.
            grad: Its gradient.
            pending: By the `id` of a storage, the number of gradients in it that are still to be accumulated.
        """
        extra = leaf.ensure_extra()
        if extra.grad is not None:
            if self.create_graph:
                extra.grad = call(self.add_record, (extra.grad, grad))
            else:
                call_into(self.add_record, (extra.grad, grad), (), (extra.grad,), in_place=True)
            return
        key = id(grad.storage)
        is_shared = key in self.user_storages or pending.get(key, 0) > 0
        if is_shared or grad.extra is not None or not grad.meta.contiguous:
            grad = call(self.copy_record, (grad,), (None,))
        if not self.create_graph:  # without hooks or history
            grad = Tensor(grad.storage, grad.meta, grad.start)
        extra.grad = grad

    def _run_hooks(self, node: Node, grads: list[Tensor | None]) -> None:
        assert node.hooks is not None
        # The hooks of `retain_grad` run last, because they store the gradient that the other hooks have returned.
        hooks = sorted(node.hooks.values(), key=lambda entry: isinstance(entry[1], Retained))
        for output, hook in hooks:
            grad = grads[output]
            if grad is not None:
                grads[output] = self._call_hook(hook, grad)

    def _call_hook(self, hook: GradientHook, grad: Tensor) -> Tensor:
        result = _call_hook(hook, grad)
        if result is not grad:  # the hook may hold the tensor that it returned
            self.user_storages.add(id(result.storage))
        return result


def _count_storages(grads: Sequence[Tensor | None]) -> dict[int, int]:
    """Return, by the `id` of a storage, how many of `grads` use it."""
    counts: dict[int, int] = {}
    for grad in grads:
        if grad is not None:
            counts[id(grad.storage)] = counts.get(id(grad.storage), 0) + 1
    return counts


def _seed(root: Tensor, grad: Tensor | None) -> Tensor:
    """Return the gradient of a root: `grad`, or 1 if it is None.

    Raises:
        GradientError: The root does not require grad, or `grad` is None and the root has several elements or no
            floating dtype.
        ShapeError: `grad` does not have the root's shape.
    """
    if not root.needs_grad:
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


def _without_cached_seed(gradient: Tensor | None) -> Tensor | None:
    """Return a copy of a gradient that uses the memory of a cached seed; others themselves.

    The caller may write to the result. If it is not contiguous, it is an expanded seed, which refuses writes.
    """
    if gradient is None or not gradient.meta.contiguous:
        return gradient
    for seed, _ in list(_ones.values()):  # a list, because another thread may add a seed meanwhile
        if seed.storage is gradient.storage:
            return call(registry["copy"], (gradient,), (None,))
    return gradient


def forget_ones() -> None:
    """Drop the cached seeds. For callers that replaced the driver, so that the seeds may never have been filled."""
    _ones.clear()


def _run_accumulation_hooks(leaf: Tensor) -> None:
    if leaf.extra is not None and leaf.extra.accumulation_hooks:
        for hook in list(leaf.extra.accumulation_hooks.values()):
            hook(leaf)


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
