"""One kernel for many tensors: tensors anywhere in memory, of every layout, on every schedule of OpenCL."""

import threading

import numpy as np
import pytest
from vendors import posing

import weftgrad as wg
from weftgrad.runtime.backends import cpu
from weftgrad.runtime.backends.protocol import Capabilities
from weftgrad.runtime.kinds.many import BASES, runs
from weftgrad.runtime.multi_tensor import MultiTensor
from weftgrad.runtime.records import registry
from weftgrad.runtime.schedules import spaces

# lr, momentum, fresh, weight_decay, sign
NUMBERS = (0.5, 0.75, 0.25, 0.125, -1.0)
SHAPES = [(3, 5), (), (17,), (0, 4), (300, 7), (64,), (1,)]


def moved(p, g, b):
    """Gradient ascent with momentum and weight decay, in float64."""
    p, g, b = (np.asarray(x, np.float64) for x in (p, g, b))
    b = 0.75 * b + 0.25 * (0.125 * p - g)
    return p - 0.5 * b, b


def arrays(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [[np.asarray(rng.standard_normal(s), np.float32) for s in shapes] for _ in range(3)]


def tensors(given, device="cpu"):
    return [[wg.tensor(x, device=device) for x in each] for each in given]


def check(update, lists, given):
    expected = [moved(*each) for each in zip(*given, strict=True)]
    update(lists, NUMBERS)
    for p, b, (new, buffer) in zip(lists[0], lists[2], expected, strict=True):
        np.testing.assert_allclose(p.cpu().numpy(), new, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(b.cpu().numpy(), buffer, rtol=1e-5, atol=1e-6)


def values(lists):
    return [[t.cpu().numpy().copy() for t in each] for each in lists]


@pytest.fixture
def update():
    return MultiTensor(registry["sgd_momentum_step"])


def launches():
    return wg.device("cpu").driver.launches


@pytest.fixture(params=["cpu", "gpu", "poor"])
def schedules(request, monkeypatch):
    """The schedules of a CPU, of a GPU, and of one whose groups are small."""
    gpu = {"style": "gpu", "lanes": 4, "max_group": 64 if request.param == "poor" else 256}
    yield from posing({} if request.param == "cpu" else gpu, monkeypatch)


def test_values(update, schedules):
    """Also where a work-item's share, or a row of the table, ends in the middle of a tensor."""
    for shapes in (SHAPES, [(50, 999), *SHAPES]):
        given = arrays(shapes)
        check(update, tensors(given), given)


def test_on_a_device_with_memory_of_its_own(update):
    """The table is copied there, and nothing waits."""
    driver = wg.device("opencl:0").driver
    given = arrays(SHAPES)
    lists = tensors(given, "opencl:0")
    check(update, lists, given)
    before = driver.launches
    lists[1] = [t.clone() for t in lists[1]]  # the gradients move
    given = values(lists)
    begun = driver.launches - before
    assert begun == sum(0 not in s for s in SHAPES)
    check(update, lists, given)
    assert driver.launches == before + begun + 1


def test_one_launch_and_no_memory(update, monkeypatch):
    lists = [[wg.ones(s) for s in SHAPES] for _ in range(3)]
    update(lists, NUMBERS)
    driver = wg.device("cpu").driver
    monkeypatch.setattr(driver, "allocate", None)
    monkeypatch.setattr(driver, "synchronize", None)
    monkeypatch.setattr(cpu.CpuStream, "synchronize", None)
    versions = [[t._version for t in each] for each in lists]
    before = launches()
    update(lists, NUMBERS)
    assert launches() == before + 1
    bumped = [[t._version - v for t, v in zip(*each, strict=True)] for each in zip(lists, versions, strict=True)]
    expected = [int(0 not in s) for s in SHAPES]
    assert bumped == [expected, [0] * len(SHAPES), expected]


def test_whatever_moves_is_noticed(update):
    lists = tensors(arrays(SHAPES))
    check(update, lists, values(lists))
    kept = []
    for turn in range(4):
        if turn == 0:  # other tensors
            kept, lists[1] = lists[1], [t.clone() for t in lists[1]]
        elif turn == 1:  # another place under the same tensor
            lists[0][0].data = wg.tensor(np.full((3, 5), 2, np.float32))
        elif turn == 2:  # another layout
            lists = [[*each[1:], wg.ones(2, 3)] for each in lists]
        else:  # of one tensor alone
            lists[2][4] = lists[2][4].clone()
        check(update, lists, values(lists))
    assert np.array_equal(kept[0].numpy(), arrays(SHAPES)[1][0])  # what was left alone is as it was


def test_memory_of_many_owners(update):
    """Arrays that are not the pool's: one launch all the same, which is done when the call returns."""
    count = 2 * BASES
    given = arrays([(5,)] * count)
    owned = [[x.copy() for x in each] for each in given]
    lists = [[wg.from_numpy(x) for x in each] for each in owned]
    launched = launches()
    update(lists, NUMBERS)
    assert launches() - launched == 1
    for p, b, *each in zip(owned[0], owned[2], *given, strict=True):
        np.testing.assert_allclose((p, b), moved(*each), rtol=1e-5, atol=1e-6)
    check(update, lists, values(lists))


def test_layouts(update):
    """Dense ones go together if their elements lie in one order; what has gaps, or lies otherwise, goes alone."""
    given = arrays([(4, 6)] * 4)
    lists = tensors(given)
    for each in lists:
        each[0] = each[0].t().contiguous().t()  # dense, columns first
        each[1] = wg.zeros(4, 12)[:, ::2].copy_(each[1])  # with gaps
    lists[1][2] = lists[1][2].t().contiguous().t()  # a gradient that lies otherwise than its parameter
    begun = launches()
    update([each[:1] for each in lists], NUMBERS)
    assert launches() == begun + 1
    lists[0][0].copy_(wg.tensor(given[0][0]))
    lists[2][0].copy_(wg.tensor(given[2][0]))
    begun = launches()
    check(update, lists, given)
    assert launches() == begun + 3
    assert lists[0][0].stride() == (1, 4)


def test_dtypes_and_devices_have_launches_of_their_own(update):
    given = arrays([(40,)] * 3)
    lists = tensors(given)
    for each in lists:
        each[1] = each[1].to("opencl:0")
        each[2] = each[2].double()
    check(update, lists, given)


def test_streams_and_threads(update):
    lists = tensors(arrays(SHAPES))
    check(update, lists, values(lists))
    stream = wg.Stream("cpu")
    with stream:
        given = values(lists)
        update(lists, NUMBERS)
    stream.synchronize()
    for p, *each in zip(lists[0], *given, strict=True):
        np.testing.assert_allclose(p.numpy(), moved(*each)[0], rtol=1e-5, atol=1e-6)
    worker = threading.Thread(target=check, args=(update, lists, values(lists)))
    worker.start()
    worker.join()
    check(update, lists, values(lists))


def test_a_table_in_use_is_left_alone(update, monkeypatch):
    """Work on the pooled queue that has not ended reads it still."""
    lists = tensors(arrays([(40000,)]))
    for _ in range(6):
        lists[1] = [lists[1][0].clone()]
        check(update, lists, values(lists))
    (group,) = update._groups
    assert len(group.tables[0]) <= 2
    monkeypatch.setattr(type(group.tables[0][0]), "busy", True)
    check(update, [lists[0], [lists[1][0].clone()], lists[2]], values(lists))
    assert len(group.tables[0]) >= 2


def test_errors(update):
    with pytest.raises(ValueError, match=r"sgd_momentum_step: .*shapes: float32\[3\] on cpu, float32\[4\]"):
        update([[wg.ones(3)], [wg.ones(4)], [wg.ones(3)]], NUMBERS)
    with pytest.raises(RuntimeError, match="different devices"):
        update([[wg.ones(3)], [wg.ones(3, device="opencl:0")], [wg.ones(3)]], NUMBERS)


@pytest.mark.parametrize("style", ["cpu", "gpu"])
def test_runs_are_every_element_once(style):
    able = Capabilities(style=style, cores=3)
    for sizes in ([1], [40000, 1, 65536, 100], [700000], [3] * 500 + [50000], [2000000, 5]):
        found = runs(sizes, able, {} if style == "cpu" else spaces["opencl-gpu/many"].fallback)
        assert found.numel == sum(sizes)
        covered = [np.zeros(n, int) for n in sizes]
        for tensor, start, count in zip(found.tensor, found.start, found.count, strict=True):
            covered[tensor][start : start + count] += 1
        assert all((c == 1).all() for c in covered)
        if style == "cpu":
            shares = np.add.reduceat(found.count, found.heads[:-1])
            assert len(shares) == found.items
            assert shares[:-1].min(initial=shares[0]) == shares.max()
            assert found.heads[-1] == len(found.count)
        else:
            assert found.items == len(found.count)
