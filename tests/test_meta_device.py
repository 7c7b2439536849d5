"""The device `meta`: ops compute shapes and dtypes, nothing is compiled or stored."""

from __future__ import annotations

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime.device import device


def test_a_model_is_constructed_run_and_differentiated_without_values() -> None:
    with device("meta"):
        model = wg.nn.Sequential(
            wg.nn.Conv2d(3, 8, 3, padding=1), wg.nn.BatchNorm2d(8), wg.nn.ReLU(), wg.nn.MaxPool2d(2),
            wg.nn.Flatten(), wg.nn.Linear(8 * 16, 10), wg.nn.LayerNorm(10),
        )  # fmt: skip
        x = wg.randn(4, 3, 8, 8)
    output = model(x)
    assert (output.shape, output.dtype, str(output.device), output.is_meta) == ((4, 10), wg.float32, "meta", True)
    wg.nn.functional.cross_entropy(output, wg.zeros(4, dtype=wg.int64, device="meta")).backward()
    weight = model[0].weight
    assert weight.grad is not None
    assert (weight.grad.shape, weight.grad.is_meta) == ((8, 3, 3, 3), True)
    assert str(wg.ones(1).device) != "meta"


def test_a_tensor_larger_than_memory_takes_none() -> None:
    x = wg.empty(1 << 40, 1 << 10, device="meta")
    assert (x @ wg.empty(1 << 10, 3, device="meta")).shape == (1 << 40, 3)
    assert x.sum(0).shape == (1 << 10,)
    assert (x + 1)[5:, ::2].shape == ((1 << 40) - 5, 1 << 9)


def test_indices_are_not_checked() -> None:
    index = wg.zeros(3, dtype=wg.int64, device="meta")
    assert wg.nn.functional.embedding(index, wg.ones(5, 2, device="meta")).shape == (3, 2)
    assert wg.ones(5, 2, device="meta")[index].shape == (3, 2)
    wg.synchronize("meta")
    wg.synchronize()


def test_values_cannot_be_read() -> None:
    x = wg.ones(2, 3).to("meta")
    for read in (x.tolist, x.cpu, x.sum().item, lambda: x.numpy(force=True)):
        with pytest.raises(NotImplementedError, match="a tensor on device meta has a shape and no values"):
            read()
    assert repr(x) == "tensor(..., device='meta', size=(2, 3))"
    small = wg.ones(2, dtype=wg.int8, device="meta")
    assert repr(small) == "tensor(..., device='meta', size=(2,), dtype=weftgrad.int8)"


def test_a_module_gets_memory_and_values_later() -> None:
    with device("meta"):
        layer = wg.nn.Linear(2, 3)
    source = wg.nn.Linear(2, 3, device="cpu")
    layer.to_empty(device="cpu").load_state_dict(source.state_dict())
    np.testing.assert_array_equal(layer.weight.detach().numpy(), source.weight.detach().numpy())
    with device("meta"):
        layer = wg.nn.Linear(2, 3)
    layer.load_state_dict(source.state_dict(), assign=True)
    assert str(layer.weight.device) == "cpu"


def test_a_device_is_the_default_within_its_block() -> None:
    before = wg.get_default_device()
    with device("meta"), device("cpu"):
        assert str(wg.ones(1).device) == "cpu"
    with pytest.raises(ZeroDivisionError), device("meta"):
        1 / (0 if wg.ones(1).is_meta else 1)
    assert wg.get_default_device() is before
    assert str(wg.zeros(1).device) == str(before)
