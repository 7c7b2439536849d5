"""Compare normalisation with PyTorch: outputs, gradients, second gradients, running statistics, in every mode.

Skipped where torch is not installed.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn import functional as F

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(4)


def tensor_pair(array, dtype="float64", grad=True):
    """Return the same values as leaf tensors of both packages."""
    dtypes = getattr(wg, dtype), getattr(torch, dtype)
    ours = wg.tensor(array.copy()).to(dtypes[0])
    theirs = torch.tensor(array.copy()).to(dtypes[1])
    return ours.requires_grad_(grad), theirs.requires_grad_(grad)


def as_float64(tensor):
    """Return the elements of a tensor of either package, in float64."""
    tensor = tensor.detach()
    return (tensor.double() if isinstance(tensor, torch.Tensor) else tensor.to(wg.float64)).numpy()


def assert_close(ours, theirs, tolerance=1e-9):
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
    np.testing.assert_allclose(as_float64(ours), as_float64(theirs), rtol=tolerance, atol=tolerance)


def compare(our_function, their_function, arrays, dtype="float64", twice=True, tolerance=1e-9):
    """Compare results, gradients, and with `twice` second gradients of the same function of both packages."""
    ours, theirs = zip(*(tensor_pair(a, dtype) for a in arrays), strict=True)
    out, expected = our_function(*ours), their_function(*theirs)
    assert_close(out, expected, tolerance)
    seeds = tensor_pair(RNG.standard_normal(out.shape), dtype)
    grads = wg.autograd.grad(out, ours, seeds[0], create_graph=twice)
    expected_grads = torch.autograd.grad(expected, theirs, seeds[1], create_graph=twice)
    for a, b in zip(grads, expected_grads, strict=True):
        assert_close(a, b, tolerance)
    if twice:
        second_grads = wg.autograd.grad(sum((g * g).sum() for g in grads), (*ours, seeds[0]), allow_unused=True)
        expected_grads = torch.autograd.grad(
            sum((g * g).sum() for g in expected_grads), (*theirs, seeds[1]), allow_unused=True
        )
        for a, b in zip(second_grads, expected_grads, strict=True):
            assert (a is None) == (b is None) or not np.any(as_float64(a if b is None else b))
            if a is not None and b is not None:
                assert_close(a, b, 100 * tolerance)


def call_group_norm(package, groups, x, *wb):
    return package.group_norm(x, groups, *wb)


def call_response_norm(package, size, x):
    return package.local_response_norm(x, size, 0.3, 0.6, 1.5)


SHAPES = [(4, 6), (3, 6, 5), (2, 6, 4, 3), (2, 6, 2, 3, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
def test_functions(shape, affine):
    x = RNG.standard_normal(shape) * 2 + 3
    extra = [RNG.standard_normal(6), RNG.standard_normal(6)] if affine else []
    stats = RNG.standard_normal(6), RNG.uniform(0.5, 2, 6)
    T = torch.nn.functional

    def running_stats(package):
        return [package.tensor(s.copy()) for s in stats]

    def compare_with_statistics(name, flag, training):
        statistics = running_stats(wg), running_stats(torch)

        def run(package, statistics):
            return lambda x, *wb: getattr(package, name)(x, *statistics, *wb, momentum=0.3, **{flag: training})

        compare(run(F, statistics[0]), run(T, statistics[1]), [x, *extra])
        for a, b in zip(*statistics, strict=True):
            assert_close(a, b)

    for training in (True, False):
        compare_with_statistics("batch_norm", "training", training)
        if len(shape) > 2:
            compare_with_statistics("instance_norm", "use_input_stats", training)
    for groups in (1, 2, 6) if len(shape) > 2 else (1, 2):
        compare(partial(call_group_norm, F, groups), partial(call_group_norm, T, groups), [x, *extra])
    if len(shape) > 2:
        for size in (1, 2, 3, 5):
            compare(partial(call_response_norm, F, size), partial(call_response_norm, T, size), [x])
    rows = [RNG.standard_normal(shape[1:]), RNG.standard_normal(shape[1:])][: len(extra)]
    compare(lambda x, *wb: F.layer_norm(x, shape[1:], *wb), lambda x, *wb: T.layer_norm(x, shape[1:], *wb), [x, *rows])
    compare(lambda x, *w: F.rms_norm(x, shape[1:], *w), lambda x, *w: T.rms_norm(x, shape[1:], *w), [x, *rows[:1]])


@pytest.mark.parametrize("name", ["weight", "bias", "x"])
def test_one_gradient(name):
    """Only the operand that requires a gradient gets one."""
    arrays = {"x": RNG.standard_normal((3, 6, 5)), "weight": RNG.standard_normal(6), "bias": RNG.standard_normal(6)}
    for ours, theirs in (
        (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), lambda x, w, b: torch.batch_norm(
            x, w, b, None, None, True, 0.1, 1e-5, False)),
        (lambda x, w, b: F.group_norm(x, 2, w, b), lambda x, w, b: torch.nn.functional.group_norm(x, 2, w, b)),
    ):  # fmt: skip
        our_inputs = [wg.tensor(a).requires_grad_(n == name) for n, a in arrays.items()]
        their_inputs = [torch.tensor(a).requires_grad_(n == name) for n, a in arrays.items()]
        ours(*our_inputs).sin().sum().backward()
        theirs(*their_inputs).sin().sum().backward()
        for a, b in zip(our_inputs, their_inputs, strict=True):
            assert (a.grad is None) == (b.grad is None)
            if b.grad is not None:
                assert_close(a.grad, b.grad)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dtypes(dtype):
    tolerance = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 4e-2}[dtype]
    x = RNG.standard_normal((4, 6, 8)) * 2
    T = torch.nn.functional
    for ours, theirs in (
        (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), lambda x, w, b: T.batch_norm(
            x, None, None, w, b, True)),
        (lambda x, w, b: F.group_norm(x, 2, w, b), lambda x, w, b: T.group_norm(x, 2, w, b)),
        (lambda x, w, b: F.instance_norm(x, None, None, w, b), lambda x, w, b: T.instance_norm(x, None, None, w, b)),
    ):  # fmt: skip
        compare(ours, theirs, [x, RNG.standard_normal(6), RNG.standard_normal(6)], dtype, False, tolerance)
        if dtype != "float32":  # float32 parameters beside half types
            half, peer = tensor_pair(x, dtype)
            our_params, their_params = zip(
                *(tensor_pair(RNG.standard_normal(6), "float32") for _ in range(2)), strict=True
            )
            out, expected = ours(half, *our_params), theirs(peer, *their_params)
            assert_close(out, expected, tolerance)
            seed, weight = tensor_pair(RNG.standard_normal(x.shape), dtype, False)
            grads = wg.autograd.grad(out, (half, *our_params), seed)
            for a, b in zip(grads, torch.autograd.grad(expected, (peer, *their_params), weight), strict=True):
                assert_close(a, b, 4 * tolerance)
    half, peer = tensor_pair(RNG.standard_normal((4, 6)), dtype)
    weight, their_params = tensor_pair(RNG.standard_normal(6), "float32")
    assert_close(F.layer_norm(half, (6,), weight), T.layer_norm(peer, (6,), their_params), tolerance)


LAYERS = [
    ("BatchNorm1d", (6,), {}, (5, 6)), ("BatchNorm1d", (6,), {"momentum": None}, (5, 6, 3)),
    ("BatchNorm2d", (6,), {"track_running_stats": False}, (3, 6, 4, 2)),
    ("BatchNorm2d", (6,), {"affine": False, "eps": 1e-3}, (3, 6, 4, 2)),
    ("BatchNorm2d", (6,), {"bias": False}, (3, 6, 4, 2)),
    ("BatchNorm3d", (6,), {"momentum": 0.4}, (3, 6, 2, 3, 2)), ("SyncBatchNorm", (6,), {}, (3, 6, 4, 2)),
    ("InstanceNorm1d", (6,), {}, (3, 6, 4)), ("InstanceNorm1d", (6,), {"affine": True}, (6, 4)),
    ("InstanceNorm2d", (6,), {"track_running_stats": True, "affine": True}, (3, 6, 4, 2)),
    ("InstanceNorm2d", (6,), {"track_running_stats": True, "momentum": 0.5}, (6, 4, 2)),
    ("InstanceNorm3d", (6,), {"affine": True, "bias": False}, (2, 6, 4, 2, 2)),
    ("GroupNorm", (3, 6), {}, (2, 6, 4)), ("GroupNorm", (2, 6), {"affine": False}, (2, 6, 4, 2)),
    ("GroupNorm", (2, 6), {"bias": False}, (2, 6)), ("LayerNorm", (4,), {"bias": False}, (2, 6, 4)),
    ("LayerNorm", ((6, 4),), {"eps": 1e-2}, (2, 6, 4)), ("LayerNorm", (4,), {"elementwise_affine": False}, (2, 4)),
    ("RMSNorm", (4,), {}, (2, 6, 4)), ("RMSNorm", ((6, 4),), {"eps": 1e-2, "elementwise_affine": False}, (2, 6, 4)),
    ("LocalResponseNorm", (3,), {"alpha": 0.2}, (2, 6, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS)
def test_layers(name, args, options, shape):
    """Compare state_dict, then three training steps and one evaluation step."""
    typed = ["dtype"] if name != "LocalResponseNorm" else []
    ours = getattr(nn, name)(*args, **options, **dict.fromkeys(typed, wg.float64))
    theirs = getattr(torch.nn, name)(*args, **options, **dict.fromkeys(typed, torch.float64))
    assert repr(ours) == repr(theirs)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    for key, tensor in ours.state_dict().items():
        assert_close(tensor, state[key])
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.tensor(RNG.standard_normal(parameter.shape)))
    ours.load_state_dict({k: wg.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    for step in range(4):
        if step == 3:
            ours.eval()
            theirs.eval()
        x, y = tensor_pair(RNG.standard_normal(shape) * 2 + 1)
        out, expected = ours(x), theirs(y)
        assert_close(out, expected)
        (out * out * 0.5 + out).sum().backward()
        (expected * expected * 0.5 + expected).sum().backward()
        assert_close(x.grad, y.grad)
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert_close(a.grad, b.grad)
        for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
            assert_close(a, b)


ERRORS = {
    "short weight": lambda p, f, t: f.batch_norm(t(4, 3, 5), None, None, t(2), None, True),
    "short statistics": lambda p, f, t: f.batch_norm(t(4, 3, 5), t(2), t(2), None, None, True),
    "other dtype": lambda p, f, t: f.batch_norm(t(4, 3, 5), None, None, t(3).double(), None, True),
    "one value": lambda p, f, t: f.batch_norm(t(1, 3), None, None, None, None, True),
    "no channels": lambda p, f, t: f.batch_norm(t(3), None, None, None, None, True),
    "no statistics": lambda p, f, t: f.batch_norm(t(2, 3), None, None),
    "one statistic": lambda p, f, t: f.batch_norm(t(2, 3), t(3), None, None, None, True),
    "no momentum": lambda p, f, t: f.batch_norm(t(2, 3), None, None, None, None, True, None),
    "eps 0": lambda p, f, t: f.batch_norm(t(2, 3), None, None, None, None, True, 0.1, 0.0),
    "integers": lambda p, f, t: f.batch_norm(t(2, 3).long(), None, None, None, None, True),
    "uneven groups": lambda p, f, t: f.group_norm(t(2, 3), 2),
    "group of a vector": lambda p, f, t: f.group_norm(t(3), 1),
    "group weight": lambda p, f, t: f.group_norm(t(2, 4), 2, t(3)),
    "one element": lambda p, f, t: f.instance_norm(t(2, 4, 1)),
    "instance without": lambda p, f, t: f.instance_norm(t(2, 4, 3), use_input_stats=False),
    "instance momentum": lambda p, f, t: f.instance_norm(t(2, 4, 3), t(4), t(4), momentum=None),
    "flat response": lambda p, f, t: f.local_response_norm(t(2, 3), 2),
    "layer shape": lambda p, f, t: f.layer_norm(t(2, 3), (4,)),
    "layer weight": lambda p, f, t: f.layer_norm(t(2, 3), (3,), t(2)),
    "layer empty": lambda p, f, t: f.layer_norm(t(2, 3), ()),
    "layer dtype": lambda p, f, t: f.layer_norm(t(2, 3), (3,), t(3).double()),
    "rms shape": lambda p, f, t: f.rms_norm(t(2, 3), (4,)),
    "BatchNorm2d of two": lambda p, f, t: p.nn.BatchNorm2d(3)(t(2, 3)),
    "BatchNorm1d of four": lambda p, f, t: p.nn.BatchNorm1d(3)(t(2, 3, 4, 5)),
    "BatchNorm3d of four": lambda p, f, t: p.nn.BatchNorm3d(3)(t(2, 3, 4, 5)),
    "BatchNorm channels": lambda p, f, t: p.nn.BatchNorm2d(3)(t(2, 4, 4, 5)),
    "InstanceNorm channels": lambda p, f, t: p.nn.InstanceNorm2d(3, affine=True)(t(2, 4, 4, 5)),
    "InstanceNorm of two": lambda p, f, t: p.nn.InstanceNorm2d(3)(t(2, 4)),
    "GroupNorm uneven": lambda p, f, t: p.nn.GroupNorm(2, 3),
    "SyncBatchNorm of one": lambda p, f, t: p.nn.SyncBatchNorm(3)(t(2)),
    "LayerNorm shape": lambda p, f, t: p.nn.LayerNorm(3)(t(2, 4)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    """Our error derives from the same built-in exception as PyTorch's."""
    with pytest.raises(Exception) as theirs:
        ERRORS[name](torch, torch.nn.functional, torch.ones)
    builtin = next(c for c in type(theirs.value).__mro__ if c.__module__ == "builtins")
    with pytest.raises(builtin):
        ERRORS[name](wg, F, wg.ones)


