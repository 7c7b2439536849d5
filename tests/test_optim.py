"""Check optimizers against their formulas in NumPy float64; also groups, hooks, options, state_dict and errors."""

import copy
import math
import pickle

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.optim import lr_scheduler
from weftgrad.optim.line_search import strong_wolfe
from weftgrad.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

STEPS = 6
START = np.random.default_rng(0).standard_normal(37)


def gradient(p):
    """Return the gradient of a function that is neither quadratic nor symmetric."""
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


def rmsprop(p, t, s, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, maximize=False):
    g = (-1 if maximize else 1) * gradient(p) + weight_decay * p
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


def adamax(p, t, s, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0):
    g = gradient(p) + weight_decay * p
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["u"] = np.maximum(betas[1] * s.get("u", 0), np.abs(g) + eps)
    return p - lr / (1 - betas[0] ** t) * s["m"] / s["u"]


def nadam(p, t, s, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3, decoupled=False):
    g = gradient(p) + (0 if decoupled else weight_decay * p)
    p = p * (1 - lr * weight_decay) if decoupled else p
    momentum, next_momentum = (betas[0] * (1 - 0.5 * 0.96 ** (k * momentum_decay)) for k in (t, t + 1))
    s["product"] = s.get("product", 1) * momentum
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    mean = next_momentum * s["m"] / (1 - s["product"] * next_momentum) + (1 - momentum) * g / (1 - s["product"])
    return p - lr * mean / (np.sqrt(s["v"] / (1 - betas[1] ** t)) + eps)


def radam(p, t, s, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled=False):
    g = gradient(p) + (0 if decoupled else weight_decay * p)
    p = p * (1 - lr * weight_decay) if decoupled else p
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    mean, rho_max = s["m"] / (1 - betas[0] ** t), 2 / (1 - betas[1]) - 1
    rho = rho_max - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
    if rho <= 5:
        return p - lr * mean
    r = np.sqrt((rho - 4) * (rho - 2) * rho_max / ((rho_max - 4) * (rho_max - 2) * rho))
    return p - lr * mean * r * np.sqrt(1 - betas[1] ** t) / (np.sqrt(s["v"]) + eps)


def rprop(p, t, s, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50)):
    g = gradient(p)
    sign_change = np.sign(g * s.get("g", 0))
    size = s.get("size", lr) * np.where(sign_change > 0, etas[1], np.where(sign_change < 0, etas[0], 1))
    s["size"], s["g"] = np.clip(size, *step_sizes), np.where(sign_change < 0, 0, g)
    return p - np.sign(s["g"]) * s["size"]


def asgd(p, t, s, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0):
    eta = lr / (1 + lambd * lr * (t - 1)) ** alpha if t > 1 else lr
    return (1 - lambd * eta) * p - eta * (gradient(p) + weight_decay * p)


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
    (optim.RMSprop, rmsprop, {"momentum": 0.5, "maximize": True}),
    (optim.RMSprop, rmsprop, {"centered": True}),
    (optim.Adagrad, adagrad, {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1}),
    (optim.Adadelta, adadelta, {}),
    (optim.Adamax, adamax, {"lr": 0.05, "weight_decay": 0.1, "eps": 1e-3}),
    (optim.NAdam, nadam, {"lr": 0.05, "weight_decay": 0.1, "momentum_decay": 0.3}),
    (optim.NAdam, nadam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    (optim.RAdam, radam, {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1}),  # rectified from step 5 on
    (optim.RAdam, radam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    (optim.Rprop, rprop, {"lr": 0.3, "etas": (0.4, 1.5), "step_sizes": (0.1, 0.8)}),
    (optim.ASGD, asgd, {"lr": 0.05, "lambd": 0.5, "weight_decay": 0.1}),
]
FLOAT32_CASES = (1, 2, 4)  # cases that also run in float32


def losses(param):
    """Return the function whose gradient is `gradient`, summed over the elements."""
    return (param * param * param.abs() - param.cos() + 0.3 * param).sum()


def steps(optimizer, params, count=STEPS):
    for _ in range(count):
        optimizer.zero_grad()
        total = losses(params[0])
        for param in params[1:]:
            total = total + losses(param)
        total.backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("kind", "formula", "options", "dtype"),
    [(*case, "float64") for case in CASES] + [(*CASES[i], "float32") for i in FLOAT32_CASES],
)
def test_formulas(kind, formula, options, dtype):
    param = nn.Parameter(wg.tensor(START, dtype=getattr(wg, dtype)))
    optimizer = kind([param], **options)
    steps(optimizer, [param])
    expected, state = START.copy(), {}
    kwargs = {name.removesuffix("_weight_decay") if "decoupled" in name else name: v for name, v in options.items()}
    for t in range(1, STEPS + 1):
        expected = formula(expected, t, state, **kwargs)
    tolerance = 2e-5 if dtype == "float32" else 1e-11
    if kind in (optim.NAdam, optim.ASGD):  # their products and rates are stored in float32, as in PyTorch
        tolerance = 1e-6
    np.testing.assert_allclose(param.detach().numpy(), expected, rtol=tolerance, atol=tolerance)


