"""Run Triton kernels on host memory by Triton's interpreter, without a GPU, a compiler or torch.

For triton 3.6 to 3.9. `language` binds kernels to arrays; `builder` implements the operations and checks memory
accesses. `tests/test_interpreter.py` checks the private parts of Triton that are used here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import triton.language as tl

from ..errors import LaunchError, WeftgradError
from .builder import Region
from .language import BUILDER, Value, interpreted, scalar
from .signature import resolve

if TYPE_CHECKING:
    from .triton_types import Constant

__all__ = ["Region", "launch"]

Argument: TypeAlias = Region | int | float | tuple[int | float, ...]
"""The memory of a pointer, a number, or a tuple of numbers."""

_LOCK = threading.Lock()  # the builder is global and holds the running program's grid index
_TYPES = {
    "i1": tl.int1, "i8": tl.int8, "i16": tl.int16, "i32": tl.int32, "i64": tl.int64,
    "u8": tl.uint8, "u16": tl.uint16, "u32": tl.uint32, "u64": tl.uint64,
    "fp16": tl.float16, "bf16": tl.bfloat16, "fp32": tl.float32, "fp64": tl.float64,
}  # fmt: skip


def launch(
    function: object,
    grid: Sequence[int],
    types: Mapping[str, str | tuple[str, ...]],
    arguments: Sequence[Argument],
    *,
    constants: Mapping[str, Constant] | None = None,
    divisible: Mapping[str, int] | None = None,
    reachable: Sequence[Region] = (),
    name: str = "",
) -> None:
    """Run a kernel once for each program of a grid.

    Args:
        function: the kernel, with `@triton.jit` or without.
        grid: 1 to 3 numbers of programs.
        types: of every parameter in order, as for Triton's compiler: `*fp32`, `i64`, a tuple of these, `constexpr`.
        arguments: for each parameter that is no constexpr, a `Region`, a number, or a tuple of numbers.
        constants: values of the constexpr parameters; a string that is a dtype's name means that dtype.
        divisible: Parameters that must be multiples of a number, by name.
        reachable: further memory that the kernel may access through addresses in a table.
        name: the op's name, for errors.

    Raises:
        LaunchError: an access outside an argument's memory, a parameter that is no multiple of its number in
            `divisible`, a number that does not fit its type, or any error of the kernel. The message names the kernel
            and argument.
    """
    run = interpreted(function)
    title = f"{name}: {run.function.__name__}" if name else run.function.__name__
    regions: list[Region] = [*reachable]
    kernel_args: dict[str, object] = {}
    expected = sum(type != "constexpr" for type in types.values())
    if expected != len(arguments):
        raise LaunchError(f"{title}: takes {expected} arguments apart from constants, was given {len(arguments)}")
    constant_values = resolve(constants or {}, tl)
    values = iter(arguments)
    with _LOCK, np.errstate(all="ignore"):
        for parameter, type in types.items():
            if type == "constexpr":
                kernel_args[parameter] = constant_values[parameter]
                continue
            argument = next(values)
            if divisible and parameter in divisible:
                _check_divisible(title, parameter, argument, divisible[parameter])
            kernel_args[parameter] = _argument(title, parameter, type, argument, regions)
        x, y, z = (*grid, 1, 1)[:3]
        BUILDER.begin(title, regions, (x, y, z))
        try:
            for k in range(z):
                for j in range(y):
                    for i in range(x):
                        BUILDER.set_grid_idx(i, j, k)
                        run(**kernel_args)
        except WeftgradError:
            raise
        except Exception as error:
            kind = error.__class__.__name__
            raise LaunchError(
                f"{title}: program {BUILDER.grid_idx} failed in Triton's interpreter: {kind}: {error}"
            ) from error


def _argument(
    title: str, parameter: str, type: str | tuple[str, ...], argument: Argument, regions: list[Region]
) -> Value | tuple[Value, ...]:
    """Convert an argument to a pointer, a scalar of the declared type, or a tuple of scalars."""
    if isinstance(type, tuple):
        assert isinstance(argument, tuple)
        return tuple(_scalar(title, parameter, t, a) for t, a in zip(type, argument, strict=True))
    if not type.startswith("*"):
        assert not isinstance(argument, (Region, tuple))
        return _scalar(title, parameter, type, argument)
    element = _TYPES[type[1:]]
    assert isinstance(argument, Region)
    region = replace(argument, name=parameter)
    size = max(element.primitive_bitwidth // 8, 1)
    if region.address % size:
        raise LaunchError(
            f"{title}: {parameter} points to address {region.address:#x}, which is not a multiple of the element "
            f"size, {size} bytes"
        )
    regions.append(region)
    return Value(BUILDER.pointer(region, element), tl.pointer_type(element))


def _scalar(title: str, parameter: str, type: str, number: float) -> Value:
    try:
        return scalar(number, _TYPES[type])
    except OverflowError:
        raise LaunchError(f"{title}: {parameter} is {number}, which {type} does not hold") from None


def _check_divisible(title: str, parameter: str, argument: Argument, divisor: int) -> None:
    numbers = argument if isinstance(argument, tuple) else (argument,)
    for number in numbers:
        value = number.address if isinstance(number, Region) else number
        if value % divisor:
            text = f"address {value:#x}" if isinstance(number, Region) else str(value)
            raise LaunchError(
                f"{title}: {parameter} was promised to be a multiple of {divisor}, and is {text} "
                f"({value % divisor} more than one)"
            )
