"""What occurs, and how often: distinct elements, membership, places in ordered sequences, histograms.

How many distinct elements there are, or the largest of a count, nobody knows before they are looked at: `unique`,
`unique_consecutive`, `bincount`, and `histc` and `histogram` of a range to be found wait for the device, as PyTorch's
do. Sums are made in the order of the elements, so the same call gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import factories
from ._checks import only_tensors, whole_number
from ._generated import ops
from .bounds import check_bounds
from .functions import result_type
from .gathering import nonzero
from .joining import cat
from .runtime import dtypes, layout, views
from .runtime.dispatch import call
from .runtime.errors import ArgumentError, DomainError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from .runtime.records import registry
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = [
    "bincount", "bucketize", "histc", "histogram", "isin", "searchsorted", "unique", "unique_consecutive",
]  # fmt: skip

_sort_along, _search_sorted = registry["sort_along"], registry["search_sorted"]
_take_at, _spread, _scatter = registry["take_at"], registry["spread"], registry["scatter"]
_narrow = registry["narrow"]

_MANY, _SHARES = 1 << 15, 8  # so many elements are counted in shares, by OpenCL; Triton's kernels look through them all


def _flat(tensor: Tensor) -> Tensor:
    return views.reshape(tensor.detach(), (-1,))  # type: ignore[attr-defined]


def _to(tensor: Tensor, dtype: dtypes.DType) -> Tensor:
    return tensor.to(dtype)  # type: ignore[attr-defined, no-any-return]


def _numbers(count: int, like: Tensor) -> Tensor:
    return factories.arange(count, device=like.meta.device)


# Distinct elements ----------------------------------------------------------------------------------------------------


def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> Any:  # fmt: skip
    """The distinct elements in order, or along `dim` the distinct slices; every NaN is distinct.

    With `return_inverse`, where each element of the input is among them (its shape, or a vector along `dim`); with
    `return_counts`, how often each occurs: then a tuple. They are in order whatever `sorted` says. The host waits.
    """
    only_tensors("unique", input)
    if dim is None:
        values, order = call(_sort_along, (_flat(input),), (0, False))
        return _distinct(values, order, input.meta.shape, return_inverse, return_counts)
    rows, at = _slices(input, dim, "unique")
    order = _numbers(rows.meta.shape[0], rows)
    for column in reversed(range(rows.meta.shape[1])):  # stable sorts from the last key to the first
        keys = call(_take_at, (ops.select(rows, 1, column), order), (0, 1))
        order = call(_take_at, (order, call(_sort_along, (keys,), (0, False))[1]), (0, 1))
    return _distinct_slices(input, rows, at, order, return_inverse, return_counts)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements, or slices along `dim`, that differ from those before them; the rest as `unique`. The host waits."""
    only_tensors("unique_consecutive", input)
    if dim is None:
        return _distinct(_flat(input), None, input.meta.shape, return_inverse, return_counts)
    rows, at = _slices(input, dim, "unique_consecutive")
    return _distinct_slices(input, rows, at, None, return_inverse, return_counts)


def _slices(input: Tensor, dim: int, where: str) -> tuple[Tensor, int]:
    """A row for every slice along `dim`, and the dimension from the front."""
    if not input.meta.ndim:
        raise IndexOutOfRange(f"{where}: dimension {dim} of a tensor that has none")
    at = layout.normalize_dim(dim, input.meta.ndim, where)
    shape = input.meta.shape
    if 0 in shape[:at] + shape[at + 1 :] and shape[at]:
        raise ShapeError(f"{where}: there are 0 sized dimensions beside dimension {at} of shape {list(shape)}")
    order = (at, *(d for d in range(input.meta.ndim) if d != at))
    moved = call(registry["permute"], (input.detach(),), (order,))  # type: ignore[attr-defined]
    return views.reshape(moved, (shape[at], math.prod(shape[:at] + shape[at + 1 :]))), at


