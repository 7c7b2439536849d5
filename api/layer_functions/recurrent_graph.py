"""Recurrent layers in the autograd graph: `directions.Pass` runs the directions, and the layer is one node.

For higher derivatives (`create_graph=True`), backward computes the layer again, step by step with recorded ops, and
differentiates those.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .._generated import ops
from ..linear_algebra.products import linear
from ..runtime.autograd import engine
from ..runtime.autograd.node import Node, Recipe, Saved
from ..runtime.autograd.rules import cast_to
from ..runtime.context import state
from ..runtime.device import meta
from ..runtime.dispatch import call, empty, is_recorded
from ..runtime.errors import FreedGraphError
from ..runtime.records import OpRecord, Rule, registry
from ..runtime.recurrent.directions import CellKind, Pass, Weights
from ..runtime.recurrent.steps import Geometry
from ..runtime.tensor import Tensor
from ..shape.joining import cat, stack

__all__ = ["layer"]


def layer(
    kind: CellKind, geometry: Geometry, x: Tensor, h0: Tensor, c0: Tensor | None, directions: Sequence[Weights]
) -> list[Tensor]:
    """Run all steps of one layer, and record it.

    Args:
        kind: The kind of network.
        geometry: Number of rows of each step.
        x: `(rows, input)`.
        h0: `(directions, batch, hidden or projected)`, of the dtype of `x`.
        c0: `(directions, batch, hidden)`, or None without a cell state.
        directions: Weights of each direction, of the dtype of `x`.

    Returns:
        out `(rows, directions * (hidden or projected))`, h_n shaped like h0, and with a cell state c_n like c0.
    """
    operands = [x, h0, c0, *(w for weights in directions for w in weights)]
    thread_state = state()
    recorded = is_recorded(*operands)
    thread_state.grad, grad_was_enabled = False, thread_state.grad
    try:
        passes, outs = _run(kind, geometry, x, h0, c0, directions, recorded)
    finally:
        thread_state.grad = grad_was_enabled
    if recorded:
        _record(kind, geometry, operands, outs, passes)
    return outs


def _run(
    kind: CellKind,
    geometry: Geometry,
    x: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    directions: Sequence[Weights],
    save_for_backward: bool,
) -> tuple[list[Pass], list[Tensor]]:
    dtype, device = x.meta.dtype, x.meta.device
    passes = []
    for d, weights in enumerate(directions):
        passes.append(Pass(kind, geometry, weights, d == 1, d * weights.hh.meta.shape[1]))
    shapes = [(geometry.rows, sum(p.width for p in passes)), h0.meta.shape, *([] if c0 is None else [c0.meta.shape])]
    outs = [empty(meta(dtype, shape, None, device)) for shape in shapes]
    for d, direction_pass in enumerate(passes):
        initial_hidden, final_states = _select_view(h0, d), [_select_view(o, d) for o in outs[1:]]
        direction_pass.forward(
            x,
            initial_hidden,
            None if c0 is None else _select_view(c0, d),
            outs[0],
            final_states[0],
            final_states[-1],
            save_for_backward,
        )
    for out in outs:
        out.storage.version = 0
    return passes, outs


def _select_view(tensor: Tensor, d: int) -> Tensor:
    """Return a view of index `d` of the first dimension."""
    layout = tensor.meta
    start = tensor.start + d * layout.strides[0] * layout.dtype.itemsize
    return Tensor(tensor.storage, meta(layout.dtype, layout.shape[1:], layout.strides[1:], layout.device), start)


def _record(
    kind: CellKind, geometry: Geometry, operands: list[Tensor | None], outs: list[Tensor], passes: list[Pass]
) -> None:
    """Create the graph node, whose function is a `_LayerBackward`."""
    layouts = [o.meta for o in outs]
    grad_indices = [i for i, o in enumerate(operands) if o is not None and o.needs_grad]
    metas = [None if o is None else o.meta for o in operands]
    record = OpRecord(kind.name, "custom", (), gradients={})
    recipe = Recipe(record, metas, layouts, [(i, Rule()) for i in grad_indices], [True] * len(outs))
    node = Node(recipe, operands, (), ())
    saved = [None if o is None else Saved(o, False) for o in operands]
    node.function = _LayerBackward(kind, geometry, grad_indices, saved, passes)
    for i, out in enumerate(outs):
        out.node, out.output, out.needs_grad = node, i, True


class _LayerBackward:
    """The backward function of one layer's call. It holds the operands and the `Pass`es until `release`.

    Attributes:
        holds_no_result: Tells the engine that nothing holds the gradients that this returns, so leaves need no copies.
    """

    holds_no_result = True

    def __init__(
        self, kind: CellKind, geometry: Geometry, grad_indices: list[int], saved: list[Saved | None],
        passes: list[Pass],
    ):  # fmt: skip
        self.kind, self.geometry, self.grad_indices = kind, geometry, grad_indices
        self.saved, self.passes = saved, passes
        self.is_released = False

    def __call__(self, node: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        if self.is_released:
            raise FreedGraphError(
                f"backward of {node.name}: its saved tensors were freed by an earlier backward; "
                "pass retain_graph=True to the first one to go through the graph twice"
            )
        operands = [None if entry is None else entry.unpack(node.name) for entry in self.saved]
        if state().grad:
            gradients = _recorded_gradients(self.kind, self.geometry, operands, self.grad_indices, grads)
        else:
            gradients = _fused_gradients(operands, self.grad_indices, grads, self.passes)
        return [
            None if gradient is None or operand is None else cast_to(gradient, operand.meta)
            for operand, gradient in zip([operands[i] for i in self.grad_indices], gradients, strict=True)
        ]

    def release(self) -> None:
        self.saved, self.passes, self.is_released = [], [], True


def _fused_gradients(
    operands: list[Tensor | None], grad_indices: list[int], grads: Sequence[Tensor | None], passes: list[Pass]
) -> list[Tensor | None]:
    """Compute gradients with the kernels of `Pass`."""
    x = operands[0]
    assert x is not None
    fields = Weights._fields
    gradients: dict[int, list[Tensor]] = {}
    for d, direction_pass in enumerate(passes):
        operand_indices = {"x": 0, "h0": 1, "c0": 2} | {name: 3 + d * len(fields) + k for k, name in enumerate(fields)}
        requested = {name for name, i in operand_indices.items() if i in grad_indices}
        state_grads = [None if g is None else _select_view(g, d) for g in grads[1:]]
        direction_grads = direction_pass.backward(
            x, grads[0], state_grads[0], state_grads[1] if len(state_grads) > 1 else None, requested.__contains__
        )
        for name in requested:
            gradients.setdefault(operand_indices[name], []).append(direction_grads[name])
    return [_join_directions(i, gradients[i]) for i in grad_indices]


def _join_directions(operand_index: int, parts: list[Tensor]) -> Tensor:
    """Combine the directions' gradients of an operand: sum those of the input, stack those of the initial states."""
    if operand_index == 0:
        return parts[0] if len(parts) == 1 else call(registry["add"], parts)
    return stack(parts) if operand_index < 3 else parts[0]


