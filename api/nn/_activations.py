"""Activations: functions of every element, or of the elements along a dimension, in new memory or in place.

Where PyTorch takes `inplace`, so do these: the input's memory holds the result then. Its history goes on with the call;
what the gradient reads is kept beforehand where it would be written over.
"""

from __future__ import annotations

import warnings
from typing import Any

from .. import random as _random
from .._checks import only_tensors
from .._generated import ops as _ops
from .._generated.ops import log_softmax as _log_softmax
from .._generated.ops import logsigmoid, sigmoid, softplus, tanh
from .._generated.ops import softmax as _softmax
from ..runtime import dtypes, views
from ..runtime.dispatch import call, call_into
from ..runtime.errors import ArgumentError, DomainError, DTypeError, ShapeError, UnsupportedDType
from ..runtime.layout import normalize_dim
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish",
    "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_", "log_softmax", "logsigmoid", "mish", "prelu", "relu",
    "relu6", "relu_", "rrelu", "rrelu_", "selu", "selu_", "sigmoid", "silu", "softmax", "softmin", "softplus",
    "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
]  # fmt: skip

relu_ = _ops.relu_


def _apply(name: str, input: Tensor, numbers: tuple[Any, ...], inplace: bool) -> Tensor:
    only_tensors(name, input)
    if inplace:
        return call_into(registry[name], (input, *numbers), (), (input,), in_place=True)  # type: ignore[no-any-return]
    return call(registry[name], (input, *numbers))  # type: ignore[no-any-return]


