"""What the rows of the suite `ops` should give, in float64, by NumPy alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

__all__ = ["attention", "convolution", "distances", "scatter_add", "transposed", "windows"]

Array = np.ndarray[Any, Any]


def convolution(x: Array, w: Array, stride: int, padding: int, groups: int) -> Array:
    """Cross-correlation of x (N, C, …) with w (O, C / groups, …), a matrix product for every tap."""
    rank, batch, taps = x.ndim - 2, x.shape[0], w.shape[2:]
    x = np.pad(x, ((0, 0), (0, 0), *((padding, padding),) * rank))
    out = [(n - k) // stride + 1 for n, k in zip(x.shape[2:], taps, strict=True)]
    total = np.zeros((batch, groups, w.shape[0] // groups, int(np.prod(out))))
    for tap in itertools.product(*map(range, taps)):
        read: tuple[Any, ...] = (..., *(slice(t, t + stride * n, stride) for t, n in zip(tap, out, strict=True)))
        weight: tuple[Any, ...] = (..., *tap)
        part = x[read].reshape(batch, groups, x.shape[1] // groups, -1)
        total += w[weight].reshape(groups, w.shape[0] // groups, -1) @ part
    return np.asarray(total.reshape(batch, w.shape[0], *out))


def transposed(x: Array, w: Array) -> Array:
    """The transpose of a convolution of stride 2 by w (C, O, 2, 2): every element becomes a block."""
    blocks = np.einsum("nchw,cokl->nohkwl", x, w)
    n, o, h, _, v, _ = blocks.shape
    return blocks.reshape(n, o, 2 * h, 2 * v)


def windows(x: Array, size: int, stride: int, padding: int, border: float = 0.0) -> Array:
    """The windows of the last two dimensions, as two dimensions more."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=border)
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))[:, :, ::stride, ::stride]  # type: ignore[call-overload,no-any-return]


def scatter_add(x: Array, dim: int, index: Array, source: Array) -> Array:
    """x with source added at index along dim."""
    out = x.copy()
    places = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    places[dim] = index
    np.add.at(out, tuple(places), source)
    return out


def attention(q: Array, k: Array, v: Array, causal: bool) -> Array:
    """softmax(q k' / sqrt(E)) v; `causal` forbids keys behind the query."""
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


def distances(x: Array, y: Array, p: float) -> Array:
    """The p-norms of the differences of every row of x and every row of y."""
    return np.stack([(np.abs(row - y) ** p).sum(1) ** (1 / p) for row in x])
