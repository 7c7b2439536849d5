"""`ShardLayout`: which part of a whole tensor a rank has.

Sharded parameters have it as the attribute `shard_layout`, so that checkpoints can put the whole together and divide it
between another number of ranks, and the ranks as the attribute `shard_group`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from ..runtime.dtypes import Array
from ..runtime.tensor import Tensor

__all__ = ["ShardGroup", "ShardLayout", "find_shard_group", "is_shard", "layout_of"]


@dataclass(frozen=True)
class ShardLayout:
    """Part of a tensor: a range of its flattened elements, or of one dimension.

    Attributes:
        full_shape: Shape of the whole tensor.
        dim: The divided dimension; None: the flattened elements.
        start: First index of the part.
        stop: Index behind the last one.
    """

    full_shape: tuple[int, ...]
    dim: int | None
    start: int
    stop: int

    def cut(self, whole: Array) -> Array:
        """Return the part of a whole array."""
        if self.dim is None:
            return whole.reshape(-1)[self.start : self.stop]
        return whole[(slice(None),) * self.dim + (slice(self.start, self.stop),)]

    def paste(self, whole: Array, part: Array) -> None:
        """Write the part to a whole, contiguous array."""
        target = self.cut(whole)
        target[...] = part.reshape(target.shape)


@dataclass(frozen=True)
class ShardGroup:
    """The ranks that have the parts of a tensor.

    Attributes:
        process_group: Their process group; None for all ranks.
    """

    process_group: Any


def is_shard(tensor: Tensor) -> bool:
    """Return whether a tensor is a part of a whole one."""
    return getattr(tensor, "shard_layout", None) is not None


def find_shard_group(tensors: Iterable[Tensor]) -> ShardGroup | None:
    """Return the ranks that have the parts of the first sharded tensor; None if there is none."""
    for tensor in tensors:
        if is_shard(tensor):
            group: ShardGroup = tensor.shard_group  # type: ignore[attr-defined]
            return group
    return None


def layout_of(tensor: Tensor) -> ShardLayout:
    """Return the layout of a tensor; that of a tensor without one is the whole."""
    layout = getattr(tensor, "shard_layout", None)
    if isinstance(layout, ShardLayout):
        return layout
    shape = tuple(tensor.meta.shape)
    return ShardLayout(shape, None, 0, prod(shape))
