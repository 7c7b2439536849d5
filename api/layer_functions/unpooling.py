"""Max unpooling: put the maxima of a pooling back at their positions, and zeros elsewhere.

Shapes and arguments are those of `max_pooling`, whose inverse this is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..arguments.types import IntOrInts
from ..autograd import Function
from ..creation.factories import zeros
from ..indexing.bounds import check_bounds
from ..runtime import dtypes, views
from ..runtime.dispatch import call
from ..runtime.errors import DTypeError, IndexOutOfRange, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .spatial_arguments import spatial_sizes, to_size, window_sizes

if TYPE_CHECKING:
    from ..autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        saved_tensors: tuple[Tensor]


__all__ = ["max_unpool1d", "max_unpool2d", "max_unpool3d"]


class _Unpool(Function):
    """Scatter elements of shape `(..., count)` into zeros of shape `(..., length)`.

    As in PyTorch, every element gets the gradient at its position, even if another element with the same position
    overwrote it. Where windows of the pooling overlapped, such elements are the same maximum.
    """

    @staticmethod
    def forward(ctx: _Context, input: Tensor, indices: Tensor, length: int) -> Tensor:
        ctx.save_for_backward(indices)
        output = zeros((*input.meta.shape[:-1], length), dtype=input.meta.dtype, device=input.meta.device)
        return call(registry["scatter"], (output, indices, input), (input.meta.ndim - 1,))

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None, None]:
        (indices,) = ctx.saved_tensors
        return call(registry["gather"], (grad, indices), (grad.meta.ndim - 1,)), None, None


def _max_unpool(
    where: str, rank: int, input: Tensor, indices: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None,
    padding: IntOrInts, output_size: Sequence[int] | None,
) -> Tensor:  # fmt: skip
    """Compute `where`, the unpooling of `rank` spatial dimensions."""
    only_tensors(where, input, indices)
    shape = input.meta.shape
    if indices.meta.dtype is not dtypes.int64:
        raise DTypeError(f"{where}: indices must be int64, not {indices.meta.dtype.name}; convert them with .long()")
    if indices.meta.shape != shape:
        raise ShapeError(f"{where}: indices have shape {list(indices.meta.shape)}, the input {list(shape)}")
    input_sizes = spatial_sizes(input, rank, where)
    kernel = window_sizes(kernel_size, rank, where, "kernel_size", 1)
    strides = kernel if stride is None else window_sizes(stride, rank, where, "stride", 1)
    paddings = window_sizes(padding, rank, where, "padding", 0)
    sizes = tuple(
        (n - 1) * step + window - 2 * pad
        for n, window, step, pad in zip(input_sizes, kernel, strides, paddings, strict=True)
    )
    if output_size is not None:
        sizes = _requested_sizes(where, output_size, sizes, strides)
    if min(sizes) < 0:
        raise ShapeError(f"{where}: the output would have size {list(sizes)}; pass an output_size or less padding")
    length = math.prod(sizes)
    batch_shape = shape[:-rank]
    positions = views.reshape(indices, (*batch_shape, math.prod(input_sizes)))
    try:
        check_bounds(positions, length, where)
    except IndexOutOfRange as error:  # PyTorch raises a RuntimeError here, not an IndexError
        raise ShapeError(f"{error}: each channel of the output has size {list(sizes)}") from None
    flat = views.reshape(input, (*batch_shape, math.prod(input_sizes)))
    return views.reshape(_Unpool.apply(flat, positions, length), (*batch_shape, *sizes))


def _requested_sizes(
    where: str, output_size: Sequence[int], default_sizes: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the spatial sizes of `output_size`. Raises `ShapeError` unless they pool to the size of the input."""
    rank = len(default_sizes)
    output_shape = tuple(to_size(n, where, "output_size") for n in output_size)
    sizes = output_shape[2:] if len(output_shape) == rank + 2 else output_shape
    if len(sizes) != rank:
        raise ShapeError(f"{where}: output_size has {rank} or {rank + 2} elements, not {len(output_shape)}")
    if any(not n - step < size < n + step for n, step, size in zip(default_sizes, strides, sizes, strict=True)):
        ranges = ", ".join(f"{n - step + 1} to {n + step - 1}" for n, step in zip(default_sizes, strides, strict=True))
        raise ShapeError(f"{where}: output_size {list(sizes)} is out of range: {ranges} pool to the input")
    return sizes


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put the maxima of `max_pool1d` back at their positions; all other elements are 0.

    Args:
        input: The maxima: `(N, C, L)` or `(C, L)`.
        indices: int64 positions, as the pooling returned them.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        output_size: Spatial size of the result, with or without N and C; None: the default size, as in `max_unpool2d`.

    Returns:
        Tensor of spatial size `output_size`.

    Raises:
        DTypeError: `indices` is not int64.
        ShapeError: An index is out of range, or pooling a result of `output_size` would not give the size of `input`.

    Example:
        >>> maxima, indices = wg.nn.functional.max_pool1d_with_indices(wg.tensor([[1.0, 3.0, 2.0, 6.0]]), 2)
        >>> wg.nn.functional.max_unpool1d(maxima, indices, 2)
        tensor([[0., 3., 0., 6.]])
    """
    return _max_unpool("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put the maxima of `max_pool2d` back at their positions; all other elements are 0.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`.
        indices: int64 positions from `max_pool2d`, in the shape of `input`. If several elements have the same position,
            the last one wins.
        kernel_size: Size of the window, as it was passed to `max_pool2d`.
        stride: Distance between windows, as it was passed to `max_pool2d`; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension, as it was passed to `max_pool2d`.
        output_size: Spatial size of the result, with or without N and C; None: the default size,
            `(n - 1) * stride + kernel_size - 2 * padding`. Pass it if the pooled tensor had another size.

    Returns:
        Tensor of spatial size `output_size`.

    Raises:
        DTypeError: `indices` is not int64.
        ShapeError: An index is out of range, or pooling a result of `output_size` would not give the size of `input`.

    Example:
        >>> maxima, indices = wg.nn.functional.max_pool2d_with_indices(wg.tensor([[[1.0, 3.0], [2.0, 6.0]]]), 2)
        >>> wg.nn.functional.max_unpool2d(maxima, indices, 2)
        tensor([[[0., 0.],
                 [0., 6.]]])
    """
    return _max_unpool("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put the maxima of `max_pool3d` back at their positions; all other elements are 0.

    Args:
        input: The maxima: `(N, C, D, H, W)` or `(C, D, H, W)`.
        indices: int64 positions, as the pooling returned them.
        kernel_size: Size of the window: one int, or one for each spatial dimension.
        stride: Distance between windows; None: `kernel_size`.
        padding: Elements added at both ends of each spatial dimension.
        output_size: Spatial size of the result, with or without N and C; None: the default size, as in `max_unpool2d`.

    Returns:
        Tensor of spatial size `output_size`.

    Raises:
        DTypeError: `indices` is not int64.
        ShapeError: An index is out of range, or pooling a result of `output_size` would not give the size of `input`.

    Example:
        >>> volume = wg.tensor([[[[1.0, 3.0], [2.0, 6.0]]]])
        >>> maxima, indices = wg.nn.functional.max_pool3d_with_indices(volume, (1, 2, 2))
        >>> wg.nn.functional.max_unpool3d(maxima, indices, (1, 2, 2))
        tensor([[[[0., 0.],
                  [0., 6.]]]])
    """
    return _max_unpool("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)
