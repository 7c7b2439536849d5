"""Order along a dimension: sorting, the first few, and what stands at a place in order (medians, quantiles, modes).

NaN is greater than every number, as PyTorch has it. Sorting is stable, whether that is asked for or not, and so the
same call gives the same indices everywhere: of equal elements the first comes first.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from . import factories
from ._checks import only_tensors
from ._generated import ops
from .autograd import Function
from .gathering import masked_select
from .indexing import get
from .runtime import dtypes, layout, views
from .runtime.dispatch import call
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError, DomainError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from .runtime.records import registry
from .runtime.spelling import spelled, spelled_dim, store
from .runtime.tensor import Tensor

__all__ = [
    "argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "nanquantile", "quantile", "sort", "topk",
]  # fmt: skip

_sort_along, _top_along, _search_sorted = registry["sort_along"], registry["top_along"], registry["search_sorted"]
_gather = registry["gather"]
_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")
_FEW = 8  # the k-th of more than so many times k elements is found without sorting the rest
_MANY, _SAMPLE = 1 << 16, 4096  # elements of which the median is found by a sample, and how many that has


class Ordered(NamedTuple):
    """Elements, and the places along the dimension that they come from."""

    values: Tensor
    indices: Tensor


def _both(found: Any, out: Any, where: str) -> Ordered:
    """Two results, written to the two tensors of `out` where it is given."""
    if out is None:
        return Ordered(*found)
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentError(f"{where}: has two results, so out takes two tensors, not {type(out).__name__}")
    return Ordered(*(store(result, to, where) for result, to in zip(found, out, strict=True)))


def _detached(tensor: Tensor) -> Tensor:
    return tensor.detach()  # type: ignore[attr-defined, no-any-return]


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None, out: Any = None,
    axis: int | None = None,
) -> Ordered:  # fmt: skip
    """(values, indices): the elements in order along `dim`, and the int64 places that they come from.

    Equal elements keep their order, whatever `stable` says; NaN is greater than every number. Gradients go through the
    values. Raises `IndexOutOfRange` for a dimension that is not there.
    """
    only_tensors("sort", input)
    dim = spelled_dim("sort", dim, -1, axis)
    if stable not in (None, True, False):
        raise ArgumentError(f"sort: stable must be a bool, not {stable!r}")
    at = layout.normalize_dim(dim, input.meta.ndim, "sort")
    return _both(call(_sort_along, (input,), (at, bool(descending))), out, "sort")


def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False, out: Tensor | None = None,
    axis: int | None = None,
) -> Tensor:  # fmt: skip
    """The places of the elements in order along `dim`: the indices of `sort`."""
    only_tensors("argsort", input)
    found = sort(_detached(input), dim, descending, stable=stable, axis=axis).indices
    return found if out is None else store(found, out, "argsort")


def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements in order along the first dimension: the values of `sort`."""
    found = sort(input, 0).values
    return found if out is None else store(found, out, "msort")


def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, out: Any = None,
    axis: int | None = None,
) -> Ordered:  # fmt: skip
    """(values, indices) of the k largest elements along `dim` (`largest=False`: smallest), in order, `sorted` or not.

    Of equal elements the first are taken. Raises `IndexOutOfRange` for a k that the dimension does not have.
    """
    only_tensors("topk", input)
    dim = spelled_dim("topk", dim, -1, axis)
    if input.meta.dtype is dtypes.bool_:
        raise DTypeError("topk: does not take bool, as PyTorch does not; convert with .to(uint8)")
    at = layout.normalize_dim(dim, input.meta.ndim, "topk")
    count = _whole(k, "topk", "k")
    size = input.meta.shape[at] if input.meta.ndim else 1
    if not 0 <= count <= size:
        raise IndexOutOfRange(f"topk: selected index k out of range: k is {count}, dimension {at} has {size} elements")
    if not input.meta.ndim:
        count = 1
    return _both(call(_top_along, (input,), (count, at, bool(largest))), out, "topk")


def _whole(value: Any, where: str, name: str) -> int:
    if isinstance(value, (bool, float)) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{where}: {name} must be an integer, not {value!r}")
    return int(value.__index__())


# Elements at a place in order -----------------------------------------------------------------------------------------


def _selected(input: Tensor, index: Tensor, dim: int, keepdim: bool, where: str, out: Any) -> Ordered:
    """The elements at `index`, of size 1 along `dim`; gradients go to the elements that were taken."""
    if not input.meta.ndim:
        return _both((ops.add(input, 0) if input.needs else input.clone(), views.reshape(index, ())), out, where)  # type: ignore[attr-defined]
    values = call(_gather, (input, index), (dim,))
    if not keepdim:
        shape = index.meta.shape[:dim] + index.meta.shape[dim + 1 :]
        values, index = views.reshape(values, shape), views.reshape(index, shape)
    return _both((values, index), out, where)


