"""Operators that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import weftgrad as wg

from ...nn import functional as F
from ...runtime import dtypes
from ...runtime.tensor import Tensor
from .nodes import Node, NodeFunction, dtype_of

__all__ = ["ELEMENTWISE_OPS"]


def _unary(function: Callable[[Tensor], Tensor]) -> NodeFunction:
    return lambda node: function(node[0])


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> NodeFunction:
    return lambda node: function(node[0], node[1])


def _fold(function: Callable[[Tensor, Tensor], Tensor]) -> NodeFunction:
    return lambda node: reduce(function, node.tensors())


def _div(node: Node) -> Tensor:
    a, b = node[0], node[1]
    return a / b if a.dtype.kind == "f" else wg.div(a, b, rounding_mode="trunc")


def _mod(node: Node) -> Tensor:
    return wg.fmod(node[0], node[1]) if node.attribute("fmod", 0) else wg.remainder(node[0], node[1])


def _pow(node: Node) -> Tensor:
    return wg.pow(node[0], node[1]).to(node[0].dtype)


def _mean(node: Node) -> Tensor:
    return reduce(wg.add, node.tensors()) / len(node.tensors())


def _cast(node: Node) -> Tensor:
    return node[0].to(dtype_of(node.attribute("to"), node.where))


def _clip(node: Node) -> Tensor:
    low, high = node.number(1, "min"), node.number(2, "max")
    if low is None and high is None:
        return node[0]
    return node[0].clamp(low, high)


def _isinf(node: Node) -> Tensor:
    x = node[0]
    result = wg.isinf(x)
    if not node.attribute("detect_negative", 1):
        result = result & (x > 0)
    return result if node.attribute("detect_positive", 1) else result & (x < 0)


def _prelu(node: Node) -> Tensor:
    x, slope = node[0], node[1]
    if node.opset < 7 and slope.ndim == 1 and slope.shape[0] > 1:  # one for each channel
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return wg.where(x < 0, x * slope, x)


def _shrink(node: Node) -> Tensor:
    x, bias, limit = node[0], node.attribute("bias", 0.0), node.attribute("lambd", 0.5)
    return wg.where(x < -limit, x + bias, wg.where(x > limit, x - bias, wg.zeros_like(x)))


def _hard_sigmoid(node: Node) -> Tensor:
    return (node[0] * node.attribute("alpha", 0.2) + node.attribute("beta", 0.5)).clamp(0, 1)


def _selu(node: Node) -> Tensor:
    alpha, gamma = node.attribute("alpha", 1.6732632423543772), node.attribute("gamma", 1.0507009873554805)
    return F.elu(node[0], alpha) * gamma


def _thresholded_relu(node: Node) -> Tensor:
    return F.threshold(node[0], node.attribute("alpha", 1.0), 0.0)


def _softmax(function: Callable[..., Tensor]) -> NodeFunction:
    def compute(node: Node) -> Tensor:
        x = node[0]
        if node.opset >= 13:
            return function(x, node.attribute("axis", -1))
        axis = node.attribute("axis", 1) % x.ndim  # older opsets: over all dimensions from `axis` on
        return function(x.flatten(axis), -1).reshape(x.shape)

    return compute


def _dropout(node: Node) -> list[Tensor | None]:
    x = node[0]
    ratio = node.number(1, "ratio", 0.5)
    is_training = node.is_training or bool(node.number(2, default=False))
    if not is_training:
        return [x, wg.ones_like(x, dtype=dtypes.bool_) if len(node.output_names) > 1 else None]
    mask = F.dropout(wg.ones_like(x), ratio)
    return [x * mask, mask != 0]


def _bit_shift(node: Node) -> Tensor:
    return node[0] << node[1] if node.attribute("direction") == "LEFT" else node[0] >> node[1]


ELEMENTWISE_OPS: dict[str, NodeFunction] = {
    "Abs": _unary(wg.abs), "Acos": _unary(wg.acos), "Acosh": _unary(wg.acosh), "Add": _binary(wg.add),
    "And": _binary(wg.logical_and), "Asin": _unary(wg.asin), "Asinh": _unary(wg.asinh), "Atan": _unary(wg.atan),
    "Atanh": _unary(wg.atanh), "BitShift": _bit_shift, "BitwiseAnd": _binary(wg.bitwise_and),
    "BitwiseNot": _unary(wg.bitwise_not), "BitwiseOr": _binary(wg.bitwise_or), "BitwiseXor": _binary(wg.bitwise_xor),
    "Cast": _cast, "CastLike": lambda node: node[0].to(node[1].dtype), "Ceil": _unary(wg.ceil),
    "Celu": lambda node: F.celu(node[0], node.attribute("alpha", 1.0)), "Clip": _clip, "Cos": _unary(wg.cos),
    "Cosh": _unary(wg.cosh), "Div": _div, "Dropout": _dropout,
    "Elu": lambda node: F.elu(node[0], node.attribute("alpha", 1.0)), "Equal": _binary(wg.eq), "Erf": _unary(wg.erf),
    "Exp": _unary(wg.exp), "Floor": _unary(wg.floor),
    "Gelu": lambda node: F.gelu(node[0], approximate=node.attribute("approximate", "none")), "Greater": _binary(wg.gt),
    "GreaterOrEqual": _binary(wg.ge), "HardSigmoid": _hard_sigmoid, "HardSwish": _unary(F.hardswish),
    "Identity": lambda node: node[0], "IsInf": _isinf, "IsNaN": _unary(wg.isnan),
    "LeakyRelu": lambda node: F.leaky_relu(node[0], node.attribute("alpha", 0.01)), "Less": _binary(wg.lt),
    "LessOrEqual": _binary(wg.le), "Log": _unary(wg.log), "LogSoftmax": _softmax(F.log_softmax),
    "Max": _fold(wg.maximum), "Mean": _mean, "Min": _fold(wg.minimum), "Mish": _unary(F.mish), "Mod": _mod,
    "Mul": _binary(wg.mul), "Neg": _unary(wg.neg), "Not": _unary(wg.logical_not), "Or": _binary(wg.logical_or),
    "PRelu": _prelu, "Pow": _pow, "Reciprocal": _unary(wg.reciprocal), "Relu": _unary(F.relu),
    "Round": _unary(wg.round), "Selu": _selu, "Shrink": _shrink, "Sigmoid": _unary(wg.sigmoid), "Sign": _unary(wg.sign),
    "Sin": _unary(wg.sin),
    "Sinh": _unary(wg.sinh), "Softmax": _softmax(F.softmax), "Softplus": _unary(F.softplus),
    "Softsign": _unary(F.softsign), "Sqrt": _unary(wg.sqrt), "Sub": _binary(wg.sub), "Sum": _fold(wg.add),
    "Tan": _unary(wg.tan), "Tanh": _unary(wg.tanh), "ThresholdedRelu": _thresholded_relu,
    "Where": lambda node: wg.where(node[0], node[1], node[2]), "Xor": _binary(wg.logical_xor),
}  # fmt: skip
"""Functions by operator."""
