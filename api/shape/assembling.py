"""Build tensors by copying parts into views of the result: diagonals, slices, blocks.

All functions share the copy kernel, because the destination of each part is a view of the result. The gradient of a
part is the same view of the result's gradient. Views are differentiable, so derivatives of any order work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from .._generated import ops
from ..arguments.out import copy_to_out
from ..creation.factories import empty as create_empty
from ..runtime import dtypes, views
from ..runtime.autograd.node import Node, Recipe
from ..runtime.autograd.rules import cast_to
from ..runtime.context import _local
from ..runtime.device import meta
from ..runtime.dispatch import call, call_into, empty, is_recorded
from ..runtime.errors import DeviceError, IndexOutOfRange, ShapeError
from ..runtime.layout import normalize_dim
from ..runtime.records import Operand, OpRecord, Rule, registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "block_diag", "diag", "diag_embed", "diagflat", "diagonal_scatter", "narrow_copy", "select_scatter",
    "slice_scatter",
]  # fmt: skip

ViewPath = Sequence[tuple[str, tuple[object, ...]]]
"""A chain of view ops, each applied to the result of the one before: (name of the op, static arguments)."""


def view_at(tensor: Tensor, path: ViewPath) -> Tensor:
    """Apply a chain of view ops to `tensor`."""
    for name, statics in path:
        tensor = call(registry[name], (tensor,), statics)
    return tensor


def assemble(
    where: str, out: Tensor, parts: Sequence[tuple[Tensor, ViewPath]], *, base: Tensor | None = None,
    fill_zeros: bool = True,
) -> Tensor:  # fmt: skip
    """Fill the new tensor `out` and record the call for autograd.

    Args:
        where: Name of the calling function, for messages and for the graph.
        out: The tensor to fill.
        parts: (tensor, view path) pairs; each tensor is copied to that view of `out`.
        base: Tensor to copy to all of `out` first.
        fill_zeros: Whether to fill `out` with zeros first if there is no `base`. Not needed if the parts cover it.

    Returns:
        A tensor with the memory of `out` and, if an operand requires grad, with a node.

    Raises:
        ShapeError: A part has another shape than its view.
    """
    state = _local.state
    grad_was_enabled = state.grad
    state.grad = False  # not `no_grad`: `autograd` imports this package
    try:
        if base is not None and out.meta.numel:
            call_into(registry["copy"], (base,), (None,), (out,), in_place=False)
        elif fill_zeros and out.meta.numel:
            call_into(registry["fill"], (out, 0.0), (), (out,), in_place=False)
        for part, path in parts:
            target = view_at(out, path)
            if part.meta.shape != target.meta.shape:
                raise ShapeError(
                    f"{where}: the source must have shape {list(target.meta.shape)}, it has {list(part.meta.shape)}"
                )
            if part.meta.numel:
                call_into(registry["copy"], (part,), (None,), (target,), in_place=False)
    finally:
        state.grad = grad_was_enabled
    out.storage.version = 0  # the caller gets a new tensor: the writes above do not count as in-place writes
    output = Tensor(out.storage, out.meta, out.start)
    operands = [part for part, _ in parts]
    paths = [path for _, path in parts]
    gradient_functions: list[Callable[[Tensor], Tensor]] = [partial(view_at, path=path) for path in paths]
    if base is not None:
        operands.insert(0, base)
        gradient_functions.insert(0, lambda grad: _zero_at(where, grad, paths))
    return record_call(where, output, operands, gradient_functions)


def _zero_at(where: str, grad: Tensor, paths: Sequence[ViewPath]) -> Tensor:
    """Return the gradient of `base`: a copy of `grad` with zeros at the views `paths`, which the parts overwrite."""
    zero = call(registry["zero_like"], (empty(meta(grad.meta.dtype, (), None, grad.meta.device)),))
    parts = [(call(registry["expand"], (zero,), (view_at(grad, path).meta.shape,)), path) for path in paths]
    return assemble(where, empty(meta(grad.meta.dtype, grad.meta.shape, None, grad.meta.device)), parts, base=grad)


def record_call(
    name: str, out: Tensor, operands: Sequence[Tensor], gradient_functions: Sequence[Callable[[Tensor], Tensor]]
) -> Tensor:
    """Record that `out` was computed from `operands`, if one of them requires grad.

    Args:
        name: The function's name in the graph.
        out: The result. It gets a node.
        operands: The tensors that it was computed from.
        gradient_functions: For each operand, a function from the gradient of `out` to that of the operand.

    Returns:
        `out`.
    """
    if out.meta.dtype.kind != "f" or not is_recorded(*operands):
        return out
    grad_indices = [i for i, x in enumerate(operands) if x.needs_grad and x.meta.dtype.kind == "f"]
    layouts = [x.meta for x in operands]

    def backward(_: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        grad = grads[0]
        return [None if grad is None else cast_to(gradient_functions[i](grad), layouts[i]) for i in grad_indices]

    rules: dict[str, Rule] = {"parts": Rule()}
    record = OpRecord(name, "custom", (Operand("parts"),), gradients=rules)
    recipe = Recipe(record, tuple(layouts), (out.meta,), [(i, Rule()) for i in grad_indices], (True,))
    out.node = Node(recipe, operands, (out,), (), backward)
    out.needs_grad = True
    return out


# Diagonals ------------------------------------------------------------------------------------------------------------


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return zeros with the last dimension of `input` on a diagonal of two new dimensions.

    Args:
        input: `(..., n)`.
        offset: Which diagonal: 0 is the main one, positive ones lie above it, negative ones below.
        dim1: Dimension of the result that counts rows.
        dim2: Dimension of the result that counts columns.

    Returns:
        Tensor of shape `(..., n + |offset|, n + |offset|)`, with the two new dimensions at `dim1` and `dim2`.

    Raises:
        IndexOutOfRange: `dim1` or `dim2` is out of range, or `input` is 0-d.
        ShapeError: `dim1` and `dim2` are the same dimension.

    Example:
        >>> wg.diag_embed(wg.tensor([1, 2]))
        tensor([[1, 0],
                [0, 2]])
    """
    only_tensors("diag_embed", input)
    ndim = input.meta.ndim + 1
    if not input.meta.ndim:
        raise IndexOutOfRange("diag_embed: a 0-d tensor has no dimension to put on a diagonal")
    first, second = normalize_dim(dim1, ndim, "diag_embed"), normalize_dim(dim2, ndim, "diag_embed")
    if first == second:
        raise ShapeError(f"diag_embed: the two dimensions must differ, got {dim1} and {dim2}")
    size = input.meta.shape[-1] + abs(offset)
    batch_sizes = iter(input.meta.shape[:-1])
    shape = tuple(size if d in (first, second) else next(batch_sizes) for d in range(ndim))
    out = empty(meta(input.meta.dtype, shape, None, input.meta.device))
    return assemble("diag_embed", out, [(input, [("diagonal", (offset, first, second))])])


