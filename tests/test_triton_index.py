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
        x.index_add_(0, device_tensor([7]), x[:1].clone())
        F.cross_entropy(x, device_tensor([1, 2, 3, 0, 1]))
    assert deferred.pending_count(DEVICE) == 2
    with pytest.raises(errors.IndexOutOfRange, match="index 7 is out of range for a dimension of size 5"):
        wg.synchronize(DEVICE)
    with pytest.raises(errors.IndexOutOfRange, match=r"target 3 .* 3 classes"):
        wg.synchronize(DEVICE)
    assert not host(x).any()
