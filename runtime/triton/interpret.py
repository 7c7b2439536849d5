"""Triton kernels on host memory, run by Triton's interpreter: no GPU, no compiler, no torch.

For triton 3.6 to 3.9. `language` says how kernels are bound to arrays, `builder` what operations do on them and how
memory is guarded. What is private to Triton and used here is pinned by `tests/test_interpreter.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import triton.language as tl

from ..errors import LaunchError, WeftgradError
from .builder import Region
from .language import BUILDER, Value, interpreted, scalar
from .signature import resolve

__all__ = ["Region", "launch"]

_ALIGNMENT = 16
_LOCK = threading.Lock()  # the builder holds the running program's place in the grid
_TYPES = {
    "i1": tl.int1, "i8": tl.int8, "i16": tl.int16, "i32": tl.int32, "i64": tl.int64,
    "u8": tl.uint8, "u16": tl.uint16, "u32": tl.uint32, "u64": tl.uint64,
    "fp16": tl.float16, "bf16": tl.bfloat16, "fp32": tl.float32, "fp64": tl.float64,
}  # fmt: skip


def launch(
    function: Any,
    grid: Sequence[int],
    types: Mapping[str, str | tuple[str, ...]],
    arguments: Sequence[Any],
    *,
    constants: Mapping[str, Any] | None = None,
    divisible: Sequence[str] = (),
    reach: Sequence[Region] = (),
    name: str = "",
) -> None:
    """Run `function`, a kernel with `@triton.jit` or without, once a program of `grid` (1 to 3 numbers).

    types: of every parameter in order, as Triton's compiler takes them: `*fp32`, `i64`, a tuple of these, `constexpr`.
    arguments: for those that are no constexpr, a `Region` (its name is given here), a number, or a tuple of numbers.
    constants: values of the others; a string that is a dtype's name means that dtype. divisible: parameters that are
    promised to be multiples of 16. reach: memory that the kernel may follow addresses to.

    Raises `LaunchError`, naming the kernel (`name`, the op's, in front) and the argument, for an access outside of an
    argument's memory, a promise not kept, a number that does not fit its type, and whatever the kernel raises.
    """
    run = interpreted(function)
    title = f"{name}: {run.function.__name__}" if name else run.function.__name__
    regions: list[Region] = [*reach]
    given: dict[str, Any] = {}
    expected = sum(type != "constexpr" for type in types.values())
    if expected != len(arguments):
        raise LaunchError(f"{title}: takes {expected} arguments apart from constants, was given {len(arguments)}")
    known = resolve(constants or {}, tl)
    values = iter(arguments)
    with _LOCK, np.errstate(all="ignore"):
        for parameter, type in types.items():
            if type == "constexpr":
                given[parameter] = known[parameter]
                continue
            argument = next(values)
            if parameter in divisible:
                _check_divisible(title, parameter, argument)
            given[parameter] = _argument(title, parameter, type, argument, regions)
        x, y, z = (*grid, 1, 1)[:3]
        BUILDER.begin(title, regions, (x, y, z))
        try:
            for k in range(z):
                for j in range(y):
                    for i in range(x):
                        BUILDER.set_grid_idx(i, j, k)
                        run(**given)
        except WeftgradError:
            raise
        except Exception as error:
            kind = error.__class__.__name__
            raise LaunchError(
                f"{title}: program {BUILDER.grid_idx} failed in Triton's interpreter: {kind}: {error}"
            ) from error


def _argument(title: str, parameter: str, type: str | tuple[str, ...], argument: Any, regions: list[Region]) -> Any:
    """What the kernel is given: a pointer, a scalar of the declared type, or a tuple of scalars."""
    if isinstance(type, tuple):
        return tuple(_scalar(title, parameter, t, a) for t, a in zip(type, argument, strict=True))
    if not type.startswith("*"):
        return _scalar(title, parameter, type, argument)
    element = _TYPES[type[1:]]
    region = replace(argument, name=parameter)
    size = max(element.primitive_bitwidth // 8, 1)
    if region.address % size:
        raise LaunchError(
            f"{title}: {parameter} points to address {region.address:#x}, which is no multiple of its elements' "
            f"{size} bytes"
        )
    regions.append(region)
    return Value(BUILDER.pointer(region, element), tl.pointer_type(element))


def _scalar(title: str, parameter: str, type: str, number: Any) -> Value:
    try:
        return scalar(number, _TYPES[type])
    except OverflowError:
        raise LaunchError(f"{title}: {parameter} is {number}, which {type} does not hold") from None


def _check_divisible(title: str, parameter: str, argument: Any) -> None:
    numbers = argument if isinstance(argument, tuple) else (argument,)
    for number in numbers:
        what = number.address if isinstance(number, Region) else number
        if what % _ALIGNMENT:
            shown = f"address {what:#x}" if isinstance(number, Region) else str(what)
            raise LaunchError(
                f"{title}: {parameter} was promised to be a multiple of {_ALIGNMENT}, and is {shown} "
                f"({what % _ALIGNMENT} more than one)"
            )
