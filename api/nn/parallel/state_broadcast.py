"""Copy parameters and buffers of one rank to all, in few collectives, and check that all ranks have the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import distributed as dist
from ...autograd import no_grad
from ...runtime.device import Device, meta
from ...runtime.dispatch import call_into, empty
from ...runtime.dtypes import DType
from ...runtime.records import registry
from ...runtime.tensor import Tensor
from .buckets import view_of

__all__ = ["broadcast_tensors", "check_same_parameters"]

_SINGLE_BYTES = 1 << 20  # a contiguous tensor of this size travels without a copy


def broadcast_tensors(tensors: Sequence[Tensor], group: Any, source: int = 0) -> None:
    """Give tensors the values that rank `source` of the group has. Small ones are copied to one vector first."""
    packs: dict[tuple[DType, Device], list[Tensor]] = {}
    root = source if group is None else dist.get_global_rank(group, source)
    with no_grad():
        for tensor in tensors:
            layout = tensor.meta
            if not layout.numel:
                continue
            if layout.contiguous and layout.numel * layout.dtype.itemsize >= _SINGLE_BYTES:
                dist.broadcast(tensor.detach(), root, group)
            else:
                packs.setdefault((layout.dtype, layout.device), []).append(tensor)
        for (dtype, device), members in packs.items():
            packed = empty(meta(dtype, (sum(tensor.meta.numel for tensor in members),), None, device))
            parts, offset = [], 0
            for tensor in members:
                parts.append(view_of(packed, offset, tensor.meta.shape))
                offset += tensor.meta.numel
            if dist.get_rank(group) == source:
                for tensor, part in zip(members, parts, strict=True):
                    call_into(registry["copy"], (tensor,), (None,), (part,), in_place=True)
            dist.broadcast(packed, root, group)
            if dist.get_rank(group) != source:
                for tensor, part in zip(members, parts, strict=True):
                    call_into(registry["copy"], (part,), (None,), (tensor.detach(),), in_place=True)


def check_same_parameters(named: Sequence[tuple[str, Tensor]], group: Any) -> None:
    """Check that all ranks have parameters of the same names, shapes and dtypes.

    Raises:
        DistError: They differ. All ranks raise it.
    """
    own = [(name, tuple(param.meta.shape), param.meta.dtype.name) for name, param in named]
    of_ranks: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(of_ranks, own, group=group)
    first = of_ranks[0]
    for rank, theirs in enumerate(of_ranks):
        if theirs == first:
            continue
        if len(theirs) != len(first):
            difference = f"rank 0 has {len(first)} parameters, and rank {rank} has {len(theirs)}"
        else:
            expected, actual = next((a, b) for a, b in zip(first, theirs, strict=True) if a != b)
            difference = f"rank 0 has {_describe(expected)}, and rank {rank} has {_describe(actual)}"
        raise dist.DistError(
            f"DistributedDataParallel: the ranks have different modules: {difference}; construct the same module on "
            "every rank"
        )


def _describe(entry: tuple[str, tuple[int, ...], str]) -> str:
    name, shape, dtype = entry
    return f"{name} of shape {list(shape)} and dtype {dtype}"
