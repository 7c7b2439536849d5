"""Embedding lookups, their reductions over bags, and one-hot vectors.

Gradients are summed in the order of the indices, so the same call gives the same bits. `indexing.bounds` checks
indices: those of `embedding` while the lookup runs if there are many, those of the other functions before.
"""

from __future__ import annotations

import math

import numpy as np

from .._generated import ops
from ..autograd import no_grad
from ..creation.factories import full, zeros
from ..indexing.assignment import tensor_value, upload
from ..indexing.bounds import check_bounds, prepare_check
from ..reductions.statistics import norm
from ..runtime import dtypes, views
from ..runtime.dispatch import call, call_into
from ..runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors, to_integer

__all__ = ["embedding", "embedding_bag", "embedding_renorm_", "one_hot"]

_take_at, _put_at = registry["take_at"], registry["put_at"]
_rows, _frequency_scaled_rows = registry["embedding_rows"], registry["embedding_shared"]


def _check_table(weight: Tensor, padding_idx: int | None, sparse: bool, where: str) -> int:
    """Check the table, and return the row that gets no gradient, or -1."""
    if sparse:
        raise NotSupported(f"{where}: there are no sparse gradients; leave sparse=False")
    if weight.meta.ndim != 2:
        raise ShapeError(f"{where}: weight must be a matrix, not of shape {list(weight.meta.shape)}")
    rows = weight.meta.shape[0]
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise IndexOutOfRange(f"{where}: padding_idx {padding_idx} is out of range for a dimension of size {rows}")
    return padding_idx % rows


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Look up rows of a table.

    Args:
        input: Integer indices, of any shape.
        weight: The table, `(rows, features)`.
        padding_idx: Row that gets no gradient; negative ones count from the end.
        max_norm: Rows that are read and have a larger norm are first scaled down to this norm, in place.
        norm_type: The p of this norm.
        scale_grad_by_freq: Whether to divide a row's gradient by the number of times that it is read.
        sparse: Must be False.

    Returns:
        `(*input.shape, features)`.

    Raises:
        IndexOutOfRange: An index or `padding_idx` is out of range.
        ShapeError: `weight` is not a matrix.
        NotSupported: `sparse` is True.

    Example:
        >>> wg.nn.functional.embedding(wg.tensor([1, 0]), wg.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[3., 4.],
                [1., 2.]])
    """
    only_tensors("embedding", input, weight)
    padding_row = _check_table(weight, padding_idx, sparse, "embedding")
    check = prepare_check(input, weight.meta.shape[0], "embedding")
    if max_norm is not None:
        check()
        _renormalize(weight, input, max_norm, norm_type)
    if scale_grad_by_freq:
        return check.run(_frequency_scaled_rows, (weight, input), (0, 1, padding_row))
    if padding_row < 0:
        return check.run(_take_at, (weight, input), (0, 1))
    return check.run(_rows, (weight, input), (0, 1, padding_row))


def embedding_renorm_(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scale down the rows of `weight` at `indices` to a norm of at most `max_norm`, in place.

    Args:
        weight: Table of shape `(num_embeddings, embedding_dim)`.
        indices: Integer tensor of any shape.
        max_norm: Largest norm of a row.
        norm_type: Order of the norm.

    Returns:
        `weight`.

    Raises:
        IndexOutOfRange: An index is out of range.

    Example:
        >>> wg.embedding_renorm_(wg.tensor([[3.0, 4.0], [30.0, 40.0]]), wg.tensor([0]), 2.5)
        tensor([[ 1.5000,  2.0000],
                [30.0000, 40.0000]])
    """
    only_tensors("embedding_renorm_", weight, indices)
    _check_table(weight, None, False, "embedding_renorm_")
    check_bounds(indices, weight.meta.shape[0], "embedding_renorm_")
    _renormalize(weight, indices, max_norm, norm_type)
    return weight


