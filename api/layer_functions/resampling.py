"""Resize signals, images and volumes by interpolation (`nn.functional.interpolate`).

`resample_tables` computes the weights and applies them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..arguments.types import FloatOrFloats, IntOrInts
from ..runtime import dtypes
from ..runtime.errors import ArgumentError, NotSupported, ShapeError, UnsupportedDType
from ..runtime.modes import call_composite
from ..runtime.records import Operand, OpRecord
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .adaptive_pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .resample_tables import Resample, Table, table
from .spatial_arguments import repeat_number

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]


class _Mode(NamedTuple):
    """A mode of `interpolate`.

    Args:
        method: The interpolation along each dimension.
        ranks: The numbers of spatial dimensions that the mode exists for.
    """

    method: str
    ranks: tuple[int, ...]


_MODES = {
    "nearest": _Mode("nearest", (1, 2, 3)),
    "nearest-exact": _Mode("nearest-exact", (1, 2, 3)),
    "area": _Mode("area", (1, 2, 3)),
    "linear": _Mode("linear", (1,)),
    "bilinear": _Mode("linear", (2,)),
    "bicubic": _Mode("cubic", (2,)),
    "lanczos": _Mode("lanczos", (2,)),
    "trilinear": _Mode("linear", (3,)),
}
# The op that active modes see for an interpolation, instead of one op for each dimension.
_INTERPOLATE = OpRecord(
    "interpolate", "composite", (Operand("input"),), (),
    ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias"),
)  # fmt: skip
_AREA_FUNCTIONS = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}

_UINT8_MODES = ("nearest", "nearest-exact", "bilinear", "bicubic", "lanczos")  # modes that take uint8, as in PyTorch


def interpolate(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest", align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Resize the spatial dimensions of `input`.

    Args:
        input: `(N, C, L)`, `(N, C, H, W)` or `(N, C, D, H, W)`, floating, or uint8 for the modes of images. uint8 is
            computed in float32 and rounded; PyTorch's fixed-point kernels differ by 1, for bicubic by up to 5.
        size: Spatial size of the result, one int or one for each dimension. Pass this or `scale_factor`.
        scale_factor: Ratio of output size to input size, one number or one for each dimension.
        mode: "nearest", "nearest-exact" or "area" (any number of dimensions), "linear" (one), "bilinear", "bicubic" or
            "lanczos" (two), "trilinear" (three).
        align_corners: Whether the centres of the corner elements coincide in input and result.
        recompute_scale_factor: Whether positions are computed with the exact ratio of output size to input size instead
            of `scale_factor`, from which it differs if sizes were rounded.
        antialias: Whether to widen the kernel when shrinking, so that every element counts ("bilinear", "bicubic";
            required for "lanczos").

    Returns:
        `(N, C, *size)` in the dtype of `input`.

    Raises:
        ShapeError: A size is smaller than 1, or the number of sizes is wrong.
        ArgumentError: Options contradict each other.
        NotSupported: The mode does not exist for this number of dimensions.
        UnsupportedDType: The dtype is neither floating nor, for images, uint8.

    Example:
        >>> wg.nn.functional.interpolate(wg.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    only_tensors("interpolate", input)
    input_sizes = input.meta.shape[2:]
    rank = len(input_sizes)
    _check_mode(mode, rank, align_corners, antialias)
    if input.meta.dtype is dtypes.uint8 and mode in _UINT8_MODES:
        resized = interpolate(input.float(), size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
        return resized.round().clamp(0, 255).to(dtypes.uint8)
    if input.meta.dtype.kind != "f":
        raise UnsupportedDType(
            f"interpolate: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()"
        )
    if recompute_scale_factor and size is not None:
        raise ArgumentError("interpolate: recompute_scale_factor needs scale_factor; do not pass it with size")
    output_sizes, factors = _output_sizes(size, scale_factor, input_sizes)
    if min(output_sizes) < 1 or min(input_sizes) < 1:
        raise ShapeError(
            f"interpolate: input and result must have one element at least, not {list(input_sizes)} and "
            f"{list(output_sizes)}"
        )
    if mode == "area":
        return _AREA_FUNCTIONS[rank](input, output_sizes)
    if recompute_scale_factor:
        factors = (None,) * rank
    float_name = "float64" if input.meta.dtype is dtypes.float64 else "float32"
    tables: list[tuple[int, Table]] = []  # by dimension
    for dim, (input_size, output_size, factor) in enumerate(zip(input_sizes, output_sizes, factors, strict=True), 2):
        resample_table = table(
            _MODES[mode].method, input_size, output_size, factor, bool(align_corners), antialias, float_name
        )
        if input_size != output_size or not _is_identity(resample_table):
            tables.append((dim, resample_table))
    if not tables:
        return input.clone()
    tables.sort(key=lambda entry: entry[1].size / entry[1].input_size)  # shrink first: later passes have less to do
    statics = (
        None if size is None else tuple(output_sizes), None if scale_factor is None else tuple(factors), mode,
        bool(align_corners), bool(recompute_scale_factor), bool(antialias),
    )  # fmt: skip
    return call_composite(_INTERPOLATE, (input,), statics, lambda: Resample.apply(input, tuple(tables)))


def _is_identity(resample_table: Table) -> bool:
    """Return True if every output element is the input element at the same index: one weight each, which is 1."""
    weights = resample_table.weights
    if np.count_nonzero(weights) != resample_table.size or not np.all(weights.max(0) == 1):
        return False
    input_indices = resample_table.first + weights.argmax(0)
    return np.array_equal(input_indices, np.arange(resample_table.size))


def _check_mode(mode: str, rank: int, align_corners: bool | None, antialias: bool) -> None:
    """Raise unless `mode` exists for `rank` spatial dimensions and goes with the other options.

    Raises:
        NotSupported: There is no such mode.
        ArgumentError: An option does not go with the mode.
    """
    if mode not in _MODES or rank not in _MODES[mode].ranks:
        names = ", ".join(name for name, entry in _MODES.items() if rank in entry.ranks)
        remedy = f"use one of {names}" if names else "input has one to three of them, after (N, C)"
        raise NotSupported(f"interpolate: there is no mode {mode!r} for {rank} spatial dimensions; {remedy}")
    if align_corners is not None and _MODES[mode].method in ("nearest", "nearest-exact", "area"):
        raise ArgumentError(
            f"interpolate: align_corners is for linear, bilinear, bicubic and trilinear, not for {mode}"
        )
    if antialias and mode not in ("bilinear", "bicubic", "lanczos"):
        raise ArgumentError(f"interpolate: antialias is for bilinear, bicubic and lanczos, not for {mode}")
    if mode == "lanczos" and (align_corners or not antialias):
        raise ArgumentError("interpolate: the mode lanczos needs antialias=True and no align_corners")


def _output_sizes(
    size: IntOrInts | None, scale_factor: FloatOrFloats | None, input_sizes: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Return the spatial sizes of the result, and for each dimension the scale factor, None if `size` was passed."""
    rank = len(input_sizes)
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate: pass either size or scale_factor")
    if size is not None:
        sizes = repeat_number(size, rank)
        _check_count("size", len(sizes), input_sizes)
        if any(not hasattr(n, "__index__") for n in sizes):
            raise ArgumentError(f"interpolate: size must be one integer or several, not {size!r}")
        return tuple(n.__index__() for n in sizes), (None,) * rank
    assert scale_factor is not None
    factors = tuple(float(factor) for factor in repeat_number(scale_factor, rank))
    _check_count("scale_factor", len(factors), input_sizes)
    return tuple(int(n * factor) for n, factor in zip(input_sizes, factors, strict=True)), factors


def _check_count(argument: str, count: int, input_sizes: tuple[int, ...]) -> None:
    if count != len(input_sizes):
        raise ShapeError(
            f"interpolate: {argument} has {count} numbers, but input has {len(input_sizes)} spatial dimensions, of "
            f"sizes {list(input_sizes)}; pass one number, or one for each"
        )


def upsample(
    input: Tensor, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None,
    mode: str = "nearest", align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """Resize the spatial dimensions of `input`. Deprecated: use `interpolate`.

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
    warnings.warn("nn.functional.upsample is deprecated; use interpolate", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None) -> Tensor:
    """Resize the spatial dimensions of `input`. Deprecated: use `interpolate` with the mode "nearest".

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
    warnings.warn("nn.functional.upsample_nearest is deprecated; use interpolate", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(
    input: Tensor, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None
) -> Tensor:
    """Resize images. Deprecated: use `interpolate` with the mode "bilinear" and `align_corners=True`.

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
    warnings.warn("nn.functional.upsample_bilinear is deprecated; use interpolate", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
