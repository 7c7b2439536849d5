"""Check reductions of many tensors on the Triton target: in the interpreter, and on a simulated CUDA driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_running import capture

import weftgrad as wg
from weftgrad import nn
from weftgrad.runtime.errors import LaunchError
from weftgrad.runtime.multi_reduction import MultiReduction
from weftgrad.runtime.records import registry

pytest.importorskip("triton")

from triton_running import interpreter

DEVICE, DRIVER = interpreter("block=64,cores=2")
SIZES = (1, 40, 64, 70, 3000)
NORMS = {"absolute_sum": 1, "euclidean_norm": 2, "largest_magnitude": np.inf}


def random_tensors(device: Any, dtype: wg.dtype, sizes: tuple[int, ...] = SIZES) -> list[wg.Tensor]:
    rng = np.random.default_rng(0)
    return [wg.tensor(rng.standard_normal(n)).to(device, dtype) for n in sizes]


def norm(tensors: list[wg.Tensor], order: float = 2) -> float:
    return float(np.linalg.norm(np.concatenate([t.cpu().double().numpy() for t in tensors]), order))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_many_tensors(name: str, dtype: str) -> None:
    """Two launches reduce tensors with full and partial blocks; only aligned tensors use wide loads."""
    reduce, tensors = MultiReduction(registry[name]), random_tensors(DEVICE, getattr(wg, dtype))
    for is_wide in (1, 0):
        start = len(DRIVER.launched)
        with DRIVER.no_host_reads():
            (result,) = reduce(tensors)
        first, second = DRIVER.launched[start:]
        assert [s.instance.entry for s in (first, second)] == [f"{name}_many", f"{name}_finish"]
        assert dict(first.instance.defines)["WIDE"] == is_wide
        assert first.global_size[0] > len(SIZES)  # the largest tensor has several rows in the table
        rtol = 1e-6 if dtype == "float32" else 4e-3
        np.testing.assert_allclose(result.cpu().double().item(), norm(tensors, NORMS[name]), rtol=rtol)
        tensors = [t[1:] for t in tensors[1:]]


def test_accesses_outside_of_a_tensor_raise() -> None:
    reduce, tensors = MultiReduction(registry["euclidean_norm"]), random_tensors(DEVICE, wg.float32, (64, 64))
    reduce(tensors)
    ((_, launch, arguments, reached),) = reduce._launches
    states = reduce._groups[0].partial_states(2, DRIVER.default_stream)  # type: ignore[attr-defined]
    with pytest.raises(LaunchError, match="outside"):
        launch([*arguments, *states, *[tensors[i] for i in reached[:-1]]], (), None)  # type: ignore[arg-type]


def test_clipping_takes_four_launches() -> None:
    params = [nn.Parameter(wg.zeros(n, device=DEVICE)) for n in SIZES]
    for param, grad in zip(params, random_tensors(DEVICE, wg.float32), strict=True):
        param.grad = grad
    start, exact = len(DRIVER.launched), norm([p.grad for p in params])
    with DRIVER.no_host_reads():
        total = nn.utils.clip_grad_norm_(params, 2.0)
    entries = [step.instance.entry for step in DRIVER.launched[start:]]
    assert entries == ["euclidean_norm_many", "euclidean_norm_finish", "clip_factor_flat", "scale_step_many"]
    np.testing.assert_allclose([total.item(), norm([p.grad for p in params])], [exact, 2.0], rtol=1e-5)


def test_a_captured_norm(cuda: Any, computing: Any) -> None:
    tensors = random_tensors("cuda", wg.float32)
    reduce = MultiReduction(registry["euclidean_norm"])
    reduce(tensors)
    results: list[wg.Tensor] = []
    graph, _ = capture(tensors[0].device.driver, lambda: results.extend(reduce(tensors)))
    for factor in (1.0, 3.0):
        with wg.no_grad():
            for tensor in tensors:
                tensor.mul_(factor)
        graph.replay()
        np.testing.assert_allclose(results[0].cpu().item(), norm(tensors), rtol=1e-6)
