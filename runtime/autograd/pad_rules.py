"""Gradients of padding: linear, so that each op's gradient is its transpose, whatever the order of derivative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..device import Meta
from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from .node import Node

__all__ = ["rules"]


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rules of one of the two ops."""
    return _RULES[record.name]


def _layout(node: Node, position: int) -> Meta:
    found = node.recipe.metas[position]
    assert isinstance(found, Meta)
    return found


def _transposed(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    before, after, mode = node.statics
    if mode == "constant":
        back = (tuple(-n for n in before), tuple(-n for n in after), mode)
        return call(registry["pad_copy"], (values["grad"], None), back)  # type: ignore[no-any-return]
    return call(registry["pad_fold"], (values["grad"],), (_layout(node, 0).shape, before, mode))  # type: ignore[no-any-return]


def _again(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    size, before, mode = node.statics
    wide = _layout(node, 0).shape
    after = tuple(w - n - b for w, n, b in zip(wide, size, before, strict=True))
    return call(registry["pad_copy"], (values["grad"], None), (before, after, mode))  # type: ignore[no-any-return]


_RULES: dict[str, Mapping[str, Rule]] = {
    "pad_copy": {"input": Rule(function=_transposed)},
    "pad_fold": {"grad_output": Rule(function=_again)},
}
