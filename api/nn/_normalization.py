"""The normalization functions of `nn.functional`: argument checks and the choice of layout.

Layer and RMS norm are one op each. Batch, group and instance norm share `_standardize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from .._generated import ops as _ops
from ..layer_functions import pooling
from ..layer_functions.padding import pad
from ..runtime import views
from ..runtime.autocast import autocast_operands
from ..runtime.errors import ArgumentError, DomainError, DTypeError, IndexOutOfRange, ShapeError, UnsupportedDType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from ._standardize import Layout, RunningStatistics, StandardizeFixed, standardize

__all__ = [
    "batch_norm",
    "batch_norm_with_count",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "normalize",
    "rms_norm",
]


# Rows -----------------------------------------------------------------------------------------------------------------


def _check_normalized_shape(
    input: Tensor, shape: int | Sequence[int], caller: str, **params: Tensor | None
) -> tuple[int, ...]:
    only_tensors(caller, input, *(p for p in params.values() if p is not None))
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if any(not isinstance(n, int) for n in sizes):
        raise ArgumentError(f"{caller}: normalized_shape is one int or several, not {shape!r}")
    if not sizes:
        raise ShapeError(f"{caller}: normalized_shape is empty; it must have at least one dimension")
    for name, parameter in params.items():
        if parameter is not None:
            _check_dtype(input, parameter, name, caller)
    return sizes


def _check_dtype(input: Tensor, parameter: Tensor, name: str, caller: str) -> None:
    """Raise `DTypeError` unless a parameter has the input's dtype, or is float32 with a half-precision input."""
    param_dtype, input_dtype = parameter.meta.dtype, input.meta.dtype
    if param_dtype is not input_dtype and not (input_dtype.itemsize == 2 and param_dtype.name == "float32"):
        alternative = " or float32" if input_dtype.itemsize == 2 else ""
        raise DTypeError(
            f"{caller}: {name} is {param_dtype.name}, the input is {input_dtype.name}; convert it to that{alternative}"
        )


