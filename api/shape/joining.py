"""Concatenate and stack tensors.

Each input is copied to its slice of the result by one launch, or up to 16 small inputs by one launch together. The
autograd graph gets one node for the whole call. See `splitting` for splitting and `repeating` for repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from math import prod
from operator import attrgetter

from ..arguments.aliases import resolve_axis_alias
from ..arguments.out import copy_to_out
from ..runtime import dtypes, layout, views
from ..runtime.context import _local
from ..runtime.device import Meta, meta
from ..runtime.dispatch import call, call_into, empty
from ..runtime.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from ..runtime.kinds.join import MAX_TENSORS
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import no_overriding_object, only_tensors
from .assembling import record_call

__all__ = [
    "cat", "column_stack", "concat", "concatenate", "dstack", "hstack", "meshgrid", "row_stack", "stack", "vstack",
]  # fmt: skip


# Largest mean number of elements of an input, and largest number of rows of the result, for which one launch for many
# tensors is faster than one launch for each: copies of short rows are not vectorised, and take as long as a launch
# (0.6 us) at a few hundred rows.
_JOIN_KERNEL_MAX_NUMEL, _JOIN_KERNEL_MAX_ROWS = 4096, 256

_ONLY_TENSORS = {Tensor}
_get_layout, _needs_grad = attrgetter("meta"), attrgetter("needs_grad")


# Concatenation --------------------------------------------------------------------------------------------------------


def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None) -> Tensor:
    """Concatenate tensors along an existing dimension.

    Args:
        tensors: At least one tensor. Shapes are equal except in dimension `dim`; a tensor of shape `(0,)` is skipped,
            as in PyTorch. Dtypes are promoted to a common one.
        dim: The dimension to concatenate along.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor of the promoted dtype.

    Raises:
        ShapeError: The shapes differ in another dimension, or a tensor has no dimensions.
        DeviceError: The tensors are on different devices.

    Example:
        >>> wg.cat([wg.tensor([1, 2]), wg.tensor([3])])
        tensor([1, 2, 3])
    """
    if axis is not None:
        dim = resolve_axis_alias("cat", dim, 0, axis)
    inputs = _check_tensors(tensors, "cat")
    layouts = set(map(_get_layout, inputs))  # layouts are interned, so equal ones are one object
    nonempty = inputs if len(layouts) == 1 else [t for t in inputs if t.meta.shape != (0,)] or inputs
    first_shape = nonempty[0].meta.shape
    if not first_shape:
        raise ShapeError("cat: 0-d tensors cannot be joined; use stack()")
    axis_index = layout.normalize_dim(dim, len(first_shape), "cat")
    length = first_shape[axis_index] * len(inputs)
    if len(layouts) > 1:
        length = 0
        for tensor in nonempty:
            shape = tensor.meta.shape
            if (
                len(shape) != len(first_shape)
                or shape[:axis_index] != first_shape[:axis_index]
                or shape[axis_index + 1 :] != first_shape[axis_index + 1 :]
            ):
                raise ShapeError(
                    f"cat: shapes must be equal except in dimension {axis_index}: {list(first_shape)} and {list(shape)}"
                )
            length += shape[axis_index]
    output = _concatenate(
        nonempty,
        axis_index,
        (*first_shape[:axis_index], length, *first_shape[axis_index + 1 :]),
        inputs,
        layouts,
        stacked=False,
    )
    return output if out is None else copy_to_out(output, out, "cat")


def _check_tensors(tensors: Iterable[Tensor], where: str) -> list[Tensor]:
    is_sequence = isinstance(tensors, (list, tuple))
    inputs = list(tensors) if is_sequence or (isinstance(tensors, Iterable) and not isinstance(tensors, Tensor)) else []
    if not inputs and is_sequence:
        raise ShapeError(f"{where}: takes at least one tensor")
    types = set(map(type, inputs))
    if types != _ONLY_TENSORS and not (types and all(issubclass(tensor_type, Tensor) for tensor_type in types)):
        for value in inputs:
            no_overriding_object(where, value)
        description = (
            type(tensors).__name__
            if not inputs
            else f"one with {', '.join(sorted({type(t).__name__ for t in inputs}))}"
        )
        raise ArgumentError(f"{where}: takes a sequence of tensors, at least one, not {description}")
    return inputs


concat = concatenate = cat


def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None) -> Tensor:
    """Stack tensors of equal shape along a new dimension.

    Args:
        tensors: At least one tensor; all have the same shape. Dtypes are promoted to a common one.
        dim: Position of the new dimension in the result.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor of the promoted dtype, with one dimension more.

    Raises:
        ShapeError: The shapes differ.
        DeviceError: The tensors are on different devices.

    Example:
        >>> wg.stack([wg.tensor([1, 2]), wg.tensor([3, 4])])
        tensor([[1, 2],
                [3, 4]])
    """
    if axis is not None:
        dim = resolve_axis_alias("stack", dim, 0, axis)
    inputs = _check_tensors(tensors, "stack")
    layouts = set(map(_get_layout, inputs))
    shape = inputs[0].meta.shape
    axis_index = layout.normalize_dim(dim, len(shape) + 1, "stack")
    if len(layouts) > 1:
        for tensor in inputs:
            if tensor.meta.shape != shape:
                raise ShapeError(f"stack: shapes must be equal: {list(shape)} and {list(tensor.meta.shape)}")
    output = _concatenate(
        inputs, axis_index, (*shape[:axis_index], len(inputs), *shape[axis_index:]), inputs, layouts, stacked=True
    )
    return output if out is None else copy_to_out(output, out, "stack")


def _concatenate(
    tensors: list[Tensor], dim: int, shape: tuple[int, ...], inputs: list[Tensor], layouts: set[Meta], *, stacked: bool
) -> Tensor:
    """Copy each of `tensors` to its slice along `dim` of a new tensor of `shape`.

    `inputs` has all arguments of the call, with the skipped empty ones; `layouts` is the set of their layouts.
    """
    dtype, device = inputs[0].meta.dtype, tensors[0].meta.device
    if len(layouts) > 1:
        dtype = reduce(dtypes.promote, (t.meta.dtype for t in inputs))
        if any(t.meta.device is not device for t in tensors):
            raise DeviceError(f"cat: tensors on different devices ({', '.join(str(t.meta.device) for t in tensors)})")
    out = empty(meta(dtype, shape, None, device))
    use_join_kernel = (
        out.meta.numel <= _JOIN_KERNEL_MAX_NUMEL * len(tensors) and prod(shape[:dim]) <= _JOIN_KERNEL_MAX_ROWS
    )
    state = _local.state
    grad_was_enabled = state.grad
    state.grad = False
    try:
        if use_join_kernel and len(layouts) == 1 and inputs[0].meta.contiguous:
            _join_by_kernel(tensors, dim, out, stacked)
        else:
            _join_by_copies(tensors, dim, out, stacked)
    finally:
        state.grad = grad_was_enabled
    out.storage.version = 0
    if not grad_was_enabled or dtype.kind != "f" or True not in map(_needs_grad, inputs):
        return out
    return _record_node(tensors, dim, out, inputs, stacked)


def _join_by_kernel(tensors: list[Tensor], dim: int, out: Tensor, stacked: bool) -> None:
    """Copy contiguous tensors of one layout to `out`, as many in one launch as the kernel takes.

    Mixed layouts are left to `_join_by_copies`, because every new order of layouts would need a plan of its own: for
    example, the sentence lengths of each batch.
    """
    join, statics, layout, offset = registry["join"], (dim, stacked), out.meta, out.start
    if not layout.numel:
        return
    if len(tensors) <= MAX_TENSORS:
        call_into(join, tensors, statics, (out,), in_place=False)
        return
    shape, strides = layout.shape, layout.strides
    for begin in range(0, len(tensors), MAX_TENSORS):
        group = tensors[begin : begin + MAX_TENSORS]
        length = len(group) if stacked else len(group) * group[0].meta.shape[dim]
        group_layout = meta(layout.dtype, (*shape[:dim], length, *shape[dim + 1 :]), strides, layout.device)
        call_into(join, group, statics, (Tensor(out.storage, group_layout, offset),), in_place=False)
        offset += length * strides[dim] * layout.dtype.itemsize


def _join_by_copies(tensors: list[Tensor], dim: int, out: Tensor, stacked: bool) -> None:
    """Copy each of `tensors` to its slice of `out`, one launch each."""
    layout = out.meta
    strides, dtype = layout.strides, layout.dtype
    slice_strides = strides[:dim] + strides[dim + 1 :] if stacked else strides
    step = strides[dim] * dtype.itemsize
    offset, storage, copy, source_layout = out.start, out.storage, registry["copy"], None
    for tensor in tensors:
        source = tensor.meta
        if source is not source_layout:  # layouts are interned, and neighbouring tensors often share one
            source_layout, target_layout = source, meta(dtype, source.shape, slice_strides, layout.device)
            byte_step = step if stacked else step * source.shape[dim]
        if source.numel:
            call_into(copy, (tensor,), (None,), (Tensor(storage, target_layout, offset),), in_place=False)
        offset += byte_step


def _record_node(tensors: list[Tensor], dim: int, out: Tensor, inputs: list[Tensor], stacked: bool) -> Tensor:
    """Record one node: a tensor's gradient is its slice of the result's gradient; a skipped tensor's is empty."""
    functions: list[Callable[[Tensor], Tensor]] = []
    start = 0
    for tensor in tensors:
        length = 1 if stacked else tensor.meta.shape[dim]
        name, statics = ("select", (dim, start)) if stacked else ("narrow", (dim, start, length))
        functions.append(partial(_slice_grad, name, statics))
        start += length
    empty_inputs = [t for t in inputs if all(t is not tensor for tensor in tensors)]
    functions += [partial(_empty_grad, t.meta) for t in empty_inputs]
    return record_call("cat", out, [*tensors, *empty_inputs], functions)


