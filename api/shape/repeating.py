"""Repeat, roll, rotate and combine tensors. Each function is a copy of an expanded or rearranged view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

from .._generated import ops
from ..arguments.aliases import resolve_axis_alias
from ..arguments.types import Sizes
from ..creation.sequences import arange
from ..runtime import dtypes, host_data, layout, views
from ..runtime.device import meta
from ..runtime.dispatch import call, empty
from ..runtime.errors import DTypeError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .assembling import assemble, record_call
from .joining import meshgrid, stack
from .size_arguments import to_ints

__all__ = ["cartesian_prod", "combinations", "repeat_interleave", "roll", "rot90", "tile"]


def repeat(self: Tensor, *sizes: Sizes, repeats: Sequence[int] | None = None) -> Tensor:
    """Repeat the tensor `sizes[d]` times along each dimension `d`; additional sizes add leading dimensions.

    Args:
        *sizes: Number of repetitions of each dimension, as ints or as one sequence.
        repeats: The numbers by name.

    Returns:
        A copy of shape `sizes[d] * shape[d]`.

    Raises:
        ShapeError: A number is negative, or there are fewer numbers than dimensions.

    Example:
        >>> wg.tensor([1, 2]).repeat(2, 2)
        tensor([[1, 2, 1, 2],
                [1, 2, 1, 2]])
    """
    times = to_ints(sizes if repeats is None else (repeats,), "repeat")
    added_dims = len(times) - self.meta.ndim
    if added_dims < 0 or any(n < 0 for n in times):
        raise ShapeError(
            f"repeat: sizes {list(times)} must not be negative, and not fewer than {self.meta.ndim} dimensions"
        )
    shape = (1,) * added_dims + self.meta.shape
    with_unit_dims = views.reshape(self, tuple(n for size in shape for n in (1, size)))
    expanded = call(
        registry["expand"], (with_unit_dims,), (tuple(n for pair in zip(times, shape, strict=True) for n in pair),)
    )
    output = views.reshape(expanded, tuple(a * b for a, b in zip(times, shape, strict=True)))
    return ops.contiguous_copy(output) if output.storage is self.storage else output


def tile(input: Tensor, *repeats: Sizes, dims: Sequence[int] | None = None) -> Tensor:
    """Repeat the tensor as `Tensor.repeat` does, with 1 for missing leading sizes.

    Args:
        input: Tensor of any dtype.
        *repeats: Number of repetitions of each dimension, as ints or as one sequence.
        dims: The numbers by name.

    Returns:
        A copy.

    Example:
        >>> wg.tile(wg.tensor([[1, 2], [3, 4]]), (2,))
        tensor([[1, 2, 1, 2],
                [3, 4, 3, 4]])
    """
    only_tensors("tile", input)
    times = to_ints(repeats if dims is None else (*repeats, dims), "tile")
    return repeat(input, (1,) * (input.meta.ndim - len(times)) + times)


def repeat_interleave(
    input: Tensor,
    repeats: Tensor | SupportsIndex | Sequence[int] | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
    axis: int | None = None,
) -> Tensor:
    """Repeat each element along `dim`, keeping the order.

    Args:
        input: The tensor; if `repeats` is None, a vector of counts, and the result has each position as often as its
            count says.
        repeats: An int, or a list or integer tensor with one count for each element along `dim`.
        dim: The dimension to repeat along; None flattens the input.
        output_size: The sum of the counts, if known; otherwise the host waits for it.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor with the sum of the counts as size of `dim`; a vector if `dim` is None.

    Raises:
        ShapeError: Counts are negative or do not fit.
        DTypeError: The counts are not int32 or int64.

    Example:
        >>> wg.repeat_interleave(wg.tensor([1, 2]), 2)
        tensor([1, 1, 2, 2])
    """
    only_tensors("repeat_interleave", input)
    if axis is not None:
        dim = resolve_axis_alias("repeat_interleave", dim, None, axis)
    if repeats is None:
        return _repeated_positions(input, output_size)
    if dim is None:
        input, dim = views.reshape(input, (-1,)), 0
    axis_index = layout.normalize_dim(dim, input.meta.ndim, "repeat_interleave")
    if not input.meta.ndim:
        input = views.reshape(input, (1,))
    shape = input.meta.shape
    if isinstance(repeats, (tuple, list)):
        counts_array = np.asarray(to_ints((repeats,), "repeat_interleave"), np.int64)
        repeats = host_data.from_host(counts_array, dtypes.int64, input.meta.device)
    if isinstance(repeats, Tensor):
        if repeats.meta.ndim > 1 or (repeats.meta.numel != 1 and repeats.meta.numel != shape[axis_index]):
            raise ShapeError(
                f"repeat_interleave: repeats must be a number or {shape[axis_index]} of them, one an element of "
                f"dimension {axis_index}, not of shape {list(repeats.meta.shape)}"
            )
        counts = call(registry["expand"], (views.reshape(repeats, (-1,)),), ((shape[axis_index],),))
        return call(registry["take_at"], (input, _repeated_positions(counts, output_size)), (axis_index, 1))
    (times,) = to_ints((repeats,), "repeat_interleave")
    if times < 0:
        raise ShapeError(f"repeat_interleave: repeats must not be negative, got {times}")
    if output_size is not None and output_size != times * shape[axis_index]:
        raise ShapeError(
            f"repeat_interleave: the result has size {times * shape[axis_index]}, not output_size={output_size}"
        )
    expanded = call(registry["unsqueeze"], (input,), (axis_index + 1,))
    expanded = call(registry["expand"], (expanded,), (shape[: axis_index + 1] + (times,) + shape[axis_index + 1 :],))
    output = views.reshape(expanded, shape[:axis_index] + (shape[axis_index] * times,) + shape[axis_index + 1 :])
    return ops.contiguous_copy(output) if output.storage is input.storage else output


def _repeated_positions(counts: Tensor, output_size: int | None) -> Tensor:
    """Return each position `i` repeated `counts[i]` times, in order."""
    if counts.meta.ndim != 1:
        raise ShapeError(f"repeat_interleave: counts are a vector, not of shape {list(counts.meta.shape)}")
    if counts.meta.dtype.name not in ("int32", "int64"):
        raise DTypeError(f"repeat_interleave: counts are int32 or int64, not {counts.meta.dtype.name}")
    if not counts.meta.numel:
        return empty(meta(dtypes.int64, (0,), None, counts.meta.device))
    counts = call(registry["copy"], (counts,), (dtypes.int64,))
    ends = _cumulative_sum(counts)
    if output_size is None:
        bounds = stack([ops.amin(counts), ops.select(ends, 0, -1)]).tolist()
        lowest, size = (int(n) for n in bounds)
        if lowest < 0:
            raise ShapeError(f"repeat_interleave: repeats must not be negative, the least is {lowest}")
    else:
        (size,) = to_ints((output_size,), "repeat_interleave")
    # Mark the start of each run with 1 (two runs may share a start): the running sum minus 1 is the index of the run.
    # Empty runs at the end would start after the last element, and are not written.
    ones = ops.contiguous_copy(call(registry["expand"], (_unit_vector(counts),), ((counts.meta.numel,),)))
    marks = call(registry["spread_at"], (ones, ops.sub(ends, counts)), ((size,), 0, 1))
    return ops.sub(_cumulative_sum(marks), 1)


def _unit_vector(like: Tensor) -> Tensor:
    """Return the int64 tensor `[1]`."""
    return call(registry["full_like_as"], (empty(meta(dtypes.int64, (1,), None, like.meta.device)), 1), (None,))


def _cumulative_sum(vector: Tensor) -> Tensor:
    """Return the running sum of a vector."""
    return call(registry["cumsum"], (vector,), (0, False, None))


def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Shift elements along dimensions; elements shifted past the end re-enter at the start.

    Args:
        input: Tensor of any dtype.
        shifts: Number of positions, one for each of `dims`.
        dims: Dimensions to roll; None rolls the flattened tensor and restores its shape.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        ShapeError: There are not as many shifts as dims.

    Example:
        >>> wg.roll(wg.tensor([1, 2, 3]), 1)
        tensor([3, 1, 2])
    """
    only_tensors("roll", input)
    amounts = to_ints((shifts,), "roll")
    axes = () if dims is None else to_ints((dims,), "roll")
    if not axes:
        if len(amounts) != 1:
            raise ShapeError(f"roll: {len(amounts)} shifts need as many dims")
        return views.reshape(roll(views.reshape(input, (-1,)), amounts, (0,)), input.meta.shape)
    if len(amounts) != len(axes):
        raise ShapeError(f"roll: {len(amounts)} shifts and {len(axes)} dims; there must be one for each")
    shift_per_axis: dict[int, int] = {}
    for shift, dim in zip(amounts, axes, strict=True):
        axis = layout.normalize_dim(dim, input.meta.ndim, "roll")
        shift_per_axis[axis] = shift_per_axis.get(axis, 0) + shift
    return _roll_blocks(input, shift_per_axis)


