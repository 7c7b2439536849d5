"""Algorithms over several processes: uneven inputs (`join`) and hooks that compress gradients (`ddp_comm_hooks`)."""

from .join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