def _slice_grad(name: str, statics: tuple[int, ...], grad: Tensor) -> Tensor:
    return call(registry[name], (grad,), statics)


def _empty_grad(layout: Meta, grad: Tensor) -> Tensor:
    return empty(meta(grad.meta.dtype, layout.shape, None, layout.device))


def _reshape_to_ndim(tensors: Sequence[Tensor], ndim: int, where: str) -> list[Tensor]:
    reshaped = []
    for t in _check_tensors(tensors, where):
        shape = t.meta.shape
        if ndim == 3 and len(shape) < 3:
            shape = (1, *shape, 1) if len(shape) == 1 else (*shape, *(1,) * (3 - len(shape)))
        elif len(shape) < ndim:
            shape = (*(1,) * (ndim - len(shape)), *shape)
        reshaped.append(views.reshape(t, shape))
    return reshaped


def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Concatenate along dimension 1; vectors along dimension 0.

    Args:
        tensors: At least one tensor.
        out: Tensor to write the result to.

    Returns:
        Tensor of the promoted dtype.

    Example:
        >>> wg.hstack([wg.tensor([1, 2]), wg.tensor([3])])
        tensor([1, 2, 3])
    """
    inputs = _reshape_to_ndim(tensors, 1, "hstack")
    return cat(inputs, 0 if inputs[0].meta.ndim == 1 else 1, out=out)


def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Concatenate along dimension 0. A vector `(n,)` counts as a row `(1, n)`.

    Args:
        tensors: At least one tensor.
        out: Tensor to write the result to.

    Returns:
        Tensor of the promoted dtype.

    Example:
        >>> wg.vstack([wg.tensor([1, 2]), wg.tensor([3, 4])])
        tensor([[1, 2],
                [3, 4]])
    """
    return cat(_reshape_to_ndim(tensors, 2, "vstack"), 0, out=out)


