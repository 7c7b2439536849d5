"""Gradients of scans, in scans again, so that there are derivatives of every order.

cumsum            the sum of what arrives, from the other end; so is that of any spec that only adds
cumprod           the product of the elements before, times what arrives at this element and all later ones, each
                  multiplied by the elements between: a `recurrence` from the other end. Nothing is divided by, so zeros
                  need no care
recurrence        of the values a recurrence from the other end, with each factor one place on; of the factors that
                  times the result one place back
cummax, cummin    what arrives is added where the elements came from, in the order of the places it arrived at
logcumsumexp      sum of grad[j] * exp(input[i] - out[j]) over j from i on: exp(input - out) times a `discounted_sum`
discounted_sum    of the values the same with opposite levels from the other end; of the levels what that and the
                  result weigh
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..device import Meta, meta
from ..dispatch import call, call_into, empty
from ..dtypes import DType
from ..layout import normalize_dim
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from .node import Node

__all__ = ["scan_rules"]


def scan_rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rules of a scan; none for one that no rule is known of."""
    if not any(o.differentiable for o in record.outputs):
        return {}
    if record.detail["adds"]:
        return {record.operands[0].name: Rule(function=_sum, operands=("grad",))}
    return _RULES.get(record.name, {}) if not registry.owner(record.name) else {}


def _static(node: Node, name: str) -> Any:
    return node.statics[node.recipe.record.statics.index(name)]


def _of(node: Node, name: str, operands: tuple[Any, ...], *, turned: bool = False) -> Tensor:
    """The op `name` along the node's dimension, in its direction, or in the other one."""
    reverse = "reverse" in node.recipe.record.statics and bool(_static(node, "reverse"))
    record, own = registry[name], {"dim": _static(node, "dim"), "reverse": reverse != turned}
    return call(record, operands, tuple(own.get(s) for s in record.statics))  # type: ignore[no-any-return]


def _op(name: str, *operands: Any) -> Tensor:
    return call(registry[name], operands)  # type: ignore[no-any-return]


def _shifted(node: Node, tensor: Tensor, places: int, filled: float) -> Tensor:
    """`tensor` moved by one place along the way of the scan, or back (-1); what becomes free is `filled`."""
    if "reverse" in node.recipe.record.statics and _static(node, "reverse"):
        places = -places
    layout = tensor.meta
    if not layout.ndim:
        return call(registry["full_like_as"], (tensor, filled), (None,))  # type: ignore[no-any-return]
    dim = normalize_dim(_static(node, "dim"), layout.ndim, node.name)
    count = layout.shape[dim]
    made = empty(meta(layout.dtype, layout.shape, None, layout.device))
    end = _part(made, dim, 0 if places > 0 else count - 1, 1)
    call_into(registry["fill"], (end, filled), (), (end,), in_place=False)
    if count > 1:
        left, right = (0, 1) if places > 0 else (1, 0)
        source = _part(tensor, dim, left, count - 1)
        call_into(registry["copy"], (source,), (None,), (_part(made, dim, right, count - 1),), in_place=True)
    return made


def _part(tensor: Tensor, dim: int, start: int, length: int) -> Tensor:
    return call(registry["narrow"], (tensor,), (dim, start, length))  # type: ignore[no-any-return]


def _computed(node: Node, tensor: Tensor) -> Tensor:
    """`tensor` in the dtype of the result."""
    result = node.recipe.out_metas[0]
    assert isinstance(result, Meta)
    wanted: DType = result.dtype
    return tensor if tensor.meta.dtype is wanted else call(registry["copy"], (tensor,), (wanted,))


def _sum(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    record = node.recipe.record
    own = {"dim": _static(node, "dim"), "reverse": not _static(node, "reverse")}
    return call(record, (values["grad"],), tuple(own.get(s) for s in record.statics))  # type: ignore[no-any-return]


def _product(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    factors = _shifted(node, _computed(node, values["input"]), -1, 0.0)
    later = _of(node, "recurrence", (factors, values["grad"]), turned=True)
    return _op("mul", _shifted(node, values["out"], 1, 1.0), later)


def _values(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    """Of a recurrence, with respect to its values."""
    factors = _shifted(node, values["factor"], -1, 0.0)
    return _of(node, "recurrence", (factors, values["grad"]), turned=True)


def _factors(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    return _op("mul", _values(node, values, position), _shifted(node, values["out"], 1, 0.0))


def _extreme(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    layout = node.recipe.metas[0]
    assert isinstance(layout, Meta)
    statics = (layout.shape, _static(node, "dim"))
    return call(registry["spread"], (values["grad_values"], values["indices"]), statics)  # type: ignore[no-any-return]


def _logarithm(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    out = values["out"]
    later = _of(node, "discounted_sum", (values["grad"], out), turned=True)
    return _op("mul", later, _op("exp", _op("sub", values["input"], out)))


def _discounted(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    return _of(node, "discounted_sum", (values["grad"], _op("neg", values["level"])), turned=True)


def _levels(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    gained = _op("mul", values["grad"], values["out"])
    return _op("sub", gained, _op("mul", values["input"], _discounted(node, values, position)))


def _rule(function: Callable[..., Tensor], *operands: str) -> Rule:
    return Rule(function=function, operands=operands)


_RULES: dict[str, dict[str, Rule]] = {
    "cumprod": {"input": _rule(_product, "grad", "input", "out")},
    "cummax": {"input": _rule(_extreme, "grad_values", "indices")},
    "cummin": {"input": _rule(_extreme, "grad_values", "indices")},
    "logcumsumexp": {"input": _rule(_logarithm, "grad", "input", "out")},
    "recurrence": {
        "factor": _rule(_factors, "grad", "factor", "out"), "value": _rule(_values, "grad", "factor"),
    },
    "discounted_sum": {
        "input": _rule(_discounted, "grad", "level"), "level": _rule(_levels, "grad", "input", "level", "out"),
    },
}  # fmt: skip
