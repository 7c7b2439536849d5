"""Operators that move elements, select them, or make new tensors."""

from __future__ import annotations

import numpy as np

import weftgrad as wg

from ...runtime import dtypes
from ...runtime.tensor import Tensor
from .nodes import Node, NodeFunction

__all__ = ["SHAPE_OPS"]


def _reshape(node: Node) -> Tensor:
    x = node[0]
    shape = node.integers(1, "shape")
    if not node.attribute("allowzero", 0):
        shape = [x.shape[d] if n == 0 else n for d, n in enumerate(shape)]
    return x.reshape(shape)


def _flatten(node: Node) -> Tensor:
    x = node[0]
    axis = node.attribute("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1)


def _transpose(node: Node) -> Tensor:
    x = node[0]
    return x.permute(node.attribute("perm", list(range(x.ndim))[::-1]))


def _squeeze(node: Node) -> Tensor:
    x = node[0]
    axes = node.integers(1, "axes", None)
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(node: Node) -> Tensor:
    x, axes = node[0], node.integers(1, "axes")
    for axis in sorted(a % (x.ndim + len(axes)) for a in axes):
        x = x.unsqueeze(axis)
    return x


def _expand(node: Node) -> Tensor:
    x, shape = node[0], node.integers(1)
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(shape)))


def _slice(node: Node) -> Tensor:
    x = node[0]
    starts, ends = node.integers(1, "starts"), node.integers(2, "ends")
    axes = node.integers(3, "axes", list(range(len(starts))))
    steps = node.integers(4, "steps", [1] * len(starts))
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        dim = axis % x.ndim
        if step > 0:
            first, last, _ = slice(start, end, step).indices(x.shape[dim])
            x = x[(slice(None),) * dim + (slice(first, last, step),)]
        else:  # tensors take no negative steps
            positions = list(_descending_positions(x.shape[dim], start, end, step))
            x = x.index_select(dim, wg.tensor(positions, dtype=dtypes.int64, device=x.device))
    return x


def _descending_positions(size: int, start: int, end: int, step: int) -> range:
    """Return the positions of a slice with a negative step of `size` elements. Its end may lie before the first one."""
    first = min(start + size if start < 0 else start, size - 1)
    last = max(end + size, -1) if end < 0 else end
    return range(first, last, step)


def _concat(node: Node) -> Tensor:
    return wg.cat(node.tensors(), dim=node.attribute("axis", 1))