def _roll_blocks(input: Tensor, shifts: dict[int, int]) -> Tensor:
    """Copy each block of `input` that moves as a whole to its new position, so that each element is copied once."""
    shape = input.meta.shape
    cuts = {d: -shift % shape[d] for d, shift in shifts.items() if shape and shape[d] and shift % shape[d]}
    full_block = [((0, n, 1), (0, n, 1)) for n in shape]
    blocks = [full_block]
    for d, cut in cuts.items():
        n = shape[d]
        halves = (((0, cut, 1), (n - cut, n, 1)), ((cut, n, 1), (0, n - cut, 1)))
        blocks = [[*block[:d], half, *block[d + 1 :]] for block in blocks for half in halves]
    out = empty(meta(input.meta.dtype, shape, None, input.meta.device))
    source = input.detach()
    parts = []
    for block in blocks:
        piece = call(registry["index_view"], (source,), tuple(source_range for source_range, _ in block))
        parts.append((piece, [("index_view", tuple(target_range for _, target_range in block))]))
    output = assemble("roll", out, parts, fill_zeros=False)
    inverse_shifts = {d: -shift for d, shift in shifts.items()}
    return record_call("roll", output, [input], [lambda grad: _roll_blocks(grad, inverse_shifts)])


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotate by 90 degrees `k` times in the plane of two dimensions, from the first towards the second.

    Args:
        input: Tensor with at least two dimensions.
        k: Number of rotations; negative ones go the other way.
        dims: Two different dimensions.

    Returns:
        Tensor; the sizes of the two dimensions are swapped for an odd `k`.

    Raises:
        ShapeError: `dims` does not have two different dimensions.

    Example:
        >>> wg.rot90(wg.tensor([[1, 2], [3, 4]]))
        tensor([[2, 4],
                [1, 3]])
    """
    only_tensors("rot90", input)
    axes = to_ints((dims,), "rot90")
    if len(axes) != 2 or input.meta.ndim < 2:
        raise ShapeError(
            f"rot90: turns in the plane of two dimensions, not {list(axes)}, of a tensor with shape "
            f"{list(input.meta.shape)}"
        )
    first, second = (layout.normalize_dim(d, input.meta.ndim, "rot90") for d in axes)
    if first == second:
        raise ShapeError(f"rot90: the two dimensions must differ, got {list(axes)}")
    rotated = input
    if k % 4 in (1, 2):
        rotated = ops.flip_view(rotated, (second,))
    if k % 4 in (2, 3):
        rotated = ops.flip_view(rotated, (first,))
    if k % 4 in (1, 3):
        rotated = ops.transpose(rotated, first, second)
    return ops.contiguous_copy(rotated)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Return the Cartesian product of vectors, one combination a row.

    A single vector is returned as it is.

    Args:
        *tensors: Vectors.

    Returns:
        Tensor of shape `(n_1 * ... * n_k, k)`.

    Raises:
        ShapeError: A tensor is not a vector.

    Example:
        >>> wg.cartesian_prod(wg.tensor([1, 2]), wg.tensor([3, 4]))
        tensor([[1, 3],
                [1, 4],
                [2, 3],
                [2, 4]])
    """
    vectors = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)
    only_tensors("cartesian_prod", *vectors)
    for x in vectors:
        if x.meta.ndim != 1:
            raise ShapeError(f"cartesian_prod: takes vectors, not a tensor of shape {list(x.meta.shape)}")
    if len(vectors) == 1:
        return vectors[0]
    return stack([views.reshape(grid, (-1,)) for grid in meshgrid(*vectors)], 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all combinations of `r` elements of a vector, one a row, like `itertools.combinations`.

    Args:
        input: A vector.
        r: Number of elements in a combination.
        with_replacement: Whether an element may occur several times.

    Returns:
        Matrix with `r` columns.

    Raises:
        ShapeError: The input is not a vector, or `r` is negative.

    Example:
        >>> wg.combinations(wg.tensor([1, 2, 3]))
        tensor([[1, 2],
                [1, 3],
                [2, 3]])
    """
    only_tensors("combinations", input)
    if input.meta.ndim != 1:
        raise ShapeError(f"combinations: takes a vector, not a tensor of shape {list(input.meta.shape)}")
    if r < 0:
        raise ShapeError(f"combinations: r must not be negative, got {r}")
    if not r:
        return empty(meta(input.meta.dtype, (0,), None, input.meta.device))
    grids = meshgrid(*[arange(input.meta.numel, device=input.meta.device)] * r)
    is_combination = None
    for i in range(r - 1):
        is_ordered = ops.le(grids[i], grids[i + 1]) if with_replacement else ops.lt(grids[i], grids[i + 1])
        is_combination = is_ordered if is_combination is None else ops.logical_and(is_combination, is_ordered)
    if is_combination is None:
        return views.reshape(input, (-1, 1))
    positions = is_combination.nonzero()
    return call(registry["take_at"], (input, positions), (0, 1))


METHODS = {name: globals()[name] for name in ("repeat", "repeat_interleave", "roll", "rot90", "tile")}
