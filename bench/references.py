"""What kernels should give, in float64, by NumPy alone."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np

__all__ = [
    "conv2d", "cross_entropy", "cross_entropy_slope", "embedding_slope", "gelu", "layer_norm", "layer_norm_slopes",
    "mlp_slopes", "softmax", "softmax_slope",
]  # fmt: skip

Array = np.ndarray[Any, Any]
_erf = np.vectorize(erf, otypes=[np.float64])


def gelu(x: Array) -> Array:
    """x Phi(x), with Phi the distribution function of the normal distribution."""
    return np.asarray(0.5 * x * (1 + _erf(x / 2**0.5)))


def softmax(x: Array) -> Array:
    """Of every row."""
    e = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def softmax_slope(x: Array, g: Array) -> Array:
    """The gradient of sum(g * softmax(x))."""
    y = softmax(x)
    return np.asarray(y * (g - (g * y).sum(1, keepdims=True)))


def _normalized(x: Array) -> tuple[Array, Array]:
    deviation = np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return (x - x.mean(1, keepdims=True)) / deviation, deviation


def layer_norm(x: Array, w: Array, b: Array) -> Array:
    """Of every row."""
    return np.asarray(_normalized(x)[0] * w + b)


def layer_norm_slopes(x: Array, w: Array, b: Array, g: Array) -> tuple[Array, Array, Array]:
    """The gradients of sum(g * layer_norm(x, w, b)) by x, w and b."""
    y, deviation = _normalized(x)
    gy = g * w
    dx = (gy - gy.mean(1, keepdims=True) - y * (gy * y).mean(1, keepdims=True)) / deviation
    return dx, (g * y).sum(0), g.sum(0)


def cross_entropy(x: Array, target: Array) -> Array:
    """The mean over rows of minus the log-softmax at the target; 256 rows at a time, for memory's sake."""
    total = 0.0
    for i in range(0, len(x), 256):
        rows = x[i : i + 256]
        top = rows.max(1)
        sums = top + np.log(np.exp(rows - top[:, None]).sum(1))
        total += float((sums - rows[np.arange(len(rows)), target[i : i + 256]]).sum())
    return np.asarray(total / len(x))


def cross_entropy_slope(x: Array, target: Array, rows: int) -> Array:
    """Of some rows `x` out of `rows`."""
    y = softmax(x)
    y[np.arange(len(x)), target] -= 1
    return y / rows


def embedding_slope(index: Array, slopes: Array, rows: int) -> Array:
    """The sums of those rows of `slopes` that have the same index, at that index of `rows`."""
    order = np.argsort(index, kind="stable")
    found, begins = np.unique(index[order], return_index=True)
    total = np.zeros((rows, slopes.shape[1]))
    total[found] = np.add.reduceat(slopes[order], begins, axis=0)
    return total


def conv2d(x: Array, w: Array) -> Array:
    """(N, C, H, W) by (O, C, kh, kw), with zeros around so that the size stays."""
    kh, kw = w.shape[2:]
    height, width = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (kh // 2, kh // 2), (kw // 2, kw // 2)))
    total = np.zeros((x.shape[0], height, width, w.shape[0]))
    for i in range(kh):
        for j in range(kw):
            total += np.tensordot(padded[:, :, i : i + height, j : j + width], w[:, :, i, j], axes=(1, 1))
    return total.transpose(0, 3, 1, 2)


def mlp_slopes(x: Array, target: Array, parameters: list[Array]) -> list[Array]:
    """Gradients of the cross entropy of a perceptron, relu between its layers, by weights and biases in turn."""
    layers = list(zip(parameters[::2], parameters[1::2], strict=True))
    inputs = [x]
    for i, (w, b) in enumerate(layers):
        y = inputs[-1] @ w.T + b
        inputs.append(np.maximum(y, 0) if i + 1 < len(layers) else y)
    slope = cross_entropy_slope(inputs[-1], target, len(x))
    found: list[Array] = []
    for (w, _), before in zip(reversed(layers), reversed(inputs[:-1]), strict=True):
        found = [slope.T @ before, slope.sum(0), *found]
        slope = (slope @ w) * (before > 0)
    return found
