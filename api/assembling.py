"""Tensors put together from others that are copied to places in them: diagonals, slices, blocks.

The places are views of the result, so that one copy kernel serves all; the gradient of each part is the same view of
the result's gradient, and derivatives of any order follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ._checks import only_tensors
from ._generated import ops
from .factories import empty as new
from .runtime import dtypes, views
from .runtime.autograd.node import Node, Recipe
from .runtime.autograd.rules import cast_to
from .runtime.context import _local
from .runtime.device import meta
from .runtime.dispatch import call, call_into, empty, is_recorded
from .runtime.errors import DeviceError, IndexOutOfRange, ShapeError
from .runtime.layout import normalize_dim
from .runtime.records import Operand, OpRecord, Rule, registry
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = [
    "block_diag", "diag", "diag_embed", "diagflat", "diagonal_scatter", "narrow_copy", "select_scatter",
    "slice_scatter",
]  # fmt: skip

# Views of the result, one of the other: an op's name and its static arguments.
Place = Sequence[tuple[str, tuple[Any, ...]]]


def at(tensor: Tensor, place: Place) -> Tensor:
    """The view of `tensor` at `place`."""
    for name, statics in place:
        tensor = call(registry[name], (tensor,), statics)
    return tensor


def assembled(
    where: str, out: Tensor, parts: Sequence[tuple[Tensor, Place]], *, base: Tensor | None = None, zeros: bool = True
) -> Tensor:
    """`out`, a new tensor, filled with `base` (or with zeros) and then, at their places, with `parts`; recorded."""
    state = _local.state
    recorded = state.grad
    state.grad = False
    try:
        if base is not None and out.meta.numel:
            call_into(registry["copy"], (base,), (None,), (out,), in_place=False)
        elif zeros and out.meta.numel:
            call_into(registry["fill"], (out, 0.0), (), (out,), in_place=False)
        for part, place in parts:
            target = at(out, place)
            if part.meta.shape != target.meta.shape:
                raise ShapeError(
                    f"{where}: the source must have shape {list(target.meta.shape)}, it has {list(part.meta.shape)}"
                )
            if part.meta.numel:
                call_into(registry["copy"], (part,), (None,), (target,), in_place=False)
    finally:
        state.grad = recorded
    out.storage.version = 0
    found = Tensor(out.storage, out.meta, out.start)
    operands = [*([base] if base is not None else []), *(part for part, _ in parts)]
    functions: list[Callable[[Tensor], Tensor]] = []
    if base is not None:
        places = [place for _, place in parts]
        functions.append(lambda grad: _cleared(where, grad, places))
    functions += [lambda grad, place=place: at(grad, place) for _, place in parts]  # type: ignore[misc]
    return recording(where, found, operands, functions)


def _cleared(where: str, grad: Tensor, places: Sequence[Place]) -> Tensor:
    """`grad` with zeros at `places`."""
    zero = call(registry["zero_like"], (empty(meta(grad.meta.dtype, (), None, grad.meta.device)),))
    parts = [(call(registry["expand"], (zero,), (at(grad, place).meta.shape,)), place) for place in places]
    return assembled(where, empty(meta(grad.meta.dtype, grad.meta.shape, None, grad.meta.device)), parts, base=grad)


def recording(
    name: str, out: Tensor, operands: Sequence[Tensor], functions: Sequence[Callable[[Tensor], Tensor]]
) -> Tensor:
    """`out` with a history: the gradient of an operand is its function of the gradient of `out`."""
    if out.meta.dtype.kind != "f" or not is_recorded(*operands):
        return out
    wanted = [i for i, x in enumerate(operands) if x.needs and x.meta.dtype.kind == "f"]
    layouts = [x.meta for x in operands]

    def backward(_: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        grad = grads[0]
        return [None if grad is None else cast_to(functions[i](grad), layouts[i]) for i in wanted]

    rules: dict[str, Rule] = {"parts": Rule()}
    record = OpRecord(name, "custom", (Operand("parts"),), gradients=rules)
    recipe = Recipe(record, tuple(layouts), (out.meta,), [(i, Rule()) for i in wanted], (True,))
    out.node = Node(recipe, operands, (out,), (), backward)
    out.needs = True
    return out


# Diagonals ------------------------------------------------------------------------------------------------------------


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Zeros with the last dimension of `input` on a diagonal of the dimensions `dim1` and `dim2` of the result.

    Raises `IndexOutOfRange` for a dimension the result does not have, `ShapeError` if the two are one.
    """
    only_tensors("diag_embed", input)
    ndim = input.meta.ndim + 1
    if not input.meta.ndim:
        raise IndexOutOfRange("diag_embed: a 0-d tensor has no dimension to put on a diagonal")
    first, second = normalize_dim(dim1, ndim, "diag_embed"), normalize_dim(dim2, ndim, "diag_embed")
    if first == second:
        raise ShapeError(f"diag_embed: the two dimensions must differ, got {dim1} and {dim2}")
    size = input.meta.shape[-1] + abs(offset)
    lead = iter(input.meta.shape[:-1])
    shape = tuple(size if d in (first, second) else next(lead) for d in range(ndim))
    out = empty(meta(input.meta.dtype, shape, None, input.meta.device))
    return assembled("diag_embed", out, [(input, [("diagonal", (offset, first, second))])])


