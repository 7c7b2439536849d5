"""Images read at places that tensors give: `nn.functional.grid_sample` and `affine_grid`.

Jaderberg et al., "Spatial Transformer Networks", 2015. Gradients are in `runtime.autograd.sampling_rules`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import prod

import numpy as np

from ._checks import only_tensors
from ._generated import ops as _ops
from .runtime import dtypes
from .runtime.autocast import as_for
from .runtime.autograd.sampling_rules import composed
from .runtime.context import current_stream
from .runtime.device import meta
from .runtime.dispatch import call, empty
from .runtime.errors import ArgumentError, DTypeError, NotSupported, ShapeError
from .runtime.records import OpRecord, registry
from .runtime.tensor import Tensor
from .runtime.views import contiguous, reshape

__all__ = ["affine_grid", "grid_sample"]

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_MOST = 2**31 - 1  # elements of an image that kernels count
_SAMPLED = OpRecord("grid_sample", "composite", (), autocast=("float32", "widest"))


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
    statics = (mode, padding_mode, bool(align_corners))
    if 0 in input.meta.shape or 0 in grid.meta.shape or prod(input.meta.shape[2:]) > _MOST:
        return composed(input, grid, *statics)
    operands = (contiguous(input), contiguous(grid))
    return call(registry["sample_grid"], operands, statics)  # type: ignore[no-any-return]


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