def _row(input: Tensor, dim: Any, where: str) -> int:
    """`dim` from the front, of a tensor that is not empty along it. Raises `IndexOutOfRange`."""
    at = layout.normalize_dim(dim, input.meta.ndim, where)
    if input.meta.ndim and not input.meta.shape[at]:
        raise IndexOutOfRange(
            f"{where}: dimension {at} of shape {list(input.meta.shape)} has no elements to choose from"
        )
    return at


def _no_bool(input: Tensor, where: str) -> None:
    only_tensors(where, input)
    if input.meta.dtype is dtypes.bool_:
        raise NotSupported(f"{where}: does not take bool, as PyTorch does not; convert with .to(uint8)")


def kthvalue(
    input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, out: Any = None, axis: int | None = None,
    keepdims: bool | None = None,
) -> Ordered:  # fmt: skip
    """(values, indices) of the k-th smallest element along `dim`; k = 1 is the smallest, NaN greater than any number.

    Raises `IndexOutOfRange` for a k that the dimension does not have.
    """
    _no_bool(input, "kthvalue")
    if axis is not None or keepdims is not None:
        dim, keepdim = spelled("kthvalue", dim, -1, axis, keepdim, keepdims)
    at, count = _row(input, dim, "kthvalue"), _whole(k, "kthvalue", "k")
    size = input.meta.shape[at] if input.meta.ndim else 1
    if not 1 <= count <= size:
        raise IndexOutOfRange(
            f"kthvalue: selected number k out of range: k is {count}, dimension {at} has {size} elements"
        )
    flat = _detached(input)
    if _FEW * count <= size:
        _, places = call(_top_along, (flat,), (count, at, False))
    else:
        _, places = call(_sort_along, (flat,), (at, False))
    index = call(registry["narrow"], (places,), (at, count - 1, 1)) if input.meta.ndim else places
    return _selected(input, index, at, keepdim, "kthvalue", out)


def _median(
    input: Tensor, dim: Any, keepdim: bool, out: Any, axis: Any, keepdims: bool | None, where: str, skip: bool
) -> Any:
    """skip: NaN is left out; else a row that has one has it as its median."""
    _no_bool(input, where)
    if axis is not None or keepdims is not None:
        dim, keepdim = spelled(where, dim, None, axis, keepdim, keepdims)
    if dim is None:
        found = _Middle.apply(views.reshape(input, (-1,)), skip)
        return found if out is None else store(found, out, where)
    at = _row(input, dim, where)
    return _selected(input, _middle(_detached(input), at, skip)[1], at, keepdim, where, out)


