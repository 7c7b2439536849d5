"""Gradients of `sample_grid`, the op of `grid_sample`.

Fused kernels compute the gradients. If a gradient is itself recorded (for a second derivative), differentiable ops do.

A sample is a weighted sum of neighbouring pixels. So the image's gradient is a scatter-add (in a fixed order), and the
grid's gradient comes from the derivatives of the weights (Jaderberg et al., "Spatial Transformer Networks", 2015,
sections 3.2 and 3.3).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, TypedDict

from .. import dtypes
from ..dispatch import call, is_recorded
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import contiguous, reshape
from .engine import run
from .node import Node

if TYPE_CHECKING:
    from ..call_types import GradientFunction, Statics

__all__ = ["rules", "sample_grid_by_ops"]

_CUBIC_A = -0.75  # the parameter `a` of the cubic convolution kernel (Keys 1981)

# One of the elements that a sample reads along one dimension: (index in int64, weight; None stands for weight 1).
_Tap = tuple[Tensor, Tensor | None]


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of `sample_grid`."""
    rule_operands = ("grad", "input", "grid")
    return {name: Rule(function=_rule(name), operands=rule_operands) for name in ("input", "grid")}


class _Values(TypedDict, total=False):
    """What the rules read, and `sampled`, which they share: gradients by ops, by the name of the operand."""

    grad: Tensor
    input: Tensor
    grid: Tensor
    sampled: dict[str, Tensor]


def _rule(name: str) -> GradientFunction:
    def gradient(node: Node, values: _Values, position: int) -> Tensor:
        grad, image, grid = values["grad"], values["input"], values["grid"]
        if is_recorded(grad, image, grid):
            return _gradients_by_ops(node.statics, values)[name]
        if name == "grid" and node.statics[0] == "nearest":
            return _op("full_like_as", grid, 0.0, statics=(None,))
        grad = contiguous(grad)
        if name == "grid":
            return _op("sample_grid_places", grad, image, grid, statics=node.statics)
        return _op("sample_grid_input", grad, grid, statics=(image.meta.shape, *node.statics))

    return gradient


def _gradients_by_ops(statics: Statics, values: _Values) -> dict[str, Tensor]:
    """Return differentiable gradients of the operands that require them: run the forward as ops, then differentiate it.

    The rules of both operands need this result, so it is cached in `values["sampled"]`.
    """
    gradients = values.get("sampled")
    if gradients is None:
        operands = {n: t for n, t in (("input", values["input"]), ("grid", values["grid"])) if t.needs_grad}
        result = sample_grid_by_ops(values["input"], values["grid"], *statics)
        grads = run([result], [values["grad"]], retain_graph=True, create_graph=True, inputs=list(operands.values()))
        gradients = values["sampled"] = {}
        for (name, operand), grad in zip(operands.items(), grads, strict=True):
            gradients[name] = _op("full_like_as", operand, 0.0, statics=(None,)) if grad is None else grad
    return gradients


def _op(name: str, *operands: object, statics: Statics = ()) -> Tensor:
    return call(registry[name], operands, statics)


