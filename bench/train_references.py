"""Training in float64 by NumPy alone: models of the suite `train` with their gradients, and the optimizers' formulas.

A `Value` remembers what it was computed from and how a gradient goes back there; `slopes` goes back once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import references

__all__ = ["Adam", "Momentum", "Value", "convolutional", "losses", "transformer"]

Array = np.ndarray[Any, Any]
_EPS = 1e-5  # of layer_norm


class Value:
    """An array, the values that it came from, and for each of those its gradient as a function of this one's."""

    def __init__(self, array: Array, *sources: tuple[Value, Callable[[Array], Array]]):
        self.array, self.sources = array, sources
        self.slope: Array | float = 0.0

    def slopes(self) -> None:
        """Set `slope` of everything that this number was computed from."""
        order: list[Value] = []
        seen: set[int] = set()

        def visit(value: Value) -> None:
            if id(value) not in seen:
                seen.add(id(value))
                for source, _ in value.sources:
                    visit(source)
                order.append(value)

        visit(self)
        self.slope = np.ones(())
        for value in reversed(order):
            for source, back in value.sources:
                source.slope = source.slope + back(np.asarray(value.slope))


def _added(x: Value, y: Value) -> Value:
    """x + y; leading dimensions of y may be missing."""
    lead = tuple(range(x.array.ndim - y.array.ndim))
    return Value(x.array + y.array, (x, lambda g: g), (y, lambda g: g.sum(lead)))


def _linear(x: Value, weight: Value, bias: Value) -> Value:
    a, w = x.array, weight.array

    def rows(g: Array) -> Array:
        return g.reshape(-1, g.shape[-1])

    return Value(a @ w.T + bias.array, (x, lambda g: g @ w), (weight, lambda g: rows(g).T @ rows(a)),
                 (bias, lambda g: rows(g).sum(0)))  # fmt: skip


def _relu(x: Value) -> Value:
    return Value(np.maximum(x.array, 0), (x, lambda g: g * (x.array > 0)))


def _norm(x: Value, weight: Value, bias: Value) -> Value:
    centred = x.array - x.array.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + _EPS)
    y = centred * scale
    lead = tuple(range(y.ndim - 1))

    def back(g: Array) -> Array:
        g = g * weight.array
        return scale * (g - g.mean(-1, keepdims=True) - y * (g * y).mean(-1, keepdims=True))

    return Value(y * weight.array + bias.array, (x, back), (weight, lambda g: (g * y).sum(lead)),
                 (bias, lambda g: g.sum(lead)))  # fmt: skip


def _attention(whole: Value, heads: int) -> Value:
    """Causal attention of packed query, key and value, (N, L, 3 E), to (N, L, E)."""
    n, rows, width = whole.array.shape
    q, k, v = whole.array.reshape(n, rows, 3, heads, -1).transpose(2, 0, 3, 1, 4)
    scale = q.shape[-1] ** -0.5
    scores = np.where(np.tri(rows, dtype=bool), q @ k.swapaxes(-1, -2) * scale, -np.inf)
    p = references.softmax(scores.reshape(-1, rows)).reshape(scores.shape)

    def back(g: Array) -> Array:
        g = g.reshape(n, rows, heads, -1).swapaxes(1, 2)
        change = g @ v.swapaxes(-1, -2)
        inner = p * (change - (p * change).sum(-1, keepdims=True)) * scale
        found = np.stack([inner @ k, inner.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g])
        return found.transpose(1, 3, 0, 2, 4).reshape(n, rows, width)

    return Value((p @ v).swapaxes(1, 2).reshape(n, rows, -1), (whole, back))


def _picked(table: Value, index: Array) -> Value:
    def back(g: Array) -> Array:
        return references.embedding_slope(index.ravel(), g.reshape(-1, g.shape[-1]), len(table.array))

    return Value(table.array[index], (table, back))


def _convolved(x: Value, weight: Value, bias: Value) -> Value:
    """3x3, with zeros around."""
    a, w = x.array, weight.array

    def by_weight(g: Array) -> Array:
        padded = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
        found = np.zeros_like(w)
        for i in range(3):
            for j in range(3):
                part = padded[:, :, i : i + a.shape[2], j : j + a.shape[3]]
                found[:, :, i, j] = np.tensordot(g, part, axes=((0, 2, 3), (0, 2, 3)))
        return found

    def by_input(g: Array) -> Array:
        return references.conv2d(g, w[:, :, ::-1, ::-1].swapaxes(0, 1))

    return Value(references.conv2d(a, w) + bias.array[:, None, None], (x, by_input), (weight, by_weight),
                 (bias, lambda g: g.sum((0, 2, 3))))  # fmt: skip


