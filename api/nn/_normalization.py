"""Normalisation: what `nn.functional` has of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from .. import pooling
from .._checks import only_tensors
from .._generated import ops as _ops
from ..padding import pad
from ..runtime import views
from ..runtime.autocast import as_for
from ..runtime.errors import ArgumentError, DomainError, DTypeError, IndexOutOfRange, ShapeError, UnsupportedDType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ._standardize import Layout, Standardize, StandardizeFixed

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "normalize",
    "rms_norm",
]


# Rows -----------------------------------------------------------------------------------------------------------------


def _normalized(input: Tensor, shape: int | Sequence[int], where: str, **given: Tensor | None) -> tuple[int, ...]:
    only_tensors(where, input, *(p for p in given.values() if p is not None))
    found = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if any(not isinstance(n, int) for n in found):
        raise ArgumentError(f"{where}: normalized_shape is one int or several, not {shape!r}")
    if not found:
        raise ShapeError(f"{where}: normalized_shape is empty; it must have one dimension at least")
    for name, parameter in given.items():
        if parameter is not None:
            _check_dtype(input, parameter, name, where)
    return found  # type: ignore[return-value]


def _check_dtype(input: Tensor, parameter: Tensor, name: str, where: str) -> None:
    """Parameters have the input's dtype, or are float32 beside a half type."""
    own, wanted = parameter.meta.dtype, input.meta.dtype
    if own is not wanted and not (wanted.itemsize == 2 and own.name == "float32"):
        beside = " or float32" if wanted.itemsize == 2 else ""
        raise DTypeError(f"{where}: {name} is {own.name} beside an input of {wanted.name}; convert it to that{beside}")