def test_empty():
    for shape in ((0, 3), (0, 3, 4), (2, 3, 0)):
        for training in (True, False):
            ours, theirs = nn.BatchNorm1d(3).train(training), torch.nn.BatchNorm1d(3).train(training)
            assert tuple(ours(wg.ones(shape)).shape) == tuple(theirs(torch.ones(shape)).shape)
            for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
                np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=str(shape))


def test_convert():
    """Every batch norm becomes a SyncBatchNorm with the same parameters."""
    for package in (nn, torch.nn):
        net = package.Sequential(package.Linear(3, 4), package.Sequential(package.BatchNorm1d(4, bias=False)))
        norm = net[1][0].eval()
        converted = package.SyncBatchNorm.convert_sync_batchnorm(net)
        assert converted is net
        assert isinstance(net[1][0], package.SyncBatchNorm)
        assert not net[1][0].training
        assert net[1][0].weight is norm.weight
        assert net[1][0].bias is None
        assert net[1][0].running_var is norm.running_var


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 20])
def test_cross_map_response(size):
    """Compare values only: PyTorch's gradient is not that of its values."""
    x, y = tensor_pair(RNG.standard_normal((2, 9, 3, 4)))
    ours, theirs = (m.CrossMapLRN2d(size, alpha=0.4, beta=0.6, k=1.5) for m in (nn, torch.nn))
    assert repr(ours) == repr(theirs)
    assert_close(ours(x), theirs(y))
