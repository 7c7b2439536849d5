"""Compare nn.utils, nn.init, func and weight averages with PyTorch: the same statements must write the same log.

Skipped where torch is not installed.
"""

import copy
import importlib
import pickle

import numpy as np
import pytest

import weftgrad as wg

torch = pytest.importorskip("torch")


def attempt(log, call, *error_types):
    """Log whether a call raises one of the expected errors."""
    try:
        call()
        log.append("done")
    except Exception as error:
        log.append("refused" if isinstance(error, error_types) else repr(error))


def rounded(t):
    """Return the values of a tensor as lists, rounded to 5 decimals."""
    return np.round(np.asarray(t.detach().cpu().numpy(), dtype=np.float64), 5).tolist()


def utils(lib):
    """Log gradient norms, parametrized weights, fused layers and functional calls."""
    nn = lib.nn
    U = nn.utils
    log = []
    func, P, PZ = (
        importlib.import_module(f"{lib.__name__}.{name}")
        for name in ("func", "nn.utils.parametrize", "nn.utils.parametrizations")
    )

    def T(a):
        return lib.tensor(np.asarray(a, np.float32))

    rng = np.random.default_rng(0)

    def arr(*s):
        return rng.standard_normal(s).astype(np.float32)

    for nt in (2.0, 1.0, float("inf"), 3.0, -float("inf"), 0.0, 0.5):
        ps = [nn.Parameter(T(arr(2, 3))), nn.Parameter(T(arr(4))), nn.Parameter(T(arr(1)))]
        for p in ps[:2]:
            p.grad = T(arr(*p.shape) * 3)
        log.append((nt, rounded(U.clip_grad_norm_(ps, 1.5, nt))))
        log.append([rounded(p.grad) for p in ps[:2]])
    log.append(rounded(U.clip_grad_norm_([], 1.0)))
    log.append(rounded(U.clip_grad_norm_(ps[0], 100.0)))
    log.append(rounded(U.get_total_norm([p.grad for p in ps[:2]])))
    U.clip_grads_with_norm_(ps, 0.5, T(3.0))
    log.append(rounded(ps[0].grad))
    U.clip_grad_value_(ps, 0.1)
    log.append(rounded(ps[1].grad))
    U.clip_grad_value_(ps[0], 0.05)
    log.append(rounded(ps[0].grad))
    ps[0].grad = T(arr(2, 3) * np.inf)
    attempt(log, lambda: U.clip_grad_norm_(ps, 1.0, error_if_nonfinite=True), RuntimeError)
    ps[0].grad = T(np.full((2, 3), np.nan))
    U.clip_grad_norm_(ps, 1.0)
    log.append(rounded(ps[1].grad)[0] != rounded(ps[1].grad)[0])
    v = U.parameters_to_vector(ps)
    log.append(rounded(v))
    v2 = T(arr(11))
    U.vector_to_parameters(v2, ps)
    log.append([rounded(p) for p in ps])
    v2.mul_(2)
    log.append(rounded(ps[1]))
    attempt(log, lambda: U.vector_to_parameters(3, ps), TypeError)

    def lin(*s, cls=nn.Linear, **k):
        m = cls(*s, **k)
        with lib.no_grad():
            for p in m.parameters():
                p.copy_(T(arr(*p.shape)))
        return m

    for dim in (0, 1, None, -1):
        m = U.weight_norm(lin(3, 2), dim=dim)
        log.append([k for k, _ in m.named_parameters()])
        log.append([rounded(p) for _, p in sorted(m.named_parameters())])
        x = T(arr(4, 3))
        y = m(x)
        y.pow(2).sum().backward()
        log.append(rounded(y))
        log.append([rounded(p.grad) for _, p in sorted(m.named_parameters())])
        log.append(type(m.weight).__name__)
        attempt(log, lambda m=m: U.weight_norm(m), RuntimeError)
        U.remove_weight_norm(m)
        log.append([k for k, _ in m.named_parameters()])
        log.append(rounded(m(x)))
        attempt(log, lambda m=m: U.remove_weight_norm(m), ValueError)
        m = PZ.weight_norm(lin(3, 2), dim=dim) if dim is not None else PZ.weight_norm(lin(3, 2), dim=None)
        log.append(sorted(m.state_dict()))
        y = m(x)
        y.pow(2).sum().backward()
        log.append(rounded(y))
        log.append([rounded(p.grad) for _, p in sorted(m.named_parameters())])
        log.append([list(p.shape) for _, p in sorted(m.named_parameters())])
        log.append(repr(m))
        P.remove_parametrizations(m, "weight")
        log.append(repr(m))
        log.append(sorted((k for k, _ in m.named_parameters())))
        log.append(rounded(m(x)))
    m = PZ.weight_norm(lin(3, 2))
    old = U.weight_norm(lin(3, 2))
    m.load_state_dict(old.state_dict())
    log.append(rounded(m(x)))
    log.append(rounded(old(x)))
    for kind in ("old", "new"):
        for cls, args, xs in (
            (nn.Linear, (3, 2), (4, 3)),
            (nn.Conv2d, (2, 3, 2), (1, 2, 4, 4)),
            (nn.ConvTranspose1d, (2, 3, 2), (1, 2, 4)),
        ):
            m = lin(*args, cls=cls)
            m = (U.spectral_norm if kind == "old" else PZ.spectral_norm)(m, n_power_iterations=2)
            for _, b in m.named_buffers():
                a = arr(*b.shape)
                b.data.copy_(T(a / np.linalg.norm(a)))
            log.append(sorted(m.state_dict()))
            x = T(arr(*xs))
            y = m(x)
            y = m(x)
            y.pow(2).sum().backward()
            log.append(rounded(y))
            log.append([rounded(p.grad) for _, p in sorted(m.named_parameters())])
            log.append([rounded(b) for _, b in sorted(m.named_buffers())])
            m.eval()
            log.append(rounded(m(x)))
            log.append(rounded(m(x)))
            if kind == "old":
                sd = m.state_dict()
                m2 = U.spectral_norm(lin(*args, cls=cls), n_power_iterations=2)
                m2.load_state_dict(sd)
                m2.eval()
                log.append(rounded(m2(x)))
                log.append(dict(sd._metadata.items()))
                U.remove_spectral_norm(m)
                attempt(log, lambda m=m: U.remove_spectral_norm(m), ValueError)
            else:
                P.remove_parametrizations(m, "weight")
            log.append([k for k, _ in m.named_parameters()])
            log.append(rounded(m(x)))
            log.append(len(m._forward_pre_hooks))
    attempt(log, lambda: PZ.spectral_norm(nn.Linear(2, 2), dim=5), IndexError)
    attempt(log, lambda: PZ.spectral_norm(nn.Linear(2, 2), n_power_iterations=0), ValueError)
    attempt(log, lambda: PZ.spectral_norm(nn.Linear(2, 2), name="no"), ValueError)
    b = PZ.spectral_norm(lin(2, 3), name="bias")
    log.append(rounded(b.bias))
    for n, k in ((3, 3), (4, 2), (2, 4)):
        for mp in ("matrix_exp", "cayley", "householder"):
            for triv in (True, False):
                m = lin(k, n)
                orth = (
                    PZ.orthogonal(m, orthogonal_map=mp, use_trivialization=triv)
                    if triv or mp == "householder"
                    else None
                )
                if orth is None:
                    m = lin(k, n)
                    attempt(log, lambda m=m, mp=mp: PZ.orthogonal(m, orthogonal_map=mp, use_trivialization=False))
                w = m.weight
                q = np.asarray(rounded(w))
                q = q if n >= k else q.T
                log.append(float(np.abs(q.T @ q - np.eye(min(n, k))).max()) < 0.0001)
                if not triv or n == k:
                    with lib.no_grad():
                        m.parametrizations.weight.original.copy_(
                            T(arr(n, k))
                            if mp != "householder"
                            else T(np.tril(arr(n, k), -1) + np.eye(n, k))
                            if n >= k
                            else T((np.tril(arr(k, n), -1) + np.eye(k, n)).T)
                        )
                    log.append((n, k, mp, triv))
                    log.append(rounded(m.weight))
                    (m.weight * T(arr(n, k))).sum().backward()
                    log.append(rounded(m.parametrizations.weight.original.grad))
    m = lin(3, 3)
    PZ.orthogonal(m)
    q = np.linalg.qr(arr(3, 3))[0]
    m.weight = T(q)
    log.append(np.allclose(rounded(m.weight), q, atol=0.0001))
    m = lin(2, 4)
    PZ.orthogonal(m, use_trivialization=False)
    q = np.linalg.qr(arr(4, 2))[0]
    m.weight = T(q)
    log.append(np.allclose(rounded(m.weight), q, atol=0.0001))
    attempt(log, lambda: PZ.orthogonal(nn.Linear(2, 2), orthogonal_map="x"), ValueError)
    attempt(log, lambda: PZ.orthogonal(nn.Linear(2, 2), name="bias"), ValueError)

    class Sym(nn.Module):
        def forward(s, X):
            return X.triu() + X.triu(1).transpose(-1, -2)

        def right_inverse(s, A):
            return A.triu()

    class Dbl(nn.Module):
        def forward(s, X):
            return X * 2

    class Bad(nn.Module):
        def forward(s, X):
            return X[0]

    class Cnt(nn.Module):
        n = 0

        def forward(s, X):
            Cnt.n += 1
            return X + 0

    m = lin(3, 3)
    w = m.weight
    P.register_parametrization(m, "weight", Sym())
    log.append(rounded(m.weight))
    log.append(m.parametrizations.weight.original is w)
    log.append(type(m).__name__)
    log.append(isinstance(m, nn.Linear))
    log.append(P.type_before_parametrizations(m).__name__)
    P.register_parametrization(m, "weight", Dbl())
    log.append(rounded(m.weight))
    log.append(repr(m))
    log.append([k for k, _ in m.named_parameters()])
    log.append(P.is_parametrized(m, "bias"))
    log.append(P.is_parametrized(m))
    attempt(log, lambda: setattr(m, "weight", T(arr(3, 3))), RuntimeError)
    attempt(log, lambda: P.register_parametrization(m, "weight", Bad()), ValueError)
    attempt(log, lambda: P.register_parametrization(m, "nope", Sym()), ValueError)
    attempt(log, lambda: pickle.dumps(m), RuntimeError)
    attempt(log, lambda: setattr(m, "weight", nn.Parameter(T(arr(3, 3)))), KeyError)
    c = copy.deepcopy(m)
    log.append(rounded(c.weight) == rounded(m.weight))
    log.append(len(m.parametrizations.weight))
    P.remove_parametrizations(m, "weight", leave_parametrized=False)
    log.append(m.weight is w)
    log.append(type(m).__name__)
    attempt(log, lambda: P.remove_parametrizations(m, "weight"), ValueError)
    m = lin(3, 3)
    P.register_parametrization(m, "weight", Sym())
    A = arr(3, 3)
    A = A + A.T
    m.weight = T(A)
    log.append(np.allclose(rounded(m.weight), A, atol=0.0001))
    m(T(arr(1, 3))).sum().backward()
    log.append(rounded(m.parametrizations.weight.original.grad))
    P.remove_parametrizations(m, "weight")
    log.append(np.allclose(rounded(m.weight), A, atol=0.0001))
    log.append(type(m.weight).__name__)
    m = lin(3, 3)
    P.register_parametrization(m, "weight", Cnt())
    Cnt.n = 0
    with P.cached():
        m.weight
        m.weight
        m(T(arr(1, 3)))
    log.append(Cnt.n)
    m.weight
    log.append(Cnt.n)
    m.register_buffer("buf", T(arr(2)))
    P.register_parametrization(m, "buf", Dbl())
    log.append([k for k, _ in m.named_buffers()])
    log.append(rounded(m.buf))
    t = lin(3, 3)
    P.transfer_parametrizations_and_params(m, t, "weight")
    log.append(t.parametrizations.weight.original is m.parametrizations.weight.original)
    for tr in (False, True):
        conv = lin(2, 4, 3, cls=nn.ConvTranspose2d if tr else nn.Conv2d, bias=not tr)
        bn = nn.BatchNorm2d(4)
        bn.running_mean.copy_(T(arr(4)))
        bn.running_var.copy_(T(arr(4) ** 2 + 0.1))
        with lib.no_grad():
            bn.weight.copy_(T(arr(4)))
            bn.bias.copy_(T(arr(4)))
        attempt(log, lambda conv=conv, bn=bn: U.fuse_conv_bn_eval(conv, bn), AssertionError, ValueError)
        conv.eval()
        bn.eval()
        x = T(arr(1, 2, 5, 5))
        fused = U.fuse_conv_bn_eval(conv, bn, tr)
        log.append(np.allclose(rounded(fused(x)), rounded(bn(conv(x))), atol=0.001))
        log.append(rounded(fused.weight))
        log.append(rounded(fused.bias))
        log.append(fused.bias.requires_grad)
    layer = lin(3, 4).eval()
    bn = nn.BatchNorm1d(4).eval()
    bn.running_mean.copy_(T(arr(4)))
    fl = U.fuse_linear_bn_eval(layer, bn)
    log.append(rounded(fl.weight))
    log.append(rounded(fl.bias))
    s = U.skip_init(nn.Linear, 3, 4)
    log.append([list(p.shape) for p in s.parameters()])
    attempt(log, lambda: U.skip_init(nn.ReLU), RuntimeError)
    attempt(log, lambda: U.skip_init(3), RuntimeError, TypeError)

    class Tied(nn.Module):
        def __init__(s):
            super().__init__()
            s.a = lin(2, 2)
            s.b = nn.Linear(2, 2)
            s.b.weight = s.a.weight
            s.register_buffer("k", lib.ones(1))

        def forward(s, x, scale=1.0):
            s.k = s.k + 1
            return s.b(s.a(x)) * s.k * scale

    m = Tied()
    state = {k: T(arr(*v.shape)) for k, v in m.state_dict().items()}
    del state["b.weight"]
    d = dict(state)
    x = T(arr(2, 2))
    log.append(rounded(func.functional_call(m, d, (x,), {"scale": 2.0})))
    log.append(rounded(func.functional_call(m, state, x)))
    log.append(rounded(m.k))
    log.append(rounded(d["k"]) == rounded(state["k"]))
    attempt(log, lambda: func.functional_call(m, {"a.weight": x}, x, strict=True), RuntimeError)
    attempt(log, lambda: func.functional_call(m, {"zz.q": x}, x), AttributeError, RuntimeError)
    g = T(arr(2, 2)).requires_grad_()
    func.functional_call(m, {"a.weight": g}, x).sum().backward()
    log.append(rounded(g.grad))
    log.append(m.a.weight.grad is None)
    attempt(log, lambda: func.functional_call(m, {"a.weight": x, "b.weight": x + 1}, x), ValueError)
    log.append(rounded(func.functional_call(m, {"a.weight": x, "b.weight": x + 1}, x, tie_weights=False)) != 0)
    for nl in ("linear", "relu", "tanh", "selu", "leaky_relu", "sigmoid", "conv2d"):
        log.append(nn.init.calculate_gain(nl))
    log.append(nn.init.calculate_gain("leaky_relu", 0.3))
    attempt(log, lambda: nn.init.calculate_gain("zz"), ValueError)
    attempt(log, lambda: nn.init.calculate_gain("leaky_relu", True), ValueError)
    attempt(log, lambda: nn.init.xavier_uniform_(lib.ones(3)), ValueError)
    attempt(log, lambda: nn.init.eye_(lib.ones(3)), ValueError)
    attempt(log, lambda: nn.init.dirac_(lib.ones(3, 3)), ValueError)
    attempt(log, lambda: nn.init.dirac_(lib.ones(3, 3, 3), 2), ValueError)
    attempt(log, lambda: nn.init.orthogonal_(lib.ones(3)), ValueError)
    attempt(log, lambda: nn.init.sparse_(lib.ones(3), 0.1), ValueError)
    attempt(log, lambda: nn.init.kaiming_normal_(lib.ones(3, 3), mode="x"), ValueError)
    log.append(rounded(nn.init.dirac_(lib.ones(4, 2, 3), 2)))
    log.append(rounded(nn.init.dirac_(lib.ones(2, 4, 3, 3))))
    log.append(rounded(nn.init.eye_(lib.ones(2, 3))))
    log.append(nn.init._calculate_fan_in_and_fan_out(lib.ones(2, 3, 4)))
    log.append(rounded(nn.init.constant_(lib.ones(2), 3.5)))
    return log


