"""A rank that runs collectives by a stand-in for NCCL on the stand-in for CUDA: `mpiexec -n 2 python FILE all`."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

import numpy as np
import pytest
from cuda_standin import Standin
from cuda_standin_objects import Op
from mpi4py import MPI

import weftgrad as wg
import weftgrad.distributed as dist
from weftgrad.distributed import nccl
from weftgrad.runtime.backends import cuda_api

_DTYPES = [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.uint16]


class NcclStandin:
    """NCCL's functions on host memory. Collectives run when the stream's work runs, which is as late as possible."""

    def __init__(self, cuda: Standin) -> None:
        self.cuda = cuda
        self.comm = MPI.COMM_WORLD.Dup()
        self.calls: list[str] = []
        self.aborted = self.destroyed = 0
        self.code = 0

    def ncclGetUniqueId(self, pointer: Any) -> int:
        pointer._obj.internal[0] = 42
        return 0

    def ncclCommInitRank(self, pointer: Any, size: int, identifier: nccl.UniqueId, rank: int) -> int:
        assert (identifier.internal[0], size, rank) == (42, self.comm.size, self.comm.rank)
        pointer._obj.value = 7
        return 0

    def ncclCommAbort(self, handle: Any) -> int:
        self.aborted += 1
        return 0

    def ncclCommDestroy(self, handle: Any) -> int:
        self.destroyed += 1
        return 0

    def ncclGetErrorString(self, code: int) -> bytes:
        return b"invalid usage"

    def _queue(self, name: str, stream: int, touches: list[tuple[int, int]], run: Any) -> int:
        self.calls.append(name)
        (target,) = [s for s in self.cuda.streams if int(s) == stream]
        self.cuda._push(target, Op(name, run, touches))
        return self.code

    def ncclAllReduce(self, send: int, recv: int, count: int, dtype: int, op: int, comm: Any, stream: int) -> int:
        source, target = view(send, count, dtype), view(recv, count, dtype)

        def run() -> None:
            target[:] = combine(self.comm.allgather(source), op)

        return self._queue("all_reduce", stream, [(send, source.nbytes), (recv, target.nbytes)], run)

    def ncclReduce(
        self, send: int, recv: int, count: int, dtype: int, op: int, root: int, comm: Any, stream: int
    ) -> int:
        source, target = view(send, count, dtype), view(recv, count, dtype)

        def run() -> None:
            result = combine(self.comm.allgather(source), op)
            if self.comm.rank == root:
                target[:] = result

        return self._queue("reduce", stream, [(send, source.nbytes)], run)

    def ncclBroadcast(self, send: int, recv: int, count: int, dtype: int, root: int, comm: Any, stream: int) -> int:
        source, target = view(send, count, dtype), view(recv, count, dtype)

        def run() -> None:
            target[:] = self.comm.bcast(source, root)

        return self._queue("broadcast", stream, [(recv, target.nbytes)], run)

    def ncclAllGather(self, send: int, recv: int, count: int, dtype: int, comm: Any, stream: int) -> int:
        source, target = view(send, count, dtype), view(recv, count * self.comm.size, dtype)

        def run() -> None:
            target[:] = np.concatenate(self.comm.allgather(source))

        return self._queue("all_gather", stream, [(send, source.nbytes), (recv, target.nbytes)], run)

    def ncclReduceScatter(self, send: int, recv: int, count: int, dtype: int, op: int, comm: Any, stream: int) -> int:
        source, target = view(send, count * self.comm.size, dtype), view(recv, count, dtype)

        def run() -> None:
            whole = combine(self.comm.allgather(source), op)
            target[:] = whole[self.comm.rank * count : (self.comm.rank + 1) * count]

        return self._queue("reduce_scatter", stream, [(send, source.nbytes), (recv, target.nbytes)], run)


def view(address: int, count: int, dtype: int) -> np.ndarray:
    kind = np.dtype(_DTYPES[dtype])
    return np.frombuffer((ctypes.c_byte * (count * kind.itemsize)).from_address(address), kind)


def combine(parts: list[np.ndarray], op: int) -> np.ndarray:
    function = [np.add, np.multiply, np.maximum, np.minimum, np.add][op]
    total = function.reduce(np.stack(parts))
    return (total / len(parts) if op == 4 else total).astype(parts[0].dtype)


def main() -> None:
    cuda = Standin()
    cuda_api.use(cuda)
    stand_in = NcclStandin(cuda)
    nccl.use(stand_in)
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    numbers = np.arange(6.0, dtype=np.float32) + rank
    everyone = np.stack([np.arange(6.0) + r for r in range(size)])

    def on_gpu(array: np.ndarray) -> wg.Tensor:
        return wg.tensor(array, device="cuda:0")

    x = on_gpu(numbers)
    version = x._version
    assert dist.all_reduce(x) is None
    assert x._version > version
    np.testing.assert_array_equal(x.cpu().numpy(), everyone.sum(0))
    for op, expected in ((dist.ReduceOp.AVG, everyone.mean(0)), (dist.ReduceOp.MAX, everyone.max(0))):
        x = on_gpu(numbers)
        work = dist.all_reduce(x, op, async_op=True)
        work.wait()
        np.testing.assert_array_equal(x.cpu().numpy(), expected)
    x = on_gpu(numbers)
    work = dist.all_reduce(x, async_op=True)
    assert work._join_stream is not None
    join, streams = work._join_stream, []
    work._join_stream = lambda: (streams.append(threading.get_ident()), join())
    future = work.get_future()
    future.wait()
    assert threading.get_ident() in streams  # this thread's stream waits for the data
    joins = len(streams)
    future.wait()  # also when the result is there
    assert len(streams) > joins
    np.testing.assert_array_equal(x.cpu().numpy(), everyone.sum(0))
    flags = on_gpu(np.array([rank == 0, False, True]))
    dist.all_reduce(flags)
    assert flags.cpu().tolist() == [True, False, True]
    x = on_gpu(numbers)
    dist.broadcast(x, 1)
    np.testing.assert_array_equal(x.cpu().numpy(), everyone[1])
    dist.reduce(x, 0)
    np.testing.assert_array_equal(x.cpu().numpy(), everyone[1] * (size if rank == 0 else 1))
    whole = wg.empty(size * 6, device="cuda:0")
    dist.all_gather_into_tensor(whole, on_gpu(numbers))
    np.testing.assert_array_equal(whole.cpu().numpy(), everyone.reshape(-1))
    part = wg.empty(6 // size, device="cuda:0")
    dist.reduce_scatter_tensor(part, on_gpu(numbers))
    np.testing.assert_array_equal(part.cpu().numpy(), everyone.sum(0).reshape(size, -1)[rank])
    assert set(stand_in.calls) == {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"}
    calls = len(stand_in.calls)
    shorts = on_gpu(np.array([rank, 1], np.int16))  # NCCL has no int16: through the host
    dist.all_reduce(shorts)
    assert shorts.cpu().tolist() == [size * (size - 1) // 2, size]
    assert len(stand_in.calls) == calls
    with pytest.raises(ValueError, match="NCCL needs contiguous tensors"):
        dist.all_reduce(on_gpu(np.ones((2, 3), np.float32)).t())
    assert not cuda.violations, cuda.violations
    stand_in.code = 5
    with pytest.raises(dist.DistBackendError, match=r"ncclAllReduce: invalid usage \(error 5\)"):
        dist.all_reduce(x)
    stand_in.code = 0
    dist.destroy_process_group()
    assert stand_in.destroyed == 1
    print(f"ok {rank}\n", end="", flush=True)


if __name__ == "__main__":
    assert sys.argv[1] == "all"
    main()
