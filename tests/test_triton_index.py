"""Check index ops on the Triton target beyond the generated suite: huge extents, embedding bags, invalid indices.

The host must not read device memory in any of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

from triton_running import interpreter

import weftgrad as wg
from weftgrad.nn import functional as F
from weftgrad.runtime import deferred, errors
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.kinds.triton import index_sorted

DEVICE, DRIVER = interpreter()
RNG = np.random.default_rng(0)


def device_tensor(values: Any, grad: bool = False) -> Any:
    return wg.tensor(values, device=DEVICE, requires_grad=grad)


def host(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()


def test_more_than_2_31_elements() -> None:
    """Index beyond 2^31 into expanded tensors, whose elements share memory."""
    huge = (1 << 33) + 5
    x = device_tensor([3.0, 4.0]).reshape(2, 1).expand(2, huge)
    indices = device_tensor([huge - 1, 0, 1 << 31])
    np.testing.assert_array_equal(host(x[:, indices]), [[3, 3, 3], [4, 4, 4]])
    np.testing.assert_array_equal(host(wg.gather(x, 1, indices.expand(2, 3))), [[3, 3, 3], [4, 4, 4]])
    np.testing.assert_array_equal(host(x.take(device_tensor([huge - 1, huge, -1]))), [3, 4, 4])
    assert {dict(s.instance.defines)["INDEX"] for s in DRIVER.launched if s.instance.name in ("take_at", "gather")} == {
        "int64"
    }


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str) -> None:
    table, index = RNG.standard_normal((7, 5)).astype(np.float32), np.array([1, 6, 1, 0, 3])
    weight, offsets = device_tensor(table, True), device_tensor([0, 2, 2])
    with DRIVER.no_host_reads():
        output = F.embedding_bag(device_tensor(index), weight, offsets, mode=mode)
        (output * output).sum().backward()
    reduce = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    expected = [reduce(table[index[:2]], axis=0), np.zeros(5), reduce(table[index[2:]], axis=0)]
    np.testing.assert_allclose(host(output), expected, rtol=1e-6, atol=1e-7)
    assert np.flatnonzero(host(weight.grad).any(1)).tolist() in ([0, 1, 3, 6], [1, 6, 0, 3])


def test_wrong_indices_raise_when_the_host_synchronizes() -> None:
    x = device_tensor(np.zeros((5, 3), np.float32))
    with DRIVER.no_host_reads():
        F.cross_entropy(x, device_tensor([1, 2, 3, 0, 1]))
        x.index_add_(0, device_tensor([7]), x[:1].clone())  # noted by the kernel that writes
    assert deferred.pending_count(DEVICE) == 1
    with pytest.raises(errors.IndexOutOfRange, match="index 7 is out of range for a dimension of size 5"):
        wg.synchronize(DEVICE)
    with pytest.raises(errors.IndexOutOfRange, match=r"target 3 .* 3 classes"):
        wg.synchronize(DEVICE)
    assert not host(x).any()


def test_reading_kernels_check_their_indices() -> None:
    """One launch reads and checks; the first index out of range is named, with its function and the size."""
    x = device_tensor(np.arange(15, dtype=np.float32).reshape(5, 3))
    calls = (
        (7, "embedding", lambda: F.embedding(device_tensor([[1, 7], [0, 0]]), x)),
        (-1, "embedding", lambda: F.embedding(device_tensor([0, -1]), x, padding_idx=0)),
        (5, "index_select", lambda: x.index_select(0, device_tensor([4, 5]))),
        (-6, "gather", lambda: x.gather(0, device_tensor([[0, -6, 9]])[:, :2])),
        ((1 << 43) - 1, "gather", lambda: x.gather(0, device_tensor([[1 << 62]]))),
        (-(1 << 43), "gather", lambda: x.gather(0, device_tensor([[-(1 << 62)]]))),
    )
    for wrong_index, where, call in calls:
        start = len(DRIVER.launched)
        with DRIVER.no_host_reads():
            output = call()
        assert len(DRIVER.launched) == start + 1
        with pytest.raises(errors.IndexOutOfRange, match=f"^{where}: index {wrong_index} is .* of size 5"):
            wg.synchronize(DEVICE)
        wg.synchronize(DEVICE)  # an error is raised once
        assert output.isfinite().all().item()


def test_the_next_check_raises_the_error_of_an_earlier_one() -> None:
    x = device_tensor(np.zeros((5, 3), np.float32))
    x.index_select(0, device_tensor([9]))
    with pytest.raises(errors.IndexOutOfRange, match="index_select: index 9"):
        x.index_select(0, device_tensor([0]))
    x.index_select(0, device_tensor([0]))
    wg.synchronize(DEVICE)


def test_the_first_of_several_wrong_indices_is_named() -> None:
    x = device_tensor(np.zeros((5, 3), np.float32))
    with pytest.MonkeyPatch.context() as patch:  # as if no kernel had run when the second check is made
        patch.setattr(deferred, "poll", lambda device: None)
        x.index_select(0, device_tensor([9]))
        F.embedding(device_tensor([6]), x)
    with pytest.raises(errors.IndexOutOfRange, match="index_select: index 9"):
        wg.synchronize(DEVICE)
    wg.synchronize(DEVICE)


def test_checks_without_a_launch() -> None:
    """Calls whose result has no elements launch no reading kernel: another kernel checks their indices."""
    empty = device_tensor(np.zeros((5, 0), np.float32))
    F.embedding(device_tensor([5]), empty)
    with pytest.raises(errors.IndexOutOfRange, match="index 5 is out of range for a dimension of size 5"):
        wg.synchronize(DEVICE)
    assert F.embedding(device_tensor(np.zeros(0, np.int64)), empty).shape == (0, 0)


def test_gradients_of_checked_reads() -> None:
    weight = device_tensor(np.ones((4, 2), np.float32), grad=True)
    F.embedding(device_tensor([1, 1, 3]), weight, padding_idx=3).sum().backward()
    np.testing.assert_array_equal(host(weight.grad), [[0, 0], [2, 2], [0, 0], [0, 0]])
    weight.grad = None
    weight.gather(0, device_tensor([[2, 0]])).sum().backward()
    np.testing.assert_array_equal(host(weight.grad), [[0, 1], [0, 0], [1, 0], [0, 0]])


# Writes by sorted indices


@pytest.fixture
def sorts_few_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sort any number of indices, in blocks so small that runs of equal ones go from block to block."""
    for name, value in (("_MIN_ELEMENT_INDICES", 1), ("_MIN_SLICE_INDICES", 1), ("_BLOCK", 16), ("_SERIAL", 2)):
        monkeypatch.setattr(index_sorted, name, value)
    forget_plans()


