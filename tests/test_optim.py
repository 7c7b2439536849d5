"""Optimizers against their formulas in NumPy float64, schedules against their definitions, saving and errors."""

import copy
import math

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.optim import lr_scheduler

STEPS = 6
START = np.random.default_rng(0).standard_normal(37)


def gradient(p):
    """Of a function that is neither quadratic nor symmetric."""
    return 3 * p * np.abs(p) + np.sin(p) + 0.3


def sgd(p, t, s, lr, momentum=0, dampening=0, weight_decay=0, nesterov=False, maximize=False):
    g = (-1 if maximize else 1) * gradient(p) + weight_decay * p
    if momentum:
        s["b"] = g if t == 1 else momentum * s["b"] + (1 - dampening) * g
        g = g + momentum * s["b"] if nesterov else s["b"]
    return p - lr * g


def adam(p, t, s, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, decoupled=False, maximize=False):
    g = (-1 if maximize else 1) * gradient(p) + (0 if decoupled else weight_decay * p)
    p = p * (1 - lr * weight_decay) if decoupled else p
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    s["h"] = np.maximum(s.get("h", 0), s["v"])
    size = s["h"] if amsgrad else s["v"]
    return p - lr * (s["m"] / (1 - betas[0] ** t)) / (np.sqrt(size / (1 - betas[1] ** t)) + eps)


def rmsprop(p, t, s, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False):
    g = gradient(p) + weight_decay * p
    s["v"] = alpha * s.get("v", 0) + (1 - alpha) * g * g
    s["a"] = alpha * s.get("a", 0) + (1 - alpha) * g
    step = g / (np.sqrt(s["v"] - (s["a"] ** 2 if centered else 0)) + eps)
    s["b"] = momentum * s.get("b", 0) + step
    return p - lr * s["b"]


def adagrad(p, t, s, lr=1e-2, lr_decay=0, weight_decay=0, eps=1e-10):
    g = gradient(p) + weight_decay * p
    s["v"] = s.get("v", 0) + g * g
    return p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(s["v"]) + eps)


def adadelta(p, t, s, lr=1.0, rho=0.9, eps=1e-6):
    g = gradient(p)
    s["v"] = rho * s.get("v", 0) + (1 - rho) * g * g
    step = np.sqrt(s.get("d", 0) + eps) / np.sqrt(s["v"] + eps) * g
    s["d"] = rho * s.get("d", 0) + (1 - rho) * step * step
    return p - lr * step


def adamw(p, t, s, **options):
    return adam(p, t, s, decoupled=True, **{"weight_decay": 1e-2, **options})


