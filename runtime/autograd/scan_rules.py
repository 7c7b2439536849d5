"""Gradients of scans. They are scans, too, so derivatives of every order exist.

cumsum            cumsum of the gradient in the opposite direction; the same for all specs that only add
cumprod           the product of the elements before, times a `recurrence` of the gradient in the opposite direction:
                  each later gradient is multiplied by the elements in between. There is no division, so zeros need no
                  special case
recurrence        values: a recurrence in the opposite direction, with the factors shifted by one; factors: that, times
                  the result shifted by one
cummax, cummin    scatter-add of the gradient to the elements that were the extreme, in the order of the scan
logcumsumexp      sum of grad[j] * exp(input[i] - out[j]) over j >= i: exp(input - out) times a `discounted_sum`
discounted_sum    input: the same in the opposite direction, with negated levels; levels: grad * out minus input times
                  the gradient of the input
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..device import meta
from ..dispatch import call, call_into, empty
from ..layout import normalize_dim
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from .node import Node

if TYPE_CHECKING:
    from ..call_types import GradientFunction

__all__ = ["scan_rules"]


def scan_rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of a scan; an empty mapping if there are none."""
    if not any(o.differentiable for o in record.outputs):
        return {}
    if record.detail["is_running_sum"]:
        return {record.operands[0].name: Rule(function=_sum, operands=("grad",))}
    return _RULES.get(record.name, {}) if not registry.owner(record.name) else {}


def _scan(node: Node, name: str, operands: tuple[Tensor, ...], *, opposite: bool = False) -> Tensor:
    """Run the scan `name` along the node's dimension, in its direction or in the opposite one."""
    reverse = "reverse" in node.recipe.record.statics and bool(node.static("reverse"))
    record, static_values = registry[name], {"dim": node.static("dim"), "reverse": reverse != opposite}
    return call(record, operands, tuple(static_values.get(s) for s in record.statics))


def _op(name: str, *operands: object) -> Tensor:
    return call(registry[name], operands)


def _shift(node: Node, tensor: Tensor, step: int, fill: float) -> Tensor:
    """Shift `tensor` by one element in the direction of the scan (step 1) or against it (-1), and fill the end."""
    if "reverse" in node.recipe.record.statics and node.static("reverse"):
        step = -step
    layout = tensor.meta
    if not layout.ndim:
        return call(registry["full_like_as"], (tensor, fill), (None,))
    dim = normalize_dim(node.static("dim"), layout.ndim, node.name)
    count = layout.shape[dim]
    shifted = empty(meta(layout.dtype, layout.shape, None, layout.device))
    if not layout.numel:
        return shifted
    edge = _narrow(shifted, dim, 0 if step > 0 else count - 1, 1)
    call_into(registry["fill"], (edge, fill), (), (edge,), in_place=False)
    if count > 1:
        source_start, target_start = (0, 1) if step > 0 else (1, 0)
        source = _narrow(tensor, dim, source_start, count - 1)
        call_into(
            registry["copy"], (source,), (None,), (_narrow(shifted, dim, target_start, count - 1),), in_place=True
        )
    return shifted


def _narrow(tensor: Tensor, dim: int, start: int, length: int) -> Tensor:
    return call(registry["narrow"], (tensor,), (dim, start, length))


def _to_result_dtype(node: Node, tensor: Tensor) -> Tensor:
    """Convert `tensor` to the dtype of the result."""
    result_dtype = node.recipe.out_metas[0].dtype
    return tensor if tensor.meta.dtype is result_dtype else call(registry["copy"], (tensor,), (result_dtype,))


def _sum(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    record = node.recipe.record
    static_values = {"dim": node.static("dim"), "reverse": not node.static("reverse")}
    return call(record, (values["grad"],), tuple(static_values.get(s) for s in record.statics))


def _product(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    factors = _shift(node, _to_result_dtype(node, values["input"]), -1, 0.0)
    later_sums = _scan(node, "recurrence", (factors, values["grad"]), opposite=True)
    return _op("mul", _shift(node, values["out"], 1, 1.0), later_sums)


def _values(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Gradient of a recurrence with respect to its values."""
    factors = _shift(node, values["factor"], -1, 0.0)
    return _scan(node, "recurrence", (factors, values["grad"]), opposite=True)


def _factors(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    return _op("mul", _values(node, values, position), _shift(node, values["out"], 1, 0.0))


def _extreme(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    statics = (node.operand_layout(0).shape, node.static("dim"))
    return call(registry["spread"], (values["grad_values"], values["indices"]), statics)


def _logarithm(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    out = values["out"]
    later_sums = _scan(node, "discounted_sum", (values["grad"], out), opposite=True)
    return _op("mul", later_sums, _op("exp", _op("sub", values["input"], out)))


def _discounted(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    return _scan(node, "discounted_sum", (values["grad"], _op("neg", values["level"])), opposite=True)


def _levels(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    out_terms = _op("mul", values["grad"], values["out"])
    return _op("sub", out_terms, _op("mul", values["input"], _discounted(node, values, position)))


def _rule(function: GradientFunction, *operands: str) -> Rule:
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
