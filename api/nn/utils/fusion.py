"""Batch normalization folded into the preceding layer, which saves its kernel in evaluation.

(W x + b - mean) / sqrt(var + eps) * gamma + beta = W' x + b' with W' = W s and b' = (b - mean) s + beta, where
s = gamma / sqrt(var + eps) is one number per channel (Jacob et al. 2018, section 3.2).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, TypeVar

from ..._generated import ops
from ...autograd import no_grad
from ...creation.factories import ones_like, zeros_like
from ...runtime.errors import ArgumentError
from ...runtime.tensor import Tensor
from ..parameter import Parameter

if TYPE_CHECKING:
    from ..batch_normalization import _BatchNorm
    from ..convolutions import _Convolution
    from ..layers import Linear
    from ..module import Module

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

_Conv = TypeVar("_Conv", bound="_Convolution")
_LinearLayer = TypeVar("_LinearLayer", bound="Linear")


def fuse_conv_bn_eval(conv: _Conv, bn: _BatchNorm, transpose: bool = False) -> _Conv:
    """Return a copy of `conv` that computes `bn(conv(x))`.

    Args:
        conv: The convolution.
        bn: The batch normalization after it.
        transpose: Whether `conv` is a transposed convolution.

    Returns:
        Module of the class of `conv`, with parameters of its own.

    Raises:
        ArgumentError: Unless both are in evaluation mode and `bn` has running statistics.

    Example:
        >>> conv, norm = wg.nn.Conv2d(3, 8, 3).eval(), wg.nn.BatchNorm2d(8).eval()
        >>> x = wg.ones(1, 3, 5, 5)
        >>> wg.allclose(wg.nn.utils.fuse_conv_bn_eval(conv, norm)(x), norm(conv(x)), atol=1e-5)
        True
    """
    mean, var = _running_stats("fuse_conv_bn_eval", conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, mean, var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_eval(linear: _LinearLayer, bn: _BatchNorm) -> _LinearLayer:
    """Return a copy of `linear` that computes `bn(linear(x))`; see `fuse_conv_bn_eval`.

    Args:
        linear: The linear layer.
        bn: The batch normalization after it.

    Returns:
        Module of the class of `linear`, with parameters of its own.

    Raises:
        ArgumentError: Unless both are in evaluation mode, `bn` has running statistics, and it normalizes
            `linear.out_features` features or one.

    Example:
        >>> linear, norm = wg.nn.Linear(3, 8).eval(), wg.nn.BatchNorm1d(8).eval()
        >>> x = wg.ones(4, 3)
        >>> wg.allclose(wg.nn.utils.fuse_linear_bn_eval(linear, norm)(x), norm(linear(x)), atol=1e-5)
        True
    """
    mean, var = _running_stats("fuse_linear_bn_eval", linear, bn)
    if bn.num_features not in (1, linear.out_features):
        raise ArgumentError(
            f"fuse_linear_bn_eval: {linear.out_features} outputs do not match {bn.num_features} normalized features"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, mean, var, bn.eps, bn.weight, bn.bias)
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None = None,
    bn_b: Tensor | None = None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of the fused convolution.

    Args:
        conv_w: The convolution's weight.
        conv_b: Its bias, or None.
        bn_rm: Running mean.
        bn_rv: Running variance.
        bn_eps: Added to the variance.
        bn_w: The normalization's weight; None means 1.
        bn_b: Its bias; None means 0.
        transpose: Whether it is a transposed convolution.

    Returns:
        (weight, bias), which need gradients if the originals did.

    Example:
        >>> from weftgrad.nn.utils import fuse_conv_bn_weights
        >>> weight, bias = fuse_conv_bn_weights(wg.ones(1, 1, 1), None, wg.tensor([2.0]), wg.tensor([4.0]), 0.0)
        >>> weight.tolist(), bias.tolist()
        ([[[0.5]]], [-1.0])
    """
    shape = [1] * conv_w.meta.ndim
    shape[1 if transpose else 0] = -1
    return _fold_batch_norm(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None = None,
    bn_b: Tensor | None = None,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Return weight and bias of the fused linear layer; see `fuse_conv_bn_weights`.

    Args:
        linear_w: The layer's weight.
        linear_b: Its bias, or None.
        bn_rm: Running mean.
        bn_rv: Running variance.
        bn_eps: Added to the variance.
        bn_w: The normalization's weight; None means 1.
        bn_b: Its bias; None means 0.

    Returns:
        (weight, bias), which need gradients if the originals did.

    Example:
        >>> from weftgrad.nn.utils import fuse_linear_bn_weights
        >>> weight, bias = fuse_linear_bn_weights(wg.ones(1, 1), None, wg.tensor([2.0]), wg.tensor([4.0]), 0.0)
        >>> weight.tolist(), bias.tolist()
        ([[0.5]], [-1.0])
    """
    return _fold_batch_norm(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _fold_batch_norm(
    weight: Tensor, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float, gamma: Tensor | None,
    beta: Tensor | None, shape: list[int],
) -> tuple[Parameter, Parameter]:  # fmt: skip
    dtype, weight_needs = weight.meta.dtype, weight.requires_grad
    bias_dtype, bias_needs = (dtype, False) if bias is None else (bias.meta.dtype, bias.requires_grad)
    with no_grad():
        gamma = ones_like(mean) if gamma is None else gamma
        scale = ops.mul(gamma, ops.rsqrt(ops.add(var, eps)))
        fused_weight = ops.mul(weight, scale.reshape(shape))
        scaled_bias = ops.mul(ops.sub(zeros_like(mean) if bias is None else bias, mean), scale)
        fused_bias = scaled_bias if beta is None else ops.add(scaled_bias, beta)
        return Parameter(fused_weight.to(dtype), weight_needs), Parameter(fused_bias.to(bias_dtype), bias_needs)


def _running_stats(where: str, layer: Module, bn: _BatchNorm) -> tuple[Tensor, Tensor]:
    """Return the running mean and variance of `bn`. Raise `ArgumentError` if it cannot be folded into `layer`."""
    if layer.training or bn.training:
        raise ArgumentError(f"{where}: for evaluation only; call eval() on both modules first")
    if bn.running_mean is None or bn.running_var is None:
        raise ArgumentError(f"{where}: {type(bn).__name__} has no running statistics to fold in")
    return bn.running_mean, bn.running_var
