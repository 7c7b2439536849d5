"""References for the suite `train`, in float64 by NumPy alone: models with gradients, and the optimizers' formulas.

A `Value` records its inputs and their vector-Jacobian products; `backward` runs reverse-mode differentiation once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..runtime.dtypes import Array
from . import references

__all__ = ["Adam", "Momentum", "Value", "convolutional", "losses", "transformer"]

_EPS = 1e-5  # of layer_norm


class Value:
    """An array with its input values, each with a function from this value's gradient to the input's."""

    def __init__(self, array: Array, *sources: tuple[Value, Callable[[Array], Array]]):
        self.array, self.sources = array, sources
        self.grad: Array | float = 0.0

    def backward(self) -> None:
        """Set `grad` of every value that this scalar depends on."""
        order: list[Value] = []
        visited: set[int] = set()

        def visit(value: Value) -> None:
            if id(value) not in visited:
                visited.add(id(value))
                for source, _ in value.sources:
                    visit(source)
                order.append(value)

        visit(self)
        self.grad = np.ones(())
        for value in reversed(order):
            for source, vjp in value.sources:
                source.grad = source.grad + vjp(np.asarray(value.grad))


def _add(x: Value, y: Value) -> Value:
    """X + y; leading dimensions of y may be missing."""
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

    def vjp(g: Array) -> Array:
        g = g * weight.array
        return scale * (g - g.mean(-1, keepdims=True) - y * (g * y).mean(-1, keepdims=True))

    return Value(y * weight.array + bias.array, (x, vjp), (weight, lambda g: (g * y).sum(lead)),
                 (bias, lambda g: g.sum(lead)))  # fmt: skip


def _attention(qkv: Value, heads: int) -> Value:
    """Causal attention of packed query, key and value, (N, L, 3 E), to (N, L, E)."""
    n, rows, width = qkv.array.shape
    q, k, v = qkv.array.reshape(n, rows, 3, heads, -1).transpose(2, 0, 3, 1, 4)
    scale = q.shape[-1] ** -0.5
    scores = np.where(np.tri(rows, dtype=bool), q @ k.swapaxes(-1, -2) * scale, -np.inf)
    p = references.softmax(scores.reshape(-1, rows)).reshape(scores.shape)

    def vjp(g: Array) -> Array:
        g = g.reshape(n, rows, heads, -1).swapaxes(1, 2)
        grad_p = g @ v.swapaxes(-1, -2)
        grad_scores = p * (grad_p - (p * grad_p).sum(-1, keepdims=True)) * scale
        grads = np.stack([grad_scores @ k, grad_scores.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g])
        return grads.transpose(1, 3, 0, 2, 4).reshape(n, rows, width)

    return Value((p @ v).swapaxes(1, 2).reshape(n, rows, -1), (qkv, vjp))


def _embedding(table: Value, index: Array) -> Value:
    def vjp(g: Array) -> Array:
        return references.embedding_grad(index.ravel(), g.reshape(-1, g.shape[-1]), len(table.array))

    return Value(table.array[index], (table, vjp))


def _conv2d(x: Value, weight: Value, bias: Value) -> Value:
    """Convolve x (N, C, H, W) with a 3x3 weight, zero-padded to the same H and W."""
    a, w = x.array, weight.array

    def by_weight(g: Array) -> Array:
        padded = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
        grad = np.zeros_like(w)
        for i in range(3):
            for j in range(3):
                part = padded[:, :, i : i + a.shape[2], j : j + a.shape[3]]
                grad[:, :, i, j] = np.tensordot(g, part, axes=((0, 2, 3), (0, 2, 3)))
        return grad

    def by_input(g: Array) -> Array:
        return references.conv2d(g, w[:, :, ::-1, ::-1].swapaxes(0, 1))

    return Value(references.conv2d(a, w) + bias.array[:, None, None], (x, by_input), (weight, by_weight),
                 (bias, lambda g: g.sum((0, 2, 3))))  # fmt: skip


def _max_pool(x: Value) -> Value:
    """Max-pool x (N, C, H, W) over 2x2 windows, and flatten to (N, C H W / 4)."""
    n, c, h, w = x.array.shape
    parts = x.array.reshape(n, c, h // 2, 2, w // 2, 2)
    top = parts.max((3, 5), keepdims=True)

    def vjp(g: Array) -> Array:
        return np.asarray((g.reshape(top.shape) * (parts == top)).reshape(x.array.shape))

    return Value(top.reshape(n, -1), (x, vjp))


def _cross_entropy(x: Value, target: Array) -> Value:
    return Value(references.cross_entropy(x.array, target),
                 (x, lambda g: g * references.cross_entropy_grad(x.array, target, len(target))))  # fmt: skip


def convolutional(p: Mapping[str, Value], image: Array, target: Array) -> Value:
    """Return the loss of two convolutions, max pooling and a linear layer, with `nn.Sequential`'s parameter names."""
    y = _relu(_conv2d(Value(image), p["0.weight"], p["0.bias"]))
    y = _relu(_conv2d(y, p["2.weight"], p["2.bias"]))
    return _cross_entropy(_linear(_max_pool(y), p["6.weight"], p["6.bias"]), target)


