"""Functions of the package's namespace that call the method of the same name."""

from __future__ import annotations

from collections.abc import Sequence

from ..arguments.memory_formats import copy_in_format
from ..arguments.types import Index, MemoryFormat, Operand
from ..runtime.tensor import Tensor
from .argument_checks import only_tensors

__all__ = [
    "as_strided", "clamp_", "clip_", "clone", "detach", "detach_", "fill_", "get_device", "index_put_", "zero_",
]  # fmt: skip


def clone(input: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """Return a copy; gradients flow back to `input`.

    Args:
        input: Tensor of any dtype.
        memory_format: Order of dimensions in memory; None: the order of `input`, without gaps.

    Returns:
        Tensor of the shape and dtype of `input`, with memory of its own.

    Raises:
        ShapeError: `memory_format` is for tensors of another rank.

    Example:
        >>> wg.clone(wg.tensor([1, 2]))
        tensor([1, 2])
    """
    return copy_in_format("clone", input, memory_format)


def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Call `Tensor.as_strided`.

    Args:
        input: Tensor of any dtype.
        size: The shape.
        stride: Distance between neighbours in each dimension, in elements, not negative.
        storage_offset: Position of the first element in the storage, in elements; None: that of `input`.

    Returns:
        A view of the storage of `input`.

    Raises:
        ShapeError: If the view leaves the storage, or a stride is negative.

    Example:
        >>> wg.as_strided(wg.arange(4), (2, 2), (1, 2))
        tensor([[0, 2],
                [1, 3]])
    """
    only_tensors("as_strided", input)
    return input.as_strided(size, stride, storage_offset)


def clamp_(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Call `Tensor.clamp_`.

    Args:
        input: Tensor, which is changed.
        min: Lower bound: a number, a tensor that broadcasts, or None.
        max: Upper bound: a number, a tensor that broadcasts, or None.

    Returns:
        `input`.

    Raises:
        ArgumentError: Both bounds are None.

    Example:
        >>> wg.clamp_(wg.tensor([-2.0, 3.0]), 0, 1)
        tensor([0., 1.])
    """
    only_tensors("clamp_", input)
    return input.clamp_(min, max)


clip_ = clamp_


def detach(input: Tensor) -> Tensor:
    """Return a tensor without history that shares the memory of `input`.

    Args:
        input: Tensor of any dtype.

    Returns:
        A view of `input`.

    Example:
        >>> x = wg.ones(2, requires_grad=True)
        >>> wg.detach(x).requires_grad
        False
    """
    only_tensors("detach", input)
    return input.detach()


def detach_(input: Tensor) -> Tensor:
    """Call `Tensor.detach_`.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.detach_(wg.ones(2, requires_grad=True) * 2)
        tensor([2., 2.])
    """
    only_tensors("detach_", input)
    return input.detach_()


def fill_(input: Tensor, value: Operand) -> Tensor:
    """Call `Tensor.fill_`.

    Args:
        input: Tensor, which is changed.
        value: Number, or a tensor of shape `()`.

    Returns:
        `input`.

    Example:
        >>> wg.fill_(wg.empty(2), 3)
        tensor([3., 3.])
    """
    only_tensors("fill_", input)
    return input.fill_(value)


def zero_(input: Tensor) -> Tensor:
    """Call `Tensor.zero_`.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.zero_(wg.ones(2))
        tensor([0., 0.])
    """
    only_tensors("zero_", input)
    return input.zero_()


def get_device(input: Tensor) -> int:
    """Call `Tensor.get_device`.

    Args:
        input: Tensor of any dtype.

    Returns:
        Index of the device; -1 for `cpu`.

    Example:
        >>> wg.get_device(wg.ones(2, device='cpu'))
        -1
    """
    only_tensors("get_device", input)
    return input.get_device()


def index_put_(input: Tensor, indices: Sequence[Index], values: Operand, accumulate: bool = False) -> Tensor:
    """Call `Tensor.index_put_`.

    Args:
        input: Tensor, which is changed.
        indices: Indices of the first dimensions, such as int64 or bool tensors.
        values: Number, or a tensor that broadcasts to the indexed shape.
        accumulate: Add the values to the elements, once for each occurrence of a position, instead of storing them.

    Returns:
        `input`.

    Example:
        >>> wg.index_put_(wg.zeros(3), (wg.tensor([0, 2]),), wg.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    only_tensors("index_put_", input)
    return input.index_put_(indices, values, accumulate)
