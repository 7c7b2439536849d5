"""Check batch, group and instance norm and their layers: gradients, running statistics, modes, errors."""

from __future__ import annotations

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn import functional as F
from weftgrad.runtime.errors import ArgumentError, DTypeError, ShapeError, UnsupportedDType

RNG = np.random.default_rng(9)
X, WEIGHT, BIAS = RNG.standard_normal((3, 4, 5)) * 2 + 1, RNG.standard_normal(4), RNG.standard_normal(4)


def standardize(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def affine(y):
    return y * WEIGHT[:, None] + BIAS[:, None]


def f32(array):
    return wg.tensor(np.asarray(array, np.float32))


def standardize_groups(x):
    return standardize(x.reshape(3, 2, 2, 5), (2, 3)).reshape(x.shape)


FORMS = {
    "batch": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), lambda x: standardize(x, (0, 2))),
    "instance": (lambda x, w, b: F.instance_norm(x, None, None, w, b), lambda x: standardize(x, 2)),
    "group": (lambda x, w, b: F.group_norm(x, 2, w, b), standardize_groups),
    "fixed": (
        lambda x, w, b: F.batch_norm(x, x.new_zeros(4) + 0.5, x.new_ones(4) * 2, w, b),
        lambda x: (x - 0.5) / np.sqrt(2 + 1e-5),
    ),
}


SEED = RNG.standard_normal(X.shape).astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("name", FORMS)
def test_values_and_gradients(name):
    """Check values against the formula, and gradients against its finite differences."""
    ours, formula = FORMS[name]
    tensors = [f32(a).requires_grad_() for a in (X, WEIGHT, BIAS)]
    out = ours(*tensors)
    np.testing.assert_allclose(out.detach().numpy(), affine(formula(X)), rtol=1e-5, atol=1e-5)
    out.backward(f32(SEED))
    for index, tensor in enumerate(tensors):
        step = RNG.standard_normal(tensor.shape)

        def shifted_loss(distance, index=index, step=step):
            arrays = [X, WEIGHT, BIAS]
            arrays[index] = arrays[index] + distance * step
            return ((formula(arrays[0]) * arrays[1][:, None] + arrays[2][:, None]) * SEED).sum()

        slope = (shifted_loss(1e-6) - shifted_loss(-1e-6)) / 2e-6
        assert abs((tensor.grad.numpy() * step).sum() - slope) < 2e-5 * max(1, abs(slope))


