"""Check kernels that update many tensors in one launch: any addresses, every layout, every OpenCL schedule."""

import threading

import numpy as np
import pytest
from vendors import change_capabilities

import weftgrad as wg
from weftgrad.runtime.backends import cpu
from weftgrad.runtime.backends.protocol import Capabilities
from weftgrad.runtime.kinds.many import BASES, make_runs
from weftgrad.runtime.multi_tensor import MultiTensor
from weftgrad.runtime.records import registry
from weftgrad.runtime.schedules import spaces

LR, MOMENTUM, GRADIENT_SHARE, WEIGHT_DECAY, SIGN = NUMBERS = (0.5, 0.75, 0.25, 0.125, -1.0)
"""The numbers of `sgd_momentum_step`: GRADIENT_SHARE is 1 - dampening, SIGN is -1 to maximise."""
SHAPES = [(3, 5), (), (17,), (0, 4), (300, 7), (64,), (1,)]


def momentum_step(p, g, b):
    """Return the parameter and buffer after one step of gradient ascent with momentum and weight decay, in float64."""
    p, g, b = (np.asarray(x, np.float64) for x in (p, g, b))
    b = MOMENTUM * b + GRADIENT_SHARE * (WEIGHT_DECAY * p + SIGN * g)
    return p - LR * b, b


def random_arrays(shapes, seed=0):
    """Return three lists of float32 arrays, of parameters, gradients and momentum buffers."""
    rng = np.random.default_rng(seed)
    return [[np.asarray(rng.standard_normal(s), np.float32) for s in shapes] for _ in range(3)]


def to_tensors(arrays, device="cpu"):
    """Return the lists of `random_arrays` as lists of tensors."""
    return [[wg.tensor(x, device=device) for x in row] for row in arrays]