def test_a_step_is_one_kernel_per_group():
    params = [nn.Parameter(wg.tensor(START[:n])) for n in (37, 5, 1)]
    optimizer = optim.AdamW(params)
    steps(optimizer, params, 2)
    driver = params[0].device.driver
    launches_before, versions = driver.launches, [p._version for p in params]
    optimizer.step()
    assert driver.launches == launches_before + 1
    assert [p._version for p in params] == [v + 1 for v in versions]


def test_parameters_with_different_step_counts():
    """Each parameter uses the bias correction of its own step count. Each step count gets one kernel."""
    params = [nn.Parameter(wg.tensor(START, dtype=wg.float64)) for _ in range(3)]
    optimizer = optim.Adam(params, lr=0.05)
    for count in (1, 2, 3):
        steps(optimizer, params[:count], 1)
    launches_before = params[0].device.driver.launches
    optimizer.step()  # the gradients of the last step, again
    assert params[0].device.driver.launches == launches_before + 3
    assert [optimizer.state[p]["step"] for p in params] == [4, 3, 2]
    for param, count in zip(params, (3, 2, 1), strict=True):
        expected, state, previous = START.copy(), {}, None
        for t in range(1, count + 1):
            previous = expected
            expected = adam(expected, t, state, lr=0.05)
        g = gradient(previous)
        mean, square = 0.9 * state["m"] + 0.1 * g, 0.999 * state["v"] + 0.001 * g * g
        t = count + 1
        expected = expected - 0.05 * mean / (1 - 0.9**t) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(param.detach().numpy(), expected, rtol=1e-11)


def test_a_duplicate_parameter_is_updated_twice():
    param, other = nn.Parameter(wg.tensor([1.0])), nn.Parameter(wg.tensor([1.0]))
    with pytest.warns(UserWarning, match="more than once"):
        optimizer = optim.SGD([param, param, other], lr=0.25)
    param.grad = other.grad = wg.tensor([1.0])
    optimizer.step()
    assert (param.item(), other.item()) == (0.5, 0.75)


def test_the_average_of_asgd():
    param = nn.Parameter(wg.tensor(START))
    optimizer = optim.ASGD([param], lr=0.05, t0=2)
    iterates = []
    for _ in range(6):
        steps(optimizer, [param], 1)
        iterates.append(param.detach().numpy().copy())
    # The average of the iterates from step t0 + 1 on, with weights 1/max(1, t - t0) of the previous step.
    average = iterates[0]
    for t in range(1, 6):
        average = average + (iterates[t] - average) / max(1, t - 2)
    np.testing.assert_allclose(optimizer.state[param]["ax"].numpy(), average, rtol=1e-5)


def test_directions_of_lbfgs():
    """Check against the dense BFGS formula (Nocedal and Wright 2006, equation 7.16) over the stored steps."""
    curved = lambda p: np.array([2.0, 7.0, 0.5]) * p + 4 * p**3  # noqa: E731
    param = nn.Parameter(wg.tensor([1.0, -2.0, 3.0], dtype=wg.float64))
    optimizer = optim.LBFGS([param], lr=0.3, max_iter=1, history_size=3)

    def closure():
        param.grad = wg.tensor(curved(param.detach().numpy()))
        return (param * param).detach().sum()

    point, pairs, previous = param.detach().numpy().copy(), [], None
    for iteration in range(6):
        slope = curved(point)
        if previous is not None:
            s, y = point - previous[0], slope - previous[1]
            pairs = [*pairs, (s, y)][-3:]
        step = 0.3 * min(1, 1 / np.abs(slope).sum()) if iteration == 0 else 0.3
        inverse = np.eye(3) * (pairs[-1][0] @ pairs[-1][1] / (pairs[-1][1] @ pairs[-1][1]) if pairs else 1)
        for s, y in pairs:
            projector = np.eye(3) - np.outer(y, s) / (y @ s)
            inverse = projector.T @ inverse @ projector + np.outer(s, s) / (y @ s)
        previous, point = (point, slope), point - step * inverse @ slope
        optimizer.step(closure)
        np.testing.assert_allclose(param.detach().numpy(), point, rtol=1e-9)


