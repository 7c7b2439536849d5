"""Activation functions that are linear in pieces, and their smooth relatives: `relu`, `leaky_relu`, `elu` and others.

Functions with `inplace` write the result to the input's memory, as in PyTorch. If backward needs the old values, they
are saved before.
"""

from __future__ import annotations

from .._generated import ops as _ops
from ..runtime import views
from ..runtime.errors import ArgumentError, DomainError, DTypeError, ShapeError, UnsupportedDType
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from ._activation_calls import call_activation, call_random_op, require_floating

__all__ = [
    "celu", "celu_", "elu", "elu_", "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_", "prelu", "relu", "relu6",
    "relu_", "rrelu", "rrelu_", "selu", "selu_", "threshold", "threshold_",
]  # fmt: skip


relu_ = _ops.relu_


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return max(input, 0).

    Args:
        input: Tensor of any shape and any dtype but bool.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.relu(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0., 0., 2.])
    """
    return _ops.relu_(input) if inplace else _ops.relu(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Return `input` where positive, otherwise negative_slope * input.

    Args:
        input: Floating tensor of any shape.
        negative_slope: Factor of negative elements.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.leaky_relu(wg.tensor([-1.0, 0.0, 2.0]), 0.5)
        tensor([-0.5000,  0.0000,  2.0000])
    """
    return call_activation("leaky_relu", input, (negative_slope,), inplace)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Apply `leaky_relu` in place.

    Args:
        input: Floating tensor, which is changed.
        negative_slope: Factor of negative elements.

    Returns:
        `input`.

    Example:
        >>> wg.nn.functional.leaky_relu_(wg.tensor([-1.0, 2.0]), 0.5)
        tensor([-0.5000,  2.0000])
    """
    return call_activation("leaky_relu", input, (negative_slope,), True)


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Return `input` where positive, otherwise slope * input (Xu et al. 2015, arXiv 1505.00853, section 3.4).

    In training, the slope of each element is drawn from U(lower, upper); otherwise it is (lower + upper) / 2. Slopes
    are not stored: backward draws them again.

    Args:
        input: Floating tensor of any shape.
        lower: Smallest slope.
        upper: Largest slope.
        training: Whether to draw the slopes.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        DomainError: If `lower` is above `upper`. It is also a `RuntimeError`.

    Example:
        >>> wg.nn.functional.rrelu(wg.tensor([-1.0, 0.0, 2.0]), 0.25, 0.75)
        tensor([-0.5000,  0.0000,  2.0000])
    """
    require_floating(input, "rrelu")
    if lower > upper:
        raise DomainError(f"rrelu: lower must not be above upper, but {lower} is above {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    return call_random_op("rrelu_draw", input, (float(lower), float(upper - lower)), inplace)


def rrelu_(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """Apply `rrelu` in place.

    Args:
        input: Floating tensor, which is changed.
        lower: Lower bound of the slope.
        upper: Upper bound of the slope.
        training: Draw the slope of each negative element; otherwise it is the mean of the bounds.

    Returns:
        `input`.

    Example:
        >>> wg.nn.functional.rrelu_(wg.tensor([-1.0, 2.0]), 0.25, 0.75)
        tensor([-0.5000,  2.0000])
    """
    return rrelu(input, lower, upper, training, True)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return `input` where positive, otherwise alpha * (exp(input) - 1) (Clevert et al. 2015, arXiv 1511.07289).

    Args:
        input: Floating tensor of any shape.
        alpha: Factor of the negative part.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.elu(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.6321,  0.0000,  2.0000])
    """
    return call_activation("elu", input, (alpha,), inplace)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Apply `elu` in place.

    Args:
        input: Floating tensor, which is changed.
        alpha: Minus the limit for large negative elements.

    Returns:
        `input`.

    Example:
        >>> wg.nn.functional.elu_(wg.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """
    return call_activation("elu", input, (alpha,), True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return `input` where positive, otherwise alpha * (exp(input / alpha) - 1) (Barron 2017, arXiv 1704.07483).

    Args:
        input: Floating tensor of any shape.
        alpha: Scale of the negative part.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        DomainError: If `alpha` is 0. It is also a `RuntimeError`.

    Example:
        >>> wg.nn.functional.celu(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.6321,  0.0000,  2.0000])
    """
    if alpha == 0:
        raise DomainError("celu: alpha must not be 0, because it divides the input")
    return call_activation("celu", input, (alpha,), inplace)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Apply `celu` in place.

    Args:
        input: Floating tensor, which is changed.
        alpha: Minus the limit for large negative elements.

    Returns:
        `input`.

    Example:
        >>> wg.nn.functional.celu_(wg.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """
    return celu(input, alpha, True)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return scaled `elu`, which preserves mean 0 and variance 1 (Klambauer et al. 2017, arXiv 1706.02515).

    Args:
        input: Floating tensor of any shape.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.selu(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.1113,  0.0000,  2.1014])
    """
    return call_activation("selu", input, (), inplace)


def selu_(input: Tensor) -> Tensor:
    """Apply `selu` in place.

    Args:
        input: Floating tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.nn.functional.selu_(wg.tensor([0.0, 2.0]))
        tensor([0.0000, 2.1014])
    """
    return call_activation("selu", input, (), True)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Clamp `input` to [min_val, max_val]. For integers, the bounds are rounded towards zero.

    Args:
        input: Tensor of any shape and any dtype but bool.
        min_val: Lower bound.
        max_val: Upper bound.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ArgumentError: If `min_val` is above `max_val`. It is also a `ValueError`.
        UnsupportedDType: If `input` is bool.
        DTypeError: If `input` is unsigned and `min_val` is negative.

    Example:
        >>> wg.nn.functional.hardtanh(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.,  0.,  1.])
    """
    only_tensors("hardtanh", input)
    if min_val > max_val:
        raise ArgumentError(f"hardtanh: min_val must not be above max_val, but {min_val} is above {max_val}")
    if input.meta.dtype.kind == "b":
        raise UnsupportedDType("hardtanh: does not take bool; convert with .float()")
    if input.meta.dtype.kind in "iu":
        min_val, max_val = int(min_val), int(max_val)
        if input.meta.dtype.kind == "u" and min_val < 0:
            raise DTypeError(f"hardtanh: {input.meta.dtype.name} holds nothing below 0, such as {min_val}")
    return call_activation("hardtanh", input, (min_val, max_val), inplace)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Apply `hardtanh` in place.

    Args:
        input: Tensor, which is changed.
        min_val: Lower bound.
        max_val: Upper bound.

    Returns:
        `input`.

    Example:
        >>> wg.nn.functional.hardtanh_(wg.tensor([-3.0, 0.5]))
        tensor([-1.0000,  0.5000])
    """
    return hardtanh(input, min_val, max_val, True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Clamp `input` to [0, 6].

    Args:
        input: Tensor of any shape and any dtype but bool.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.relu6(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0., 0., 2.])
    """
    return hardtanh(input, 0.0, 6.0, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Return `input` where it is above `threshold`, otherwise `value`. Both are converted to the input's dtype.

    Args:
        input: Floating tensor of any shape.
        threshold: Elements above it stay.
        value: Replaces the others.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.threshold(wg.tensor([-1.0, 0.0, 2.0]), 0.5, 9.0)
        tensor([9., 9., 2.])
    """
    only_tensors("threshold", input)
    if input.meta.dtype.kind in "iu":
        threshold, value = int(threshold), int(value)
    return call_activation("threshold", input, (threshold, value), inplace)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """Apply `threshold` in place.

    Args:
        input: Tensor, which is changed.
        threshold: Elements up to this number are replaced.
        value: Their replacement.

    Returns:
        `input`.

    Example:
        >>> wg.nn.functional.threshold_(wg.tensor([-1.0, 2.0]), 0.5, 9.0)
        tensor([9., 2.])
    """
    only_tensors("threshold_", input)
    is_integer = input.meta.dtype.kind in "iu"
    numbers = (int(threshold), int(value)) if is_integer else (threshold, value)
    return call_activation("threshold", input, numbers, True)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Return `input` where positive, otherwise weight * input.

    Args:
        input: Tensor with channels in dimension 1.
        weight: One element, or one per channel.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: For another number of weights.
        DTypeError: For weights of another dtype.

    Example:
        >>> wg.nn.functional.prelu(wg.tensor([-1.0, 0.0, 2.0]), wg.tensor([0.5]))
        tensor([-0.5000,  0.0000,  2.0000])
    """
    only_tensors("prelu", input, weight)
    if input.meta.dtype is not weight.meta.dtype:
        raise DTypeError(
            f"prelu: input is {input.meta.dtype.name} and weight {weight.meta.dtype.name}; convert one with .to()"
        )
    if weight.meta.ndim > 1:
        raise ShapeError(f"prelu: weight has at most one dimension, not shape {list(weight.meta.shape)}")
    if weight.meta.numel != 1:
        channels = input.meta.shape[1] if input.meta.ndim > 1 else 1
        if channels != weight.meta.numel or not input.meta.ndim:
            raise ShapeError(
                f"prelu: {weight.meta.numel} weights need as many channels (dimension 1), but the input has shape "
                f"{list(input.meta.shape)}"
            )
        weight = views.reshape(weight, (channels,) + (1,) * (input.meta.ndim - 2))
    elif weight.meta.ndim:
        weight = views.reshape(weight, ())
    return _ops.prelu_slope(input, weight)