def _distinct(values: Tensor, order: Tensor | None, shape: tuple[int, ...], inverse: bool, counts: bool) -> Any:
    """Of a vector in which equal elements are neighbours; order: where its elements come from."""
    count = values.meta.shape[0]
    changes = ops.ne(_part(values, 1, count), _part(values, 0, count - 1)) if count > 1 else None
    starts = _starts(changes, count, values)
    found = [call(_take_at, (values, starts), (0, 1))]
    return _with_counts(found, starts, order, count, shape, inverse, counts)


def _distinct_slices(input: Tensor, rows: Tensor, at: int, order: Tensor | None, inverse: bool, counts: bool) -> Any:
    count = rows.meta.shape[0]
    placed = rows if order is None or not rows.meta.numel else call(_take_at, (rows, order), (0, 1))
    changes = None
    if count > 1:
        changes = ops.any(ops.ne(_part(placed, 1, count), _part(placed, 0, count - 1)), 1)
    starts = _starts(changes, count, rows)
    first = starts if order is None else call(_take_at, (order, starts), (0, 1))
    taken = call(_take_at, (input.detach(), first), (at, 1)) if count else input.clone()  # type: ignore[attr-defined]
    return _with_counts([taken], starts, order, count, (count,), inverse, counts)


def _part(tensor: Tensor, first: int, last: int) -> Tensor:
    return call(_narrow, (tensor,), (0, first, last - first))  # type: ignore[no-any-return]


def _starts(changes: Tensor | None, count: int, like: Tensor) -> Tensor:
    """Where runs begin, given whether each element but the first differs from the one before it."""
    first = _numbers(min(count, 1), like)
    if changes is None:
        return first
    return cat([first, ops.add(nonzero(changes, as_tuple=True)[0], 1)])


def _with_counts(
    found: list[Tensor], starts: Tensor, order: Tensor | None, count: int, shape: tuple[int, ...], inverse: bool,
    counts: bool,
) -> Any:  # fmt: skip
    if inverse:
        groups = ops.sub(call(_search_sorted, (starts, _numbers(count, starts)), (True, False)), 1)
        if order is not None and count:
            groups = call(_scatter, (groups, order, groups), (0,))
        found.append(views.reshape(groups, shape))
    if counts:
        ends = cat([_part(starts, 1, starts.meta.shape[0]), factories.full((1,), count, device=starts.meta.device)]
                   ) if count else starts  # fmt: skip
        found.append(ops.sub(ends, starts))
    return tuple(found) if len(found) > 1 else found[0]


# Members --------------------------------------------------------------------------------------------------------------


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each of `elements` is among `test_elements` (`invert`: is not); one of the two may be a number.

    Compared in the dtype that holds both; NaN equals nothing. `assume_unique` changes no result.
    """
    if not (isinstance(elements, Tensor) or isinstance(test_elements, Tensor)):
        raise ArgumentError("isin: at least one of elements and test_elements must be a tensor")
    for given in (elements, test_elements):
        if isinstance(given, bool) or (isinstance(given, Tensor) and given.meta.dtype is dtypes.bool_):
            raise DTypeError("isin: does not take bool, as PyTorch does not; convert with .to(uint8)")
    dtype = result_type(elements, test_elements)
    like = elements if isinstance(elements, Tensor) else test_elements
    asked, among = (_as(t, dtype, like).detach() for t in (elements, test_elements))  # type: ignore[attr-defined]
    if not among.meta.numel:
        return factories.full(asked.meta.shape, bool(invert), dtype=dtypes.bool_, device=asked.meta.device)
    if among.meta.numel == 1:
        one = views.reshape(among, ())
        return ops.ne(asked, one) if invert else ops.eq(asked, one)
    values, _ = call(_sort_along, (views.reshape(among, (-1,)),), (0, False))
    places = call(_search_sorted, (values, views.contiguous(asked)), (False, True))
    met = call(_take_at, (values, ops.clamp_max(places, among.meta.numel - 1)), (0, 1))
    return ops.ne(asked, met) if invert else ops.eq(asked, met)


def _as(value: Any, dtype: dtypes.DType, like: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return _to(value, dtype)
    return factories.full((), value, dtype=dtype, device=like.meta.device)


# Places in order ------------------------------------------------------------------------------------------------------


def searchsorted(
    sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where values belong in a sequence that is in order: how many of its elements are smaller; `right`, or
    `side="right"`: smaller or equal.

    sorted_sequence: a vector, or one of as many rows as `input` has; or not in order, with `sorter` the places of its
    elements in order. input: a tensor, or with a vector a number. int64, or int32 where `out_int32` says so. Raises
    `ShapeError`, `DTypeError`, `DomainError`, `IndexOutOfRange`.
    """
    only_tensors("searchsorted", sorted_sequence)
    if side not in (None, "left", "right"):
        raise DomainError(f"searchsorted: side can only be 'left' or 'right' but got {side!r}")
    if side == "left" and right:
        raise DomainError("searchsorted: side and right can't be opposites: side is 'left', right is True")
    sequence = sorted_sequence.detach()  # type: ignore[attr-defined]
    if not sequence.meta.ndim:
        raise ShapeError("searchsorted: the sequence must have a dimension; it has none")
    if sorter is not None:
        only_tensors("searchsorted", sorter)
        if sorter.meta.shape != sequence.meta.shape:
            raise ShapeError(
                f"searchsorted: sequence and sorter must have the same size, not {list(sequence.meta.shape)} and "
                f"{list(sorter.meta.shape)}"
            )
        if sorter.meta.dtype is not dtypes.int64:
            raise DTypeError(
                f"searchsorted: sorter must hold int64, not {sorter.meta.dtype.name}; convert it with .long()"
            )
        check_bounds(sorter, sequence.meta.shape[-1], "searchsorted: sorter")
        sequence = call(registry["gather"], (sequence, sorter), (sequence.meta.ndim - 1,))
    return _search(sequence, input, bool(right) or side == "right", out_int32, out, "searchsorted")


