"""Activation functions, elementwise or along a dimension.

Functions with `inplace` write the result to the input's memory, as in PyTorch. If backward needs the old values, they
are saved before.
"""

from __future__ import annotations

import warnings

from .. import random as _random
from .._generated import ops as _ops
from .._generated.ops import log_softmax as _log_softmax
from .._generated.ops import logsigmoid, sigmoid, softplus, tanh
from .._generated.ops import softmax as _softmax
from ..runtime import dtypes, views
from ..runtime.dispatch import call, call_into
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, DomainError, DTypeError, ShapeError, UnsupportedDType
from ..runtime.layout import normalize_dim
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish",
    "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_", "log_softmax", "logsigmoid", "mish", "prelu", "relu",
    "relu6", "relu_", "rrelu", "rrelu_", "selu", "selu_", "sigmoid", "silu", "softmax", "softmin", "softplus",
    "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
]  # fmt: skip

relu_ = _ops.relu_


def _call_activation(name: str, input: Tensor, numbers: tuple[object, ...], inplace: bool) -> Tensor:
    only_tensors(name, input)
    if inplace:
        return call_into(registry[name], (input, *numbers), (), (input,), in_place=True)
    return call(registry[name], (input, *numbers))


def _require_floating(input: Tensor, caller: str) -> Tensor:
    """Return the input. Raise `UnsupportedDType` unless it is floating-point."""
    only_tensors(caller, input)
    if input.meta.dtype.kind != "f":
        raise UnsupportedDType(f"{caller}: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    return input


def _to_floating(input: Tensor, caller: str) -> Tensor:
    """Return the input, with integers cast to the default dtype, for functions that PyTorch composes of divisions."""
    only_tensors(caller, input)
    if input.meta.dtype.kind == "f":
        return input
    return call(registry["copy"], (input,), (dtypes.default_dtype(),))


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
    return _call_activation("leaky_relu", input, (negative_slope,), inplace)


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
    return _call_activation("leaky_relu", input, (negative_slope,), True)


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
    _require_floating(input, "rrelu")
    if lower > upper:
        raise DomainError(f"rrelu: lower must not be above upper, but {lower} is above {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    return _call_random_op("rrelu_draw", input, (float(lower), float(upper - lower)), inplace)


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


def _call_random_op(name: str, input: Tensor, numbers: tuple[float, ...], inplace: bool) -> Tensor:
    """Call a random op, with random numbers of the default generator."""
    record = registry[name]
    operands = (input, *numbers, *_random.default_generator.take(int(record.detail["draws"])))
    if inplace:
        return call_into(record, operands, (), (input,), in_place=True)
    return call(record, operands)


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
    return _call_activation("elu", input, (alpha,), inplace)


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
    return _call_activation("elu", input, (alpha,), True)


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
    return _call_activation("celu", input, (alpha,), inplace)


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
    return _call_activation("selu", input, (), inplace)


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
    return _call_activation("selu", input, (), True)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return input * sigmoid(input).

    Args:
        input: Floating tensor of any shape.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.silu(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2689,  0.0000,  1.7616])
    """
    return _call_activation("silu", input, (), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return input * tanh(softplus(input)) (Misra 2019, arXiv 1908.08681).

    Args:
        input: Floating tensor of any shape.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.mish(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.3034,  0.0000,  1.9440])
    """
    return _call_activation("mish", input, (), inplace)


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
    return _call_activation("hardtanh", input, (min_val, max_val), inplace)


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


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return input * min(max(input + 3, 0), 6) / 6 (Howard et al. 2019, arXiv 1905.02244).

    Args:
        input: Floating tensor of any shape.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.hardswish(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.3333,  0.0000,  1.6667])
    """
    return _call_activation("hardswish", input, (), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Return min(max(input + 3, 0), 6) / 6.

    Args:
        input: Floating tensor of any shape.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.hardsigmoid(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0.3333, 0.5000, 0.8333])
    """
    return _call_activation("hardsigmoid", input, (), inplace)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return `input` where |input| > lambd, otherwise 0.

    Args:
        input: Floating tensor of any shape.
        lambd: Elements up to this magnitude become 0.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.hardshrink(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.,  0.,  2.])
    """
    return _call_activation("hardshrink", input, (lambd,), False)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return input - lambd where input > lambd, input + lambd where input < -lambd, otherwise 0.

    Args:
        input: Floating tensor of any shape.
        lambd: Distance by which elements move towards 0.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        DomainError: If `lambd` is negative. It is also a `RuntimeError`.

    Example:
        >>> wg.nn.functional.softshrink(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.5000,  0.0000,  1.5000])
    """
    if lambd < 0:
        raise DomainError(f"softshrink: lambd must not be negative, got {lambd}")
    return _call_activation("softshrink", input, (lambd,), False)


def softsign(input: Tensor) -> Tensor:
    """Return input / (1 + |input|).

    Args:
        input: Tensor of any shape; integers and bool become the default floating dtype.

    Returns:
        Floating tensor of the shape of `input`.

    Example:
        >>> wg.nn.functional.softsign(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.5000,  0.0000,  0.6667])
    """
    return _ops.softsign(_to_floating(input, "softsign"))


def tanhshrink(input: Tensor) -> Tensor:
    """Return input - tanh(input).

    Args:
        input: Tensor of any shape; integers and bool become the default floating dtype.

    Returns:
        Floating tensor of the shape of `input`.

    Example:
        >>> wg.nn.functional.tanhshrink(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2384,  0.0000,  1.0360])
    """
    return _ops.tanhshrink(_to_floating(input, "tanhshrink"))


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
    return _call_activation("threshold", input, (threshold, value), inplace)


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
    return _call_activation("threshold", input, numbers, True)


