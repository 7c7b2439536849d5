"""Collectives of tensors under `torch.distributed`'s names.

All ranks of a group call the same collectives in the same order. With `async_op=True` a call returns a `Work`; the
tensors belong to it until `wait` has returned. A process outside of the group gets None.

`group_src` and `group_dst` are ranks in the group, `src` and `dst` global ranks.

`one_tensor`, `gathering`, `scattering` and `exchanging` have the functions, by what they do to the ranks' tensors. A
function checks its `arguments`, takes NCCL if it can, and otherwise has `starting` run the functions of
`host_collectives` on the host; those that take lists of tensors put them into one buffer (`packing`).
"""

from .arguments import root_rank
from .exchanging import all_to_all, all_to_all_single
from .gathering import all_gather, all_gather_into_tensor, gather
from .one_tensor import all_reduce, broadcast, reduce
from .scattering import reduce_scatter, reduce_scatter_tensor, scatter

__all__ = [
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "broadcast",
    "gather", "reduce", "reduce_scatter", "reduce_scatter_tensor", "root_rank", "scatter",
]  # fmt: skip
