"""Batch normalisation folded into the layer before it, for evaluation: one multiplication an output is saved.

(W x + b - mean) / sqrt(var + eps) * gamma + beta is W' x + b' with W' = W s and b' = (b - mean) s + beta, where
s = gamma / sqrt(var + eps) is one number a channel (Jacob et al. 2018, section 3.2).
"""

from __future__ import annotations

import copy
from typing import Any

from ..._generated import ops
from ...autograd import no_grad
from ...factories import ones_like, zeros_like
from ...runtime.errors import ArgumentError
from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of `conv` that does what `conv` and then `bn` do. `transpose`: it is a transposed convolution.

    Raises `ArgumentError` unless both are in evaluation mode and `bn` has running statistics.
    """
    _check("fuse_conv_bn_eval", conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of `linear` that does what `linear` and then `bn` do; see `fuse_conv_bn_eval`."""
    _check("fuse_linear_bn_eval", linear, bn)
    if bn.num_features not in (1, linear.out_features):
        raise ArgumentError(
            f"fuse_linear_bn_eval: {linear.out_features} outputs do not go with {bn.num_features} normalised features"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Any,
    conv_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any = None,
    bn_b: Any = None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the folded convolution, from those of both layers and the running mean and variance."""
    shape = [1] * conv_w.meta.ndim
    shape[1 if transpose else 0] = -1
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any = None, bn_b: Any = None
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the folded linear layer."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _fused(
    weight: Any, bias: Any, mean: Any, var: Any, eps: float, gamma: Any, beta: Any, shape: list[int]
) -> tuple[Parameter, Parameter]:
    dtype, needs = weight.meta.dtype, weight.requires_grad
    bias_dtype, bias_needs = (dtype, False) if bias is None else (bias.meta.dtype, bias.requires_grad)
    with no_grad():
        gamma = ones_like(mean) if gamma is None else gamma
        scale: Any = ops.mul(gamma, ops.rsqrt(ops.add(var, eps)))
        made: Any = ops.mul(weight, scale.reshape(shape))
        shifted = ops.mul(ops.sub(zeros_like(mean) if bias is None else bias, mean), scale)
        moved: Any = shifted if beta is None else ops.add(shifted, beta)
        return Parameter(made.to(dtype), needs), Parameter(moved.to(bias_dtype), bias_needs)


def _check(where: str, layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise ArgumentError(f"{where}: for evaluation only; call eval() on both modules first")
    if bn.running_mean is None or bn.running_var is None:
        raise ArgumentError(f"{where}: {type(bn).__name__} keeps no running statistics to fold in")
