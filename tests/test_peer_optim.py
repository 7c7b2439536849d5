"""Compare optimizers and schedulers with PyTorch, if installed: values, state_dicts, defaults."""

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
    ("Adafactor", {}), ("Adafactor", {"weight_decay": 0.1, "eps": (1e-4, 0.1), "d": 1.5, "maximize": True}),
    ("Adafactor", {"lr": 0.5, "beta2_decay": -0.4, "foreach": True}),
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
            if k == 1 and step in (0, 3):  # this parameter skips two steps
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
    our_state, their_state = ours.state_dict(), theirs.state_dict()
    assert our_state["param_groups"] == their_state["param_groups"]
    assert our_state["state"].keys() == their_state["state"].keys()
    for key, entry in their_state["state"].items():
        assert our_state["state"][key].keys() == entry.keys()
        for field, value in entry.items():
            actual = our_state["state"][key][field]
            assert (tuple(actual.shape), actual.numpy().dtype) == (tuple(value.shape), value.numpy().dtype), field
            np.testing.assert_allclose(actual.numpy(), value.numpy(), rtol=3e-5, atol=1e-5, err_msg=field)
    # Our optimizer continues from PyTorch's state, as tensors or as arrays.
    arrays = copy.deepcopy(their_state)
    if name != "Adam":
        arrays["state"] = {k: {n: v.numpy() for n, v in e.items()} for k, e in arrays["state"].items()}
    restored = _ours([q.detach().numpy() for q in peers])
    loaded = getattr(optim, name)([{"params": restored[:3]}, {"params": restored[3:]}])
    loaded.load_state_dict(arrays)
    _run(loaded, theirs, restored, peers, range(STEPS, STEPS + 3))
    _compare(restored, peers)


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs(line_search):
    start = np.linspace(-1.5, 1.5, 6).astype(np.float64)
    p, q = nn.Parameter(wg.tensor(start)), torch.nn.Parameter(torch.from_numpy(start.copy()))
    options = {"lr": 0.5, "max_iter": 6, "history_size": 4, "line_search_fn": line_search}
    ours, theirs = optim.LBFGS([p], **options), torch.optim.LBFGS([q], **options)

    def loss_of(x):  # Rosenbrock's function
        return (20 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    def make_closure(optimizer, x):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(x)
            loss.backward()
            return loss

        return closure

    for _ in range(6):
        a, b = ours.step(make_closure(ours, p)), theirs.step(make_closure(theirs, q))
        np.testing.assert_allclose(a.item(), b.item(), rtol=1e-7)
    np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-6)
    our_state, their_state = ours.state_dict()["state"][0], theirs.state_dict()["state"][0]
    assert our_state.keys() == their_state.keys()
    assert (our_state["n_iter"], our_state["func_evals"]) == (their_state["n_iter"], their_state["func_evals"])
    assert len(our_state["old_dirs"]) == len(their_state["old_dirs"])


MUON_SHAPES = [(6, 4), (4, 9), (5, 5), (1, 3)]


