"""Gradients of pairwise distances between the rows of `x1` and `x2`.

Let d = x1[i, k] - x2[j, k], and f(d) = |d|^e ("unsigned") or sign(d) |d|^e ("signed"). The derivative of f is
e |d|^(e-1), signed if f is unsigned and vice versa. As in PyTorch it is 0 at d = 0 if e <= 1. So sums of products of
f(d) with other factors, over the elements k or over the rows j, have gradients of the same two forms, to any order:

    pair_dots[i, j] = sum_k left[i, k] right[j, k] f(d)
    pair_sums[i, k] = sum_j weight[i, j] right[j, k] f(d)

The maximum norm selects elements by the operand `distance`: with it, f(d) is 0 unless |d| = distance[i, j]. The op is
then piecewise constant in x1 and x2, so its gradients to them are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict, overload

from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import contiguous
from .node import Node

__all__ = ["rules"]

_POWERS = {0.0: "0", 1.0: "1", 2.0: "2"}  # exponents with kernels of their own; `any` computes a power


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of `pair_norms`, `pair_dots` or `pair_sums`."""
    return _RULES[record.name]


class _Values(TypedDict, total=False):
    """What the rules read. An optional operand that is absent has no key."""

    grad: Tensor
    x1: Tensor
    x2: Tensor
    weight: Tensor
    left: Tensor
    right: Tensor
    distance: Tensor
    out: Tensor
    order: float
    exponent: float


def _function_of(node: Node, values: _Values) -> tuple[float, bool]:
    """Return the exponent of f, and whether f is signed."""
    return float(values["exponent"]), bool(node.static("signed"))


@overload
def _transpose(matrix: Tensor) -> Tensor: ...
@overload
def _transpose(matrix: None) -> None: ...
def _transpose(matrix: Tensor | None) -> Tensor | None:
    """Transpose a batch of matrices."""
    return None if matrix is None else contiguous(call(registry["transpose"], (matrix,), (1, 2)))


def _pair_sums(
    weight: Tensor, x1: Tensor, x2: Tensor, right: Tensor | None, distance: Tensor | None, e: float, signed: bool
) -> Tensor:
    operands = (contiguous(weight), x1, x2, None if right is None else contiguous(right), distance, float(e))
    return call(registry["pair_sums"], operands, (_POWERS.get(float(e), "any"), signed))


def _scale(tensor: Tensor, factor: Tensor | None, number: float) -> Tensor:
    if factor is not None:
        tensor = call(registry["mul"], (tensor, factor))
    return tensor if number == 1 else call(registry["mul"], (tensor, float(number)))


def _zeros(like: Tensor) -> Tensor:
    return call(registry["zero_like"], (like,))


# pair_norms: the norm is the root of a sum of powers


def _norm_gradient(values: _Values, node: Node, is_x1: bool) -> Tensor:
    power = node.static("power")
    x1, x2, grad = values["x1"], values["x2"], values["grad"]
    target, opposite = (x1, x2) if is_x1 else (x2, x1)
    if power == "count":  # the number of nonzero differences is piecewise constant
        return _zeros(target)
    orient: Callable[[Tensor], Tensor] = (lambda t: t) if is_x1 else _transpose
    if power == "max":
        # Which element is largest is piecewise constant: share the result's memory without its history.
        out = values["out"]
        distance = Tensor(out.storage, out.meta, out.start)
        return _pair_sums(orient(grad), target, opposite, None, orient(distance), 0.0, True)
    order = {"1": 1.0, "2": 2.0}.get(power, values["order"])
    weight = grad if order == 1 else _norm_weight(grad, values["out"], order)
    return _pair_sums(orient(weight), target, opposite, None, None, order - 1, True)


def _norm_weight(grad: Tensor, distance: Tensor, order: float) -> Tensor:
    """Return `grad * distance ** (1 - order)`, and 0 where the distance is 0, as PyTorch does."""
    is_zero = call(registry["eq"], (distance, 0.0))
    nonzero_distance = call(registry["masked_fill"], (distance, is_zero, 1.0))
    if order == 2:
        weight = call(registry["true_divide"], (grad, nonzero_distance))
    else:
        weight = call(registry["mul"], (grad, call(registry["pow"], (nonzero_distance, 1.0 - order))))
    return call(registry["masked_fill"], (weight, is_zero, 0.0))


