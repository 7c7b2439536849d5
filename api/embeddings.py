"""Tables of vectors read by integers: embeddings, their sums over bags, and one-hot vectors.

Gradients are summed in the order of the indices: the same call gives the same bits. Indices are checked as
`bounds.check_bounds` says.
"""

from __future__ import annotations

import math

import numpy as np

from ._checks import only_tensors, whole_number
from ._generated import ops
from .autograd import no_grad
from .bounds import bounds_check, check_bounds
from .factories import full, zeros
from .reducing import norm
from .runtime import dtypes, views
from .runtime.dispatch import call, call_into
from .runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from .runtime.records import registry
from .runtime.tensor import Tensor
from .values import tensor_value, upload

__all__ = ["embedding", "embedding_bag", "embedding_renorm_", "one_hot"]

_take_at, _put_at = registry["take_at"], registry["put_at"]
_rows, _shared_rows = registry["embedding_rows"], registry["embedding_shared"]


def _table(weight: Tensor, padding_idx: int | None, sparse: bool, where: str) -> int:
    """The row that passes no gradient on, -1 for none. Checks the table."""
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
    """The rows of `weight` (rows, features) at the integers `input`, of any shape: (*input.shape, features).

    Row `padding_idx` (negative: counted from the end) gets no gradient. `max_norm`: rows that are read and whose
    `norm_type` norm is larger are first scaled to it, in place. `scale_grad_by_freq`: a row's gradient is divided by
    how often it is read. Raises `IndexOutOfRange`, `ShapeError`, and `NotSupported` for `sparse`.
    """
    only_tensors("embedding", input, weight)
    skipped = _table(weight, padding_idx, sparse, "embedding")
    check = bounds_check(input, weight.meta.shape[0], "embedding")
    if max_norm is not None:
        check()
        _renormalize(weight, input, max_norm, norm_type)
    if scale_grad_by_freq:
        return check.around(_shared_rows, (weight, input), (0, 1, skipped))  # type: ignore[no-any-return]
    if skipped < 0:
        return check.around(_take_at, (weight, input), (0, 1))  # type: ignore[no-any-return]
    return check.around(_rows, (weight, input), (0, 1, skipped))  # type: ignore[no-any-return]


