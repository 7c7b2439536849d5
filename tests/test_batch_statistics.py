"""Layers of batch norm in training: one op updates all that they store (`batch_statistics`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.runtime.errors import ArgumentError, DTypeError, ShapeError
from weftgrad.runtime.kinds import Request, batch_statistics
from weftgrad.runtime.records import registry

Array = Any
MOMENTUM, EPS = 0.25, 1e-3
SHAPES = ((4, 3, 5, 7), (2, 40), (3, 6, 33), (4, 2, 64, 65))


def triton_device() -> tuple[Any, Any]:
    """Return an interpreted device and its driver, or skip the test where Triton is not installed."""
    pytest.importorskip("triton")
    from triton_running import interpreter

    return interpreter("block=512,cores=8")


def layer_of(shape: tuple[int, ...], device: Any, dtype: Any = wg.float32) -> nn.Module:
    layer_class = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    return layer_class(shape[1], eps=EPS, momentum=MOMENTUM, device=device, dtype=dtype)


def check_two_steps(shape: tuple[int, ...], device: Any, dtype: Any, rtol: float, is_transposed: bool = False) -> None:
    """Compare the outputs, the input's gradient and what the layer stores with float64, after two batches."""
    rng, layer = np.random.default_rng(3), layer_of(shape, device, dtype)
    axes = tuple(d for d in range(len(shape)) if d != 1)
    mean, var = np.zeros(shape[1]), np.ones(shape[1])
    for batches in (1, 2):
        values = wg.tensor(rng.standard_normal(shape) * 2 + 1, dtype=dtype)
        x = values.double().numpy()
        images = values.to(device)
        if is_transposed:  # channels innermost
            images = images.movedim(1, -1).contiguous().movedim(-1, 1)
        images.requires_grad_(True)
        output = layer(images)
        centred, scale = x - x.mean(axes, keepdims=True), np.sqrt(x.var(axes, keepdims=True) + EPS)
        np.testing.assert_allclose(output.detach().cpu().double().numpy(), centred / scale, rtol=rtol, atol=rtol)
        mean = mean + MOMENTUM * (x.mean(axes) - mean)
        var = var + MOMENTUM * (x.var(axes, ddof=1) - var)
        np.testing.assert_allclose(layer.running_mean.cpu().double().numpy(), mean, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(layer.running_var.cpu().double().numpy(), var, rtol=rtol, atol=rtol)
        assert layer.num_batches_tracked.item() == batches
        grad = rng.standard_normal(shape)
        output.backward(wg.tensor(grad, dtype=dtype, device=device))
        grad = wg.tensor(grad, dtype=dtype).double().numpy()
        y, count = centred / scale, x.size // shape[1]
        sums = grad.sum(axes, keepdims=True), (grad * y).sum(axes, keepdims=True)
        expected = (grad - (sums[0] + y * sums[1]) / count) / scale
        np.testing.assert_allclose(images.grad.cpu().double().numpy(), expected, rtol=10 * rtol, atol=10 * rtol)


@pytest.mark.parametrize("shape", SHAPES)
def test_two_steps_of_a_layer(shape: tuple[int, ...]) -> None:
    check_two_steps(shape, "cpu", wg.float32, 2e-5)
    check_two_steps(shape, "cpu", wg.float64, 1e-12)


def test_layers_in_half_precision() -> None:
    check_two_steps((8, 3, 5, 7), "cpu", wg.float16, 4e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_launches_of_a_layer(shape: tuple[int, ...]) -> None:
    """On Triton devices, one launch finishes the batch's statistics and updates the running ones."""
    device, driver = triton_device()
    start = len(driver.launched)
    layer_of(shape, device)(wg.ones(*shape, device=device))
    entries = [s.instance.entry for s in driver.launched[start:] if not s.instance.entry.startswith("fill")]
    is_split = shape == SHAPES[-1]
    assert entries[:-1] == (
        ["moments_partial", "batch_statistics_finish"] if is_split else ["moments_tiles", "batch_statistics_move"]
    )
    assert entries[-1].startswith("standardize_")
    check_two_steps(shape, device, wg.float32, 2e-5)
    check_two_steps(shape, device, wg.float32, 2e-5, is_transposed=True)


def test_half_precision_on_triton_devices() -> None:
    device, _ = triton_device()
    for shape in (SHAPES[0], SHAPES[-1]):
        check_two_steps(shape, device, wg.bfloat16, 4e-2)


@pytest.mark.parametrize("is_on_triton", [False, True])
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[-1]])
def test_a_nan_reaches_its_channel_alone(shape: tuple[int, ...], is_on_triton: bool) -> None:
    device = triton_device()[0] if is_on_triton else "cpu"
    layer, x = layer_of(shape, device), np.ones(shape, np.float32)
    x[1, 0] = np.nan
    layer(wg.tensor(x, device=device))
    for statistic in (layer.running_mean, layer.running_var):
        assert np.isnan(statistic.cpu().numpy()).tolist() == [True] + [False] * (shape[1] - 1)


