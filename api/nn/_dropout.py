"""Dropout of elements or of whole channels, and alpha dropout.

`dropout` stores no mask: backward draws the same random numbers again. `p` is the probability of dropping.
"""

from __future__ import annotations

import warnings

from .._generated import ops as _ops
from ..creation.factories import ones
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ._activation_calls import call_random_op, require_floating

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout", "feature_dropout",
]  # fmt: skip

_SELU_LIMIT = -1.0507009873554805 * 1.6732632423543772  # limit of selu at -inf (Klambauer et al. 2017)


def _check_probability(p: float, caller: str) -> None:
    if not 0 <= p <= 1:
        raise ArgumentError(f"{caller}: p is a probability, between 0 and 1, not {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability `p` and divide the others by 1 - p (Srivastava et al. 2014).

    Args:
        input: Floating-point tensor.
        p: Probability of zeroing an element.
        training: False returns the input.
        inplace: Overwrite the input.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ArgumentError: If `p` lies outside [0, 1]. It is also a `ValueError`.
        UnsupportedDType: For integer tensors.

    Example:
        >>> wg.nn.functional.dropout(wg.ones(1000), 0.5).unique()
        tensor([0., 2.])
    """
    _check_probability(p, "dropout")
    if not training or p == 0:
        return input
    return call_random_op(
        "dropout_draw", require_floating(input, "dropout"), (float(p), 1.0 / (1.0 - p) if p < 1 else 0.0), inplace
    )


def _draw_channel_mask(input: Tensor, p: float, scale: float, caller: str) -> Tensor:
    """Return `scale` with probability 1 - p, otherwise 0, for each element of the first two dimensions."""
    require_floating(input, caller)
    if input.meta.ndim < 2:
        raise ShapeError(f"{caller}: needs at least 2 dimensions, not shape {list(input.meta.shape)}")
    shape = (*input.meta.shape[:2], *(1,) * (input.meta.ndim - 2))
    channel_ones = ones(shape, dtype=input.meta.dtype, device=input.meta.device)
    return call_random_op("dropout_draw", channel_ones, (float(p), scale), False)


def feature_dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Apply `dropout` to whole channels, that is, to dimensions 0 and 1 together (Tompson et al. 2015).

    Args:
        input: Tensor of shape `(N, C, *)`.
        p: Probability with which a channel is dropped.
        training: Whether to drop elements; False returns `input`.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> y = wg.nn.functional.feature_dropout(wg.ones(100, 3, 4), 0.5)
        >>> y.unique()
        tensor([0., 2.])
        >>> wg.equal(y.amin(2), y.amax(2))  # a channel is dropped as a whole
        True
    """
    _check_probability(p, "feature_dropout")
    if not training or p == 0:
        return input
    channel_mask = _draw_channel_mask(input, p, 1.0 / (1.0 - p) if p < 1 else 0.0, "feature_dropout")
    return input.mul_(channel_mask) if inplace else _ops.mul(input, channel_mask)


def _drop_channels(input: Tensor, p: float, training: bool, inplace: bool, caller: str, is_batched: bool) -> Tensor:
    _check_probability(p, caller)
    if is_batched:
        return feature_dropout(input, p, training, inplace)
    output = feature_dropout(input.unsqueeze(0), p, training, inplace)
    return input if inplace or not training or p == 0 else output.squeeze(0)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Apply `dropout` to whole channels of `(N, C, L)` or `(C, L)`.

    Args:
        input: Tensor of shape `(N, C, L)` or `(C, L)`.
        p: Probability with which a channel is dropped.
        training: Whether to drop elements; False returns `input`.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ShapeError: If `input` has another number of dimensions.

    Example:
        >>> y = wg.nn.functional.dropout1d(wg.ones(100, 3, 4), 0.5)
        >>> y.unique()
        tensor([0., 2.])
        >>> wg.equal(y.amin(2), y.amax(2))  # a channel is dropped as a whole
        True
    """
    if input.meta.ndim not in (2, 3):
        raise ShapeError(f"dropout1d: takes (N, C, L) or (C, L), not shape {list(input.meta.shape)}; use dropout")
    return _drop_channels(input, p, training, inplace, "dropout1d", input.meta.ndim == 3)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Apply `dropout` to whole channels of `(N, C, H, W)`.

    As in PyTorch, 3-D input is treated as `(N, C, L)`, with a warning.

    Args:
        input: Tensor of shape `(N, C, H, W)`.
        p: Probability with which a channel is dropped.
        training: Whether to drop elements; False returns `input`.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> y = wg.nn.functional.dropout2d(wg.ones(100, 3, 4, 4), 0.5)
        >>> y.unique()
        tensor([0., 2.])
        >>> wg.equal(y.amin((2, 3)), y.amax((2, 3)))  # a channel is dropped as a whole
        True
    """
    if input.meta.ndim not in (3, 4):
        warnings.warn(_unexpected_shape_message("dropout2d", input, "(N, C, H, W)"), stacklevel=2)
    if input.meta.ndim == 3:
        warnings.warn("dropout2d: 3-D input is treated as (N, C, L); use dropout1d for it", stacklevel=2)
    return _drop_channels(input, p, training, inplace, "dropout2d", True)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Apply `dropout` to whole channels of `(N, C, D, H, W)` or `(C, D, H, W)`.

    Args:
        input: Tensor of shape `(N, C, D, H, W)` or `(C, D, H, W)`.
        p: Probability with which a channel is dropped.
        training: Whether to drop elements; False returns `input`.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> y = wg.nn.functional.dropout3d(wg.ones(100, 3, 4, 4, 4), 0.5)
        >>> y.unique()
        tensor([0., 2.])
        >>> wg.equal(y.amin((2, 3, 4)), y.amax((2, 3, 4)))  # a channel is dropped as a whole
        True
    """
    if input.meta.ndim not in (4, 5):
        warnings.warn(_unexpected_shape_message("dropout3d", input, "(N, C, D, H, W) or (C, D, H, W)"), stacklevel=2)
    return _drop_channels(input, p, training, inplace, "dropout3d", input.meta.ndim == 5)


def _unexpected_shape_message(caller: str, input: Tensor, expected: str) -> str:
    return f"{caller}: is meant for {expected}, not shape {list(input.meta.shape)}, which is deprecated; use dropout"


def _alpha_dropout_constants(p: float) -> tuple[float, float, float]:
    """Return (scale, shift, value of dropped elements) that preserve mean 0 and variance 1.

    Source: Klambauer et al. 2017, section 3.
    """
    scale = ((_SELU_LIMIT * _SELU_LIMIT * p + 1.0) * (1.0 - p)) ** -0.5
    return scale, -_SELU_LIMIT * scale * p, _SELU_LIMIT * scale * (1.0 - p)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Set each element with probability `p` to selu's limit at -inf, then scale and shift all.

    Scale and shift preserve mean 0 and variance 1. Source: Klambauer et al. 2017, section 3.

    Without `training`, return the input. For p = 1, return zeros.

    Args:
        input: Tensor of shape `(*)`.
        p: Probability with which an element is dropped.
        training: Whether to drop elements; False returns `input`.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.alpha_dropout(wg.ones(100, 3), 0.5, training=True).unique().shape
        weftgrad.Size([2])
    """
    _check_probability(p, "alpha_dropout")
    if not training or p == 0:
        return input
    if p == 1:
        return dropout(input, 1.0, True, inplace)
    scale, shift, dropped_value = _alpha_dropout_constants(p)
    input_ones = _ops.full_like_as(require_floating(input, "alpha_dropout").detach(), 1, dtype=None)
    return _apply_alpha_mask(
        input,
        call_random_op("dropout_draw", input_ones, (float(p), scale), False),
        scale,
        shift,
        dropped_value,
        inplace,
    )


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Apply `alpha_dropout` to whole channels, that is, to dimensions 0 and 1 together.

    Args:
        input: Tensor of shape `(N, C, *)`.
        p: Probability with which a channel is dropped.
        training: Whether to drop elements; False returns `input`.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.feature_alpha_dropout(wg.ones(100, 3, 4), 0.5, training=True).unique().shape
        weftgrad.Size([2])
    """
    _check_probability(p, "feature_alpha_dropout")
    if not training or p == 0:
        return input
    if p == 1:
        return feature_dropout(input, 1.0, True, inplace)
    scale, shift, dropped_value = _alpha_dropout_constants(p)
    return _apply_alpha_mask(
        input, _draw_channel_mask(input, p, scale, "feature_alpha_dropout"), scale, shift, dropped_value, inplace
    )


def _apply_alpha_mask(
    input: Tensor, mask: Tensor, scale: float, shift: float, dropped_value: float, inplace: bool
) -> Tensor:
    """Return input * scale + shift where `mask` is the scale, and `dropped_value` where it is 0."""
    offset = _ops.add(_ops.mul(mask, (shift - dropped_value) / scale), dropped_value)
    if inplace:
        return input.mul_(mask).add_(offset)
    return _ops.addcmul(offset, input, mask)
