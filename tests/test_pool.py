"""Check the caching allocator on a fake driver, whose memory is only addresses and sizes."""

import gc
import logging
import pickle

import pytest
from fake_memory import FakeEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_checks import GiB, KiB, MiB, Owner, check, make_pool

from weftgrad.runtime import errors, memory_stats
from weftgrad.runtime.pool import Pool
from weftgrad.runtime.rehearsal import rehearse


def test_a_block_is_reused_at_once():
    source, budget, pool = make_pool()
    block = pool.allocate(1000)
    assert (block.offset, block.size, block.requested) == (0, 1024, 1000)
    check(source, budget, pool, live=[block])
    pool.free(block)
    assert pool.stats().allocated == 0
    assert pool.allocate(1024) is block
    assert pool.stats().driver_allocations == 1


@pytest.mark.parametrize("nbytes", [0, -1, -5000])
def test_empty_tensors_own_no_block(nbytes):
    source, budget, pool = make_pool()
    with pytest.raises(errors.ArgumentError, match="at least one byte"):
        pool.allocate(nbytes)
    check(source, budget, pool)
    pool.free(pool.allocate(1))


def test_neighbours_merge_and_the_oldest_lowest_best_fit_wins():
    source, _, pool = make_pool()
    big = pool.allocate(8 * MiB)
    pool.free(big)
    parts = [pool.allocate(MiB) for _ in range(8)]
    assert [part.offset for part in parts] == [i * MiB for i in range(8)]
    for i in (5, 1, 2, 6):
        pool.free(parts[i])
    assert pool.allocate(3 * MiB // 2).offset == MiB
    assert pool.allocate(2 * MiB).offset == 5 * MiB
    assert source.allocate_calls == 1


def test_statistics_and_reset_peak():
    _, budget, pool = make_pool()
    blocks = [pool.allocate(100 * KiB + 1) for _ in range(10)]
    for block in blocks[2:]:
        pool.free(block)
    stats = pool.stats()
    assert stats.allocated == 2 * (100 * KiB + 512)
    assert stats.allocated_peak == 10 * (100 * KiB + 512)
    assert stats.requested == 2 * (100 * KiB + 1)
    assert stats.allocations == 10
    assert stats.reserved == stats.reserved_peak == budget.reserved
    pool.reset_peak()
    assert pool.stats().allocated_peak == stats.allocated
    assert pool.empty_cache() > 0
    pool.reset_peak()
    stats_after = pool.stats()
    assert stats_after.reserved_peak == stats_after.reserved < stats.reserved
    assert stats_after.driver_frees > 0
    assert budget.stats() == stats_after
    with pytest.raises(AttributeError):
        stats_after.allocated = 0


def test_empty_cache_waits_for_the_device():
    source, budget, pool = make_pool()
    block = pool.allocate(MiB)
    live_block = pool.allocate(30 * MiB)
    source.launch(block.segment.handle)
    pool.free(block)
    assert pool.empty_cache() == MiB
    assert source.synchronize_calls == 1
    check(source, budget, pool, live=[live_block])
    assert pool.empty_cache() == 0
    assert source.synchronize_calls == 1


# Properties

SIZES = st.one_of(
    st.integers(1, 5000),
    st.sampled_from([512, 4096, 64 * KiB, 64 * KiB + 1, 256 * KiB, MiB, MiB + 1]),
    st.integers(1, 12 * MiB),
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), SIZES),
        st.tuples(st.just("allocate"), SIZES),
        st.tuples(st.just("free"), st.integers(0, 1 << 16)),
        st.tuples(st.just("share"), st.integers(0, 1 << 16)),
        st.tuples(st.just("complete"), st.integers(0, 1 << 16)),
        st.tuples(st.just("empty"), st.just(0)),
        st.tuples(st.just("limit"), st.one_of(st.none(), st.integers(0, 64 * MiB))),
        st.tuples(st.just("fail"), st.integers(1, 3)),
        st.tuples(st.just("rehearse"), st.integers(0, 1 << 16)),
    ),
    max_size=60,
)


