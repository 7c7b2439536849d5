"""Create uninitialised tensors, tensors of one value, and identity matrices. Names and arguments are PyTorch's.

See `from_data` for tensors with the values of lists and arrays, and `sequences` for `arange` and `linspace`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, overload

import numpy as np

from ..arguments.descriptions import LIKE_OPTIONS, OPTIONS, describe
from ..arguments.memory_formats import format_strides
from ..arguments.types import Layout, MemoryFormat, Operand, Sizes
from ..runtime import dtypes, host_data
from ..runtime.context import state
from ..runtime.device import DeviceLike, meta
from ..runtime.device import device as to_device
from ..runtime.dispatch import call, call_into
from ..runtime.dispatch import empty as _empty
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.layout import dense_strides, strides_like
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors, to_dtype_number, to_integer
from .options import allocate_output, finalize_output, resolve_dtype_and_device, shape_of

__all__ = [
    "empty", "empty_like", "empty_permuted", "empty_strided", "eye", "full", "full_like", "ones", "ones_like",
    "scalar_tensor", "zeros", "zeros_like",
]  # fmt: skip


@overload
def empty(
    *size: Sizes, out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def empty(
    *, size: Sizes, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: MemoryFormat | None = None,
) -> Tensor: ...  # fmt: skip
@describe(OPTIONS)
def empty(
    *size: Sizes, out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: MemoryFormat | None = None, **named: Sizes,
) -> Tensor:  # fmt: skip
    """Create an uninitialised tensor. Pass the shape as ints, as one sequence, or as `size=`.

    Returns:
        Tensor of shape `size`, whose elements are undefined.

    Example:
        >>> wg.empty(2, 3).shape
        weftgrad.Size([2, 3])
    """
    output = allocate_output("empty", size, named, dtype, device, out, memory_format)
    return finalize_output(output, "empty", requires_grad, None, layout, pin_memory)


@describe(OPTIONS)
def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Create an uninitialised tensor of shape `size` with strides `stride`, in elements.

    Args:
        size: Shape.
        stride: For each dimension the distance between neighbours, in elements, at least 0.

    Returns:
        Tensor of shape `size`, whose elements are undefined.

    Raises:
        ShapeError: `size` and `stride` differ in length, or one of their numbers is negative.

    Example:
        >>> wg.empty_strided((2, 3), (1, 2)).stride()
        (1, 2)
    """
    shape, strides = shape_of((tuple(size),)), tuple(stride)
    if len(shape) != len(strides):
        raise ShapeError(f"empty_strided: size {list(shape)} and stride {list(strides)} differ in length")
    if any(s < 0 for s in strides):
        raise ShapeError(f"empty_strided: strides must not be negative, got {list(strides)}; use flip() on the tensor")
    output = _empty(meta(dtypes.parse(dtype or dtypes.default_dtype()), shape, strides, to_device(device)))
    return finalize_output(output, "empty_strided", requires_grad)


