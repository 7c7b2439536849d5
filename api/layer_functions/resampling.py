"""Resize signals, images and volumes by interpolation (`nn.functional.interpolate`). Weights: `resample_tables`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from ..arguments.types import FloatOrFloats, IntOrInts
from ..runtime import dtypes
from ..runtime.errors import ArgumentError, NotSupported, ShapeError, UnsupportedDType
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .adaptive_pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .resample_tables import Resample, Table, table
from .spatial_arguments import repeat_number

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]

# For each mode: the number of spatial dimensions (0: one to three), and the interpolation along each of them.
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
    """Resize the spatial dimensions of `input`.

    Args:
        input: `(N, C, L)`, `(N, C, H, W)` or `(N, C, D, H, W)`, floating.
        size: Spatial size of the result, one int or one for each dimension. Give this or `scale_factor`.
        scale_factor: Ratio of result to input, one number or one for each dimension.
        mode: "nearest", "nearest-exact" or "area" (any number of dimensions), "linear" (one), "bilinear", "bicubic" or
            "lanczos" (two), "trilinear" (three).
        align_corners: Whether the centres of the corner elements coincide in input and result.
        recompute_scale_factor: Whether to use the ratio of the sizes instead of the factor that was passed.
        antialias: Whether to widen the kernel when shrinking, so that every element counts ("bilinear", "bicubic";
            required for "lanczos").

    Returns:
        `(N, C, *size)` in the dtype of `input`.

    Raises:
        ShapeError: A size is smaller than 1, or the number of sizes is wrong.
        ArgumentError: Options contradict each other.
        NotSupported: The mode does not exist for this number of dimensions.
        UnsupportedDType: The dtype is not floating.

    Example:
        >>> wg.nn.functional.interpolate(wg.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
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
    out_sizes, factors = _sizes(size, scale_factor, spatial)
    if min(out_sizes, default=1) < 1 or min(spatial, default=1) < 1:
        raise ShapeError(
            f"{where}: from {list(spatial)} to {list(out_sizes)}: input and result must have one element at least"
        )
    if recompute_scale_factor or mode == "area":
        factors = (None,) * count
    if mode == "area":
        pool = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[count - 1]
        return pool(input, out_sizes)
    method = _MODES[mode][1]
    float_name = "float64" if input.meta.dtype is dtypes.float64 else "float32"
    passes = []
    for d, (n, input_size, factor) in enumerate(zip(out_sizes, spatial, factors, strict=True), 2):
        resample_table = table(method, input_size, n, factor, align, antialias, float_name)
        if input_size != n or not _is_identity(resample_table):
            passes.append((d, resample_table))
    if not passes:
        return input.clone()
    passes.sort(key=lambda p: p[1].size / p[1].input_size)  # shrink first, so that later passes have less to do
    return Resample.apply(input, tuple(passes))


def _is_identity(resample_table: Table) -> bool:
    """Return True if the table maps every element to itself."""
    weights = resample_table.weights
    is_single_tap = np.count_nonzero(weights) == resample_table.size and np.all(weights.max(0) == 1)
    return bool(
        is_single_tap and np.array_equal(resample_table.first + weights.argmax(0), np.arange(resample_table.size))
    )


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


def _sizes(
    size: IntOrInts | None, scale_factor: FloatOrFloats | None, spatial: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Return the spatial sizes of the result, and the factors if they were passed."""
    where, count = "interpolate", len(spatial)
    if (size is None) == (scale_factor is None):
        raise ArgumentError(f"{where}: give either size or scale_factor")
    if size is not None:
        sizes = repeat_number(size, count)
        _check_count("size", len(sizes), spatial)
        if any(not hasattr(n, "__index__") for n in sizes):
            raise ArgumentError(f"{where}: size must be one integer or several, not {size!r}")
        return tuple(n.__index__() for n in sizes), (None,) * count
    assert scale_factor is not None
    factors = tuple(float(f) for f in repeat_number(scale_factor, count))
    _check_count("scale_factor", len(factors), spatial)
    return tuple(int(n * f) for n, f in zip(spatial, factors, strict=True)), factors


def _check_count(argument: str, count: int, spatial: tuple[int, ...]) -> None:
    if count != len(spatial):
        raise ShapeError(
            f"interpolate: {argument} has {count} numbers, the input {len(spatial)} spatial dimensions: {list(spatial)}"
        )


def upsample(
    input: Tensor, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None,
    mode: str = "nearest", align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """Call `interpolate` under its older name. Warns.

    Args:
        input: `(N, C, *)`, floating.
        size: Spatial size of the result, one int or one per dimension. Pass this or `scale_factor`.
        scale_factor: Ratio of output to input size, one number or one per dimension.
        mode: See `interpolate`.
        align_corners: See `interpolate`.

    Returns:
        Tensor of shape `(N, C, *size)`.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter('ignore')
        ...     wg.nn.functional.upsample(wg.tensor([[[1.0, 2.0]]]), scale_factor=2)
        ...
        tensor([[[1., 1., 2., 2.]]])
    """
    warnings.warn("nn.functional.upsample is interpolate's older name; use that", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None) -> Tensor:
    """Call `interpolate` with mode "nearest". Warns.

    Args:
        input: `(N, C, *)`, floating.
        size: Spatial size of the result, one int or one per dimension. Pass this or `scale_factor`.
        scale_factor: Ratio of output to input size, one number or one per dimension.

    Returns:
        Tensor of shape `(N, C, *size)`.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter('ignore')
        ...     wg.nn.functional.upsample_nearest(wg.tensor([[[1.0, 2.0]]]), scale_factor=2)
        ...
        tensor([[[1., 1., 2., 2.]]])
    """
    warnings.warn("nn.functional.upsample_nearest is older; use interpolate", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(
    input: Tensor, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None
) -> Tensor:
    """Call `interpolate` with mode "bilinear" and `align_corners=True`. Warns.

    Args:
        input: `(N, C, H, W)`, floating.
        size: Spatial size of the result, one int or two. Pass this or `scale_factor`.
        scale_factor: Ratio of output to input size, one number or two.

    Returns:
        Tensor of shape `(N, C, *size)`.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter('ignore')
        ...     wg.nn.functional.upsample_bilinear(wg.tensor([[[[1.0, 2.0]]]]), size=(1, 3))
        ...
        tensor([[[[1.0000, 1.5000, 2.0000]]]])
    """
    warnings.warn("nn.functional.upsample_bilinear is older; use interpolate", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
