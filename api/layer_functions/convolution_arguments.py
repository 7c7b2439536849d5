"""Checks of the arguments of convolutions, which return the static arguments of the ops.

The checks are cached: they are pure functions of layouts and arguments, and take longer than a small convolution.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from ..arguments.types import IntOrInts
from ..runtime.device import Meta
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor

__all__ = ["as_hashable", "convolution_statics", "operand_layouts", "transposed_convolution_statics"]

_Numbers = TypeVar("_Numbers", bound=str | IntOrInts)


def as_hashable(value: _Numbers) -> _Numbers | tuple[int, ...]:
    """Turn a list into a tuple, so that it can be a cache key."""
    return tuple(value) if isinstance(value, list) else value


def operand_layouts(name: str, input: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Meta, Meta, Meta | None]:
    """Return the operands' layouts. Raises `ArgumentError` for an operand that is not a tensor."""
    for argument, value in (("input", input), ("weight", weight), ("bias", bias)):
        if not isinstance(value, Tensor) and (argument != "bias" or value is not None):
            raise ArgumentError(f"{name}: {argument} must be a tensor, not {type(value).__name__}")
    return input.meta, weight.meta, None if bias is None else bias.meta


@lru_cache(maxsize=1024, typed=True)
def convolution_statics(
    name: str, rank: int, input: Meta, weight: Meta, bias: Meta | None, stride: IntOrInts,
    padding: str | IntOrInts, dilation: IntOrInts, groups: int,
) -> tuple[object, ...]:  # fmt: skip
    """Check the arguments and return the static arguments of the op `convolution`."""
    _check(name, rank, input, weight, groups)
    strides, dilations = (
        _spatial_numbers(name, "stride", stride, rank, 1),
        _spatial_numbers(name, "dilation", dilation, rank, 1),
    )
    padding_sizes = _padding_per_side(name, padding, weight.shape[2:], strides, dilations, rank)
    out_channels, in_channels, *kernel = weight.shape
    channels = input.shape[-1 - rank]
    if channels != in_channels * groups:
        raise ShapeError(
            f"{name}: with groups={groups}, a weight of shape {_shape(weight)} takes {in_channels * groups} channels; "
            f"the input of shape {_shape(input)} has {channels}"
        )
    if out_channels % groups or out_channels == 0:
        raise ShapeError(f"{name}: {out_channels} output channels do not fall into {groups} groups")
    leading, trailing = padding_sizes[:rank], padding_sizes[-rank:]
    padded = [n + a + b for n, a, b in zip(input.shape[-rank:], leading, trailing, strict=True)]
    extents = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    if any(r > n for r, n in zip(extents, padded, strict=True)):
        raise ShapeError(
            f"{name}: the kernel of size {kernel} reaches {extents} pixels, the padded input has {padded}; use "
            "padding, or a smaller dilation"
        )
    _check_bias(name, weight, bias, out_channels)
    return strides, padding_sizes, dilations, groups


@lru_cache(maxsize=1024, typed=True)
def transposed_convolution_statics(
    name: str, rank: int, input: Meta, weight: Meta, bias: Meta | None, stride: IntOrInts, padding: IntOrInts,
    output_padding: IntOrInts, groups: int, dilation: IntOrInts,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:  # fmt: skip
    """Check the arguments and return the static arguments of the op `convolution_input`: the result's size is first.

    Sizes may be 0, which the op does not take.
    """
    _check(name, rank, input, weight, groups)
    strides, dilations = (
        _spatial_numbers(name, "stride", stride, rank, 1),
        _spatial_numbers(name, "dilation", dilation, rank, 1),
    )
    padding_sizes = _spatial_numbers(name, "padding", padding, rank, 0)
    extra_sizes = _spatial_numbers(name, "output_padding", output_padding, rank, 0)
    if any(q >= max(s, d) for q, s, d in zip(extra_sizes, strides, dilations, strict=True)):
        raise ShapeError(
            f"{name}: output_padding must be smaller than either stride or dilation: output_padding is {extra_sizes}, "
            f"stride {strides}, dilation {dilations}"
        )
    in_channels, out_channels, *kernel = weight.shape
    channels = input.shape[-1 - rank]
    if channels != in_channels or in_channels % groups or in_channels == 0:
        raise ShapeError(
            f"{name}: with groups={groups}, a transposed weight of shape {_shape(weight)} takes {in_channels} "
            f"channels, a multiple of groups; the input of shape {_shape(input)} has {channels}"
        )
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + q + 1
        for n, s, p, d, k, q in zip(
            input.shape[-rank:], strides, padding_sizes, dilations, kernel, extra_sizes, strict=True
        )
    )
    if min(size) < 0 or (min(size) == 0 and 0 in input.shape[-rank:]):
        raise ShapeError(f"{name}: the result of an input of shape {_shape(input)} would have the size {list(size)}")
    _check_bias(name, weight, bias, out_channels * groups)
    return size, strides, padding_sizes, dilations, groups