def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Tensor | None = None
) -> Tensor:
    """The number of the interval between `boundaries` (a vector in order) in which each element lies: `searchsorted`
    with the arguments exchanged."""
    only_tensors("bucketize", boundaries)
    if boundaries.meta.ndim != 1:
        raise ShapeError(f"bucketize: boundaries must be a vector, not of shape {list(boundaries.meta.shape)}")
    return _search(boundaries.detach(), input, bool(right), out_int32, out, "bucketize")  # type: ignore[attr-defined]


def _search(sequence: Tensor, given: Any, right: bool, int32: bool, out: Tensor | None, where: str) -> Tensor:
    if isinstance(given, bool) or not isinstance(given, (Tensor, int, float)):
        raise ArgumentError(f"{where}: takes a tensor or a number, not {type(given).__name__}")
    dtype = result_type(sequence, given)
    if dtype is dtypes.bool_:
        raise NotSupported(f"{where}: does not take bool, as PyTorch does not; convert with .to(uint8)")
    values = _as(given, dtype, sequence).detach()  # type: ignore[attr-defined]
    a, b = sequence.meta, values.meta
    if a.ndim > 1 and (not b.ndim or a.shape[:-1] != b.shape[:-1]):
        raise ShapeError(
            f"{where}: the sequence must be a vector, or agree with the values in all dimensions but the last; it has "
            f"shape {list(a.shape)}, they have {list(b.shape)}"
        )
    found = call(_search_sorted, (views.contiguous(_to(sequence, dtype)), views.contiguous(values)), (right, False))
    if int32:
        found = _to(found, dtypes.int32)
    return found if out is None else store(found, out, where)


