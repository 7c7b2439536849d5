"""Padding: `nn.functional.pad`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._checks import number_for, only_tensors
from .runtime.dispatch import call
from .runtime.errors import ArgumentError, NotSupported, ShapeError
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = ["pad"]

_MODES = ("constant", "reflect", "replicate", "circular")


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """`input` with places put around it, or cut away by negative numbers; a new tensor of the same dtype.

    pad: (before, after) of the last dimension, then of the one before it, and so on. mode: `constant`, the places hold
    `value` (0); `reflect`, the input mirrored at its edge elements, which are not repeated; `replicate`, its edge
    elements; `circular`, the input (what is left of it after cutting) over again. The last three pad the last 1, 2 or
    3 dimensions of an input that has one or two more.

    Raises `ShapeError` for a list of odd length or longer than two a dimension, for sizes that would be negative and,
    where the mode reads the input again, for more places than it has; `NotSupported` for an unknown mode.
    """
    only_tensors("pad", input)
    counts = _counts(pad, input)
    if mode not in _MODES:
        raise NotSupported(f"pad: unknown mode {mode!r}; one of {', '.join(_MODES)}")
    if mode != "constant":
        if value is not None and value != 0:
            raise ShapeError(f"pad: mode {mode!r} takes its values from the input; leave value={value!r} out")
        _check_mode(input, len(counts), mode)
    ndim = input.meta.ndim
    before = (0,) * (ndim - len(counts)) + tuple(b for b, _ in reversed(counts))
    after = (0,) * (ndim - len(counts)) + tuple(a for _, a in reversed(counts))
    _check_sizes(input, before, after, mode)
    if mode == "circular" and min((*before, *after)) < 0:  # what is cut away is not part of the circle
        for d, (b, a) in enumerate(zip(before, after, strict=True)):
            if min(b, a) < 0:
                length = input.meta.shape[d] + min(b, 0) + min(a, 0)
                input = call(registry["narrow"], (input,), (d, max(-b, 0), length))
        before, after = (tuple(max(n, 0) for n in each) for each in (before, after))
    return call(registry["pad_copy"], (input, _fill(input, before, after, value)), (before, after, mode))  # type: ignore[no-any-return]


def _counts(pad: Any, input: Tensor) -> list[tuple[int, int]]:
    """(before, after) a dimension, from the last."""
    if not isinstance(pad, (tuple, list)):
        raise ArgumentError(f"pad: the numbers of places must be a tuple of ints, not {type(pad).__name__}")
    try:
        given = [int(n.__index__()) for n in pad]
    except AttributeError:
        raise ArgumentError(f"pad: the numbers of places must be ints, not {list(pad)!r}") from None
    if len(given) % 2:
        raise ShapeError(f"pad: takes two numbers a dimension, not {len(given)} in all: {given}")
    if len(given) > 2 * input.meta.ndim:
        raise ShapeError(
            f"pad: {len(given)} numbers are for {len(given) // 2} dimensions, the input has {input.meta.ndim}"
        )
    return list(zip(given[::2], given[1::2], strict=True))


def _check_mode(input: Tensor, count: int, mode: str) -> None:
    if count not in (1, 2, 3) or input.meta.ndim not in (count + 1, count + 2):
        raise NotSupported(
            f"pad: mode {mode!r} pads the last 1, 2 or 3 dimensions of an input with one or two more, not {count} of "
            f"shape {list(input.meta.shape)}"
        )
    batch = input.meta.ndim - count - 1
    if any(n == 0 for n in input.meta.shape[batch:]):
        raise ShapeError(f"pad: mode {mode!r} reads the input, which has shape {list(input.meta.shape)}")


def _check_sizes(input: Tensor, before: tuple[int, ...], after: tuple[int, ...], mode: str) -> None:
    least = 0 if mode == "constant" else 1
    for d, (n, b, a) in enumerate(zip(input.meta.shape, before, after, strict=True)):
        shown = f"pad: dimension {d} of size {n} with {b} and {a} places more"
        if n + b + a < least and (b or a):
            raise ShapeError(f"{shown} has size {n + b + a}; cut fewer of them away")
        if mode == "reflect" and max(b, a) >= n and (b or a):
            raise ShapeError(f"{shown}: reflection has at most {n - 1} of them on either side")
        if mode == "circular" and max(b, a) > n:
            raise ShapeError(f"{shown}: going around once gives at most {n} of them on either side")


def _fill(input: Tensor, before: tuple[int, ...], after: tuple[int, ...], value: Any) -> Tensor | None:
    """What is around the input, as a tensor of one element; None for zeros, and where nothing is around."""
    from .factories import full

    if not value or max((*before, *after), default=0) <= 0:
        return None
    dtype = input.meta.dtype
    number = int(value) if dtype.kind in "ui" and not isinstance(value, bool) else value
    return full((1,), number_for(number, dtype, "pad"), dtype=dtype, device=input.meta.device)
