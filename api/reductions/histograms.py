"""Histograms: counts of integers, and of elements in intervals.

`bincount`, and `histc` and `histogram` without a range, wait for the device, as in PyTorch. Sums are computed in the
order of the elements, so the same call gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._generated import ops
from ..arguments.out import copy_to_out
from ..creation import factories, from_data
from ..runtime import dtypes, views
from ..runtime.dispatch import call, call_multiple
from ..runtime.errors import ArgumentError, DomainError, DTypeError, NotSupported, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .paired_results import store_pair

__all__ = ["bincount", "histc", "histogram"]

_spread, _narrow = registry["spread"], registry["narrow"]

# On OpenCL devices, inputs of at least this many elements are counted in 8 parts in parallel, which are then summed.
# Triton's kernels count them in one launch.
_SHARED_COUNT_MIN_NUMEL, _COUNT_SHARES = 1 << 15, 8


def _flatten(tensor: Tensor) -> Tensor:
    return views.reshape(tensor.detach(), (-1,))


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Count how often each integer 0, 1, 2, ... occurs in a vector. The host waits for the largest element.

    Args:
        input: Integer vector, not negative.
        weights: Vector of the same length; the result is the sum of weights for each integer, in float32 for float32
            weights and float64 for all others.
        minlength: Smallest length of the result.

    Returns:
        A vector of length `max(input.max() + 1, minlength)`; int64 without weights.

    Raises:
        DomainError: An element or `minlength` is negative.
        NotSupported: The input is not of an integer dtype.
        ShapeError: The input is not a vector, or the weights do not fit.
        ArgumentError: `minlength` is not an integer.

    Example:
        >>> wg.bincount(wg.tensor([0, 2, 2]))
        tensor([1, 0, 2])
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
        lowest, highest = (int(t.item()) for t in call_multiple(registry["index_bounds"], (input,)))
        if lowest < 0:
            raise DomainError(f"bincount: only counts integers from 0, and the input has {lowest}")
        size = max(size, highest + 1)
    elif weights is not None or not size:
        return factories.zeros(size, dtype=dtypes.int64, device=input.meta.device)
    return _sum_bins(input, size, weights if weights is None else weights.detach())


def _sum_bins(bin_indices: Tensor, size: int, weights: Tensor | None) -> Tensor:
    """Count the elements (or sum the weights) of each of `size` bins; indices out of range are ignored."""
    if weights is not None:
        source = weights if weights.meta.dtype is dtypes.float32 else weights.to(dtypes.float64)
        return call(_spread, (source, bin_indices), ((size,), 0))
    unit = factories.full((1,), 1, dtype=dtypes.int64, device=bin_indices.meta.device)
    numel = bin_indices.meta.numel
    shares = _COUNT_SHARES
    if numel < max(_SHARED_COUNT_MIN_NUMEL, 4 * shares * size) or bin_indices.meta.device.driver.target != "opencl":
        return call(_spread, (call(registry["expand"], (unit,), (bin_indices.meta.shape,)), bin_indices), ((size,), 0))
    rows = views.reshape(call(_narrow, (bin_indices,), (0, 0, numel - numel % shares)), (shares, numel // shares))
    totals = call(_spread, (call(registry["expand"], (unit,), (rows.meta.shape,)), rows), ((shares, size), 1))
    totals = ops.sum(totals, 0)
    if numel % shares:
        remainder = call(_narrow, (bin_indices,), (0, numel - numel % shares, numel % shares))
        totals = ops.add(totals, _sum_bins(remainder, size, None))
    return totals


def _require_floating(input: Tensor, where: str) -> None:
    only_tensors(where, input)
    if input.meta.dtype.kind != "f":
        raise NotSupported(f"{where}: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")


def _bin_range(input: Tensor, low: float, high: float, where: str) -> tuple[float, float]:
    """Return the range of the bins: the extremes of the input if `low == high`, else (low, high)."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DomainError(f"{where}: range of [{low}, {high}] is not finite")
    if low > high:
        raise DomainError(f"{where}: max must not be smaller than min, but they are {high} and {low}")
    if low == high and input.meta.numel:
        low, high = float(ops.amin(input).item()), float(ops.amax(input).item())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise DomainError(f"{where}: range of [{low}, {high}] is not finite; give min and max")
    if low == high:
        low, high = (low - 0.5, high + 0.5) if input.meta.numel else (low, high + 1.0)
    return low, high


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None) -> Tensor:
    """Count the elements in each of `bins` equal intervals. Elements outside of the range are ignored.

    An element falls into bin `floor((element - min) * bins / (max - min))`; the last bin includes its upper end.

    Args:
        input: Floating tensor.
        bins: Number of bins.
        min: Lower end of the range.
        max: Upper end. If it equals `min`, the range is that of the elements, and the host waits for it.
        out: Tensor to write the result to.

    Returns:
        `(bins,)`, in the dtype of `input`.

    Raises:
        DomainError: The range or the number of bins is invalid.
        NotSupported: The dtype is not floating.

    Example:
        >>> wg.histc(wg.tensor([1.0, 2.0, 2.0]), bins=2, min=0, max=4)
        tensor([1., 2.])
    """
    _require_floating(input, "histc")
    if _check_bins(bins, "histc") and min > max:
        raise DomainError(f"histc: max must be larger than min, but they are {max} and {min}")
    flat = _flatten(input)
    low, high = _bin_range(flat, float(min), float(max), "histc")
    bin_indices = call(registry["histogram_place"], (flat, low, high, float(bins)))
    output = _sum_bins(bin_indices, bins, None).to(input.meta.dtype)
    return output if out is None else copy_to_out(output, out, "histc")