def test_recorded_gradients():
    """Gradients composed of ops (create_graph) agree with the kernels, and second gradients with differences."""

    def ours(x, *weight):
        return F.instance_norm(x, None, None, *weight)

    tensors, seed = [wg.tensor(a).requires_grad_() for a in (X, WEIGHT)], wg.tensor(SEED)
    launched = wg.autograd.grad(ours(*tensors), tensors, seed)
    composed = wg.autograd.grad(ours(*tensors), tensors, seed, create_graph=True)
    for a, b in zip(launched, composed, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)
    direction = RNG.standard_normal(X.shape)
    second = wg.autograd.grad(composed[0], tensors[0], wg.tensor(direction))[0].numpy()

    def first(x):
        x = wg.tensor(x).requires_grad_()
        return wg.autograd.grad(ours(x, *tensors[1:]), x, seed)[0].numpy()

    change = (first(X + 1e-5 * direction) - first(X - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose(second, change, rtol=1e-4, atol=1e-6)


def test_large_means_lose_no_precision():
    x = (RNG.standard_normal((16, 2, 64)) + 1000).astype(np.float32)
    output = F.batch_norm(wg.tensor(x), None, None, None, None, True).numpy()
    np.testing.assert_allclose(output, standardize(x.astype(np.float64), (0, 2)), atol=2e-4)


def test_half_types_have_statistics_in_float32():
    x = wg.tensor(X + 100).half().requires_grad_()
    weight = f32(WEIGHT).requires_grad_()
    out = F.instance_norm(x, None, None, weight)
    expected = standardize(x.detach().float().numpy().astype(np.float64), 2) * WEIGHT[:, None]
    np.testing.assert_allclose(out.detach().float().numpy(), expected, rtol=2e-3, atol=2e-3)
    out.sum().backward()
    assert (out.dtype, x.grad.dtype, weight.grad.dtype) == (wg.float16, wg.float16, wg.float32)


def test_running_statistics():
    """Check statistics updated by momentum, by a cumulative mean and not at all, in training and in evaluation."""
    batches = [RNG.standard_normal((3, 4, 5)) + k for k in range(3)]
    means = [b.mean((0, 2)) for b in batches]
    variances = [b.var((0, 2), ddof=1) for b in batches]
    moving, mean = nn.BatchNorm1d(4, momentum=0.25), nn.BatchNorm1d(4, momentum=None)
    untracked = nn.BatchNorm1d(4, track_running_stats=False)
    expected = [np.zeros(4), np.ones(4)]
    for batch, m, v in zip(batches, means, variances, strict=True):
        moving(f32(batch))
        mean(f32(batch))
        expected = [0.75 * a + 0.25 * b for a, b in zip(expected, (m, v), strict=True)]
    for layer, (m, v) in ((moving, expected), (mean, (np.mean(means, 0), np.mean(variances, 0)))):
        assert layer.num_batches_tracked.item() == 3
        np.testing.assert_allclose(layer.running_mean.numpy(), m, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(layer.running_var.numpy(), v, rtol=1e-5)
        shifted = (X - m[:, None]) / np.sqrt(v[:, None] + 1e-5)
        np.testing.assert_allclose(layer.eval()(f32(X)).detach().numpy(), shifted, rtol=1e-4, atol=1e-5)
        assert layer.num_batches_tracked.item() == 3
    for layer in (untracked, untracked.eval()):
        np.testing.assert_allclose(layer(f32(X)).detach().numpy(), standardize(X, (0, 2)), rtol=1e-4, atol=1e-5)
    assert list(untracked.state_dict()) == ["weight", "bias"]
    moving.reset_parameters()
    assert moving.running_var.tolist() == [1] * 4
    assert moving.num_batches_tracked.item() == 0


def test_running_statistics_of_instances():
    layer = nn.InstanceNorm1d(4, track_running_stats=True, momentum=0.5)
    layer(f32(X))
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.5 * X.mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.5 + 0.5 * X.var(2, ddof=1).mean(0), rtol=1e-5)
    untracked = nn.InstanceNorm1d(4)
    np.testing.assert_allclose(untracked(f32(X[0])).numpy(), standardize(X[0], 1), rtol=1e-4, atol=1e-5)
    with pytest.warns(UserWarning, match="counts for nothing"):
        nn.InstanceNorm1d(7)(f32(X))
    with pytest.raises(ShapeError, match="4 channels"):
        nn.InstanceNorm1d(7, affine=True)(f32(X))


def test_local_response():
    squares = np.pad(X**2, ((0, 0), (1, 1), (0, 0)))
    total = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    layer = nn.LocalResponseNorm(3, alpha=0.3, beta=0.6, k=1.5)
    np.testing.assert_allclose(layer(f32(X)).numpy(), X / (1.5 + 0.1 * total) ** 0.6, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
def test_cross_map_response(size):
    """Channel 0 stays in the sums of all channels after the first window, as in PyTorch."""
    images, distance = X[:, :, :, None], (size - 1) // 2
    expected = np.empty_like(images)
    for channel in range(images.shape[1]):
        neighbors = {*range(max(channel - distance, 0), min(channel + distance + 1, images.shape[1])), 0}
        total = (images[:, sorted(neighbors)] ** 2).sum(1)
        expected[:, channel] = images[:, channel] / (1.5 + 0.3 / size * total) ** 0.6
    layer = nn.CrossMapLRN2d(size, alpha=0.3, beta=0.6, k=1.5)
    np.testing.assert_allclose(layer(f32(images)).numpy(), expected, rtol=1e-5)
    with pytest.raises(ShapeError, match="images"):
        layer(f32(X))


def test_layers_are_printed_and_converted():
    net = nn.Sequential(nn.Sequential(nn.BatchNorm2d(4, bias=False)), nn.GroupNorm(2, 4), nn.LayerNorm(3, bias=False))
    batch_norm = net[0][0].eval()
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert converted is net
    assert isinstance(net[0][0], nn.SyncBatchNorm)
    assert not net[0][0].training
    assert net[0][0].weight is batch_norm.weight
    assert net[0][0].bias is None
    assert net[0][0].running_mean is batch_norm.running_mean
    assert [repr(m) for m in (net[0][0], *list(net)[1:])] == [
        "SyncBatchNorm(4, eps=1e-05, momentum=0.1, affine=True, bias=False, track_running_stats=True)",
        "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)",
        "LayerNorm((3,), eps=1e-05, elementwise_affine=True, bias=False)",
    ]


def test_old_states_without_a_batch_count():
    layer = nn.BatchNorm1d(4)
    layer(f32(X))
    old = {k: v * 2 for k, v in layer.state_dict().items() if k != "num_batches_tracked"}
    assert not layer.load_state_dict(old).missing_keys
    assert layer.num_batches_tracked.item() == 1
    with pytest.raises(RuntimeError, match="running_var"):
        layer.load_state_dict({k: v for k, v in old.items() if k != "running_var"})


def test_no_elements():
    layer = nn.BatchNorm1d(4)
    assert layer(wg.ones(0, 4)).shape == (0, 4)
    assert layer.running_mean.tolist() == [0] * 4
    assert F.group_norm(wg.ones(0, 4, 3), 2).shape == (0, 4, 3)


def ones(*shape):
    return wg.ones(*shape)


ERRORS = {
    "weight": (lambda: F.batch_norm(ones(2, 3), None, None, ones(2), None, True), ShapeError, r"weight.*\[2\].*\[3\]"),
    "dtype": (lambda: F.group_norm(ones(2, 4), 2, ones(4).double()), DTypeError, "weight is float64"),
    "integers": (lambda: F.batch_norm(ones(2, 3).long(), None, None, None, None, True), UnsupportedDType, "int64"),
    "a value": (lambda: F.batch_norm(ones(1, 3), None, None, None, None, True), ShapeError, "more than one value"),
    "one of two": (lambda: F.batch_norm(ones(2, 3), ones(3), None, training=True), ArgumentError, "both be given"),
    "eps": (lambda: F.batch_norm(ones(2, 3), None, None, training=True, eps=0), ArgumentError, "eps"),
    "momentum": (lambda: F.batch_norm(ones(2, 3), None, None, None, None, True, None), ArgumentError, "momentum"),
    "groups": (lambda: F.group_norm(ones(2, 3), 2), ShapeError, "divide"),
    "an element": (lambda: F.instance_norm(ones(2, 3, 1)), ShapeError, "more than one element"),
    "rank": (lambda: nn.BatchNorm2d(3)(ones(2, 3)), ShapeError, "4D"),
    "response": (lambda: F.local_response_norm(ones(2, 3), 2), ShapeError, "three dimensions"),
    "layer": (lambda: F.layer_norm(ones(2, 3), (3,), ones(3).double()), DTypeError, "float64"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()