def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Of a vector the matrix with it on a diagonal, of a matrix a copy of that diagonal."""
    only_tensors("diag", input)
    if input.meta.ndim not in (1, 2):
        raise ShapeError(f"diag: takes a vector or a matrix, not shape {list(input.meta.shape)}")
    if input.meta.ndim == 1:
        found = diag_embed(input, diagonal)
    else:
        found = ops.contiguous_copy(ops.diagonal(input, diagonal))
    return found if out is None else store(found, out, "diag")


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The matrix with all elements of `input`, in order, on a diagonal."""
    only_tensors("diagflat", input)
    return diag_embed(views.reshape(input, (-1,)), offset)


# Scattering -----------------------------------------------------------------------------------------------------------


def _scattered(where: str, input: Tensor, src: Tensor, place: Place) -> Tensor:
    only_tensors(where, input, src)
    if src.meta.device is not input.meta.device:
        raise DeviceError(f"{where}: tensors on different devices ({input.meta.device}, {src.meta.device})")
    out = empty(meta(input.meta.dtype, input.meta.shape, None, input.meta.device))
    return assembled(where, out, [(src, place)], base=input)


def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of `input` with `src` on the diagonal that `diagonal` would give, whose shape it has."""
    return _scattered("diagonal_scatter", input, src, [("diagonal", (offset, dim1, dim2))])


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `input` with `src` at position `index` of a dimension, which `src` does not have."""
    return _scattered("select_scatter", input, src, [("select", (dim, index))])


def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of `input` with `src` in place of every step-th element of a dimension from `start` to `end`."""
    return _scattered("slice_scatter", input, src, [("slice", (dim, start, end, step))])


def narrow_copy(input: Tensor, dim: int, start: int, length: int, *, out: Tensor | None = None) -> Tensor:
    """A copy of a dimension cut to `length` elements from `start`."""
    found = ops.contiguous_copy(ops.narrow(input, dim, start, length))
    return found if out is None else store(found, out, "narrow_copy")


# Blocks ---------------------------------------------------------------------------------------------------------------


def block_diag(*tensors: Tensor) -> Tensor:
    """Zeros with matrices one behind the other on the diagonal; vectors are rows, numbers 1 by 1. Dtypes are promoted.

    Raises `ShapeError` for more than two dimensions.
    """
    given = list(tensors)
    only_tensors("block_diag", *given)
    if not given:
        return new(1, 0)
    dtype, device = given[0].meta.dtype, given[0].meta.device
    for i, x in enumerate(given):
        dtype = dtypes.promote(dtype, x.meta.dtype)
        if x.meta.ndim > 2:
            raise ShapeError(
                f"block_diag: takes matrices, vectors and numbers; tensor {i} has shape {list(x.meta.shape)}"
            )
        if x.meta.device is not device:
            raise DeviceError(f"block_diag: tensors on different devices ({device}, {x.meta.device})")
    blocks = [views.reshape(x, (1,) * (2 - x.meta.ndim) + x.meta.shape) for x in given]
    parts: list[tuple[Tensor, Place]] = []
    row = column = 0
    for block in blocks:
        height, width = block.meta.shape
        parts.append((block, [("index_view", ((row, row + height, 1), (column, column + width, 1)))]))
        row, column = row + height, column + width
    out = empty(meta(dtype, (row, column), None, device))
    return assembled("block_diag", out, parts)


METHODS = {
    name: globals()[name]
    for name in (
        "diag", "diag_embed", "diagflat", "diagonal_scatter", "narrow_copy", "select_scatter", "slice_scatter",
    )
}  # fmt: skip
