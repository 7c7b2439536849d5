"""A recurrent layer in the graph: its two directions run by `_recurrent.Pass`, recorded as one node.

Where derivatives are themselves to be differentiated, the layer is computed once more, step by step, by ops that are
recorded, and their gradients are its gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ._generated import ops
from ._recurrent import Pass, Sort, Weights
from ._stepping import Geometry
from .joining import cat, stack
from .products import linear
from .runtime.autograd import engine
from .runtime.autograd.node import Node, Recipe, Saved
from .runtime.autograd.rules import cast_to
from .runtime.context import state
from .runtime.device import meta
from .runtime.dispatch import call, empty, is_recorded
from .runtime.errors import FreedGraphError
from .runtime.records import OpRecord, Rule, registry
from .runtime.tensor import Tensor

__all__ = ["layer"]

Results = tuple[Tensor, Tensor, "Tensor | None"]


def layer(
    sort: Sort, geometry: Geometry, x: Tensor, h0: Tensor, c0: Tensor | None, directions: Sequence[Weights]
) -> Results:
    """All steps of one layer: (out, h_n, c_n), c_n None without a cell state.

    x: (rows, input), rows as `geometry` says. h0: (directions, batch, hidden, or projected where there is a
    projection), c0: (directions, batch, hidden), of the dtype of x, as the weights are. out: (rows, directions x hidden
    or projected); h_n, c_n as h0, c0.
    """
    operands: list[Any] = [x, h0, c0, *(w for each in directions for w in each)]
    own = state()
    recorded = is_recorded(*operands)
    own.grad, before = False, own.grad
    try:
        passes, outs = _run(sort, geometry, x, h0, c0, directions, recorded)
    finally:
        own.grad = before
    if recorded:
        _record(sort, geometry, operands, outs, passes)
    return outs[0], outs[1], outs[2] if len(outs) > 2 else None


def _run(
    sort: Sort, geometry: Geometry, x: Tensor, h0: Tensor, c0: Tensor | None, directions: Sequence[Weights], keep: bool
) -> tuple[list[Pass], list[Tensor]]:
    dtype, device = x.meta.dtype, x.meta.device
    passes = []
    for d, weights in enumerate(directions):
        passes.append(Pass(sort, geometry, weights, d == 1, d * weights.hh.meta.shape[1]))
    shapes = [(geometry.rows, sum(p.width for p in passes)), h0.meta.shape, *([] if c0 is None else [c0.meta.shape])]
    outs = [empty(meta(dtype, shape, None, device)) for shape in shapes]
    for d, each in enumerate(passes):
        first, last = _slice(h0, d), [_slice(o, d) for o in outs[1:]]
        each.forward(x, first, None if c0 is None else _slice(c0, d), outs[0], last[0], last[-1], keep)
    for out in outs:
        out.storage.version = 0
    return passes, outs


def _slice(tensor: Tensor, d: int) -> Tensor:
    """Number d of the first dimension."""
    own = tensor.meta
    start = tensor.start + d * own.strides[0] * own.dtype.itemsize
    return Tensor(tensor.storage, meta(own.dtype, own.shape[1:], own.strides[1:], own.device), start)


def _record(sort: Sort, geometry: Geometry, operands: list[Any], outs: list[Tensor], passes: list[Pass]) -> None:
    """Make the node of a call: what backward needs lies in `saved`, and goes when the node is released."""
    layouts = [o.meta for o in outs]
    wanted = [i for i, o in enumerate(operands) if o is not None and o.needs]
    metas = [None if o is None else o.meta for o in operands]
    record = OpRecord(sort.name, "custom", (), gradients={})
    recipe = Recipe(record, metas, layouts, [(i, Rule()) for i in wanted], [True] * len(outs))
    node = Node(recipe, operands, (), ())
    saved = [None if o is None else Saved(o, False) for o in operands]
    node.saved = (sort, geometry, wanted, saved, passes)
    node.function = _backward
    for i, out in enumerate(outs):
        out.node, out.output, out.needs = node, i, True


def _backward(node: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    if node.freed:
        raise FreedGraphError(
            f"backward of {node.name}: its saved tensors were freed by an earlier backward; "
            "pass retain_graph=True to the first one to go through the graph twice"
        )
    kept: Any = node.saved
    sort, geometry, wanted, saved, passes = kept
    operands = [None if each is None else each.unpack(node.name) for each in saved]
    if state().grad:
        found = _again(sort, geometry, operands, wanted, grads)
    else:
        found = _fused(operands, wanted, grads, passes)
    return [None if g is None else cast_to(g, operands[i].meta) for i, g in zip(wanted, found, strict=True)]


def _fused(
    operands: list[Any], wanted: list[int], grads: Sequence[Tensor | None], passes: list[Pass]
) -> list[Tensor | None]:
    """Gradients by the kernels of `Pass`."""
    x = operands[0]
    fields = Weights._fields
    found: dict[int, list[Tensor]] = {}
    for d, each in enumerate(passes):
        places = {"x": 0, "h0": 1, "c0": 2} | {name: 3 + d * len(fields) + k for k, name in enumerate(fields)}
        asked = {name for name, i in places.items() if i in wanted}
        arrived = [None if g is None else _slice(g, d) for g in grads[1:]]
        own = each.backward(x, grads[0], arrived[0], arrived[1] if len(arrived) > 1 else None, asked.__contains__)
        for name in asked:
            found.setdefault(places[name], []).append(own[name])
    return [_joined(i, found[i]) for i in wanted]


def _joined(place: int, parts: list[Tensor]) -> Tensor:
    """What both directions give an operand: a sum for the input, one each for the initial states."""
    if place == 0:
        return parts[0] if len(parts) == 1 else call(registry["add"], parts)  # type: ignore[no-any-return]
    return stack(parts) if place < 3 else parts[0]


def _again(
    sort: Sort, geometry: Geometry, operands: list[Any], wanted: list[int], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Gradients with a history: of the layer computed by recorded ops, on aliases of the operands."""
    own: list[Any] = [None if o is None else call(registry["alias"], (o,)) for o in operands]
    fields = len(Weights._fields)
    directions = [Weights(*own[i : i + fields]) for i in range(3, len(own), fields)]
    outs = _formula(sort, geometry, own[0], own[1], own[2], directions)
    given = [(o, g) for o, g in zip(outs, grads, strict=False) if o is not None and g is not None]
    roots: list[Tensor] = [o for o, _ in given]
    seeds: list[Tensor | None] = [g for _, g in given]
    return engine.run(roots, seeds, retain=True, create=True, inputs=[own[i] for i in wanted])


