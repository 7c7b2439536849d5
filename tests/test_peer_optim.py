"""Optimizers and schedulers beside PyTorch's, where it is installed: values, state_dicts, defaults."""

import copy
import inspect

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn, optim

torch = pytest.importorskip("torch")

STEPS = 100
SHAPES = [(7,), (3, 5), (), (4, 1, 6)]
OPTIMIZERS = [
    ("SGD", {"lr": 0.01}), ("SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {}), ("Adam", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True, "maximize": True}),
    ("Adam", {"weight_decay": 0.1, "decoupled_weight_decay": True}), ("AdamW", {}), ("AdamW", {"amsgrad": True}),
    ("Adamax", {}), ("Adamax", {"weight_decay": 0.1, "eps": 1e-4, "maximize": True}),
    ("NAdam", {}), ("NAdam", {"weight_decay": 0.1, "momentum_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {}), ("RAdam", {"weight_decay": 0.1, "betas": (0.8, 0.9)}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RMSprop", {}), ("RMSprop", {"momentum": 0.5, "weight_decay": 0.1}), ("RMSprop", {"centered": True}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "maximize": True}),
    ("Rprop", {}), ("Rprop", {"etas": (0.3, 1.5), "step_sizes": (1e-4, 0.1), "maximize": True}),
    ("Adagrad", {}), ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adadelta", {}), ("Adadelta", {"rho": 0.7, "weight_decay": 0.1, "maximize": True}),
    ("ASGD", {}), ("ASGD", {"t0": 20, "lambd": 0.01, "weight_decay": 0.1, "lr": 0.1}),
]  # fmt: skip


def _starts(seed=0):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(s), np.float32) for s in SHAPES]


def _gradients(step):
    rng = np.random.default_rng(1000 + step)
    return [np.asarray(rng.standard_normal(s) + 0.2, np.float32) for s in SHAPES]


def _ours(values):
    return [nn.Parameter(wg.tensor(v.copy())) for v in values]


def _theirs(values):
    return [torch.nn.Parameter(torch.from_numpy(v.copy())) for v in values]


def _run(ours, theirs, params, peers, steps):
    for step in steps:
        for k, (p, q, g) in enumerate(zip(params, peers, _gradients(step), strict=True)):
            if k == 1 and step in (0, 3):  # a parameter that is a few steps younger
                p.grad = q.grad = None
                continue
            p.grad, q.grad = wg.tensor(g), torch.from_numpy(g)
        ours.step()
        theirs.step()


def _compare(params, peers, tolerance=2e-5):
    for p, q in zip(params, peers, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_hundred_steps_and_the_state(name, options):
    params, peers = _ours(_starts()), _theirs(_starts())
    ours = getattr(optim, name)([{"params": params[:3]}, {"params": params[3:], "lr": 0.02}], **options)
    theirs = getattr(torch.optim, name)([{"params": peers[:3]}, {"params": peers[3:], "lr": 0.02}], **options)
    assert repr(ours) == repr(theirs)
    _run(ours, theirs, params, peers, range(STEPS))
    _compare(params, peers)
    mine, other = ours.state_dict(), theirs.state_dict()
    assert mine["param_groups"] == other["param_groups"]
    assert mine["state"].keys() == other["state"].keys()
    for key, entry in other["state"].items():
        assert mine["state"][key].keys() == entry.keys()
        for part, value in entry.items():
            found = mine["state"][key][part]
            assert (tuple(found.shape), found.numpy().dtype) == (tuple(value.shape), value.numpy().dtype), part
            np.testing.assert_allclose(found.numpy(), value.numpy(), rtol=3e-5, atol=1e-5, err_msg=part)
    # Theirs, as arrays, goes on here.
    arrays = copy.deepcopy(other)
    arrays["state"] = {k: {n: v.numpy() for n, v in e.items()} for k, e in arrays["state"].items()}
    again = _ours([q.detach().numpy() for q in peers])
    loaded = getattr(optim, name)([{"params": again[:3]}, {"params": again[3:]}])
    loaded.load_state_dict(arrays)
    _run(loaded, theirs, again, peers, range(STEPS, STEPS + 3))
    _compare(again, peers)


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs(line_search):
    start = np.linspace(-1.5, 1.5, 6).astype(np.float64)
    p, q = nn.Parameter(wg.tensor(start)), torch.nn.Parameter(torch.from_numpy(start.copy()))
    options = {"lr": 0.5, "max_iter": 6, "history_size": 4, "line_search_fn": line_search}
    ours, theirs = optim.LBFGS([p], **options), torch.optim.LBFGS([q], **options)

    def loss_of(x):  # Rosenbrock's
        return (20 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    def closing(optimizer, x):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(x)
            loss.backward()
            return loss

        return closure

    for _ in range(6):
        a, b = ours.step(closing(ours, p)), theirs.step(closing(theirs, q))
        np.testing.assert_allclose(a.item(), b.item(), rtol=1e-7)
    np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-6)
    mine, other = ours.state_dict()["state"][0], theirs.state_dict()["state"][0]
    assert mine.keys() == other.keys()
    assert (mine["n_iter"], mine["func_evals"]) == (other["n_iter"], other["func_evals"])
    assert len(mine["old_dirs"]) == len(other["old_dirs"])


@pytest.mark.parametrize("name", ["ASGD", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "NAdam",
                                  "RAdam", "RMSprop", "Rprop"])  # fmt: skip
def test_signatures(name):
    def shown(kind):
        found = inspect.signature(kind.__init__).parameters.values()
        return [(p.name, p.kind, p.default) for p in found]

    assert shown(getattr(optim, name)) == shown(getattr(torch.optim, name))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_follow_the_fused_update(dtype):
    """Calculated in float32 and rounded once, as PyTorch's fused kernels do."""
    start, gradient = _starts()[1], [_gradients(k)[1] for k in range(5)]
    p = nn.Parameter(wg.tensor(start).to(getattr(wg, dtype)))
    q = torch.nn.Parameter(torch.from_numpy(start).to(getattr(torch, dtype)))
    ours, theirs = optim.AdamW([p], lr=0.1), torch.optim.AdamW([q], lr=0.1, fused=True)
    for g in gradient:
        p.grad, q.grad = wg.tensor(g).to(p.dtype), torch.from_numpy(g).to(q.dtype)
        ours.step()
        theirs.step()
    np.testing.assert_array_equal(p.detach().float().numpy(), q.detach().float().numpy())