def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Return a matrix with the vector `input` on a diagonal, or a copy of a diagonal of the matrix `input`.

    Args:
        input: Vector `(n,)` or matrix `(n, m)`.
        diagonal: Which diagonal: 0 is the main one, positive ones lie above it, negative ones below.
        out: Tensor to write the result to.

    Returns:
        For a vector a matrix of `n + |diagonal|` rows and columns. For a matrix a vector.

    Raises:
        ShapeError: `input` has neither one nor two dimensions.

    Example:
        >>> wg.diag(wg.tensor([[1, 2], [3, 4]]))
        tensor([1, 4])
    """
    only_tensors("diag", input)
    if input.meta.ndim not in (1, 2):
        raise ShapeError(f"diag: takes a vector or a matrix, not shape {list(input.meta.shape)}")
    if input.meta.ndim == 1:
        output = diag_embed(input, diagonal)
    else:
        output = ops.contiguous_copy(ops.diagonal(input, diagonal))
    return output if out is None else copy_to_out(output, out, "diag")


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """Return a matrix with the flattened `input` on a diagonal.

    Args:
        input: Tensor of any dtype.
        offset: Which diagonal: 0 is the main one, positive ones lie above it, negative ones below.

    Returns:
        Matrix with as many rows and columns as `input` has elements, plus `|offset|`.

    Example:
        >>> wg.diagflat(wg.tensor([[1], [2]]))
        tensor([[1, 0],
                [0, 2]])
    """
    only_tensors("diagflat", input)
    return diag_embed(views.reshape(input, (-1,)), offset)


# Scattering -----------------------------------------------------------------------------------------------------------


def _scatter_at(where: str, input: Tensor, src: Tensor, path: ViewPath) -> Tensor:
    """Return a copy of `input` with `src` at the view `path`. Raises `DeviceError` if their devices differ."""
    only_tensors(where, input, src)
    if src.meta.device is not input.meta.device:
        raise DeviceError(
            f"{where}: input is on {input.meta.device} and src on {src.meta.device}; move one of them with .to()"
        )
    out = empty(meta(input.meta.dtype, input.meta.shape, None, input.meta.device))
    return assemble(where, out, [(src, path)], base=input)


def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a copy of `input` with `src` on a diagonal.

    Args:
        input: Tensor of at least 2 dimensions.
        src: Tensor of the shape of `input.diagonal(offset, dim1, dim2)`.
        offset: Which diagonal: 0 is the main one, positive ones lie above it, negative ones below.
        dim1: Dimension that counts rows.
        dim2: Dimension that counts columns.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: `src` has another shape, or `dim1` and `dim2` are the same dimension.
        IndexOutOfRange: `dim1` or `dim2` is out of range.
        DeviceError: The tensors are on different devices.

    Example:
        >>> wg.diagonal_scatter(wg.zeros(2, 2), wg.ones(2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    return _scatter_at("diagonal_scatter", input, src, [("diagonal", (offset, dim1, dim2))])


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Return a copy of `input` with `src` at position `index` of dimension `dim`.

    Args:
        input: Tensor of any dtype.
        src: Tensor of the shape of `input.select(dim, index)`.
        dim: The dimension; negative values count from the last.
        index: Position in dimension `dim`; negative values count from the end.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: `src` has another shape.
        IndexOutOfRange: `dim` or `index` is out of range.
        DeviceError: The tensors are on different devices.

    Example:
        >>> wg.select_scatter(wg.zeros(2, 2), wg.ones(2), 0, 1)
        tensor([[0., 0.],
                [1., 1.]])
    """
    return _scatter_at("select_scatter", input, src, [("select", (dim, index))])


