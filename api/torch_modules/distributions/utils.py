"""Broadcast parameters, convert between probabilities and logits, and draw the numbers that samplers start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, overload

from ..autograd.grad_mode import enable_grad
from ..creation.from_data import tensor
from ..pointwise.type_info import finfo
from ..random import rand
from ..runtime import dtypes
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..shape.broadcasting import broadcast_tensors

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "parameter_of", "probs_to_logits",
    "sampling_dtype", "uniform_inside",
]  # fmt: skip

_Value = TypeVar("_Value")


def broadcast_all(*values: Tensor | float) -> tuple[Tensor, ...]:
    """Convert numbers to tensors, and broadcast all to one shape.

    Args:
        *values: Tensors and numbers. Numbers get dtype and device of the first tensor; where there is none, they are
            tensors of shape `()` in the default dtype.

    Returns:
        Tuple of tensors of one shape.

    Raises:
        ArgumentError: A value is neither a tensor nor a number.
        ShapeError: The shapes do not broadcast.

    Example:
        >>> wg.distributions.utils.broadcast_all(1.0, wg.ones(2))
        (tensor([1., 1.]), tensor([1., 1.]))
    """
    first = next((value for value in values if isinstance(value, Tensor)), None)
    for value in values:
        if not isinstance(value, Tensor | bool | int | float) and not hasattr(value, "__float__"):
            raise ArgumentError(f"a parameter is a number or a tensor, not {type(value).__name__}")
    dtype = dtypes.default_dtype() if first is None else first.dtype
    device = None if first is None else first.device
    tensors = [v if isinstance(v, Tensor) else tensor(float(v), dtype=dtype, device=device) for v in values]
    return tuple(broadcast_tensors(*tensors))


def parameter_of(value: Tensor | float) -> Tensor:
    """Return a parameter as a tensor: a number becomes one of shape `()` in the default dtype."""
    return broadcast_all(value)[0]


def clamp_probs(probs: Tensor) -> Tensor:
    """Clamp probabilities to the interval from the dtype's `eps` to 1 - `eps`, so that logarithms are finite.

    Args:
        probs: Floating tensor of any shape.

    Returns:
        Tensor of the same shape.

    Example:
        >>> bool(wg.distributions.utils.clamp_probs(wg.tensor(1.0)) < 1)
        True
    """
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Convert logits to probabilities.

    Args:
        logits: Log-odds if `is_binary`; else vectors `(*, K)` of logarithms, up to a constant for each vector.
        is_binary: Whether each element belongs to an event of its own.

    Returns:
        Tensor of the same shape.

    Example:
        >>> wg.distributions.utils.logits_to_probs(wg.zeros(2))
        tensor([0.5000, 0.5000])
    """
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Convert probabilities to logits; probabilities of 0 and 1 are clamped by `eps` first.

    Args:
        probs: Probabilities of any shape; vectors `(*, K)` unless `is_binary`.
        is_binary: Whether the result is log-odds.

    Returns:
        Tensor of the same shape.

    Example:
        >>> wg.distributions.utils.probs_to_logits(wg.tensor(0.5), is_binary=True)
        tensor(0.)
    """
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


def sampling_dtype(dtype: DType) -> DType:
    """Return the dtype to compute samples in: float32 for 16-bit dtypes and integers, else the dtype itself."""
    return dtypes.float32 if dtype.itemsize < 4 or dtype.kind != "f" else dtype


def uniform_inside(shape: Sequence[int], like: Tensor) -> Tensor:
    """Draw uniform numbers above 0 and below 1, so that the logarithms of `u` and `1 - u` are finite.

    Args:
        shape: Shape of the result.
        like: Tensor with the dtype and device of the result.

    Returns:
        Tensor of shape `shape`.
    """
    eps = finfo(like.dtype).eps
    return rand(tuple(shape), dtype=like.dtype, device=like.device).clamp(min=eps / 4, max=1 - eps / 2)


class lazy_property(Generic[_Value]):
    """An attribute that is computed at its first use, with gradients, and stored in the instance.

    Args:
        function: Computes the value from the instance.

    Example:
        >>> d = wg.distributions.Bernoulli(logits=wg.zeros(2))
        >>> 'probs' in vars(d), d.probs, 'probs' in vars(d)
        (False, tensor([0.5000, 0.5000]), True)
    """

    def __init__(self, function: Callable[[Any], _Value]):
        self.function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazy_property[_Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _Value: ...
    def __get__(self, instance: object | None, owner: type) -> _Value | lazy_property[_Value]:
        if instance is None:
            return self
        with enable_grad():
            value = self.function(instance)
        setattr(instance, self.function.__name__, value)
        return value