COMBINED = {None: lambda a, b: b, "sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


@pytest.mark.parametrize("reduce", COMBINED)
@pytest.mark.parametrize(
    ("dtype", "shape", "dim", "count", "high"),
    [("float32", (40, 2), 0, 40, 5), ("float64", (2, 33), 1, 70, 1), ("bfloat16", (2, 5, 3), 1, 17, 5),
     ("float16", (20,), 0, 33, 20), ("int64", (7,), 0, 65, 2), ("uint8", (3, 4), 1, 16, 4)],
)  # fmt: skip
def test_sorted_writes_of_elements(
    sorts_few_indices: None, reduce: str | None, dtype: str, shape: tuple[int, ...], dim: int, count: int, high: int
) -> None:
    source_shape = (*shape[:dim], count, *shape[dim + 1 :])
    kind = getattr(wg, dtype)
    lowest, highest = (0, 2) if reduce == "prod" else (0, 8)  # so that results are exact in every dtype
    x = wg.tensor(RNG.integers(lowest, highest, shape), dtype=kind, device=DEVICE)
    source = wg.tensor(RNG.integers(lowest, highest, source_shape), dtype=kind, device=DEVICE)
    index = RNG.integers(0, high, source_shape)
    expected = host(x.double())
    for place in np.ndindex(*source_shape):
        target = (*place[:dim], index[place], *place[dim + 1 :])
        expected[target] = COMBINED[reduce](expected[target], host(source.double())[place])
    launches = len(DRIVER.launched)
    with DRIVER.no_host_reads():
        if reduce is None:
            actual = x.scatter(dim, device_tensor(index), source)
        else:
            actual = x.scatter_reduce(dim, device_tensor(index), source, reduce)
    assert any(step.instance.entry.endswith("_segments") for step in DRIVER.launched[launches:])
    expected = expected % 256 if dtype == "uint8" else np.asarray(expected)
    rounded = wg.tensor(expected, dtype=kind).double().numpy()  # a sum is rounded once
    np.testing.assert_array_equal(host(actual.double()), rounded)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize(
    ("rows", "width", "count", "high"),
    [(50, 20, 40, 50), (9, 300, 180, 2), (7, 2, 64, 7), (9, 33, 65, 1), (5, 16, 1, 5)],
)
def test_sorted_writes_of_slices(
    sorts_few_indices: None, dtype: str, rows: int, width: int, count: int, high: int
) -> None:
    kind = getattr(wg, dtype)
    x = wg.tensor(RNG.integers(0, 8, (rows, width)), dtype=kind, device=DEVICE)
    source = wg.tensor(RNG.integers(0, 8, (count, width)), dtype=kind, device=DEVICE)
    index = RNG.integers(0, high, count)
    expected = host(x.double())
    np.add.at(expected, index, host(source.double()))
    launches = len(DRIVER.launched)
    with DRIVER.no_host_reads():
        actual = x.index_add(0, device_tensor(index), source)
        across = x.T.contiguous().index_add(1, device_tensor(index), source.T)
    entries = {step.instance.entry.rpartition("_")[2] for step in DRIVER.launched[launches:]}
    assert {"runs", "joins"} <= entries
    tolerance = 0.0 if dtype == "int64" else 2.0**-23 if dtype == "float32" else 2.0**-7  # joined runs round twice
    np.testing.assert_allclose(host(actual.double()), expected, rtol=tolerance)
    np.testing.assert_allclose(host(across.double()).T, expected, rtol=tolerance)


@pytest.mark.parametrize("wrong", [2**32 + 2, -(2**32) + 2, 2**62, -(2**63), 2**31])
def test_sorted_writes_skip_indices_that_int32_does_not_hold(sorts_few_indices: None, wrong: int) -> None:
    index = np.full((1, 40), wrong)
    index[0, ::2] = 3
    x = device_tensor(np.zeros((1, 5), np.float32))
    x.scatter_add_(1, device_tensor(index), wg.ones(1, 40, device=DEVICE))
    with pytest.raises(errors.IndexOutOfRange):
        wg.synchronize(DEVICE)
    np.testing.assert_array_equal(host(x), [[0, 0, 0, 20, 0]])


def test_sorted_writes_skip_wrong_indices_and_repeat_their_bits(sorts_few_indices: None) -> None:
    table = device_tensor(np.zeros((6, 40), np.float32), True)
    index = RNG.integers(0, 6, 90)
    slopes = RNG.standard_normal((90, 40)).astype(np.float32)
    gradients = []
    for _ in range(2):
        table.grad = None
        (F.embedding(device_tensor(index), table) * device_tensor(slopes)).sum().backward()
        gradients.append(host(table.grad))
    expected = np.zeros((6, 40))
    np.add.at(expected, index, slopes.astype(np.float64))
    np.testing.assert_allclose(gradients[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(gradients[0], gradients[1])
    wg.synchronize(DEVICE)
    x = device_tensor(np.zeros((3, 40), np.float32))
    for wrong in (40, -1):
        with DRIVER.no_host_reads():
            x.scatter_add_(1, device_tensor(np.full((3, 40), wrong)), wg.ones_like(x))
        with pytest.raises(errors.IndexOutOfRange, match=f"index {wrong} is out of range"):
            wg.synchronize(DEVICE)
    assert not host(x).any()
