"""Convolutions and transposed convolutions in one, two and three dimensions.

Names and arguments are those of `torch.nn.functional`; `import weftgrad` exports the functions as well. All of them
call one of two ops: `convolution`, or its transpose `convolution_input`, which is also the gradient of a convolution
with respect to its input. As in PyTorch, a convolution is a cross-correlation: the kernel is not flipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from .._generated import ops as _ops
from ..arguments.types import IntOrInts
from ..runtime.autocast import match_autocast_dtype
from ..runtime.device import Meta
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
]

_Numbers = TypeVar("_Numbers", bound=str | IntOrInts)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: str | IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlate `(N, C, L)` or `(C, L)` with `(O, C / groups, K)` and add a bias `(O,)`. See `conv2d`.

    Args:
        input: Tensor of shape `(N, C, L)` or `(C, L)`.
        weight: Tensor of shape `(out, C / groups, K)`.
        bias: Tensor of shape `(out,)`, which is added.
        stride: Distance between windows.
        padding: Elements added at both ends of each spatial dimension; or `"same"` or `"valid"`.
        dilation: Distance between the elements of a window.
        groups: Number of groups of channels that are convolved separately.

    Returns:
        Tensor of shape `(N, out, L')` or `(out, L')`.

    Example:
        >>> wg.conv1d(wg.ones(1, 3, 10), wg.ones(6, 3, 3)).shape
        weftgrad.Size([1, 6, 8])
    """
    return _convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: str | IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlate images with a kernel and add a bias.

    `out[n, o, y, x] = bias[o] + sum over c, i, j of weight[o, c, i, j] *
    padded[n, c, y * stride + i * dilation, x * stride + j * dilation]`, where output channel `o` only reads the input
    channels of its group.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`, floating.
        weight: `(O, C / groups, KH, KW)`, of the dtype of `input`.
        bias: `(O,)`, of the dtype of `input`, or None.
        stride: One int, or one for each spatial dimension; `dilation` takes the same.
        padding: Zeros added on each side: an int, one for each dimension, "valid" (none), or "same" (the output keeps
            the input's size; needs a stride of 1; an odd zero is added at the end).
        dilation: Distance between neighbouring elements of the kernel.
        groups: Number of channel groups; divides `C` and `O`.

    Returns:
        `(N, O, OH, OW)` or `(O, OH, OW)`, with `OH = floor((H + 2 * padding - dilation * (KH - 1) - 1) / stride) + 1`.

    Raises:
        ShapeError: Sizes do not fit together.
        DTypeError: The dtypes are not one floating dtype.
        ArgumentError: An argument has the wrong type.

    Example:
        >>> wg.conv2d(wg.ones(1, 3, 10, 10), wg.ones(6, 3, 3, 3)).shape
        weftgrad.Size([1, 6, 8, 8])
    """
    return _convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: str | IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlate `(N, C, D, H, W)` or `(C, D, H, W)` with `(O, C / groups, KD, KH, KW)` and add a bias `(O,)`.

    See `conv2d`.

    Args:
        input: Tensor of shape `(N, C, D, H, W)` or `(C, D, H, W)`.
        weight: Tensor of shape `(out, C / groups, KD, KH, KW)`.
        bias: Tensor of shape `(out,)`, which is added.
        stride: Distance between windows.
        padding: Elements added at both ends of each spatial dimension; or `"same"` or `"valid"`.
        dilation: Distance between the elements of a window.
        groups: Number of groups of channels that are convolved separately.

    Returns:
        Tensor with `out` channels.

    Example:
        >>> wg.conv3d(wg.ones(1, 3, 8, 8, 8), wg.ones(6, 3, 3, 3, 3)).shape
        weftgrad.Size([1, 6, 6, 6, 6])
    """
    return _convolve("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """Transpose `conv1d`: `(N, C, L)` or `(C, L)` with a weight `(C, O / groups, K)`. See `conv_transpose2d`.

    Args:
        input: Tensor of shape `(N, C, L)` or `(C, L)`.
        weight: Tensor of shape `(C, out / groups, K)`.
        bias: Tensor of shape `(out,)`, which is added.
        stride: Distance between windows.
        padding: Elements removed at both ends of each spatial dimension of the result.
        output_padding: Elements added at one end of each spatial dimension of the result.
        groups: Number of groups of channels that are convolved separately.
        dilation: Distance between the elements of a window.

    Returns:
        Tensor with `out` channels.

    Example:
        >>> wg.conv_transpose1d(wg.ones(1, 3, 10), wg.ones(3, 6, 2), stride=2).shape
        weftgrad.Size([1, 6, 20])
    """
    return _convolve_transposed(
        "conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """Apply the transpose of `conv2d` as a linear map, and add a bias.

    The result (without the bias) is the gradient of a convolution with this weight with respect to its input, for the
    output gradient `input`.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`, floating.
        weight: `(C, O / groups, KH, KW)`, of the dtype of `input`.
        bias: `(O,)`, or None.
        stride: Step of the convolution that is transposed; one int or two.
        padding: Rows and columns of zeros that this convolution adds at both ends; one int or two.
        output_padding: Rows and columns added to the output. A strided convolution maps several input sizes to one
            output size; this selects among them. It must be smaller than stride or dilation.
        groups: Number of groups of channels that are convolved separately.
        dilation: Distance of the kernel's elements; one int or two.

    Returns:
        `(N, O, OH, OW)` or `(O, OH, OW)`, with
        `OH = (H - 1) * stride - 2 * padding + dilation * (KH - 1) + output_padding + 1`.

    Raises:
        ShapeError: Sizes do not fit together.
        DTypeError: The dtypes are not one floating dtype.
        ArgumentError: An argument has the wrong type.

    Example:
        >>> wg.conv_transpose2d(wg.ones(1, 3, 5, 5), wg.ones(3, 6, 2, 2), stride=2).shape
        weftgrad.Size([1, 6, 10, 10])
    """
    return _convolve_transposed(
        "conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """Transpose `conv3d`: `(N, C, D, H, W)` or `(C, D, H, W)` with a weight `(C, O / groups, KD, KH, KW)`.

    See `conv_transpose2d`.

    Args:
        input: Tensor of shape `(N, C, D, H, W)` or `(C, D, H, W)`.
        weight: Tensor of shape `(C, out / groups, KD, KH, KW)`.
        bias: Tensor of shape `(out,)`, which is added.
        stride: Distance between windows.
        padding: Elements removed at both ends of each spatial dimension of the result.
        output_padding: Elements added at one end of each spatial dimension of the result.
        groups: Number of groups of channels that are convolved separately.
        dilation: Distance between the elements of a window.

    Returns:
        Tensor with `out` channels.

    Example:
        >>> wg.conv_transpose3d(wg.ones(1, 3, 4, 4, 4), wg.ones(3, 6, 2, 2, 2), stride=2).shape
        weftgrad.Size([1, 6, 8, 8, 8])
    """
    return _convolve_transposed(
        "conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


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
    """Convolve, or convolve transposed, in `weight.ndim - 2` spatial dimensions (1 to 3). See `conv2d`.

    Args:
        input: `(N, C, *)` or `(C, *)` with 1 to 3 spatial dimensions.
        weight: `(out, C / groups, *kernel)`; transposed `(C, out / groups, *kernel)`.
        bias: `(out)` or None.
        stride: Step of the kernel in each spatial dimension.
        padding: Zeros added at both ends of each spatial dimension.
        dilation: Distance of the kernel's elements in each spatial dimension.
        transposed: Whether to compute a transposed convolution.
        output_padding: Elements added at one end of a transposed convolution's result.
        groups: Number of groups of channels that are convolved separately.

    Returns:
        Tensor with `out` channels.

    Raises:
        ShapeError: If the weight has fewer than 3 or more than 5 dimensions, or shapes do not fit.

    Example:
        >>> wg.convolution(wg.ones(1, 1, 4), wg.ones(1, 1, 2), None, [1], [0], [1], False, [0], 1)
        tensor([[[2., 2., 2.]]])
    """
    rank = weight.meta.ndim - 2
    if rank not in (1, 2, 3):
        raise ShapeError(f"convolution: the weight must have 3, 4 or 5 dimensions, its shape is {_shape(weight.meta)}")
    if transposed:
        return _convolve_transposed(
            "convolution", rank, input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return _convolve("convolution", rank, input, weight, bias, stride, padding, dilation, groups)


# Shared helpers


def _convolve(
    name: str, rank: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: IntOrInts,
    padding: str | IntOrInts, dilation: IntOrInts, groups: int,
) -> Tensor:  # fmt: skip
    metas = _operand_layouts(name, input, weight, bias)
    statics = _convolution_args(
        name, rank, *metas, _as_hashable(stride), _as_hashable(padding), _as_hashable(dilation), groups
    )
    return _call_batched(rank, input, bias, "convolution", weight, statics)


def _convolve_transposed(
    name: str, rank: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: IntOrInts,
    padding: IntOrInts, output_padding: IntOrInts, groups: int, dilation: IntOrInts,
) -> Tensor:  # fmt: skip
    metas = _operand_layouts(name, input, weight, bias)
    numbers = _as_hashable(stride), _as_hashable(padding), _as_hashable(output_padding), groups, _as_hashable(dilation)
    return _call_batched(rank, input, bias, "convolution_input", weight, _transposed_args(name, rank, *metas, *numbers))


def _as_hashable(value: _Numbers) -> _Numbers | tuple[int, ...]:
    """Turn a list into a tuple, so that it can be a cache key."""
    return tuple(value) if isinstance(value, list) else value


def _operand_layouts(
    name: str, input: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Meta, Meta, Meta | None]:
    """Return the operands' layouts. Raises `ArgumentError` for an operand that is not a tensor."""
    for argument, value in (("input", input), ("weight", weight), ("bias", bias)):
        if not isinstance(value, Tensor) and (argument != "bias" or value is not None):
            raise ArgumentError(f"{name}: {argument} must be a tensor, not {type(value).__name__}")
    return input.meta, weight.meta, None if bias is None else bias.meta


