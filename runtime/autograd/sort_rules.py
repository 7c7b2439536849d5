"""Gradients of sort ops: the gradient of each value goes to the position that the value had in the input."""

from __future__ import annotations

from collections.abc import Mapping

from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Node

__all__ = ["rules"]


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of a sort op."""
    if not any(o.differentiable for o in record.outputs):
        return {}
    return {record.operands[0].name: Rule(function=_scatter_back, operands=("grad_values", "indices"))}


def _scatter_back(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Scatter the gradient into zeros, to the original positions of the elements."""
    shape = node.operand_layout(position).shape
    grad, indices = values["grad_values"], values["indices"]
    if not shape:  # a scalar has one position
        return reshape(grad, ())
    dim = node.static("dim") % len(shape)
    return call(registry["spread"], (grad, indices), (shape, dim))
