"""Checks that every rank runs: `mpiexec -n N python distributed_checks.py NAME`. References are NumPy's."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import weftgrad as wg
import weftgrad.distributed as dist
from weftgrad.distributed.collectives import scattering
from weftgrad.distributed.nn import functional as differentiable
from weftgrad.distributed.staging import HostCopy

FLOATS = [wg.float16, wg.bfloat16, wg.float32, wg.float64]
INTEGERS = [wg.uint8, wg.int8, wg.int16, wg.int32, wg.int64]


def values(rank: int, shape: tuple[int, ...] = (5, 3), seed: int = 0) -> np.ndarray:
    """Return small integers: sums and products are exact in every dtype."""
    return np.random.default_rng(100 * seed + rank).integers(0, 4, shape)


def everyone(size: int, shape: tuple[int, ...] = (5, 3), seed: int = 0) -> np.ndarray:
    return np.stack([values(rank, shape, seed) for rank in range(size)])


def reductions(rank: int, size: int) -> None:
    references = {
        dist.ReduceOp.SUM: everyone(size).sum(0),
        dist.ReduceOp.PRODUCT: everyone(size).prod(0),
        dist.ReduceOp.MIN: everyone(size).min(0),
        dist.ReduceOp.MAX: everyone(size).max(0),
    }
    for dtype in FLOATS + INTEGERS:
        for op, reference in references.items():
            x = wg.tensor(values(rank)).to(dtype)
            assert dist.all_reduce(x, op) is None
            np.testing.assert_array_equal(x.to(wg.float64).numpy(), reference, err_msg=f"{dtype} {op.name}")
    for dtype in FLOATS:
        x = wg.tensor(values(rank)).to(dtype)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        np.testing.assert_allclose(x.to(wg.float64).numpy(), everyone(size).mean(0), rtol=2**-8)
    for dtype in INTEGERS:
        for op, function in ((dist.ReduceOp.BAND, np.bitwise_and), (dist.ReduceOp.BOR, np.bitwise_or)):
            x = wg.tensor(values(rank)).to(dtype)
            dist.all_reduce(x, op)
            np.testing.assert_array_equal(x.numpy(), function.reduce(everyone(size)))
    x = wg.tensor(values(rank)).to(wg.int32)
    dist.all_reduce(x, dist.ReduceOp.BXOR)
    np.testing.assert_array_equal(x.numpy(), np.bitwise_xor.reduce(everyone(size)))
    flags = wg.tensor(values(rank) > 1)
    dist.all_reduce(flags)
    np.testing.assert_array_equal(flags.numpy(), (everyone(size) > 1).any(0))
    for root in range(size):
        for dtype in (wg.float32, wg.bfloat16):
            x = wg.tensor(values(rank)).to(dtype)
            dist.reduce(x, root)
            expected = everyone(size).sum(0) if rank == root else values(rank)
            np.testing.assert_array_equal(x.float().numpy(), expected)
    for tensor, op, error in (
        (wg.ones(2, dtype=wg.int32), dist.ReduceOp.AVG, "AVG needs a floating-point dtype"),
        (wg.ones(2), dist.ReduceOp.BAND, "BAND needs an integer dtype"),
    ):
        with pytest.raises(TypeError, match=error):
            dist.all_reduce(tensor, op)


def half_sums(rank: int, size: int) -> None:
    """A sum of bfloat16 is the float32 sum of all ranks, rounded once, and has the same bits on every rank."""
    x = (wg.tensor(np.random.default_rng(rank).standard_normal(1000))).to(wg.bfloat16)
    terms = [(wg.tensor(np.random.default_rng(r).standard_normal(1000))).to(wg.bfloat16).float() for r in range(size)]
    expected = np.sum([t.numpy().astype(np.float64) for t in terms], 0)
    dist.all_reduce(x)
    error = np.abs(x.float().numpy() - expected)
    assert (error <= 2.0**-8 * np.abs(expected) + 1e-6).all()
    bits = [None] * size
    dist.all_gather_object(bits, x.float().numpy().tobytes())
    assert len(set(bits)) == 1


def layouts(rank: int, size: int) -> None:
    """Views that are not contiguous, empty tensors, scalars, and offsets within a storage."""
    storage = wg.tensor(values(rank, (6, 4))).to(wg.float32)
    before = storage.numpy().copy()
    dist.all_reduce(storage[1:5:2, ::2])
    expected = before.copy()
    expected[1:5:2, ::2] = everyone(size, (6, 4)).sum(0)[1:5:2, ::2]
    np.testing.assert_array_equal(storage.numpy(), expected)
    dist.all_reduce(storage.t()[1])
    row = storage[2]
    version = row._version
    dist.broadcast(row, size - 1)
    assert row._version > version
    scalar = wg.tensor(float(rank))
    dist.all_reduce(scalar)
    assert scalar.item() == size * (size - 1) / 2
    dist.all_reduce(wg.empty(0))
    dist.all_gather_into_tensor(wg.empty(0), wg.empty(0))
    parameter = wg.nn.Parameter(wg.full((3,), float(rank)))
    dist.broadcast(parameter, 0)
    assert parameter.tolist() == [0.0] * 3
    assert parameter.is_leaf


def gathers(rank: int, size: int) -> None:
    whole = wg.empty(size * 5, 3, dtype=wg.int32)
    part = wg.tensor(values(rank)).to(wg.int32)
    dist.all_gather_into_tensor(whole, part)
    np.testing.assert_array_equal(whole.numpy(), everyone(size).reshape(-1, 3))
    own = wg.zeros(size, 5, 3)
    own[rank] = wg.tensor(values(rank)).float()
    dist.all_gather_into_tensor(own, own[rank])  # in place
    np.testing.assert_array_equal(own.numpy(), everyone(size))
    parts = [wg.empty(5, 3, dtype=wg.int32) for _ in range(size)]
    dist.all_gather(parts, part)
    np.testing.assert_array_equal(np.stack([p.numpy() for p in parts]), everyone(size))
    for dtype in (wg.float32, wg.bfloat16, wg.int64):
        inputs = wg.tensor(values(rank, (size, 4))).to(dtype)
        expected = everyone(size, (size, 4)).sum(0)[rank]
        output = wg.empty(4, dtype=dtype)
        dist.reduce_scatter_tensor(output, inputs)
        np.testing.assert_array_equal(output.to(wg.float64).numpy(), expected)
        dist.reduce_scatter(output.zero_(), list(inputs.unbind(0)))
        np.testing.assert_array_equal(output.to(wg.float64).numpy(), expected)
        dist.reduce_scatter_tensor(inputs[rank], inputs)  # in place
        np.testing.assert_array_equal(inputs[rank].to(wg.float64).numpy(), expected)
    with pytest.raises(ValueError, match="several indices are the same element"):
        dist.all_gather([wg.empty(1, 3, dtype=wg.int32).expand(5, 3)] * size, part)
    with pytest.raises(NotImplementedError, match="a tensor on device meta has no values"):
        dist.all_gather_into_tensor(wg.empty(size, 3, device="meta"), wg.empty(3, device="meta"))
    root = size - 1
    collected = [wg.empty(5, 3, dtype=wg.int32) for _ in range(size)] if rank == root else None
    dist.gather(part, collected, root)
    if collected:
        np.testing.assert_array_equal(np.stack([p.numpy() for p in collected]), everyone(size))
    received = wg.empty(5, 3, dtype=wg.int32)
    dist.scatter(received, collected, root)
    np.testing.assert_array_equal(received.numpy(), values(rank))
    send = wg.tensor(values(rank, (size, 2))).float()
    output = wg.empty_like(send)
    dist.all_to_all_single(output, send)
    np.testing.assert_array_equal(output.numpy(), everyone(size, (size, 2))[:, rank])
    rows = [peer + 1 for peer in range(size)]
    uneven = wg.full((sum(rows), 2), float(rank))
    output = wg.empty(size * (rank + 1), 2)
    dist.all_to_all_single(output, uneven, [rank + 1] * size, rows)
    assert output[:, 0].tolist() == [float(peer) for peer in range(size) for _ in range(rank + 1)]
    outputs = [wg.empty(rank + 1) for _ in range(size)]
    dist.all_to_all(outputs, [wg.full((peer + 1,), float(rank)) for peer in range(size)])
    assert [o.tolist() for o in outputs] == [[float(peer)] * (rank + 1) for peer in range(size)]


def host_copies(rank: int, size: int) -> None:
    """Lists of inputs are packed into one buffer, and need no host copies of their own."""
    layouts: list[tuple[int, ...]] = []

    class RecordingCopy(HostCopy):
        def __init__(self, tensor: wg.Tensor, reads: bool, writes: bool):
            layouts.append(tensor.stride())
            super().__init__(tensor, reads, writes)

    inputs = [wg.full((3, 2), float(position)).t() for position in range(size)]
    part = wg.empty(2, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scattering, "HostCopy", RecordingCopy)
        dist.scatter(part, inputs if rank == 0 else None, src=0)
        assert part.tolist() == [[float(rank)] * 3] * 2
        dist.reduce_scatter(part, inputs)
        assert part.tolist() == [[float(rank * size)] * 3] * 2
    assert layouts == [(3, 1)] * 2


def messages(rank: int, size: int) -> None:
    with pytest.raises(TypeError, match="tag must be an integer, not str"):
        dist.isend(wg.ones(2), (rank + 1) % size, tag="a")
    following, preceding = (rank + 1) % size, (rank - 1) % size
    for numel in (1, 100_000):
        x, y = wg.full((numel,), float(rank)), wg.empty(numel)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, following), dist.P2POp(dist.irecv, y, preceding)])
        assert all(work.wait() for work in works)
        assert (y == preceding).all()
    # Two messages under two tags arrive in the other order, and from any rank.
    if rank == 0:
        first, second = wg.empty(3), wg.empty(2)
        works = [dist.irecv(second, 1, tag=2), dist.irecv(first, 1, tag=1)]
        assert all(work.wait() for work in works)
        assert (first.tolist(), second.tolist()) == ([1.0] * 3, [2.0] * 2)
        sources = {dist.recv(first) for _ in range(size - 1)}
        assert sources == set(range(1, size))
    else:
        if rank == 1:
            dist.send(wg.full((3,), 1.0), 0, tag=1)
            dist.send(wg.full((2,), 2.0), 0, tag=2)
        dist.send(wg.ones(3), 0)
    transposed = wg.arange(6.0).view(2, 3).t()
    if rank == 0:
        dist.send(transposed, 1)
    elif rank == 1:
        received = wg.empty(3, 2)
        assert dist.recv(received, 0) == 0
        assert received.tolist() == transposed.tolist()


def objects(rank: int, size: int) -> None:
    collected = [None] * size
    dist.all_gather_object(collected, {"rank": rank, "text": "x" * rank})
    assert collected == [{"rank": r, "text": "x" * r} for r in range(size)]
    items = [rank, "a", wg.ones(2)]
    dist.broadcast_object_list(items, 1)
    assert items[:2] == [1, "a"]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object((rank,), gathered, 0)
    assert gathered in (None, [(r,) for r in range(size)])
    received = [None]
    dist.scatter_object_list(received, [f"for {r}" for r in range(size)] if rank == 1 else None, 1)
    assert received == [f"for {rank}"]


def groups(rank: int, size: int) -> None:
    assert dist.get_world_size() == size
    assert dist.get_backend() == "mpi"
    pair = dist.new_group([1, 0])
    if rank < 2:
        assert dist.get_process_group_ranks(pair) == [0, 1]
        assert dist.get_rank(pair) == rank
        x = wg.ones(3)
        dist.all_reduce(x, group=pair)
        assert x.tolist() == [2.0] * 3
    else:
        assert pair is dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(pair) == -1
    mine, everything = dist.new_subgroups(2)
    assert len(everything) == size // 2
    assert dist.get_process_group_ranks(mine) == [rank // 2 * 2, rank // 2 * 2 + 1]
    x = wg.tensor(float(rank))
    dist.broadcast(x, rank // 2 * 2 + 1, mine)
    assert x.item() == rank // 2 * 2 + 1
    assert dist.get_global_rank(mine, 1) == rank // 2 * 2 + 1
    assert dist.get_group_rank(mine, rank) == rank % 2
    dist.destroy_process_group(mine)
    with pytest.raises(dist.DistBackendError, match="has been destroyed"):
        dist.all_reduce(x, group=mine)
    if size == 2:
        for _ in range(700):  # MPICH has 2048 communicators, a group three of them
            dist.destroy_process_group(dist.new_group())
    dist.barrier()
    dist.monitored_barrier()


def asynchronous(rank: int, size: int) -> None:
    tensors = [wg.full((20_000,), float(rank + i)).to(wg.bfloat16 if i % 3 == 0 else wg.float32) for i in range(12)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    doubled = works[0].get_future().then(lambda future: 2 * future.value()[0])
    for i in reversed(range(12)):
        assert works[i].wait()
        assert works[i].is_completed()
        assert works[i].is_success()
        assert works[i].exception() is None
        assert (tensors[i] == size * i + size * (size - 1) // 2).all()
    assert (doubled.wait() == size * (size - 1)).all()
    # While nobody waits, the progress thread completes works.
    work = dist.all_reduce(wg.ones(1000).to(wg.float16), async_op=True)
    done = threading.Event()
    work.get_future().add_done_callback(lambda future: done.set())
    assert done.wait(60)
    # A collective can be waited for in another order than that of its start, between others.
    a, b = wg.ones(10), wg.ones(10)
    first = dist.all_reduce(a, async_op=True)
    dist.all_reduce(b)
    first.wait()
    assert a.tolist() == b.tolist() == [float(size)] * 10


def derivatives(rank: int, size: int) -> None:
    """The gradient of the sum of all ranks' losses, compared with one process that has all tensors."""
    weights = wg.tensor(values(rank, (size, 2), seed=1)).double()
    x = wg.tensor(values(rank, (2,))).double().requires_grad_()
    all_weights = everyone(size, (size, 2), seed=1).astype(float)

    def gradient(loss: wg.Tensor) -> list[float]:
        (result,) = wg.autograd.grad(loss, [x])
        return result.tolist()

    row = weights[0]
    total = all_weights[:, 0].sum(0)
    assert gradient((differentiable.all_reduce(x) * row).sum()) == total.tolist()
    average = differentiable.all_reduce(x, dist.ReduceOp.AVG)
    np.testing.assert_allclose(gradient((average * row).sum()), total / size)
    expected = total.tolist() if rank == 0 else [0.0, 0.0]
    assert gradient((differentiable.broadcast(x, 0) * row).sum()) == expected
    gathered = wg.stack(differentiable.all_gather(x))
    assert gradient((gathered * weights).sum()) == all_weights.sum(0)[rank].tolist()
    reduced = differentiable.reduce(x, 0) * row
    np.testing.assert_allclose(gradient(reduced.sum()), all_weights[0, 0])
    part = differentiable.reduce_scatter(wg.empty(2).double(), [x * (i + 1) for i in range(size)])
    np.testing.assert_allclose(gradient((part * row).sum()), sum((i + 1) * all_weights[i, 0] for i in range(size)))
    exchanged = differentiable.all_to_all_single(wg.empty(size, 2).double(), x.expand(size, 2).clone())
    np.testing.assert_allclose(gradient((exchanged * weights).sum()), all_weights[:, rank].sum(0))
    scattered = differentiable.scatter([x * (i + 1) for i in range(size)], 0)
    at_root = sum((i + 1) * all_weights[i, 0] for i in range(size)) if rank == 0 else np.zeros(2)
    np.testing.assert_allclose(gradient((scattered * row).sum()), at_root)
    collected = wg.stack(differentiable.gather(x, 0))
    np.testing.assert_allclose(gradient((collected * weights).sum()), all_weights[0, rank])


