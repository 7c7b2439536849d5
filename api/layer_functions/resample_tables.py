"""Interpolation tables: which input elements contribute to each output element, and with which weights.

Coordinates are those of PyTorch. With `align_corners`, the first and last elements of input and output coincide, and
output element i is at i * (in - 1) / (out - 1). Without it, elements are cells, and the centre of output cell i is at
(i + 0.5) * scale - 0.5. The cubic kernel is that of Keys, "Cubic convolution interpolation", 1981, with a = -0.75, or
-0.5 for antialiasing. The Lanczos kernel is sinc(x) * sinc(x / 3) (Duchon 1979). `resampling` has the public functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..autograd import Function
from ..runtime import dtypes, views
from ..runtime.context import current_stream
from ..runtime.device import Device, meta
from ..runtime.dispatch import call, empty
from ..runtime.dtypes import Array, DType
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["Resample", "Table", "averages", "table"]

if TYPE_CHECKING:
    from ..autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        passes: tuple[tuple[int, Table], ...]


class Table:
    """A banded linear map along one dimension, from `input_size` to `size` elements.

    Output element i is the sum over t of `weights[t, i] * input[first[i] + t]`.

    Attributes:
        first: int64 `(size,)`, index of the first input element of each output element.
        weights: `(taps, size)`.
        input_size: Number of input elements.
        transposed: The table of the transposed map, which is that of the gradient.
    """

    def __init__(self, first: Array, weights: Array, input_size: int):
        self.first, self.weights, self.input_size = first, weights, input_size
        self._transposed: Table | None = None
        self._tensors: dict[tuple[Device, DType], tuple[Tensor, Tensor]] = {}

    @property
    def size(self) -> int:
        return int(self.first.size)

    @property
    def transposed(self) -> Table:
        if self._transposed is None:
            rows = np.broadcast_to(np.arange(self.size), self.weights.shape)
            columns = self.first + np.arange(len(self.weights))[:, None]
            is_nonzero = self.weights != 0
            transposed_table = _table_from_entries(
                columns[is_nonzero], rows[is_nonzero], self.weights[is_nonzero], self.input_size, self.size
            )
            transposed_table._transposed = self
            self._transposed = transposed_table
        return self._transposed

    def tensors(self, device: Device, dtype: DType) -> tuple[Tensor, Tensor]:
        """Return both arrays as tensors on `device`, the weights in `dtype`; cached."""
        key = (device, dtype)
        cached = self._tensors.get(key)
        if cached is None:
            weights = self.weights.astype(dtype.numpy)
            cached = self._tensors[key] = _upload(device, self.first, dtypes.int64), _upload(device, weights, dtype)
        return cached


def _upload(device: Device, array: Array, dtype: DType) -> Tensor:
    output = empty(meta(dtype, array.shape, None, device))
    device.driver.write(output.storage, 0, np.ascontiguousarray(array), current_stream(device))
    return output


def _table_from_entries(rows: Array, columns: Array, weights: Array, n: int, input_size: int) -> Table:
    """Build a table from (output element, input element, weight) entries; weights of equal pairs are added."""
    low, high = np.full(n, input_size, np.int64), np.full(n, -1, np.int64)
    np.minimum.at(low, rows, columns)
    np.maximum.at(high, rows, columns)
    taps = int(max((high - low).max(initial=0) + 1, 1))
    first = np.clip(np.minimum(low, input_size - taps), 0, None)  # keep all taps in range, even those of weight 0
    dense_weights = np.zeros((taps, n), weights.dtype)
    np.add.at(dense_weights, (columns - first[rows], rows), weights)
    return Table(first, dense_weights, input_size)


def _scale(input_size: int, n: int, factor: float | None, align_corners: bool, real: type[np.floating]) -> np.floating:
    """Return the factor from output coordinates to input coordinates."""
    if align_corners:
        return real(input_size - 1) / real(n - 1) if n > 1 else real(0)
    return real(1.0 / factor) if factor is not None and factor > 0 else real(input_size) / real(n)


def _nearest_table(input_size: int, n: int, scale: np.floating, exact: bool, real: type[np.floating]) -> Table:
    positions = np.floor((np.arange(n, dtype=real) + real(0.5 if exact else 0)) * scale).astype(np.int64)
    return Table(np.minimum(positions, input_size - 1), np.ones((1, n), real), input_size)


def _cubic(t: Array, a: float) -> Array:
    t = np.abs(t)
    near, far = ((a + 2) * t - (a + 3)) * t * t + 1, (((t - 5) * t + 8) * t - 4) * a
    return np.where(t < 1, near, np.where(t < 2, far, 0)).astype(t.dtype)


def _linear(t: Array) -> Array:
    return np.maximum(1 - np.abs(t), 0)


def _lanczos(t: Array) -> Array:
    return np.where(np.abs(t) < 3, np.sinc(t) * np.sinc(t / 3), 0).astype(t.dtype)


# For each antialiased mode: the kernel and its radius.
_ANTIALIAS_KERNELS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "linear": (_linear, 1), "cubic": (lambda t: _cubic(t, -0.5), 2), "lanczos": (_lanczos, 3),
}  # fmt: skip


def _antialiased_table(
    input_size: int, n: int, scale: np.floating, kernel: Callable[[Array], Array], reach: float, real: type[np.floating]
) -> Table:
    """Build the table of a kernel stretched to the wider of input and output elements; weights sum to 1."""
    stretch = max(scale, real(1))
    support = real(reach) * stretch
    centre = scale * (np.arange(n, dtype=real) + real(0.5))
    low = np.maximum((centre - support + real(0.5)).astype(np.int64), 0)
    high = np.minimum((centre + support + real(0.5)).astype(np.int64), input_size)
    rows = np.repeat(np.arange(n), np.maximum(high - low, 0))
    columns = np.arange(rows.size) - np.repeat(np.cumsum(high - low) - (high - low), high - low) + low[rows]
    weights = kernel((columns.astype(real) - centre[rows] + real(0.5)) / stretch)
    total = np.zeros(n, real)
    np.add.at(total, rows, weights)
    return _table_from_entries(rows, columns, weights / np.where(total == 0, 1, total)[rows], n, input_size)


@lru_cache(256)
def table(
    mode: str, input_size: int, n: int, factor: float | None, align_corners: bool, antialias: bool, kind: str
) -> Table:
    """Return the table that resamples `input_size` elements to `n`.

    Args:
        mode: "nearest", "nearest-exact", "linear", "cubic" or "lanczos".
        input_size: Number of input elements.
        n: Number of output elements.
        factor: The scale factor of the caller, if it determines the coordinates; None to use the ratio of the sizes.
        align_corners: Whether the corner elements coincide.
        antialias: Whether to stretch the kernel when shrinking.
        kind: "float32" or "float64", the precision of the coordinates.
    """
    real: type[np.floating] = np.float64 if kind == "float64" else np.float32
    scale = _scale(input_size, n, factor, align_corners, real)
    if mode.startswith("nearest"):
        return _nearest_table(input_size, n, scale, mode == "nearest-exact", real)
    if antialias:
        kernel, reach = _ANTIALIAS_KERNELS[mode]
        return _antialiased_table(input_size, n, scale, kernel, reach, real)
    centres = np.arange(n, dtype=real)
    centres = centres * scale if align_corners else (centres + real(0.5)) * scale - real(0.5)
    if mode == "linear":
        centres = np.maximum(centres, 0)
        lower = np.minimum(np.floor(centres).astype(np.int64), input_size - 1)
        offsets, fraction = np.arange(2)[:, None], np.clip(centres - lower, 0, 1)
        weights = np.stack([1 - fraction, fraction])
    else:
        lower = np.floor(centres).astype(np.int64)
        offsets = np.arange(-1, 3)[:, None]
        weights = _cubic(offsets - (centres - lower)[None], -0.75)
    columns = np.clip(lower + offsets, 0, input_size - 1)
    rows = np.broadcast_to(np.arange(n), columns.shape)
    return _table_from_entries(rows.ravel(), columns.ravel(), weights.astype(real).ravel(), n, input_size)


@lru_cache(256)
def averages(input_size: int, n: int) -> Table:
    """Return the table of adaptive average pooling.

    Window i covers the elements from floor(i * input_size / n) to ceil((i + 1) * input_size / n) - 1.
    """
    low = np.arange(n) * input_size // n
    sizes = -(-np.arange(1, n + 1) * input_size // n) - low
    rows = np.repeat(np.arange(n), sizes)
    columns = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes) + low[rows]
    return _table_from_entries(rows, columns, 1.0 / sizes[rows], n, input_size)


class Resample(Function):
    """Apply tables in order: `apply(input, ((dim, table), ...))`. The gradient applies the transposed tables."""

    @staticmethod
    def forward(ctx: _Context, input: Tensor, passes: tuple[tuple[int, Table], ...]) -> Tensor:
        ctx.passes = passes
        input_dtype = input.meta.dtype
        compute_dtype = input_dtype if input_dtype.itemsize > 2 else dtypes.float32
        x = input
        for number, (dim, resample_table) in enumerate(passes, 1):
            operands = (views.contiguous(x), *resample_table.tensors(input.meta.device, compute_dtype))
            x = call(registry["resample"], operands, (dim, input_dtype if number == len(passes) else compute_dtype))
        return x

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None]:
        return Resample.apply(
            grad, tuple((dim, resample_table.transposed) for dim, resample_table in reversed(ctx.passes))
        ), None