def embedding_renorm_(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scale the rows of `weight` at `indices` whose norm is larger than `max_norm` to it, in place."""
    only_tensors("embedding_renorm_", weight, indices)
    _table(weight, None, False, "embedding_renorm_")
    check_bounds(indices, weight.meta.shape[0], "embedding_renorm_")
    _renormalize(weight, indices, max_norm, norm_type)
    return weight


def _renormalize(weight: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Every row is scaled from what it was before: one that is read twice is written twice, with the same numbers."""
    if not index.meta.numel or not weight.meta.numel:
        return
    with no_grad():
        places = views.reshape(index, (-1,))
        rows = call(_take_at, (weight, places), (0, 1))
        norms = norm(rows, norm_type, 1, True)
        scales = ops.where(ops.gt(norms, max_norm), ops.true_divide(max_norm, ops.add(norms, 1e-7)), 1.0)
        call_into(_put_at, (weight, places, ops.mul(rows, scales)), (0, 1), (weight,), in_place=True)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 (*tensor.shape, num_classes): 1 at the class, 0 elsewhere; -1 takes as many classes as are needed, for
    which the host waits. Raises `IndexOutOfRange`."""
    only_tensors("one_hot", tensor)
    if tensor.meta.dtype.kind not in "ui":
        raise DTypeError(f"one_hot: classes are integers, not {tensor.meta.dtype.name}; convert them with .long()")
    if num_classes == -1:
        if not tensor.meta.numel:
            raise ShapeError("one_hot: of an empty tensor, give num_classes")
        num_classes = int(ops.amax(tensor).item()) + 1  # type: ignore[attr-defined]
    whole_number(num_classes, "one_hot", "num_classes", 0 if tensor.meta.numel else 1)
    check_bounds(tensor, num_classes, "one_hot")
    shape = tensor.meta.shape
    made = zeros(*shape, num_classes, dtype=dtypes.int64, device=tensor.meta.device)
    if made.meta.numel:
        places = views.reshape(tensor, (*shape, 1))
        ones = tensor_value(1, made, (*shape, 1))
        call_into(registry["scatter"], (made, places, ones), (len(shape),), (made,), in_place=True)
    return made


# Bags -----------------------------------------------------------------------------------------------------------------


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """Rows of `weight` (rows, features) at the integers `input`, reduced over bags: (bags, features).

    input: (bags, n), or (n,) with `offsets` (bags,), where in `input` each bag begins; with `include_last_offset` the
    last of the offsets is where the last bag ends. mode: "sum", "mean" or "max"; an empty bag gives 0.
    per_sample_weights: of the shape of `input`, factors of the rows, for "sum". Row `padding_idx` takes no part.
    max_norm, norm_type and scale_grad_by_freq are those of `embedding`. Raises `IndexOutOfRange` for indices, and for
    offsets that do not begin with 0 or lie behind the end; `ShapeError`, `ArgumentError`, and `NotSupported` for
    `sparse` and for weights in another mode.
    """
    where = "embedding_bag"
    only_tensors(where, input, weight)
    skipped = _table(weight, padding_idx, sparse, where)
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
    offsets, bags = _bags(input, offsets, include_last_offset)
    places = views.reshape(input, (-1,))
    if max_norm is not None:
        _renormalize(weight, places, max_norm, norm_type)
    plain = not scale_grad_by_freq and per_sample_weights is None and weight.meta.dtype.kind == "f"
    if plain and mode != "max" and places.meta.numel:
        statics = (bags, skipped, mode == "mean")
        return call(registry["bag_sums"], (weight, places, offsets), statics)  # type: ignore[no-any-return]
    bag = call(registry["bag_of"], (offsets,), (places.meta.numel,)) if places.meta.numel else places
    if scale_grad_by_freq:
        rows = call(_shared_rows, (weight, places), (0, 1, skipped))
    else:
        rows = call(_take_at, (weight, places), (0, 1))
    if skipped >= 0:
        bag = ops.where(ops.eq(places, skipped), -1, bag)
    if per_sample_weights is not None:
        rows = ops.mul(rows, views.reshape(per_sample_weights, (-1, 1)))
    return _reduced(rows, bag, bags, mode)


def _bags(input: Tensor, offsets: Tensor | None, include_last: bool) -> tuple[Tensor, int]:
    """Where in the indices each bag begins, and how many bags there are."""
    where, device, count = "embedding_bag", input.meta.device, input.meta.numel
    if input.meta.ndim == 2:
        if offsets is not None:
            raise ArgumentError(f"{where}: offsets are for an input of one dimension; a matrix has a bag in each row")
        bags, each = input.meta.shape
        return upload(np.arange(bags) * each, device), bags
    if input.meta.ndim != 1:
        raise ArgumentError(f"{where}: input has one or two dimensions, not {input.meta.ndim}")
    if not isinstance(offsets, Tensor):
        raise ArgumentError(f"{where}: an input of one dimension needs offsets, a tensor of where each bag begins")
    if offsets.meta.ndim != 1:
        raise ArgumentError(f"{where}: offsets must be a vector, not of shape {list(offsets.meta.shape)}")
    bags = offsets.meta.shape[0] - include_last
    if bags < 0 or (count and not offsets.meta.numel):
        raise ArgumentError(f"{where}: there must be at least one offset")
    check_bounds(offsets, count + 1, f"{where}: offsets")
    if offsets.meta.numel:
        check_bounds(call(registry["narrow"], (offsets,), (0, 0, 1)), 1, f"{where}: the first of the offsets")
    return offsets, bags


def _reduced(rows: Tensor, bag: Tensor, bags: int, mode: str) -> Tensor:
    """Rows reduced by bag; those of a bag that there is not take no part."""
    like, features = rows.meta, rows.meta.shape[1]
    if mode == "max":
        base = full((bags, features), -math.inf, dtype=like.dtype, device=like.device)
        found = call(registry["put_maximum_at"], (base, bag, rows), (0, 1))
    else:
        found = call(registry["spread_at"], (rows, bag), ((bags, features), 0, 1))
    if mode == "sum" or not bags:
        return found  # type: ignore[no-any-return]
    ones = call(registry["full_like_as"], (bag, 1), (dtypes.int64,))
    counts = views.reshape(call(registry["spread_at"], (ones, bag), ((bags,), 0, 1)), (bags, 1))
    if mode == "max":
        return ops.where(ops.eq(counts, 0), 0.0, found)
    return ops.true_divide(found, ops.clamp_min(counts, 1))
