"""Arguments of pooling, folding and resizing that are one number per spatial dimension, or one number for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ..runtime.errors import ArgumentError, ShapeError, UnsupportedDType
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["Ints", "repeat_number", "spatial_sizes", "to_size", "window_sizes"]

Ints = tuple[int, ...]
_Number = TypeVar("_Number", int, float)


def repeat_number(value: _Number | Sequence[_Number], count: int) -> tuple[_Number, ...]:
    """Return a sequence as a tuple, and a number as a tuple that has it `count` times."""
    return tuple(value) if isinstance(value, Sequence) else (value,) * count


def to_size(value: object, where: str, name: str) -> int:
    """Return `value` as an int. Raises `ArgumentError` with the names of function and argument for other types."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{where}: {name} must be an integer, or one integer per dimension, not {value!r}")
    return int(value.__index__())


def window_sizes(value: object, rank: int, where: str, name: str, minimum: int, *, allow_single: bool = True) -> Ints:
    """Return `value` as `rank` ints, each at least `minimum` (0 or 1).

    With `allow_single`, a sequence of one int stands for all dimensions, as an int always does.
    """
    if isinstance(value, (tuple, list)):
        if len(value) != rank and not (allow_single and len(value) == 1):
            raise ShapeError(f"{where}: {name} is one integer or {rank} of them, not {tuple(value)!r}")
        sizes = tuple(to_size(v, where, name) for v in value)
    else:
        sizes = (to_size(value, where, name),)
    if min(sizes) < minimum:
        requirement = {0: "must not be negative", 1: "must be greater than zero"}[minimum]
        raise ShapeError(f"{where}: {name} {requirement}, but it is {value!r}")
    return sizes * rank if len(sizes) < rank else sizes


def spatial_sizes(input: Tensor, rank: int, where: str, kinds: str = "uif") -> Ints:
    """Check an input and return its spatial sizes. Only the batch may be empty. `kinds` lists allowed `DType.kind`s."""
    only_tensors(where, input)
    if input.meta.dtype.kind not in kinds:
        raise UnsupportedDType(f"{where}: does not take {input.meta.dtype.name}; convert the input with .to()")
    shape = input.meta.shape
    if len(shape) not in (rank + 1, rank + 2) or 0 in shape[-rank - 1 :]:
        raise ShapeError(
            f"{where}: expected (N, C, …) or (C, …) with {rank} spatial dimensions, none but N empty; the input has "
            f"shape {list(shape)}"
        )
    return shape[-rank:]