def _renormalize(weight: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale rows in place. A row that occurs twice is written twice with the same values, as all are read first."""
    if not index.meta.numel or not weight.meta.numel:
        return
    with no_grad():
        flat_index = views.reshape(index, (-1,))
        rows = call(_take_at, (weight, flat_index), (0, 1))
        norms = norm(rows, norm_type, 1, True)
        scales = ops.where(ops.gt(norms, max_norm), ops.true_divide(max_norm, ops.add(norms, 1e-7)), 1.0)
        call_into(_put_at, (weight, flat_index, ops.mul(rows, scales)), (0, 1), (weight,), in_place=True)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Encode class indices as one-hot vectors.

    Args:
        tensor: Integer classes, of any shape.
        num_classes: Number of classes; -1 for the largest class plus 1, which the host waits for.

    Returns:
        int64 `(*tensor.shape, num_classes)`: 1 at the class, 0 elsewhere.

    Raises:
        IndexOutOfRange: A class is negative, or not below `num_classes`.
        DTypeError: `tensor` is not of an integer dtype.
        ShapeError: `tensor` is empty, and `num_classes` is -1.

    Example:
        >>> wg.nn.functional.one_hot(wg.tensor([0, 2]))
        tensor([[1, 0, 0],
                [0, 0, 1]])
    """
    only_tensors("one_hot", tensor)
    if tensor.meta.dtype.kind not in "ui":
        raise DTypeError(f"one_hot: classes are integers, not {tensor.meta.dtype.name}; convert them with .long()")
    if num_classes == -1:
        if not tensor.meta.numel:
            raise ShapeError("one_hot: of an empty tensor, give num_classes")
        largest = int(ops.amax(tensor).item())
        if largest < 0:
            raise IndexOutOfRange(f"one_hot: class {largest} is negative; classes count from 0")
        num_classes = largest + 1
    to_integer(num_classes, "one_hot", "num_classes", 0 if tensor.meta.numel else 1)
    check_bounds(tensor, num_classes, "one_hot")
    shape = tensor.meta.shape
    output = zeros(*shape, num_classes, dtype=dtypes.int64, device=tensor.meta.device)
    if output.meta.numel:
        class_index = views.reshape(tensor, (*shape, 1))
        ones = tensor_value(1, output, (*shape, 1))
        call_into(registry["scatter"], (output, class_index, ones), (len(shape),), (output,), in_place=True)
    return output


# Bags -----------------------------------------------------------------------------------------------------------------


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """Look up rows of a table and reduce them over bags of indices.

    `embedding_bag(weight, input, ...)`, PyTorch's former order of the first two arguments, works too.

    Args:
        input: Integer indices: `(bags, n)`, or `(n,)` together with `offsets`.
        weight: The table, `(rows, features)`.
        offsets: `(bags,)`, the start of each bag in `input`; the first one is 0.
        max_norm: Rows that are read and have a larger norm are first scaled down to this norm, in place; None: never.
        norm_type: Order of that norm.
        scale_grad_by_freq: Divide gradients by the frequency of the row in `input`.
        mode: "sum", "mean" or "max"; an empty bag gives 0.
        sparse: Must be False.
        per_sample_weights: Factors of the rows, of the shape of `input`; only for "sum".
        include_last_offset: Whether `offsets` has one more element, the end of the last bag.
        padding_idx: Row that is left out of the reduction.

    Returns:
        `(bags, features)`.

    Raises:
        IndexOutOfRange: Indices or offsets are out of range.
        ShapeError: Shapes do not fit.
        ArgumentError: Arguments contradict each other.
        NotSupported: `sparse`, or weights with another mode than "sum".
        DTypeError: `per_sample_weights` has another dtype than `weight`.

    Example:
        >>> wg.nn.functional.embedding_bag(wg.tensor([[0, 1]]), wg.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[2., 3.]])
    """
    where = "embedding_bag"
    only_tensors(where, input, weight)
    if input.meta.dtype.kind == "f" and weight.meta.dtype.kind in "ui":
        input, weight = weight, input
    padding_row = _check_table(weight, padding_idx, sparse, where)
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f"{where}: mode must be 'sum', 'mean' or 'max', not {mode!r}")
    if scale_grad_by_freq and mode == "max":
        raise ArgumentError(f"{where}: scale_grad_by_freq is not for the mode 'max'")
    if per_sample_weights is not None:
        only_tensors(where, per_sample_weights)
        if mode != "sum":
            raise NotSupported(f"{where}: per_sample_weights are for the mode 'sum', not {mode!r}")
        if per_sample_weights.meta.shape != input.meta.shape:
            raise ShapeError(
                f"{where}: per_sample_weights have shape {list(per_sample_weights.meta.shape)}, input "
                f"{list(input.meta.shape)}; there must be one for each index"
            )
        if per_sample_weights.meta.dtype is not weight.meta.dtype:
            raise DTypeError(
                f"{where}: per_sample_weights are {per_sample_weights.meta.dtype.name}, weight "
                f"{weight.meta.dtype.name}; convert one with .to()"
            )
    check_bounds(input, weight.meta.shape[0], where)
    offsets, bag_count = _bag_offsets(input, offsets, include_last_offset)
    flat_input = views.reshape(input, (-1,))
    if max_norm is not None:
        _renormalize(weight, flat_input, max_norm, norm_type)
    has_factors = scale_grad_by_freq or per_sample_weights is not None
    if mode != "max" and not has_factors and weight.meta.dtype.kind == "f" and flat_input.meta.numel:
        statics = (bag_count, padding_row, mode == "mean")
        return call(registry["bag_sums"], (weight, flat_input, offsets), statics)
    # Of no indices there are no bag numbers: an empty index tensor stands for them.
    bag_numbers = (
        call(registry["bag_of"], (offsets,), (flat_input.meta.numel,)) if flat_input.meta.numel else flat_input
    )
    if scale_grad_by_freq:
        rows = call(_frequency_scaled_rows, (weight, flat_input), (0, 1, padding_row))
    else:
        rows = call(_take_at, (weight, flat_input), (0, 1))
    if padding_row >= 0:
        bag_numbers = ops.where(ops.eq(flat_input, padding_row), -1, bag_numbers)
    if per_sample_weights is not None:
        rows = ops.mul(rows, views.reshape(per_sample_weights, (-1, 1)))
    return _reduce_bags(rows, bag_numbers, bag_count, mode)