def devices(rank: int, size: int) -> None:
    """Tensors of an OpenCL device go through the host, also in several chunks."""
    target = wg.device("opencl:0")
    for numel in (7, 300_000, 5_000_001):  # the last in five chunks
        x = wg.full((numel,), float(rank), device=target)
        dist.all_reduce(x)
        assert x.device == target
        assert (x.cpu() == size * (size - 1) / 2).all()
        work = dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True)
        work.wait()
        dist.broadcast(x.mul_(rank + 1), 1)
        assert (x.cpu() == size * (size - 1)).all()
    x = wg.full((3, 2), float(rank), device=target).to(wg.bfloat16)
    dist.all_reduce(x.t())
    assert x.float().cpu().tolist() == [[size * (size - 1) / 2] * 2] * 3
    whole = wg.empty(size, 4, device=target)
    dist.all_gather_into_tensor(whole, wg.full((4,), float(rank), device=target))
    assert whole.cpu()[:, 0].tolist() == [float(r) for r in range(size)]
    if rank == 0:
        dist.send(whole, 1)
    elif rank == 1:
        received = wg.zeros(size, 4, device=target)
        dist.recv(received, 0)
        assert received.cpu().tolist() == whole.cpu().tolist()


CHECKS = {
    f.__name__: f
    for f in (
        reductions, half_sums, layouts, gathers, host_copies, messages, objects, groups, asynchronous, derivatives,
        devices,
    )
}  # fmt: skip

if __name__ == "__main__":
    dist.init_process_group()
    for name in sys.argv[1].split(","):
        CHECKS[name](dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
    assert not dist.is_initialized()
    print(f"ok {dist.launchers.read_environment().rank}\n", end="", flush=True)
