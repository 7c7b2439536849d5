"""Dropout: elements, or whole channels, are zero or take the value that `selu` saturates at.

`dropout` keeps no mask: backward draws the same numbers again. Probabilities are of being dropped.
"""

from __future__ import annotations

import warnings
from typing import Any

from .._generated import ops as _ops
from ..factories import ones
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ._activations import _drawn, _floating

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout", "feature_dropout",
]  # fmt: skip

_SATURATION = -1.0507009873554805 * 1.6732632423543772  # selu's limit at minus infinity (Klambauer et al. 2017)


def _probability(p: float, where: str) -> None:
    if not 0 <= p <= 1:
        raise ArgumentError(f"{where}: p is a probability, between 0 and 1, not {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element 0 with probability p, else divided by 1 - p (Srivastava et al. 2014); `input` if not training.

    Raises `ArgumentError`, a `ValueError`, for a p outside of [0, 1]; `UnsupportedDType` for integers.
    """
    _probability(p, "dropout")
    if not training or p == 0:
        return input
    return _drawn("dropout_draw", _floating(input, "dropout"), (float(p), 1.0 / (1.0 - p) if p < 1 else 0.0), inplace)


def _kept(input: Tensor, p: float, scale: float, where: str) -> Any:
    """`scale` for each of the first two dimensions' elements with probability 1 - p, else 0."""
    _floating(input, where)
    if input.meta.ndim < 2:
        raise ShapeError(f"{where}: needs at least 2 dimensions, not shape {list(input.meta.shape)}")
    shape = (*input.meta.shape[:2], *(1,) * (input.meta.ndim - 2))
    one = ones(shape, dtype=input.meta.dtype, device=input.meta.device)
    return _drawn("dropout_draw", one, (float(p), scale), False)


def feature_dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels: of dimensions 0 and 1 together (Tompson et al. 2015)."""
    _probability(p, "feature_dropout")
    if not training or p == 0:
        return input
    kept = _kept(input, p, 1.0 / (1.0 - p) if p < 1 else 0.0, "feature_dropout")
    return input.mul_(kept) if inplace else _ops.mul(input, kept)  # type: ignore[attr-defined,no-any-return]


def _of_channels(input: Tensor, p: float, training: bool, inplace: bool, where: str, batched: bool) -> Tensor:
    _probability(p, where)
    if batched:
        return feature_dropout(input, p, training, inplace)
    found = feature_dropout(input.unsqueeze(0), p, training, inplace)  # type: ignore[attr-defined]
    return input if inplace or not training or p == 0 else found.squeeze(0)  # type: ignore[attr-defined,no-any-return]


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of (N, C, L) or (C, L). Raises `ShapeError` for another number of dimensions."""
    if input.meta.ndim not in (2, 3):
        raise ShapeError(f"dropout1d: takes (N, C, L) or (C, L), not shape {list(input.meta.shape)}; use dropout")
    return _of_channels(input, p, training, inplace, "dropout1d", input.meta.ndim == 3)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of (N, C, H, W). Three dimensions are (N, C, L), with a warning, as in PyTorch."""
    if input.meta.ndim not in (3, 4):
        warnings.warn(_unfit("dropout2d", input, "(N, C, H, W)"), stacklevel=2)
    if input.meta.ndim == 3:
        warnings.warn("dropout2d: three dimensions are taken for (N, C, L); dropout1d says so", stacklevel=2)
    return _of_channels(input, p, training, inplace, "dropout2d", True)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    if input.meta.ndim not in (4, 5):
        warnings.warn(_unfit("dropout3d", input, "(N, C, D, H, W) or (C, D, H, W)"), stacklevel=2)
    return _of_channels(input, p, training, inplace, "dropout3d", input.meta.ndim == 5)


def _unfit(where: str, input: Tensor, wanted: str) -> str:
    return f"{where}: is meant for {wanted}, not shape {list(input.meta.shape)}, which is deprecated; use dropout"


def _alpha(p: float) -> tuple[float, float, float]:
    """Factor and summand of what is kept, and what dropped elements become: mean 0 and variance 1 stay
    (Klambauer et al. 2017, section 3)."""
    scale = ((_SATURATION * _SATURATION * p + 1.0) * (1.0 - p)) ** -0.5
    return scale, -_SATURATION * scale * p, _SATURATION * scale * (1.0 - p)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Each element with probability p the value that `selu` saturates at, then all scaled and shifted so that mean 0
    and variance 1 stay (Klambauer et al. 2017, section 3); `input` if not training, zeros for p = 1."""
    _probability(p, "alpha_dropout")
    if not training or p == 0:
        return input
    if p == 1:
        return dropout(input, 1.0, True, inplace)
    scale, shift, low = _alpha(p)
    one = _ops.full_like_as(_floating(input, "alpha_dropout").detach(), 1, dtype=None)  # type: ignore[attr-defined]
    return _moved(input, _drawn("dropout_draw", one, (float(p), scale), False), scale, shift, low, inplace)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels: of dimensions 0 and 1 together."""
    _probability(p, "feature_alpha_dropout")
    if not training or p == 0:
        return input
    if p == 1:
        return feature_dropout(input, 1.0, True, inplace)
    scale, shift, low = _alpha(p)
    return _moved(input, _kept(input, p, scale, "feature_alpha_dropout"), scale, shift, low, inplace)


def _moved(input: Tensor, kept: Tensor, scale: float, shift: float, low: float, inplace: bool) -> Tensor:
    """input * scale + shift where `kept` is the scale, `low` where it is 0."""
    moved = _ops.add(_ops.mul(kept, (shift - low) / scale), low)
    if inplace:
        return input.mul_(kept).add_(moved)  # type: ignore[attr-defined,no-any-return]
    return _ops.addcmul(moved, input, kept)