def test_stored_tensors_are_written_in_place() -> None:
    layer = nn.BatchNorm1d(3)
    stored = (layer.running_mean, layer.running_var, layer.num_batches_tracked)
    versions = [t._version for t in stored]
    layer(wg.randn(4, 3))
    assert all(buffer is t for buffer, t in zip(layer.buffers(), stored, strict=True))
    assert [t._version for t in stored] == [v + 1 for v in versions]


def test_stored_tensors_of_other_layouts() -> None:
    """Strided statistics and a count of another dtype are updated by the ops of which `batch_statistics` consists."""
    layer, reference = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    layer.running_mean = wg.zeros(6)[::2]
    layer.num_batches_tracked = wg.zeros((), dtype=wg.int32)
    x = wg.randn(5, 3)
    np.testing.assert_array_equal(layer(x).detach().numpy(), reference(x).detach().numpy())
    np.testing.assert_allclose(layer.running_mean.numpy(), reference.running_mean.numpy(), rtol=1e-6)
    assert layer.num_batches_tracked.item() == 1


@pytest.mark.parametrize("momentum", [0.1, None])
def test_an_error_counts_no_batch(momentum: float | None) -> None:
    """Nor where the count has a call of its own: without a momentum, and once a class takes over calls."""
    layer = nn.BatchNorm1d(3, momentum=momentum)
    with pytest.raises(ShapeError, match="more than one value"):
        layer(wg.ones(1, 3))
    assert layer.num_batches_tracked.item() == 0
    layer(wg.ones(2, 3))
    assert layer.num_batches_tracked.item() == 1


NUMBERS = (0.1, 0.9, 0.1, EPS)


@pytest.mark.parametrize(
    ("error", "operands"),
    [
        (ArgumentError, (wg.ones(2, 3), 0.0, wg.ones(3), wg.tensor(0))),
        (DTypeError, (wg.ones(2, 3, dtype=wg.float64), wg.ones(3), wg.ones(3), wg.tensor(0))),
        (DTypeError, (wg.ones(2, 3), wg.ones(3), wg.ones(3), wg.tensor(0.0))),
        (ShapeError, (wg.ones(3), wg.ones(3), wg.ones(3), wg.tensor(0))),
        (ShapeError, (wg.ones(0, 3), wg.ones(3), wg.ones(3), wg.tensor(0))),
        (ShapeError, (wg.ones(2, 3), wg.ones(2), wg.ones(3), wg.tensor(0))),
        (ShapeError, (wg.ones(2, 3), wg.ones(3), wg.ones(6)[::2], wg.tensor(0))),
        (ShapeError, (wg.ones(2, 3), wg.ones(3), wg.ones(3), wg.tensor([0, 0]))),
    ],
    ids=["a number", "float64", "a float count", "a vector", "no elements", "channels", "strides", "two counts"],
)
def test_errors_of_the_planner(error: type[Exception], operands: tuple[Any, ...]) -> None:
    layouts = tuple(t.meta if isinstance(t, wg.Tensor) else float for t in (*operands, *NUMBERS))
    with pytest.raises(error, match="batch_statistics"):
        batch_statistics.plan(Request(registry["batch_statistics"], layouts, (), wg.device("cpu")))