@pytest.mark.parametrize("length", [1e-3, 0.3, 4.0, 90.0])
@pytest.mark.parametrize("function", [
    lambda t: ((t - 3) ** 2, 2 * (t - 3)),
    lambda t: (-t / (t * t + 2), (t * t - 2) / (t * t + 2) ** 2),  # More and Thuente 1994, 5.1
    lambda t: (math.cos(t) - 2 * t + t * t / 50, -math.sin(t) - 2 + t / 25),
])  # fmt: skip
def test_strong_wolfe(function, length):
    evaluated = []

    def evaluate(t):
        evaluated.append(t)
        return function(t)[0], t, function(t)[1]

    start, slope = function(0.0)
    loss, grad, step_size, calls = strong_wolfe(evaluate, length, 1.0, start, 0.0, slope, tolerance=1e-9, max_tries=40)
    assert (loss, grad, calls) == (function(step_size)[0], step_size, len(evaluated))
    assert loss <= start + 1e-4 * step_size * slope
    assert abs(function(step_size)[1]) <= 0.9 * abs(slope)
    assert strong_wolfe(evaluate, length, 1.0, start, 0.0, slope, tolerance=1e-9, max_tries=1)[3] <= 2


def test_lbfgs_finds_a_minimum():
    """Minimise a quadratic function, with fixed steps and with a strong Wolfe line search."""
    matrix = np.diag([1.0, 3.0, 10.0]) + 0.5
    a, b = wg.tensor(matrix), wg.tensor(np.array([1.0, -2.0, 0.5]))
    for search in (None, "strong_wolfe"):
        param = nn.Parameter(wg.zeros(3, dtype=wg.float64))
        optimizer = optim.LBFGS([param], lr=0.5 if search is None else 1, max_iter=60, line_search_fn=search)
        calls = []

        def closure(optimizer=optimizer, param=param, calls=calls):
            optimizer.zero_grad()
            loss = 0.5 * (param * (a * param).sum(1)).sum() - (b * param).sum()
            loss.backward()
            calls.append(loss.item())
            return loss

        assert optimizer.step(closure).item() == calls[0] == 0
        np.testing.assert_allclose(param.detach().numpy(), np.linalg.solve(matrix, b.numpy()), atol=1e-4)
        assert optimizer.state[param]["func_evals"] == len(calls) <= 75
    restored = optim.LBFGS([nn.Parameter(wg.zeros(3, dtype=wg.float64))])
    restored.load_state_dict(optimizer.state_dict())
    assert len(restored.state[restored._params[0]]["old_dirs"]) == len(optimizer.state[param]["old_dirs"]) > 1
    with pytest.raises(ValueError, match="one parameter group"):
        optim.LBFGS([{"params": [param]}, {"params": [nn.Parameter(wg.ones(1))]}])
    optimizer.param_groups[0]["line_search_fn"] = "armijo"
    with pytest.raises(RuntimeError, match="strong_wolfe"):
        optimizer.step(closure)


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
def test_training_continues_from_saved_state(kind):
    options = {"lr": 0.02} | ({"momentum": 0.9} if kind is not optim.Adam else {})
    params = [nn.Parameter(wg.tensor(START)), nn.Parameter(wg.tensor(-START))]
    optimizer = kind(params, **options)
    steps(optimizer, params, 3)
    copies = [nn.Parameter(p.detach().clone()) for p in params]
    restored = kind(copies, lr=99.0)
    saved = copy.deepcopy(optimizer.state_dict())
    assert saved["param_groups"][0]["params"] == [0, 1]
    restored.load_state_dict(saved)
    steps(optimizer, params, 2)
    steps(restored, copies, 2)
    for expected, actual in zip(params, copies, strict=True):
        assert (expected.detach().numpy() == actual.detach().numpy()).all()