def _recorded_gradients(
    kind: CellKind, geometry: Geometry, operands: list[Tensor | None], grad_indices: list[int],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:  # fmt: skip
    """Compute differentiable gradients: run the layer with recorded ops on aliases of the operands."""
    aliases = {i: ops.alias(operand) for i, operand in enumerate(operands) if operand is not None}
    directions = [
        Weights(aliases[i], aliases[i + 1], aliases.get(i + 2), aliases.get(i + 3), aliases.get(i + 4))
        for i in range(3, len(operands), len(Weights._fields))
    ]
    outs = _layer_formula(kind, geometry, aliases[0], aliases[1], aliases.get(2), directions)
    output_grads = [(o, g) for o, g in zip(outs, grads, strict=True) if g is not None]
    roots: list[Tensor] = [o for o, _ in output_grads]
    seeds: list[Tensor | None] = [g for _, g in output_grads]
    return engine.run(roots, seeds, retain_graph=True, create_graph=True, inputs=[aliases[i] for i in grad_indices])


def _layer_formula(
    kind: CellKind, geometry: Geometry, x: Tensor, h0: Tensor, c0: Tensor | None, directions: Sequence[Weights]
) -> list[Tensor]:
    """Compute the layer by its definition, with a few recorded ops for each step."""
    results = [
        _direction(kind, geometry, weights, d == 1, x, h0[d], None if c0 is None else c0[d])
        for d, weights in enumerate(directions)
    ]
    outs, *final_states = zip(*results, strict=True)
    return [cat(outs, 1), *(stack(states) for states in final_states)]


def _direction(
    kind: CellKind, geometry: Geometry, weights: Weights, reverse: bool, x: Tensor, h0: Tensor, c0: Tensor | None
) -> list[Tensor]:
    """Compute one direction. Return its output, h_n, and c_n with a cell state."""
    pieces = [ops.narrow(x, 0, a, b - a) for a, b in pairwise(geometry.offsets)]
    initial = (h0,) if c0 is None else (h0, c0)
    first = geometry.sizes[-1] if reverse else geometry.batch
    states = [ops.narrow(s, 0, 0, first) for s in initial]
    finished_states: list[list[Tensor]] = [[] for _ in initial]  # last states of sequences that have ended already
    outs = []
    for piece in reversed(pieces) if reverse else pieces:
        n, active = piece.meta.shape[0], states[0].meta.shape[0]
        if n > active:  # in reverse order, shorter sequences begin here
            states = [cat([s, ops.narrow(i, 0, active, n - active)]) for s, i in zip(states, initial, strict=True)]
        elif n < active:
            for s, finished in zip(states, finished_states, strict=True):
                finished.insert(0, ops.narrow(s, 0, n, active - n))
            states = [ops.narrow(s, 0, 0, n) for s in states]
        states = _step(kind, weights, piece, states)
        outs.append(states[0])
    last = [cat([s, *finished]) for s, finished in zip(states, finished_states, strict=True)]
    return [cat(outs[::-1] if reverse else outs), *last]


def _step(kind: CellKind, weights: Weights, piece: Tensor, states: list[Tensor]) -> list[Tensor]:
    hidden_size = weights.hh.meta.shape[0] // kind.gates
    bias = weights.bias_hh
    separate_bias = bias if kind.reset else None
    input_product = linear(piece, weights.ih, weights.bias_ih)
    hidden_product = linear(states[0], weights.hh, None if kind.reset else bias)
    if separate_bias is not None:  # add the bias of the other gates to the input product
        input_product = input_product + cat(
            [
                ops.narrow(separate_bias, 0, 0, 2 * hidden_size),
                ops.zero_like(ops.narrow(separate_bias, 0, 0, hidden_size)),
            ]
        )
    pieces: list[Tensor | float] = [
        ops.narrow(p, 1, k * hidden_size, hidden_size)
        for p in (input_product, hidden_product)
        for k in range(kind.gates)
    ]
    if kind.cell:
        pieces.append(states[1])
    if kind.reset:
        new_gate_bias = 0.0 if separate_bias is None else ops.narrow(separate_bias, 0, 2 * hidden_size, hidden_size)
        pieces += [new_gate_bias, states[0]]
    results = call(registry[kind.op], pieces)
    hidden = results[0] if weights.hr is None else linear(results[0], weights.hr)
    return [hidden, results[2]] if kind.cell else [hidden]