def _check_bins(bins: object, where: str) -> int:
    if isinstance(bins, (bool, float)) or not hasattr(bins, "__index__"):
        raise ArgumentError(f"{where}: bins must be an integer, not {bins!r}")
    count = int(bins.__index__())
    if count < 1:
        raise DomainError(f"{where}: bins must be > 0, but got {bins}")
    return count


class Histogram(NamedTuple):
    """The counts of a histogram, and the edges of its bins.

    Args:
        hist: Counts, or sums of weights, of shape `(bins,)`.
        bin_edges: Edges, of shape `(bins + 1,)`.

    Example:
        >>> wg.histogram(wg.tensor([1.0, 2.0, 2.0]), 2, range=(0.0, 4.0)).hist
        tensor([1., 2.])
    """

    hist: Tensor
    bin_edges: Tensor


def histogram(
    input: Tensor, bins: int | Tensor = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False, out: Sequence[Tensor] | None = None,
) -> Histogram:  # fmt: skip
    """Return a histogram and its bin edges. The last bin includes its upper edge.

    Args:
        input: Floating tensor.
        bins: Number of equal bins, or a sorted vector of edges.
        range: `(low, high)` of the bins; by default the extremes of the elements, which the host waits for.
        weight: Weight of each element (default 1), of the shape and dtype of `input`.
        density: Whether to divide by the total and by the bin widths.
        out: Two tensors to write the results to.

    Returns:
        `(hist, bin_edges)`, both in the dtype of `input`.

    Raises:
        DomainError: The range or the number of bins is invalid.
        DTypeError: Dtypes differ.
        ShapeError: Edges or weights have the wrong shape.
        ArgumentError: `out` is not two tensors, or `range` is passed together with edges.

    Example:
        >>> wg.histogram(wg.tensor([1.0, 2.0, 2.0]), 2, range=(0.0, 4.0))
        Histogram(hist=tensor([1., 2.]), bin_edges=tensor([0., 2., 4.]))
    """
    _require_floating(input, "histogram")
    flat = views.contiguous(_flatten(input))
    if isinstance(bins, Tensor):
        if range is not None:
            raise ArgumentError("histogram: range is for a number of bins; these are edges")
        if bins.meta.ndim != 1 or not bins.meta.numel:
            raise ShapeError(
                f"histogram: edges must be a vector that is not empty, not of shape {list(bins.meta.shape)}"
            )
        if bins.meta.dtype is not input.meta.dtype:
            raise DTypeError(f"histogram: the input is {input.meta.dtype.name}, the edges {bins.meta.dtype.name}")
        edges = views.contiguous(bins.detach())
    else:
        _check_bins(bins, "histogram")
        if range is not None and len(range) != 2:
            raise ShapeError(f"histogram: range must be (low, high), not {range!r}")
        low, high = (0.0, 0.0) if range is None else (float(r) for r in range)
        low, high = _bin_range(flat, low, high, "histogram")
        edges = _bin_edges(low, high, int(bins), input)
    if weight is not None:
        only_tensors("histogram", weight)
        if weight.meta.shape != input.meta.shape:
            raise ShapeError(
                f"histogram: weight has shape {list(weight.meta.shape)}, the input {list(input.meta.shape)}"
            )
        if weight.meta.dtype is not input.meta.dtype:
            raise DTypeError(f"histogram: the input is {input.meta.dtype.name}, the weight {weight.meta.dtype.name}")
    hist = _histogram(flat, edges, None if weight is None else _flatten(weight), density)
    return Histogram(*store_pair((hist, edges), out, "histogram"))


def _bin_edges(low: float, high: float, bins: int, like: Tensor) -> Tensor:
    """Return the edges of equal bins, computed from both ends in the input's precision, as PyTorch does."""
    edge_type = np.float64 if like.meta.dtype is dtypes.float64 else np.float32
    first, last, i = edge_type(low), edge_type(high), np.arange(bins + 1)
    exact_type = np.longdouble if edge_type is np.float64 else np.float64
    step = exact_type((last - first) / edge_type(bins))  # the product is not rounded before the sum
    values = np.where(i < (bins + 1) // 2, first + step * i, last - step * (bins - i))
    return from_data.tensor(values.astype(np.float64), dtype=like.meta.dtype, device=like.meta.device)


def _histogram(flat: Tensor, edges: Tensor, weight: Tensor | None, density: bool) -> Tensor:
    bins = edges.meta.numel - 1
    bin_indices = call(registry["bin_sorted"], (edges, flat))
    if weight is not None and weight.meta.dtype.itemsize == 2:
        weight = weight.to(dtypes.float32)
    hist = _sum_bins(bin_indices, bins, weight).to(flat.meta.dtype)
    if density:
        widths = ops.sub(call(_narrow, (edges,), (0, 1, bins)), call(_narrow, (edges,), (0, 0, bins)))
        hist = ops.true_divide(ops.true_divide(hist, ops.sum(hist)), widths)
    return hist


METHODS = {name: globals()[name] for name in __all__}
