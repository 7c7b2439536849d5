"""Gradients of the convolution ops: each is linear in both operands, and each other's gradient to any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..device import Meta
from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from .node import Node

__all__ = ["rules"]


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rules of one of the three ops."""
    return _RULES[record.name]


def _common(node: Node) -> tuple[Any, ...]:
    """stride, padding, dilation and groups: the last statics of all three."""
    return tuple(node.statics[-4:])


def _size(node: Node, position: int) -> tuple[int, ...]:
    layout = node.recipe.metas[position]
    assert isinstance(layout, Meta)
    return layout.shape[2:]


def _exact(
    given: tuple[int, ...], kernel: tuple[int, ...], wanted: tuple[int, ...], stride: tuple[int, ...],
    padding: tuple[int, ...], dilation: tuple[int, ...],
) -> tuple[int, ...]:  # fmt: skip
    """The padding with which a convolution of `given` has `wanted` pixels: less behind, where output_padding has let
    the result of a transposed one reach further than a window."""
    space = len(stride)
    front, behind = padding[:space], padding[-space:]
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    found = tuple((n + p + q - r) // s + 1 for n, p, q, r, s in zip(given, front, behind, reach, stride, strict=True))
    if found == wanted:
        return padding
    least = (((o - 1) * s + r - n - p) for o, s, r, n, p in zip(wanted, stride, reach, given, front, strict=True))
    return (*front, *least)


def _forward(first: str, second: str) -> Callable[..., Tensor]:
    def gradient(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
        stride, padding, dilation, groups = _common(node)
        given, kernel, wanted = values[first].meta.shape[2:], values[second].meta.shape[2:], _size(node, position)
        padding = _exact(given, kernel, wanted, stride, padding, dilation)
        return call(registry["convolution"], (values[first], values[second], None), (stride, padding, dilation, groups))

    return gradient


def _input(first: str, second: str) -> Callable[..., Tensor]:
    def gradient(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
        statics = (_size(node, position), *_common(node))
        return call(registry["convolution_input"], (values[first], values[second]), statics)

    return gradient


def _weight(first: str, second: str) -> Callable[..., Tensor]:
    def gradient(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
        statics = (_size(node, position), *_common(node))
        return call(registry["convolution_weight"], (values[first], values[second]), statics)

    return gradient


def _bias(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    grad = values["grad"]
    return call(registry["sum"], (grad,), ((0, *range(2, grad.meta.ndim)), False, None))


_RULES: dict[str, Mapping[str, Rule]] = {
    "convolution": {
        "input": Rule(function=_input("grad", "weight"), operands=("grad", "weight")),
        "weight": Rule(function=_weight("input", "grad"), operands=("input", "grad")),
        "bias": Rule(function=_bias, operands=("grad",)),
    },
    "convolution_input": {
        "grad_output": Rule(function=_forward("grad", "weight"), operands=("grad", "weight")),
        "weight": Rule(function=_weight("grad", "grad_output"), operands=("grad", "grad_output")),
    },
    "convolution_weight": {
        "input": Rule(function=_input("grad_output", "grad"), operands=("grad_output", "grad")),
        "grad_output": Rule(function=_forward("input", "grad"), operands=("input", "grad")),
    },
}
