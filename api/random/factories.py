"""Create tensors of random numbers: `rand`, `randn`, `randint`, and `rand_like` etc. with the shape of a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import SupportsIndex, overload

from ..arguments.descriptions import LIKE_OPTIONS, OPTIONS, describe
from ..arguments.types import Layout, MemoryFormat, Sizes
from ..creation.factories import empty_like
from ..creation.options import allocate_output, finalize_output
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .drawing import fill_integers, fill_random, require_floating, uniform_levels
from .generator import Generator

__all__ = ["rand", "rand_like", "randint", "randint_like", "randn", "randn_like"]


@overload
def rand(
    *size: Sizes, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def rand(
    *, size: Sizes, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@describe(OPTIONS)
def rand(
    *size: Sizes, generator: Generator | None = None, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False, **named: Sizes,
) -> Tensor:  # fmt: skip
    """Sample uniformly from [0, 1). Pass the shape as for `empty`.

    Numbers are multiples of 2^-24 (float64: 2^-53, float16: 2^-11, bfloat16: 2^-8).

    Returns:
        Tensor of shape `size`.

    Raises:
        UnsupportedDType: The dtype is not floating.

    Example:
        >>> x = wg.rand(2, 3)
        >>> bool(((x >= 0) & (x < 1)).all())
        True
    """
    output = require_floating(allocate_output("rand", size, named, dtype, device, out), "rand")
    fill_random("uniform_fill", output, (0.0, 1.0, uniform_levels(output.meta.dtype)), generator, out is not None)
    return finalize_output(output, "rand", requires_grad, None, layout, pin_memory)


@overload
def randn(
    *size: Sizes, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def randn(
    *, size: Sizes, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@describe(OPTIONS)
def randn(
    *size: Sizes, generator: Generator | None = None, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False, **named: Sizes,
) -> Tensor:  # fmt: skip
    """Sample from the normal distribution with mean 0 and variance 1. Pass the shape as for `empty`.

    Returns:
        Tensor of shape `size`.

    Raises:
        UnsupportedDType: The dtype is not floating.

    Example:
        >>> wg.randn(2, 3).shape
        weftgrad.Size([2, 3])
    """
    output = require_floating(allocate_output("randn", size, named, dtype, device, out), "randn")
    fill_random("normal_fill", output, (0.0, 1.0), generator, out is not None)
    return finalize_output(output, "randn", requires_grad, None, layout, pin_memory)


@describe(LIKE_OPTIONS)
def rand_like(
    input: Tensor, *, generator: Generator | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Sample as `rand` does, with the shape of `input`, and its dtype and device by default.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        UnsupportedDType: The dtype is not floating.

    Example:
        >>> wg.rand_like(wg.zeros(2, 3)).shape
        weftgrad.Size([2, 3])
    """
    only_tensors("rand_like", input)
    output = require_floating(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), "rand_like")
    fill_random("uniform_fill", output, (0.0, 1.0, uniform_levels(output.meta.dtype)), generator, False)
    return finalize_output(output, "rand_like", requires_grad, None, layout, pin_memory)


@describe(LIKE_OPTIONS)
def randn_like(
    input: Tensor, *, generator: Generator | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Sample as `randn` does, with the shape of `input`, and its dtype and device by default.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        UnsupportedDType: The dtype is not floating.

    Example:
        >>> wg.randn_like(wg.zeros(2, 3)).shape
        weftgrad.Size([2, 3])
    """
    only_tensors("randn_like", input)
    output = require_floating(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), "randn_like")
    fill_random("normal_fill", output, (0.0, 1.0), generator, False)
    return finalize_output(output, "randn_like", requires_grad, None, layout, pin_memory)


@overload
def randint(
    high: SupportsIndex, size: Sequence[SupportsIndex], *, generator: Generator | None = None,
    out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def randint(
    low: SupportsIndex, high: SupportsIndex, size: Sequence[SupportsIndex], *, generator: Generator | None = None,
    out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@describe(OPTIONS)
def randint(
    *args: Sizes, generator: Generator | None = None, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False, **named: Sizes,
) -> Tensor:  # fmt: skip
    """Sample integers from [low, high): `randint(high, size)` or `randint(low, high, size)`.

    Args:
        *args: `high` and `size`, or `low`, `high` and `size`.
        dtype: Dtype of the result; None: int64, or that of `out`.
        **named: `low=`, `high=` and `size=`.

    Returns:
        Tensor of shape `size`.

    Raises:
        ArgumentError: If an argument is missing or unknown, a bound is no integer, or `low` is not below `high`.

    Example:
        >>> x = wg.randint(3, 6, (2, 4))
        >>> bool(((x >= 3) & (x < 6)).all())
        True
    """
    has_low = len(args) + len(named.keys() & {"low", "high", "size"}) == 3
    names = ("low", "high", "size") if has_low or "low" in named else ("high", "size")
    positional_names = [name for name in names if name not in named]
    arguments = dict(zip(positional_names, args, strict=False)) | named
    if len(args) > len(positional_names) or "size" not in arguments or "high" not in arguments:
        raise ArgumentError("randint: takes randint(high, size) or randint(low, high, size)")
    for name in arguments:
        if name not in ("low", "high", "size"):
            raise ArgumentError(f"randint() got an unexpected keyword argument {name!r}")
    low, high, size = arguments.get("low", 0), arguments["high"], arguments["size"]
    integer = (int, SupportsIndex)  # int first: a check of a protocol takes microseconds
    if not (isinstance(low, integer) and isinstance(high, integer) and isinstance(size, Iterable)):
        raise ArgumentError(f"randint: low and high are ints and size is a sequence, not {low!r}, {high!r}, {size!r}")
    target_dtype = dtypes.int64 if dtype is None and out is None else dtype
    output = allocate_output("randint", (tuple(size),), {}, target_dtype, device, out)
    fill_integers(output, low, high, "randint", generator, out is not None)
    return finalize_output(output, "randint", requires_grad, None, layout, pin_memory)


@describe(LIKE_OPTIONS)
def randint_like(
    input: Tensor, *bounds: int, generator: Generator | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: MemoryFormat | None = None, **named: int,
) -> Tensor:  # fmt: skip
    """Sample integers from [0, high) or [low, high), with the shape of `input`, and its dtype and device by default.

    Args:
        input: Tensor whose shape the result has.
        *bounds: `high`, or `low` and `high`.
        **named: `low=` and `high=`.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        ArgumentError: If `high` is missing, a bound is no integer, or `low` is not below `high`.

    Example:
        >>> wg.randint_like(wg.zeros(2, 3), 1)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    only_tensors("randint_like", input)
    names = ("low", "high") if len(bounds) + len(named) == 2 else ("high",)
    positional_names = [name for name in names if name not in named]
    arguments = dict(zip(positional_names, bounds, strict=False)) | named
    if set(arguments) not in ({"high"}, {"low", "high"}) or len(arguments) != len(bounds) + len(named):
        raise ArgumentError("randint_like: takes randint_like(input, high) or randint_like(input, low, high)")
    output = empty_like(input, dtype=dtype, device=device, memory_format=memory_format)
    fill_integers(output, arguments.get("low", 0), arguments["high"], "randint_like", generator, False)
    return finalize_output(output, "randint_like", requires_grad, None, layout, pin_memory)
