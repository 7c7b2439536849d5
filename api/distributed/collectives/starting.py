"""Starts of collectives by MPI: copies to the host, the steps, and what the ranks compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...runtime.tensor import Tensor
from ..headers import ROUTES
from ..process_group import ProcessGroup
from ..reduce_ops import ReduceOp
from ..staging import HostCopy, is_staged, pipelined_steps, with_host_copies
from ..works import Steps, Work

__all__ = ["start_collective", "start_pipelined"]


def start_collective(
    group: ProcessGroup,
    kind: str,
    copies: list[HostCopy],
    steps: Callable[..., Steps],
    tensor: Tensor,
    *,
    shape: Sequence[int] | None = None,
    op: ReduceOp | None = None,
    root: int = -1,
    chains_requests: bool = False,
    outputs: list[Tensor],
    async_op: bool,
) -> Work | None:
    """Start a collective: load `copies` to the host, run `steps` on them, and store them back."""
    staged = is_staged(*(copy.tensor for copy in copies), *outputs)
    is_serial = staged or chains_requests
    comm = group._serial_comm if is_serial else group._data_comm
    return group._start(
        kind,
        with_host_copies(copies, lambda: steps(group._world.mpi, comm)),
        dtype=tensor.meta.dtype,
        shape=tensor.meta.shape if shape is None else shape,
        op=op,
        root=root,
        route=int(staged),
        is_serial=is_serial,
        outputs=outputs,
        async_op=async_op,
    )


def start_pipelined(
    group: ProcessGroup,
    kind: str,
    tensor: Tensor,
    reads: bool,
    writes: bool,
    steps: Callable[[Any, Tensor], Steps],
    *,
    op: ReduceOp | None = None,
    root: int = -1,
    async_op: bool,
) -> Work | None:
    """Start an elementwise collective on a tensor of an OpenCL device, in chunks."""
    return group._start(
        kind,
        pipelined_steps(tensor, reads, writes, partial(steps, group._serial_comm)),
        dtype=tensor.meta.dtype,
        shape=tensor.meta.shape,
        op=op,
        root=root,
        route=ROUTES.index("in chunks"),
        is_serial=True,
        outputs=[tensor],
        async_op=async_op,
    )
