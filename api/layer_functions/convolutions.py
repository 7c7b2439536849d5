"""Convolutions and transposed convolutions in one, two and three dimensions.

Names and arguments are those of `torch.nn.functional`; `import weftgrad` exports the functions as well. All of them
call one of two ops: `convolution`, or its transpose `convolution_input`, which is also the gradient of a convolution
with respect to its input. As in PyTorch, a convolution is a cross-correlation: the kernel is not flipped.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._generated import ops as _ops
from ..arguments.types import IntOrInts
from ..runtime.autocast import match_autocast_dtype
from ..runtime.dispatch import call
from ..runtime.errors import ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from .convolution_arguments import (
    as_hashable,
    convolution_statics,
    operand_layouts,
    transposed_convolution_statics,
)

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
]


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
        shape = list(weight.meta.shape)
        raise ShapeError(f"convolution: the weight must have 3, 4 or 5 dimensions, its shape is {shape}")
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
    metas = operand_layouts(name, input, weight, bias)
    statics = convolution_statics(
        name, rank, *metas, as_hashable(stride), as_hashable(padding), as_hashable(dilation), groups
    )
    return _call_batched(rank, input, bias, "convolution", weight, statics)


def _convolve_transposed(
    name: str, rank: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: IntOrInts,
    padding: IntOrInts, output_padding: IntOrInts, groups: int, dilation: IntOrInts,
) -> Tensor:  # fmt: skip
    metas = operand_layouts(name, input, weight, bias)
    numbers = as_hashable(stride), as_hashable(padding), as_hashable(output_padding), groups, as_hashable(dilation)
    statics = transposed_convolution_statics(name, rank, *metas, *numbers)
    if 0 not in statics[0]:
        return _call_batched(rank, input, bias, "convolution_input", weight, statics)
    # Kernels have at least one element to compute: compute some in the dimensions of size 0, and drop them.
    size, strides, padding_sizes, *others = statics
    less_padding = tuple(p if n else p - 1 for n, p in zip(size, padding_sizes, strict=True))
    enlarged = (tuple(n or 2 for n in size), strides, less_padding, *others)
    out = _call_batched(rank, input, bias, "convolution_input", weight, enlarged)
    for dim, n in zip(range(-rank, 0), size, strict=True):
        out = out if n else _ops.narrow(out, dim, 0, 0)
    return out


# Cached, because they are pure functions of layouts and arguments, and the checks take longer than a small convolution.


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
