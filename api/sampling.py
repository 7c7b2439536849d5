"""Images read at places that tensors give: `nn.functional.grid_sample` and `affine_grid`.

What is read is a sum over neighbours, each gathered, so the gradient with respect to the image is a scatter that adds
in a fixed order; that with respect to the places comes from the weights (Jaderberg et al., "Spatial Transformer
Networks", 2015, sections 3.2 and 3.3). Made of ops that are differentiable, any number of times.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from math import prod

import numpy as np

from ._checks import only_tensors
from ._generated import ops as _ops
from .runtime import dtypes
from .runtime.autocast import as_for
from .runtime.context import current_stream
from .runtime.device import meta
from .runtime.dispatch import empty
from .runtime.errors import ArgumentError, DTypeError, NotSupported, ShapeError
from .runtime.records import OpRecord
from .runtime.tensor import Tensor
from .runtime.views import reshape

__all__ = ["affine_grid", "grid_sample"]

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_KEYS = -0.75  # the cubic kernel's slope (Keys 1981)

# An element that a sample reads along one dimension: its place (int64), and its weight.
_Tap = tuple[Tensor, Tensor | None]


_SAMPLED = OpRecord("grid_sample", "composite", (), autocast=("float32", "widest"))  # for it is made of many ops


def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """`input` read at the places of `grid`.

    input: (N, C, H, W) or (N, C, D, H, W), floating. grid: (N, ..., 2 or 3) of its dtype: x, y and z from -1 to 1,
    which are the corners' centres with `align_corners`, the outer edges otherwise. The result is (N, C, ...).
    padding_mode: what lies outside, zeros, the border, or the image reflected. bicubic is for images.
    Raises `ShapeError`, `DTypeError`, `ArgumentError` and `NotSupported`.
    """
    where = "grid_sample"
    only_tensors(where, input, grid)
    if mode not in _MODES or padding_mode not in _PADDINGS:
        raise ArgumentError(
            f"{where}: mode is one of {', '.join(_MODES)} and padding_mode of {', '.join(_PADDINGS)}, not {mode!r} and "
            f"{padding_mode!r}"
        )
    input, grid = as_for(_SAMPLED, input, grid)
    _check(input, grid, mode)
    if align_corners is None:
        _warn(where)
    own = input.meta.dtype
    if own.itemsize == 2:
        input, grid = (_ops.copy(t, dtype=dtypes.float32) for t in (input, grid))
    batch, channels, *spatial = input.meta.shape
    places = grid.meta.shape[1:-1]
    flat = reshape(input, (batch, channels, prod(spatial)))
    axes = []
    for number, size in enumerate(reversed(spatial)):  # x, the first number, is for the last dimension
        at = reshape(_ops.select(grid, -1, number), (batch, 1, prod(places)))
        axes.append(_taps(at, size, prod(spatial), mode, padding_mode, bool(align_corners)))
    total: Tensor | None = None
    for several in itertools.product(*axes):
        value, weight = _read(flat, several, tuple(reversed(spatial)))
        if total is None:
            total = value if weight is None else _ops.mul(value, weight)
        else:
            total = _ops.addcmul(total, value, 1.0 if weight is None else weight)
    assert total is not None
    out = reshape(total, (batch, channels, *places))
    return out if own is out.meta.dtype else _ops.copy(out, dtype=own)


def _check(input: Tensor, grid: Tensor, mode: str) -> None:
    shown = f"grid_sample: input {list(input.meta.shape)}, grid {list(grid.meta.shape)}"
    count = input.meta.ndim - 2
    if count not in (2, 3) or grid.meta.ndim != input.meta.ndim:
        raise ShapeError(f"{shown}: both have four dimensions, or five")
    if grid.meta.shape[0] != input.meta.shape[0] or grid.meta.shape[-1] != count:
        raise ShapeError(f"{shown}: grid must be ({input.meta.shape[0]}, ..., {count})")
    if 0 in input.meta.shape[2:]:
        raise ShapeError(f"{shown}: there is nothing to sample")
    if input.meta.dtype.kind != "f" or grid.meta.dtype is not input.meta.dtype:
        raise DTypeError(
            f"grid_sample: input is {input.meta.dtype.name} and grid {grid.meta.dtype.name}; both must be of one "
            "floating dtype"
        )
    if mode == "bicubic" and count == 3:
        raise NotSupported("grid_sample: bicubic is for images, inputs of four dimensions")


def _warn(where: str) -> None:
    warnings.warn(f"{where}: align_corners is taken as False; say which of the two is meant", stacklevel=3)


def _read(flat: Tensor, taps: Sequence[_Tap], sizes: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """The elements at one combination of taps, 0 where one of these lies outside; and their weights."""
    place, weight = taps[0]
    stride = 1
    for (own, scale), before in zip(taps[1:], sizes, strict=False):
        stride *= before
        place = _ops.linear_index(own, place, stride)
        weight = scale if weight is None or scale is None else _ops.mul(weight, scale)
    batch, channels, _ = flat.meta.shape
    return _ops.gather(flat, 2, _ops.expand(place, (batch, channels, place.meta.shape[-1]))), weight


def _taps(at: Tensor, size: int, elements: int, mode: str, padding: str, align: bool) -> list[_Tap]:
    """What samples at `at` (from -1 to 1) read along a dimension of `size`, of an image of so many elements."""
    # ((at + 1) * size - 1) / 2, or (at + 1) * (size - 1) / 2
    x = _ops.grid_place(at, (size - 1) / 2 if align else size / 2, 0.0 if align else 0.5)
    far = -float(1 << elements.bit_length())  # so far outside that whatever is added, it is no place
    found: list[_Tap] = []
    if mode == "bicubic":
        below = _ops.floor(x.detach())  # type: ignore[attr-defined]
        t = _ops.sub(x, below)
        weights = [_far(_ops.add(t, 1.0)), _near(t), _near(_ops.sub(1.0, t)), _far(_ops.sub(2.0, t))]
        for k, weight in enumerate(weights, -1):
            whole = _ops.round(_padded(_ops.add(below, float(k)), size, padding, align))
            found.append((_ops.grid_tap(whole, 0.0, float(size), far if padding == "zeros" else 0.0), weight))
        return found
    x = _padded(x, size, padding, align)
    if mode == "nearest":
        whole = _ops.round(x.detach())  # type: ignore[attr-defined]
        place = _ops.grid_tap(whole, 0.0, float(size), far if padding == "zeros" else 0.0)
        # The places have a gradient, of zeros.
        return [(place, _ops.add(_ops.mul(_ops.sign(x), 0.0), 1.0) if at.needs else None)]
    seen = x.detach()  # type: ignore[attr-defined]
    above = _ops.sub(x, _ops.floor(seen))
    for k, weight in enumerate((_ops.sub(1.0, above), above)):
        # At the border the further neighbour, which lies outside, has the weight 0.
        found.append((_ops.grid_tap(seen, float(k), float(size), far), weight))
    return found


def _near(t: Tensor) -> Tensor:
    """Keys' kernel at distances up to 1."""
    return _ops.add(_ops.mul(_ops.mul(_ops.sub(_ops.mul(t, _KEYS + 2), _KEYS + 3), t), t), 1.0)