def _pooled(x: Value) -> Value:
    """The largest of each 2x2, and these in one row a sample."""
    n, c, h, w = x.array.shape
    parts = x.array.reshape(n, c, h // 2, 2, w // 2, 2)
    top = parts.max((3, 5), keepdims=True)

    def back(g: Array) -> Array:
        return np.asarray((g.reshape(top.shape) * (parts == top)).reshape(x.array.shape))

    return Value(top.reshape(n, -1), (x, back))


def _cross_entropy(x: Value, target: Array) -> Value:
    return Value(references.cross_entropy(x.array, target),
                 (x, lambda g: g * references.cross_entropy_slope(x.array, target, len(target))))  # fmt: skip


def convolutional(p: Mapping[str, Value], image: Array, target: Array) -> Value:
    """The loss of two convolutions, a pool and a linear map, as `nn.Sequential` numbers them."""
    y = _relu(_convolved(Value(image), p["0.weight"], p["0.bias"]))
    y = _relu(_convolved(y, p["2.weight"], p["2.bias"]))
    return _cross_entropy(_linear(_pooled(y), p["6.weight"], p["6.bias"]), target)


def transformer(p: Mapping[str, Value], index: Array, target: Array, *, layers: int, heads: int) -> Value:
    """The loss of an embedding, causal encoder layers (normalised after each part) and a linear map."""
    x = _added(_picked(p["embedding.weight"], index), p["position"])
    for n in range(layers):
        own = {k.removeprefix(f"encoder.layers.{n}."): v for k, v in p.items() if k.startswith(f"encoder.layers.{n}.")}

        def linear(y: Value, name: str, own: Mapping[str, Value] = own) -> Value:
            return _linear(y, own[f"{name}.weight"], own[f"{name}.bias"])

        whole = _linear(x, own["self_attn.in_proj_weight"], own["self_attn.in_proj_bias"])
        x = _added(x, linear(_attention(whole, heads), "self_attn.out_proj"))
        x = _norm(x, own["norm1.weight"], own["norm1.bias"])
        x = _added(x, linear(_relu(linear(x, "linear1")), "linear2"))
        x = _norm(x, own["norm2.weight"], own["norm2.bias"])
    y = _linear(x, p["head.weight"], p["head.bias"])
    flat = Value(y.array.reshape(-1, y.array.shape[-1]), (y, lambda g: g.reshape(y.array.shape)))
    return _cross_entropy(flat, target.ravel())


class Adam:
    """Adam (Kingma and Ba 2015, algorithm 1), with decay of the parameter itself (Loshchilov and Hutter 2019)."""

    def __init__(self, rate: float, decay: float = 0.0):
        self.rate, self.decay, self.count = rate, decay, 0
        self.state: dict[str, tuple[Any, Any]] = {}

    def step(self, parameters: dict[str, Array], slopes: Mapping[str, Array]) -> None:
        """Move `parameters`, each by its slope."""
        self.count += 1
        for name, slope in slopes.items():
            mean, square = self.state.get(name, (0.0, 0.0))
            mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
            self.state[name] = mean, square
            root = np.sqrt(square / (1 - 0.999**self.count)) + 1e-8
            kept = parameters[name] * (1 - self.rate * self.decay)
            parameters[name] = kept - self.rate * mean / (1 - 0.9**self.count) / root


class Momentum:
    """Gradient descent with momentum 0.9 (Polyak 1964)."""

    def __init__(self, rate: float):
        self.rate = rate
        self.state: dict[str, Any] = {}

    def step(self, parameters: dict[str, Array], slopes: Mapping[str, Array]) -> None:
        """Move `parameters`, each by its slope."""
        for name, slope in slopes.items():
            self.state[name] = 0.9 * self.state.get(name, 0.0) + slope
            parameters[name] = parameters[name] - self.rate * self.state[name]


def losses(
    loss: Callable[[Mapping[str, Value]], Value], begin: Mapping[str, Array], optimizer: Adam | Momentum, steps: int
) -> Sequence[float]:
    """The loss before each of some steps of training."""
    parameters = {name: array.astype(np.float64) for name, array in begin.items()}
    found = []
    for _ in range(steps):
        values = {name: Value(array) for name, array in parameters.items()}
        result = loss(values)
        result.slopes()
        found.append(float(result.array))
        optimizer.step(parameters, {name: np.asarray(value.slope) for name, value in values.items()})
    return found
