"""Checks of the messages of small groups, by `mpiexec -n N python distributed_message_checks.py NAMES`.

References are NumPy's. `test_distributed_messages` runs them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import numpy as np
import pytest

import weftgrad as wg
import weftgrad.distributed as dist
from weftgrad.distributed import exchanges
from weftgrad.distributed.headers import HEADER_BYTES

CHECKS: dict[str, Callable[[int, int], None]] = {}
# Below and above the largest tensor that travels behind the header, and the smallest one that is reduced in chunks.
SIZES = (0, 1, 5, 1000, 10922, 10923, 32768, 32769, (1 << 20) - 1, 1 << 20, 1_300_001)


def check(function: Callable[[int, int], None]) -> Callable[[int, int], None]:
    CHECKS[function.__name__] = function
    return function


def terms(size: int, numel: int, seed: int = 0) -> np.ndarray:
    """Return the values of all ranks: small integers, whose sums and products are exact."""
    return np.random.default_rng(seed + numel).integers(1, 4, (size, numel))


@check
def every_size(rank: int, size: int) -> None:
    for numel in SIZES:
        ranks = terms(size, numel)
        for dtype in (wg.float32, wg.float64, wg.int32, wg.bfloat16)[: 4 if numel < 50_000 else 1]:
            for op, reference in ((dist.ReduceOp.SUM, ranks.sum(0)), (dist.ReduceOp.MAX, ranks.max(initial=0, axis=0))):
                for _ in range(2):  # the second call finds what the first has prepared
                    x = wg.tensor(ranks[rank]).to(dtype)
                    version = x._version
                    assert dist.all_reduce(x, op) is None
                    np.testing.assert_array_equal(x.double().numpy(), reference, err_msg=f"{numel} {dtype} {op.name}")
                    assert x._version > version or not numel


@check
def messages_in_parts(rank: int, size: int) -> None:
    """Values that end shortly before and after the end of a part, in calls that wait and calls that do not."""
    part, header = exchanges._PART_BYTES, HEADER_BYTES
    for nbytes in (part - header, part, 2 * part - header, 2 * part, 21_000):
        for numel in range(nbytes - 2, nbytes + 3):
            ranks = terms(size, numel)
            for is_async in (False, True, False):
                x = wg.tensor(ranks[rank].astype(np.uint8))
                work = dist.all_reduce(x, async_op=is_async)
                if work is not None:
                    work.wait()
                np.testing.assert_array_equal(x.numpy(), ranks.sum(0))


@check
def different_numbers_of_parts(rank: int, size: int) -> None:
    """One rank sends two parts, the other one: the second part is not waited for."""
    for _ in range(2):
        dist.all_reduce(wg.ones(3000))
        dist.all_reduce(wg.ones(1000))
    with pytest.raises(dist.CollectiveMismatch, match=r"shape \[1000\].*shape \[3000\]|shape \[3000\].*shape \[1000\]"):
        dist.all_reduce(wg.ones(3000 if rank else 1000))
    print(f"ok {rank}\n", end="", flush=True)
    os._exit(0)  # the group has failed


@check
def averages(rank: int, size: int) -> None:
    for numel in (5, 40_000, 1 << 20):
        values = np.random.default_rng(numel).standard_normal((size, numel)).astype(np.float32)
        x = wg.tensor(values[rank])
        dist.all_reduce(x, dist.ReduceOp.AVG)
        np.testing.assert_allclose(x.numpy(), values.mean(0, dtype=np.float64), rtol=1e-5, atol=1e-6)


@check
def sums_are_in_the_order_of_the_ranks(rank: int, size: int) -> None:
    """Every rank has the bits of the sum from rank 0 on, whichever way a tensor takes."""
    for numel in (3000, 1 << 20):
        values = np.random.default_rng(numel).standard_normal((size, numel)).astype(np.float32)
        total = values[0].copy()
        for other in values[1:]:
            total += other
        x = wg.tensor(values[rank])
        dist.all_reduce(x)
        assert x.numpy().tobytes() == total.tobytes()


@check
def layouts(rank: int, size: int) -> None:
    """Tensors that are not contiguous, views, and leaves that need gradients are written in place."""
    ranks = terms(size, 24).reshape(size, 4, 6)
    total = ranks.sum(0)
    for select in (lambda a: a.T, lambda a: a[::2], lambda a: a[:, 1:3], lambda a: a[1]):
        for dtype in (wg.float32, wg.bfloat16):
            whole = wg.tensor(ranks[rank]).to(dtype)
            part = select(whole) if select(total).base is not None else whole
            dist.all_reduce(part)
            expected = ranks[rank].copy()
            select(expected)[...] = select(total)
            np.testing.assert_array_equal(whole.double().numpy(), expected)
    leaf = wg.tensor(ranks[rank]).float().requires_grad_()
    for _ in range(2):
        dist.all_reduce(leaf, dist.ReduceOp.MAX)
        np.testing.assert_array_equal(leaf.detach().numpy(), ranks.max(0))
    assert leaf.grad_fn is None
    (leaf * 2).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.unique().tolist() == [2.0]


@check
def calls_in_any_state(rank: int, size: int) -> None:
    """Calls of all kinds follow each other while earlier ones are under way."""
    small, beside, large = (wg.full((numel,), float(rank + 1)) for numel in (7, 60_000, 1 << 20))
    total = size * (size + 1) / 2
    for turn in range(12):
        works = [
            dist.all_reduce(x, async_op=True)
            for position, x in enumerate((small, beside, large, small.clone(), beside.clone()))
            if (turn >> position % 3) % 2 or position > 2
        ]
        x, y = wg.full((7,), float(rank + 1)), wg.full((60_000,), float(rank + 1))
        dist.all_reduce(x)
        dist.all_reduce(y)
        dist.barrier()
        gathered = wg.empty(size)
        dist.all_gather_into_tensor(gathered, wg.full((1,), float(rank)))
        dist.all_reduce(x, dist.ReduceOp.MAX)
        for work in reversed(works):
            assert work.wait()
        assert x.unique().tolist() == y.unique().tolist() == [total]
        assert gathered.tolist() == list(range(size))
        for work in works:
            (result,) = work.result()
            assert result.unique().tolist() == [total]
            result.fill_(rank + 1)


@check
def many_layouts(rank: int, size: int) -> None:
    """The prepared requests of layouts are freed when there are too many."""
    group = dist.process_group.find_group(None)
    for numel in range(1, 2 * exchanges._MAX_LAYOUTS + 10):
        x = wg.full((numel,), rank + 1, dtype=wg.int32)
        dist.all_reduce(x)
        assert x.tolist() == [size * (size + 1) // 2] * numel
        if group._messages is not None:
            assert len(group._messages.layouts[dist.ReduceOp.SUM]) <= exchanges._MAX_LAYOUTS


@check
def subgroups(rank: int, size: int) -> None:
    """Groups of two to five ranks, whose messages do not meet."""
    groups = [dist.new_group(range(count)) for count in range(2, size + 1)]
    for turn in range(3):
        for count, group in enumerate(groups, 2):
            if rank < count:
                x = wg.full((100 + count,), float(rank + turn))
                dist.all_reduce(x, group=group)
                assert x.unique().tolist() == [sum(range(count)) + count * turn]
                assert (group._messages is not None) == (count <= exchanges.MAX_DIRECT_RANKS)
    for count, group in enumerate(groups, 2):
        if rank < count:
            dist.destroy_process_group(group)


@check
def wrong_arguments(rank: int, size: int) -> None:
    x = wg.ones(3)
    for _ in range(2):
        with pytest.raises(TypeError, match="all_reduce: expects a tensor, not list"):
            dist.all_reduce([1.0])
        with pytest.raises(ValueError, match="99 is not a valid ReduceOp"):
            dist.all_reduce(x, 99)
        with pytest.raises(TypeError, match="BXOR needs an integer dtype"):
            dist.all_reduce(x, dist.ReduceOp.BXOR)
        with pytest.raises(ValueError, match="several indices are the same element"):
            dist.all_reduce(wg.ones(1).expand(4))
        dist.all_reduce(x, 4)  # MAX
    assert x.tolist() == [1.0] * 3


if __name__ == "__main__":
    dist.init_process_group()
    for name in sys.argv[1].split(","):
        CHECKS[name](dist.get_rank(), dist.get_world_size())
    print(f"ok {dist.get_rank()}\n", end="", flush=True)
