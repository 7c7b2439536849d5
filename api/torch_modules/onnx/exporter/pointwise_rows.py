"""Rows for pointwise ops that are one operator of ONNX. All others come from their formulas (`expressions`)."""

from __future__ import annotations

from .conversion import Conversion, Row, RowResult, Rows
from .expressions import convert_pointwise
from .graph import Value

__all__ = ["POINTWISE_ROWS"]


def _unary(op_type: str, since: int = 1, **attributes: object) -> Row:
    """Return the row of an op of one floating operand; older opsets have the formula."""

    def row(c: Conversion) -> RowResult:
        if c.graph.opset < since or c.dtype() is not c.results[0].dtype or c.dtype().kind != "f":
            return convert_pointwise(c)
        return c.graph.op(op_type, c.input(), **attributes)

    return row


def _with_numbers(op_type: str, **names: str) -> Row:
    """Return the row of an op whose numbers become attributes, by the names of operands."""

    def row(c: Conversion) -> RowResult:
        if c.dtype() is not c.results[0].dtype or c.dtype().kind != "f":
            return convert_pointwise(c)
        attributes = {attribute: float(c.constant_number(operand)) for attribute, operand in names.items()}
        return c.graph.op(op_type, c.input(), **attributes)

    return row


def _clip(low: str | None, high: str | None) -> Row:
    """Return the row of a clamp. Bounds that are tensors with dimensions have no operator."""

    def row(c: Conversion) -> RowResult:
        dtype = c.results[0].dtype
        bounds = [name for name in (low, high) if name is not None]
        if c.dtype() is not dtype or any(c.is_tensor(name) for name in bounds):
            return convert_pointwise(c)
        values = [c.number_value(name, dtype) if name is not None else "" for name in (low, high)]
        return c.graph.op("Clip", c.input(), *(values if values[1] else values[:1]))

    return row


def _softplus(c: Conversion) -> RowResult:
    if c.number("beta") == 1 and c.number("threshold") == 20 and c.dtype() is c.results[0].dtype:
        return c.graph.op("Softplus", c.input())  # beyond 20, softplus(x) is x in float32
    return convert_pointwise(c)


def _copy(c: Conversion) -> RowResult:
    return c.graph.cast(c.input(), c.dtype(), c.results[0].dtype)


def _fill(c: Conversion) -> RowResult:
    number = c.number_value("value", c.results[0].dtype)
    return c.graph.op("Expand", number, c.sizes(c.results[0].shape))


def _zeros(c: Conversion) -> RowResult:
    return c.graph.op("Expand", c.graph.number(0, c.results[0].dtype), c.sizes(c.results[0].shape))


def _prelu(c: Conversion) -> RowResult:
    """PRelu takes a slope that broadcasts to the input, of the input's dtype."""
    if not c.is_tensor("weight") or c.dtype("weight") is not c.dtype():
        return convert_pointwise(c)
    return c.graph.op("PRelu", c.input(), c.input("weight"))


def _batch_norm(c: Conversion) -> RowResult:
    """Batch norm with running statistics, if each channel of dimension 1 has its own statistics."""
    names = ("weight", "bias", "mean", "variance")
    input_shape = c.shape()
    ndim = len(input_shape)
    channel_shape = (1, input_shape[1], *(1,) * (ndim - 2)) if ndim > 1 else ()
    dtype = c.dtype()
    fits = all(not c.is_tensor(name) or (c.shape(name), c.dtype(name)) == (channel_shape, dtype) for name in names)
    if not fits or not all(c.is_tensor(name) for name in ("mean", "variance")) or dtype is not c.results[0].dtype:
        return convert_pointwise(c)
    parameters = [_channel_vector(c, name, input_shape[1]) for name in names]
    return c.graph.op("BatchNormalization", c.input(), *parameters, epsilon=float(c.constant_number("eps")))


def _channel_vector(c: Conversion, name: str, channels: object) -> Value:
    if not c.is_tensor(name):  # 1 or 0 without weights
        value = c.number_value(name, c.dtype())
        return c.graph.op("Expand", value, c.sizes([channels]))  # type: ignore[list-item]
    return c.vector(name)


POINTWISE_ROWS: Rows = {
    "relu": _unary("Relu"), "elu": _with_numbers("Elu", alpha="alpha"), "selu": _unary("Selu"),
    "celu": _with_numbers("Celu", alpha="alpha"), "leaky_relu": _with_numbers("LeakyRelu", alpha="negative_slope"),
    "gelu_erf": _unary("Gelu", 20), "gelu_tanh": _unary("Gelu", 20, approximate="tanh"), "mish": _unary("Mish", 18),
    "hardswish": _unary("HardSwish"), "hardsigmoid": _unary("HardSigmoid", alpha=1 / 6, beta=0.5),
    "softplus": _softplus, "softsign": _unary("Softsign"), "hardtanh": _clip("min_val", "max_val"),
    "clamp_min": _clip("min", None), "clamp_max": _clip(None, "max"), "clamp_both": _clip("min", "max"),
    "prelu_slope": _prelu, "copy": _copy, "contiguous_copy": _copy, "fill": _fill,
    "full_like_as": _fill, "zero_like": _zeros, "standardize_fixed": _batch_norm,
}  # fmt: skip
