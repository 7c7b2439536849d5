"""Ranks on NVIDIA GPUs: collectives by NCCL, with a rank for each GPU, and through the host, on GPUs that ranks share.

Run with `pytest -m gpu`. Needs mpi4py with an MPI, and for NCCL the wheel `nvidia-nccl-cu12` or the system's library.
"""

from __future__ import annotations

import pytest
from distributed_ranks import run_ranks

import weftgrad as wg
from weftgrad.distributed import is_nccl_available

# On a line of its own, because `-m gpu` searches for this line to select the modules to import.
pytestmark = pytest.mark.gpu

PROGRAM = "distributed_gpu.py"


def test_a_rank_for_each_gpu_by_nccl() -> None:
    if not is_nccl_available():
        pytest.skip("there is no NCCL")
    run_ranks(PROGRAM, ["nccl", "cuda"], min(4, wg.cuda.device_count()))


def test_two_ranks_through_the_host() -> None:
    run_ranks(PROGRAM, ["mpi", "cuda"], 2)