def _far(t: Tensor) -> Tensor:
    """Keys' kernel at distances from 1 to 2."""
    inner = _ops.add(_ops.mul(_ops.sub(_ops.mul(t, _KEYS), 5 * _KEYS), t), 8 * _KEYS)
    return _ops.sub(_ops.mul(inner, t), 4 * _KEYS)


def _padded(x: Tensor, size: int, padding: str, align: bool) -> Tensor:
    """Places outside moved to where their values come from."""
    if padding == "zeros":
        return x
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        if span == 0:
            return _ops.mul(x, 0.0)
        away = _ops.abs(_ops.sub(x, low))
        turns = _ops.floor(_ops.true_divide(away.detach(), span))  # type: ignore[attr-defined]
        rest = _ops.sub(away, _ops.mul(turns, span))
        even = _ops.eq(_ops.remainder(turns, 2.0), 0.0)
        x = _ops.add(_ops.where(even, rest, _ops.sub(span, rest)), low)
    last = float(size - 1)
    return _ops.where(_ops.gt(x, 0.0), _ops.where(_ops.lt(x, last), x, last), 0.0)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Places for `grid_sample` that an affine map of the result's own places gives.

    theta: (N, 2, 3) for a size of (N, C, H, W), the grid is (N, H, W, 2); (N, 3, 4) for (N, C, D, H, W), it is
    (N, D, H, W, 3). Raises `ShapeError`, `ArgumentError` and `NotSupported`.
    """
    where = "affine_grid"
    only_tensors(where, theta)
    if align_corners is None:
        _warn(where)
    count = len(size) - 2
    if count not in (2, 3):
        raise NotSupported(f"{where}: size is (N, C, H, W) or (N, C, D, H, W), not {tuple(size)}")
    if theta.meta.dtype.kind != "f":
        raise ArgumentError(f"{where}: theta must be floating, not {theta.meta.dtype.name}; convert with .float()")
    if theta.meta.shape != (size[0], count, count + 1) or min(size) < 1:
        raise ShapeError(
            f"{where}: for a size of {tuple(size)} theta must have shape {[size[0], count, count + 1]}, not "
            f"{list(theta.meta.shape)}, and no size may be 0"
        )
    spatial = tuple(size[2:])
    # Edges are at -1 and 1; without align_corners centres of cells lie half a cell inside of them.
    lines = [(np.linspace(-1, 1, n) if n > 1 else np.zeros(1)) * (1 if align_corners else (n - 1) / n) for n in spatial]
    across = np.meshgrid(*lines, indexing="ij")
    base = np.stack([*reversed(across), np.ones(spatial)], -1).reshape(-1, count + 1)
    wide = dtypes.float32 if theta.meta.dtype.itemsize == 2 else theta.meta.dtype
    places = empty(meta(wide, base.shape, None, theta.meta.device))
    theta.meta.device.driver.write(places.storage, 0, base.astype(wide.numpy), current_stream(theta.meta.device))
    given = theta if theta.meta.dtype is wide else _ops.copy(theta, dtype=wide)
    found = _ops.matmul_batched(places, _ops.transpose(given, 1, 2))
    found = reshape(found, (size[0], *spatial, count))
    return found if found.meta.dtype is theta.meta.dtype else _ops.copy(found, dtype=theta.meta.dtype)