def _split(node: Node) -> list[Tensor | None]:
    x, axis = node[0], node.attribute("axis", 0)
    sizes = node.integers(1, "split", None)
    if sizes is None:
        count = node.attribute("num_outputs", len(node.output_names))
        part = -(-x.shape[axis] // count)
        sizes = [min(part, x.shape[axis] - i * part) for i in range(count)]
    return list(x.split(sizes, dim=axis))


def _tile(node: Node) -> Tensor:
    return node[0].repeat(node.integers(1, "repeats"))


def _shape(node: Node) -> Tensor:
    shape = list(node[0].shape)
    start, end = node.attribute("start", 0), node.attribute("end", None)
    return wg.tensor(shape[start:end], dtype=dtypes.int64, device="cpu")


def _size(node: Node) -> Tensor:
    return wg.tensor(node[0].numel(), dtype=dtypes.int64, device="cpu")


def _constant(node: Node) -> Tensor:
    for name in ("value", "value_int", "value_ints", "value_float", "value_floats"):
        if name in node.attributes:
            value = node.attribute(name)
            dtype = dtypes.int64 if "int" in name else dtypes.float32
            return value if isinstance(value, Tensor) else wg.tensor(value, dtype=dtype, device="cpu")
    raise node.unsupported("a constant that is no number or tensor")


def _constant_of_shape(node: Node) -> Tensor:
    value = node.attribute("value", None)
    if value is None:
        return wg.zeros(node.integers(0), device=node[0].device)
    return wg.full(node.integers(0), value.item(), dtype=value.dtype, device=node[0].device)


def _range(node: Node) -> Tensor:
    start, limit, step = (node[i] for i in range(3))
    return wg.arange(start.item(), limit.item(), step.item(), dtype=start.dtype, device=start.device)


def _trilu(node: Node) -> Tensor:
    diagonal = node.integers(1, default=[0])[0]
    function = wg.triu if node.attribute("upper", 1) else wg.tril
    return function(node[0], diagonal)


def _eye_like(node: Node) -> Tensor:
    from .nodes import dtype_of

    x, k = node[0], node.attribute("k", 0)
    dtype = dtype_of(node.attribute("dtype"), node.where) if "dtype" in node.attributes else x.dtype
    rows, columns = x.shape
    difference = wg.arange(columns, device=x.device) - wg.arange(rows, device=x.device).unsqueeze(1)
    return (difference == k).to(dtype)


# --- Indexing ---


def _count_from_front(index: Tensor, size: int) -> Tensor:
    """Return indices of `size` elements, with `size` added to negative ones, which count from the end."""
    return wg.where(index < 0, index + size, index)


def _gather(node: Node) -> Tensor:
    x, index = node[0], node[1]
    axis = node.attribute("axis", 0) % x.ndim
    known = node.known_integers.get(node.input_names[1])
    if known is not None and index.ndim == 0:
        return x.select(axis, known[0])
    flat = _count_from_front(index.reshape(-1), x.shape[axis]).to(dtypes.int64)
    return x.index_select(axis, flat).reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


def _gather_elements(node: Node) -> Tensor:
    x, index = node[0], node[1]
    axis = node.attribute("axis", 0) % x.ndim
    return x.gather(axis, _count_from_front(index, x.shape[axis]).to(dtypes.int64))


def _index_tuple(x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    """Return indices of the first dimensions of `x`: those that lie along the last dimension of `index`."""
    return tuple(_count_from_front(index[..., i], x.shape[i]).to(dtypes.int64) for i in range(index.shape[-1]))


def _gather_nd(node: Node) -> Tensor:
    x, index = node[0], node[1]
    batch = node.attribute("batch_dims", 0)
    if not batch:
        return x[_index_tuple(x, index)]
    shape = x.shape[:batch]
    flat_x, flat_index = x.reshape(-1, *x.shape[batch:]), index.reshape(-1, *index.shape[batch:])
    parts = [flat_x[i][_index_tuple(flat_x[i], flat_index[i])] for i in range(flat_x.shape[0])]
    result = wg.stack(parts)
    return result.reshape(*shape, *result.shape[1:])


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scatter_elements(node: Node) -> Tensor:
    x, index, updates = node[0], node[1], node[2]
    axis = node.attribute("axis", 0) % x.ndim
    index = _count_from_front(index, x.shape[axis]).to(dtypes.int64)
    reduction = node.attribute("reduction", "none")
    if reduction == "none":
        return x.scatter(axis, index, updates)
    return x.scatter_reduce(axis, index, updates, _REDUCTIONS[reduction], include_self=True)


def _scatter_nd(node: Node) -> Tensor:
    x, index, updates = node[0], node[1], node[2]
    reduction = node.attribute("reduction", "none")
    count = index.shape[-1]
    positions = _index_tuple(x, index)
    if reduction in ("none", "add"):
        return x.index_put(positions, updates, accumulate=reduction == "add")
    flat = wg.zeros_like(positions[0])
    for position, size in zip(positions, x.shape, strict=False):
        flat = flat * size + position
    rows = x.reshape(int(np.prod(x.shape[:count], dtype=np.int64)), -1)
    new_rows = updates.reshape(-1, rows.shape[1])
    targets = flat.reshape(-1, 1).expand(new_rows.shape)
    return rows.scatter_reduce(0, targets, new_rows, _REDUCTIONS[reduction], include_self=True).reshape(x.shape)


def _one_hot(node: Node) -> Tensor:
    index, depth, values = node[0], node.integers(1)[0], node[2]
    axis = node.attribute("axis", -1) % (index.ndim + 1)
    wrapped = _count_from_front(index, depth).unsqueeze(axis)
    classes = wg.arange(depth, device=index.device).reshape(-1, *(1,) * (index.ndim - axis))
    return wg.where(wrapped == classes.to(wrapped.dtype), values[1], values[0])


def _depth_to_space(node: Node) -> Tensor:
    x, block = node[0], node.attribute("blocksize")
    n, channels, height, width = x.shape
    rest = channels // block**2
    if node.attribute("mode", "DCR") == "CRD":
        parts = x.reshape(n, rest, block, block, height, width).permute(0, 1, 4, 2, 5, 3)
    else:
        parts = x.reshape(n, block, block, rest, height, width).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, rest, height * block, width * block)


def _space_to_depth(node: Node) -> Tensor:
    x, block = node[0], node.attribute("blocksize")
    n, channels, height, width = x.shape
    order = (0, 1, 3, 5, 2, 4) if node.attribute("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    parts = x.reshape(n, channels, height // block, block, width // block, block).permute(order)
    return parts.reshape(n, channels * block**2, height // block, width // block)


SHAPE_OPS: dict[str, NodeFunction] = {
    "Concat": _concat, "Constant": _constant, "ConstantOfShape": _constant_of_shape, "DepthToSpace": _depth_to_space,
    "Expand": _expand, "EyeLike": _eye_like, "Flatten": _flatten, "Gather": _gather, "GatherElements": _gather_elements,
    "GatherND": _gather_nd, "OneHot": _one_hot, "Range": _range, "Reshape": _reshape,
    "Scatter": _scatter_elements, "ScatterElements": _scatter_elements, "ScatterND": _scatter_nd, "Shape": _shape,
    "Size": _size, "Slice": _slice, "SpaceToDepth": _space_to_depth, "Split": _split, "Squeeze": _squeeze,
    "Tile": _tile, "Transpose": _transpose, "Trilu": _trilu, "Unsqueeze": _unsqueeze,
}  # fmt: skip
"""Functions by operator."""
