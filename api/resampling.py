"""Interpolation: images, signals and volumes in another size (`nn.functional.interpolate`)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import pooling
from ._checks import only_tensors
from ._resample_tables import Resample, Table, table
from .runtime import dtypes
from .runtime.errors import ArgumentError, NotSupported, ShapeError, UnsupportedDType
from .runtime.tensor import Tensor

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]

# Mode: how many spatial dimensions it is for (0: one to three), and what is done along each.
_MODES = {
    "nearest": (0, "nearest"), "nearest-exact": (0, "nearest-exact"), "linear": (1, "linear"),
    "bilinear": (2, "linear"), "trilinear": (3, "linear"), "bicubic": (2, "cubic"), "lanczos": (2, "lanczos"),
    "area": (0, "area"),
}  # fmt: skip


def interpolate(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest", align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:  # fmt: skip
    """`input` in another size, given itself or by factors.

    input: (N, C, spatial...), floating, of one spatial dimension (linear), two (bilinear, bicubic, lanczos), three
    (trilinear) or any of these (nearest, nearest-exact, area). align_corners: whether the corners' centres stay in
    place. recompute_scale_factor: whether factors count only for the size. antialias: whether a smaller result is made
    of all elements (bilinear, bicubic; lanczos always is).
    Raises `ShapeError`, `ArgumentError`, and `NotSupported` where the mode is not for so many dimensions.
    """
    where = "interpolate"
    only_tensors(where, input)
    spatial = input.meta.shape[2:]
    count = len(spatial)
    align = _check(mode, count, align_corners, antialias)
    if input.meta.dtype.kind != "f":
        raise UnsupportedDType(f"{where}: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    if recompute_scale_factor and size is not None:
        raise ArgumentError(f"{where}: recompute_scale_factor is about scale_factor, and size is given")
    wanted, factors = _sizes(size, scale_factor, spatial)
    if min(wanted, default=1) < 1 or min(spatial, default=1) < 1:
        raise ShapeError(
            f"{where}: from {list(spatial)} to {list(wanted)}: input and result must have one element at least"
        )
    if recompute_scale_factor or mode == "area":
        factors = (None,) * count
    if mode == "area":
        pool = (pooling.adaptive_avg_pool1d, pooling.adaptive_avg_pool2d, pooling.adaptive_avg_pool3d)[count - 1]
        return pool(input, wanted)  # type: ignore[operator, no-any-return]
    along = _MODES[mode][1]
    kind = "float64" if input.meta.dtype is dtypes.float64 else "float32"
    passes = []
    for d, (n, wide, factor) in enumerate(zip(wanted, spatial, factors, strict=True), 2):
        made = table(along, wide, n, factor, align, antialias, kind)
        if wide != n or not _nothing(made):
            passes.append((d, made))
    if not passes:
        return input.clone()  # type: ignore[attr-defined, no-any-return]
    passes.sort(key=lambda p: p[1].size / p[1].wide)  # what makes less of it comes first
    return Resample.apply(input, tuple(passes))  # type: ignore[no-any-return]


def _nothing(made: Table) -> bool:
    """Whether a table gives back what it is given."""
    weights = made.weights
    alone = np.count_nonzero(weights) == made.size and np.all(weights.max(0) == 1)
    return bool(alone and np.array_equal(made.first + weights.argmax(0), np.arange(made.size)))


def _check(mode: str, count: int, align_corners: bool | None, antialias: bool) -> bool:
    where = "interpolate"
    if mode not in _MODES or count not in (1, 2, 3) or _MODES[mode][0] not in (0, count):
        raise NotSupported(
            f"{where}: there is no mode {mode!r} for {count} spatial dimensions; of one there are nearest, "
            "nearest-exact, area and linear, of two bilinear, bicubic and lanczos beside, of three trilinear"
        )
    if align_corners is not None and _MODES[mode][1] in ("nearest", "nearest-exact", "area"):
        raise ArgumentError(f"{where}: align_corners is for linear, bilinear, bicubic and trilinear, not for {mode}")
    if antialias and mode not in ("bilinear", "bicubic", "lanczos"):
        raise ArgumentError(f"{where}: antialias is for bilinear, bicubic and lanczos, not for {mode}")
    if mode == "lanczos" and (align_corners or not antialias):
        raise ArgumentError(f"{where}: lanczos is with antialias=True, and without align_corners")
    return bool(align_corners)


def _sizes(size: Any, scale_factor: Any, spatial: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """The result's spatial sizes, and the factors, where those are given."""
    where, count = "interpolate", len(spatial)
    if (size is None) == (scale_factor is None):
        raise ArgumentError(f"{where}: give either size or scale_factor")
    given = scale_factor if size is None else size
    each = tuple(given) if isinstance(given, (tuple, list)) else (given,) * count
    if len(each) != count:
        raise ShapeError(
            f"{where}: {'scale_factor' if size is None else 'size'} has {len(each)} numbers, the input {count} spatial "
            f"dimensions: {list(spatial)}"
        )
    if size is not None:
        if any(not hasattr(n, "__index__") for n in each):
            raise ArgumentError(f"{where}: size must be one integer or several, not {size!r}")
        return tuple(n.__index__() for n in each), (None,) * count
    factors = tuple(float(f) for f in each)
    return tuple(int(n * f) for n, f in zip(spatial, factors, strict=True)), factors


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """`interpolate`, under its older name."""
    warnings.warn("nn.functional.upsample is interpolate's older name; use that", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` by the nearest element."""
    warnings.warn("nn.functional.upsample_nearest is older; use interpolate", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` of images by lines between corners that stay in place."""
    warnings.warn("nn.functional.upsample_bilinear is older; use interpolate", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