CASES = [
    (optim.SGD, sgd, {"lr": 0.05}),
    (optim.SGD, sgd, {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    (optim.SGD, sgd, {"lr": 0.02, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    (optim.SGD, sgd, {"lr": 0.02, "momentum": 0.8, "nesterov": True}),
    (optim.Adam, adam, {"lr": 0.03}),
    (
        optim.Adam,
        adam,
        {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1, "amsgrad": True, "maximize": True},
    ),
    (optim.AdamW, adamw, {"lr": 0.03}),
    (optim.AdamW, adamw, {"lr": 0.03, "weight_decay": 0.3, "amsgrad": True}),
    (optim.RMSprop, rmsprop, {}),
    (optim.RMSprop, rmsprop, {"weight_decay": 0.1, "momentum": 0.6, "centered": True, "alpha": 0.8}),
    (optim.Adagrad, adagrad, {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1}),
    (optim.Adadelta, adadelta, {}),
]


def losses(param):
    """The function whose gradient `gradient` is."""
    return (param * param * param.abs() - param.cos() + 0.3 * param).sum()


def steps(optimizer, params, count=STEPS):
    for _ in range(count):
        optimizer.zero_grad()
        total = losses(params[0])
        for param in params[1:]:
            total = total + losses(param)
        total.backward()
        optimizer.step()


@pytest.mark.parametrize(("kind", "formula", "options"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_formulas(kind, formula, options, dtype):
    param = nn.Parameter(wg.tensor(START, dtype=getattr(wg, dtype)))
    optimizer = kind([param], **options)
    steps(optimizer, [param])
    expected, state = START.copy(), {}
    for t in range(1, STEPS + 1):
        expected = formula(expected, t, state, **options)
    tolerance = 2e-5 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(param.detach().numpy(), expected, rtol=tolerance, atol=tolerance)


def test_a_step_is_one_kernel_a_parameter():
    param = nn.Parameter(wg.tensor(START))
    optimizer = optim.AdamW([param])
    steps(optimizer, [param], 2)
    driver = param.device.driver
    before, version = driver.launches, param._version
    optimizer.step()
    assert driver.launches == before + 1
    assert param._version == version + 1


def test_groups_closures_and_missing_gradients():
    a, b, c = (nn.Parameter(wg.ones(3)) for _ in range(3))
    optimizer = optim.SGD([{"params": [a]}, {"params": [b], "lr": 1.0}], lr=0.5)
    optimizer.add_param_group({"params": c, "lr": 2.0})

    def closure():
        optimizer.zero_grad()
        loss = (a + 2 * b).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 9
    assert (a[0].item(), b[0].item(), c[0].item()) == (0.5, -1.0, 1.0)
    optimizer.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0, 0, 0]
    optimizer.zero_grad()
    assert a.grad is None


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.RMSprop])
def test_saved_state_goes_on_the_same(kind):
    options = {"lr": 0.02} | ({"momentum": 0.9} if kind is not optim.Adam else {})
    params = [nn.Parameter(wg.tensor(START)), nn.Parameter(wg.tensor(-START))]
    optimizer = kind(params, **options)
    steps(optimizer, params, 3)
    copies = [nn.Parameter(p.detach().clone()) for p in params]
    other = kind(copies, lr=99.0)
    saved = copy.deepcopy(optimizer.state_dict())
    assert saved["param_groups"][0]["params"] == [0, 1]
    other.load_state_dict(saved)
    steps(optimizer, params, 2)
    steps(other, copies, 2)
    for one, two in zip(params, copies, strict=True):
        assert (one.detach().numpy() == two.detach().numpy()).all()


def test_errors():
    param = nn.Parameter(wg.ones(2))
    with pytest.raises(ValueError, match="no parameters"):
        optim.SGD([])
    with pytest.raises(ValueError, match="not a tensor"):
        optim.SGD(param)
    with pytest.raises(ValueError, match="leaves only"):
        optim.SGD([param * 2])
    with pytest.raises(ValueError, match="more than one group"):
        optim.SGD([{"params": param}, {"params": param}])
    with pytest.warns(UserWarning, match="more than once"):
        optim.SGD([param, param])
    with pytest.raises(ValueError, match="lr must not be negative"):
        optim.SGD([param], lr=-1)
    with pytest.raises(ValueError, match="nesterov"):
        optim.SGD([param], nesterov=True)
    with pytest.raises(ValueError, match="groups have"):
        optim.SGD([param]).load_state_dict(optim.SGD([param, nn.Parameter(wg.ones(1))]).state_dict())


def rates(make, count, lr=0.8):
    optimizer = optim.SGD([nn.Parameter(wg.ones(1))], lr=lr)
    schedule = make(optimizer)
    found = []
    for _ in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def test_schedules():
    def check(make, expected, lr=0.8):
        np.testing.assert_allclose(rates(make, len(expected), lr), expected, rtol=1e-12)

    check(lambda o: lr_scheduler.StepLR(o, 2, 0.5), [0.8, 0.8, 0.4, 0.4, 0.2])
    check(lambda o: lr_scheduler.MultiStepLR(o, [3, 1], 0.5), [0.8, 0.4, 0.4, 0.2])
    check(lambda o: lr_scheduler.ExponentialLR(o, 0.5), [0.8, 0.4, 0.2])
    check(lambda o: lr_scheduler.LambdaLR(o, lambda e: 1 / (1 + e)), [0.8, 0.4, 0.8 / 3])
    check(lambda o: lr_scheduler.LinearLR(o, 0.25, 1.0, 3), [0.2, 0.4, 0.6, 0.8, 0.8])
    check(lambda o: lr_scheduler.ConstantLR(o, 0.5, 2), [0.4, 0.4, 0.8])
    check(lambda o: lr_scheduler.PolynomialLR(o, 4, 2.0), [0.8 * (1 - k / 4) ** 2 for k in range(5)])
    check(
        lambda o: lr_scheduler.CosineAnnealingLR(o, 4, 0.1),
        [0.1 + 0.7 * (1 + math.cos(math.pi * k / 4)) / 2 for k in range(5)],
    )
    # PyTorch 2.13: OneCycleLR(SGD(momentum=0.9), max_lr=1, total_steps=10, cycle_momentum=False)
    check(
        lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=10, cycle_momentum=False),
        [0.04, 0.52, 1.0, 0.9504846320134737, 0.8117456539497631, 0.6112620219362893, 0.38874197806371076,
         0.18825834605023698, 0.04951936798652636, 4e-06],
    )  # fmt: skip


def test_reduce_on_plateau():
    optimizer = optim.SGD([nn.Parameter(wg.ones(1))], lr=1.0)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    found = []
    for loss in (3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0):
        schedule.step(loss)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == [1, 1, 1, 0.5, 0.5, 0.25, 0.25]
