"""Rows for views: other shapes, orders and parts of the same elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.device import meta
from ...runtime.kinds.view import GEOMETRY
from ...runtime.layout import normalize_dim
from ..errors import UnsupportedOperatorError
from .dynamic_sizes import Int, Size, as_int
from .graph import Graph, Value
from .program import Call, Ref, call_text

if TYPE_CHECKING:
    from ...runtime.call_types import Static

__all__ = ["VIEW_ROWS", "ViewConversion", "reshape"]

_LAST, _BEFORE_FIRST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class ViewConversion:
    """A view that becomes nodes.

    Args:
        call: The call.
        graph: Gets the nodes.
        value: The value of the operand.

    Attributes:
        source: The operand.
        result: The result.
    """

    def __init__(self, call: Call, graph: Graph, value: Value):
        source = call.operands[0]
        assert isinstance(source, Ref)
        self.call, self.graph, self.value, self.source, self.result = call, graph, value, source, call.results[0]

    def unsupported(self, reason: str) -> UnsupportedOperatorError:
        """Return the error for a view that cannot be expressed."""
        return UnsupportedOperatorError(f"export: {call_text(self.call.record, self.call.layer)}: {reason}")

    def statics(self, *defaults: Static) -> tuple[Static, ...]:
        """Return the static arguments; `defaults` for those that are left out."""
        return (*self.call.statics, *defaults[len(self.call.statics) :])

    def dim(self, dim: int) -> int:
        """Return a dimension of the source, counted from the front."""
        return int(normalize_dim(dim, self.source.ndim, self.call.record.name))


def reshape(graph: Graph, value: Value, old_shape: Sequence[Int], shape: Sequence[Int]) -> Value:
    """Add a Reshape. Sizes that depend on dynamic dimensions are left to the runtime where it can infer them."""
    if value in graph.reshaped:  # two in a row are one
        value, old_shape = graph.reshaped[value]
    if tuple(old_shape) == tuple(shape):
        return value
    target: list[Int] = list(shape)
    if not any(size == 0 for size in target):
        dynamic = [d for d, size in enumerate(target) if isinstance(size, Size)]
        for d in list(dynamic):
            if len(dynamic) > 1 and d < len(old_shape) and old_shape[d] == target[d]:
                target[d] = 0  # copied from the input
                dynamic.remove(d)
        if len(dynamic) == 1:
            target[dynamic[0]] = -1
    result = graph.op("Reshape", value, graph.shape(target, lambda: [(value, old_shape)]))
    graph.reshaped[result] = (value, tuple(old_shape))
    return result


def _view(c: ViewConversion) -> Value:
    return reshape(c.graph, c.value, c.source.shape, c.result.shape)


def _permute(c: ViewConversion) -> Value:
    (dims,) = c.statics()
    return c.graph.op("Transpose", c.value, perm=[c.dim(d) for d in dims])


def _transpose(c: ViewConversion) -> Value:
    order = list(range(c.source.ndim))
    if not order:
        return c.value
    a, b = (c.dim(d) for d in c.statics())
    order[a], order[b] = order[b], order[a]
    return c.graph.op("Transpose", c.value, perm=order)


def _expand(c: ViewConversion) -> Value:
    if c.result.shape == c.source.shape:
        return c.value
    return c.graph.op("Expand", c.value, c.graph.shape(c.result.shape, lambda: [(c.value, c.source.shape)]))


def _squeeze(c: ViewConversion) -> Value:
    (dim,) = c.statics(None)
    dims = range(c.source.ndim) if dim is None else [c.dim(d) for d in ((dim,) if isinstance(dim, int) else dim)]
    axes = [d for d in dims if c.source.shape[d] == 1]
    return c.graph.op("Squeeze", c.value, c.graph.ints(axes)) if axes else c.value


def _unsqueeze(c: ViewConversion) -> Value:
    (dim,) = c.statics()
    axis = normalize_dim(dim, c.source.ndim + 1, "unsqueeze")
    return c.graph.op("Unsqueeze", c.value, c.graph.ints([axis]))


def _select(c: ViewConversion) -> Value:
    dim, index = c.statics()
    return _pick(c, c.value, c.dim(dim), index)


def _pick(c: ViewConversion, value: Value, axis: int, index: Int) -> Value:
    if isinstance(index, int):
        return c.graph.op("Gather", value, c.graph.constant(np.array(index, np.int64)), axis=axis)
    picked = c.graph.op("Gather", value, c.graph.size(index, lambda: [(c.value, c.source.shape)]), axis=axis)
    return c.graph.op("Squeeze", picked, c.graph.ints([axis]))


def _slices(c: ViewConversion, value: Value, slices: dict[int, tuple[Int, Int, int]]) -> Value:
    """Add a Slice with (start, stop, step) for each axis."""
    parts = {axis: s for axis, s in slices.items() if s != (0, _LAST, 1)}
    if not parts:
        return value
    graph, shapes = c.graph, lambda: [(c.value, c.source.shape)]
    starts = graph.shape([start for start, _, _ in parts.values()], shapes)
    stops = graph.shape([stop for _, stop, _ in parts.values()], shapes)
    steps = [step for _, _, step in parts.values()]
    return graph.op(
        "Slice", value, starts, stops, graph.ints(parts), *([graph.ints(steps)] if set(steps) != {1} else [])
    )


def _bounds(start: Int | None, stop: Int | None, size: Int, step: int = 1) -> tuple[Int, Int, int]:
    """Return a slice as ONNX has it, where the bounds past the ends are the ends."""
    return 0 if start is None else start, _LAST if stop is None or stop == size else stop, step


def _slice(c: ViewConversion) -> Value:
    dim, start, stop, step = c.statics(None, None, None, 1)
    axis = c.dim(dim)
    return _slices(c, c.value, {axis: _bounds(start, stop, c.source.shape[axis], as_int(step, "the step"))})


def _narrow(c: ViewConversion) -> Value:
    dim, start, length = c.statics()
    axis = c.dim(dim)
    size = c.source.shape[axis]
    first = start + size if start < 0 else start
    return _slices(c, c.value, {axis: _bounds(first, first + length, size)})


def _index(c: ViewConversion) -> Value:
    slices: dict[int, tuple[Int, Int, int]] = {}
    picks: list[tuple[int, Int]] = []
    inserted: list[int] = []
    axis, result_dim = 0, 0
    for key in c.call.statics:
        if key is None:
            inserted.append(result_dim)
            result_dim += 1
            continue
        if isinstance(key, tuple):
            start, stop, step = key
            slices[axis] = _bounds(start, stop, c.source.shape[axis], 1 if step is None else as_int(step, "the step"))
            result_dim += 1
        else:
            picks.append((axis, key))
        axis += 1
    value = _slices(c, c.value, slices)
    for pick_axis, index in reversed(picks):  # from the last, so that axes before it keep their numbers
        value = _pick(c, value, pick_axis, index)
    return c.graph.op("Unsqueeze", value, c.graph.ints(inserted)) if inserted else value


def _flip(c: ViewConversion) -> Value:
    (dims,) = c.statics()
    if not dims:
        return c.value
    return _slices(c, c.value, {c.dim(d): (-1, _BEFORE_FIRST, -1) for d in dims})


def _diagonal(c: ViewConversion) -> Value:
    offset, dim1, dim2 = c.statics(0, 0, 1)
    a, b = c.dim(dim1), c.dim(dim2)
    rows, columns = (as_int(c.source.shape[d], "the size of a dimension with a diagonal") for d in (a, b))
    others = [d for d in range(c.source.ndim) if d not in (a, b)]
    last = c.graph.op("Transpose", c.value, perm=[*others, a, b])
    shape = [c.source.shape[d] for d in others]
    flat = reshape(c.graph, last, [*shape, rows, columns], [*shape, rows * columns])
    positions = np.diagonal(np.arange(rows * columns, dtype=np.int64).reshape(rows, columns), offset)
    return c.graph.op("Gather", flat, c.graph.constant(positions.copy()), axis=len(shape))


def _unfold(c: ViewConversion) -> Value:
    dim, size, step = (as_int(s, "an argument of unfold") for s in c.statics())
    axis = c.dim(dim)
    count = as_int(c.result.shape[axis], "the number of windows")
    positions = np.arange(count)[:, None] * step + np.arange(size)
    windows = c.graph.op("Gather", c.value, c.graph.constant(positions.astype(np.int64)), axis=axis)
    order = [d for d in range(c.source.ndim + 1) if d != axis + 1]
    return c.graph.op("Transpose", windows, perm=[*order, axis + 1])


def _as_strided(c: ViewConversion) -> Value:
    source = c.source.meta
    if not source.contiguous or any(isinstance(n, Size) for n in (*c.source.shape, *c.result.shape)):
        raise c.unsupported("it can be exported for contiguous tensors without dynamic dimensions only")
    shape, strides, offset = GEOMETRY["as_strided"](
        meta(source.dtype, source.shape, None, source.device), *c.call.statics
    )
    positions = np.full(shape, offset, np.int64)
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        positions += (np.arange(size) * stride).reshape([size if d == dim else 1 for d in range(len(shape))])
    flat = c.graph.op("Reshape", c.value, c.graph.ints([source.numel]))
    return c.graph.op("Gather", flat, c.graph.constant(positions), axis=0)


VIEW_ROWS: dict[str, Callable[[ViewConversion], Value]] = {
    "view": _view, "permute": _permute, "transpose": _transpose, "expand": _expand, "squeeze": _squeeze,
    "unsqueeze": _unsqueeze, "select": _select, "slice": _slice, "narrow": _narrow, "index_view": _index,
    "flip_view": _flip, "diagonal": _diagonal, "unfold": _unfold, "as_strided": _as_strided, "alias": lambda c: c.value,
}  # fmt: skip