def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """Return a copy of `input` with `src` in the slice `start:end:step` of dimension `dim`.

    Args:
        input: Tensor of any dtype.
        src: Tensor of the shape of the slice: that of `input`, but for the number of positions in dimension `dim`.
        dim: The dimension; negative values count from the last.
        start: First position of the slice; None: 0.
        end: Position after the last one; None: the size.
        step: Distance between positions, at least 1.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: `src` has another shape, or `step` is below 1.
        IndexOutOfRange: `dim` is out of range.
        DeviceError: The tensors are on different devices.

    Example:
        >>> wg.slice_scatter(wg.zeros(4), wg.ones(2), 0, 1, 3)
        tensor([0., 1., 1., 0.])
    """
    return _scatter_at("slice_scatter", input, src, [("slice", (dim, start, end, step))])


def narrow_copy(input: Tensor, dim: int, start: int, length: int, *, out: Tensor | None = None) -> Tensor:
    """Return a copy of the positions `start` to `start + length - 1` of dimension `dim`.

    Args:
        input: Tensor of any dtype.
        dim: The dimension; negative values count from the last.
        start: First position.
        length: Number of positions.
        out: Tensor to write the result to.

    Returns:
        Tensor with size `length` in dimension `dim`.

    Raises:
        ShapeError: The positions reach past the end of dimension `dim`.
        IndexOutOfRange: `dim` or `start` is out of range.

    Example:
        >>> wg.narrow_copy(wg.arange(4), 0, 1, 2)
        tensor([1, 2])
    """
    output = ops.contiguous_copy(ops.narrow(input, dim, start, length))
    return output if out is None else copy_to_out(output, out, "narrow_copy")


# Blocks ---------------------------------------------------------------------------------------------------------------


def block_diag(*tensors: Tensor) -> Tensor:
    """Return a matrix with the tensors as blocks along the diagonal, and zeros elsewhere.

    A vector counts as a row, a 0-d tensor as a 1 by 1 matrix.

    Args:
        *tensors: Matrices, vectors and 0-d tensors on one device.

    Returns:
        Matrix with the rows and the columns of all blocks together, of their promoted dtype. Without tensors it has the
        shape `(1, 0)`.

    Raises:
        ShapeError: A tensor has more than two dimensions.
        DeviceError: The tensors are on different devices.

    Example:
        >>> wg.block_diag(wg.tensor([[1, 2]]), wg.tensor(3))
        tensor([[1, 2, 0],
                [0, 0, 3]])
    """
    operands = list(tensors)
    only_tensors("block_diag", *operands)
    if not operands:
        return create_empty(1, 0)
    dtype, device = operands[0].meta.dtype, operands[0].meta.device
    for i, x in enumerate(operands):
        dtype = dtypes.promote(dtype, x.meta.dtype)
        if x.meta.ndim > 2:
            raise ShapeError(
                f"block_diag: takes matrices, vectors and numbers; tensor {i} has shape {list(x.meta.shape)}"
            )
        if x.meta.device is not device:
            raise DeviceError(
                f"block_diag: tensor 0 is on {device} and tensor {i} on {x.meta.device}; move one of them with .to()"
            )
    blocks = [views.reshape(x, (1,) * (2 - x.meta.ndim) + x.meta.shape) for x in operands]
    parts: list[tuple[Tensor, ViewPath]] = []
    row = column = 0
    for block in blocks:
        height, width = block.meta.shape
        parts.append((block, [("index_view", ((row, row + height, 1), (column, column + width, 1)))]))
        row, column = row + height, column + width
    out = empty(meta(dtype, (row, column), None, device))
    return assemble("block_diag", out, parts)


METHODS = {
    name: globals()[name]
    for name in (
        "diag", "diag_embed", "diagflat", "diagonal_scatter", "narrow_copy", "select_scatter", "slice_scatter",
    )
}  # fmt: skip
