"""Compare activations and dropout with PyTorch, if installed: values, gradients, in-place forms, repr, errors."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(3)
X = np.concatenate(
    [
        RNG.standard_normal((3, 4, 3, 2)) * 3,
        np.array([0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0] * 3).reshape(1, 4, 3, 2),
    ]
)

# name, keyword arguments, whether an in-place form exists
FUNCTIONS: list[tuple[str, dict[str, Any], bool]] = [
    ("relu", {}, True), ("relu6", {}, True), ("leaky_relu", {"negative_slope": 0.2}, True),
    ("elu", {"alpha": 0.7}, True),
    ("celu", {"alpha": 0.7}, True), ("celu", {"alpha": -0.7}, True), ("selu", {}, True), ("silu", {}, True),
    ("mish", {}, True), ("hardtanh", {"min_val": -0.5, "max_val": 2.0}, True), ("hardswish", {}, True),
    ("hardsigmoid", {}, True), ("threshold", {"threshold": 0.5, "value": 7.0}, True), ("rrelu", {}, True),
    ("hardshrink", {"lambd": 1.0}, False), ("softshrink", {"lambd": 1.0}, False), ("softsign", {}, False),
    ("tanhshrink", {}, False), ("softplus", {"beta": 2.0, "threshold": 3.0}, False), ("logsigmoid", {}, False),
    ("gelu", {}, False), ("gelu", {"approximate": "tanh"}, False), ("glu", {"dim": 1}, False),
    ("softmax", {"dim": 2}, False),
    ("softmin", {"dim": 2}, False), ("log_softmax", {"dim": 0}, False), ("tanh", {}, False), ("sigmoid", {}, False),
]  # fmt: skip
_SINGLE = ("celu", "hardsigmoid")  # PyTorch computes these with a float32 constant, also for float64
UNDERSCORED = ("relu", "leaky_relu", "elu", "celu", "selu", "hardtanh", "threshold", "rrelu")


def value_and_grad(module: Any, call: Any, x: Any) -> tuple[Any, Any]:
    leaf = module.tensor(x, requires_grad=True)
    out = call(module.nn.functional, leaf * 1.0)
    direction = np.random.default_rng(2).standard_normal(tuple(out.shape))
    out.backward(module.tensor(direction))
    return out.detach().numpy(), leaf.grad.numpy()


def assert_same(call: Any, rtol: float = 1e-11) -> None:
    theirs, ours = value_and_grad(torch, call, X), value_and_grad(wg, call, X)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=rtol, atol=1e-13)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=rtol, atol=1e-11)


@pytest.mark.parametrize("case", range(len(FUNCTIONS)), ids=lambda i: f"{FUNCTIONS[i][0]}{i}")
def test_values_and_gradients(case: int) -> None:
    name, options, inplace = FUNCTIONS[case]
    rtol = 1e-6 if name in _SINGLE else 1e-11
    assert_same(lambda f, x: getattr(f, name)(x, **options), rtol)
    if inplace and options != {"alpha": -0.7}:
        assert_same(lambda f, x: getattr(f, name)(x, **options, inplace=True), rtol)
        tensor = wg.tensor(X)
        assert getattr(wg.nn.functional, name)(tensor, **options, inplace=True) is tensor
        if name in UNDERSCORED:
            assert_same(lambda f, x: getattr(f, name + "_")(x, **options), rtol)


def test_prelu() -> None:
    for weight in (np.array([0.3]), np.array([0.1, -0.2, 0.3, 0.4]), np.array(0.25)):
        grads = []
        for m in (torch, wg):
            w = m.tensor(weight, requires_grad=True)
            x = m.tensor(X, requires_grad=True)
            m.nn.functional.prelu(x, w).mul(m.tensor(X)).sum().backward()
            grads.append((w.grad.numpy(), x.grad.numpy()))
        np.testing.assert_allclose(grads[1][0], grads[0][0], rtol=1e-12)
        np.testing.assert_allclose(grads[1][1], grads[0][1], rtol=1e-12)


MODULES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((n, (), {}) for n in (
        "RReLU", "ReLU", "ReLU6", "Hardtanh", "Sigmoid", "Hardsigmoid", "Tanh", "SiLU", "Mish", "Hardswish", "ELU",
        "CELU", "SELU", "GLU", "GELU", "Hardshrink", "LeakyReLU", "LogSigmoid", "Softplus", "Softshrink", "PReLU",
        "Softsign", "Tanhshrink", "Softmax2d",
    )),
    *((n, (True,), {}) for n in ("ReLU", "ReLU6", "Hardsigmoid", "SiLU", "Mish", "Hardswish", "SELU")),
    *((n, (1,), {}) for n in ("Softmin", "Softmax", "LogSoftmax", "GLU")),
    ("Threshold", (0.5, 20), {}), ("Threshold", (0.5, 20, True), {}), ("Hardtanh", (-2, 2.5, True), {}),
    ("ELU", (0.5, True), {}), ("CELU", (0.5,), {"inplace": True}), ("LeakyReLU", (0.1, True), {}),
    ("RReLU", (0.1, 0.3, True), {}), ("GELU", ("tanh",), {}), ("Softplus", (2, 10), {}), ("Hardshrink", (0.1,), {}),
    ("PReLU", (4, 0.1), {}),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(MODULES)), ids=lambda i: f"{MODULES[i][0]}{i}")
def test_modules(case: int) -> None:
    name, args, options = MODULES[case]
    theirs, ours = (getattr(m.nn, name)(*args, **options).eval() for m in (torch, wg))
    assert repr(ours) == repr(theirs)
    for key, value in vars(theirs).items():
        if not key.startswith("_"):
            assert vars(ours)[key] == value
    if name == "PReLU":
        ours.load_state_dict({k: wg.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = X.astype(np.float32)
    actual, expected = (m(t.tensor(x)) for m, t in ((ours, wg), (theirs, torch)))
    np.testing.assert_allclose(actual.detach().numpy(), expected.detach().numpy(), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"]
)
@pytest.mark.parametrize("inplace", [False, True])
def test_dropout(name: str, inplace: bool) -> None:
    """The random masks differ, but kept values, dropped values and the elements that share one mask bit agree."""
    shape = {"Dropout1d": (60, 50, 6), "Dropout2d": (60, 50, 3, 2), "Dropout3d": (60, 50, 3, 2, 1)}.get(
        name, (60, 50, 6)
    )
    x = RNG.standard_normal(shape)
    drops_channels = name not in ("Dropout", "AlphaDropout")
    results = []
    for m in (torch, wg):
        m.manual_seed(0)
        module = getattr(m.nn, name)(0.3, inplace)
        leaf = m.tensor(x, requires_grad=True)
        out = module(leaf * 1.0)
        out.sum().backward()
        y, grad = out.detach().numpy().reshape(3000, 6), leaf.grad.numpy().reshape(3000, 6)
        survives = grad != 0
        assert abs(survives.mean() - 0.7) < (0.035 if drops_channels else 0.015)
        assert drops_channels == (survives.all(1) | (~survives).all(1)).all()
        dropped, scale = y[~survives], grad[survives]
        shift = y[survives] - x.reshape(3000, 6)[survives] * scale
        assert np.ptp(dropped) < 1e-12
        assert np.ptp(scale) < 1e-12
        assert np.ptp(shift) < 1e-12
        results.append((dropped[0], scale[0], shift[0], repr(module)))
        assert module.eval()(leaf) is leaf
    np.testing.assert_allclose(results[1][:3], results[0][:3], atol=1e-12)
    assert results[1][3] == results[0][3]


def test_rrelu_in_training() -> None:
    x = -np.ones(4000)
    for m in (torch, wg):
        for inplace in (False, True):
            leaf = m.tensor(x, requires_grad=True)
            out = m.nn.RReLU(0.1, 0.3, inplace)(leaf * 1.0)
            out.sum().backward()
            slopes = leaf.grad.numpy()
            np.testing.assert_allclose(out.detach().numpy(), -slopes)
            assert 0.1 <= slopes.min() < 0.101
            assert 0.299 < slopes.max() <= 0.3
            assert abs(slopes.mean() - 0.2) < 0.005


def outcome(call: Any, module: Any) -> Any:
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        try:
            result = call(module, module.nn.functional)
            result = (
                result if isinstance(result, (str, type(None))) else (str(result.dtype).split(".")[-1], result.tolist())
            )
        except Exception as error:
            result = error
    return result, sorted({w.category for w in recorded}, key=str)


EDGE_CASES: dict[str, Any] = {
    **{f"{n} of integers": lambda m, F, n=n: getattr(F, n)(m.ones(2, 2, dtype=m.int64)) for n in (
        "elu", "celu", "selu", "silu", "mish", "leaky_relu", "rrelu", "hardswish", "hardsigmoid", "hardshrink",
        "softshrink", "softplus", "softsign", "tanhshrink", "logsigmoid", "gelu", "glu", "relu6", "hardtanh", "relu",
        "dropout", "gumbel_softmax",
    )},
    "alpha dropout of integers": lambda m, F: F.alpha_dropout(m.ones(2, 2, dtype=m.int64), training=True),
    "threshold of integers": lambda m, F: F.threshold(m.arange(4), 1.5, 7.9),
    "hardtanh of integers": lambda m, F: F.hardtanh(m.arange(5), 0.5, 2.5),
    "hardtanh of bytes": lambda m, F: F.hardtanh(m.ones(2, dtype=m.uint8)),
    "hardtanh of flags": lambda m, F: F.hardtanh(m.ones(2, dtype=m.bool)),
    "hardtanh limits": lambda m, F: F.hardtanh(m.ones(2), 1, -1),
    "hardtanh old names": lambda m, F: str(m.nn.Hardtanh(min_value=-3, max_value=4)),
    "celu of 0": lambda m, F: F.celu(m.ones(2), 0),
    "softshrink": lambda m, F: F.softshrink(m.ones(2), -1),
    "rrelu limits": lambda m, F: F.rrelu(m.ones(2), 0.5, 0.1),
    "prelu weights": lambda m, F: F.prelu(m.ones(2, 3), m.ones(2)),
    "prelu vector": lambda m, F: F.prelu(m.ones(3), m.ones(3)),
    "prelu matrix": lambda m, F: F.prelu(m.ones(2, 3), m.ones(1, 3)),
    "prelu dtype": lambda m, F: F.prelu(m.ones(2, 3), m.ones(1, dtype=m.float64)),
    "gelu approximate": lambda m, F: F.gelu(m.ones(2), approximate="other"),
    "gelu position": lambda m, F: F.gelu(m.ones(2), "tanh"),
    "softmax dim": lambda m, F: F.softmax(m.ones(2, 3)),
    "softmin dim": lambda m, F: F.softmin(m.ones(2, 3, 2)),
    "log_softmax dim": lambda m, F: m.nn.LogSoftmax()(m.ones(2, 3)),
    "softmax dtype": lambda m, F: F.softmax(m.ones(2, 3, dtype=m.int64), 1, dtype=m.float64),
    "glu odd": lambda m, F: F.glu(m.ones(2, 3)),
    "glu scalar": lambda m, F: F.glu(m.ones(())),
    "glu dim": lambda m, F: F.glu(m.ones(2), 3),
    "softmax2d": lambda m, F: m.nn.Softmax2d()(m.ones(2, 3)),
    "dropout p": lambda m, F: F.dropout(m.ones(2), 1.5),
    "dropout module p": lambda m, F: m.nn.AlphaDropout(-0.5),
    "dropout all": lambda m, F: F.dropout(m.ones(2), 1.0),
    "alpha dropout all": lambda m, F: F.alpha_dropout(m.ones(2), 1.0, True),
    "dropout1d": lambda m, F: F.dropout1d(m.ones(2)),
    "dropout2d of 1": lambda m, F: F.dropout2d(m.ones(2)),
    "dropout2d of 3": lambda m, F: F.dropout2d(m.ones(2, 2, 2), 0.0),
    "dropout3d of 2": lambda m, F: F.dropout3d(m.ones(2, 2), 1.0),
    "feature alpha": lambda m, F: F.feature_alpha_dropout(m.ones(2), training=True),
    "gumbel eps": lambda m, F: str(F.gumbel_softmax(m.ones(1, 1), eps=0.1).item()),
    "unknown": lambda m, F: m.nn.ELU(beta=1),
    "missing": lambda m, F: m.nn.Threshold(1),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGE_CASES)
def test_errors_and_warnings(name: str) -> None:
    (theirs, their_warnings), (ours, our_warnings) = (outcome(EDGE_CASES[name], m) for m in (torch, wg))
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), f"{theirs!r} against {ours!r}"
    else:
        assert ours == theirs
    assert our_warnings == their_warnings


def test_signatures() -> None:
    names = dict.fromkeys(n for n, _, _ in FUNCTIONS)
    names |= dict.fromkeys(["gumbel_softmax", *(n + "_" for n in UNDERSCORED), "dropout", "dropout1d", "dropout2d"])
    names |= dict.fromkeys(["dropout3d", "alpha_dropout", "feature_alpha_dropout"])
    for name in names:
        theirs = getattr(torch.nn.functional, name)
        if inspect.isfunction(theirs) and not hasattr(theirs, "__wrapped__"):
            expected = [(p.name, p.default) for p in inspect.signature(theirs).parameters.values()]
            actual = [
                (p.name, p.default) for p in inspect.signature(getattr(wg.nn.functional, name)).parameters.values()
            ]
            assert actual[: len(expected)] == expected, name
    for name, _, _ in MODULES:
        theirs, ours = (list(inspect.signature(getattr(m.nn, name)).parameters) for m in (torch, wg))
        assert theirs == ours or theirs == ["args", "kwargs"], name
