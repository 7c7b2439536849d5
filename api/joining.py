"""Tensors joined, cut, repeated, shifted. Cutting gives views; joining is a copy a tensor and one recorded call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from . import _hosting
from ._checks import only_tensors
from ._generated import ops
from .runtime import dtypes, layout, views
from .runtime.autograd.node import Node, Recipe
from .runtime.context import _local
from .runtime.device import meta
from .runtime.dispatch import call, call_into, empty, refresh
from .runtime.errors import ArgumentError, DeviceError, ShapeError
from .runtime.records import Operand, OpRecord, Rule, registry
from .runtime.spelling import spelled_dim, store
from .runtime.tensor import Tensor

__all__ = [
    "cat", "chunk", "column_stack", "concat", "concatenate", "dsplit", "dstack", "hsplit", "hstack", "meshgrid",
    "repeat_interleave", "roll", "row_stack", "split", "split_with_sizes", "stack", "tensor_split", "tile", "tril",
    "triu", "vsplit", "vstack",
]  # fmt: skip

_CAT = OpRecord("cat", "custom", (Operand("tensors"),), gradients={"tensors": Rule()})


# Joining ------------------------------------------------------------------------------------------------------------


def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None) -> Tensor:
    """`tensors` one behind the other along `dim`; shapes are equal beside it, dtypes are promoted.

    A vector of no elements joins anything, as in PyTorch.
    """
    if axis is not None:
        dim = spelled_dim("cat", dim, 0, axis)
    given = _listed(tensors, "cat")
    shown = [t for t in given if t.meta.shape != (0,)] or given
    first = shown[0].meta
    if not first.ndim:
        raise ShapeError("cat: 0-d tensors cannot be joined; use stack()")
    at = layout.normalize_dim(dim, first.ndim, "cat")
    length = 0
    for tensor in shown:
        shape = tensor.meta.shape
        if len(shape) != first.ndim or any(
            n != m for d, (n, m) in enumerate(zip(shape, first.shape, strict=True)) if d != at
        ):
            raise ShapeError(
                f"cat: shapes must be equal except in dimension {at}: {list(first.shape)} and {list(shape)}"
            )
        length += shape[at]
    found = _join(shown, at, first.shape[:at] + (length,) + first.shape[at + 1 :], given, stacked=False)
    return found if out is None else store(found, out, "cat")


def _listed(tensors: Any, where: str) -> list[Tensor]:
    given = list(tensors) if isinstance(tensors, Iterable) and not isinstance(tensors, Tensor) else []
    if not given or any(not isinstance(t, Tensor) for t in given):
        shown = (
            type(tensors).__name__ if not given else f"one with {', '.join(sorted({type(t).__name__ for t in given}))}"
        )
        raise ArgumentError(f"{where}: takes a sequence of tensors, at least one, not {shown}")
    return given


concat = concatenate = cat


def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None) -> Tensor:
    """`tensors` of one shape side by side in a new dimension `dim`."""
    if axis is not None:
        dim = spelled_dim("stack", dim, 0, axis)
    given = _listed(tensors, "stack")
    shape = given[0].meta.shape
    at = layout.normalize_dim(dim, len(shape) + 1, "stack")
    for tensor in given:
        if tensor.meta.shape != shape:
            raise ShapeError(f"stack: shapes must be equal: {list(shape)} and {list(tensor.meta.shape)}")
    found = _join(given, at, shape[:at] + (len(given),) + shape[at:], given, stacked=True)
    return found if out is None else store(found, out, "stack")


def _join(tensors: list[Tensor], dim: int, shape: tuple[int, ...], named: list[Tensor], *, stacked: bool) -> Tensor:
    """A new tensor of `shape`, each of `tensors` copied to its place along `dim`."""
    dtype = named[0].meta.dtype
    for tensor in named[1:]:
        if tensor.meta.dtype is not dtype:
            dtype = dtypes.promote(dtype, tensor.meta.dtype)
    device = tensors[0].meta.device
    if any(t.meta.device is not device for t in tensors):
        raise DeviceError(f"cat: tensors on different devices ({', '.join(str(t.meta.device) for t in tensors)})")
    out = empty(meta(dtype, shape, None, device))
    state = _local.state
    strides = out.meta.strides
    own = strides[:dim] + strides[dim + 1 :] if stacked else strides
    step = strides[dim] * dtype.itemsize
    at = out.start
    recorded = state.grad
    state.grad = False
    try:
        for tensor in tensors:
            source = tensor.meta
            if source.numel:
                target = Tensor(out.storage, meta(dtype, source.shape, own, device), at)
                call_into(registry["copy"], (tensor,), (None,), (target,), in_place=False)
            at += step if stacked else step * source.shape[dim]
    finally:
        state.grad = recorded
    out.storage.version = 0
    if recorded and dtype.kind == "f" and any(t.needs for t in tensors):
        _record(tensors, dim, out, stacked)
    return out


def _record(tensors: list[Tensor], dim: int, out: Tensor, stacked: bool) -> None:
    """One node for the whole: each tensor's gradient is its piece of the result's."""
    for tensor in tensors:
        base = None if tensor.extra is None else tensor.extra.base
        if base is not None and tensor.extra.seen != base.extra.rewrites:  # type: ignore[union-attr]
            refresh(tensor)
    wanted = [i for i, t in enumerate(tensors) if t.needs and t.meta.dtype.kind == "f"]
    if not wanted:
        return
    lengths = [1 if stacked else t.meta.shape[dim] for t in tensors]
    kept = [tensors[i].meta.dtype for i in wanted]
    starts = [sum(lengths[:i]) for i in wanted]
    sizes = [lengths[i] for i in wanted]
    shapes = [tensors[i].meta.shape for i in wanted]

    def backward(_: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        grad = grads[0]
        found: list[Tensor | None] = []
        for start, size, dtype, shape in zip(starts, sizes, kept, shapes, strict=True):
            if stacked:
                piece = call(registry["select"], (grad,), (dim, start))
            else:
                piece = call(registry["narrow"], (grad,), (dim, start, size))
            found.append(piece if piece.meta.dtype is dtype else call(registry["copy"], (piece,), (dtype,)))
            assert piece.meta.shape == shape
        return found

    metas = tuple(t.meta for t in tensors)
    recipe = Recipe(_CAT, metas, (out.meta,), [(i, Rule()) for i in wanted], (True,))
    out.node = Node(recipe, tensors, (out,), (), backward)
    out.needs = True


def _at_least(tensors: Sequence[Tensor], ndim: int) -> list[Tensor]:
    found = []
    for t in tensors:
        shape = t.meta.shape
        if ndim == 3 and len(shape) < 3:
            shape = (1, *shape, 1) if len(shape) == 1 else (*shape, *(1,) * (3 - len(shape)))
        elif len(shape) < ndim:
            shape = (*(1,) * (ndim - len(shape)), *shape)
        found.append(views.reshape(t, shape))
    return found


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 1; vectors along dimension 0."""
    given = _at_least(tensors, 1)
    return cat(given, 0 if given[0].meta.ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 0; vectors are rows."""
    return cat(_at_least(tensors, 2), 0)


row_stack = vstack


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 2."""
    return cat(_at_least(tensors, 3), 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 1; vectors are columns."""
    return cat([views.reshape(t, (t.meta.numel, 1)) if t.meta.ndim < 2 else t for t in tensors], 1)


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Views of vectors over the grid they span; `indexing` is "ij" (matrix) or "xy" (Cartesian)."""
    given = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"meshgrid: indexing must be 'ij' or 'xy', not {indexing!r}")
    only_tensors("meshgrid", *given)
    if any(t.meta.ndim > 1 for t in given):
        raise ShapeError(f"meshgrid: takes vectors, not shapes {', '.join(str(list(t.meta.shape)) for t in given)}")
    shape = tuple(t.meta.numel for t in given)
    found = []
    for d, t in enumerate(given):
        lined = views.reshape(t, (1,) * d + (t.meta.numel,) + (1,) * (len(given) - d - 1))
        grid = call(registry["expand"], (lined,), (shape,))
        found.append(call(registry["transpose"], (grid,), (0, 1)) if indexing == "xy" and len(given) > 1 else grid)
    return tuple(found)


# Cutting ------------------------------------------------------------------------------------------------------------


def split(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of pieces of `tensor` along `dim`: of one size (the last may be shorter), or of given sizes."""
    at = layout.normalize_dim(dim, tensor.meta.ndim, "split")
    length = tensor.meta.shape[at] if tensor.meta.ndim else 0
    if isinstance(split_size_or_sections, int):
        size = split_size_or_sections
        if size < 0 or (size == 0 and length):
            raise ArgumentError(f"split: the size of a piece must be positive, not {size}")
        sizes = [min(size, length - i) for i in range(0, length, size)] if length else [0]
    else:
        sizes = [int(n) for n in split_size_or_sections]
        if sum(sizes) != length or any(n < 0 for n in sizes):
            raise ShapeError(f"split: sizes {sizes} do not add up to {length}, the size of dimension {at}")
    return _pieces(tensor, at, sizes)


split_with_sizes = split


def _pieces(tensor: Tensor, dim: int, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    found, start = [], 0
    for size in sizes:
        found.append(call(registry["narrow"], (tensor,), (dim, start, size)))
        start += size
    return tuple(found)


def chunk(input: Tensor, chunks: int, dim: int = 0, *, axis: int | None = None) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal size along `dim`; the last may be shorter."""
    if axis is not None:
        dim = spelled_dim("chunk", dim, 0, axis)
    at = layout.normalize_dim(dim, input.meta.ndim, "chunk")
    if chunks < 1:
        raise ArgumentError(f"chunk: the number of chunks must be positive, not {chunks}")
    length = input.meta.shape[at]
    return split(input, -(-length // chunks), at) if length else _pieces(input, at, [0] * chunks)


def tensor_split(
    input: Tensor, indices_or_sections: int | Sequence[int], dim: int = 0, *, axis: int | None = None
) -> tuple[Tensor, ...]:
    """Views along `dim`: a number of nearly equal pieces, or pieces cut at given positions."""
    if axis is not None:
        dim = spelled_dim("tensor_split", dim, 0, axis)
    at = layout.normalize_dim(dim, input.meta.ndim, "tensor_split")
    length = input.meta.shape[at]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1:
            raise ArgumentError(f"tensor_split: the number of pieces must be positive, not {indices_or_sections}")
        base, more = divmod(length, indices_or_sections)
        return _pieces(input, at, [base + (i < more) for i in range(indices_or_sections)])
    cuts = [None, *indices_or_sections, None]
    return tuple(call(registry["slice"], (input,), (at, a, b, 1)) for a, b in pairwise(cuts))


def _split_at(input: Tensor, where: Any, dim: int, name: str) -> tuple[Tensor, ...]:
    if isinstance(where, int) and input.meta.shape[dim] % max(where, 1):
        raise ShapeError(
            f"{name}: dimension {dim} of size {input.meta.shape[dim]} does not split into {where} equal pieces"
        )
    return tensor_split(input, where, dim)


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 1 (0 of vectors), into equal pieces."""
    return _split_at(input, indices_or_sections, 0 if input.meta.ndim == 1 else 1, "hsplit")


def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 0, into equal pieces."""
    return _split_at(input, indices_or_sections, 0, "vsplit")


def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 2, into equal pieces."""
    return _split_at(input, indices_or_sections, 2, "dsplit")


# Repeating, shifting, triangles -------------------------------------------------------------------------------------


def _ints(given: tuple[Any, ...]) -> tuple[int, ...]:
    found = tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    return tuple(int(n.__index__()) for n in found)


def repeat(self: Tensor, *sizes: Any) -> Tensor:
    """The tensor repeated along each dimension; more sizes than dimensions add dimensions in front."""
    times = _ints(sizes)
    lead = len(times) - self.meta.ndim
    if lead < 0 or any(n < 0 for n in times):
        raise ShapeError(
            f"repeat: sizes {list(times)} must not be negative, and not fewer than {self.meta.ndim} dimensions"
        )
    shape = (1,) * lead + self.meta.shape
    apart = views.reshape(self, tuple(n for size in shape for n in (1, size)))
    wide = call(registry["expand"], (apart,), (tuple(n for pair in zip(times, shape, strict=True) for n in pair),))
    made = views.reshape(wide, tuple(a * b for a, b in zip(times, shape, strict=True)))
    return ops.contiguous_copy(made) if made.storage is self.storage else made


def tile(input: Tensor, *dims: Any) -> Tensor:
    """As `repeat`, with missing sizes taken as 1."""
    times = _ints(dims)
    return repeat(input, (1,) * (input.meta.ndim - len(times)) + times)


def repeat_interleave(
    input: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None, axis: int | None = None
) -> Tensor:
    """Every element repeated in its place along `dim` (of the flattened input without it).

    `repeats` is an int, or integers, one an element (whose values the host waits for).
    """
    if axis is not None:
        dim = spelled_dim("repeat_interleave", dim, None, axis)
    if dim is None:
        input, dim = views.reshape(input, (-1,)), 0
    at = layout.normalize_dim(dim, input.meta.ndim, "repeat_interleave")
    shape = input.meta.shape
    if not isinstance(repeats, int):
        counts = _hosting.host_array(repeats) if isinstance(repeats, Tensor) else np.asarray(repeats)
        if counts.size == 1:
            repeats = int(counts.reshape(-1)[0])
        else:
            if counts.shape != (shape[at],) or (counts.size and counts.min() < 0):
                raise ShapeError(
                    f"repeat_interleave: repeats must hold {shape[at]} counts, one an element of dimension {at}"
                )
            places = np.repeat(np.arange(shape[at]), counts)
            index = _hosting.from_host(places, dtypes.int64, input.meta.device)
            return call(registry["take_at"], (input, index), (at, 1))  # type: ignore[no-any-return]
    if repeats < 0:
        raise ArgumentError(f"repeat_interleave: repeats must not be negative, got {repeats}")
    wide = call(registry["unsqueeze"], (input,), (at + 1,))
    wide = call(registry["expand"], (wide,), (shape[: at + 1] + (repeats,) + shape[at + 1 :],))
    made = views.reshape(wide, shape[:at] + (shape[at] * repeats,) + shape[at + 1 :])
    return ops.contiguous_copy(made) if made.storage is input.storage else made


def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Elements shifted along `dims`, those that leave at one end entering at the other; without `dims`, flattened."""
    if dims is None:
        if not isinstance(shifts, int):
            raise ArgumentError("roll: several shifts need as many dims")
        return views.reshape(roll(views.reshape(input, (-1,)), shifts, 0), input.meta.shape)
    pairs = [(shifts, dims)] if isinstance(dims, int) and isinstance(shifts, int) else None
    if pairs is None:
        by, along = ([s] if isinstance(s, int) else list(s) for s in (shifts, dims))
        if len(by) != len(along):
            raise ArgumentError(f"roll: {len(by)} shifts and {len(along)} dims; there must be one for each")
        pairs = list(zip(by, along, strict=True))
    found = input
    for shift, dim in pairs:
        at = layout.normalize_dim(dim, input.meta.ndim, "roll")
        size = input.meta.shape[at]
        cut = size - shift % size if size else 0
        if cut not in (0, size):
            found = cat(_pieces(found, at, [cut, size - cut])[::-1], at)
    return ops.contiguous_copy(found) if found is input else found


def _triangle(input: Tensor, diagonal: int, lower: bool, where: str) -> Tensor:
    if input.meta.ndim < 2:
        raise ShapeError(f"{where}: takes matrices, not a tensor of shape {list(input.meta.shape)}")
    rows, columns = input.meta.shape[-2:]
    device = input.meta.device
    down = _hosting.from_host(np.arange(rows)[:, None] + diagonal, dtypes.int64, device)
    across = _hosting.from_host(np.arange(columns), dtypes.int64, device)
    kept = ops.le(across, down) if lower else ops.ge(across, down)
    return call(registry["where"], (kept, input, False))  # type: ignore[no-any-return]


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The elements on and below a diagonal of the last two dimensions, 0 elsewhere."""
    return _triangle(input, diagonal, True, "tril")


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The elements on and above a diagonal of the last two dimensions, 0 elsewhere."""
    return _triangle(input, diagonal, False, "triu")


METHODS = {
    name: globals()[name]
    for name in (
        "chunk", "dsplit", "hsplit", "repeat", "repeat_interleave", "roll", "split", "split_with_sizes", "tensor_split",
        "tile", "tril", "triu", "vsplit",
    )
}  # fmt: skip
