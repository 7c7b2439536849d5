"""Pad or crop tensors (`nn.functional.pad`)."""

from __future__ import annotations

from collections.abc import Sequence

from ..creation.factories import full
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, NotSupported, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors, to_dtype_number

__all__ = ["pad"]

_MODES = ("constant", "reflect", "replicate", "circular")


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad `input`, or crop it with negative numbers. The result is a new tensor of the same dtype.

    Args:
        input: The tensor. All modes but "constant" pad the last 1, 2 or 3 dimensions of an input with one or two more.
        pad: (before, after) for the last dimension, then for the second to last, and so on.
        mode: "constant" (fill with `value`), "reflect" (mirror at the edge elements without repeating them),
            "replicate" (repeat the edge elements) or "circular" (wrap around; cropping comes first).
        value: Fill value for "constant" (default 0).

    Returns:
        Tensor of the dtype of `input`.

    Raises:
        ShapeError: `pad` has an odd length or too many numbers, a size would be negative, or "reflect" or "circular"
            need more elements than the input has.
        NotSupported: The mode is unknown, or does not support this number of dimensions.

    Example:
        >>> wg.nn.functional.pad(wg.tensor([1, 2]), (1, 2), value=9)
        tensor([9, 1, 2, 9, 9])
    """
    only_tensors("pad", input)
    counts = _pad_amounts(pad, input)
    if mode not in _MODES:
        raise NotSupported(f"pad: unknown mode {mode!r}; one of {', '.join(_MODES)}")
    if mode != "constant":
        if value is not None and value != 0:
            raise ShapeError(f"pad: mode {mode!r} takes its values from the input; leave value={value!r} out")
        _check_mode(input, len(counts), mode)
    ndim = input.meta.ndim
    pad_before = (0,) * (ndim - len(counts)) + tuple(b for b, _ in reversed(counts))
    pad_after = (0,) * (ndim - len(counts)) + tuple(a for _, a in reversed(counts))
    _check_sizes(input, pad_before, pad_after, mode)
    if mode == "circular" and min((*pad_before, *pad_after)) < 0:  # crop first: cropped elements do not wrap around
        for d, (b, a) in enumerate(zip(pad_before, pad_after, strict=True)):
            if min(b, a) < 0:
                length = input.meta.shape[d] + min(b, 0) + min(a, 0)
                input = call(registry["narrow"], (input,), (d, max(-b, 0), length))
        pad_before, pad_after = (tuple(max(n, 0) for n in side) for side in (pad_before, pad_after))
    return call(
        registry["pad_copy"], (input, _fill_value(input, pad_before, pad_after, value)), (pad_before, pad_after, mode)
    )


def _pad_amounts(pad: object, input: Tensor) -> list[tuple[int, int]]:
    """Check `pad` and return (before, after) pairs, from the last dimension on."""
    if not isinstance(pad, (tuple, list)):
        raise ArgumentError(f"pad: the numbers of places must be a tuple of ints, not {type(pad).__name__}")
    try:
        amounts = [int(n.__index__()) for n in pad]
    except AttributeError:
        raise ArgumentError(f"pad: the numbers of places must be ints, not {list(pad)!r}") from None
    if len(amounts) % 2:
        raise ShapeError(f"pad: takes two numbers a dimension, not {len(amounts)} in all: {amounts}")
    if len(amounts) > 2 * input.meta.ndim:
        raise ShapeError(
            f"pad: {len(amounts)} numbers are for {len(amounts) // 2} dimensions, the input has {input.meta.ndim}"
        )
    return list(zip(amounts[::2], amounts[1::2], strict=True))


def _check_mode(input: Tensor, count: int, mode: str) -> None:
    if count not in (1, 2, 3) or input.meta.ndim not in (count + 1, count + 2):
        raise NotSupported(
            f"pad: mode {mode!r} pads the last 1, 2 or 3 dimensions of an input with one or two more, not {count} of "
            f"shape {list(input.meta.shape)}"
        )
    batch = input.meta.ndim - count - 1
    if any(n == 0 for n in input.meta.shape[batch:]):
        raise ShapeError(f"pad: mode {mode!r} reads the input, which has shape {list(input.meta.shape)}")


def _check_sizes(input: Tensor, pad_before: tuple[int, ...], pad_after: tuple[int, ...], mode: str) -> None:
    min_size = 0 if mode == "constant" else 1
    for d, (n, b, a) in enumerate(zip(input.meta.shape, pad_before, pad_after, strict=True)):
        description = f"pad: dimension {d} of size {n} with {b} and {a} places more"
        if n + b + a < min_size and (b or a):
            raise ShapeError(f"{description} has size {n + b + a}; cut fewer of them away")
        if mode == "reflect" and max(b, a) >= n and (b or a):
            raise ShapeError(f"{description}: reflection has at most {n - 1} of them on either side")
        if mode == "circular" and max(b, a) > n:
            raise ShapeError(f"{description}: going around once gives at most {n} of them on either side")


def _fill_value(
    input: Tensor, pad_before: tuple[int, ...], pad_after: tuple[int, ...], value: float | None
) -> Tensor | None:
    """Return the fill value as a tensor of one element, or None for zeros and where nothing is filled."""
    if not value or max((*pad_before, *pad_after), default=0) <= 0:
        return None
    dtype = input.meta.dtype
    return full((1,), to_dtype_number(value, dtype, "pad"), dtype=dtype, device=input.meta.device)