def _floating(input: Tensor, where: str) -> Tensor:
    """The input, which must be floating. Raises `UnsupportedDType`."""
    only_tensors(where, input)
    if input.meta.dtype.kind != "f":
        raise UnsupportedDType(f"{where}: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    return input


def _as_floating(input: Tensor, where: str) -> Tensor:
    """The input, integers in the default dtype: of functions that PyTorch composes of divisions and the like."""
    only_tensors(where, input)
    if input.meta.dtype.kind == "f":
        return input
    return call(registry["copy"], (input,), (dtypes.default_dtype(),))  # type: ignore[no-any-return]


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """The positive part."""
    return _ops.relu_(input) if inplace else _ops.relu(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`input` where positive, negative_slope * input elsewhere."""
    return _apply("leaky_relu", input, (negative_slope,), inplace)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place."""
    return _apply("leaky_relu", input, (negative_slope,), True)


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """`input` where positive, a slope times it elsewhere: drawn from U(lower, upper) for each element if `training`,
    else the middle of the two (Xu et al. 2015, section 3.4).

    No slopes are kept: backward draws them again. Raises `DomainError`, a `RuntimeError`, if lower is above upper.
    """
    _floating(input, "rrelu")
    if lower > upper:
        raise DomainError(f"rrelu: lower must not be above upper, but {lower} is above {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    return _drawn("rrelu_draw", input, (float(lower), float(upper - lower)), inplace)


def rrelu_(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """`rrelu` in place."""
    return rrelu(input, lower, upper, training, True)


def _drawn(name: str, input: Tensor, numbers: tuple[float, ...], inplace: bool) -> Tensor:
    """A random op of the input, with numbers of the default generator."""
    record = registry[name]
    operands = (input, *numbers, *_random.default_generator.take(int(record.detail["draws"])))
    if inplace:
        return call_into(record, operands, (), (input,), in_place=True)  # type: ignore[no-any-return]
    return call(record, operands)  # type: ignore[no-any-return]


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` where positive, alpha * (exp(input) - 1) elsewhere (Clevert et al. 2015)."""
    return _apply("elu", input, (alpha,), inplace)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place."""
    return _apply("elu", input, (alpha,), True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` where positive, alpha * (exp(input / alpha) - 1) elsewhere (Barron 2017).

    Raises `DomainError`, a `RuntimeError`, for an alpha of 0.
    """
    if alpha == 0:
        raise DomainError("celu: alpha must not be 0, as it divides the input")
    return _apply("celu", input, (alpha,), inplace)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place."""
    return celu(input, alpha, True)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled `elu` that keeps mean and variance (Klambauer et al. 2017)."""
    return _apply("selu", input, (), inplace)


def selu_(input: Tensor) -> Tensor:
    """`selu` in place."""
    return _apply("selu", input, (), True)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)."""
    return _apply("silu", input, (), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input)) (Misra 2019)."""
    return _apply("mish", input, (), inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` limited to [min_val, max_val]; limits of integers are rounded towards zero.

    Raises `ArgumentError`, a `ValueError`, if min_val is above max_val.
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
    return _apply("hardtanh", input, (min_val, max_val), inplace)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place."""
    return hardtanh(input, min_val, max_val, True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """`input` limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * min(max(input + 3, 0), 6) / 6 (Howard et al. 2019)."""
    return _apply("hardswish", input, (), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input + 3, 0), 6) / 6."""
    return _apply("hardsigmoid", input, (), inplace)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`input` where its magnitude is above `lambd`, else 0."""
    return _apply("hardshrink", input, (lambd,), False)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`input` moved by `lambd` towards 0, and 0 within that. Raises `DomainError`, a `RuntimeError`, if lambd < 0."""
    if lambd < 0:
        raise DomainError(f"softshrink: lambd must not be negative, got {lambd}")
    return _apply("softshrink", input, (lambd,), False)


def softsign(input: Tensor) -> Tensor:
    """input / (1 + abs(input))."""
    return _ops.softsign(_as_floating(input, "softsign"))


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return _ops.tanhshrink(_as_floating(input, "tanhshrink"))


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`input` where it is above the threshold, else `value`; both are converted to the input's dtype."""
    only_tensors("threshold", input)
    if input.meta.dtype.kind in "iu":
        threshold, value = int(threshold), int(value)
    return _apply("threshold", input, (threshold, value), inplace)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold` in place."""
    only_tensors("threshold_", input)
    whole = input.meta.dtype.kind in "iu"
    numbers = (int(threshold), int(value)) if whole else (threshold, value)
    return _apply("threshold", input, numbers, True)


def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit: exact, or with `approximate="tanh"` by its formula (Hendrycks and Gimpel 2016)."""
    if approximate not in ("none", "tanh"):
        raise DomainError(f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
    return _ops.gelu_erf(input) if approximate == "none" else _ops.gelu_tanh(input)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`input` where positive, weight * input elsewhere; one weight, or one for each channel (dimension 1).

    Raises `ShapeError` for another number of weights, `DTypeError` for weights of another dtype.
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
    """The first half of a dimension times the sigmoid of the second (Dauphin et al. 2017).

    Raises `ShapeError` for a dimension of odd size.
    """
    _floating(input, "glu")
    at = normalize_dim(dim, input.meta.ndim, "glu")
    size = input.meta.shape[at] if input.meta.ndim else 1
    if size % 2:
        raise ShapeError(f"glu: dimension {dim} has {size} elements, which cannot be halved")
    first, second = _ops.narrow(input, at, 0, size // 2), _ops.narrow(input, at, size // 2, size // 2)
    return _ops.mul(first, sigmoid(second))


# Along a dimension ----------------------------------------------------------------------------------------------------


def _implied(input: Tensor, dim: int | None, where: str, stacklevel: int) -> int:
    """The dimension that softmax takes when none is given: PyTorch's legacy rule, and its warning."""
    if dim is not None:
        return dim
    found = 0 if input.meta.ndim in (0, 1, 3) else 1
    warnings.warn(
        f"{where}: Implicit dimension choice for {where} has been deprecated; write dim={found}", stacklevel=stacklevel
    )
    return found


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """Exponentials along `dim` divided by their sum. Name `dim`: without it, it is 0 of 0, 1 or 3, else 1."""
    return _softmax(_as(input, dtype), _implied(input, dim, "softmax", _stacklevel))


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """`softmax` of -input."""
    return _softmax(_ops.neg(_as(input, dtype)), _implied(input, dim, "softmin", _stacklevel))


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`, without underflow."""
    return _log_softmax(_as(input, dtype), _implied(input, dim, "log_softmax", _stacklevel))


def _as(input: Tensor, dtype: Any) -> Tensor:
    return input if dtype is None else input.to(dtype=dtype)  # type: ignore[attr-defined,no-any-return]


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Samples of the Gumbel-softmax distribution (Jang et al. 2017); `hard` gives one-hot vectors with its gradient.

    `eps` is deprecated and has no effect.
    """
    if eps != 1e-10:
        warnings.warn("gumbel_softmax: eps is deprecated and has no effect", stacklevel=2)
    noise = _ops.neg(_ops.log(_random.rand_like(_floating(logits, "gumbel_softmax")).exponential_()))  # type: ignore[attr-defined]
    soft = _softmax(_ops.true_divide(_ops.add(logits, noise), tau), dim)
    if not hard:
        return soft
    index = _ops.argmax(soft.detach(), dim, True)  # type: ignore[attr-defined]
    whole = _ops.zero_like(soft.detach()).scatter_(dim, index, 1.0)  # type: ignore[attr-defined]
    return _ops.add(_ops.sub(whole, soft.detach()), soft)  # type: ignore[attr-defined]
