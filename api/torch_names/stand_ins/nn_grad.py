"""`torch.nn.grad`: the gradients of convolutions as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...autograd import grad
from ...creation.factories import empty
from ...nn import functional
from ...runtime.tensor import Tensor

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]

_Sizes = int | Sequence[int]


def _input_gradient(
    conv: Callable[..., Tensor], input_size: Sequence[int], weight: Tensor, grad_output: Tensor,
    stride: _Sizes, padding: _Sizes | str, dilation: _Sizes, groups: int,
) -> Tensor:  # fmt: skip
    input = empty(*input_size, dtype=weight.dtype, device=weight.device, requires_grad=True)
    output = conv(input, weight.detach(), None, stride, padding, dilation, groups)
    return grad(output, input, grad_output)[0]


def _weight_gradient(
    conv: Callable[..., Tensor], input: Tensor, weight_size: Sequence[int], grad_output: Tensor,
    stride: _Sizes, padding: _Sizes | str, dilation: _Sizes, groups: int,
) -> Tensor:  # fmt: skip
    weight = empty(*weight_size, dtype=input.dtype, device=input.device, requires_grad=True)
    output = conv(input.detach(), weight, None, stride, padding, dilation, groups)
    return grad(output, weight, grad_output)[0]


def conv1d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: _Sizes = 1, padding: _Sizes | str = 0,
    dilation: _Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of `conv1d` by its input, of shape `input_size`."""
    return _input_gradient(functional.conv1d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: _Sizes = 1, padding: _Sizes | str = 0,
    dilation: _Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of `conv1d` by its weight, of shape `weight_size`."""
    return _weight_gradient(functional.conv1d, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: _Sizes = 1, padding: _Sizes | str = 0,
    dilation: _Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of `conv2d` by its input, of shape `input_size`."""
    return _input_gradient(functional.conv2d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: _Sizes = 1, padding: _Sizes | str = 0,
    dilation: _Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of `conv2d` by its weight, of shape `weight_size`."""
    return _weight_gradient(functional.conv2d, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: _Sizes = 1, padding: _Sizes | str = 0,
    dilation: _Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of `conv3d` by its input, of shape `input_size`."""
    return _input_gradient(functional.conv3d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: _Sizes = 1, padding: _Sizes | str = 0,
    dilation: _Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of `conv3d` by its weight, of shape `weight_size`."""
    return _weight_gradient(functional.conv3d, input, weight_size, grad_output, stride, padding, dilation, groups)
