"""Softmax along a dimension, and its variants."""

from __future__ import annotations

import warnings

from .. import random as _random
from .._generated import ops as _ops
from .._generated.ops import log_softmax as _log_softmax
from .._generated.ops import softmax as _softmax
from ..runtime.dtypes import DTypeLike
from ..runtime.tensor import Tensor
from ._activation_calls import require_floating

__all__ = ["gumbel_softmax", "log_softmax", "softmax", "softmin"]


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
    noise = _ops.neg(_ops.log(_random.rand_like(require_floating(logits, "gumbel_softmax")).exponential_()))
    soft = _softmax(_ops.true_divide(_ops.add(logits, noise), tau), dim)
    if not hard:
        return soft
    index = _ops.argmax(soft.detach(), dim, True)
    one_hot = _ops.zero_like(soft.detach()).scatter_(dim, index, 1.0)
    return _ops.add(_ops.sub(one_hot, soft.detach()), soft)
