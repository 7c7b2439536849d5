"""Sharded data parallel training, under `torch.distributed.fsdp`'s names: `fully_shard`."""

from .fully_shard import FSDPModule, fully_shard
from .sharded_unit import ShardedParameter

__all__ = ["FSDPModule", "ShardedParameter", "fully_shard"]