def test_the_layout_of_saved_state():
    """Step counts are 0-d float32 tensors, as in PyTorch. Loading accepts numbers, arrays and tensors."""
    param = nn.Parameter(wg.tensor(START))
    optimizer = optim.NAdam([("weight", param)])
    steps(optimizer, [param], 2)
    saved = optimizer.state_dict()
    entry = saved["state"][0]
    assert list(entry) == ["step", "exp_avg", "exp_avg_sq", "mu_product"]
    assert (entry["step"].dtype, entry["step"].shape, entry["step"].item()) == (wg.float32, (), 2)
    assert entry["exp_avg"] is optimizer.state[param]["exp_avg"]
    assert saved["param_groups"][0]["param_names"] == ["weight"]
    arrays = {**saved, "state": {0: {k: v.numpy() for k, v in entry.items()}}}
    numbers = {**saved, "state": {0: {**entry, "step": 2, "mu_product": entry["mu_product"].item()}}}
    for state_dict in (arrays, numbers, pickle.loads(pickle.dumps(saved))):
        param_copy = nn.Parameter(param.detach().double())
        restored = optim.NAdam([("w", param_copy)])
        restored.load_state_dict(state_dict)
        state = restored.state[param_copy]
        assert (state["step"], state["mu_product"]) == (2, optimizer.state[param]["mu_product"])
        assert state["exp_avg"].dtype is wg.float64  # the parameter's dtype
        assert restored.param_groups[0]["param_names"] == ["weight"]
    clone = copy.deepcopy(optimizer)
    (clone_param,) = clone.param_groups[0]["params"]
    clone_param.grad = wg.ones(37, dtype=wg.float64)
    clone.step()
    assert clone.state[clone_param]["step"] == 3
    assert optimizer.state[param]["step"] == 2


