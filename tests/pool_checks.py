"""Pools on a fake driver, and a check of all their invariants, for tests of the caching allocator."""

from itertools import pairwise

from fake_memory import FakeSource

from weftgrad.runtime.pool import Budget, Pool

__all__ = ["GiB", "KiB", "MiB", "Owner", "check", "make_pool"]

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30


class Owner:
    """An object that requests a rehearsal, as an optimizer does."""


def make_pool(limit=None, capacity=None):
    source, budget = FakeSource(capacity), Budget(limit)
    return source, budget, Pool(source, budget, device_name="fake:0")


def check(source, budget, *pools, live=()):
    """Check the invariants that hold at any time."""
    assert source.violations == []
    assert budget.reserved == source.held
    assert budget.limit is None or budget.reserved <= budget.limit
    for pool in pools:
        stats = pool.stats()
        blocks = [block for block in live if block.pool is pool]
        assert stats.allocated == sum(block.size for block in blocks)
        assert stats.requested == sum(block.requested for block in blocks)
        assert stats.cached == stats.reserved - stats.allocated >= stats.waiting
        assert stats.allocated_peak >= stats.allocated
        assert stats.reserved_peak >= stats.reserved
        segments = pool.snapshot()
        assert sum(segment.size for segment in segments) == stats.reserved
        assert len(segments) == stats.driver_allocations - stats.driver_frees
        for segment in segments:
            end = 0
            for block in segment.blocks:  # no gap, no overlap
                assert block.offset == end
                assert block.size > 0
                assert block.size % 512 == block.offset % 512 == 0
                end += block.size
            assert end == segment.size
        used = sum(b.size for segment in segments for b in segment.blocks if b.state == "in use")
        assert used == stats.allocated
    ranges = sorted((b.segment.handle.address + b.offset, b.size) for b in live)
    for (address, size), (next_address, _) in pairwise(ranges):
        assert address + size <= next_address
    for block in live:
        assert block.segment.handle in source.live
        assert block.requested <= block.size < block.requested + 512