# Cached, because they are pure functions of layouts and arguments, and the checks take longer than a small convolution.


@lru_cache(maxsize=1024, typed=True)
def _convolution_args(
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
def _transposed_args(
    name: str, rank: int, input: Meta, weight: Meta, bias: Meta | None, stride: IntOrInts, padding: IntOrInts,
    output_padding: IntOrInts, groups: int, dilation: IntOrInts,
) -> tuple[object, ...]:  # fmt: skip
    """Check the arguments and return the static arguments of the op `convolution_input`."""
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
    if min(size) < 1:
        raise ShapeError(f"{name}: the result of an input of shape {_shape(input)} would have the size {list(size)}")
    _check_bias(name, weight, bias, out_channels * groups)
    return size, strides, padding_sizes, dilations, groups


def _call_batched(
    rank: int, input: Tensor, bias: Tensor | None, op: str, weight: Tensor, statics: tuple[object, ...]
) -> Tensor:
    """Call the op for one image or a batch. Fuse the bias where the op accepts one, else add it."""
    is_unbatched = input.meta.ndim == rank + 1
    images = _ops.unsqueeze(input, 0) if is_unbatched else input
    if op == "convolution" and input.meta.numel:
        out = call(registry[op], (images, weight, bias), statics)
    else:
        operands = (images, weight, None) if op == "convolution" else (images, weight)
        out = call(registry[op], operands, statics)
        if bias is not None:
            out = _ops.add(out, match_autocast_dtype(bias, out).reshape((-1,) + (1,) * rank))
    return _ops.squeeze(out, 0) if is_unbatched else out


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
