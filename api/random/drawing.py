"""Call random ops with a generator's seed and offset, and check the arguments that sampling functions share."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

from ..runtime.dispatch import call, call_into
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, UnsupportedDType
from ..runtime.records import OpRecord, registry
from ..runtime.tensor import Tensor
from .generator import Generator, default_generator

__all__ = ["draw", "fill_integers", "fill_random", "require_floating", "to_probability", "uniform_levels"]

_MAX_NARROW_SPAN = 1 << 31  # its product with 32 random bits fits 63 bits
_UNIFORM_LEVELS = {"float16": 2.0**11, "bfloat16": 2.0**8, "float64": 2.0**53}


def _advance(record: OpRecord, generator: Generator | None) -> tuple[int, int]:
    if generator is not None and not isinstance(generator, Generator):
        raise ArgumentError(f"{record.name}: generator must be a weftgrad.Generator, not {type(generator).__name__}")
    return (generator or default_generator).take(int(record.detail["draws"]))


def fill_random(
    name: str, output: Tensor, numbers: tuple[float, ...], generator: Generator | None, in_place: bool
) -> Tensor:
    """Write random numbers to `output` by the op `name`.

    Args:
        name: The op, such as `uniform_fill`.
        output: Tensor to write to.
        numbers: The op's numbers, such as the bounds.
        generator: Source of random numbers; None: the default generator.
        in_place: True if autograd must know of the write; False if `output` is new.

    Returns:
        `output`.
    """
    record = registry[name]
    seed_and_offset = _advance(record, generator)
    if output.meta.numel:
        version = output.storage.version
        call_into(record, (output, *numbers, *seed_and_offset), (), (output,), in_place=in_place)
        if not in_place:
            output.storage.version = version
    return output


def draw(name: str, operands: Sequence[Tensor | float], generator: Generator | None = None) -> Tensor:
    """Call the random op `name` with `operands` and the next seed and offset of `generator`."""
    record = registry[name]
    return call(record, (*operands, *_advance(record, generator)))


def uniform_levels(dtype: DType) -> float:
    """Return the number of different values that a uniform number of the dtype can have."""
    return _UNIFORM_LEVELS.get(dtype.name, 2.0**24)


def require_floating(output: Tensor, where: str) -> Tensor:
    """Return `output`. Raises `UnsupportedDType` if its dtype is not floating."""
    if output.meta.dtype.kind != "f":
        raise UnsupportedDType(f"{where}: takes a floating dtype, not {output.meta.dtype.name}")
    return output


def fill_integers(
    output: Tensor, low: SupportsIndex, high: SupportsIndex, where: str, generator: Generator | None, in_place: bool
) -> Tensor:
    """Write random integers of [low, high) to `output`.

    Args:
        output: Tensor to write to.
        low: Lowest integer: an int, a NumPy integer or an integer tensor of one element.
        high: One more than the highest.
        where: The calling function, for errors.
        generator: Source of random numbers; None: the default generator.
        in_place: True if autograd must know of the write; False if `output` is new.

    Returns:
        `output`.

    Raises:
        ArgumentError: A bound is no integer, or the range is empty or longer than 2**63.
    """
    try:
        first, end = operator.index(low), operator.index(high)
    except TypeError:
        raise ArgumentError(f"{where}: low and high are ints, not {low!r} and {high!r}") from None
    if end <= first:
        raise ArgumentError(f"{where}: draws from [low, high), and low {first} is not below high {end}")
    if end - first > 1 << 63 or not first >= -(1 << 63):
        raise ArgumentError(f"{where}: [{first}, {end}) does not fit 64 bits")
    span = min(end - first, (1 << 63) - 1)
    name = "narrow_integer_fill" if span <= _MAX_NARROW_SPAN else "integer_fill"
    return fill_random(name, output, (first, span), generator, in_place)


def to_probability(p: float, where: str) -> float:
    """Return `p` as a float. Raises `ArgumentError` unless it is between 0 and 1."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"{where}: a probability lies between 0 and 1, not {p}")
    return float(p)
