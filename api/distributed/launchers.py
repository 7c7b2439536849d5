"""What the launchers tell a process in its environment: rank, number of ranks, and the same on its machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Place", "read_environment"]

# Variables of rank, world size, rank on the machine, and ranks on the machine.
_LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A process's place among those that a launcher has started.

    Attributes:
        launcher: Whose variables were read; "" if there are none.
        rank: The process's number.
        size: The number of processes.
        local_rank: The process's number on its machine; -1 if unknown.
        local_size: The number of processes on its machine; -1 if unknown.
    """

    launcher: str = ""
    rank: int = 0
    size: int = 1
    local_rank: int = -1
    local_size: int = -1


def read_environment(environment: Mapping[str, str] | None = None) -> Place:
    """Return the place that the environment's variables give: torchrun's, Open MPI's, MPICH's or Slurm's.

    Args:
        environment: The variables; default: the process's.

    Example:
        >>> from weftgrad.distributed.launchers import read_environment
        >>> read_environment({'RANK': '1', 'WORLD_SIZE': '4', 'LOCAL_RANK': '1'}).local_rank
        1
    """
    variables = os.environ if environment is None else environment
    for launcher, names in _LAUNCHERS.items():
        rank, size, local_rank, local_size = (_integer(variables.get(name)) for name in names)
        if rank >= 0 and size > 0:
            return Place(launcher, rank, size, local_rank, local_size)
    return Place()


def _integer(text: str | None) -> int:
    try:
        return int(text or "")
    except ValueError:
        return -1