@describe(OPTIONS)
def empty_permuted(
    size: Sequence[int], physical_layout: Sequence[int], *, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create an uninitialised tensor without gaps whose dimensions are in memory in any order.

    Args:
        size: Shape.
        physical_layout: The dimensions, the outermost one in memory first.

    Returns:
        Tensor of shape `size`, whose elements are undefined.

    Raises:
        ShapeError: `physical_layout` does not have each dimension once.

    Example:
        >>> wg.empty_permuted((2, 3, 4), (0, 2, 1)).stride()
        (12, 1, 3)
    """
    shape = shape_of((tuple(size),))
    order = [to_integer(dim, "empty_permuted", "physical_layout") for dim in physical_layout]
    if sorted(order) != [*range(len(shape))]:
        raise ShapeError(f"empty_permuted: {order} does not have each dimension of {list(shape)} once")
    strides = dense_strides(shape, order[::-1])
    output = _empty(meta(dtypes.parse(dtype or dtypes.default_dtype()), shape, strides, to_device(device)))
    return finalize_output(output, "empty_permuted", requires_grad, None, layout, pin_memory)


@describe(OPTIONS)
def full(
    size: Sequence[SupportsIndex], fill_value: Operand, *, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create a tensor of shape `size` filled with `fill_value`.

    Args:
        size: Shape.
        fill_value: Number, or a tensor of one element.
        dtype: Dtype of the result; None: that of `out`, else bool for a bool, int64 for an int, and the default dtype
            for a float.

    Returns:
        Tensor of shape `size`.

    Raises:
        ArgumentError: `size` is no sequence, or `fill_value` is no number, or an integer dtype cannot hold it.

    Example:
        >>> wg.full((2, 2), 7)
        tensor([[7, 7],
                [7, 7]])
    """
    number = _fill_number(fill_value, "full")
    if not isinstance(size, (tuple, list)):
        raise ArgumentError(f"full: size must be a tuple or list of ints, not {size!r}")
    target_dtype = dtypes.number_dtype(number) if dtype is None and out is None else dtype
    output = _fill_output(allocate_output("full", (tuple(size),), {}, target_dtype, device, out), number, out, "full")
    return finalize_output(output, "full", requires_grad, None, layout, pin_memory)


def _fill_number(value: Operand, where: str) -> bool | int | float:
    """Return a fill value as a Python number. Raises `ArgumentError` for other types."""
    number = value.item() if isinstance(value, (Tensor, np.generic)) else value
    if not isinstance(number, (bool, int, float)):
        raise ArgumentError(f"{where}: the value must be a number, not {value!r}")
    return number


def _fill_output(output: Tensor, number: float, out: Tensor | None, where: str) -> Tensor:
    """Fill a new `output`, or the caller's `out`: only the second is a write that autograd must know of."""
    return _fill_new(output, number, where) if out is None else out.fill_(number)


def _fill_new(output: Tensor, number: float, where: str) -> Tensor:
    """Fill a tensor that nobody has seen yet: its version does not count this write."""
    if output.meta.numel:
        dtype_number = to_dtype_number(number, output.meta.dtype, where)
        # In host memory, do not open a driver for a constant; a mode sees the call.
        if not getattr(output.meta.device.driver, "opened", True) and state().mode is None:
            host_data.fill(output, dtype_number)
            return output
        version = output.storage.version
        call_into(registry["fill"], (output, dtype_number), (), (output,), in_place=False)
        output.storage.version = version
    return output


@overload
def zeros(
    *size: Sizes, out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def zeros(
    *, size: Sizes, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@describe(OPTIONS)
def zeros(
    *size: Sizes, out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False, **named: Sizes,
) -> Tensor:  # fmt: skip
    """Create a tensor of zeros. Pass the shape as ints, as one sequence, or as `size=`.

    Returns:
        Tensor of shape `size`.

    Example:
        >>> wg.zeros(2, 3)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    output = _fill_output(allocate_output("zeros", size, named, dtype, device, out), 0, out, "zeros")
    return finalize_output(output, "zeros", requires_grad, None, layout, pin_memory)


@overload
def ones(
    *size: Sizes, out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def ones(
    *, size: Sizes, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@describe(OPTIONS)
def ones(
    *size: Sizes, out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False, **named: Sizes,
) -> Tensor:  # fmt: skip
    """Create a tensor of ones. Pass the shape as ints, as one sequence, or as `size=`.

    Returns:
        Tensor of shape `size`.

    Example:
        >>> wg.ones(2, dtype=wg.int64)
        tensor([1, 1])
    """
    output = _fill_output(allocate_output("ones", size, named, dtype, device, out), 1, out, "ones")
    return finalize_output(output, "ones", requires_grad, None, layout, pin_memory)


@describe(LIKE_OPTIONS)
def empty_like(
    input: Tensor, *, dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Create an uninitialised tensor with the shape, dtype and device of `input`.

    Args:
        input: Tensor whose shape the result has.

    Returns:
        Tensor of the shape of `input`, whose elements are undefined.

    Example:
        >>> wg.empty_like(wg.ones(2, 3)).shape
        weftgrad.Size([2, 3])
    """
    only_tensors("empty_like", input)
    target_dtype = input.meta.dtype if dtype is None else dtypes.parse(dtype)
    target_device = input.meta.device if device is None else to_device(device)
    if memory_format is None or memory_format == "preserve_format":
        strides: tuple[int, ...] | None = strides_like(input.meta)
    else:
        strides = format_strides("empty_like", memory_format, input.meta.shape)
    output = _empty(meta(target_dtype, input.meta.shape, strides, target_device))
    return finalize_output(output, "empty_like", requires_grad, None, layout, pin_memory)


@describe(LIKE_OPTIONS)
def full_like(
    input: Tensor, fill_value: Operand, *, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Create a tensor with the shape, dtype and device of `input`, filled with `fill_value`.

    Args:
        input: Tensor whose shape the result has.
        fill_value: Number, or a tensor of one element.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        ArgumentError: `fill_value` is no number, or an integer dtype cannot hold it.

    Example:
        >>> wg.full_like(wg.zeros(2), 3)
        tensor([3., 3.])
    """
    only_tensors("full_like", input)
    number = _fill_number(fill_value, "full_like")
    output = _fill_new(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), number, "full_like")
    return finalize_output(output, "full_like", requires_grad, None, layout, pin_memory)


@describe(LIKE_OPTIONS)
def zeros_like(
    input: Tensor, *, dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Create a tensor of zeros with the shape, dtype and device of `input`.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.zeros_like(wg.tensor([1, 2]))
        tensor([0, 0])
    """
    only_tensors("zeros_like", input)
    output = _fill_new(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), 0, "zeros_like")
    return finalize_output(output, "zeros_like", requires_grad, None, layout, pin_memory)


@describe(LIKE_OPTIONS)
def ones_like(
    input: Tensor, *, dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Create a tensor of ones with the shape, dtype and device of `input`.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.ones_like(wg.tensor([1, 2]))
        tensor([1, 1])
    """
    only_tensors("ones_like", input)
    output = _fill_new(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), 1, "ones_like")
    return finalize_output(output, "ones_like", requires_grad, None, layout, pin_memory)


@describe(OPTIONS)
def scalar_tensor(
    value: Operand, *, dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create a 0-d tensor. Unlike `tensor`, it has the default dtype also for an int or a bool.

    Args:
        value: Number, or a tensor of one element.

    Returns:
        Tensor of shape `()`.

    Raises:
        ArgumentError: `value` is no number, or an integer dtype cannot hold it.

    Example:
        >>> wg.scalar_tensor(3)
        tensor(3.)
    """
    number = _fill_number(value, "scalar_tensor")
    output = _fill_new(allocate_output("scalar_tensor", (), {}, dtype, device), number, "scalar_tensor")
    return finalize_output(output, "scalar_tensor", requires_grad, None, layout, pin_memory)


@describe(OPTIONS)
def eye(
    n: int, m: int | None = None, *, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create an `(n, m)` matrix with ones on the main diagonal and zeros elsewhere.

    Args:
        n: Number of rows.
        m: Number of columns; None: `n`.

    Returns:
        Tensor of shape `(n, m)`.

    Raises:
        ArgumentError: `n` or `m` is no integer from 0 on.

    Example:
        >>> wg.eye(2)
        tensor([[1., 0.],
                [0., 1.]])
    """
    rows, columns = (to_integer(k, "eye", name) for k, name in ((n, "n"), (n if m is None else m, "m")))
    target_dtype, target_device = resolve_dtype_and_device(dtype, device, out)
    output = zeros(rows, columns, dtype=target_dtype, device=target_device)
    _fill_new(call(registry["diagonal"], (output,), (0, 0, 1)), 1, "eye")
    return finalize_output(output, "eye", requires_grad, out, layout, pin_memory)
