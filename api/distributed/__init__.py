"""Several processes, on one machine or many, under `torch.distributed`'s names.

`init_process_group` joins the processes that a launcher has started (`mpiexec`, `weftgrad launch`, Slurm's `srun`).
Tensors in host memory travel by MPI without a copy, those of other devices through the host, and CUDA's by NCCL. The
engines are libraries: `mpi4py` with any MPI, and NCCL.

Modules, in the order of their imports: `errors`, `reduce_ops`, `headers` (what ranks compare), `watching` (notices
between ranks about failures), `launchers` (environment variables), `process_manager` (ranks that no MPI launcher has
started), `world` (start and end of MPI), `progress` (a thread for calls in flight), `works` (these calls), `buffers`,
`nccl`, `availability`, `host_collectives` (MPI's functions), `exchanges` (the messages of each call), `process_group`,
`groups` (beginning and end of process groups), `staging` (copies on the host), `collectives`, `barriers`,
`point_to_point`, `objects`, and `nn.functional` (differentiable collectives). They are internal, like every name that
begins with an underscore; public are the names in `__all__`, and `nn.functional`.
"""

from . import nn as nn
from .availability import (
    is_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
)
from .barriers import barrier, monitored_barrier
from .collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from .errors import (
    CollectiveMismatch,
    CollectiveTimeout,
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    RankFailure,
)
from .groups import destroy_process_group, init_process_group, new_group, new_subgroups
from .objects import all_gather_object, broadcast_object_list, gather_object, scatter_object_list
from .point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send
from .process_group import (
    GroupMember,
    ProcessGroup,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    is_initialized,
)
from .reduce_ops import ReduceOp
from .works import Future, Work

__all__ = [
    # groups
    "GroupMember", "ProcessGroup", "destroy_process_group", "get_backend", "get_global_rank", "get_group_rank",
    "get_node_local_rank", "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group",
    "is_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available",
    "is_torchelastic_launched", "new_group", "new_subgroups",
    # collectives
    "ReduceOp", "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "barrier",
    "broadcast", "gather", "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
    # objects
    "all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list",
    # messages
    "P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send",
    # what calls return and raise
    "CollectiveMismatch", "CollectiveTimeout", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError",
    "Future", "RankFailure", "Work",
    # modules
    "nn",
]  # fmt: skip