def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """Return the Gaussian error linear unit, input * Phi(input) (Hendrycks and Gimpel 2016, arXiv 1606.08415).

    Args:
        input: Floating-point tensor.
        approximate: `"none"` for the exact function, `"tanh"` for the paper's approximation.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        DomainError: If `approximate` is another string.

    Example:
        >>> wg.nn.functional.gelu(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.1587,  0.0000,  1.9545])
    """
    if approximate not in ("none", "tanh"):
        raise DomainError(f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
    return _ops.gelu_erf(input) if approximate == "none" else _ops.gelu_tanh(input)


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


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Return the first half of dimension `dim` times the sigmoid of the second half.

    Source: Dauphin et al. 2017, arXiv 1612.08083.

    Args:
        input: Floating tensor, whose dimension `dim` has an even size.
        dim: The dimension to halve.

    Returns:
        Tensor with half the size along `dim`.

    Raises:
        ShapeError: If the size of the dimension is odd.

    Example:
        >>> wg.nn.functional.glu(wg.tensor([3.0, 0.0]))
        tensor([1.5000])
    """
    _require_floating(input, "glu")
    axis = normalize_dim(dim, input.meta.ndim, "glu")
    size = input.meta.shape[axis] if input.meta.ndim else 1
    if size % 2:
        raise ShapeError(f"glu: dimension {dim} has {size} elements, which cannot be halved")
    values, gates = _ops.narrow(input, axis, 0, size // 2), _ops.narrow(input, axis, size // 2, size // 2)
    return _ops.mul(values, sigmoid(gates))


# Along a dimension ----------------------------------------------------------------------------------------------------


def _implicit_dim(input: Tensor, dim: int | None, caller: str, stacklevel: int) -> int:
    """Return `dim`, or by PyTorch's deprecated rule 0 for 0-D, 1-D and 3-D input and 1 otherwise, with a warning."""
    if dim is not None:
        return dim
    implicit_dim = 0 if input.meta.ndim in (0, 1, 3) else 1
    warnings.warn(
        f"{caller}: Implicit dimension choice for {caller} has been deprecated; write dim={implicit_dim}",
        stacklevel=stacklevel,
    )
    return implicit_dim


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None) -> Tensor:
    """Return exp(input) / sum of exp(input) along `dim`.

    Args:
        input: The tensor.
        dim: Dimension. None is deprecated: 0 for 0-D, 1-D and 3-D input, otherwise 1.
        _stacklevel: Frame that a warning names.
        dtype: Cast the input to this dtype first.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.nn.functional.softmax(wg.tensor([0.0, 0.0]), 0)
        tensor([0.5000, 0.5000])
    """
    return _softmax(_cast(input, dtype), _implicit_dim(input, dim, "softmax", _stacklevel))


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None) -> Tensor:
    """Return `softmax` of -input.

    Args:
        input: Floating tensor of any shape.
        dim: The dimension whose elements sum to 1. None is deprecated: 0 for 0-D, 1-D and 3-D input, otherwise 1.
        _stacklevel: Frame that a warning names.
        dtype: Dtype in which elements are computed and returned; None: that of `input`.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.nn.functional.softmin(wg.tensor([0.0, 0.0]), 0)
        tensor([0.5000, 0.5000])
    """
    return _softmax(_ops.neg(_cast(input, dtype)), _implicit_dim(input, dim, "softmin", _stacklevel))


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None) -> Tensor:
    """Return the logarithm of `softmax`, computed without underflow.

    Args:
        input: Floating tensor of any shape.
        dim: The dimension whose exponentials sum to 1. None is deprecated; see `softmax`.
        _stacklevel: Frame that a warning names.
        dtype: Dtype in which elements are computed and returned; None: that of `input`.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.nn.functional.log_softmax(wg.tensor([0.0, 0.0]), 0)
        tensor([-0.6931, -0.6931])
    """
    return _log_softmax(_cast(input, dtype), _implicit_dim(input, dim, "log_softmax", _stacklevel))


def _cast(input: Tensor, dtype: DTypeLike | None) -> Tensor:
    return input if dtype is None else input.to(dtype=dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Draw samples of the Gumbel-softmax distribution (Jang et al. 2017, arXiv 1611.01144).

    Args:
        logits: Unnormalized log-probabilities.
        tau: Temperature.
        hard: Return one-hot vectors, whose gradient is that of the soft samples.
        eps: Deprecated; has no effect.
        dim: Dimension of the classes.

    Returns:
        Tensor of the shape of `logits`, whose elements along `dim` sum to 1.

    Example:
        >>> wg.nn.functional.gumbel_softmax(wg.zeros(2, 3), hard=True).shape
        weftgrad.Size([2, 3])
    """
    if eps != 1e-10:
        warnings.warn("gumbel_softmax: eps is deprecated and has no effect", stacklevel=2)
    noise = _ops.neg(_ops.log(_random.rand_like(_require_floating(logits, "gumbel_softmax")).exponential_()))
    soft = _softmax(_ops.true_divide(_ops.add(logits, noise), tau), dim)
    if not hard:
        return soft
    index = _ops.argmax(soft.detach(), dim, True)
    one_hot = _ops.zero_like(soft.detach()).scatter_(dim, index, 1.0)
    return _ops.add(_ops.sub(one_hot, soft.detach()), soft)
