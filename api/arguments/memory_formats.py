"""The argument `memory_format`: the order in which a tensor's dimensions lie in memory.

`contiguous_format` is row-major. `channels_last` of `(N, C, H, W)` and `channels_last_3d` of `(N, C, D, H, W)` have the
channels innermost and the batch outermost. `preserve_format` is the order of another tensor.
"""

from __future__ import annotations

from ..runtime.device import Meta
from ..runtime.dispatch import call
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.layout import channels_last_strides
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from .types import MemoryFormat

__all__ = ["copy_in_format", "format_strides", "has_format", "suggested_format"]

_CHANNELS_LAST_RANKS = {"channels_last": 4, "channels_last_3d": 5}


def _is_channels_last(where: str, memory_format: MemoryFormat | None, rank: int) -> bool:
    """Return True for formats with the channels innermost, False for `contiguous_format` and None.

    Raises:
        ShapeError: The format is for tensors of another rank.
        ArgumentError: `memory_format` is `preserve_format` or no format at all.
    """
    if memory_format is None or memory_format == "contiguous_format":
        return False
    required_rank = _CHANNELS_LAST_RANKS.get(memory_format)
    if required_rank is None:
        raise ArgumentError(
            f"{where}: memory_format is contiguous_format, channels_last or channels_last_3d, not {memory_format!r}"
        )
    if rank != required_rank:
        raise ShapeError(f"{where}: {memory_format} is for tensors of rank {required_rank}, this one has rank {rank}")
    return True


def format_strides(
    where: str, memory_format: MemoryFormat | None, shape: tuple[int, ...]
) -> tuple[int, ...] | None:  # fmt: skip
    """Return the strides of a new tensor in a format, or None if it is row-major.

    Args:
        where: Name of the function, for messages.
        memory_format: The format; None: `contiguous_format`.
        shape: The tensor's shape.

    Raises:
        ShapeError: The format is for tensors of another rank.
        ArgumentError: `memory_format` is `preserve_format` or no format at all.
    """
    return channels_last_strides(shape) if _is_channels_last(where, memory_format, len(shape)) else None


def has_format(layout: Meta, memory_format: MemoryFormat | None) -> bool:
    """Return True if a tensor has no gaps and this format. The strides of dimensions of size 1 do not matter.

    Formats other than channels-last ones mean row-major.
    """
    rank = _CHANNELS_LAST_RANKS.get(memory_format or "")
    if rank is None:
        return layout.contiguous
    if layout.ndim != rank:
        return False
    expected_strides = channels_last_strides(layout.shape)
    return all(
        size == 1 or stride == expected
        for size, stride, expected in zip(layout.shape, layout.strides, expected_strides, strict=True)
    )


def suggested_format(layout: Meta) -> MemoryFormat:
    """Return the format to which the order of the strides belongs, as PyTorch's `suggest_memory_format` does.

    It is `contiguous_format` unless the channels are innermost. The tensor may have gaps. Unlike in `has_format`, the
    strides of dimensions of size 1 count: a tensor of shape `(N, 1, H, W)` is row-major and channels-last at once, and
    its strides decide. Where they fit both, as in `(N, 1, 1, 1)`, it is `contiguous_format`.
    """
    if layout.ndim not in _CHANNELS_LAST_RANKS.values() or 0 in layout.shape or layout.strides[1] == 0:
        return "contiguous_format"
    extent = 0  # elements that the dimensions further inside span
    for dim in (1, *range(layout.ndim - 1, 1, -1), 0):
        if layout.strides[dim] < extent or (dim == 0 and extent == layout.strides[1]):
            return "contiguous_format"
        extent = layout.strides[dim] * layout.shape[dim]
    return "channels_last" if layout.ndim == _CHANNELS_LAST_RANKS["channels_last"] else "channels_last_3d"


def copy_in_format(
    where: str, tensor: Tensor, memory_format: MemoryFormat | None, dtype: DType | None = None
) -> Tensor:
    """Return a copy in a format, converted to `dtype`; gradients flow back.

    Args:
        where: Name of the function, for messages.
        tensor: The tensor to copy.
        memory_format: The format; None or `preserve_format`: the tensor's own order, without gaps.
        dtype: Dtype of the copy; None: that of the tensor.

    Raises:
        ShapeError: The format is for tensors of another rank.
        ArgumentError: There is no such format.
    """
    if memory_format is None or memory_format == "preserve_format":
        return call(registry["copy"], (tensor,), (dtype,))
    if _is_channels_last(where, memory_format, tensor.meta.ndim):
        return call(registry["channels_last_copy"], (tensor,), (dtype,))
    converted = tensor if dtype is None or dtype is tensor.meta.dtype else call(registry["copy"], (tensor,), (dtype,))
    is_new = converted is not tensor and converted.meta.contiguous
    return converted if is_new else call(registry["contiguous_copy"], (converted,))
