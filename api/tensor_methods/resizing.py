"""Change a tensor's shape in place: `resize_`, `resize_as_`."""

from __future__ import annotations

from ..arguments.memory_formats import format_strides, suggested_format
from ..arguments.types import MemoryFormat, Sizes
from ..creation.options import shape_of
from ..runtime.device import meta
from ..runtime.dispatch import empty
from ..runtime.errors import GradientError
from ..runtime.tensor import Tensor

__all__ = ["resize_as_"]


def resize_(self: Tensor, *sizes: Sizes, memory_format: MemoryFormat | None = None) -> Tensor:
    """Change this tensor's shape in place. The result has no gaps.

    Elements keep their order in memory, starting from the tensor's first element. If the storage is too small, the
    tensor gets a new one, whose additional elements are uninitialised; it then shares no memory with its old views.

    Args:
        *sizes: The shape, as ints or as one sequence.
        memory_format: Order of dimensions in memory; None: row-major.

    Returns:
        This tensor.

    Raises:
        GradientError: The tensor requires grad.
        ShapeError: `memory_format` is for tensors of another rank.
        ArgumentError: `memory_format` is `preserve_format`.

    Example:
        >>> wg.arange(6).resize_(2, 2)
        tensor([[0, 1],
                [2, 3]])
    """
    if self.requires_grad:
        raise GradientError("resize_: changes a tensor's shape in place, which is not recorded; use reshape")
    shape = shape_of(sizes)
    if memory_format is None and shape == self.meta.shape:
        return self
    strides = format_strides("resize_", memory_format, shape)
    layout = meta(self.meta.dtype, shape, strides, self.meta.device)
    storage = self.storage
    available_bytes = storage.nbytes - (self.start - storage.start)
    if layout.nbytes > available_bytes:
        larger = empty(layout)
        count = available_bytes // layout.dtype.itemsize
        if count:
            flat_layout = meta(layout.dtype, (count,), None, layout.device)
            larger.view(-1)[:count].copy_(Tensor(storage, flat_layout, self.start))
        self.storage, self.start = larger.storage, larger.start
    storage.version += 1  # backward of an earlier op must not read the saved tensor with the new shape
    self.meta = layout
    if self.extra is not None and not _lies_within(self, self.extra.base):
        self.extra.base = None  # it is no view of its base any more
    return self


def _lies_within(view: Tensor, base: Tensor | None) -> bool:
    """Return True if all elements of a contiguous view lie inside the contiguous tensor `base`, which may be None."""
    if base is None or base.storage is not view.storage or not base.meta.contiguous:
        return False
    return bool(base.start <= view.start and view.start + view.meta.nbytes <= base.start + base.meta.nbytes)


def resize_as_(self: Tensor, other: Tensor, memory_format: MemoryFormat | None = None) -> Tensor:
    """Call `resize_` with the shape of `other`.

    Args:
        other: Tensor whose shape this tensor gets.
        memory_format: Order of dimensions in memory; None: row-major; `preserve_format`: that of `other`.

    Returns:
        This tensor.

    Raises:
        GradientError: The tensor requires grad.

    Example:
        >>> wg.arange(6).resize_as_(wg.ones(2, 2))
        tensor([[0, 1],
                [2, 3]])
    """
    if memory_format == "preserve_format":
        memory_format = suggested_format(other.meta)
    return resize_(self, *other.shape, memory_format=memory_format)


METHODS = {"resize_": resize_, "resize_as_": resize_as_}
