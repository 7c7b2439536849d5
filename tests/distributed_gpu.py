"""A rank with tensors of a GPU: `mpiexec -n N python distributed_gpu.py BACKEND DEVICE`; see `test_distributed_gpu`.

Rank r uses the GPU of its number, or the last one, if there are fewer. With `nccl`, every rank needs a GPU of its own.
"""

from __future__ import annotations

import sys

import numpy as np

import weftgrad as wg
import weftgrad.distributed as dist
from weftgrad import nn
from weftgrad.distributed.fsdp import fully_shard
from weftgrad.nn.parallel import DistributedDataParallel

SIZES = (1, 1000, 3_000_001)


def terms(size: int, numel: int) -> np.ndarray:
    return np.random.default_rng(numel).integers(1, 5, (size, numel)).astype(np.float32)


def check_collectives(rank: int, size: int, device: wg.device) -> None:
    for numel in SIZES:
        ranks = terms(size, numel)
        for dtype in (wg.float32, wg.float64, wg.bfloat16, wg.int32):
            x = wg.tensor(ranks[rank], device=device).to(dtype)
            dist.all_reduce(x)
            np.testing.assert_array_equal(x.cpu().double().numpy(), ranks.sum(0))
        x = wg.tensor(ranks[rank], device=device)
        work = dist.all_reduce(x.mul_(2), dist.ReduceOp.MAX, async_op=True)  # the kernel before is in flight
        assert work is not None
        work.wait()
        x += 1
        np.testing.assert_array_equal(x.cpu().numpy(), 2 * ranks.max(0) + 1)
        x = wg.tensor(ranks[rank], device=device)
        dist.broadcast(x, size - 1)
        np.testing.assert_array_equal(x.cpu().numpy(), ranks[-1])
        whole = wg.empty(size, numel, device=device)
        dist.all_gather_into_tensor(whole, wg.tensor(ranks[rank], device=device))
        np.testing.assert_array_equal(whole.cpu().numpy(), ranks)
        part = wg.empty(numel, device=device)
        dist.reduce_scatter_tensor(part, whole)
        np.testing.assert_array_equal(part.cpu().numpy(), size * ranks[rank])


def check_training(rank: int, size: int, device: wg.device) -> None:
    """Ranks with parts of the batch compute what one process computes with the whole batch."""
    inputs, targets = (wg.tensor(terms(8 * size, 6 + extra), device=device) for extra in (0, 1))
    own = slice(8 * rank, 8 * rank + 8)
    results = []
    for kind in ("alone", "ddp", "sharded"):
        wg.manual_seed(0)
        model: nn.Module = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 7)).to(device)
        if kind == "ddp":
            model = DistributedDataParallel(model)
        elif kind == "sharded":
            fully_shard(model)
        optimizer = wg.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        part = slice(None) if kind == "alone" else own
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs[part]), targets[part]).backward()
            optimizer.step()
        whole = [p.full_tensor() if kind == "sharded" else p.detach() for p in model.parameters()]
        results.append([value.cpu().numpy() for value in whole])
    for other in results[1:]:
        for value, expected in zip(other, results[0], strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


def main() -> None:
    backend, name = sys.argv[1:]
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    device = wg.device(f"cuda:{min(rank, wg.cuda.device_count() - 1)}" if name == "cuda" else name)
    check_collectives(rank, size, device)
    check_training(rank, size, device)
    dist.destroy_process_group()
    print(f"ok {rank}\n", end="", flush=True)


if __name__ == "__main__":
    main()