@pytest.mark.parametrize("options", [
    {}, {"nesterov": False, "weight_decay": 0.3}, {"adjust_lr_fn": "match_rms_adamw", "momentum": 0.5, "ns_steps": 3},
    {"lr": 0.01, "ns_coefficients": (1.5, -0.5, 0.0), "ns_steps": 9, "eps": 1e-3, "adjust_lr_fn": "original"},
], ids=str)  # fmt: skip
def test_muon(options):
    """Parameters follow PyTorch's up to the rounding of bfloat16 in an update, and states load both ways."""
    rng = np.random.default_rng(5)
    starts = [rng.standard_normal(s).astype(np.float32) for s in MUON_SHAPES]
    params, peers = _ours(starts), _theirs(starts)
    ours = optim.Muon([{"params": params[:3]}, {"params": params[3:], "lr": 0.02}], **options)
    theirs = torch.optim.Muon([{"params": peers[:3]}, {"params": peers[3:], "lr": 0.02}], **options)
    assert repr(ours) == repr(theirs)
    lr = max(group["lr"] for group in ours.param_groups)
    for step in range(12):
        if step == 6:  # each continues from the other's state
            our_state, their_state = copy.deepcopy(ours.state_dict()), copy.deepcopy(theirs.state_dict())
            assert our_state["param_groups"] == their_state["param_groups"]
            assert our_state["state"].keys() == their_state["state"].keys()
            ours.load_state_dict(their_state)
            theirs.load_state_dict({**our_state, "state": {
                k: {n: torch.from_numpy(v.numpy()) for n, v in e.items()} for k, e in our_state["state"].items()
            }})  # fmt: skip
        before = [(p.detach().numpy().copy(), q.detach().numpy().copy()) for p, q in zip(params, peers, strict=True)]
        for p, q in zip(params, peers, strict=True):
            g = rng.standard_normal(p.shape).astype(np.float32)
            p.grad, q.grad = wg.tensor(g), torch.from_numpy(g)
        ours.step()
        theirs.step()
        for p, q, (p_before, q_before) in zip(params, peers, before, strict=True):
            np.testing.assert_allclose(p.detach().numpy() - p_before, q.detach().numpy() - q_before, atol=0.02 * lr)
    for entry, peer in zip(ours.state_dict()["state"].values(), theirs.state_dict()["state"].values(), strict=True):
        assert entry.keys() == peer.keys() == {"momentum_buffer"}
        np.testing.assert_allclose(entry["momentum_buffer"].numpy(), peer["momentum_buffer"].numpy(), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_adafactor_in_half_types(dtype):
    """Ten steps stay within a few roundings of PyTorch's, which rounds every intermediate result."""
    p = nn.Parameter(wg.tensor(_starts()[1]).to(getattr(wg, dtype)))
    q = torch.nn.Parameter(torch.from_numpy(_starts()[1]).to(getattr(torch, dtype)))
    ours, theirs = optim.Adafactor([p], lr=0.1), torch.optim.Adafactor([q], lr=0.1)
    for k in range(10):
        p.grad, q.grad = wg.tensor(_gradients(k)[1]).to(p.dtype), torch.from_numpy(_gradients(k)[1]).to(q.dtype)
        ours.step()
        theirs.step()
    tolerance = 5 * torch.finfo(q.dtype).eps
    np.testing.assert_allclose(p.detach().float().numpy(), q.detach().float().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["ASGD", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS",
                                  "Muon", "NAdam", "RAdam", "RMSprop", "Rprop"])  # fmt: skip
def test_signatures(name):
    def signature_of(kind):
        parameters = inspect.signature(kind.__init__).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    assert signature_of(getattr(optim, name)) == signature_of(getattr(torch.optim, name))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_follow_the_fused_update(dtype):
    """The update is computed in float32 and rounded once, as in PyTorch's fused kernels."""
    start, gradient = _starts()[1], [_gradients(k)[1] for k in range(5)]
    p = nn.Parameter(wg.tensor(start).to(getattr(wg, dtype)))
    q = torch.nn.Parameter(torch.from_numpy(start).to(getattr(torch, dtype)))
    ours, theirs = optim.AdamW([p], lr=0.1), torch.optim.AdamW([q], lr=0.1, fused=True)
    for g in gradient:
        p.grad, q.grad = wg.tensor(g).to(p.dtype), torch.from_numpy(g).to(q.dtype)
        ours.step()
        theirs.step()
    np.testing.assert_array_equal(p.detach().float().numpy(), q.detach().float().numpy())


# Schedules


class Falling:
    """A callable whose attributes are saved."""

    def __init__(self, rate):
        self.rate = rate

    def __call__(self, epoch):
        return self.rate**epoch


SCHEDULES = {
    "lambda": lambda s, o: s.LambdaLR(o, [lambda e: 0.9**e, Falling(0.95)]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.97 + 0.02 * (e % 2)),
    "step": lambda s, o: s.StepLR(o, 7, 0.7),
    "multistep": lambda s, o: s.MultiStepLR(o, [30, 8, 8, 60], 0.5),
    "constant": lambda s, o: s.ConstantLR(o, 0.3, 11),
    "linear": lambda s, o: s.LinearLR(o, 0.2, 0.9, 23),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.96),
    "polynomial": lambda s, o: s.PolynomialLR(o, 60, 1.7),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 20, 0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 7, 2, 0.01),
    "restarts evenly": lambda s, o: s.CosineAnnealingWarmRestarts(o, 9),
    "cyclic": lambda s, o: s.CyclicLR(o, [0.01, 0.02], 0.5, 9, 14, "triangular2"),
    "cyclic range": lambda s, o: s.CyclicLR(o, 0.01, [0.5, 0.7], 9, mode="exp_range", gamma=0.99),
    "cyclic own": lambda s, o: s.CyclicLR(o, 0.01, 0.5, 9, scale_fn=Falling(0.9), scale_mode="iterations"),
    "one cycle": lambda s, o: s.OneCycleLR(o, [0.5, 0.7], total_steps=110),
    "one cycle, three phases": lambda s, o: s.OneCycleLR(
        o, 0.5, epochs=11, steps_per_epoch=10, three_phase=True, anneal_strategy="linear"
    ),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=10), s.CosineAnnealingLR(o, 40), s.ExponentialLR(o, 0.9)], [10, 50]
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.95), s.StepLR(o, 9)]),
}