def attempt(pool, nbytes):
    try:
        return pool.allocate(nbytes), None
    except errors.OutOfMemoryError as error:
        return None, error


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([None, 8 * MiB, 40 * MiB]), st.randoms(use_true_random=False))
def test_any_program(steps, capacity, rng):
    source, budget, _ = make_pool(capacity=capacity)
    pools = [Pool(source, budget), Pool(source, budget)]
    live, events, guarded, owner = [], [], [], Owner()
    for action, value in steps:
        if action == "allocate":
            pool = rng.choice(pools)
            block, error = attempt(pool, value)
            if error is not None:
                assert error.requested == value
                assert error.in_use == sum(b.size for b in live)
                assert error.in_use + error.cached == budget.reserved
                assert capacity or budget.limit is not None or source.fail_allocations
            else:
                live.append(block)
                source.launch(block.segment.handle)
                for start, nbytes, event in guarded:  # another stream may still use it
                    address = block.segment.handle.address + block.offset
                    assert event.done or address + block.size <= start or start + nbytes <= address
        elif action == "free" and live:
            block = live.pop(value % len(live))
            block.pool.free(block)
        elif action == "share" and live:
            block = live.pop(value % len(live))
            event = FakeEvent()
            block.pool.record_stream(block, event if value % 2 else lambda event=event: event)
            guarded.append((block.segment.handle.address + block.offset, block.size, event))
            events.append(event)
            block.pool.free(block)
        elif action == "complete" and events:
            events[value % len(events)].done = True
        elif action == "empty":
            rng.choice([*pools, budget]).empty_cache()
        elif action == "limit" and (value is None or value >= sum(b.segment.size for b in live)):
            budget.set_limit(None)
            budget.empty_cache()
            if value is None or value >= budget.reserved:
                budget.set_limit(value)
        elif action == "rehearse":
            rehearsal = pools[0].rehearsal
            if rehearsal is None:
                rehearse(pools[0], owner)
            else:
                rehearsal.provide([value] * (value % 3))
                persistent, rest = live[: value % 5], live[value % 5 :]
                rehearsal.end_step(owner, persistent, rest[: value % 7], value % 2 == 0)
        elif action == "fail":
            source.fail_allocations.add(source.allocate_calls + value)
        check(source, budget, *pools, live=live)
    for block in live:
        block.pool.free(block)
    for event in events:
        event.done = True
    budget.empty_cache()
    assert source.held == budget.reserved == 0  # all blocks merged again
    check(source, budget, *pools)


# Memory runs out


def test_the_message_has_every_number():
    _, _, pool = make_pool(limit=64 * MiB)
    blocks = [pool.allocate(10 * MiB) for _ in range(3)]
    pool.free(blocks.pop(1))
    with pytest.raises(errors.OutOfMemoryError) as excinfo:
        pool.allocate(48 * MiB)
    error = excinfo.value
    assert (error.requested, error.in_use, error.limit, error.device) == (48 * MiB, 20 * MiB, 64 * MiB, "fake:0")
    assert error.cached == pool.stats().cached == 0  # released by the attempt
    text = str(error)
    for part in ("fake:0", "48.0 MiB requested", "20.0 MiB in use", "0 B cached", "limit 64.0 MiB", "set_memory_limit"):
        assert part in text
    assert isinstance(error, MemoryError)
    assert isinstance(error, RuntimeError)
    assert str(pickle.loads(pickle.dumps(error))) == text
    with pytest.raises(errors.OutOfMemoryError, match="alone is over the limit"):
        pool.allocate(65 * MiB)
    assert "the driver refused" in str(errors.OutOfMemoryError(1, 0, 0, None, ""))
    check(pool._source, pool._budget, pool, live=blocks)
    pool.allocate(40 * MiB)  # nothing is broken


def test_a_full_limit_releases_cached_memory_first():
    source, budget, pool = make_pool(limit=64 * MiB)
    for size in (10, 20, 30):
        pool.free(pool.allocate(size * MiB))
    block = pool.allocate(60 * MiB)
    check(source, budget, pool, live=[block])
    assert pool.stats().driver_frees > 0


def test_the_limit_can_be_used_to_the_last_byte():
    source, budget, pool = make_pool(limit=10 * MiB)
    blocks = [pool.allocate(100 * KiB) for _ in range(70)]
    blocks.append(pool.allocate(10 * MiB - budget.reserved))
    check(source, budget, pool, live=blocks)
    assert budget.reserved == 10 * MiB
    with pytest.raises(errors.OutOfMemoryError):
        pool.allocate(3 * MiB)


def test_another_streams_cache_is_released_last():
    source, budget, first = make_pool(limit=64 * MiB)
    second = Pool(source, budget)
    block = first.allocate(40 * MiB)
    source.launch(block.segment.handle)
    first.free(block)
    large = second.allocate(50 * MiB)
    check(source, budget, first, second, live=[large])
    assert first.stats().reserved == 0
    assert second.stats().retries == 1


@pytest.mark.parametrize("failing", [{1}, {1, 2}, {1, 2, 3}])
def test_a_refusal_of_the_driver_is_survived(failing):
    source, budget, pool = make_pool()
    pool.free(pool.allocate(5 * MiB))
    source.fail_allocations = {call + 1 for call in failing}
    block, error = attempt(pool, 8 * MiB + 1)
    if len(failing) == 3:
        assert error.limit is None
        block = pool.allocate(8 * MiB)
    check(source, budget, pool, live=[block])


def test_other_errors_of_the_driver_pass_through():
    source, budget, pool = make_pool()

    def fail():
        raise OSError("device lost")

    source.on_allocate = fail
    with pytest.raises(OSError, match="device lost"):
        pool.allocate(1)
    source.on_allocate = None
    check(source, budget, pool, live=[pool.allocate(1)])


