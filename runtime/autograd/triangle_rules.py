"""The gradient of a triangle is the same triangle of the gradient."""

from __future__ import annotations

from collections.abc import Mapping

from ..dispatch import call
from ..records import OpRecord, Rule
from ..tensor import Tensor
from .node import Node

__all__ = ["rules"]


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rule of the op."""
    return {"input": Rule(function=_same_triangle)}


def _same_triangle(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    return call(node.recipe.record, (values["grad"],), node.statics)
