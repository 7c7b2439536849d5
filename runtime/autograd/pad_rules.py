"""Gradients of `pad_copy` and `pad_fold`: both are linear, and each is the transpose of the other."""

from __future__ import annotations

from collections.abc import Mapping

from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from .node import Node

__all__ = ["rules"]


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of one of the two ops."""
    return _RULES[record.name]


def _grad_of_pad_copy(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Return the gradient of `pad_copy`: padding by negative numbers for a constant, otherwise `pad_fold`."""
    front, back, mode = node.statics
    if mode == "constant":
        negated_padding = (tuple(-n for n in front), tuple(-n for n in back), mode)
        return call(registry["pad_copy"], (values["grad"], None), negated_padding)
    return call(registry["pad_fold"], (values["grad"],), (node.operand_layout(0).shape, front, mode))


def _grad_of_pad_fold(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Return the gradient of `pad_fold`: the incoming gradient, padded as the input of `pad_copy` was."""
    size, front, mode = node.statics
    padded_shape = node.operand_layout(0).shape
    back = tuple(w - n - b for w, n, b in zip(padded_shape, size, front, strict=True))
    return call(registry["pad_copy"], (values["grad"], None), (front, back, mode))


_RULES: dict[str, Mapping[str, Rule]] = {
    "pad_copy": {"input": Rule(function=_grad_of_pad_copy)},
    "pad_fold": {"grad_output": Rule(function=_grad_of_pad_fold)},
}
