"""Contractions whose equation is only known at the call (`einsum`), and their gradients, which are contractions, too.

All contractions share their kernels, and the equation only sets the strides. So a record for a new equation is cheap,
and needs no compilation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ..dispatch import call
from ..records import Operand, OpRecord, Output, Rule, registry
from ..tensor import Tensor
from .node import Node

__all__ = ["contraction", "rules"]


@lru_cache(maxsize=1024)
def contraction(equation: str) -> OpRecord:
    """Return the record of a contraction such as `bij,bjk->bik`. Every letter must be in two of the three terms."""
    return OpRecord(
        "einsum", "contraction", (Operand("input"), Operand("other")), (Output(),),
        texts=registry["mm"].texts, detail={"equation": equation, "rules": "einsum_rules"},
        autocast=registry["mm"].autocast,
    )  # fmt: skip


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of a record made by `contraction`."""
    return _RULES


def _terms(node: Node) -> tuple[str, str, str]:
    operands, _, output = str(node.recipe.record.detail["equation"]).partition("->")
    left, _, right = operands.partition(",")
    return left, right, output


def _input(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    first, second, result = _terms(node)
    return call(contraction(f"{result},{second}->{first}"), (values["grad"], values["other"]))


def _other(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    first, second, result = _terms(node)
    return call(contraction(f"{first},{result}->{second}"), (values["input"], values["grad"]))


_RULES: Mapping[str, Rule] = {
    "input": Rule(function=_input, operands=("grad", "other")),
    "other": Rule(function=_other, operands=("input", "grad")),
}