def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Trailing dimensions shifted to mean 0 and scaled to variance 1, times weight, plus bias (Ba et al. 2016).

    input: floating, its shape ends in `normalized_shape`, which weight and bias have; they may be float32 beside a
    half type. The result has the input's shape and dtype. Raises `ShapeError` and `DTypeError`.
    """
    shape = _normalized(input, normalized_shape, "layer_norm", weight=weight, bias=bias)
    return _ops.layer_norm(input, shape, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Trailing dimensions divided by the root of their mean square, times weight (Zhang and Sennrich 2019).

    `eps` is the distance from 1 to the next number of the input's dtype unless given; see `layer_norm` for the rest.
    """
    shape = _normalized(input, normalized_shape, "rms_norm", weight=weight)
    if eps is None:
        eps = {"float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(input.meta.dtype.name, 2.0**-23)
    return _ops.rms_norm(input, shape, weight, eps)


# Channels -------------------------------------------------------------------------------------------------------------


def _channels(input: Tensor, where: str, **given: Tensor | None) -> int:
    """The number of channels (dimension 1) of a floating input, which all that is `given` has one of each of."""
    only_tensors(where, input, *(p for p in given.values() if p is not None))
    if input.meta.ndim < 2:
        raise IndexOutOfRange(f"{where}: takes (N, C, ...), not an input of shape {list(input.meta.shape)}")
    if input.meta.dtype.kind != "f":
        raise UnsupportedDType(f"{where}: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    channels = input.meta.shape[1]
    for name, parameter in given.items():
        if parameter is None or (parameter.meta.shape == (channels,) and parameter.meta.dtype is input.meta.dtype):
            continue
        if parameter.meta.shape != (channels,):
            raise ShapeError(
                f"{where}: {name} has shape {list(parameter.meta.shape)}, but there are {channels} channels in an "
                f"input of shape {list(input.meta.shape)}: it must have shape [{channels}]"
            )
        _check_dtype(input, parameter, name, where)
    return channels


def _running(mean: Tensor | None, var: Tensor | None, own: bool, where: str) -> tuple[Tensor, Tensor] | None:
    """Both running statistics, or None. Raises `DomainError` for one of them, or for none where they are needed."""
    if mean is not None and var is not None:
        return mean, var
    if mean is not None or var is not None:
        raise DomainError(f"{where}: running_mean and running_var must both be given, or neither")
    if not own:
        raise DomainError(f"{where}: without statistics of the input, running_mean and running_var must be given")
    return None


def _check_momentum(momentum: object, where: str) -> float:
    if not isinstance(momentum, (int, float)):
        raise ArgumentError(f"{where}: momentum must be a number, not {momentum!r}")
    return float(momentum)


@lru_cache
def _by_channel(shape: tuple[int, ...], first: int) -> Layout:
    """Statistics a channel, over the other dimensions from `first` on."""
    axes = tuple(d for d in range(first, len(shape)) if d != 1)
    return Layout(shape, axes, (1, shape[1]) + (1,) * (len(shape) - 2))


def _fixed(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running: tuple[Tensor, Tensor], eps: float
) -> Tensor:
    layout = replace(_by_channel(input.meta.shape, 0), axes=())
    return StandardizeFixed.apply(input, weight, bias, *running, layout, eps)  # type: ignore[no-any-return]


@lru_cache
def _by_group(shape: tuple[int, ...], groups: int, affine: bool) -> Layout:
    """Statistics a sample's group of channels."""
    rest = shape[2:] or (1,)
    inner = (groups, shape[1] // groups)
    per = (1, *(inner if affine else (1, 1)), *(1 for _ in rest))
    return Layout((shape[0], *inner, *rest), tuple(range(2, len(per))), per)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Channels (dimension 1) in groups, each group of a sample normalised (Wu and He 2018).

    input: (N, C, ...), floating; weight, bias: (C,), of its dtype, or float32 beside a half type.
    Raises `ShapeError` where groups do not divide the channels, `DTypeError` for other dtypes.
    """
    channels = _channels(input, "group_norm", weight=weight, bias=bias)
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(
            f"group_norm: {channels} channels of an input of shape {list(input.meta.shape)} do not fall into "
            f"{num_groups} groups; num_groups must divide them"
        )
    input, weight, bias = as_for(registry["layer_norm"], input, weight, bias)
    layout = _by_group(input.meta.shape, num_groups, weight is not None or bias is not None)
    return Standardize.apply(input, weight, bias, layout, eps, None, 0.0)  # type: ignore[no-any-return]


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Each channel of each sample normalised (Ulyanov et al. 2016), or by running statistics.

    input: (N, C, ...) with more than one element a channel, floating; the others: (C,). With `use_input_stats` the
    running statistics move by `momentum` towards the samples' mean and unbiased variance.
    Raises `ShapeError`, `DTypeError` and `ArgumentError`.
    """
    where = "instance_norm"
    given = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _channels(input, where, **given)
    running = _running(running_mean, running_var, use_input_stats, where)
    momentum = _check_momentum(momentum, where)
    if not use_input_stats and running is not None:
        return _fixed(input, weight, bias, running, eps)
    layout = _by_channel(input.meta.shape, 2)
    if layout.count == 1:
        raise ShapeError(
            f"{where}: needs more than one element a channel of a sample, the input has shape {list(input.meta.shape)}"
        )
    return Standardize.apply(input, weight, bias, layout, eps, running, momentum)  # type: ignore[no-any-return]


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Channels (dimension 1) normalised over all else (Ioffe and Szegedy 2015).

    input: (N, C, ...), floating; the others: (C,), of its dtype, or float32 beside a half type. In training statistics
    are the batch's, and the running ones move towards its mean and unbiased variance by `momentum`; otherwise the
    running ones are used. Raises `ShapeError`, `DTypeError` and `ArgumentError`.
    """
    where = "batch_norm"
    given = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _channels(input, where, **given)
    running = _running(running_mean, running_var, training, where)
    momentum = _check_momentum(momentum, where)
    if not training and running is not None:
        return _fixed(input, weight, bias, running, eps)
    layout = _by_channel(input.meta.shape, 0)
    if layout.count == 1:
        raise ShapeError(
            f"{where}: training needs more than one value a channel, the input has shape {list(input.meta.shape)}"
        )
    if eps <= 0:
        raise ArgumentError(f"{where}: eps must be positive in training, not {eps}")
    return Standardize.apply(input, weight, bias, layout, eps, running, momentum)  # type: ignore[no-any-return]


# Neighbours, lengths --------------------------------------------------------------------------------------------------


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Each element over (k + alpha / size * the sum of squares in `size` neighbouring channels) ** beta.

    input: (N, C, ...) of three dimensions or more, floating (Krizhevsky et al. 2012, section 3.3, where alpha is not
    divided by size). Channels beyond the ends count as 0. Raises `ShapeError`.
    """
    only_tensors("local_response_norm", input)
    shape = input.meta.shape
    if len(shape) < 3:
        raise ShapeError(f"local_response_norm: takes (N, C, ...) of three dimensions or more, not {list(shape)}")
    if not input.meta.numel:
        return input
    squares = views.reshape(_ops.square(input), (shape[0], 1, shape[1], prod(shape[2:])))
    padded = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    mean = views.reshape(pooling.avg_pool2d(padded, (size, 1), stride=1), shape)
    return _ops.true_divide(input, _ops.pow(_ops.add(_ops.mul(mean, alpha), k), beta))


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """`input` divided by its p-norm along `dim`, or by `eps` if that is larger; written to `out` if that is given."""
    if p == 2 and out is None:
        return _ops.normalize_l2(input, dim, eps)
    size = input.norm(p, dim, True)  # type: ignore[attr-defined]
    return _ops.true_divide(input, _ops.clamp_min(size, eps), out=out)