row_stack = vstack


def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Concatenate along dimension 2. Inputs with fewer dimensions become `(1, n, 1)` or `(n, m, 1)` first.

    Args:
        tensors: At least one tensor.
        out: Tensor to write the result to.

    Returns:
        Tensor of the promoted dtype.

    Example:
        >>> wg.dstack([wg.tensor([1, 2]), wg.tensor([3, 4])])
        tensor([[[1, 3],
                 [2, 4]]])
    """
    return cat(_reshape_to_ndim(tensors, 3, "dstack"), 2, out=out)


def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Concatenate along dimension 1. A vector `(n,)` counts as a column `(n, 1)`.

    Args:
        tensors: At least one tensor.
        out: Tensor to write the result to.

    Returns:
        Tensor of the promoted dtype.

    Example:
        >>> wg.column_stack([wg.tensor([1, 2]), wg.tensor([3, 4])])
        tensor([[1, 3],
                [2, 4]])
    """
    inputs = _check_tensors(tensors, "column_stack")
    return cat([views.reshape(t, (t.meta.numel, 1)) if t.meta.ndim < 2 else t for t in inputs], 1, out=out)


def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str | None = None) -> tuple[Tensor, ...]:
    """Return coordinate grids: expanded views of vectors over the grid that they span.

    Args:
        *tensors: Vectors or scalars of one dtype, or one sequence of them.
        indexing: "ij" (matrix order, the default), or "xy" (Cartesian order: the first two dimensions are swapped).

    Returns:
        One view for each vector, all of shape `(n_1, ..., n_k)`.

    Raises:
        ShapeError: A tensor has more than one dimension.
        DTypeError: The dtypes differ.

    Example:
        >>> x, y = wg.meshgrid(wg.tensor([1, 2]), wg.tensor([3, 4]), indexing='xy')
        >>> x
        tensor([[1, 2],
                [1, 2]])
    """
    first = tensors[0] if len(tensors) == 1 else None
    inputs: Sequence[object] = first if isinstance(first, (list, tuple)) else tensors
    if indexing not in (None, "ij", "xy"):
        raise ShapeError(f"meshgrid: indexing must be 'ij' or 'xy', not {indexing!r}")
    only_tensors("meshgrid", *inputs)
    vectors = [x for x in inputs if isinstance(x, Tensor)]
    if not vectors:
        raise ShapeError("meshgrid: takes one vector or more")
    if any(t.meta.ndim > 1 for t in vectors):
        raise ShapeError(f"meshgrid: takes vectors, not shapes {', '.join(str(list(t.meta.shape)) for t in vectors)}")
    if any(t.meta.dtype is not vectors[0].meta.dtype for t in vectors):
        dtype_names = ", ".join(dict.fromkeys(t.meta.dtype.name for t in vectors))
        raise DTypeError(f"meshgrid: vectors of one dtype, not of {dtype_names}; convert them with .to()")
    shape = tuple(t.meta.numel for t in vectors)
    grids = []
    for d, t in enumerate(vectors):
        line = views.reshape(t, (1,) * d + (t.meta.numel,) + (1,) * (len(vectors) - d - 1))
        grid = call(registry["expand"], (line,), (shape,))
        grids.append(call(registry["transpose"], (grid,), (0, 1)) if indexing == "xy" and len(vectors) > 1 else grid)
    return tuple(grids)