def _norm_x1(node: Node, values: _Values, position: int) -> Tensor:
    return _norm_gradient(values, node, True)


def _norm_x2(node: Node, values: _Values, position: int) -> Tensor:
    return _norm_gradient(values, node, False)


# pair_dots: sums over the elements k


def _sign_when_swapped(signed: bool) -> int:
    """Return f(-d) / f(d), by which swapping x1 and x2 multiplies f."""
    return -1 if signed else 1


def _dots_left(node: Node, v: _Values, position: int) -> Tensor:
    e, signed = _function_of(node, v)
    return _pair_sums(v["grad"], v["x1"], v["x2"], v.get("right"), v.get("distance"), e, signed)


def _dots_right(node: Node, v: _Values, position: int) -> Tensor:
    e, signed = _function_of(node, v)
    sums = _pair_sums(_transpose(v["grad"]), v["x2"], v["x1"], v.get("left"), _transpose(v.get("distance")), e, signed)
    return _scale(sums, None, _sign_when_swapped(signed))


def _dots_x1(node: Node, v: _Values, position: int) -> Tensor:
    e, signed = _function_of(node, v)
    if e == 0 or v.get("distance") is not None:
        return _zeros(v["x1"])
    return _scale(_pair_sums(v["grad"], v["x1"], v["x2"], v.get("right"), None, e - 1, not signed), v.get("left"), e)


def _dots_x2(node: Node, v: _Values, position: int) -> Tensor:
    e, signed = _function_of(node, v)
    if e == 0 or v.get("distance") is not None:
        return _zeros(v["x2"])
    sums = _pair_sums(_transpose(v["grad"]), v["x2"], v["x1"], v.get("left"), None, e - 1, not signed)
    return _scale(sums, v.get("right"), -e * _sign_when_swapped(not signed))


# pair_sums: sums over the rows j


def _sums_weight(node: Node, v: _Values, position: int) -> Tensor:
    statics = (node.static("power"), node.static("signed"))
    operands = (v["x1"], v["x2"], contiguous(v["grad"]), v.get("right"), v.get("distance"), v["exponent"])
    return call(registry["pair_dots"], operands, statics)


def _sums_right(node: Node, v: _Values, position: int) -> Tensor:
    e, signed = _function_of(node, v)
    sums = _pair_sums(_transpose(v["weight"]), v["x2"], v["x1"], v["grad"], _transpose(v.get("distance")), e, signed)
    return _scale(sums, None, _sign_when_swapped(signed))


def _sums_x1(node: Node, v: _Values, position: int) -> Tensor:
    e, signed = _function_of(node, v)
    if e == 0 or v.get("distance") is not None:
        return _zeros(v["x1"])
    return _scale(_pair_sums(v["weight"], v["x1"], v["x2"], v.get("right"), None, e - 1, not signed), v["grad"], e)


def _sums_x2(node: Node, v: _Values, position: int) -> Tensor:
    e, signed = _function_of(node, v)
    if e == 0 or v.get("distance") is not None:
        return _zeros(v["x2"])
    sums = _pair_sums(_transpose(v["weight"]), v["x2"], v["x1"], v["grad"], None, e - 1, not signed)
    return _scale(sums, v.get("right"), -e * _sign_when_swapped(not signed))


_NORM = ("grad", "x1", "x2", "order", "out")
_DOTS = ("grad", "x1", "x2", "left", "right", "distance", "exponent")
_SUMS = ("grad", "weight", "x1", "x2", "right", "distance", "exponent")
_RULES: dict[str, Mapping[str, Rule]] = {
    "pair_norms": {"x1": Rule(function=_norm_x1, operands=_NORM), "x2": Rule(function=_norm_x2, operands=_NORM)},
    "pair_dots": {
        "x1": Rule(function=_dots_x1, operands=_DOTS), "x2": Rule(function=_dots_x2, operands=_DOTS),
        "left": Rule(function=_dots_left, operands=_DOTS), "right": Rule(function=_dots_right, operands=_DOTS),
    },
    "pair_sums": {
        "weight": Rule(function=_sums_weight, operands=_SUMS), "x1": Rule(function=_sums_x1, operands=_SUMS),
        "x2": Rule(function=_sums_x2, operands=_SUMS), "right": Rule(function=_sums_right, operands=_SUMS),
    },
}  # fmt: skip
