"""Statements about hooks and states of modules, for any library with PyTorch's names; each scene returns a log."""

import copy
import importlib
import pickle
from collections import OrderedDict

__all__ = ["attempt", "hooks", "state", "to_list"]


def attempt(log, call, *error_types):
    """Log whether a call raises one of the expected errors."""
    try:
        call()
        log.append("done")
    except Exception as error:
        log.append("refused" if isinstance(error, error_types) else repr(error))


def to_list(t):
    return None if t is None else t.detach().tolist()


def hooks(lib):
    """Log forward and backward hooks, per module and global."""
    nn = lib.nn
    log = []
    m = nn.Linear(3, 2)
    with lib.no_grad():
        m.weight.copy_(lib.arange(6).float().reshape(2, 3))
        m.bias.zero_()
    m.register_forward_pre_hook(lambda m, a: log.append("pre1"))
    m.register_forward_pre_hook(
        lambda m, a, k: (log.append(("pre0", sorted(k))), None)[1], prepend=True, with_kwargs=True
    )
    m.register_forward_hook(lambda m, a, o: log.append(("f1", tuple(o.shape))))
    m.register_forward_hook(lambda m, a, k, o: log.append(("f0", len(a), sorted(k))), prepend=True, with_kwargs=True)
    m.register_full_backward_pre_hook(lambda m, go: (log.append(("bp", go[0].tolist())), (go[0] * 2,))[1])
    m.register_full_backward_hook(
        lambda m, gi, go: log.append(("b", [None if g is None else g.tolist() for g in gi], go[0].tolist()))
    )
    x = lib.ones(1, 3, requires_grad=True)
    m(x).sum().backward()
    log.append(x.grad.tolist())
    log.append(m.weight.grad.tolist())
    log.append("noinputgrad")
    m(lib.ones(1, 3)).sum().backward()
    log.append("kw")
    m(input=x).sum().backward()

    class Two(nn.Module):
        def forward(self, a, b, flag=3):
            return (a * 2, b.detach(), a * b)

    t = Two()
    t.register_full_backward_hook(
        lambda m, gi, go: log.append(
            ("two", [None if g is None else g.tolist() for g in gi], [None if g is None else g.tolist() for g in go])
        )
    )
    a = lib.ones(2, requires_grad=True)
    b = lib.ones(2)
    o = t(a, b, 5)
    o[0].sum().backward()
    log.append(a.grad.tolist())
    t(a, b)[2].sum().backward()
    log.append(a.grad.tolist())

    class Bad(nn.Module):
        def forward(self, x):
            raise KeyError("no")

    bad = Bad()
    bad.register_forward_hook(lambda m, a, o: log.append(("always", o)), always_call=True)
    bad.register_forward_hook(lambda m, a, o: log.append("never"))
    try:
        bad(x)
    except KeyError:
        log.append("raised")
    r = nn.ReLU(inplace=True)
    r.register_full_backward_hook(lambda *a: log.append("inplace"))
    try:
        r(x * 2).sum().backward()
        log.append("fine")
    except RuntimeError:
        log.append("refused")
    h = nn.Linear(3, 2)
    h.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    try:
        h(x).sum().backward()
        log.append("fine")
    except RuntimeError:
        log.append("refused")
    mod = importlib.import_module(f"{lib.__name__}.nn.modules.module")
    hs = [
        mod.register_module_forward_pre_hook(lambda m, a: log.append("gpre")),
        mod.register_module_forward_hook(lambda m, a, o: log.append("gf")),
        mod.register_module_full_backward_hook(lambda m, gi, go: log.append("gb")),
        mod.register_module_full_backward_pre_hook(lambda m, go: log.append("gbp")),
    ]
    m(x).sum().backward()
    for q in hs:
        q.remove()
    m(x)
    log.append(len(m._forward_hooks))
    return log


