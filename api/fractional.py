"""Fractional max pooling (Graham 2014): windows whose distances are drawn so that the output has any smaller size.

Composed of gathering and a maximum; the windows' places are computed on the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ._generated import ops
from .factories import arange
from .joining import cat
from .random import rand
from .runtime import dtypes
from .runtime.errors import ArgumentError, ShapeError
from .runtime.tensor import Tensor

__all__ = [
    "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
]  # fmt: skip


def fractional_max_pool2d_with_indices(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`fractional_max_pool2d`, and the int64 positions of the largest elements, row * W + column."""
    return _pooled("fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d_with_indices(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`fractional_max_pool3d`, and the int64 positions of the largest elements in their volume."""
    return _pooled("fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """The largest elements of windows of (N, C, H, W) or (C, H, W), of `output_size` or `output_ratio` of the input's.

    The places of windows along each dimension are drawn for each channel of each sample, from `_random_samples`, (N, C,
    2) numbers of [0, 1), if given. With `return_indices` a pair. Raises `ShapeError`, `ArgumentError`.
    """
    found = _pooled("fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def fractional_max_pool3d(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """As `fractional_max_pool2d`, of (N, C, D, H, W) or (C, D, H, W); `_random_samples` is (N, C, 3)."""
    found = _pooled("fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def _pooled(
    where: str, rank: int, input: Any, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any
) -> tuple[Tensor, Tensor]:
    shape = input.meta.shape
    if len(shape) not in (rank + 1, rank + 2) or input.meta.dtype.kind != "f":
        raise ShapeError(
            f"{where}: takes floating inputs of {rank + 1} or {rank + 2} dimensions, not {input.meta.dtype.name} of "
            f"shape {list(shape)}"
        )
    sizes = shape[-rank:]
    if (output_size is None) == (output_ratio is None):
        raise ArgumentError(f"{where}: pass either output_size or output_ratio")
    kernel = _numbers(where, "kernel_size", kernel_size, rank)
    if output_size is None:
        ratios = tuple(output_ratio) if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * rank
        wanted: tuple[int, ...] = tuple(int(n * r) for n, r in zip(sizes, ratios, strict=True))
    else:
        wanted = _numbers(where, "output_size", output_size, rank)
    for n, k, m in zip(sizes, kernel, wanted, strict=True):
        if k < 1 or m < 1 or m + k - 1 > n:
            raise ShapeError(
                f"{where}: windows of {list(kernel)} cannot give {list(wanted)} of an input of shape {list(shape)}"
            )
    batched = input if len(shape) == rank + 2 else input.unsqueeze(0)
    batch, channels = batched.meta.shape[:2]
    if samples is None:
        samples = rand(batch, channels, rank, dtype=input.meta.dtype, device=input.meta.device)
    elif samples.meta.shape != (batch, channels, rank):
        raise ShapeError(
            f"{where}: _random_samples must have shape {[batch, channels, rank]}, not {list(samples.meta.shape)}"
        )
    index: Any = None
    for d in range(rank):  # of windows and places in them: (N, C, outputs…, kernel…)
        drawn = samples[..., rank - 1 - d if rank == 2 else d]  # PyTorch's order: columns before rows in two dimensions
        places = _places(drawn, sizes[d], kernel[d], wanted[d])
        spread = [batch, channels, *(1,) * (2 * rank)]
        spread[2 + d], spread[2 + rank + d] = wanted[d], kernel[d]
        places = places.reshape(spread)
        index = places if index is None else ops.add(index * sizes[d], places)
    count = math.prod(kernel)
    index = index.reshape(batch, channels, -1)
    values: Any = ops.gather(batched.reshape(batch, channels, -1), 2, index)
    largest, at = values.reshape(batch, channels, -1, count).max(-1)
    indices = index.reshape(batch, channels, -1, count).gather(3, at.unsqueeze(-1))
    made = (*shape[:-rank], *wanted)
    return largest.reshape(made), indices.reshape(made)


def _places(drawn: Any, size: int, kernel: int, count: int) -> Any:
    """Where the elements of windows along one dimension are: (N, C, count, kernel), int64.

    Window i begins at trunc((i + u) a) - trunc(u a), a = (size - kernel) / (count - 1), u the number drawn; the last
    one ends with the dimension.
    """
    place = drawn.meta.device
    batch, channels = drawn.meta.shape
    last: Any = ops.add(ops.mul(drawn.unsqueeze(-1), 0.0), float(size - kernel))
    begins = last
    if count > 1:
        apart = (size - kernel) / (count - 1)
        u = drawn.unsqueeze(-1)
        steps = arange(count - 1, dtype=drawn.meta.dtype, device=place).reshape(1, 1, -1)  # type: ignore[attr-defined]
        first: Any = ops.sub(ops.trunc(ops.add(steps, u) * apart), ops.trunc(u * apart))
        begins = cat([first, last], 2)
    inside = arange(kernel, dtype=dtypes.int64, device=place).reshape(1, 1, 1, -1)  # type: ignore[attr-defined]
    return ops.add(begins.to(dtypes.int64).reshape(batch, channels, count, 1), inside)


def _numbers(where: str, name: str, value: Any, rank: int) -> tuple[int, ...]:
    found: Sequence[Any] = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(found) != rank or any(isinstance(n, bool) or not isinstance(n, int) for n in found):
        raise ArgumentError(f"{where}: {name} must be {rank} ints, or one, not {value!r}")
    return tuple(found)