def _check(name: str, rank: int, input: Meta, weight: Meta, groups: object) -> None:
    """Raise unless the operands have the right number of dimensions, and `groups` is a positive number."""
    if isinstance(groups, bool) or not isinstance(groups, int):
        raise ArgumentError(f"{name}: groups must be an int, not {groups!r}")
    if groups < 1:
        raise ShapeError(f"{name}: groups must be at least 1, not {groups}")
    if weight.ndim != rank + 2:
        raise ShapeError(
            f"{name}: the weight must have {rank + 2} dimensions (output channels, input channels, and those of "
            f"space; the first two change places where it is transposed), its shape is {_shape(weight)}"
        )
    if input.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: takes {rank + 1} or {rank + 2} dimensions (with or without a batch in front), the "
            f"input has shape {_shape(input)}"
        )
    if 0 in weight.shape[2:]:
        raise ShapeError(f"{name}: the kernel must not have size 0, the weight has shape {_shape(weight)}")
    if 0 in input.shape[-rank:]:
        raise ShapeError(f"{name}: only the batch and the channels may be empty, the input has shape {_shape(input)}")


def _check_bias(name: str, weight: Meta, bias: Meta | None, out_channels: int) -> None:
    if bias is not None and bias.shape != (out_channels,):
        raise ShapeError(
            f"{name}: for a weight of shape {_shape(weight)} the bias must have shape [{out_channels}], not "
            f"{_shape(bias)}"
        )


def _shape(layout: Meta) -> list[int]:
    return list(layout.shape)


def _spatial_numbers(name: str, argument: str, value: object, rank: int, minimum: int) -> tuple[int, ...]:
    """Expand an int, or check a sequence, to one integer for each spatial dimension."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if any(isinstance(n, (bool, str)) or not hasattr(n, "__index__") for n in values):
        raise ArgumentError(f"{name}: {argument} must be an int or {rank} of them, not {value!r}")
    sizes = tuple(n.__index__() for n in values)
    sizes = sizes * rank if len(sizes) == 1 else sizes
    if len(sizes) != rank:
        raise ShapeError(f"{name}: {argument} must be an int or {rank} of them, one a dimension, not {value!r}")
    if min(sizes) < minimum:
        raise ShapeError(f"{name}: {argument} must be at least {minimum}, not {value!r}")
    return sizes


def _padding_per_side(
    name: str,
    padding: str | IntOrInts,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    rank: int,
) -> tuple[int, ...]:
    """Return the zeros to add: one number a dimension, or all leading then all trailing ones where they differ."""
    if not isinstance(padding, str):
        return _spatial_numbers(name, "padding", padding, rank, 0)
    if padding == "valid":
        return (0,) * rank
    if padding != "same":
        raise ShapeError(f"{name}: padding is a number, one a dimension, 'same' or 'valid', not {padding!r}")
    if stride != (1,) * rank:
        raise ShapeError(f"{name}: padding='same' needs a stride of 1, not {stride}")
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    leading, trailing = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    return leading if leading == trailing else leading + trailing