def transformer(p: Mapping[str, Value], index: Array, target: Array, *, layers: int, heads: int) -> Value:
    """Return the loss of an embedding, causal post-norm encoder layers and a linear head."""
    x = _add(_embedding(p["embedding.weight"], index), p["position"])
    for n in range(layers):
        prefix = f"encoder.layers.{n}."
        layer_params = {k.removeprefix(prefix): v for k, v in p.items() if k.startswith(prefix)}

        def linear(y: Value, name: str, layer_params: Mapping[str, Value] = layer_params) -> Value:
            return _linear(y, layer_params[f"{name}.weight"], layer_params[f"{name}.bias"])

        qkv = _linear(x, layer_params["self_attn.in_proj_weight"], layer_params["self_attn.in_proj_bias"])
        x = _add(x, linear(_attention(qkv, heads), "self_attn.out_proj"))
        x = _norm(x, layer_params["norm1.weight"], layer_params["norm1.bias"])
        x = _add(x, linear(_relu(linear(x, "linear1")), "linear2"))
        x = _norm(x, layer_params["norm2.weight"], layer_params["norm2.bias"])
    y = _linear(x, p["head.weight"], p["head.bias"])
    flat = Value(y.array.reshape(-1, y.array.shape[-1]), (y, lambda g: g.reshape(y.array.shape)))
    return _cross_entropy(flat, target.ravel())


class Adam:
    """Adam (Kingma and Ba 2015, algorithm 1) with decoupled weight decay (Loshchilov and Hutter 2019)."""

    def __init__(self, rate: float, decay: float = 0.0):
        self.rate, self.decay, self.count = rate, decay, 0
        self.state: dict[str, tuple[Array | float, Array | float]] = {}

    def step(self, parameters: dict[str, Array], grads: Mapping[str, Array]) -> None:
        """Move `parameters`, each by its slope."""
        self.count += 1
        for name, grad in grads.items():
            mean, square = self.state.get(name, (0.0, 0.0))
            mean, square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad**2
            self.state[name] = mean, square
            root = np.sqrt(square / (1 - 0.999**self.count)) + 1e-8
            decayed = parameters[name] * (1 - self.rate * self.decay)
            parameters[name] = decayed - self.rate * mean / (1 - 0.9**self.count) / root


class Momentum:
    """Gradient descent with momentum 0.9 (Polyak 1964)."""

    def __init__(self, rate: float):
        self.rate = rate
        self.state: dict[str, Array] = {}

    def step(self, parameters: dict[str, Array], grads: Mapping[str, Array]) -> None:
        """Move `parameters`, each by its slope."""
        for name, grad in grads.items():
            self.state[name] = 0.9 * self.state.get(name, 0.0) + grad
            parameters[name] = parameters[name] - self.rate * self.state[name]


def losses(
    loss: Callable[[Mapping[str, Value]], Value], start: Mapping[str, Array], optimizer: Adam | Momentum, steps: int
) -> Sequence[float]:
    """Return the loss before each of `steps` training steps."""
    parameters = {name: array.astype(np.float64) for name, array in start.items()}
    history = []
    for _ in range(steps):
        values = {name: Value(array) for name, array in parameters.items()}
        result = loss(values)
        result.backward()
        history.append(float(result.array))
        optimizer.step(parameters, {name: np.asarray(value.grad) for name, value in values.items()})
    return history