def net(lib):
    nn = lib.nn
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def averages(lib):
    """Log weight averages and their schedule."""
    S = importlib.import_module(f"{lib.__name__}.optim.swa_utils")
    rng = np.random.default_rng(1)
    shapes = {k: v.shape for k, v in net(torch).state_dict().items()}
    sd = [{k: np.asarray(rng.random(s) if s else 3, np.float32) for k, s in shapes.items()} for _ in range(4)]
    x = [rng.standard_normal((5, 3)).astype(np.float32) for _ in range(3)]

    def load(m, d):
        return m.load_state_dict({k: lib.tensor(v) for k, v in d.items()})

    out = []
    for kw in (
        {},
        {"avg_fn": S.get_ema_avg_fn(0.9)},
        {"multi_avg_fn": S.get_ema_multi_avg_fn(0.9)},
        {"use_buffers": True},
        {"multi_avg_fn": S.get_ema_multi_avg_fn(0.8), "use_buffers": True},
        {"avg_fn": S.get_swa_avg_fn()},
        {"avg_fn": lambda a, b, n: a * 0.5 + b / (n + 1)},
    ):
        m = net(lib)
        a = S.AveragedModel(m, **kw)
        for d in sd:
            load(m, d)
            a.update_parameters(m)
        st = a.state_dict()
        out.append(sorted(st))
        out += [st[k].numpy().astype(np.float64) for k in sorted(st)]
        S.update_bn([(lib.tensor(b), 1) for b in x], a)
        out += [a.state_dict()[k].numpy().astype(np.float64) for k in sorted(st)]
        out.append(a(lib.tensor(x[0])).detach().numpy())
        out.append(a.training)
        out.append(a.module[1].momentum)
    for kw in (
        {"swa_lr": 0.05},
        {"swa_lr": 0.05, "anneal_epochs": 3, "anneal_strategy": "linear"},
        {"swa_lr": [0.2, 0.01], "anneal_epochs": 5},
        {"swa_lr": 0.3, "anneal_epochs": 0},
    ):
        m = net(lib)
        o = lib.optim.SGD([{"params": m[0].parameters(), "lr": 0.1}, {"params": m[3].parameters(), "lr": 0.5}], lr=1.0)
        s = S.SWALR(o, **kw)
        out.append([g["lr"] for g in o.param_groups])
        for _i in range(8):
            o.step()
            s.step()
            out.append([g["lr"] for g in o.param_groups])
            out.append(s.get_last_lr())
        s2 = S.SWALR(o, **kw)
        s2.load_state_dict(s.state_dict())
        s2.step()
        out.append(s2.get_last_lr())
    for call in (
        lambda: S.AveragedModel(net(lib), avg_fn=1, multi_avg_fn=1),
        lambda: S.get_ema_avg_fn(2.0),
        lambda: S.SWALR(o, 0.1, anneal_strategy="x"),
        lambda: S.SWALR(o, [0.1]),
        lambda: S.SWALR(o, 0.1, anneal_epochs=-1),
    ):
        attempt(out, call, ValueError, AssertionError)
    return out


def entries_equal(expected, actual):
    """Return True if two log entries are equal, numbers within a tolerance for float32 and 5 decimals."""
    if isinstance(expected, (float, np.ndarray)):
        return np.allclose(actual, expected, rtol=2e-4, atol=2e-4, equal_nan=True)
    if isinstance(expected, (list, tuple)):
        return len(expected) == len(actual) and all(map(entries_equal, expected, actual))
    return expected == actual


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scene", [utils, averages])
def test_both_packages_leave_the_same_log(scene):
    theirs, ours = scene(torch), scene(wg)
    assert len(theirs) == len(ours)
    for i, (expected, actual) in enumerate(zip(theirs, ours, strict=True)):
        assert entries_equal(expected, actual), f"entry {i}: {expected} and {actual}"
