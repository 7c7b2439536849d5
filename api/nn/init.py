"""Initial values of parameters, written in place and without a gradient. Formulas and names as PyTorch's."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..autograd import no_grad
from ..random import Generator
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor

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


class _Skipping(threading.local):
    """Whether this thread leaves tensors as they are."""

    on = False


_skipping = _Skipping()


@contextmanager
def skipped() -> Iterator[None]:
    """Inside, no function of this module changes a tensor or draws a number."""
    before, _skipping.on = _skipping.on, True
    try:
        yield
    finally:
        _skipping.on = before


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much a layer's weights are larger, so that variances survive the function behind it.

    nonlinearity: `linear`, `conv1d` …, `sigmoid` (1), `tanh` (5/3), `relu` (sqrt 2), `leaky_relu` (`param`: its slope),
    `selu` (3/4). Raises `ArgumentError` for others.
    """
    if nonlinearity in (
        "linear",
        "sigmoid",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
    ):
        return 1.0
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ArgumentError(f"calculate_gain: the slope of leaky_relu is a number, not {param!r}")
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    known = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 0.75}
    if nonlinearity not in known:
        raise ArgumentError(f"calculate_gain: unknown nonlinearity {nonlinearity!r}")
    return known[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output of the layer has, and how many outputs an input: (fan_in, fan_out)."""
    shape = tensor.meta.shape
    if len(shape) < 2:
        raise ShapeError(f"fan in and fan out need at least 2 dimensions, not shape {list(shape)}")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


_calculate_fan_in_and_fan_out = fans  # as layers of users know it


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"mode is 'fan_in' or 'fan_out', not {mode!r}")
    return fans(tensor)[mode == "fan_out"]


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Any:
    """Evenly spread over [a, b)."""
    if _skipping.on:
        return tensor
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Any:
    """Normally distributed."""
    if _skipping.on:
        return tensor
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def constant_(tensor: Any, val: float) -> Any:
    """The same number everywhere."""
    if _skipping.on:
        return tensor
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Any) -> Any:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Any) -> Any:
    """Zeros."""
    return constant_(tensor, 0.0)


def eye_(tensor: Any) -> Any:
    """Ones on the diagonal of a matrix, else zeros."""
    from ..factories import eye

    if tensor.meta.ndim != 2:
        raise ShapeError(f"eye_: takes a matrix, not shape {list(tensor.meta.shape)}")
    if _skipping.on:
        return tensor
    with no_grad():
        return tensor.copy_(eye(*tensor.meta.shape, dtype=tensor.meta.dtype, device=tensor.meta.device))


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """A convolution's weight that passes its input on."""
    import numpy as np

    from ..factories import tensor as make

    shape = tensor.meta.shape
    if len(shape) not in (3, 4, 5) or shape[0] % groups:
        raise ShapeError(
            f"dirac_: takes 3 to 5 dimensions, the first divided by groups, not {list(shape)} and {groups}"
        )
    if _skipping.on:
        return tensor
    values = np.zeros(shape)
    each = shape[0] // groups
    for group in range(groups):
        for i in range(min(each, shape[1])):
            values[(group * each + i, i, *(n // 2 for n in shape[2:]))] = 1
    with no_grad():
        return tensor.copy_(make(values, dtype=tensor.meta.dtype, device=tensor.meta.device))


def _empty(tensor: Any) -> bool:
    if not tensor.meta.numel:
        warnings.warn("a tensor of no elements has no initial values", stacklevel=3)
    return not tensor.meta.numel


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Generator | None = None) -> Any:
    """U(-a, a), a = gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Generator | None = None) -> Any:
    """N(0, gain² * 2 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def kaiming_uniform_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Any:
    """U(-b, b), b = gain * sqrt(3 / fan) (He et al. 2015)."""
    if _empty(tensor):
        return tensor
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Any:
    """N(0, gain² / fan) (He et al. 2015)."""
    if _empty(tensor):
        return tensor
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


def trunc_normal_(
    tensor: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Any:
    """Normally distributed within [a, b]: a uniform number between the ends' probabilities, through the inverse."""
    if _skipping.on:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            f"trunc_normal_: the mean {mean} is more than 2 deviations outside of [{a}, {b}], so that few numbers are "
            "left to draw from",
            stacklevel=2,
        )
    low, high = (math.erf((edge - mean) / std / math.sqrt(2.0)) for edge in (a, b))
    with no_grad():
        drawn = tensor.uniform_(low, high, generator=generator).erfinv_().mul_(std * math.sqrt(2.0)).add_(mean)
        return tensor.copy_(drawn.clamp(a, b))


def orthogonal_(tensor: Any, gain: float = 1, generator: Generator | None = None) -> Any:
    """A (semi-)orthogonal matrix of the flattened dimensions behind the first (Saxe et al. 2013), found on the host."""
    import numpy as np

    from .. import random
    from ..factories import tensor as make
    from ..runtime import dtypes

    if tensor.meta.ndim < 2:
        raise ShapeError(f"orthogonal_: takes at least 2 dimensions, not shape {list(tensor.meta.shape)}")
    if _skipping.on or not tensor.meta.numel:
        return tensor
    rows = tensor.meta.shape[0]
    columns = tensor.meta.numel // rows
    drawn: Any = random.randn(
        max(rows, columns), min(rows, columns), generator=generator, dtype=dtypes.float32, device="cpu"
    )
    q, r = np.linalg.qr(drawn.numpy().astype(np.float64))
    q = q * np.sign(np.diagonal(r))
    values = (q.T if rows < columns else q).reshape(tensor.meta.shape) * gain
    with no_grad():
        return tensor.copy_(make(values, dtype=tensor.meta.dtype, device=tensor.meta.device))


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Any:
    """Normally distributed, with a fraction `sparsity` of every column 0 (Martens 2010)."""
    from .. import random

    if tensor.meta.ndim != 2:
        raise ShapeError(f"sparse_: takes a matrix, not shape {list(tensor.meta.shape)}")
    if _skipping.on:
        return tensor
    rows, columns = tensor.meta.shape
    normal_(tensor, 0.0, std, generator)
    with no_grad():
        for column in range(columns):
            order: Any = random.randperm(rows, generator=generator, device=tensor.meta.device)
            tensor[:, column].masked_fill_(order < math.ceil(sparsity * rows), 0.0)
    return tensor


def _renamed(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` under the name it had before names of what writes in place ended in an underscore."""
    old = function.__name__[:-1]

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"nn.init.{old} is deprecated: use nn.init.{old}_", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return wrapped


uniform, normal, constant, eye, dirac = (_renamed(f) for f in (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal = _renamed(xavier_uniform_), _renamed(xavier_normal_)
kaiming_uniform, kaiming_normal = _renamed(kaiming_uniform_), _renamed(kaiming_normal_)
orthogonal, sparse = _renamed(orthogonal_), _renamed(sparse_)
