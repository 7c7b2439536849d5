"""Sample images at arbitrary points: `nn.functional.grid_sample` and `affine_grid`.

Jaderberg et al., "Spatial Transformer Networks", 2015. Gradients are in `runtime.autograd.sampling_rules`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import prod

import numpy as np

from .._generated import ops as _ops
from ..runtime import dtypes
from ..runtime.autocast import autocast_operands
from ..runtime.autograd.sampling_rules import sample_grid_by_ops
from ..runtime.context import current_stream
from ..runtime.device import meta
from ..runtime.dispatch import call, empty
from ..runtime.errors import ArgumentError, DTypeError, NotSupported, ShapeError
from ..runtime.records import OpRecord, registry
from ..runtime.tensor import Tensor
from ..runtime.views import contiguous, reshape
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["affine_grid", "grid_sample"]

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_MAX_IMAGE_NUMEL = 2**31 - 1  # kernels index an image with 32 bits
_GRID_SAMPLE_RECORD = OpRecord("grid_sample", "composite", (), autocast=("float32", "widest"))


def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """Sample `input` at the points of `grid`.

    Args:
        input: `(N, C, H, W)` or `(N, C, D, H, W)`, floating.
        grid: `(N, OH, OW, 2)` or `(N, OD, OH, OW, 3)` of the same dtype: coordinates x, y (and z) in [-1, 1].
        mode: "bilinear", "nearest" or "bicubic" (2-d only).
        padding_mode: Value outside of the image: "zeros", "border", or "reflection".
        align_corners: Whether -1 and 1 are the centres of the corner pixels; otherwise they are the outer edges.

    Returns:
        `(N, C, OH, OW)` or `(N, C, OD, OH, OW)`.

    Raises:
        ShapeError: The shapes do not fit.
        DTypeError: The dtypes are not one floating dtype.
        ArgumentError: An unknown mode.
        NotSupported: "bicubic" with a 5-d input.

    Example:
        >>> wg.nn.functional.grid_sample(wg.ones(1, 3, 4, 4), wg.zeros(1, 2, 2, 2), align_corners=False).shape
        weftgrad.Size([1, 3, 2, 2])
    """
    where = "grid_sample"
    only_tensors(where, input, grid)
    if mode not in _MODES or padding_mode not in _PADDINGS:
        raise ArgumentError(
            f"{where}: mode is one of {', '.join(_MODES)} and padding_mode of {', '.join(_PADDINGS)}, not {mode!r} and "
            f"{padding_mode!r}"
        )
    input, grid = autocast_operands(_GRID_SAMPLE_RECORD, input, grid)
    _check(input, grid, mode)
    if align_corners is None:
        _warn(where)
    statics = (mode, padding_mode, bool(align_corners))
    if 0 in input.meta.shape or 0 in grid.meta.shape or prod(input.meta.shape[2:]) > _MAX_IMAGE_NUMEL:
        return sample_grid_by_ops(input, grid, *statics)
    operands = (contiguous(input), contiguous(grid))
    return call(registry["sample_grid"], operands, statics)


def _check(input: Tensor, grid: Tensor, mode: str) -> None:
    message = f"grid_sample: input {list(input.meta.shape)}, grid {list(grid.meta.shape)}"
    count = input.meta.ndim - 2
    if count not in (2, 3) or grid.meta.ndim != input.meta.ndim:
        raise ShapeError(f"{message}: both have four dimensions, or five")
    if grid.meta.shape[0] != input.meta.shape[0] or grid.meta.shape[-1] != count:
        raise ShapeError(f"{message}: grid must be ({input.meta.shape[0]}, ..., {count})")
    if 0 in input.meta.shape[2:]:
        raise ShapeError(f"{message}: there is nothing to sample")
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
    """Return the sampling grid of an affine transformation, for `grid_sample`.

    Args:
        theta: Affine matrices, `(N, 2, 3)` or `(N, 3, 4)`, floating.
        size: Size of the result of `grid_sample`: `(N, C, H, W)` or `(N, C, D, H, W)`.
        align_corners: See `grid_sample`.

    Returns:
        `(N, H, W, 2)` or `(N, D, H, W, 3)`.

    Raises:
        ShapeError: The shapes do not fit.
        ArgumentError: `theta` is not floating.
        NotSupported: `size` has another number of dimensions.

    Example:
        >>> identity = wg.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
        >>> wg.nn.functional.affine_grid(identity, (1, 1, 2, 2), align_corners=False).shape
        weftgrad.Size([1, 2, 2, 2])
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
    # The edges are at -1 and 1. Without align_corners, the centres of the outer pixels are half a pixel inside.
    axes = [(np.linspace(-1, 1, n) if n > 1 else np.zeros(1)) * (1 if align_corners else (n - 1) / n) for n in spatial]
    coordinates = np.meshgrid(*axes, indexing="ij")
    base = np.stack([*reversed(coordinates), np.ones(spatial)], -1).reshape(-1, count + 1)
    compute_dtype = dtypes.float32 if theta.meta.dtype.itemsize == 2 else theta.meta.dtype
    base_points = empty(meta(compute_dtype, base.shape, None, theta.meta.device))
    theta.meta.device.driver.write(
        base_points.storage, 0, base.astype(compute_dtype.numpy), current_stream(theta.meta.device)
    )
    matrix = theta if theta.meta.dtype is compute_dtype else _ops.copy(theta, dtype=compute_dtype)
    grid = _ops.matmul_batched(base_points, _ops.transpose(matrix, 1, 2))
    grid = reshape(grid, (size[0], *spatial, count))
    return grid if grid.meta.dtype is theta.meta.dtype else _ops.copy(grid, dtype=theta.meta.dtype)
