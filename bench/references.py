"""References for the core suites: expected results in float64, computed by NumPy alone."""

from __future__ import annotations

from math import erf

import numpy as np

from ..runtime.dtypes import Array

__all__ = [
    "conv2d", "cross_entropy", "cross_entropy_grad", "embedding_grad", "gelu", "layer_norm", "layer_norm_grads",
    "mlp_grads", "softmax", "softmax_grad",
]  # fmt: skip

_erf = np.vectorize(erf, otypes=[np.float64])


def gelu(x: Array) -> Array:
    """Return x Phi(x), with Phi the cumulative distribution function of the standard normal distribution."""
    return np.asarray(0.5 * x * (1 + _erf(x / 2**0.5)))


def softmax(x: Array) -> Array:
    """Return the softmax of every row of x (N, C)."""
    e = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def softmax_grad(x: Array, g: Array) -> Array:
    """Return the gradient of sum(g * softmax(x)) by x."""
    y = softmax(x)
    return np.asarray(y * (g - (g * y).sum(1, keepdims=True)))


def _normalized(x: Array) -> tuple[Array, Array]:
    """Return the rows with mean 0 and variance 1, and their standard deviations."""
    deviation = np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return (x - x.mean(1, keepdims=True)) / deviation, deviation


def layer_norm(x: Array, w: Array, b: Array) -> Array:
    """Return the layer norm of every row of x (N, C), scaled by w and shifted by b."""
    return np.asarray(_normalized(x)[0] * w + b)


def layer_norm_grads(x: Array, w: Array, b: Array, g: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of sum(g * layer_norm(x, w, b)) by x, w and b."""
    y, deviation = _normalized(x)
    gy = g * w
    dx = (gy - gy.mean(1, keepdims=True) - y * (gy * y).mean(1, keepdims=True)) / deviation
    return dx, (g * y).sum(0), g.sum(0)


def cross_entropy(x: Array, target: Array) -> Array:
    """Return the mean cross entropy of logits x (N, C), 256 rows at a time to save memory."""
    total = 0.0
    for i in range(0, len(x), 256):
        rows = x[i : i + 256]
        row_max = rows.max(1)
        log_sums = row_max + np.log(np.exp(rows - row_max[:, None]).sum(1))
        total += float((log_sums - rows[np.arange(len(rows)), target[i : i + 256]]).sum())
    return np.asarray(total / len(x))


def cross_entropy_grad(x: Array, target: Array, rows: int) -> Array:
    """Return the gradient of the mean cross entropy over `rows` rows, for the rows `x` among them."""
    y = softmax(x)
    y[np.arange(len(x)), target] -= 1
    return y / rows


def embedding_grad(index: Array, grads: Array, rows: int) -> Array:
    """Return the gradient (rows, E) of an embedding table: rows of `grads` with the same index are summed."""
    order = np.argsort(index, kind="stable")
    indices, begins = np.unique(index[order], return_index=True)
    total = np.zeros((rows, grads.shape[1]))
    total[indices] = np.add.reduceat(grads[order], begins, axis=0)
    return total


def conv2d(x: Array, w: Array) -> Array:
    """Cross-correlate x (N, C, H, W) with w (O, C, kh, kw), zero-padded to the same H and W."""
    kh, kw = w.shape[2:]
    height, width = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (kh // 2, kh // 2), (kw // 2, kw // 2)))
    total = np.zeros((x.shape[0], height, width, w.shape[0]))
    for i in range(kh):
        for j in range(kw):
            total += np.tensordot(padded[:, :, i : i + height, j : j + width], w[:, :, i, j], axes=(1, 1))
    return total.transpose(0, 3, 1, 2)


def mlp_grads(x: Array, target: Array, parameters: list[Array]) -> list[Array]:
    """Return the gradients of an MLP's cross entropy (relu between layers) by each weight and bias, alternating."""
    layers = list(zip(parameters[::2], parameters[1::2], strict=True))
    inputs = [x]
    for i, (w, b) in enumerate(layers):
        y = inputs[-1] @ w.T + b
        inputs.append(np.maximum(y, 0) if i + 1 < len(layers) else y)
    grad = cross_entropy_grad(inputs[-1], target, len(x))
    grads: list[Array] = []
    for (w, _), layer_input in zip(reversed(layers), reversed(inputs[:-1]), strict=True):
        grads = [grad.T @ layer_input, grad.sum(0), *grads]
        grad = (grad @ w) * (layer_input > 0)
    return grads