# Histograms -----------------------------------------------------------------------------------------------------------


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each integer from 0 occurs in a vector, or the sum of `weights` where it does; at least `minlength`.

    int64 without weights; with, float32 for float32 and float64 for all others. The host waits for the largest.
    Raises `DomainError` for negative elements.
    """
    only_tensors("bincount", input)
    if input.meta.dtype.kind not in "ui":
        raise NotSupported(f"bincount: counts integers, not {input.meta.dtype.name}; convert with .long()")
    if input.meta.ndim != 1:
        raise ShapeError(f"bincount: takes a vector, not a tensor of shape {list(input.meta.shape)}")
    if isinstance(minlength, bool) or not hasattr(minlength, "__index__"):
        raise ArgumentError(f"bincount: minlength must be an integer, not {minlength!r}")
    if minlength < 0:
        raise DomainError(f"bincount: minlength should be >= 0, not {minlength}")
    if weights is not None:
        only_tensors("bincount", weights)
        if weights.meta.shape != input.meta.shape:
            raise ShapeError(
                f"bincount: weights of shape {list(weights.meta.shape)} do not fit an input of {list(input.meta.shape)}"
            )
    size = int(minlength)
    if input.meta.numel:
        least, most = (int(t.item()) for t in call(registry["index_bounds"], (input,)))
        if least < 0:
            raise DomainError(f"bincount: only counts integers from 0, and the input has {least}")
        size = max(size, most + 1)
    elif weights is not None or not size:
        return factories.zeros(size, dtype=dtypes.int64, device=input.meta.device)
    return _sums(input, size, weights if weights is None else weights.detach())  # type: ignore[attr-defined]


def _sums(places: Tensor, size: int, weights: Tensor | None) -> Tensor:
    """How many of a vector of places fall on each of `size`, or the weights' sums; places outside count for nothing."""
    if weights is not None:
        source = weights if weights.meta.dtype is dtypes.float32 else _to(weights, dtypes.float64)
        return call(_spread, (source, places), ((size,), 0))  # type: ignore[no-any-return]
    one = factories.full((1,), 1, dtype=dtypes.int64, device=places.meta.device)
    numel = places.meta.numel
    shares = _SHARES
    if numel < max(_MANY, 4 * shares * size) or places.meta.device.driver.target != "opencl":
        return call(_spread, (call(registry["expand"], (one,), (places.meta.shape,)), places), ((size,), 0))  # type: ignore[no-any-return]
    rows = views.reshape(call(_narrow, (places,), (0, 0, numel - numel % shares)), (shares, numel // shares))
    found = call(_spread, (call(registry["expand"], (one,), (rows.meta.shape,)), rows), ((shares, size), 1))
    found = ops.sum(found, 0)
    if numel % shares:
        rest = call(_narrow, (places,), (0, numel - numel % shares, numel % shares))
        found = ops.add(found, _sums(rest, size, None))
    return found  # type: ignore[no-any-return]


def _floating(input: Tensor, where: str) -> None:
    only_tensors(where, input)
    if input.meta.dtype.kind != "f":
        raise NotSupported(f"{where}: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")


def _range(input: Tensor, low: float, high: float, where: str) -> tuple[float, float]:
    """The range of the bins: of the input's elements where both ends are equal."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DomainError(f"{where}: range of [{low}, {high}] is not finite")
    if low > high:
        raise DomainError(f"{where}: max must not be smaller than min, but they are {high} and {low}")
    if low == high and input.meta.numel:
        low, high = float(ops.amin(input).item()), float(ops.amax(input).item())  # type: ignore[attr-defined]
        if not (math.isfinite(low) and math.isfinite(high)):
            raise DomainError(f"{where}: range of [{low}, {high}] is not finite; give min and max")
    if low == high:
        low, high = (low - 0.5, high + 0.5) if input.meta.numel else (low, high + 1.0)
    return low, high


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None) -> Tensor:
    """How many elements lie in each of `bins` equal intervals from min to max; from the smallest to the largest element
    where both are equal, for which the host waits. In the input's dtype; what lies outside counts for nothing.

    Bin: floor((element - min) * bins / (max - min)), the last one with its end. Raises `DomainError`, `NotSupported`.
    """
    _floating(input, "histc")
    if _count(bins, "histc") and min > max:
        raise DomainError(f"histc: max must be larger than min, but they are {max} and {min}")
    flat = _flat(input)
    low, high = _range(flat, float(min), float(max), "histc")
    places = call(registry["histogram_place"], (flat, low, high, float(bins)))
    found = _to(_sums(places, bins, None), input.meta.dtype)
    return found if out is None else store(found, out, "histc")


def _count(bins: Any, where: str) -> int:
    if isinstance(bins, (bool, float)) or not hasattr(bins, "__index__"):
        raise ArgumentError(f"{where}: bins must be an integer, not {bins!r}")
    if bins < 1:
        raise DomainError(f"{where}: bins must be > 0, but got {bins}")
    return whole_number(bins, where, "bins", 1)


class Histogram(NamedTuple):
    """Counts, or sums of weights, and the edges of the bins: one more."""

    hist: Tensor
    bin_edges: Tensor


def histogram(
    input: Tensor, bins: int | Tensor = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False, out: Any = None,
) -> Histogram:  # fmt: skip
    """(hist, bin_edges): how many elements lie between each two edges; the last bin has its end.

    bins: how many equal ones there are in `range` (low, high), by default from the smallest to the largest element, for
    which the host waits; or a vector of edges in order. weight: what each element counts, instead of 1. density:
    divided by the sum and by the bins' widths. In the input's dtype. Raises `DomainError`, `DTypeError`, `ShapeError`.
    """
    _floating(input, "histogram")
    flat = views.contiguous(_flat(input))
    if isinstance(bins, Tensor):
        if range is not None:
            raise ArgumentError("histogram: range is for a number of bins; these are edges")
        if bins.meta.ndim != 1 or not bins.meta.numel:
            raise ShapeError(
                f"histogram: edges must be a vector that is not empty, not of shape {list(bins.meta.shape)}"
            )
        if bins.meta.dtype is not input.meta.dtype:
            raise DTypeError(f"histogram: the input is {input.meta.dtype.name}, the edges {bins.meta.dtype.name}")
        edges = views.contiguous(bins.detach())  # type: ignore[attr-defined]
    else:
        _count(bins, "histogram")
        if range is not None and len(range) != 2:
            raise ShapeError(f"histogram: range must be (low, high), not {range!r}")
        low, high = (0.0, 0.0) if range is None else (float(r) for r in range)
        low, high = _range(flat, low, high, "histogram")
        edges = _edges(low, high, int(bins), input)
    if weight is not None:
        only_tensors("histogram", weight)
        if weight.meta.shape != input.meta.shape:
            raise ShapeError(
                f"histogram: weight has shape {list(weight.meta.shape)}, the input {list(input.meta.shape)}"
            )
        if weight.meta.dtype is not input.meta.dtype:
            raise DTypeError(f"histogram: the input is {input.meta.dtype.name}, the weight {weight.meta.dtype.name}")
    found = _histogram(flat, edges, None if weight is None else _flat(weight), density)
    if out is None:
        return Histogram(found, edges)
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentError(f"histogram: has two results, so out takes two tensors, not {type(out).__name__}")
    return Histogram(store(found, out[0], "histogram"), store(edges, out[1], "histogram"))


def _edges(low: float, high: float, bins: int, like: Tensor) -> Tensor:
    """The edges of equal bins, from both ends and in the dtype's own arithmetic, as PyTorch has them."""
    own = np.float64 if like.meta.dtype is dtypes.float64 else np.float32
    first, last, i = own(low), own(high), np.arange(bins + 1)
    wide = np.longdouble if own is np.float64 else np.float64
    step = wide((last - first) / own(bins))  # the product is not rounded before the sum
    values = np.where(i < (bins + 1) // 2, first + step * i, last - step * (bins - i))
    return factories.tensor(values.astype(np.float64), dtype=like.meta.dtype, device=like.meta.device)


def _histogram(flat: Tensor, edges: Tensor, weight: Tensor | None, density: bool) -> Tensor:
    bins = edges.meta.numel - 1
    places = call(registry["bin_sorted"], (edges, flat))
    if weight is not None and weight.meta.dtype.itemsize == 2:
        weight = _to(weight, dtypes.float32)
    hist = _to(_sums(places, bins, weight), flat.meta.dtype)
    if density:
        widths = ops.sub(call(_narrow, (edges,), (0, 1, bins)), call(_narrow, (edges,), (0, 0, bins)))
        hist = ops.true_divide(ops.true_divide(hist, ops.sum(hist)), widths)
    return hist


METHODS = {name: globals()[name] for name in ("bincount", "histc", "histogram", "unique", "unique_consecutive")}