def _pair(kind, momentum=0.9):
    ours = [nn.Parameter(wg.ones(1)) for _ in range(2)]
    theirs = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    options = {"lr": 0.4} if kind == "AdamW" else {"lr": 0.4, "momentum": momentum}
    our_optimizer = getattr(optim, kind)([{"params": ours[:1]}, {"params": ours[1:], "lr": 0.8}], **options)
    return our_optimizer, getattr(torch.optim, kind)(
        [{"params": theirs[:1]}, {"params": theirs[1:], "lr": 0.8}], **options
    )


def _options(optimizer):
    names = ("lr", "momentum", "betas", "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum")
    return [v for g in optimizer.param_groups for n in names if n in g for v in np.ravel(g[n])]


def _numbers(saved):
    """Return a schedule's state without its functions."""
    if isinstance(saved, dict):
        return {k: _numbers(v) for k, v in saved.items() if not callable(v)}
    return [_numbers(v) for v in saved] if isinstance(saved, list) else saved


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.filterwarnings("ignore")
def test_schedules(name, kind):
    our_optimizer, their_optimizer = _pair(kind)
    ours, theirs = (
        SCHEDULES[name](optim.lr_scheduler, our_optimizer),
        SCHEDULES[name](torch.optim.lr_scheduler, their_optimizer),
    )
    for epoch in range(100):
        np.testing.assert_allclose(
            _options(our_optimizer), _options(their_optimizer), rtol=1e-12, atol=1e-15, err_msg=f"epoch {epoch}"
        )
        np.testing.assert_allclose(ours.get_last_lr(), theirs.get_last_lr(), rtol=1e-12)
        if epoch == 50:  # both continue in new schedulers, from PyTorch's state
            ours_saved, theirs_saved = copy.deepcopy(ours.state_dict()), copy.deepcopy(theirs.state_dict())
            assert _numbers(ours_saved).keys() == _numbers(theirs_saved).keys()
            rates = copy.deepcopy(their_optimizer.state_dict()["param_groups"])
            our_optimizer, their_optimizer = _pair(kind)
            ours, theirs = (
                SCHEDULES[name](optim.lr_scheduler, our_optimizer),
                SCHEDULES[name](torch.optim.lr_scheduler, their_optimizer),
            )
            ours.load_state_dict(theirs_saved)
            theirs.load_state_dict(theirs_saved)
            our_optimizer.load_state_dict({"state": {}, "param_groups": rates})
            their_optimizer.load_state_dict({"state": {}, "param_groups": copy.deepcopy(rates)})
        ours.step()
        theirs.step()


@pytest.mark.parametrize("options", [{}, {"mode": "max", "threshold": 0.1}, {"threshold_mode": "abs", "cooldown": 2},
                                     {"mode": "max", "threshold_mode": "abs", "min_lr": [0.1, 0.3]}])  # fmt: skip
def test_plateau(options):
    our_optimizer, their_optimizer = _pair("SGD")
    options = {"factor": 0.5, "patience": 2, **options}
    ours = optim.lr_scheduler.ReduceLROnPlateau(our_optimizer, **options)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(their_optimizer, **options)
    for value in np.round(np.random.default_rng(0).standard_normal(60).cumsum() / 3, 1):
        ours.step(value)
        theirs.step(value)
        assert _options(our_optimizer) == _options(their_optimizer)
        assert ours.state_dict() == theirs.state_dict()


@pytest.mark.parametrize("name", ["step", "exponential", "linear", "cosine", "polynomial", "constant", "multistep"])
@pytest.mark.filterwarnings("ignore")
def test_step_with_an_epoch_uses_the_closed_form(name):
    our_optimizer, their_optimizer = _pair("SGD")
    ours, theirs = (
        SCHEDULES[name](optim.lr_scheduler, our_optimizer),
        SCHEDULES[name](torch.optim.lr_scheduler, their_optimizer),
    )
    for epoch in (3, 40, 12):
        ours.step(epoch)
        theirs.step(epoch)
        np.testing.assert_allclose(_options(our_optimizer), _options(their_optimizer), rtol=1e-12)


@pytest.mark.parametrize("name", optim.lr_scheduler.__all__)
def test_signatures_of_schedules(name):
    def signature_of(module):
        parameters = inspect.signature(getattr(module, name).__init__).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    assert signature_of(optim.lr_scheduler) == signature_of(torch.optim.lr_scheduler)
