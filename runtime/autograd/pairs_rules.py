"""Gradients of distances. With d = x1[i, k] - x2[j, k] and f(d) = |d|^e, signed or not, the derivative of f is
e |d|^(e-1) with the sign's presence turned around; it is taken as 0 at d = 0 where e <= 1, as PyTorch does. So sums of
products of f with any other factors, over elements or over rows, have gradients of the same two forms:

    dots[i, j] = sum_k left[i, k] right[j, k] f(d)          sums[i, k] = sum_j weight[i, j] right[j, k] f(d)

and derivatives exist to any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import contiguous
from .node import Node

__all__ = ["rules"]

_POWERS = {0.0: "0", 1.0: "1", 2.0: "2"}


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rules of one of the three ops."""
    return _RULES[record.name]


def _static(node: Node, name: str) -> Any:
    return node.statics[node.recipe.record.statics.index(name)]


def _given(node: Node, values: Mapping[str, Any]) -> tuple[dict[str, Any], float, bool]:
    """(operands by name, None for those that were not given; the exponent; whether the sign counts)."""
    absent = dict.fromkeys(("left", "right", "distance"))
    return {**absent, **values}, float(values["exponent"]), bool(_static(node, "signed"))


def _turned(matrix: Tensor | None) -> Tensor | None:
    """A batch of matrices transposed."""
    return None if matrix is None else contiguous(call(registry["transpose"], (matrix,), (1, 2)))


def _sums(
    weight: Tensor, x1: Tensor, x2: Tensor, right: Tensor | None, distance: Tensor | None, e: float, signed: bool
) -> Tensor:
    operands = (contiguous(weight), x1, x2, None if right is None else contiguous(right), distance, float(e))
    return call(registry["pair_sums"], operands, (_POWERS.get(float(e), "any"), signed))  # type: ignore[no-any-return]


def _times(tensor: Tensor, factor: Tensor | None, number: float) -> Tensor:
    if factor is not None:
        tensor = call(registry["mul"], (tensor, factor))
    return tensor if number == 1 else call(registry["mul"], (tensor, float(number)))


def _zeros(like: Tensor) -> Tensor:
    return call(registry["zero_like"], (like,))  # type: ignore[no-any-return]


# Norms: the gradient of the root of a sum of powers


def _norm_gradient(values: Mapping[str, Any], node: Node, first: bool) -> Tensor:
    power, order = _static(node, "power"), values["order"]
    x1, x2, grad = values["x1"], values["x2"], values["grad"]
    own, other = (x1, x2) if first else (x2, x1)
    if power == "count":
        return _zeros(own)
    turn: Callable[[Tensor], Any] = (lambda t: t) if first else _turned
    if power == "max":
        found = values["out"]  # which elements are the largest is constant almost everywhere
        distance = Tensor(found.storage, found.meta, found.start)
        return _sums(turn(grad), own, other, None, turn(distance), 0.0, True)
    e = {"1": 1.0, "2": 2.0}.get(power, order)
    weight = grad if e == 1 else _weight(grad, values["out"], e)
    return _sums(turn(weight), own, other, None, None, e - 1, True)


def _weight(grad: Tensor, distance: Tensor, order: float) -> Tensor:
    """grad * distance^(1 - order), and 0 where the distance is 0."""
    none = call(registry["eq"], (distance, 0.0))
    safe = call(registry["masked_fill"], (distance, none, 1.0))
    if order == 2:
        found = call(registry["true_divide"], (grad, safe))
    else:
        found = call(registry["mul"], (grad, call(registry["pow"], (safe, 1.0 - order))))
    return call(registry["masked_fill"], (found, none, 0.0))  # type: ignore[no-any-return]


def _norm_x1(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    return _norm_gradient(values, node, True)


def _norm_x2(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    return _norm_gradient(values, node, False)


# Sums over elements


def _back(signed: bool) -> int:
    """What f is multiplied with if its argument is taken the other way around."""
    return -1 if signed else 1


def _dots_left(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    v, e, signed = _given(node, values)
    return _sums(v["grad"], v["x1"], v["x2"], v["right"], v["distance"], e, signed)


def _dots_right(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    v, e, signed = _given(node, values)
    found = _sums(_turned(v["grad"]), v["x2"], v["x1"], v["left"], _turned(v["distance"]), e, signed)  # type: ignore[arg-type]
    return _times(found, None, _back(signed))


def _dots_x1(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    v, e, signed = _given(node, values)
    if e == 0 or v["distance"] is not None:
        return _zeros(v["x1"])
    return _times(_sums(v["grad"], v["x1"], v["x2"], v["right"], None, e - 1, not signed), v["left"], e)


def _dots_x2(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    v, e, signed = _given(node, values)
    if e == 0 or v["distance"] is not None:
        return _zeros(v["x2"])
    found = _sums(_turned(v["grad"]), v["x2"], v["x1"], v["left"], None, e - 1, not signed)  # type: ignore[arg-type]
    return _times(found, v["right"], -e * _back(not signed))


# Sums over rows


def _sums_weight(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    v, statics = _given(node, values)[0], (_static(node, "power"), _static(node, "signed"))
    operands = (v["x1"], v["x2"], contiguous(v["grad"]), v["right"], v["distance"], v["exponent"])
    return call(registry["pair_dots"], operands, statics)  # type: ignore[no-any-return]


def _sums_right(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    v, e, signed = _given(node, values)
    found = _sums(_turned(v["weight"]), v["x2"], v["x1"], v["grad"], _turned(v["distance"]), e, signed)  # type: ignore[arg-type]
    return _times(found, None, _back(signed))


def _sums_x1(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    v, e, signed = _given(node, values)
    if e == 0 or v["distance"] is not None:
        return _zeros(v["x1"])
    return _times(_sums(v["weight"], v["x1"], v["x2"], v["right"], None, e - 1, not signed), v["grad"], e)


def _sums_x2(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    v, e, signed = _given(node, values)
    if e == 0 or v["distance"] is not None:
        return _zeros(v["x2"])
    found = _sums(_turned(v["weight"]), v["x2"], v["x1"], v["grad"], None, e - 1, not signed)  # type: ignore[arg-type]
    return _times(found, v["right"], -e * _back(not signed))


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
