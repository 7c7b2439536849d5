"""Fractional max pooling (Graham, "Fractional max-pooling", 2014): random window positions give any output size.

It is composed of a gather and a maximum; the device computes the window positions.
"""

from __future__ import annotations

import math
from typing import Literal, overload

from .._generated import ops
from ..arguments.types import FloatOrFloats, IntOrInts
from ..creation.sequences import arange
from ..random import rand
from ..runtime import dtypes
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ..shape.joining import cat
from .spatial_arguments import repeat_number

__all__ = [
    "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
]  # fmt: skip


def fractional_max_pool2d_with_indices(
    input: Tensor, kernel_size: IntOrInts, output_size: IntOrInts | None = None,
    output_ratio: FloatOrFloats | None = None, return_indices: bool = False, _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return `fractional_max_pool2d` and the int64 positions `row * W + column` of the maxima.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`, floating.
        kernel_size: Window size, one int or two.
        output_size: Spatial size of the result, one int or two. Pass this or `output_ratio`.
        output_ratio: Ratio of output to input size, one number or two.
        return_indices: Ignored: positions are always returned.
        _random_samples: `(N, C, 2)` numbers in [0, 1) that determine the windows of each channel; None: random ones.

    Returns:
        (maxima, positions), both of shape `(N, C, *output_size)` or `(C, *output_size)`.

    Raises:
        ShapeError: Shapes or sizes do not fit.
        ArgumentError: Not exactly one of `output_size` and `output_ratio` is passed.

    Example:
        >>> wg.nn.functional.fractional_max_pool2d_with_indices(wg.ones(1, 4, 4), 2, output_size=2)[1].shape
        weftgrad.Size([1, 2, 2])
    """
    return _fractional_max_pool(
        "fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, _random_samples
    )


def fractional_max_pool3d_with_indices(
    input: Tensor, kernel_size: IntOrInts, output_size: IntOrInts | None = None,
    output_ratio: FloatOrFloats | None = None, return_indices: bool = False, _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return `fractional_max_pool3d` and the int64 positions of the maxima in their volume.

    Args:
        input: `(N, C, D, H, W)` or `(C, D, H, W)`, floating.
        kernel_size: Window size, one int or three.
        output_size: Spatial size of the result, one int or three. Pass this or `output_ratio`.
        output_ratio: Ratio of output to input size, one number or three.
        return_indices: Ignored: positions are always returned.
        _random_samples: `(N, C, 3)` numbers in [0, 1) that determine the windows of each channel; None: random ones.

    Returns:
        (maxima, positions), both of shape `(N, C, *output_size)` or `(C, *output_size)`.

    Raises:
        ShapeError: Shapes or sizes do not fit.
        ArgumentError: Not exactly one of `output_size` and `output_ratio` is passed.

    Example:
        >>> wg.nn.functional.fractional_max_pool3d_with_indices(wg.ones(1, 4, 4, 4), 2, output_size=2)[1].shape
        weftgrad.Size([1, 2, 2, 2])
    """
    return _fractional_max_pool(
        "fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, _random_samples
    )


@overload
def fractional_max_pool2d(
    input: Tensor, kernel_size: IntOrInts, output_size: IntOrInts | None = None,
    output_ratio: FloatOrFloats | None = None, return_indices: Literal[False] = False,
    _random_samples: Tensor | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def fractional_max_pool2d(
    input: Tensor, kernel_size: IntOrInts, output_size: IntOrInts | None = None,
    output_ratio: FloatOrFloats | None = None, *, return_indices: Literal[True],
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def fractional_max_pool2d(
    input: Tensor, kernel_size: IntOrInts, output_size: IntOrInts | None, output_ratio: FloatOrFloats | None,
    return_indices: bool, _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def fractional_max_pool2d(
    input: Tensor, kernel_size: IntOrInts, output_size: IntOrInts | None = None,
    output_ratio: FloatOrFloats | None = None, return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Return the maxima of randomly placed windows.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`, floating.
        kernel_size: Window size, one int or two.
        output_size: Spatial size of the result, one int or two. Give this or `output_ratio`.
        output_ratio: Ratio of output to input size, one number or two.
        return_indices: Whether to return also the int64 positions `row * W + column` of the maxima.
        _random_samples: `(N, C, 2)` numbers in [0, 1) that determine the windows of each channel; random by default.

    Returns:
        Tensor of shape `(N, C, *output_size)` or `(C, *output_size)`; with `return_indices`, also the positions.

    Raises:
        ShapeError: Shapes or sizes do not fit.
        ArgumentError: Not exactly one of `output_size` and `output_ratio` is passed.

    Example:
        >>> wg.nn.functional.fractional_max_pool2d(wg.ones(1, 4, 4), 2, output_size=2)
        tensor([[[1., 1.],
                 [1., 1.]]])
    """
    pooled = _fractional_max_pool(
        "fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, _random_samples
    )
    return pooled if return_indices else pooled[0]


@overload
def fractional_max_pool3d(
    input: Tensor, kernel_size: IntOrInts, output_size: IntOrInts | None = None,
    output_ratio: FloatOrFloats | None = None, return_indices: Literal[False] = False,
    _random_samples: Tensor | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def fractional_max_pool3d(
    input: Tensor, kernel_size: IntOrInts, output_size: IntOrInts | None = None,
    output_ratio: FloatOrFloats | None = None, *, return_indices: Literal[True],
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def fractional_max_pool3d(
    input: Tensor, kernel_size: IntOrInts, output_size: IntOrInts | None, output_ratio: FloatOrFloats | None,
    return_indices: bool, _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def fractional_max_pool3d(
    input: Tensor, kernel_size: IntOrInts, output_size: IntOrInts | None = None,
    output_ratio: FloatOrFloats | None = None, return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Do the same as `fractional_max_pool2d` in three spatial dimensions.

    Args:
        input: `(N, C, D, H, W)` or `(C, D, H, W)`, floating.
        kernel_size: Window size, one int or three.
        output_size: Spatial size of the result, one int or three. Pass this or `output_ratio`.
        output_ratio: Ratio of output to input size, one number or three.
        return_indices: Whether to return also the int64 positions of the maxima in their volume.
        _random_samples: `(N, C, 3)` numbers in [0, 1) that determine the windows of each channel; None: random ones.

    Returns:
        Tensor of shape `(N, C, *output_size)` or `(C, *output_size)`; with `return_indices`, also the positions.

    Raises:
        ShapeError: Shapes or sizes do not fit.
        ArgumentError: Not exactly one of `output_size` and `output_ratio` is passed.

    Example:
        >>> wg.nn.functional.fractional_max_pool3d(wg.ones(1, 4, 4, 4), 2, output_size=2).shape
        weftgrad.Size([1, 2, 2, 2])
    """
    pooled = _fractional_max_pool(
        "fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, _random_samples
    )
    return pooled if return_indices else pooled[0]


def _fractional_max_pool(
    where: str, rank: int, input: Tensor, kernel_size: IntOrInts, output_size: IntOrInts | None,
    output_ratio: FloatOrFloats | None, samples: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    shape = input.meta.shape
    if len(shape) not in (rank + 1, rank + 2) or input.meta.dtype.kind != "f":
        raise ShapeError(
            f"{where}: takes floating inputs of {rank + 1} or {rank + 2} dimensions, not {input.meta.dtype.name} of "
            f"shape {list(shape)}"
        )
    sizes = shape[-rank:]
    if (output_size is None) == (output_ratio is None):
        raise ArgumentError(f"{where}: pass either output_size or output_ratio")
    kernel = _int_sizes(where, "kernel_size", kernel_size, rank)
    if output_ratio is not None:
        ratios = repeat_number(output_ratio, rank)
        out_sizes: tuple[int, ...] = tuple(int(n * r) for n, r in zip(sizes, ratios, strict=True))
    else:
        out_sizes = _int_sizes(where, "output_size", output_size, rank)
    if not shape[-rank - 1]:
        raise ShapeError(f"{where}: takes at least one channel, not an input of shape {list(shape)}")
    for n, k, m in zip(sizes, kernel, out_sizes, strict=True):
        if k < 1 or m < 1 or m + k - 1 > n:
            raise ShapeError(
                f"{where}: windows of {list(kernel)} cannot give {list(out_sizes)} of an input of shape {list(shape)}"
            )
    batched = input if len(shape) == rank + 2 else input.unsqueeze(0)
    batch, channels = batched.meta.shape[:2]
    if samples is None:
        samples = rand(batch, channels, rank, dtype=input.meta.dtype, device=input.meta.device)
    elif samples.meta.shape != (batch, channels, rank):
        raise ShapeError(
            f"{where}: _random_samples must have shape {[batch, channels, rank]}, not {list(samples.meta.shape)}"
        )
    output_shape = (*shape[:-rank], *out_sizes)
    if not batch:
        rows = batched.reshape(batch, channels * math.prod(sizes))
        no_maxima = rows[:, : math.prod(output_shape[1:])].reshape(output_shape)  # empty, with a gradient
        return no_maxima, input.new_empty(output_shape, dtype=dtypes.int64)
    index: Tensor | None = None
    for d in range(rank):  # index grows to (N, C, *out_sizes, *kernel)
        axis_samples = samples[
            ..., rank - 1 - d if rank == 2 else d
        ]  # PyTorch's order: columns before rows in two dimensions
        positions = _window_positions(axis_samples, sizes[d], kernel[d], out_sizes[d])
        broadcast_shape = [batch, channels, *(1,) * (2 * rank)]
        broadcast_shape[2 + d], broadcast_shape[2 + rank + d] = out_sizes[d], kernel[d]
        positions = positions.reshape(broadcast_shape)
        index = positions if index is None else ops.add(index * sizes[d], positions)
    assert index is not None
    count = math.prod(kernel)
    index = index.reshape(batch, channels, -1)
    values = ops.gather(batched.reshape(batch, channels, -1), 2, index)
    largest, window_index = values.reshape(batch, channels, -1, count).max(-1)
    indices = index.reshape(batch, channels, -1, count).gather(3, window_index.unsqueeze(-1))
    return largest.reshape(output_shape), indices.reshape(output_shape)


def _window_positions(samples: Tensor, size: int, kernel: int, count: int) -> Tensor:
    """Return the int64 positions `(N, C, count, kernel)` of the window elements along one dimension.

    Window i begins at trunc((i + u) * a) - trunc(u * a), with a = (size - kernel) / (count - 1) and the random sample
    u. The last window ends at the end of the dimension.
    """
    device = samples.meta.device
    batch, channels = samples.meta.shape
    last = ops.add(ops.mul(samples.unsqueeze(-1), 0.0), float(size - kernel))
    starts = last
    if count > 1:
        spacing = ops.true_divide(last, float(count - 1))  # rounded to the dtype of the samples, as in PyTorch
        u = samples.unsqueeze(-1)
        steps = arange(count - 1, dtype=samples.meta.dtype, device=device).reshape(1, 1, -1)
        first = ops.sub(ops.trunc(ops.mul(ops.add(steps, u), spacing)), ops.trunc(ops.mul(u, spacing)))
        starts = cat([first, last], 2)
    offsets = arange(kernel, dtype=dtypes.int64, device=device).reshape(1, 1, 1, -1)
    return ops.add(starts.to(dtypes.int64).reshape(batch, channels, count, 1), offsets)


def _int_sizes(where: str, name: str, value: object, rank: int) -> tuple[int, ...]:
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    ints = tuple(n for n in sizes if isinstance(n, int) and not isinstance(n, bool))
    if len(ints) != rank or len(sizes) != rank:
        raise ArgumentError(f"{where}: {name} must be {rank} ints, or one, not {value!r}")
    return ints