def state(lib):
    """Log state dicts, names, copies and conversions."""
    nn = lib.nn
    log = []

    class Ver(nn.Module):
        _version = 3

        def __init__(s):
            super().__init__()
            s.w = nn.Parameter(lib.ones(2))
            s.register_buffer("b", lib.zeros(1))
            s.register_buffer("t", lib.zeros(1), persistent=False)
            s.n = None
            s.register_buffer("none", None)
            s.register_parameter("pn", None)

        def get_extra_state(s):
            return {"n": s.n}

        def set_extra_state(s, st):
            s.n = st["n"]

        def _load_from_state_dict(s, sd, prefix, meta, strict, missing, unexpected, errors):
            log.append((prefix, dict(meta)))
            super()._load_from_state_dict(sd, prefix, meta, strict, missing, unexpected, errors)

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.a = Ver()
            s.l = nn.Linear(2, 2)
            s.again = s.l

        def forward(s, x):
            return x

    n = Net()
    n.a.n = 5
    sd = n.state_dict()
    log.append(list(sd))
    log.append({k: dict(v) for k, v in sd._metadata.items()})
    m = Net()
    r = m.load_state_dict(sd)
    log.append(str(r))
    log.append(m.a.n)

    sd2 = OrderedDict(sd)
    del sd2["a.w"]
    sd2["zz.q"] = lib.ones(1)
    sd2["a.more"] = lib.ones(1)
    sd2["a.t"] = lib.ones(1)
    r = m.load_state_dict(sd2, strict=False)
    log.append((list(r.missing_keys), sorted(r.unexpected_keys)))
    attempt(log, lambda: m.load_state_dict(sd2), RuntimeError)
    sd3 = OrderedDict(sd)
    sd3["l.weight"] = lib.ones(3, 2)
    attempt(log, lambda: m.load_state_dict(sd3, strict=False), RuntimeError)
    w = m.l.weight
    m.load_state_dict(sd, assign=True)
    log.append(
        (
            m.l.weight is w,
            type(m.l.weight).__name__,
            m.l.weight.requires_grad,
            m.l.weight.data_ptr() == sd["l.weight"].data_ptr(),
        )
    )
    log.append(sorted(n.state_dict(prefix="p.", keep_vars=True)))
    log.append(n.state_dict(keep_vars=True)["l.weight"] is n.l.weight)
    h = n.register_state_dict_post_hook(lambda mod, d, p, local: log.append(("post", len(d), p, local)))
    n.l.register_state_dict_pre_hook(lambda mod, p, k: log.append(("pre", p, k)))
    n.a._register_state_dict_hook(lambda mod, d, p, local: d.__setitem__(p + "x", 1))
    d = n.state_dict()
    log.append(list(d))
    h.remove()
    m._register_load_state_dict_pre_hook(lambda sd, prefix, *a: log.append(("lp", prefix, len(sd))))
    m.l.register_load_state_dict_pre_hook(
        lambda mod, sd, prefix, *a: log.append(("lpm", type(mod).__name__, prefix, len(sd)))
    )
    m.register_load_state_dict_post_hook(lambda mod, keys: keys.unexpected_keys.clear())
    log.append(str(m.load_state_dict(d)))
    n.l.weight.data.fill_(4.0)
    k = copy.deepcopy(n.l)
    log.append(to_list(k.weight))
    log.append(type(k.weight).__name__)
    k.weight.data.fill_(1.0)
    log.append(to_list(n.l.weight))
    kk = pickle.loads(pickle.dumps(nn.Sequential(nn.Linear(2, 2), nn.Tanh())))
    log.append(repr(kk))
    s = nn.Module()
    s.p = nn.Parameter(lib.tensor(1.0))
    s.load_state_dict({"p": lib.tensor([3.0])})
    log.append(to_list(s.p))
    q = nn.Linear(2, 2)
    attempt(log, lambda: setattr(q, "weight", lib.ones(2)), TypeError)
    attempt(log, lambda: q.register_parameter("weight.x", None), KeyError)
    attempt(log, lambda: q.register_parameter("", None), KeyError)
    attempt(log, lambda: q.register_parameter("forward", None), KeyError)
    attempt(log, lambda: q.register_parameter(3, None), TypeError)
    attempt(log, lambda: q.register_parameter("u", lib.ones(1)), TypeError)
    attempt(log, lambda: q.register_parameter("u", nn.Parameter(lib.ones(1)) * 2), TypeError)
    attempt(log, lambda: q.register_buffer("weight", lib.ones(1)), KeyError)
    attempt(log, lambda: q.register_buffer("u", 3), TypeError)
    attempt(log, lambda: q.add_module("u", 3), TypeError)
    attempt(log, lambda: q.add_module("weight", nn.ReLU()), KeyError)
    q.sub = nn.ReLU()
    attempt(log, lambda: setattr(q, "sub", 3), TypeError)
    q.register_buffer("buf", lib.ones(1))
    attempt(log, lambda: setattr(q, "buf", 3), TypeError)
    attempt(log, lambda: q.get_submodule("nope"), AttributeError)
    attempt(log, lambda: q.get_submodule("weight"), AttributeError)
    attempt(log, lambda: q.get_parameter("sub.w"), AttributeError)
    attempt(log, lambda: q.get_parameter("buf"), AttributeError)
    attempt(log, lambda: q.get_buffer("weight"), AttributeError)
    attempt(log, lambda: q.train(3), ValueError)
    attempt(log, lambda: q.to(lib.int64), TypeError)
    attempt(log, lambda: q.nothing, AttributeError)
    log.append(to_list(q.get_buffer("buf")))
    log.append(to_list(q.get_parameter("bias")) is not None)
    q.set_submodule("sub", nn.Tanh())
    log.append(repr(q))
    attempt(log, lambda: q.set_submodule("other", nn.Tanh(), strict=True), AttributeError)
    q.set_submodule("other", nn.Tanh())
    log.append(repr(q))
    q.weight = None
    log.append([k for k, _ in q.named_parameters()])
    q.weight = nn.Parameter(lib.ones(1))
    log.append([k for k, _ in q.named_parameters()])
    q.bias = nn.ReLU() if False else q.bias
    q.fresh = 3
    q.fresh = nn.Parameter(lib.ones(1))
    log.append("fresh" in q.__dict__)
    attempt(log, lambda: setattr(q, "fresh", nn.ReLU()), TypeError)
    log.append([k for k, _ in q.named_parameters()])
    q.bb = nn.Buffer(lib.ones(1), persistent=False)
    log.append(sorted(q.state_dict()))
    log.append("bb" in dir(q))
    del q.bb
    log.append(hasattr(q, "bb"))

    class Tied(nn.Module):
        def __init__(s):
            super().__init__()
            s.a = nn.Linear(2, 2, bias=False)
            s.b = nn.Linear(2, 2, bias=False)
            s.b.weight = s.a.weight
            s.c = s.a

    t = Tied()
    log.append([k for k, _ in t.named_parameters()])
    log.append([k for k, _ in t.named_parameters(remove_duplicate=False)])
    log.append([k for k, _ in t.named_modules(remove_duplicate=False)])
    log.append(list(t.state_dict()))
    t.double()
    log.append(t.a.weight is t.b.weight)
    tt = copy.deepcopy(t)
    log.append(tt.a.weight is tt.b.weight and tt.c is tt.a)
    tt = pickle.loads(pickle.dumps(t.state_dict()))
    log.append(list(tt))
    log.append([len(list(t.modules())), len(list(t.modules(remove_duplicate=False)))])
    e = nn.Linear(2, 3).to_empty(device="cpu")
    log.append([type(e.weight).__name__, tuple(e.weight.shape), e.weight.requires_grad])
    e.to(lib.zeros(1, dtype=lib.float64))
    log.append(str(e.weight.dtype).split(".")[-1])
    e.to("cpu", lib.float32, True)
    e.to(device="cpu", dtype=lib.float16, non_blocking=True)
    log.append(str(e.weight.dtype).split(".")[-1])
    c = nn.Module()
    c.register_buffer("i", lib.ones(1, dtype=lib.int64))
    c.type(lib.float32)
    log.append(str(c.i.dtype).split(".")[-1])
    try:
        nn.Module.train
    finally:
        log.append(repr(nn.Sequential()))
    log.append(repr(nn.Module()))

    class R(nn.Module):
        def __init__(s):
            super().__init__()
            s.x = nn.ReLU()

        def extra_repr(s):
            return "a=1\nb=2"

    log.append(repr(R()))
    return log
