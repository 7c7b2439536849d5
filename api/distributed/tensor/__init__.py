"""Placements of tensors on ranks, under `torch.distributed.tensor`'s names; `parallel` divides layers."""

from .placements import Placement, Replicate, Shard

__all__ = ["Placement", "Replicate", "Shard"]
