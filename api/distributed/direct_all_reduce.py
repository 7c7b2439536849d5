"""`all_reduce` of large tensors in small groups, by messages between the ranks.

A tensor is processed in chunks, and each chunk is divided into one part per rank. Each rank combines one part: it
receives the part from every other rank, computes the reduction by a kernel, in the order of the ranks, and sends the
result to all. Each rank sends and receives (n - 1) / n of the tensor twice, as in MPI's own algorithm (Rabenseifner
2004).

Chunks are so small that the parts of all ranks stay in the cache. While a rank combines a chunk, the next one is
transferred. From 2 MiB on (`_MIN_BYTES`) this is faster than MPI's function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runtime.device import meta
from ..runtime.tensor import Tensor
from .buffers import empty_like_on_host, mark_written
from .local_reductions import combine_in_order
from .reduce_ops import ReduceOp

if TYPE_CHECKING:
    from .works import Steps

__all__ = ["direct_all_reduce_steps", "is_large"]

_MIN_BYTES = 4 << 20
_CHUNK_BYTES = 2 << 20
_PARTS_TAG, _RESULTS_TAG = 1, 2  # `exchanges` has tag 0


def is_large(tensor: Tensor) -> bool:
    """Return True if a tensor is so large that `direct_all_reduce_steps` is faster than MPI's function."""
    return tensor.meta.numel * tensor.meta.dtype.itemsize >= _MIN_BYTES


def direct_all_reduce_steps(mpi: Any, comm: Any, tensor: Tensor, op: ReduceOp) -> Steps:
    """Combine the ranks' tensors in place, for dtypes other than float16 and bfloat16.

    Args:
        mpi: The module `mpi4py.MPI`.
        comm: The group's serial communicator.
        tensor: A contiguous tensor in host memory.
        op: The reduction.

    Yields:
        Lists of MPI requests. The generator has to be resumed when all requests of a list are complete.
    """
    chunks = _Chunks(mpi, comm, tensor, op)
    parts = chunks.exchange_parts(0)
    results: list[Any] = []
    for index in range(chunks.count):
        yield parts
        if index + 1 < chunks.count:
            parts = chunks.exchange_parts(index + 1)
        chunks.combine(index)
        yield results
        results = chunks.exchange_results(index)
    yield results
    mark_written(tensor)


class _Chunks:
    """The chunks of a tensor, each divided into a part for every rank, and memory to receive parts of other ranks."""

    def __init__(self, mpi: Any, comm: Any, tensor: Tensor, op: ReduceOp):
        layout = tensor.meta
        self._mpi, self._comm, self._tensor, self._op = mpi, comm, tensor, op
        self._rank, self._size = comm.rank, comm.size
        self._peers = [rank for rank in range(self._size) if rank != self._rank]
        self._itemsize = layout.dtype.itemsize
        self._chunk_numel = _CHUNK_BYTES // self._itemsize
        self.count = -(-layout.numel // self._chunk_numel)
        layout.device.driver.synchronize()
        self._address = (tensor.storage.buffer or 0) + tensor.start
        part_numel = -(-self._chunk_numel // self._size)
        # Two tensors, because one chunk is combined while the next one is received. Each has one row for each peer.
        self._receive_buffers = [empty_like_on_host(tensor, (len(self._peers), part_numel)) for _ in range(2)]

    def _part(self, index: int, rank: int) -> tuple[int, int]:
        """Return the position of the first element of a rank's part of a chunk, and the number of its elements."""
        start = index * self._chunk_numel
        numel = min(self._chunk_numel, self._tensor.meta.numel - start)
        part_numel = -(-numel // self._size)  # of all parts but the last ones, which can be shorter or empty
        offset = min(rank * part_numel, numel)
        return start + offset, min(part_numel, numel - offset)

    def _part_memory(self, index: int, rank: int) -> list[Any]:
        """Return the memory of a rank's part of a chunk as mpi4py's functions take it."""
        start, numel = self._part(index, rank)
        memory = self._mpi.buffer.fromaddress(self._address + start * self._itemsize, numel * self._itemsize)
        return [memory, self._mpi.BYTE]

    def _received_part(self, index: int, position: int, numel: int) -> Tensor:
        """Return the memory that receives the values of peer number `position` for this rank's part of a chunk."""
        received = self._receive_buffers[index % 2]
        layout = received.meta
        start = received.start + position * layout.shape[1] * self._itemsize
        return Tensor(received.storage, meta(layout.dtype, (numel,), None, layout.device), start)

    def exchange_parts(self, index: int) -> list[Any]:
        """Start to send each rank its part of a chunk, and to receive this rank's part from every rank.

        Returns:
            The MPI requests.
        """
        numel = self._part(index, self._rank)[1]
        requests = []
        for position, peer in enumerate(self._peers):
            received = self._received_part(index, position, numel)
            address = (received.storage.buffer or 0) + received.start
            memory = self._mpi.buffer.fromaddress(address, numel * self._itemsize)
            requests.append(self._comm.Irecv([memory, self._mpi.BYTE], peer, _PARTS_TAG))
        return requests + [self._comm.Isend(self._part_memory(index, peer), peer, _PARTS_TAG) for peer in self._peers]

    def combine(self, index: int) -> None:
        """Combine the values of all ranks for this rank's part of a chunk, in place."""
        start, numel = self._part(index, self._rank)
        if not numel:
            return
        tensor = self._tensor
        layout = meta(tensor.meta.dtype, (numel,), None, tensor.meta.device)
        own_part = Tensor(tensor.storage, layout, tensor.start + start * self._itemsize)
        values = [self._received_part(index, position, numel) for position in range(len(self._peers))]
        values.insert(self._rank, own_part)
        combine_in_order(values, self._op, own_part)
        layout.device.driver.synchronize()

    def exchange_results(self, index: int) -> list[Any]:
        """Start to send this rank's combined part of a chunk to every rank, and to receive the parts of other ranks.

        Returns:
            The MPI requests.
        """
        requests = [self._comm.Irecv(self._part_memory(index, peer), peer, _RESULTS_TAG) for peer in self._peers]
        own_part = self._part_memory(index, self._rank)
        return requests + [self._comm.Isend(own_part, peer, _RESULTS_TAG) for peer in self._peers]
