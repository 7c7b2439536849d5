"""Convolutions and transposed convolutions in one, two and three dimensions. Names and arguments as in PyTorch's
`torch.nn.functional`, where they are; `import weftgrad` has them too.

All of them are two ops: `convolution`, and `convolution_input`, its transpose as a linear map, which is the gradient of
the first. A convolution is a cross-correlation, as it is in PyTorch: the kernel is not turned around.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ._generated import ops as _ops
from .runtime.autocast import alike
from .runtime.device import Meta
from .runtime.dispatch import call
from .runtime.errors import ArgumentError, ShapeError
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
]

Numbers = int | Sequence[int]


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: str | Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of (N, C, L), or (C, L), with weights (O, C / groups, K), plus a bias (O); see `conv2d`."""
    return _convolved("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: str | Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of (N, C, H, W), or (C, H, W), with weights (O, C / groups, KH, KW), plus a bias (O).

    out[n, o, y, x] = bias[o] + sum over c, i, j of padded[n, c, y * stride + i * dilation, x * stride + j * dilation]
    * weight[o, c, i, j], where o only sees the channels of its group. stride, padding and dilation are a number or one
    for each dimension of space; `padding` rows of zeros are put around the input. "valid" is no padding; "same" is as
    much as keeps the size, with strides of 1, half of it in front and the odd row behind. Floating dtypes, all three
    the same. Raises `ShapeError` for sizes that do not fit, `DTypeError` for dtypes, `ArgumentError` for arguments of
    another type.
    """
    return _convolved("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: str | Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of (N, C, D, H, W), or (C, D, H, W), with weights (O, C / groups, KD, KH, KW), plus a bias (O);
    see `conv2d`."""
    return _convolved("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Tensor:
    """The transpose of `conv1d`: (N, C, L), or (C, L), and weights (C, O / groups, K); see `conv_transpose2d`."""
    return _transposed("conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Tensor:
    """The transpose of `conv2d` as a linear map, plus a bias (O): the gradient of a convolution with this weight, whose
    output is `input`, with respect to its input.

    (N, C, H, W), or (C, H, W), and weights (C, O / groups, KH, KW) give (N, O, …), whose sizes are
    (n - 1) * stride - 2 * padding + dilation * (k - 1) + output_padding + 1. A convolution with a stride has the same
    output for several sizes of its input: output_padding, less than stride or dilation, says which one is meant.
    Raises `ShapeError` for sizes that do not fit, `DTypeError` for dtypes, `ArgumentError` for arguments of another
    type.
    """
    return _transposed("conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> Tensor:
    """The transpose of `conv3d`: (N, C, D, H, W), or (C, D, H, W), and weights (C, O / groups, KD, KH, KW); see
    `conv_transpose2d`."""
    return _transposed("conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution, or a transposed one, in as many dimensions as the weight says: it has two more."""
    space = weight.meta.ndim - 2
    if space not in (1, 2, 3):
        raise ShapeError(f"convolution: the weight must have 3, 4 or 5 dimensions, its shape is {_shape(weight.meta)}")
    if transposed:
        return _transposed("convolution", space, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _convolved("convolution", space, input, weight, bias, stride, padding, dilation, groups)


# What they share


def _convolved(
    name: str, space: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> Tensor:  # fmt: skip
    metas = _metas(name, input, weight, bias)
    statics = _straight(name, space, *metas, _fixed(stride), _fixed(padding), _fixed(dilation), groups)
    return _batched(space, input, bias, "convolution", weight, statics)


def _transposed(
    name: str, space: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any,
    output_padding: Any, groups: int, dilation: Any,
) -> Tensor:  # fmt: skip
    metas = _metas(name, input, weight, bias)
    numbers = _fixed(stride), _fixed(padding), _fixed(output_padding), groups, _fixed(dilation)
    return _batched(space, input, bias, "convolution_input", weight, _turned(name, space, *metas, *numbers))


def _fixed(value: Any) -> Any:
    """A list as a tuple: what can be a key."""
    return tuple(value) if isinstance(value, list) else value


def _metas(name: str, input: Any, weight: Any, bias: Any) -> tuple[Meta, Meta, Meta | None]:
    """Layouts of the operands. Raises `ArgumentError` for what is no tensor."""
    for what, value in (("input", input), ("weight", weight), ("bias", bias)):
        if not isinstance(value, Tensor) and (what != "bias" or value is not None):
            raise ArgumentError(f"{name}: {what} must be a tensor, not {type(value).__name__}")
    return input.meta, weight.meta, None if bias is None else bias.meta


# Pure functions of layouts and arguments, remembered: checks take longer than the rest of a call of few pixels.


@lru_cache(maxsize=1024, typed=True)
def _straight(
    name: str, space: int, input: Meta, weight: Meta, bias: Meta | None, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> tuple[Any, ...]:  # fmt: skip
    """The arguments of the op `convolution`. Raises `ShapeError`, `ArgumentError`."""
    _check(name, space, input, weight, groups)
    step, apart = _numbers(name, "stride", stride, space, 1), _numbers(name, "dilation", dilation, space, 1)
    around = _around(name, padding, weight.shape[2:], step, apart, space)
    outs, ins, *kernel = weight.shape
    channels = input.shape[-1 - space]
    if channels != ins * groups:
        raise ShapeError(
            f"{name}: with groups={groups}, a weight of shape {_shape(weight)} takes {ins * groups} channels; the "
            f"input of shape {_shape(input)} has {channels}"
        )
    if outs % groups or outs == 0:
        raise ShapeError(f"{name}: {outs} output channels do not fall into {groups} groups")
    front, behind = around[:space], around[-space:]
    padded = [n + a + b for n, a, b in zip(input.shape[-space:], front, behind, strict=True)]
    reach = [d * (k - 1) + 1 for d, k in zip(apart, kernel, strict=True)]
    if any(r > n for r, n in zip(reach, padded, strict=True)):
        raise ShapeError(
            f"{name}: the kernel of size {kernel} reaches {reach} pixels, the padded input has {padded}; use "
            "padding, or a smaller dilation"
        )
    _check_bias(name, weight, bias, outs)
    return step, around, apart, groups


@lru_cache(maxsize=1024, typed=True)
def _turned(
    name: str, space: int, input: Meta, weight: Meta, bias: Meta | None, stride: Any, padding: Any,
    output_padding: Any, groups: int, dilation: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The arguments of the op `convolution_input`. Raises `ShapeError`, `ArgumentError`."""
    _check(name, space, input, weight, groups)
    step, apart = _numbers(name, "stride", stride, space, 1), _numbers(name, "dilation", dilation, space, 1)
    around = _numbers(name, "padding", padding, space, 0)
    more = _numbers(name, "output_padding", output_padding, space, 0)
    if any(q >= max(s, d) for q, s, d in zip(more, step, apart, strict=True)):
        raise ShapeError(
            f"{name}: output_padding must be smaller than either stride or dilation: output_padding is {more}, stride "
            f"{step}, dilation {apart}"
        )
    ins, outs, *kernel = weight.shape
    channels = input.shape[-1 - space]
    if channels != ins or ins % groups or ins == 0:
        raise ShapeError(
            f"{name}: with groups={groups}, a transposed weight of shape {_shape(weight)} takes {ins} channels, a "
            f"multiple of groups; the input of shape {_shape(input)} has {channels}"
        )
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + q + 1
        for n, s, p, d, k, q in zip(input.shape[-space:], step, around, apart, kernel, more, strict=True)
    )
    if min(size) < 1:
        raise ShapeError(f"{name}: the result of an input of shape {_shape(input)} would have the size {list(size)}")
    _check_bias(name, weight, bias, outs * groups)
    return size, step, around, apart, groups


def _batched(
    space: int, input: Tensor, bias: Tensor | None, op: str, weight: Tensor, statics: tuple[Any, ...]
) -> Tensor:
    """Call the op for one image or many, with the bias where the op takes it."""
    alone = input.meta.ndim == space + 1
    images = _ops.unsqueeze(input, 0) if alone else input
    if op == "convolution" and input.meta.numel:
        out = call(registry[op], (images, weight, bias), statics)
    else:
        operands = (images, weight, None) if op == "convolution" else (images, weight)
        out = call(registry[op], operands, statics)
        if bias is not None:
            out = _ops.add(out, alike(bias, out).reshape((-1,) + (1,) * space))
    return _ops.squeeze(out, 0) if alone else out


def _check(name: str, space: int, input: Meta, weight: Meta, groups: Any) -> None:
    """Raise unless the operands have the right number of dimensions, and `groups` is a positive number."""
    if isinstance(groups, bool) or not isinstance(groups, int):
        raise ArgumentError(f"{name}: groups must be an int, not {groups!r}")
    if groups < 1:
        raise ShapeError(f"{name}: groups must be at least 1, not {groups}")
    if weight.ndim != space + 2:
        raise ShapeError(
            f"{name}: the weight must have {space + 2} dimensions (output channels, input channels, and those of "
            f"space; the first two change places where it is transposed), its shape is {_shape(weight)}"
        )
    if input.ndim not in (space + 1, space + 2):
        raise ShapeError(
            f"{name}: takes {space + 1} or {space + 2} dimensions (with or without a batch in front), the "
            f"input has shape {_shape(input)}"
        )
    if 0 in weight.shape[2:]:
        raise ShapeError(f"{name}: the kernel must not have size 0, the weight has shape {_shape(weight)}")
    if 0 in input.shape[-space:]:
        raise ShapeError(
            f"{name}: only the batch and the channels may be empty, the input has shape {_shape(input)}"
        )


def _check_bias(name: str, weight: Meta, bias: Meta | None, outs: int) -> None:
    if bias is not None and bias.shape != (outs,):
        raise ShapeError(
            f"{name}: for a weight of shape {_shape(weight)} the bias must have shape [{outs}], not {_shape(bias)}"
        )


def _shape(layout: Meta) -> list[int]:
    return list(layout.shape)


def _numbers(name: str, argument: str, value: Any, space: int, least: int) -> tuple[int, ...]:
    """One integer for each dimension of space, of a number or as many."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if any(isinstance(n, (bool, str)) or not hasattr(n, "__index__") for n in given):
        raise ArgumentError(f"{name}: {argument} must be an int or {space} of them, not {value!r}")
    found = tuple(n.__index__() for n in given)
    found = found * space if len(found) == 1 else found
    if len(found) != space:
        raise ShapeError(f"{name}: {argument} must be an int or {space} of them, one a dimension, not {value!r}")
    if min(found) < least:
        raise ShapeError(f"{name}: {argument} must be at least {least}, not {value!r}")
    return found


def _around(
    name: str, padding: Any, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], space: int
) -> tuple[int, ...]:
    """Zeros a dimension on either side; or, where they differ, in front and then behind."""
    if not isinstance(padding, str):
        return _numbers(name, "padding", padding, space, 0)
    if padding == "valid":
        return (0,) * space
    if padding != "same":
        raise ShapeError(f"{name}: padding is a number, one a dimension, 'same' or 'valid', not {padding!r}")
    if stride != (1,) * space:
        raise ShapeError(f"{name}: padding='same' needs a stride of 1, not {stride}")
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    front, behind = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    return front if front == behind else front + behind