def test_a_failed_release_is_logged_and_tried_again(caplog):
    source, budget, pool = make_pool()
    pool.free(pool.allocate(5 * MiB))
    source.fail_releases = {1}
    with caplog.at_level(logging.ERROR):
        assert pool.empty_cache() == 0
    assert "tried again" in caplog.text
    assert budget.reserved == source.held == 5 * MiB  # the driver still holds it, so it still counts
    assert pool.stats().reserved == 0  # but no block of it is handed out
    assert pool.empty_cache() == 5 * MiB
    check(source, budget, pool)


def test_set_limit():
    source, budget, pool = make_pool()
    live_block = pool.allocate(10 * MiB)
    pool.free(pool.allocate(30 * MiB))
    budget.set_limit(20 * MiB)
    assert budget.reserved == 10 * MiB
    with pytest.raises(errors.OutOfMemoryError):
        pool.allocate(11 * MiB)
    budget.set_limit(5 * MiB)  # live tensors keep their memory
    assert budget.reserved == 10 * MiB
    with pytest.raises(errors.OutOfMemoryError):
        pool.allocate(1)
    budget.set_limit(None)
    check(source, budget, pool, live=[live_block, pool.allocate(100 * MiB)])
    with pytest.raises(errors.ArgumentError):
        budget.set_limit(-1)


# Streams


@pytest.mark.parametrize("as_function", [False, True])
def test_record_stream_holds_a_block_until_its_event(as_function):
    source, budget, pool = make_pool()
    event = FakeEvent()
    block = pool.allocate(MiB)
    pool.record_stream(block, (lambda: event) if as_function else event)
    assert pool.stats().waiting == 0
    pool.free(block)
    assert pool.stats().allocated == 0
    assert pool.stats().waiting == MiB
    assert {b.state for segment in pool.snapshot() for b in segment.blocks} >= {"waiting"}
    second_block = pool.allocate(MiB)
    assert second_block is not block
    event.done = True
    assert pool.allocate(MiB) is block
    check(source, budget, pool, live=[block, second_block])
    pool.free(block)  # the recorded stream was used up
    assert pool.allocate(MiB) is block


def test_a_full_limit_waits_for_events():
    source, _, pool = make_pool(limit=MiB)
    event = FakeEvent()
    block = pool.allocate(MiB)
    pool.record_stream(block, event)
    pool.free(block)
    assert pool.allocate(MiB).segment is block.segment
    assert event.waits == 1
    assert source.release_calls == 0


def test_an_event_that_fails_is_replaced_by_waiting_for_the_device(caplog):
    source, budget, pool = make_pool()

    def broken():
        raise RuntimeError("no events today")

    block = pool.allocate(MiB)
    pool.record_stream(block, broken)
    pool.free(block)
    reused = pool.allocate(MiB)
    assert reused is block
    assert source.synchronize_calls == 1
    assert "no events today" in caplog.text
    check(source, budget, pool, live=[reused])


def test_a_forgotten_pools_segments_are_released_later():
    source, budget, pool = make_pool(limit=10 * MiB)
    forgotten_pool = Pool(source, budget)
    forgotten_pool.free(forgotten_pool.allocate(8 * MiB))
    del forgotten_pool
    gc.collect()
    assert budget.reserved == 8 * MiB
    block = pool.allocate(10 * MiB)
    check(source, budget, pool, live=[block])


# Limits of the host


def write_file(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_control_groups(tmp_path):
    total_memory = memory_stats.host_memory(tmp_path)
    assert 16 * MiB < total_memory < 1 << 60
    write_file(tmp_path, "proc/self/cgroup", "12:cpu,cpuacct:/x\n0::/outer/inner\n")
    assert memory_stats.host_memory(tmp_path) == total_memory
    write_file(tmp_path, "sys/fs/cgroup/outer/inner/memory.max", "max\n")
    write_file(tmp_path, "sys/fs/cgroup/outer/memory.max", f"{8 * MiB}\n")
    assert memory_stats.host_memory(tmp_path) == 8 * MiB
    write_file(tmp_path, "sys/fs/cgroup/outer/inner/memory.max", f"{4 * MiB}\n")
    assert memory_stats.host_memory(tmp_path) == 4 * MiB
    write_file(tmp_path, "proc/self/cgroup", "4:memory:/docker/abc\n")  # v1, in a container that sees the host's path
    write_file(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{2 * MiB}\n")
    assert memory_stats.host_memory(tmp_path) == 2 * MiB
    write_file(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{(1 << 63) - 4096}\n")
    assert memory_stats.host_memory(tmp_path) == total_memory


def test_default_limit():
    assert memory_stats.default_limit(1000) == 900
    assert 0 < memory_stats.default_limit(None) == memory_stats.default_limit(1 << 62)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (20 * MiB, "20.0 MiB"), (1000 * MiB, "0.98 GiB")]
    + [(300 * MiB, "300 MiB"), (5 * GiB, "5.00 GiB"), (1 << 60, "1048576 TiB")],
)
def test_format_bytes(nbytes, text):
    assert errors.format_bytes(nbytes) == text