def test_hooks():
    param = nn.Parameter(wg.ones(2))
    optimizer, calls = optim.SGD([param], lr=1.0), []
    param.grad = wg.ones(2)
    handles = [
        optimizer.register_step_pre_hook(lambda o, a, k: calls.append(("pre", o is optimizer, a, k))),
        optimizer.register_step_post_hook(lambda o, a, k: calls.append(("post", param[0].item()))),
        register_optimizer_step_pre_hook(lambda o, a, k: calls.append("every")),
        register_optimizer_step_post_hook(lambda o, a, k: calls.append("every after")),
        optimizer.register_state_dict_pre_hook(lambda o: calls.append("saving")),
        optimizer.register_state_dict_post_hook(lambda o, d: {**d, "more": 1}),
        optimizer.register_load_state_dict_pre_hook(lambda o, d: calls.append(d.pop("more"))),
        optimizer.register_load_state_dict_post_hook(lambda o: calls.append("loaded")),
    ]
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["every", ("pre", True, (), {}), ("post", 0.0), "every after", "saving", 1, "loaded"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(calls) == 7
    optimizer.register_step_pre_hook(lambda o, a, k: ((lambda: 5.0,), k))
    assert optimizer.step() == 5.0

    class Twice(optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            return super().step(closure)

    twice = Twice([param], lr=1.0)
    twice.register_step_post_hook(lambda *_: calls.append("once"))
    twice.step()
    assert calls[7:] == ["once"]


def test_pytorchs_options():
    """Accept PyTorch's implementation switches, refuse what PyTorch refuses, and take a tensor as lr."""
    param = nn.Parameter(wg.ones(1))
    param.grad = wg.ones(1)
    rate = wg.tensor(0.25)
    optimizer = optim.SGD([param], lr=rate, foreach=True)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    schedule.step()
    assert (optimizer.param_groups[0]["lr"] is rate, rate.item(), param.item()) == (True, 0.125, 0.75)
    optim.AdamW([param], fused=True, capturable=True).step()
    assert repr(optim.Adadelta([param])).startswith("Adadelta (\nParameter Group 0\n    capturable: False\n")
    for kind, options, error in [
        (optim.Adam, {"fused": True, "foreach": True}, RuntimeError),
        (optim.SGD, {"differentiable": True}, NotImplementedError),
        (optim.Adam, {"betas": (1.0, 0.9)}, ValueError), (optim.Adam, {"betas": (0, 0.9)}, ValueError),
        (optim.RAdam, {"eps": -1}, ValueError), (optim.NAdam, {"momentum_decay": -1}, ValueError),
        (optim.Rprop, {"etas": (1.2, 0.5)}, ValueError), (optim.Adadelta, {"rho": 2}, ValueError),
        (optim.ASGD, {"lr": wg.ones(2)}, ValueError), (optim.Adagrad, {"lr_decay": math.nan}, ValueError),
        (optim.Adafactor, {"d": 0.5}, ValueError), (optim.Adafactor, {"beta2_decay": 0.1}, ValueError),
        (optim.Adafactor, {"eps": (-1.0, 1e-3)}, ValueError), (optim.Adafactor, {"lr": -1}, ValueError),
    ]:  # fmt: skip
        with pytest.raises(error):
            kind([param], **options)


def adafactor_of_matrix(p, g, t, s, lr, beta2_decay, eps, d, weight_decay):
    """Return a matrix after a step of Adafactor with the gradient `g`; `s` is the state."""
    rows, columns = (g * g).mean(-1, keepdims=True), (g * g).mean(-2, keepdims=True)
    s["r"] = s.get("r", 0) + t**beta2_decay * (rows - s.get("r", 0))
    s["c"] = s.get("c", 0) + t**beta2_decay * (columns - s.get("c", 0))
    variance = s["r"] @ s["c"] / np.maximum(s["r"].mean(-2, keepdims=True), eps[0])
    update = g / np.maximum(np.sqrt(variance), eps[0])
    size = max(eps[1], np.sqrt((p * p).mean())) * min(lr, 1 / np.sqrt(t))
    return p * (1 - lr * weight_decay) - size * update / max(1, np.sqrt((update**2).mean()) / d)


@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 4), (1, 1)])
@pytest.mark.parametrize("eps", [(1e-3, 0.5), (0.7, 1e-3)])
def test_adafactor_of_matrices(shape, eps):
    rng = np.random.default_rng(4)
    expected, state = rng.standard_normal(shape), {}
    param = nn.Parameter(wg.tensor(expected))
    optimizer = optim.Adafactor([param], lr=0.4, beta2_decay=-0.6, eps=eps, d=1.2, weight_decay=0.1)
    for t in range(1, 5):
        g = rng.standard_normal(shape)
        param.grad = wg.tensor(g)
        optimizer.step()
        expected = adafactor_of_matrix(expected, g, t, state, 0.4, -0.6, eps, 1.2, 0.1)
        np.testing.assert_allclose(param.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
    assert optimizer.state[param].keys() == {"step", "row_var", "col_var"}
    np.testing.assert_allclose(optimizer.state[param]["row_var"].numpy(), state["r"], rtol=1e-12)


def test_adafactor_of_vectors():
    param = nn.Parameter(wg.tensor([3.0, 4.0], dtype=wg.float64))
    param.grad = wg.tensor([2.0, -0.5], dtype=wg.float64)
    optimizer = optim.Adafactor([param], lr=0.1, maximize=True)
    optimizer.step()  # the update has the gradient's signs: its mean square is the gradient's square
    size = 0.1 * math.sqrt(12.5)
    np.testing.assert_allclose(param.detach().numpy(), [3 + size, 4 - size], rtol=1e-12)
    assert optimizer.state[param].keys() == {"step", "variance"}


@pytest.mark.parametrize("shape", [(8, 3), (3, 8), (4, 4)])
@pytest.mark.parametrize("adjust_lr_fn", [None, "match_rms_adamw"])
def test_muon_orthogonalizes_the_momentum(shape, adjust_lr_fn):
    """With coefficients that converge, the update is the orthogonal factor of the polar decomposition."""
    rng = np.random.default_rng(6)
    start, grad = rng.standard_normal(shape), rng.standard_normal(shape)
    param = nn.Parameter(wg.tensor(start))
    optimizer = optim.Muon([param], lr=0.5, weight_decay=0.2, momentum=0.9, ns_coefficients=(1.875, -1.25, 0.375),
                           ns_steps=15, adjust_lr_fn=adjust_lr_fn)  # fmt: skip
    param.grad = wg.tensor(grad)
    optimizer.step()
    left, _, right = np.linalg.svd(grad, full_matrices=False)
    ratio = 0.2 * math.sqrt(max(shape)) if adjust_lr_fn else math.sqrt(max(1, shape[0] / shape[1]))
    expected = start * (1 - 0.5 * 0.2) - 0.5 * ratio * left @ right
    np.testing.assert_allclose(param.detach().numpy(), expected, atol=0.02)
    np.testing.assert_allclose(optimizer.state[param]["momentum_buffer"].numpy(), 0.1 * grad, rtol=1e-12)


def test_muon_refuses_what_it_cannot_update():
    matrix = nn.Parameter(wg.ones(2, 2))
    matrix.grad = wg.ones(2, 2)
    with pytest.raises(ValueError, match="matrices"):
        optim.Muon([nn.Parameter(wg.ones(3))])
    with pytest.raises(ValueError, match="adjust_lr_fn"):
        optim.Muon([matrix], adjust_lr_fn="other")
    with pytest.raises(ValueError, match="below 100"):
        optim.Muon([matrix], ns_steps=100).step()
    with pytest.raises(ValueError, match="three numbers"):
        optim.Muon([matrix], ns_coefficients=(1, 2)).step()


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
