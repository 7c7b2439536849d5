"""Initial values of parameters, under `torch.nn.init`'s names.

The functions write to their tensor in place, record no gradients, and return the tensor.
"""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

from .. import random
from ..autograd import no_grad
from ..creation.factories import eye as identity_matrix
from ..creation.from_data import tensor as make_tensor
from ..random import Generator
from ..runtime import dtypes
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from ._fans import calculate_gain, fan, fan_in_and_fan_out

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_Parameters = ParamSpec("_Parameters")


class _InitSwitch(threading.local):
    """Whether this thread skips initialization."""

    is_skipped = False


_init_switch = _InitSwitch()


@contextmanager
def skip_initialization() -> Iterator[None]:
    """Make this module's functions return tensors unchanged inside the context, without drawing random numbers."""
    was_skipped, _init_switch.is_skipped = _init_switch.is_skipped, True
    try:
        yield
    finally:
        _init_switch.is_skipped = was_skipped


_calculate_fan_in_and_fan_out = fan_in_and_fan_out  # PyTorch's private name, which user code calls


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with samples of the uniform distribution over [a, b).

    Args:
        tensor: Tensor to fill.
        a: Lower bound, included.
        b: Upper bound, excluded.
        generator: Source of random numbers; None: the default generator.

    Returns:
        `tensor`.

    Example:
        >>> wg.nn.init.uniform_(wg.empty(2, 3)).shape
        weftgrad.Size([2, 3])
    """
    if _init_switch.is_skipped:
        return tensor
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with samples of the normal distribution N(mean, std**2).

    Args:
        tensor: Tensor to fill.
        mean: Mean.
        std: Standard deviation.
        generator: Source of random numbers; None: the default generator.

    Returns:
        `tensor`.

    Example:
        >>> wg.nn.init.normal_(wg.empty(2, 3), std=0.02).shape
        weftgrad.Size([2, 3])
    """
    if _init_switch.is_skipped:
        return tensor
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with `val`.

    Args:
        tensor: Tensor to fill.
        val: Number.

    Returns:
        `tensor`.

    Example:
        >>> wg.nn.init.constant_(wg.empty(2), 0.5)
        tensor([0.5000, 0.5000])
    """
    if _init_switch.is_skipped:
        return tensor
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones.

    Args:
        tensor: Tensor to fill.

    Returns:
        `tensor`.

    Example:
        >>> wg.nn.init.ones_(wg.empty(2))
        tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros.

    Args:
        tensor: Tensor to fill.

    Returns:
        `tensor`.

    Example:
        >>> wg.nn.init.zeros_(wg.empty(2))
        tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity.

    Args:
        tensor: Matrix.

    Returns:
        `tensor`.

    Raises:
        ShapeError: If `tensor` is not a matrix.

    Example:
        >>> wg.nn.init.eye_(wg.empty(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    if tensor.meta.ndim != 2:
        raise ShapeError(f"eye_: takes a matrix, not shape {list(tensor.meta.shape)}")
    if _init_switch.is_skipped:
        return tensor
    with no_grad():
        return tensor.copy_(identity_matrix(*tensor.meta.shape, dtype=tensor.meta.dtype, device=tensor.meta.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight so that it copies input channels to output channels.

    Args:
        tensor: Weight of 3 to 5 dimensions.
        groups: Groups of the convolution; each copies its own channels.

    Returns:
        `tensor`.

    Raises:
        ShapeError: If `tensor` has fewer than 3 or more than 5 dimensions, or `groups` does not divide its first
            dimension.

    Example:
        >>> wg.nn.init.dirac_(wg.empty(1, 1, 3))
        tensor([[[0., 1., 0.]]])
    """
    import numpy as np

    shape = tensor.meta.shape
    if len(shape) not in (3, 4, 5) or shape[0] % groups:
        raise ShapeError(
            f"dirac_: takes 3 to 5 dimensions, the first divided by groups, not {list(shape)} and {groups}"
        )
    if _init_switch.is_skipped:
        return tensor
    values = np.zeros(shape)
    channels_per_group = shape[0] // groups
    for group in range(groups):
        for i in range(min(channels_per_group, shape[1])):
            values[(group * channels_per_group + i, i, *(n // 2 for n in shape[2:]))] = 1
    with no_grad():
        return tensor.copy_(make_tensor(values, dtype=tensor.meta.dtype, device=tensor.meta.device))


def _warn_if_empty(tensor: Tensor) -> bool:
    """Return True, and warn in the name of the caller's caller, if the tensor has no elements."""
    if not tensor.meta.numel:
        warnings.warn("a tensor without elements cannot be initialized", stacklevel=3)
    return not tensor.meta.numel


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill from U(-a, a) with a = gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010).

    Args:
        tensor: Weight of shape `(out, in, *kernel)`.
        gain: Factor; see `calculate_gain`.
        generator: Source of random numbers; None: the default generator.

    Returns:
        `tensor`.

    Raises:
        ShapeError: If the weight has fewer than 2 dimensions.

    Example:
        >>> wg.nn.init.xavier_uniform_(wg.empty(3, 5)).shape
        weftgrad.Size([3, 5])
    """
    bound = gain * math.sqrt(6.0 / sum(fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill from N(0, gain**2 * 2 / (fan_in + fan_out)) (Glorot and Bengio 2010).

    Args:
        tensor: Weight of shape `(out, in, *kernel)`.
        gain: Factor; see `calculate_gain`.
        generator: Source of random numbers; None: the default generator.

    Returns:
        `tensor`.

    Raises:
        ShapeError: If the weight has fewer than 2 dimensions.

    Example:
        >>> wg.nn.init.xavier_normal_(wg.empty(3, 5)).shape
        weftgrad.Size([3, 5])
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fan_in_and_fan_out(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill from U(-b, b) with b = gain * sqrt(3 / fan) (He et al. 2015, arXiv 1502.01852).

    Args:
        tensor: Weight of at least 2 dimensions.
        a: Negative slope of `leaky_relu`.
        mode: `"fan_in"` preserves the variance in forward, `"fan_out"` in backward.
        nonlinearity: Name for `calculate_gain`.
        generator: Source of random numbers; None is the default one.

    Returns:
        `tensor`.

    Raises:
        ShapeError: If the weight has fewer than 2 dimensions.
        ArgumentError: If `mode` or `nonlinearity` is unknown.

    Example:
        >>> wg.nn.init.kaiming_uniform_(wg.empty(3, 5), nonlinearity='relu').shape
        weftgrad.Size([3, 5])
    """
    if _warn_if_empty(tensor):
        return tensor
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill from N(0, gain**2 / fan) (He et al. 2015, arXiv 1502.01852).

    Args:
        tensor: Weight of at least 2 dimensions.
        a: Negative slope of `leaky_relu`.
        mode: `"fan_in"` preserves the variance in forward, `"fan_out"` in backward.
        nonlinearity: Name for `calculate_gain`.
        generator: Source of random numbers; None: the default generator.

    Returns:
        `tensor`.

    Raises:
        ShapeError: If the weight has fewer than 2 dimensions.
        ArgumentError: If `mode` or `nonlinearity` is unknown.

    Example:
        >>> wg.nn.init.kaiming_normal_(wg.empty(3, 5), nonlinearity='relu').shape
        weftgrad.Size([3, 5])
    """
    if _warn_if_empty(tensor):
        return tensor
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(fan(tensor, mode)), generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill from N(mean, std**2) truncated to [a, b], by inverse transform sampling.

    Args:
        tensor: Tensor to fill.
        mean: Mean before truncation.
        std: Standard deviation before truncation.
        a: Lower bound.
        b: Upper bound.
        generator: Source of random numbers; None: the default generator.

    Returns:
        `tensor`.

    Example:
        >>> wg.nn.init.trunc_normal_(wg.empty(3, 5), std=0.02).shape
        weftgrad.Size([3, 5])
    """
    if _init_switch.is_skipped:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            f"trunc_normal_: the mean {mean} is more than 2 standard deviations outside of [{a}, {b}], so the samples "
            "may be inaccurate",
            stacklevel=2,
        )
    # x = mean + std sqrt(2) erfinv(u) with u uniform in [erf(a'), erf(b')], the images of the bounds.
    low_erf, high_erf = (math.erf((bound - mean) / std / math.sqrt(2.0)) for bound in (a, b))
    with no_grad():
        samples = (
            tensor.uniform_(low_erf, high_erf, generator=generator).erfinv_().mul_(std * math.sqrt(2.0)).add_(mean)
        )
        return tensor.copy_(samples.clamp(a, b))  # rounding can leave the bounds


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fill with a (semi-)orthogonal matrix times `gain` (Saxe et al. 2013, arXiv 1312.6120).

    Dimensions after the first are flattened. The QR decomposition runs on the host.

    Args:
        tensor: Tensor of at least two dimensions.
        gain: Factor.
        generator: Source of random numbers; None: the default generator.

    Returns:
        `tensor`.

    Raises:
        ShapeError: If `tensor` has fewer than 2 dimensions.

    Example:
        >>> w = wg.nn.init.orthogonal_(wg.empty(2, 2))
        >>> wg.allclose(w @ w.T, wg.eye(2), atol=1e-5)
        True
    """
    import numpy as np

    if tensor.meta.ndim < 2:
        raise ShapeError(f"orthogonal_: takes at least 2 dimensions, not shape {list(tensor.meta.shape)}")
    if _init_switch.is_skipped or not tensor.meta.numel:
        return tensor
    rows = tensor.meta.shape[0]
    columns = tensor.meta.numel // rows
    gaussian = random.randn(
        max(rows, columns), min(rows, columns), generator=generator, dtype=dtypes.float32, device="cpu"
    )
    q, r = np.linalg.qr(gaussian.numpy().astype(np.float64))
    q = q * np.sign(np.diagonal(r))  # with positive diagonals of R, Q is uniformly distributed (Mezzadri 2007)
    values = (q.T if rows < columns else q).reshape(tensor.meta.shape) * gain
    with no_grad():
        return tensor.copy_(make_tensor(values, dtype=tensor.meta.dtype, device=tensor.meta.device))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill a matrix from N(0, std**2) and zero a fraction `sparsity` of each column (Martens 2010).

    Args:
        tensor: Matrix.
        sparsity: Fraction of zeros in each column, from 0 to 1.
        std: Standard deviation of the elements that are not zeroed.
        generator: Source of random numbers; None: the default generator.

    Returns:
        `tensor`.

    Raises:
        ShapeError: If `tensor` is not a matrix.

    Example:
        >>> (wg.nn.init.sparse_(wg.empty(10, 2), 0.5) == 0).sum(0)
        tensor([5, 5])
    """
    if tensor.meta.ndim != 2:
        raise ShapeError(f"sparse_: takes a matrix, not shape {list(tensor.meta.shape)}")
    if _init_switch.is_skipped:
        return tensor
    rows, columns = tensor.meta.shape
    normal_(tensor, 0.0, std, generator)
    with no_grad():
        for column in range(columns):
            permutation = random.randperm(rows, generator=generator, device=tensor.meta.device)
            tensor[:, column].masked_fill_(permutation < math.ceil(sparsity * rows), 0.0)
    return tensor


def _deprecated_alias(function: Callable[_Parameters, Tensor]) -> Callable[_Parameters, Tensor]:
    """Return `function` under PyTorch's deprecated name, without the underscore at the end. Its calls warn."""
    old_name = function.__name__[:-1]

    @functools.wraps(function)
    def wrapper(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> Tensor:
        warnings.warn(f"nn.init.{old_name} is deprecated: use nn.init.{old_name}_", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return wrapper


uniform, normal, constant = _deprecated_alias(uniform_), _deprecated_alias(normal_), _deprecated_alias(constant_)
eye, dirac = _deprecated_alias(eye_), _deprecated_alias(dirac_)
xavier_uniform, xavier_normal = _deprecated_alias(xavier_uniform_), _deprecated_alias(xavier_normal_)
kaiming_uniform, kaiming_normal = _deprecated_alias(kaiming_uniform_), _deprecated_alias(kaiming_normal_)
orthogonal, sparse = _deprecated_alias(orthogonal_), _deprecated_alias(sparse_)
