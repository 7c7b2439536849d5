"""Create vectors of evenly spaced values: `arange`, `linspace`, `logspace`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..arguments.descriptions import OPTIONS, describe
from ..arguments.types import Layout, Operand
from ..runtime import dtypes, host_data
from ..runtime.context import state
from ..runtime.device import Device, DeviceLike, meta
from ..runtime.device import device as to_device
from ..runtime.dispatch import call_into
from ..runtime.dispatch import empty as _empty
from ..runtime.dtypes import Array, DType, DTypeLike
from ..runtime.errors import ArgumentError, UnsupportedDType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import to_dtype_number, to_integer
from .options import finalize_output, resolve_dtype_and_device

__all__ = ["arange", "linspace", "logspace", "range"]


def _endpoint(value: Operand | Array | None, where: str, finite: bool = True) -> bool | int | float:
    """Return a Python number, from a number or a tensor or array of one element."""
    number = value.item() if isinstance(value, (Tensor, np.generic, np.ndarray)) else value
    if not isinstance(number, (bool, int, float)) or not (math.isfinite(number) or not finite):
        raise ArgumentError(f"{where}: takes {'finite ' if finite else ''}numbers, not {value!r}")
    return number


def _fill_progression(
    name: str, count: int, dtype: DType, device: Device, numbers: tuple[int | float, ...],
    host_formula: Callable[..., Array],
) -> Tensor:  # fmt: skip
    """Create a vector by the op `name`, or by `host_formula`, which computes the same bits, if no driver is open."""
    output = _empty(meta(dtype, (count,), None, device))
    if (
        not getattr(device.driver, "opened", True) and state().mode is None
    ):  # a tensor alone does not open a driver, as in `factories`
        with np.errstate(all="ignore"):
            values = host_formula(np.arange(count), *numbers)
            if dtype.kind == "f" and dtype.itemsize == 2:  # kernels also round doubles to half types through float32
                values = values.astype(np.float32)
            return host_data.from_host(values, dtype, device)
    if count:
        call_into(registry[name], (output, *numbers), (), (output,), in_place=False)
        output.storage.version = 0
    return output


def _linspace_values(i: Array, start: float, end: float, step: float, last: float) -> Array:
    """Return the values at the indices i. As in PyTorch, the second half counts from `end`, which is exact."""
    return np.where(2 * i < last, start + step * i, end - step * (last - i))


@describe(OPTIONS)
def arange(
    start: Operand | Array | None = None, end: Operand | Array | None = None, step: Operand | Array = 1, *,
    out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create the vector `start, start + step, ...` of the values below `end`.

    Args:
        start: First value (default 0). A single argument is the end.
        end: Upper bound, not included.
        step: Distance between values; not 0.
        dtype: int64 if all three numbers are integers, else the default dtype. For an integer dtype, `start` and `step`
            are rounded towards zero first, as in PyTorch. Floats are computed in float64 where the device has it.

    Returns:
        Vector of ceil((end - start) / step) elements.

    Raises:
        ArgumentError: The step is 0 or has the wrong sign.
        UnsupportedDType: `dtype` is bool.

    Example:
        >>> wg.arange(5)
        tensor([0, 1, 2, 3, 4])
        >>> wg.arange(1, 2, 0.25)
        tensor([1.0000, 1.2500, 1.5000, 1.7500])
    """
    if start is None and end is None:
        raise ArgumentError("arange: needs an end")
    first = 0 if end is None or start is None else start
    bound = start if end is None else end
    start_number: float
    end_number: float
    step_number: float
    if type(first) is int and type(bound) is int and type(step) is int:
        start_number, end_number, step_number = first, bound, step
        are_integers = True
    else:
        start_number, end_number, step_number = (_endpoint(x, "arange") for x in (first, bound, step))
        are_integers = all(isinstance(x, int) for x in (start_number, end_number, step_number))
    target_dtype, target_device = resolve_dtype_and_device(dtype, device, out, dtypes.int64 if are_integers else None)
    if target_dtype is dtypes.bool_:
        raise UnsupportedDType("arange: has no dtype bool; convert the result with .bool()")
    if target_dtype is dtypes.int64:
        start_number, end_number, step_number = int(start_number), int(end_number), int(step_number)
    if step_number == 0:
        raise ArgumentError("arange: the step must not be 0")
    if (end_number - start_number) * step_number < 0:
        raise ArgumentError(f"arange: steps of {step_number!r} do not lead from {start_number!r} to {end_number!r}")
    span = end_number - start_number
    count = int(-(-span // step_number)) if target_dtype is dtypes.int64 else math.ceil(span / step_number)
    number_dtype = dtypes.float64 if target_dtype.kind == "f" else dtypes.int64
    numbers = (
        to_dtype_number(start_number, number_dtype, "arange"),
        to_dtype_number(step_number, number_dtype, "arange"),
    )
    output = _fill_progression(
        "arange_fill", count, target_dtype, target_device, numbers, lambda i, start, step: start + step * i
    )
    return finalize_output(output, "arange", requires_grad, out, layout, pin_memory)


@describe(OPTIONS)
def linspace(
    start: Operand | Array, end: Operand | Array, steps: int, *, out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create `steps` evenly spaced values from `start` to `end` inclusive; integer dtypes round towards zero.

    Args:
        start: First value.
        end: Last value.
        steps: Number of values.

    Returns:
        Vector of `steps` elements.

    Example:
        >>> wg.linspace(0, 1, 5)
        tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    count = to_integer(steps, "linspace", "steps")
    first, last = (float(_endpoint(x, "linspace", False)) for x in (start, end))
    target_dtype, target_device = resolve_dtype_and_device(dtype, device, out)
    compute_dtype = target_dtype
    if target_dtype.kind != "f":
        compute_dtype = dtypes.float64 if to_device(target_device).driver.capabilities.fp64 else dtypes.float32
    numbers = (first, last, (last - first) / max(count - 1, 1), float(max(count - 1, 1)))
    output = _fill_progression("linspace_fill", count, compute_dtype, target_device, numbers, _linspace_values)
    if compute_dtype is not target_dtype:
        output = output.to(target_dtype)
    return finalize_output(output, "linspace", requires_grad, out, layout, pin_memory)


@describe(OPTIONS)
def logspace(
    start: float, end: float, steps: int, base: float = 10.0, *, out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create the vector `base ** linspace(start, end, steps)`.

    Args:
        start: Exponent of the first value.
        end: Exponent of the last value.
        steps: Number of values.
        base: Base of the powers.

    Returns:
        Vector of `steps` elements.

    Example:
        >>> wg.logspace(0, 2, 3)
        tensor([  1.,  10., 100.])
    """
    output = host_data.from_host(
        np.logspace(start, end, steps, base=base), *resolve_dtype_and_device(dtype, device, out)
    )
    return finalize_output(output, "logspace", requires_grad, out, layout, pin_memory)


@describe(OPTIONS)
def range(
    start: Operand | Array = 0, end: Operand | Array | None = None, step: Operand | Array = 1, *,
    out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Create the vector `start, start + step, ...` up to `end`, which is included. PyTorch advises to use `arange`.

    Args:
        start: First value. A single argument is the end.
        end: Upper bound, included.
        step: Distance between values; not 0.

    Returns:
        Vector of floor((end - start) / step) + 1 elements.

    Raises:
        ArgumentError: The step is 0 or has the wrong sign.
        UnsupportedDType: `dtype` is bool.

    Example:
        >>> wg.range(1, 3)
        tensor([1., 2., 3.])
    """
    first, last = (0, start) if end is None else (start, end)
    numbers = [float(_endpoint(x, "range")) for x in (first, last, step)]
    if numbers[2] == 0 or (numbers[1] - numbers[0]) * numbers[2] < 0:
        raise ArgumentError(f"range: steps of {numbers[2]:g} do not lead from {numbers[0]:g} to {numbers[1]:g}")
    target_dtype, target_device = resolve_dtype_and_device(dtype, device, out)
    if target_dtype is dtypes.bool_:
        raise UnsupportedDType("range: has no dtype bool; convert the result with .bool()")
    count = math.floor((numbers[1] - numbers[0]) / numbers[2]) + 1
    number_dtype = dtypes.float64 if target_dtype.kind == "f" else dtypes.int64
    first_and_step = tuple(
        to_dtype_number(n if target_dtype.kind == "f" else int(n), number_dtype, "range") for n in numbers[::2]
    )
    output = _fill_progression(
        "arange_fill", count, target_dtype, target_device, first_and_step, lambda i, start, step: start + step * i
    )
    return finalize_output(output, "range", requires_grad, out, layout, pin_memory)