def _formula(
    sort: Sort, geometry: Geometry, x: Any, h0: Any, c0: Any, directions: Sequence[Weights]
) -> tuple[Any, Any, Any]:
    """The layer as its definition has it: a few recorded ops a step."""
    found = [
        _direction(sort, geometry, weights, d == 1, x, h0[d], None if c0 is None else c0[d])
        for d, weights in enumerate(directions)
    ]
    outs, hiddens, cells = zip(*found, strict=True)
    return cat(outs, 1), stack(hiddens), None if c0 is None else stack(cells)


def _direction(
    sort: Sort, geometry: Geometry, weights: Weights, reverse: bool, x: Any, h0: Any, c0: Any
) -> tuple[Any, Any, Any]:
    pieces = [ops.narrow(x, 0, a, b - a) for a, b in pairwise(geometry.offsets)]
    initial = (h0,) if c0 is None else (h0, c0)
    first = geometry.sizes[-1] if reverse else geometry.batch
    now = [ops.narrow(s, 0, 0, first) for s in initial]
    ended: list[list[Any]] = [[] for _ in initial]  # last states of sequences that end before the longest does
    outs = []
    for piece in reversed(pieces) if reverse else pieces:
        n, have = piece.meta.shape[0], now[0].meta.shape[0]
        if n > have:  # sequences that begin here, backwards
            now = [cat([s, ops.narrow(i, 0, have, n - have)]) for s, i in zip(now, initial, strict=True)]
        elif n < have:
            for s, past in zip(now, ended, strict=True):
                past.insert(0, ops.narrow(s, 0, n, have - n))
            now = [ops.narrow(s, 0, 0, n) for s in now]
        now = _step(sort, weights, piece, now)
        outs.append(now[0])
    last = [cat([s, *past]) for s, past in zip(now, ended, strict=True)]
    return cat(outs[::-1] if reverse else outs), last[0], last[1] if len(last) > 1 else None


def _step(sort: Sort, weights: Weights, piece: Any, now: list[Any]) -> list[Any]:
    size = weights.hh.meta.shape[0] // sort.gates
    bias: Any = weights.bias_hh
    apart = sort.reset and bias is not None
    given = linear(piece, weights.ih, weights.bias_ih)
    product = linear(now[0], weights.hh, None if apart else bias)
    if apart:  # all of it but what the reset gate acts on is added on the other side
        given = given + cat([ops.narrow(bias, 0, 0, 2 * size), ops.zero_like(ops.narrow(bias, 0, 0, size))])
    pieces: list[Any] = [ops.narrow(p, 1, k * size, size) for p in (given, product) for k in range(sort.gates)]
    if sort.cell:
        pieces.append(now[1])
    if sort.reset:
        pieces += [0.0 if bias is None else ops.narrow(bias, 0, 2 * size, size), now[0]]
    results = call(registry[sort.op], pieces)
    hidden = results[0] if weights.hr is None else linear(results[0], weights.hr)
    return [hidden, results[2]] if sort.cell else [hidden]
