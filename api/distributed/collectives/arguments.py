"""Checks of the collectives' arguments."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.errors import ArgumentError, DTypeError, ShapeError
from ...runtime.tensor import Tensor
from ..buffers import check_tensor
from ..process_group import ProcessGroup

__all__ = ["check_list", "check_sizes", "root_rank", "row_counts"]


def root_rank(
    group: ProcessGroup, name: str, rank: int | None, group_rank: int | None, default: int | None = None
) -> int:
    """Return the rank in the group that a global rank or a rank in the group means."""
    if rank is None and group_rank is None:
        if default is None:
            raise ArgumentError(f"{name}: pass src or dst, or the rank in the group as group_src or group_dst")
        return default
    if rank is not None and group_rank is not None:
        raise ArgumentError(f"{name}: a global rank and a rank in the group exclude each other")
    if group_rank is None:
        if rank not in group._members:
            raise ArgumentError(f"{name}: global rank {rank} is not in {group!r}")
        return group._members.index(rank)
    if not 0 <= group_rank < group.size():
        raise ArgumentError(f"{name}: {group!r} has no rank {group_rank}")
    return group_rank


def check_sizes(name: str, whole: Tensor, part: Tensor, size: int, whole_name: str) -> None:
    """Check that a tensor has the dtype of a part, and as many elements as a part for each of `size` ranks."""
    check_tensor(name, whole)
    check_tensor(name, part)
    if whole.meta.dtype is not part.meta.dtype:
        raise DTypeError(f"{name}: tensors of {whole.meta.dtype.name} and {part.meta.dtype.name}")
    if whole.meta.numel != part.meta.numel * size:
        raise ShapeError(
            f"{name}: {whole_name} of shape {list(whole.meta.shape)} has {whole.meta.numel} elements, and {size} ranks "
            f"with shape {list(part.meta.shape)} have {part.meta.numel * size}"
        )


def check_list(name: str, tensors: Sequence[Tensor], tensor: Tensor, size: int) -> None:
    """Check that a list has a tensor for each rank, of the shape and dtype of `tensor`."""
    layout = tensor.meta
    if len(tensors) != size:
        raise ArgumentError(f"{name}: a list of {len(tensors)} tensors for {size} ranks")
    for item in tensors:
        check_tensor(name, item)
        if item.meta.dtype is not layout.dtype or item.meta.shape != layout.shape:
            raise ShapeError(
                f"{name}: {item.meta.dtype.name} of shape {list(item.meta.shape)} in the list, and {layout.dtype.name} "
                f"of shape {list(layout.shape)}"
            )


def row_counts(name: str, argument: str, tensor: Tensor, rows: Sequence[int] | None, size: int) -> list[int]:
    """Return how many rows of a tensor belong to each rank: equally many if `rows` is None."""
    if not tensor.meta.shape:
        raise ShapeError(f"{name}: a tensor without dimensions cannot be split")
    total = tensor.meta.shape[0]
    if rows is None:
        if total % size:
            raise ShapeError(f"{name}: {total} rows are not a multiple of {size} ranks; pass {argument}")
        return [total // size] * size
    if len(rows) != size or sum(rows) != total or min(rows) < 0:
        raise ShapeError(f"{name}: {argument} {list(rows)} do not divide {total} rows among {size} ranks")
    return list(rows)
