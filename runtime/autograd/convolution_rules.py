"""Gradients of `convolution`, `convolution_input` and `convolution_weight`.

Each op is linear in both operands, and its gradients are the other two ops. So derivatives of any order exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from .node import Node

if TYPE_CHECKING:
    from ..call_types import GradientFunction, Statics

__all__ = ["rules"]


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of one of the three ops."""
    return _RULES[record.name]


def _geometry_statics(node: Node) -> Statics:
    """Return (stride, padding, dilation, groups), the last four static arguments of each of the three ops."""
    return tuple(node.statics[-4:])


def _spatial_size(node: Node, position: int) -> tuple[int, ...]:
    """Return the shape of operand `position` without its batch and channel dimensions."""
    return node.operand_layout(position).shape[2:]


def _padding_for_output(
    input_size: tuple[int, ...], kernel: tuple[int, ...], output_size: tuple[int, ...], stride: tuple[int, ...],
    padding: tuple[int, ...], dilation: tuple[int, ...],
) -> tuple[int, ...]:  # fmt: skip
    """Return the padding for which a convolution of an input of `input_size` has a result of exactly `output_size`.

    This is `padding`, except after a transposed convolution with `output_padding`: there `input_size` is larger, so
    less padding is needed at the end of each dimension.

    Returns:
        The padding at the start of each dimension, then the padding at the end of each.
    """
    spatial_dims = len(stride)
    start_padding, end_padding = padding[:spatial_dims], padding[-spatial_dims:]
    kernel_extents = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    default_output_size = tuple(
        (n + p + q - r) // s + 1
        for n, p, q, r, s in zip(input_size, start_padding, end_padding, kernel_extents, stride, strict=True)
    )
    if default_output_size == output_size:
        return padding
    exact_end_padding = (
        ((o - 1) * s + r - n - p)
        for o, s, r, n, p in zip(output_size, stride, kernel_extents, input_size, start_padding, strict=True)
    )
    return (*start_padding, *exact_end_padding)


def _forward(first: str, second: str) -> GradientFunction:
    """Return a gradient rule that calls `convolution(first, second)`; the arguments are names of saved tensors."""

    def gradient(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
        stride, padding, dilation, groups = _geometry_statics(node)
        input_size, kernel_size, output_size = (
            values[first].meta.shape[2:],
            values[second].meta.shape[2:],
            _spatial_size(node, position),
        )
        padding = _padding_for_output(input_size, kernel_size, output_size, stride, padding, dilation)
        return call(registry["convolution"], (values[first], values[second], None), (stride, padding, dilation, groups))

    return gradient


def _input(first: str, second: str) -> GradientFunction:
    """Return a gradient rule that calls `convolution_input(first, second)`."""

    def gradient(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
        statics = (_spatial_size(node, position), *_geometry_statics(node))
        return call(registry["convolution_input"], (values[first], values[second]), statics)

    return gradient


def _weight(first: str, second: str) -> GradientFunction:
    """Return a gradient rule that calls `convolution_weight(first, second)`."""

    def gradient(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
        statics = (_spatial_size(node, position), *_geometry_statics(node))
        return call(registry["convolution_weight"], (values[first], values[second]), statics)

    return gradient


def _bias(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
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