def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize the trailing dimensions to mean 0 and variance 1 (Ba et al. 2016, arXiv 1607.06450).

    Args:
        input: Floating-point tensor whose shape ends in `normalized_shape`.
        normalized_shape: Sizes of the trailing dimensions.
        weight: Factor of shape `normalized_shape`; the input's dtype, or float32 with a half-precision input.
        bias: Summand of the same shape and dtype.
        eps: Added to the biased variance.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: If shapes do not fit.
        DTypeError: If dtypes do not fit.

    Example:
        >>> wg.nn.functional.layer_norm(wg.tensor([[1.0, 3.0]]), (2,))
        tensor([[-1.0000,  1.0000]])
    """
    shape = _check_normalized_shape(input, normalized_shape, "layer_norm", weight=weight, bias=bias)
    return _ops.layer_norm(input, shape, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide the trailing dimensions by their root mean square (Zhang and Sennrich 2019, arXiv 1910.07467).

    Args:
        input: Floating-point tensor whose shape ends in `normalized_shape`.
        normalized_shape: Sizes of the trailing dimensions.
        weight: Factor of shape `normalized_shape`; the input's dtype, or float32 with a half-precision input.
        eps: Added to the mean square; None means the machine epsilon of the input's dtype.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.rms_norm(wg.tensor([[3.0, 3.0]]), (2,))
        tensor([[1., 1.]])
    """
    shape = _check_normalized_shape(input, normalized_shape, "rms_norm", weight=weight)
    if eps is None:
        eps = {"float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(input.meta.dtype.name, 2.0**-23)
    return _ops.rms_norm(input, shape, weight, eps)


# Channels -------------------------------------------------------------------------------------------------------------


def _check_channel_params(input: Tensor, caller: str, **params: Tensor | None) -> int:
    """Return the number of channels (dimension 1). Raise an error unless all `params` have one element per channel."""
    only_tensors(caller, input, *(p for p in params.values() if p is not None))
    if input.meta.ndim < 2:
        raise IndexOutOfRange(f"{caller}: takes (N, C, ...), not an input of shape {list(input.meta.shape)}")
    if input.meta.dtype.kind != "f":
        raise UnsupportedDType(f"{caller}: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    channels = input.meta.shape[1]
    for name, parameter in params.items():
        if parameter is None or (parameter.meta.shape == (channels,) and parameter.meta.dtype is input.meta.dtype):
            continue
        if parameter.meta.shape != (channels,):
            raise ShapeError(
                f"{caller}: {name} has shape {list(parameter.meta.shape)}, but there are {channels} channels in an "
                f"input of shape {list(input.meta.shape)}: it must have shape [{channels}]"
            )
        _check_dtype(input, parameter, name, caller)
    return channels


def _check_running_stats(
    mean: Tensor | None, var: Tensor | None, uses_input_stats: bool, caller: str
) -> RunningStatistics | None:
    """Return both running statistics, or None.

    Raise `DomainError` if only one is passed, or none where they are needed.
    """
    if mean is not None and var is not None:
        return RunningStatistics(mean, var)
    if mean is not None or var is not None:
        raise DomainError(f"{caller}: running_mean and running_var must both be given, or neither")
    if not uses_input_stats:
        raise DomainError(
            f"{caller}: running_mean and running_var are needed, because the input's statistics are not used"
        )
    return None


def _check_momentum(momentum: object, caller: str) -> float:
    if not isinstance(momentum, (int, float)):
        raise ArgumentError(f"{caller}: momentum must be a number, not {momentum!r}")
    return float(momentum)


@lru_cache
def _channel_layout(shape: tuple[int, ...], first: int) -> Layout:
    """Return the layout with one statistic per channel, over the other dimensions from `first` on."""
    axes = tuple(d for d in range(first, len(shape)) if d != 1)
    return Layout(shape, axes, (1, shape[1]) + (1,) * (len(shape) - 2))


def _normalize_by_running_stats(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running: RunningStatistics, eps: float
) -> Tensor:
    layout = replace(_channel_layout(input.meta.shape, 0), axes=())
    return StandardizeFixed.apply(input, weight, bias, running.mean, running.variance, layout, eps)


@lru_cache
def _group_layout(shape: tuple[int, ...], groups: int, affine: bool) -> Layout:
    """Return the layout with one statistic per sample and group of channels."""
    spatial = shape[2:] or (1,)
    group_shape = (groups, shape[1] // groups)
    param_shape = (1, *(group_shape if affine else (1, 1)), *(1 for _ in spatial))
    return Layout((shape[0], *group_shape, *spatial), tuple(range(2, len(param_shape))), param_shape, groups)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalize groups of channels of each sample to mean 0 and variance 1 (Wu and He 2018, arXiv 1803.08494).

    Args:
        input: `(N, C, *)`, floating-point.
        num_groups: Number of groups, a divisor of C.
        weight: Factor per channel, `(C)`; the input's dtype, or float32 with a half-precision input.
        bias: Summand per channel, `(C)`.
        eps: Added to the biased variance.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: If `num_groups` does not divide C.
        DTypeError: If dtypes do not fit.

    Example:
        >>> wg.nn.functional.group_norm(wg.tensor([[[1.0], [3.0]]]), 1)
        tensor([[[-1.0000],
                 [ 1.0000]]])
    """
    channels = _check_channel_params(input, "group_norm", weight=weight, bias=bias)
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(
            f"group_norm: {channels} channels of an input of shape {list(input.meta.shape)} cannot be split into "
            f"{num_groups} groups; num_groups must divide them"
        )
    input, weight, bias = autocast_operands(registry["layer_norm"], input, weight, bias)
    layout = _group_layout(input.meta.shape, num_groups, weight is not None or bias is not None)
    return standardize(input, weight, bias, layout, eps)


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalize each channel of each sample (Ulyanov et al. 2016, arXiv 1607.08022), or by running statistics.

    Args:
        input: `(N, C, *)`, floating-point, with more than one element per channel of a sample.
        running_mean: `(C)`, updated in place if `use_input_stats`.
        running_var: `(C)`, updated in place with the unbiased variance.
        weight: Factor per channel, `(C)`.
        bias: Summand per channel, `(C)`.
        use_input_stats: Normalize by the input's statistics; False uses the running ones.
        momentum: Weight of the input's statistics in the update.
        eps: Added to the variance.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: If shapes do not fit.
        DTypeError: If dtypes do not fit.
        DomainError: If running statistics are missing.

    Example:
        >>> wg.nn.functional.instance_norm(wg.tensor([[[1.0, 3.0]]]))
        tensor([[[-1.0000,  1.0000]]])
    """
    caller = "instance_norm"
    params = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _check_channel_params(input, caller, **params)
    running = _check_running_stats(running_mean, running_var, use_input_stats, caller)
    momentum = _check_momentum(momentum, caller)
    if not use_input_stats and running is not None:
        return _normalize_by_running_stats(input, weight, bias, running, eps)
    layout = _channel_layout(input.meta.shape, 2)
    if layout.count == 1:
        raise ShapeError(
            f"{caller}: needs more than one element per channel of a sample, got shape {list(input.meta.shape)}"
        )
    return standardize(input, weight, bias, layout, eps, running, momentum)


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalize each channel over the batch and all positions (Ioffe and Szegedy 2015, arXiv 1502.03167).

    Args:
        input: `(N, C, *)`, floating-point.
        running_mean: `(C)`, updated in place in training.
        running_var: `(C)`, updated in place with the unbiased variance.
        weight: Factor per channel, `(C)`; the input's dtype, or float32 with a half-precision input.
        bias: Summand per channel, `(C)`.
        training: Normalize by the batch's statistics; False uses the running ones.
        momentum: Weight of the batch's statistics in the update.
        eps: Added to the variance.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: If shapes do not fit.
        DTypeError: If dtypes do not fit.
        ArgumentError: If `momentum` is not a number, or `eps` is not positive in training.

    Example:
        >>> wg.nn.functional.batch_norm(wg.tensor([[1.0], [3.0]]), None, None, training=True)
        tensor([[-1.0000],
                [ 1.0000]])
    """
    return batch_norm_with_count(input, running_mean, running_var, weight, bias, training, momentum, eps, None)


def batch_norm_with_count(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, training: bool, momentum: float, eps: float, batches: Tensor | None,
) -> Tensor:  # fmt: skip
    """Compute `batch_norm`, and add 1 to `batches`, one int64, if there are running statistics to update."""
    caller = "batch_norm"
    params = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _check_channel_params(input, caller, **params)
    running = _check_running_stats(running_mean, running_var, training, caller)
    momentum = _check_momentum(momentum, caller)
    if not training and running is not None:
        return _normalize_by_running_stats(input, weight, bias, running, eps)
    if running is not None:
        running = running._replace(batches=batches)
    layout = _channel_layout(input.meta.shape, 0)
    if layout.count == 1:
        raise ShapeError(
            f"{caller}: training needs more than one value per channel, the input has shape {list(input.meta.shape)}"
        )
    if eps <= 0:
        raise ArgumentError(f"{caller}: eps must be positive in training, not {eps}")
    return standardize(input, weight, bias, layout, eps, running, momentum)


# Neighboring channels, vector norms -----------------------------------------------------------------------------------


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Divide by (k + alpha / size * sum of squares of `size` neighboring channels) ** beta.

    Krizhevsky et al. 2012, section 3.3, where alpha is not divided by size. Channels beyond the ends count as 0.

    Args:
        input: `(N, C, *)` with at least three dimensions, floating-point.
        size: Number of channels in the window.
        alpha: Factor of the mean square.
        beta: Exponent.
        k: Summand.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: For fewer than three dimensions.

    Example:
        >>> wg.nn.functional.local_response_norm(wg.zeros(1, 3, 2), 3).shape
        weftgrad.Size([1, 3, 2])
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
    """Divide `input` by max(||input||_p, eps) along `dim`.

    Args:
        input: The tensor.
        p: Order of the norm.
        dim: Dimension of the vectors.
        eps: Smallest divisor.
        out: Tensor for the result.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.normalize(wg.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    if p == 2 and out is None:
        return _ops.normalize_l2(input, dim, eps)
    norm = input.norm(p, dim, True)
    return _ops.true_divide(input, _ops.clamp_min(norm, eps), out=out)
