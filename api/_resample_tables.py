"""Which elements of a dimension an interpolated one is made of, and with which weights: tables a mode; what they do.

Places are those of PyTorch: with `align_corners` the first and last elements of input and result lie on each other, and
element i is at i * (in - 1) / (out - 1); without, elements are cells, and the centre of cell i is at
(i + 0.5) * scale - 0.5. The cubic kernel is that of Keys, "Cubic convolution interpolation", 1981, with a = -0.75, and
-0.5 where it is stretched against aliasing; the lanczos one is sinc(x) sinc(x / 3) (Duchon 1979).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from .autograd import Function
from .runtime import dtypes, views
from .runtime.context import current_stream
from .runtime.device import Device, meta
from .runtime.dispatch import call, empty
from .runtime.dtypes import DType
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = ["Resample", "Table", "averages", "table"]

_Array = Any


class Table:
    """Of every element of a result of `first.size`, where the elements that it is made of begin, and their weights.

    first: int64 (n,). weights: (taps, n). wide: how many elements there are. transposed: the table of the transpose.
    """

    def __init__(self, first: _Array, weights: _Array, wide: int):
        self.first, self.weights, self.wide = first, weights, wide
        self._transposed: Table | None = None
        self._tensors: dict[tuple[Device, DType], tuple[Tensor, Tensor]] = {}

    @property
    def size(self) -> int:
        return int(self.first.size)

    @property
    def transposed(self) -> Table:
        if self._transposed is None:
            rows = np.broadcast_to(np.arange(self.size), self.weights.shape)
            places = self.first + np.arange(len(self.weights))[:, None]
            there = self.weights != 0
            made = _of_entries(places[there], rows[there], self.weights[there], self.wide, self.size)
            made._transposed = self
            self._transposed = made
        return self._transposed

    def tensors(self, device: Device, dtype: DType) -> tuple[Tensor, Tensor]:
        """Both arrays on `device`, the weights in `dtype`."""
        key = (device, dtype)
        found = self._tensors.get(key)
        if found is None:
            weights = self.weights.astype(dtype.numpy)
            found = self._tensors[key] = _on(device, self.first, dtypes.int64), _on(device, weights, dtype)
        return found


def _on(device: Device, array: _Array, dtype: DType) -> Tensor:
    made = empty(meta(dtype, array.shape, None, device))
    device.driver.write(made.storage, 0, np.ascontiguousarray(array), current_stream(device))
    return made


def _of_entries(rows: _Array, places: _Array, weights: _Array, n: int, wide: int) -> Table:
    """A table from (element of the result, element that it reads, weight); weights of the same two are added."""
    low, high = np.full(n, wide, np.int64), np.full(n, -1, np.int64)
    np.minimum.at(low, rows, places)
    np.maximum.at(high, rows, places)
    taps = int(max((high - low).max(initial=0) + 1, 1))
    first = np.clip(np.minimum(low, wide - taps), 0, None)  # so that taps stay inside, those of weight 0 too
    made = np.zeros((taps, n), weights.dtype)
    np.add.at(made, (places - first[rows], rows), weights)
    return Table(first, made, wide)


def _scale(wide: int, n: int, factor: float | None, align_corners: bool, real: Any) -> Any:
    """From elements of the result to those of the input."""
    if align_corners:
        return real(wide - 1) / real(n - 1) if n > 1 else real(0)
    return real(1.0 / factor) if factor is not None and factor > 0 else real(wide) / real(n)


def _nearest(wide: int, n: int, scale: Any, exact: bool, real: Any) -> Table:
    at = np.floor((np.arange(n, dtype=real) + real(0.5 if exact else 0)) * scale).astype(np.int64)
    return Table(np.minimum(at, wide - 1), np.ones((1, n), real), wide)


def _cubic(t: _Array, a: float) -> _Array:
    t = np.abs(t)
    near, far = ((a + 2) * t - (a + 3)) * t * t + 1, (((t - 5) * t + 8) * t - 4) * a
    return np.where(t < 1, near, np.where(t < 2, far, 0)).astype(t.dtype)


def _linear(t: _Array) -> _Array:
    return np.maximum(1 - np.abs(t), 0)


def _lanczos(t: _Array) -> _Array:
    return np.where(np.abs(t) < 3, np.sinc(t) * np.sinc(t / 3), 0).astype(t.dtype)


# Kernel, and how far it reaches to either side, of what is stretched against aliasing.
_STRETCHED: dict[str, tuple[Callable[[_Array], _Array], float]] = {
    "linear": (_linear, 1), "cubic": (lambda t: _cubic(t, -0.5), 2), "lanczos": (_lanczos, 3),
}  # fmt: skip


def _stretched(wide: int, n: int, scale: Any, kernel: Callable[[_Array], _Array], reach: float, real: Any) -> Table:
    """A kernel as wide as the input's elements or the result's, whichever is wider; weights sum to 1."""
    stretch = max(scale, real(1))
    support = real(reach) * stretch
    centre = scale * (np.arange(n, dtype=real) + real(0.5))
    low = np.maximum((centre - support + real(0.5)).astype(np.int64), 0)
    high = np.minimum((centre + support + real(0.5)).astype(np.int64), wide)
    rows = np.repeat(np.arange(n), np.maximum(high - low, 0))
    places = np.arange(rows.size) - np.repeat(np.cumsum(high - low) - (high - low), high - low) + low[rows]
    weights = kernel((places.astype(real) - centre[rows] + real(0.5)) / stretch)
    total = np.zeros(n, real)
    np.add.at(total, rows, weights)
    return _of_entries(rows, places, weights / np.where(total == 0, 1, total)[rows], n, wide)


@lru_cache(256)
def table(mode: str, wide: int, n: int, factor: float | None, align_corners: bool, antialias: bool, kind: str) -> Table:
    """How n elements are made of `wide`.

    mode: nearest, nearest-exact, linear, cubic, lanczos. factor: the factor by which the caller enlarges, if it counts.
    kind: float32 or float64, in which places are calculated.
    """
    real = np.dtype(kind).type
    scale = _scale(wide, n, factor, align_corners, real)
    if mode.startswith("nearest"):
        return _nearest(wide, n, scale, mode == "nearest-exact", real)
    if antialias:
        kernel, reach = _STRETCHED[mode]
        return _stretched(wide, n, scale, kernel, reach, real)
    at = np.arange(n, dtype=real)
    at = at * scale if align_corners else (at + real(0.5)) * scale - real(0.5)
    if mode == "linear":
        at = np.maximum(at, 0)
        below = np.minimum(np.floor(at).astype(np.int64), wide - 1)
        offsets, between = np.arange(2)[:, None], np.clip(at - below, 0, 1)
        weights = np.stack([1 - between, between])
    else:
        below = np.floor(at).astype(np.int64)
        offsets = np.arange(-1, 3)[:, None]
        weights = _cubic(offsets - (at - below)[None], -0.75)
    places = np.clip(below + offsets, 0, wide - 1)
    rows = np.broadcast_to(np.arange(n), places.shape)
    return _of_entries(rows.ravel(), places.ravel(), weights.astype(real).ravel(), n, wide)


@lru_cache(256)
def averages(wide: int, n: int) -> Table:
    """The means of the n windows of an adaptive pool over `wide` elements, from i * wide // n to below
    -(-(i + 1) * wide // n)."""
    low = np.arange(n) * wide // n
    sizes = -(-np.arange(1, n + 1) * wide // n) - low
    rows = np.repeat(np.arange(n), sizes)
    places = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes) + low[rows]
    return _of_entries(rows, places, 1.0 / sizes[rows], n, wide)


class Resample(Function):
    """Tables applied one after the other: `apply(input, ((dim, table), ...))`. Its gradient is the transposed ones."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, passes: tuple[tuple[int, Table], ...]) -> Tensor:
        ctx.passes = passes
        own = input.meta.dtype
        computed = own if own.itemsize > 2 else dtypes.float32
        x = input
        for number, (dim, each) in enumerate(passes, 1):
            operands = (views.contiguous(x), *each.tensors(input.meta.device, computed))
            x = call(registry["resample"], operands, (dim, own if number == len(passes) else computed))
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return Resample.apply(grad, tuple((dim, each.transposed) for dim, each in reversed(ctx.passes))), None