def update_and_check(update, lists, arrays):
    """Update the tensors of `lists`, whose values are `arrays`, and compare them with `momentum_step`."""
    expected = [momentum_step(*operands) for operands in zip(*arrays, strict=True)]
    update(lists, NUMBERS)
    for p, b, (expected_p, expected_b) in zip(lists[0], lists[2], expected, strict=True):
        np.testing.assert_allclose(p.cpu().numpy(), expected_p, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(b.cpu().numpy(), expected_b, rtol=1e-5, atol=1e-6)


def to_arrays(lists):
    """Return copies of the values of tensors."""
    return [[t.cpu().numpy().copy() for t in row] for row in lists]


@pytest.fixture
def update():
    return MultiTensor(registry["sgd_momentum_step"])


def count_launches():
    """Return the number of launches on `cpu` so far."""
    return wg.device("cpu").driver.launches


@pytest.fixture(params=["cpu", "gpu", "gpu, small work-groups"])
def schedules(request, monkeypatch):
    """The schedules of a CPU, of a GPU, and of a GPU with small work-groups."""
    gpu = {"style": "gpu", "lanes": 4, "max_group": 64 if request.param.endswith("small work-groups") else 256}
    yield from change_capabilities({} if request.param == "cpu" else gpu, monkeypatch)


def test_values(update, schedules):
    """Include sizes where a work-item's share, or a row of the address table, ends in the middle of a tensor."""
    for shapes in (SHAPES, [(50, 999), *SHAPES]):
        arrays = random_arrays(shapes)
        update_and_check(update, to_tensors(arrays), arrays)


def test_a_device_with_separate_memory(update):
    """The address table is copied to the device, without a synchronisation."""
    driver = wg.device("opencl:0").driver
    arrays = random_arrays(SHAPES)
    lists = to_tensors(arrays, "opencl:0")
    update_and_check(update, lists, arrays)
    launches_before = driver.launches
    lists[1] = [t.clone() for t in lists[1]]  # the gradients move
    arrays = to_arrays(lists)
    copy_launches = driver.launches - launches_before
    assert copy_launches == sum(0 not in s for s in SHAPES)  # one clone per tensor that has elements
    update_and_check(update, lists, arrays)
    assert driver.launches == launches_before + copy_launches + 1


def test_one_launch_without_allocation(update, monkeypatch):
    """The second update allocates nothing, waits for nothing, and increments the versions of what it writes."""
    lists = [[wg.ones(s) for s in SHAPES] for _ in range(3)]
    update(lists, NUMBERS)
    driver = wg.device("cpu").driver
    monkeypatch.setattr(driver, "allocate", None)
    monkeypatch.setattr(driver, "synchronize", None)
    monkeypatch.setattr(cpu.CpuStream, "synchronize", None)
    versions = [[t._version for t in row] for row in lists]
    launches_before = count_launches()
    update(lists, NUMBERS)
    assert count_launches() == launches_before + 1
    version_changes = [[t._version - v for t, v in zip(*row, strict=True)] for row in zip(lists, versions, strict=True)]
    expected = [int(0 not in s) for s in SHAPES]
    assert version_changes == [expected, [0] * len(SHAPES), expected]


def test_the_table_follows_changed_tensors(update):
    lists = to_tensors(random_arrays(SHAPES))
    update_and_check(update, lists, to_arrays(lists))
    old_gradients, lists[1] = lists[1], [t.clone() for t in lists[1]]
    update_and_check(update, lists, to_arrays(lists))
    lists[0][0].data = wg.tensor(np.full((3, 5), 2, np.float32))  # other memory under the same tensor
    update_and_check(update, lists, to_arrays(lists))
    lists = [[*row[1:], wg.ones(2, 3)] for row in lists]  # other shapes
    update_and_check(update, lists, to_arrays(lists))
    lists[2][4] = lists[2][4].clone()  # one tensor only
    update_and_check(update, lists, to_arrays(lists))
    # Replaced tensors are not written.
    assert np.array_equal(old_gradients[0].numpy(), random_arrays(SHAPES)[1][0])


def test_memory_outside_the_pool(update):
    """More arrays of NumPy than a launch has buffers need one launch only, which has finished when the call returns."""
    count = 2 * BASES
    arrays = random_arrays([(5,)] * count)
    owned = [[x.copy() for x in row] for row in arrays]
    lists = [[wg.from_numpy(x) for x in row] for row in owned]
    launches_before = count_launches()
    update(lists, NUMBERS)
    assert count_launches() - launches_before == 1
    for p, b, *operands in zip(owned[0], owned[2], *arrays, strict=True):
        np.testing.assert_allclose((p, b), momentum_step(*operands), rtol=1e-5, atol=1e-6)
    update_and_check(update, lists, to_arrays(lists))


def test_layouts(update):
    """Dense tensors with the same element order share a launch; tensors with gaps or another order get their own."""
    arrays = random_arrays([(4, 6)] * 4)
    lists = to_tensors(arrays)
    for row in lists:
        row[0] = row[0].t().contiguous().t()  # dense, column-major
        row[1] = wg.zeros(4, 12)[:, ::2].copy_(row[1])  # with gaps
    lists[1][2] = lists[1][2].t().contiguous().t()  # a gradient whose layout differs from its parameter's
    launches_before = count_launches()
    update([row[:1] for row in lists], NUMBERS)
    assert count_launches() == launches_before + 1
    lists[0][0].copy_(wg.tensor(arrays[0][0]))
    lists[2][0].copy_(wg.tensor(arrays[2][0]))
    launches_before = count_launches()
    update_and_check(update, lists, arrays)
    assert count_launches() == launches_before + 3
    assert lists[0][0].stride() == (1, 4)


def test_dtypes_and_devices_have_their_own_launches(update):
    arrays = random_arrays([(40,)] * 3)
    lists = to_tensors(arrays)
    for row in lists:
        row[1] = row[1].to("opencl:0")
        row[2] = row[2].double()
    update_and_check(update, lists, arrays)


def test_streams_and_threads(update):
    lists = to_tensors(random_arrays(SHAPES))
    update_and_check(update, lists, to_arrays(lists))
    stream = wg.Stream("cpu")
    with stream:
        arrays = to_arrays(lists)
        update(lists, NUMBERS)
    stream.synchronize()
    for p, *operands in zip(lists[0], *arrays, strict=True):
        np.testing.assert_allclose(p.numpy(), momentum_step(*operands)[0], rtol=1e-5, atol=1e-6)
    worker = threading.Thread(target=update_and_check, args=(update, lists, to_arrays(lists)))
    worker.start()
    worker.join()
    update_and_check(update, lists, to_arrays(lists))


def test_a_table_in_use_is_not_overwritten(update, monkeypatch):
    """While an unfinished launch still reads a table, the next update uses another one."""
    lists = to_tensors(random_arrays([(40000,)]))
    for _ in range(6):
        lists[1] = [lists[1][0].clone()]
        update_and_check(update, lists, to_arrays(lists))
    (group,) = update._groups
    assert len(group.tables[0]) <= 2
    monkeypatch.setattr(type(group.tables[0][0]), "busy", True)
    update_and_check(update, [lists[0], [lists[1][0].clone()], lists[2]], to_arrays(lists))
    assert len(group.tables[0]) >= 2


def test_errors(update):
    with pytest.raises(ValueError, match=r"sgd_momentum_step: .*shapes: float32\[3\] on cpu, float32\[4\]"):
        update([[wg.ones(3)], [wg.ones(4)], [wg.ones(3)]], NUMBERS)
    with pytest.raises(RuntimeError, match="different devices"):
        update([[wg.ones(3)], [wg.ones(3, device="opencl:0")], [wg.ones(3)]], NUMBERS)


@pytest.mark.parametrize("style", ["cpu", "gpu"])
def test_runs_cover_every_element_once(style):
    caps = Capabilities(style=style, cores=3)
    for sizes in ([1], [40000, 1, 65536, 100], [700000], [3] * 500 + [50000], [2000000, 5]):
        runs = make_runs(sizes, caps, {} if style == "cpu" else spaces["opencl-gpu/many"].fallback)
        assert runs.numel == sum(sizes)
        covered = [np.zeros(n, int) for n in sizes]
        for tensor, start, count in zip(runs.tensor, runs.start, runs.count, strict=True):
            covered[tensor][start : start + count] += 1
        assert all((c == 1).all() for c in covered)
        if style == "cpu":
            shares = np.add.reduceat(runs.count, runs.heads[:-1])
            assert len(shares) == runs.items
            assert shares[:-1].min(initial=shares[0]) == shares.max()  # all equal, but the last may be smaller
            assert runs.heads[-1] == len(runs.count)
        else:
            assert runs.items == len(runs.count)
