"""References for the suite `ops`: expected results in float64, computed by NumPy alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import EllipsisType

import numpy as np

from ..runtime.dtypes import Array

__all__ = ["attention", "convolution", "distances", "scatter_add", "transposed", "windows"]


def convolution(x: Array, w: Array, stride: int, padding: int, groups: int) -> Array:
    """Cross-correlate x (N, C, …) with w (O, C / groups, …), by one matrix product per filter tap."""
    spatial_dims, batch, kernel_sizes = x.ndim - 2, x.shape[0], w.shape[2:]
    x = np.pad(x, ((0, 0), (0, 0), *((padding, padding),) * spatial_dims))
    out_sizes = [(n - k) // stride + 1 for n, k in zip(x.shape[2:], kernel_sizes, strict=True)]
    total = np.zeros((batch, groups, w.shape[0] // groups, int(np.prod(out_sizes))))
    for tap in itertools.product(*map(range, kernel_sizes)):
        slices = (slice(t, t + stride * n, stride) for t, n in zip(tap, out_sizes, strict=True))
        read_index: tuple[EllipsisType | slice, ...] = (..., *slices)  # the element of every window that meets this tap
        weight_index: tuple[EllipsisType | int, ...] = (..., *tap)
        columns = x[read_index].reshape(batch, groups, x.shape[1] // groups, -1)
        total += w[weight_index].reshape(groups, w.shape[0] // groups, -1) @ columns
    return np.asarray(total.reshape(batch, w.shape[0], *out_sizes))


def transposed(x: Array, w: Array) -> Array:
    """Compute the transposed convolution of x (N, C, H, W) with w (C, O, 2, 2) and stride 2.

    Every element becomes a 2x2 block of the result (N, O, 2 H, 2 W).
    """
    blocks = np.einsum("nchw,cokl->nohkwl", x, w)
    n, o, h, _, w_in, _ = blocks.shape
    return blocks.reshape(n, o, 2 * h, 2 * w_in)


def windows(x: Array, size: int, stride: int, padding: int, border: float = 0.0) -> Array:
    """Return the sliding windows of x (N, C, H, W) as two further dimensions: (N, C, H', W', size, size)."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=border)
    view: Callable[..., Array] = np.lib.stride_tricks.sliding_window_view  # NumPy 1.26 declares that it takes one axis
    return view(x, (size, size), (2, 3))[:, :, ::stride, ::stride]


def scatter_add(x: Array, dim: int, index: Array, source: Array) -> Array:
    """Return a copy of x with `source` added at `index` along `dim`, as `torch.scatter_add`."""
    out = x.copy()
    indices = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    indices[dim] = index
    np.add.at(out, tuple(indices), source)
    return out


def attention(q: Array, k: Array, v: Array, causal: bool) -> Array:
    """Return softmax(q k^T / sqrt(E)) v for (…, L, E) operands; `causal` masks keys after the query."""
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


def distances(x: Array, y: Array, p: float) -> Array:
    """Return the p-norm distances (N, M) between the rows of x (N, E) and those of y (M, E)."""
    return np.stack([(np.abs(row - y) ** p).sum(1) ** (1 / p) for row in x])