def _bag_offsets(input: Tensor, offsets: Tensor | None, include_last: bool) -> tuple[Tensor, int]:
    """Return the offsets of the bags in the flattened indices, and the number of bags.

    Offsets are the start of each bag and, with `include_last`, the end of the last one.
    """
    where, device, count = "embedding_bag", input.meta.device, input.meta.numel
    if input.meta.ndim == 2:
        if offsets is not None:
            raise ArgumentError(f"{where}: offsets are for an input of one dimension; a matrix has a bag in each row")
        bag_count, bag_size = input.meta.shape
        return upload(np.arange(bag_count) * bag_size, device), bag_count
    if input.meta.ndim != 1:
        raise ArgumentError(f"{where}: input has one or two dimensions, not {input.meta.ndim}")
    if not isinstance(offsets, Tensor):
        raise ArgumentError(f"{where}: an input of one dimension needs offsets, a tensor of where each bag begins")
    if offsets.meta.ndim != 1:
        raise ArgumentError(f"{where}: offsets must be a vector, not of shape {list(offsets.meta.shape)}")
    bag_count = offsets.meta.shape[0] - include_last
    if bag_count < 0 or (count and not offsets.meta.numel):
        raise ArgumentError(f"{where}: there must be at least one offset")
    check_bounds(offsets, count + 1, f"{where}: offsets")
    if offsets.meta.numel:
        check_bounds(call(registry["narrow"], (offsets,), (0, 0, 1)), 1, f"{where}: the first of the offsets")
    return offsets, bag_count


def _reduce_bags(rows: Tensor, bag_numbers: Tensor, bag_count: int, mode: str) -> Tensor:
    """Reduce rows by bag number; rows with a bag number of -1 are ignored."""
    like, features = rows.meta, rows.meta.shape[1]
    if mode == "max":
        base = full((bag_count, features), -math.inf, dtype=like.dtype, device=like.device)
        output = call(registry["put_maximum_at"], (base, bag_numbers, rows), (0, 1))
    else:
        output = call(registry["spread_at"], (rows, bag_numbers), ((bag_count, features), 0, 1))
    if mode == "sum" or not bag_count:
        return output
    ones = call(registry["full_like_as"], (bag_numbers, 1), (dtypes.int64,))
    sizes = call(registry["spread_at"], (ones, bag_numbers), ((bag_count,), 0, 1))
    sizes = views.reshape(sizes, (bag_count, 1))
    if mode == "max":
        return ops.where(ops.eq(sizes, 0), 0.0, output)
    return ops.true_divide(output, ops.clamp_min(sizes, 1))
