"""Check reductions of many tensors, and gradient clipping by their norm: values, launches, layouts, determinism."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from vendors import change_capabilities

import weftgrad as wg
from weftgrad import nn
from weftgrad.runtime.kinds.many import BASES
from weftgrad.runtime.multi_reduction import MultiReduction
from weftgrad.runtime.records import registry

Array = Any
SHAPES = [(3, 5), (), (17,), (0, 4), (300, 7), (64,), (1,), (50, 999)]
NORMS = {"absolute_sum": 1, "euclidean_norm": 2, "largest_magnitude": np.inf}


def arrays(shapes: list[tuple[int, ...]], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(s), np.float32) for s in shapes]


def tensors(values: list[Array], dtype: wg.dtype = wg.float32, device: str = "cpu") -> list[wg.Tensor]:
    return [wg.tensor(x).to(device, dtype) for x in values]


def norm(values: list[Array], order: float = 2) -> float:
    """Return the norm of all elements, in float64."""
    return float(np.linalg.norm(np.concatenate([np.ravel(x) for x in values]).astype(np.float64), order))


def launches() -> int:
    """Return the number of launches on `cpu` so far."""
    return int(wg.device("cpu").driver.launches)


def check_values(name: str, dtype: wg.dtype, rtol: float) -> None:
    reduce, operands = MultiReduction(registry[name]), tensors(arrays(SHAPES), dtype)
    (result,) = reduce(operands)
    assert (result.dtype, result.shape) == (dtype, ())
    exact = norm([t.double().numpy() for t in operands], NORMS[name])
    np.testing.assert_allclose(result.double().item(), exact, rtol=rtol)
    operands[4][5, 3] = float("nan")
    assert np.isnan(reduce(operands)[0].item())


@pytest.mark.parametrize("name", NORMS)
def test_values(name: str) -> None:
    for dtype, rtol in ((wg.float32, 2e-6), (wg.float64, 1e-13), (wg.bfloat16, 4e-3)):
        if dtype is wg.float32 or name == "euclidean_norm":
            check_values(name, dtype, rtol)


@pytest.mark.parametrize("style", ["vectors of 8", "gpu"])
def test_values_of_other_schedules(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"lanes": 8} if style != "gpu" else {"style": "gpu", "lanes": 4, "max_group": 64}
    for _ in change_capabilities(changes, monkeypatch):
        check_values("euclidean_norm", wg.float32, 2e-6)


def test_two_launches_without_synchronisation(monkeypatch: pytest.MonkeyPatch) -> None:
    reduce, operands = MultiReduction(registry["euclidean_norm"]), tensors(arrays(SHAPES))
    first = reduce(operands)[0].item()
    driver = wg.device("cpu").driver
    monkeypatch.setattr(driver, "synchronize", None)
    before = launches()
    results = [reduce(operands)[0] for _ in range(3)]
    assert launches() == before + 6
    monkeypatch.undo()
    assert {r.item() for r in results} == {first}  # and the same bits


def test_the_table_follows_changed_tensors() -> None:
    reduce, values = MultiReduction(registry["euclidean_norm"]), arrays(SHAPES)
    operands = tensors(values)
    for change in (None, 4, 2, "sizes"):
        if isinstance(change, int):
            values[change] = values[change] + 1
            operands[change] = wg.tensor(values[change])  # other memory
        elif change:
            values = [*values[1:], np.ones((2, 3), np.float32)]
            operands = tensors(values)
        np.testing.assert_allclose(reduce(operands)[0].item(), norm(values), rtol=2e-6)


def test_layouts_dtypes_and_counts() -> None:
    reduce = MultiReduction(registry["euclidean_norm"])
    values = arrays([(4, 6)] * 3)
    x, y, z = tensors(values)
    strided = wg.zeros(4, 12)[:, ::2].copy_(x)
    results = reduce([strided, y.t(), z.double()])
    expected = [norm(values[1:2]), norm(values[2:]), norm(values[:1])]  # one for each dtype, and for gaps
    np.testing.assert_allclose([r.item() for r in results], expected, rtol=1e-6)
    assert reduce([]) == reduce([wg.zeros(0), wg.zeros(3, 0)]) == []


def test_many_buffers_of_another_device() -> None:
    """On a device with its own memory, more buffers than a launch has take several launches before the last one."""
    values = arrays([(1000,)] * (BASES + 9))
    operands = tensors(values, device="opencl:0")
    reduce, driver = MultiReduction(registry["euclidean_norm"]), operands[0].device.driver
    np.testing.assert_allclose(reduce(operands)[0].item(), norm(values), rtol=2e-6)
    before = driver.launches
    assert reduce(operands)[0].item() == reduce(operands)[0].item()
    assert driver.launches - before in (4, 6)  # the pool's segments decide how many buffers there are


def test_norm_on_another_stream_and_thread() -> None:
    values = arrays(SHAPES)
    grads = tensors(values)

    def check() -> None:
        np.testing.assert_allclose(nn.utils.get_total_norm(grads).item(), norm(values), rtol=2e-6)

    with wg.Stream("cpu") as stream:
        check()
    stream.synchronize()
    worker = threading.Thread(target=check)
    worker.start()
    worker.join()
    check()


# Gradient clipping


def parameters(values: list[Array], dtype: wg.dtype = wg.float32) -> list[wg.Tensor]:
    params = [nn.Parameter(wg.zeros(x.shape, dtype=dtype)) for x in values]
    for param, x in zip(params, values, strict=True):
        param.grad = wg.tensor(x).to(dtype)
    return params


@pytest.mark.parametrize("order", [1.0, 2.0, float("inf"), 3.0])
def test_clipping(order: float) -> None:
    values = arrays([(40, 30), (7,), (), (3, 3)])
    for limit in (0.5, 1e6):
        params = parameters(values)
        exact = norm(values, order)
        total = nn.utils.clip_grad_norm_(params, limit, order)
        np.testing.assert_allclose(total.item(), exact, rtol=3e-6)
        factor = min(1.0, limit / (exact + 1e-6))
        for param, x in zip(params, values, strict=True):
            np.testing.assert_allclose(param.grad.numpy(), x * factor, rtol=5e-6)


def test_a_model_of_100_parameters_is_clipped_in_four_launches() -> None:
    values = arrays([(64, 9)] * 50 + [(64,)] * 50)
    params = parameters(values)
    nn.utils.clip_grad_norm_(params, 1.0)
    before = launches()
    nn.utils.clip_grad_norm_(params, 0.5)
    assert launches() == before + 4  # partial sums, the norm, the factor, the products
    np.testing.assert_allclose(norm([p.grad.numpy() for p in params]), 0.5, rtol=1e-5)


def test_clipping_mixed_dtypes_and_gaps() -> None:
    values = arrays([(20, 10), (30,), (8, 6), (0,)])
    params = parameters(values)
    params[1].data = params[1].data.double()
    params[1].grad = wg.tensor(values[1]).double()
    grad = wg.zeros(8, 12)[:, ::2].copy_(params[2].grad)
    params[2].grad = grad
    total = nn.utils.clip_grad_norm_(params, 1.0)
    exact = norm(values)
    np.testing.assert_allclose(total.item(), exact, rtol=2e-6)
    for param, x in zip(params, values, strict=True):
        np.testing.assert_allclose(param.grad.double().numpy(), x / (exact + 1e-6), rtol=1e-5, atol=1e-7)


def test_clipping_of_empty_and_infinite_gradients() -> None:
    assert nn.utils.get_total_norm([wg.zeros(0, dtype=wg.float64)]).dtype is wg.float64
    with pytest.raises(IndexError, match="no elements"):
        nn.utils.get_total_norm([wg.ones(2), wg.zeros(0)], float("inf"))
    params = parameters([np.full(3, np.inf, np.float32), np.ones(2, np.float32)])
    assert nn.utils.clip_grad_norm_(params, 1.0).item() == np.inf
    assert params[1].grad.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="inf"):
        nn.utils.get_total_norm([wg.tensor(np.inf)], error_if_nonfinite=True)
