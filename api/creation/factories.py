"""Create tensors that are filled with a value, or not at all. Names and arguments are PyTorch's.

`from_data` creates tensors from data, `sequences` from a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, overload

import numpy as np

from ..arguments.descriptions import LIKE_OPTIONS, OPTIONS, describe
from ..arguments.types import Layout, MemoryFormat, Number, Operand, Sizes
from ..runtime import dtypes, host_data
from ..runtime.context import state
from ..runtime.device import DeviceLike, meta
from ..runtime.device import device as to_device
from ..runtime.dispatch import call, call_into
from ..runtime.dispatch import empty as _empty
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.layout import strides_like
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors, to_dtype_number, to_integer
from .options import allocate_output, finalize_output, resolve_dtype_and_device, shape_of

__all__ = [
    "empty", "empty_like", "empty_strided", "eye", "full", "full_like", "ones", "ones_like", "scalar_tensor", "zeros",
    "zeros_like",
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
    output = allocate_output("empty", size, named, dtype, device, out)
    return finalize_output(output, "empty", requires_grad, None, layout, pin_memory)


@describe(OPTIONS)
def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Create an uninitialised tensor of shape `size` with strides `stride`, in elements.

    Args:
        size: Shape.
        stride: Distance between neighbours along each dimension, in elements.

    Returns:
        Tensor of shape `size`, whose elements are undefined.

    Example:
        >>> wg.empty_strided((2, 3), (1, 2)).stride()
        (1, 2)
    """
    target_dtype = dtypes.parse(dtype or dtypes.default_dtype())
    output = _empty(meta(target_dtype, shape_of((tuple(size),)), tuple(stride), to_device(device)))
    return finalize_output(output, "empty_strided", requires_grad)


@describe(OPTIONS)
def full(
    size: Sequence[SupportsIndex], fill_value: Operand, *, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create a tensor of shape `size` filled with `fill_value`.

    Without `dtype`, the number's type decides the dtype.

    Args:
        size: Shape.
        fill_value: Number, or a tensor of one element.
        dtype: Dtype of the result; None: bool, int64 or the default dtype, by the number's type.

    Returns:
        Tensor of shape `size`.

    Raises:
        ArgumentError: `size` is no sequence, or `fill_value` is no number.

    Example:
        >>> wg.full((2, 2), 7)
        tensor([[7, 7],
                [7, 7]])
    """
    if isinstance(fill_value, (Tensor, np.generic)):
        fill_value = fill_value.item()
    if not isinstance(size, (tuple, list)):
        raise ArgumentError(f"full: size must be a tuple of ints, not {size!r}")
    if not isinstance(fill_value, (bool, int, float)):
        raise ArgumentError(f"full: the value must be a number, not {fill_value!r}")
    target_dtype = dtypes.number_dtype(fill_value) if dtype is None and out is None else dtype
    output = _fill_output(allocate_output("full", (tuple(size),), {}, target_dtype, device, out), fill_value, out)
    return finalize_output(output, "full", requires_grad, None, layout, pin_memory)


def _fill_output(output: Tensor, value: Operand, out: Tensor | None) -> Tensor:
    return _fill_constant(output, value) if out is None else out.fill_(value)


def _fill_constant(output: Tensor, value: Operand) -> Tensor:
    if output.meta.numel:
        number = to_dtype_number(value, output.meta.dtype, "full")
        if (
            not getattr(output.meta.device.driver, "opened", True) and state().mode is None
        ):  # host memory: do not open a driver for a constant
            host_data.fill(output, number)
            return output
        version = output.storage.version
        call_into(registry["fill"], (output, number), (), (output,), in_place=False)
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
    output = _fill_output(allocate_output("zeros", size, named, dtype, device, out), 0, out)
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
    output = _fill_output(allocate_output("ones", size, named, dtype, device, out), 1, out)
    return finalize_output(output, "ones", requires_grad, None, layout, pin_memory)


@describe(LIKE_OPTIONS)
def empty_like(
    input: Tensor, *, dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Create an uninitialised tensor with the shape, dtype and device of `input`.

    It has the strides of `input` if these are dense, or row-major ones with `memory_format=contiguous_format`.

    Args:
        input: Tensor whose shape the result has.
        memory_format: `contiguous_format`: row-major strides; else the strides of `input` if they are dense.

    Returns:
        Tensor of the shape of `input`, whose elements are undefined.

    Example:
        >>> wg.empty_like(wg.ones(2, 3)).shape
        weftgrad.Size([2, 3])
    """
    only_tensors("empty_like", input)
    target_dtype = input.meta.dtype if dtype is None else dtypes.parse(dtype)
    target_device = input.meta.device if device is None else to_device(device)
    strides = None if memory_format == "contiguous_format" else strides_like(input.meta)
    output = _empty(meta(target_dtype, input.meta.shape, strides, target_device))
    return finalize_output(output, "empty_like", requires_grad, None, layout, pin_memory)


@describe(LIKE_OPTIONS)
def full_like(
    input: Tensor, fill_value: Number, *, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Create a tensor with the shape, dtype and device of `input`, filled with `fill_value`.

    Args:
        input: Tensor whose shape the result has.
        fill_value: Number.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.full_like(wg.zeros(2), 3)
        tensor([3., 3.])
    """
    only_tensors("full_like", input)
    output = _fill_constant(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), fill_value)
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
    output = _fill_constant(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), 0)
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
    output = _fill_constant(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), 1)
    return finalize_output(output, "ones_like", requires_grad, None, layout, pin_memory)


@describe(OPTIONS)
def scalar_tensor(
    value: Operand, *, dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create a 0-d tensor, of the default dtype unless `dtype` is set.

    Args:
        value: Number.

    Returns:
        Tensor of shape `()`.

    Example:
        >>> wg.scalar_tensor(3)
        tensor(3.)
    """
    return full(
        (), value, dtype=dtype or dtypes.default_dtype(), layout=layout, device=device, requires_grad=requires_grad,
        pin_memory=pin_memory,
    )  # fmt: skip


@describe(OPTIONS)
def eye(
    n: int, m: int | None = None, *, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create an `(n, m)` matrix with ones on the diagonal and zeros elsewhere; `m` defaults to `n`.

    Args:
        n: Number of rows.
        m: Number of columns; None: `n`.

    Returns:
        Tensor of shape `(n, m)`.

    Example:
        >>> wg.eye(2)
        tensor([[1., 0.],
                [0., 1.]])
    """
    rows, columns = (to_integer(k, "eye", name) for k, name in ((n, "n"), (n if m is None else m, "m")))
    target_dtype, target_device = resolve_dtype_and_device(dtype, device, out)
    output = zeros(rows, columns, dtype=target_dtype, device=target_device)
    _fill_constant(call(registry["diagonal"], (output,), (0, 0, 1)), 1)
    return finalize_output(output, "eye", requires_grad, out, layout, pin_memory)