def sample_grid_by_ops(input: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    """Compute `sample_grid` by simpler ops. They can be differentiated any number of times, and have no size limit.

    Args:
        input: The image, (N, C, H, W) or (N, C, D, H, W).
        grid: Coordinates from -1 to 1, (N, H_out, W_out, 2) or (N, D_out, H_out, W_out, 3); x comes first.
        mode: `bilinear`, `nearest` or `bicubic`.
        padding: `zeros`, `border` or `reflection`.
        align: PyTorch's `align_corners`.
    """
    input_dtype = input.meta.dtype
    if input_dtype.itemsize == 2:
        input, grid = (_op("copy", t, statics=(dtypes.float32,)) for t in (input, grid))
    batch, channels, *spatial = input.meta.shape
    output_size = grid.meta.shape[1:-1]
    flat = reshape(input, (batch, channels, prod(spatial)))
    axes = []
    for axis, size in enumerate(reversed(spatial)):  # x, the first coordinate, belongs to the last dimension
        coordinates = reshape(_op("select", grid, statics=(-1, axis)), (batch, 1, prod(output_size)))
        axes.append(_taps(coordinates, size, prod(spatial), mode, padding, align))
    total: Tensor | None = None
    for taps in itertools.product(*axes):
        value, weight = _gather_taps(flat, taps, tuple(reversed(spatial)))
        if total is None:
            total = value if weight is None else _op("mul", value, weight)
        else:
            total = _op("addcmul", total, value, 1.0 if weight is None else weight, 1)
    assert total is not None
    out = reshape(total, (batch, channels, *output_size))
    return out if input_dtype is out.meta.dtype else _op("copy", out, statics=(input_dtype,))


def _gather_taps(flat: Tensor, taps: Sequence[_Tap], sizes: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """Gather the elements at one tap of each dimension, and return (elements, products of the taps' weights).

    Args:
        flat: The image, (N, C, pixels).
        taps: One tap per dimension, x first. An element is 0 if one of its taps lies outside of the image.
        sizes: The sizes of the dimensions, x first.
    """
    index, weight = taps[0]
    stride = 1
    for (tap_index, tap_weight), inner_size in zip(taps[1:], sizes, strict=False):
        stride *= inner_size
        index = _op("linear_index", tap_index, index, stride)
        weight = tap_weight if weight is None or tap_weight is None else _op("mul", weight, tap_weight)
    expanded_index = _op("expand", index, statics=((*flat.meta.shape[:2], index.meta.shape[-1]),))
    return _op("gather", flat, expanded_index, statics=(2, False)), weight


def _taps(coordinates: Tensor, size: int, elements: int, mode: str, padding: str, align: bool) -> list[_Tap]:
    """Return the taps along one dimension for all samples: 1 for `nearest`, 2 for `bilinear`, 4 for `bicubic`.

    Args:
        coordinates: Normalised, from -1 to 1.
        size: Size of the dimension.
        elements: Number of elements of the image.
        mode: See `sample_grid_by_ops`, also for `padding` and `align`.
    """
    # In pixels: ((coordinate + 1) * size - 1) / 2, or with `align` (coordinate + 1) * (size - 1) / 2
    x = _op("grid_place", coordinates, (size - 1) / 2 if align else size / 2, 0.0 if align else 0.5)
    outside_index = -float(1 << elements.bit_length())  # stays negative after any index of another dimension is added
    taps: list[_Tap] = []
    if mode == "bicubic":
        floor = _op("floor", x)
        fraction = _op("sub", x, floor)
        weights = [
            _cubic_outer(_op("add", fraction, 1.0)),
            _cubic_inner(fraction),
            _cubic_inner(_op("sub", 1.0, fraction)),
            _cubic_outer(_op("sub", 2.0, fraction)),
        ]
        for k, weight in enumerate(weights, -1):
            nearest = _op("round", _apply_padding(_op("add", floor, float(k)), size, padding, align))
            taps.append(
                (_op("grid_tap", nearest, 0.0, float(size), outside_index if padding == "zeros" else 0.0), weight)
            )
        return taps
    x = _apply_padding(x, size, padding, align)
    if mode == "nearest":
        nearest = _op("round", x)
        index = _op("grid_tap", nearest, 0.0, float(size), outside_index if padding == "zeros" else 0.0)
        # The weight is 1. Computing it from x gives a grid that requires a gradient one of zeros, instead of none.
        return [(index, _op("add", _op("mul", _op("sign", x), 0.0), 1.0) if coordinates.needs_grad else None)]
    upper_weight = _op("sub", x, _op("floor", x))
    for k, weight in enumerate((_op("sub", 1.0, upper_weight), upper_weight)):
        # Also with padding: only the upper neighbour of the last pixel is then outside, and it has weight 0.
        taps.append((_op("grid_tap", x, float(k), float(size), outside_index), weight))
    return taps


def _cubic_inner(t: Tensor) -> Tensor:
    """Evaluate Keys' kernel at distances from 0 to 1: (a + 2) t³ - (a + 3) t² + 1."""
    return _op("add", _op("mul", _op("mul", _op("sub", _op("mul", t, _CUBIC_A + 2), _CUBIC_A + 3), t), t), 1.0)


def _cubic_outer(t: Tensor) -> Tensor:
    """Evaluate Keys' kernel at distances from 1 to 2: a t³ - 5a t² + 8a t - 4a."""
    inner = _op("add", _op("mul", _op("sub", _op("mul", t, _CUBIC_A), 5 * _CUBIC_A), t), 8 * _CUBIC_A)
    return _op("sub", _op("mul", inner, t), 4 * _CUBIC_A)


def _apply_padding(x: Tensor, size: int, padding: str, align: bool) -> Tensor:
    """Clamp pixel coordinates to the image (`border`), or reflect them into it (`reflection`)."""
    if padding == "zeros":
        return x
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        if span == 0:
            return _op("mul", x, 0.0)
        distance = _op("abs", _op("sub", x, low))
        reflections = _op("floor", _op("true_divide", distance, span))
        remainder = _op("sub", distance, _op("mul", reflections, span))
        is_even = _op("eq", _op("remainder", reflections, 2.0), 0.0)
        x = _op("add", _op("where", is_even, remainder, _op("sub", span, remainder)), low)
    last = float(size - 1)
    return _op("where", _op("gt", x, 0.0), _op("where", _op("lt", x, last), x, last), 0.0)