def _middle(input: Tensor, dim: int, skip: bool) -> tuple[Tensor, Tensor]:
    """The lower median along `dim`, of size 1 there, and its place."""
    values, places = call(_sort_along, (input,), (dim, False))
    if not input.meta.ndim or 0 in input.meta.shape:
        shape = tuple(1 if d == dim else n for d, n in enumerate(input.meta.shape))
        return (values, places) if not input.meta.ndim else (views.reshape(values, shape), views.reshape(places, shape))
    size = input.meta.shape[dim]
    if input.meta.dtype.kind != "f":
        pick: Any = (size - 1) // 2
        return tuple(call(registry["narrow"], (t,), (dim, pick, 1)) for t in (values, places))  # type: ignore[return-value]
    missing = ops.sum(ops.isnan(values), dim, True)
    if skip:
        pick = ops.floor_divide(ops.clamp_min(ops.sub(size - 1, missing), 0), 2)
    else:
        pick = ops.where(ops.eq(missing, 0), (size - 1) // 2, ops.sub(size, missing))
    return tuple(call(_gather, (t, pick), (dim,)) for t in (values, places))  # type: ignore[return-value]


def _middle_value(input: Tensor, skip: bool) -> Tensor:
    """The lower median of a vector, a scalar."""
    size = input.meta.numel
    if size >= _MANY and input.meta.device.type == "cpu":  # elsewhere the host would have to wait
        missing = int(ops.sum(ops.isnan(input)).item()) if input.meta.dtype.kind == "f" else 0  # type: ignore[attr-defined]
        if not missing or (skip and missing < size):
            found = _by_sample(input, (size - missing - 1) // 2)
            if found is not None:
                return found
    return views.reshape(_middle(input, 0, skip)[0], ())


def _by_sample(input: Tensor, k: int) -> Tensor | None:
    """Number k, from 0, of a long vector's elements in order, NaN aside. None where that needs all of them sorted.

    Two elements of a sorted sample enclose it but for bad luck, and only what lies between them is sorted (Floyd and
    Rivest 1975, Algorithm 489). Its rank in the sample deviates by half the root of the sample's size at most, in the
    mean; the two are four times that aside.
    """
    size = input.meta.numel
    sample = call(_sort_along, (get(input, slice(None, None, size // _SAMPLE)),), (0, False))[0]
    count = sample.meta.numel
    at, aside = k * count // size, 2 * math.isqrt(count)
    low, high = (
        call(registry["narrow"], (sample,), (0, min(max(place, 0), count - 1), 1)) for place in (at - aside, at + aside)
    )
    rank = k - int(ops.sum(ops.lt(input, low)).item())  # type: ignore[attr-defined]
    among = masked_select(input, ops.logical_and(ops.ge(input, low), ops.le(input, high)))
    if not 0 <= rank < among.meta.numel or among.meta.numel > size // 2:
        return None
    return views.reshape(call(registry["narrow"], (call(_sort_along, (among,), (0, False))[0],), (0, rank, 1)), ())


class _Middle(Function):
    """The median of a vector. Its gradient is shared by the elements that are equal to it, as PyTorch shares it."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, skip: bool) -> Tensor:
        if not input.meta.numel:
            empty = math.nan if input.meta.dtype.kind == "f" else np.iinfo(input.meta.dtype.numpy).min
            return factories.full((), empty, dtype=input.meta.dtype, device=input.meta.device)
        found = _middle_value(input, skip)
        ctx.save_for_backward(input, found)
        return found.clone()  # type: ignore[attr-defined, no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        input, found = (_detached(t) for t in ctx.saved_tensors)
        same = ops.logical_or(ops.eq(input, found), ops.logical_and(ops.isnan(input), ops.isnan(found)))
        share = ops.true_divide(grad, _like(ops.sum(same), grad.meta.dtype))
        return ops.where(same, share, 0.0), None


def median(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None, axis: Any = None,
    keepdims: bool | None = None,
) -> Any:  # fmt: skip
    """The lower of the two middle elements; with `dim`, (values, indices) along it. NaN if there is a NaN.

    The gradient of the whole tensor's median is shared by the elements equal to it; along a dimension it goes to the
    element at the index. The median of no elements is NaN, and of integers their least.
    """
    return _median(input, dim, keepdim, out, axis, keepdims, "median", False)


def nanmedian(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None, axis: Any = None,
    keepdims: bool | None = None,
) -> Any:  # fmt: skip
    """`median` of the elements that are not NaN; NaN where there are none."""
    return _median(input, dim, keepdim, out, axis, keepdims, "nanmedian", True)


def mode(
    input: Tensor, dim: int = -1, keepdim: bool = False, *, out: Any = None, axis: int | None = None,
    keepdims: bool | None = None,
) -> Ordered:  # fmt: skip
    """(values, indices): the most frequent element along `dim`, the smallest of those, and the place of its last.

    A NaN equals none, and is chosen only where there is nothing else. (PyTorch's choice among NaN and numbers depends
    on an order that it leaves open.)
    """
    only_tensors("mode", input)
    if axis is not None or keepdims is not None:
        dim, keepdim = spelled("mode", dim, -1, axis, keepdim, keepdims)
    at = _row(input, dim, "mode")
    if not input.meta.ndim:
        return _selected(input, call(_sort_along, (_detached(input),), (0, False))[1], 0, keepdim, "mode", out)
    last = input.meta.ndim - 1
    flat = views.contiguous(call(registry["transpose"], (_detached(input),), (at, last)))
    values, places = call(_sort_along, (flat,), (last, False))
    if 0 in input.meta.shape:
        index = call(registry["narrow"], (call(registry["transpose"], (places,), (at, last)),), (at, 0, 1))
        return _selected(input, index, at, keepdim, "mode", out)
    first, behind = (call(_search_sorted, (values, values), (right, True)) for right in (False, True))
    count = ops.sub(behind, first)
    if input.meta.dtype.kind == "f":
        count = ops.where(ops.isnan(values), 1, count)
    start = ops.argmax(count, last, True)
    end = ops.sub(ops.add(start, call(_gather, (count, start), (last,))), 1)
    index = call(registry["transpose"], (call(_gather, (places, end), (last,)),), (at, last))
    return _selected(input, index, at, keepdim, "mode", out)


# Quantiles ------------------------------------------------------------------------------------------------------------


def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear",
    out: Tensor | None = None, axis: int | None = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The q-quantiles along `dim`, or of all elements; NaN where there is a NaN.

    q: a number or a tensor of at most one dimension, in [0, 1]; the result has its dimension in front. The quantile
    lies at place q * (n - 1) among n elements in order; `interpolation` says what a place between two is: `linear`,
    `lower`, `higher`, `midpoint`, `nearest`. Raises `DTypeError` (float32 and float64 only), `ShapeError`,
    `DomainError`.
    """
    return _quantile(input, q, dim, keepdim, interpolation, out, axis, keepdims, "quantile", False)


def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear",
    out: Tensor | None = None, axis: int | None = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """`quantile` of the elements that are not NaN; NaN where there are none."""
    return _quantile(input, q, dim, keepdim, interpolation, out, axis, keepdims, "nanquantile", True)


def _quantile(
    input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str, out: Any, axis: Any, keepdims: bool | None,
    where: str, skip: bool,
) -> Tensor:  # fmt: skip
    only_tensors(where, input)
    if axis is not None or keepdims is not None:
        dim, keepdim = spelled(where, dim, None, axis, keepdim, keepdims)
    places = _places(q, input, where)
    if interpolation not in _INTERPOLATIONS:
        raise DomainError(
            f"{where}: interpolation must be one of {', '.join(_INTERPOLATIONS)}, but got {interpolation!r}"
        )
    shape = input.meta.shape
    if dim is None:
        rows, at = views.reshape(input, (-1,)), 0
    else:
        at = layout.normalize_dim(dim, input.meta.ndim, where)
        rows = input if input.meta.ndim else views.reshape(input, (1,))
        rows = call(registry["transpose"], (ops.unsqueeze(rows, -1),), (at, -1)) if input.meta.ndim else rows
    found = _interpolated(rows, places, interpolation, skip)
    if dim is not None and input.meta.ndim:  # the row's dimension has size 1 where it was, the quantiles' is last
        kept = tuple(1 if d == at else n for d, n in enumerate(shape))
    else:
        kept = (1,) * len(shape)
    less = kept if keepdim else tuple(n for d, n in enumerate(kept) if dim is not None and d != at)
    if found.meta.ndim > 1:
        found = call(registry["permute"], (found,), ((found.meta.ndim - 1, *range(found.meta.ndim - 1)),))
    found = views.reshape(found, places.meta.shape + less)
    return found if out is None else store(found, out, where)


def _places(q: Any, input: Tensor, where: str) -> Tensor:
    """q as a tensor like `input`, looked at where that costs nothing."""
    if input.meta.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"{where}: takes float32 or float64, not {input.meta.dtype.name}; convert with .float()")
    if not input.meta.numel:
        raise ShapeError(f"{where}: the input has no elements")
    if not isinstance(q, Tensor):
        if isinstance(q, bool) or not isinstance(q, (int, float, np.floating, np.integer)):
            raise ArgumentError(f"{where}: q must be a number or a tensor, not {type(q).__name__}")
        if not 0 <= q <= 1:
            raise DomainError(f"{where}: q must be in the range [0, 1], but got {q}")
        return factories.full((), float(q), dtype=input.meta.dtype, device=input.meta.device)
    if q.meta.ndim > 1:
        raise ShapeError(f"{where}: q must be a number or a vector, not of shape {list(q.meta.shape)}")
    if q.meta.dtype is not input.meta.dtype:
        raise DTypeError(
            f"{where}: q is {q.meta.dtype.name} and the input {input.meta.dtype.name}; convert q with .to()"
        )
    if q.meta.device.type == "cpu" and q.meta.numel:
        inside = ops.logical_and(ops.ge(q, 0), ops.le(q, 1))
        if not ops.all(inside).item():  # type: ignore[attr-defined]
            raise DomainError(f"{where}: q must be in the range [0, 1]")
    return q


def _interpolated(rows: Tensor, places: Tensor, interpolation: str, skip: bool) -> Tensor:
    """Quantiles along the last dimension, in its place."""
    last = rows.meta.ndim - 1
    values, _ = call(_sort_along, (rows,), (last, False))
    size, missing = rows.meta.shape[last], ops.isnan(_detached(values))
    q = views.reshape(places, (-1,))
    if skip:
        there = ops.sub(size - 1, ops.sum(missing, last, True))
        ranks = ops.clamp_min(ops.mul(q, _like(there, q.meta.dtype)), 0)
    else:
        ranks = ops.where(ops.any(missing, last, True), float(size - 1), ops.mul(q, float(size - 1)))
    if interpolation in ("lower", "higher", "nearest"):
        ranks = {"lower": ops.floor, "higher": ops.ceil, "nearest": ops.round}[interpolation](ranks)
    below = ops.floor(_detached(ranks))
    found = call(_gather, (values, _like(below, dtypes.int64)), (last,))
    if interpolation in ("lower", "higher", "nearest"):
        return found  # type: ignore[no-any-return]
    weight = 0.5 if interpolation == "midpoint" else ops.sub(ranks, below)
    above = call(_gather, (values, _like(ops.ceil(_detached(ranks)), dtypes.int64)), (last,))
    return ops.lerp(found, above, weight)


def _like(tensor: Tensor, dtype: DType) -> Tensor:
    return tensor.to(dtype)  # type: ignore[attr-defined, no-any-return]


METHODS = {name: globals()[name] for name in __all__}
