"""Statements about containers and lazy layers, for any library with PyTorch's names; each scene returns a log."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
from module_scenes import attempt

__all__ = ["containers", "lazy"]


def containers(lib):
    """Log lists and dicts of modules and of parameters."""
    nn = lib.nn
    log = []

    def L(n):
        return nn.Linear(n, n)

    s = nn.Sequential(L(1), L(2), L(3))
    log.append(repr(s + nn.Sequential(L(4))))
    log.append(repr(s * 2))
    log.append(repr(2 * s))
    t = s[1:]
    log.append(repr(t))
    log.append(list(t._modules))
    s += nn.Sequential(L(5))
    log.append(len(s))
    s *= 2
    log.append([m.in_features for m in s])
    log.append(s.pop(1).in_features)
    log.append(list(s._modules))
    log.append(s.insert(1, L(9)) is s)
    log.append([m.in_features for m in s])
    log.append(list(s._modules))
    s.insert(-1, L(8))
    log.append([m.in_features for m in s])
    del s[0:2]
    log.append(list(s._modules))
    s[0] = L(7)
    log.append(s[0].in_features)
    log.append(s[-1].in_features)
    attempt(log, lambda: s[100], IndexError)
    attempt(log, lambda: s.insert(100, L(1)), IndexError)
    attempt(log, lambda: s.insert(0, 3), TypeError, ValueError, AssertionError)
    attempt(log, lambda: s + [L(1)], TypeError, ValueError)
    attempt(log, lambda: s * 0, ValueError)
    attempt(log, lambda: s * 1.5, TypeError)
    attempt(log, lambda: s.append(3), TypeError)
    attempt(log, lambda: s.extend(3), TypeError)
    d = nn.Sequential(OrderedDict(a=L(1), b=L(2), c=L(3)))
    del d[1]
    log.append(list(d._modules))
    d2 = nn.Sequential(OrderedDict(a=L(1), b=L(2)))
    log.append(d2.pop(0).in_features)
    log.append(list(d2._modules))
    log.append(list(d2[0:1]._modules))
    d2.append(L(5))
    log.append(list(d2._modules))
    log.append("0" in dir(s))
    log.append([m for m in dir(s) if m.isdigit()])
    m = nn.ModuleList([L(2), L(2), L(2), nn.ReLU(), L(3)])
    log.append(repr(m))
    log.append(repr(m[1:3]))
    m += [L(1)]
    log.append(len(m))
    log.append(repr(m + [L(2)]))
    log.append(m.insert(0, L(4)))
    log.append(m.pop(0).in_features)
    log.append(m.pop(-1).in_features)
    del m[0]
    del m[-2:]
    log.append(list(m._modules))
    log.append(repr(nn.ModuleList()))
    m[0] = L(6)
    log.append(repr(m))
    attempt(log, lambda: m(1), NotImplementedError)
    attempt(log, lambda: m[9], IndexError)
    attempt(log, lambda: m.extend(3), TypeError)
    log.append(repr(nn.Sequential(m)))
    e = nn.ModuleDict({"b": L(1), "a": L(2)})
    log.append(list(e))
    e.update([["c", L(3)]])
    log.append(repr(e))
    log.append(e.pop("b").in_features)
    log.append(list(e.keys()))
    log.append([k for k, v in e.items()])
    log.append(len(e))
    e.clear()
    log.append(repr(e))
    attempt(log, lambda: e["zz"], KeyError)
    attempt(log, lambda: e.update(3), TypeError)
    attempt(log, lambda: e.update([1]), TypeError)
    attempt(log, lambda: e.update([("a",)]), ValueError)
    attempt(log, lambda: nn.ModuleDict({"keys": L(1)}), KeyError)
    attempt(log, lambda: nn.ModuleDict({"x": 3}), TypeError)
    attempt(log, lambda: e(1), NotImplementedError)
    attempt(log, lambda: nn.ModuleDict({3: L(1)}), TypeError)
    p = nn.ParameterList([lib.ones(2, 3), nn.Parameter(lib.zeros(1)), 5])
    log.append(repr(p).replace("weftgrad", "torch"))
    log.append(len(p))
    log.append(len(list(p.parameters())))
    log.append(p[2])
    p[2] = lib.ones(1)
    log.append(type(p[2]).__name__)
    log.append(list(p.state_dict()))
    log.append(len(p[0:2]))
    p += [lib.ones(3)]
    log.append([tuple(x.shape) for x in p])
    attempt(log, lambda: p(1), RuntimeError)
    attempt(log, lambda: p.extend(lib.ones(2)), TypeError)
    attempt(log, lambda: p[10], IndexError)
    log.append(tuple(p[-1].shape))
    p.append(lib.ones(2))
    q = nn.ParameterDict({"b": lib.ones(2), "a": lib.ones(1)})
    log.append(list(q))
    log.append(repr(q).replace("weftgrad.Tensor", "torch.nn.parameter.Parameter") if 0 else 0)
    log.append([k for k, _ in q.named_parameters()])
    q["z"] = 3
    log.append(q.setdefault("y", lib.ones(1)).tolist())
    log.append(q.get("nope", 4))
    log.append(list(reversed(q)))
    log.append(q.popitem()[0])
    log.append(q.pop("z"))
    q.update([("k", lib.ones(1))])
    log.append(list(q.keys()))
    r = q | nn.ParameterDict({"n": lib.ones(1)})
    log.append(list(r))
    q |= r
    log.append(list(q))
    log.append(list(q.fromkeys(["u", "v"], lib.ones(1))))
    log.append(len(q))
    log.append("k" in q)
    log.append(list(q.copy()))
    del q["k"]
    log.append(list(q.state_dict()))
    q.clear()
    log.append(len(q))
    attempt(log, lambda: q["a"], KeyError, AttributeError)
    attempt(log, lambda: q.update(3), TypeError)
    attempt(log, lambda: q(1), RuntimeError)
    log.append(repr(nn.ParameterDict()))
    i = nn.Identity(54, u=3)
    log.append(repr(i))
    log.append(repr(nn.Flatten()))
    log.append(repr(nn.Unflatten(1, (2, 3))))
    attempt(log, lambda: nn.Unflatten(1, 5), TypeError)
    attempt(log, lambda: nn.Unflatten(1, (2, "a")), TypeError)
    log.append(repr(nn.Unflatten(-1, (3, -1))))
    log.append(tuple(nn.Unflatten(1, (2, -1))(lib.ones(2, 6)).shape))
    log.append(tuple(nn.Flatten(0, 1)(lib.ones(2, 3, 4)).shape))
    for x in [
        nn.PixelShuffle(2),
        nn.PixelUnshuffle(2),
        nn.ChannelShuffle(2),
        nn.Bilinear(1, 2, 3),
        nn.CosineSimilarity(),
        nn.PairwiseDistance(),
        nn.Linear(2, 3, bias=False),
        nn.Linear(1, 1),
    ]:
        log.append(repr(x))
    log.append([k for k in nn.CosineSimilarity().__dict__ if not k.startswith("_")])
    log.append([k for k in nn.PairwiseDistance().__dict__ if not k.startswith("_")])
    log.append(sorted(k for k in nn.Bilinear(1, 2, 3).__dict__ if not k.startswith("_")))
    log.append(sorted(k for k in nn.Linear(1, 2).__dict__ if not k.startswith("_")))
    attempt(log, lambda: nn.Bilinear(0, 1, 1), ValueError)
    return log


def lazy(lib):
    """Log lazy layers before and after their first input."""
    nn = lib.nn
    log = []

    cases = [
        (nn.LazyLinear, (3,), (2, 4)),
        (nn.LazyConv1d, (4, 3), (2, 2, 5)),
        (nn.LazyConv2d, (4, 3, 1, 1, 1, 2), (2, 2, 5, 5)),
        (nn.LazyConv3d, (2, 2), (2, 2, 3, 3, 3)),
        (nn.LazyConvTranspose1d, (4, 3), (2, 2, 5)),
        (nn.LazyConvTranspose2d, (4, 3, 2, 1, 1, 2), (2, 2, 5, 5)),
        (nn.LazyConvTranspose3d, (2, 2), (2, 3, 3, 3)),
        (nn.LazyBatchNorm1d, (), (4, 3)),
        (nn.LazyBatchNorm2d, (), (4, 3, 2, 2)),
        (nn.LazyBatchNorm3d, (), (4, 3, 2, 2, 2)),
        (nn.LazyInstanceNorm1d, (1e-05, 0.1, False, True), (4, 3, 4)),
        (nn.LazyInstanceNorm2d, (1e-05, 0.3, False, True), (4, 3, 4, 2)),
        (nn.LazyInstanceNorm3d, (1e-05, 0.2, False, True), (4, 3, 4, 2, 2)),
    ]
    for cls, a, shape in cases:
        m = cls(*a)
        log.append(repr(m))
        log.append([k for k, _ in m.named_parameters()])
        log.append([repr(p) for p in m.parameters()])
        c = copy.deepcopy(m) if lib.__name__ != "torch" else cls(*a)
        log.append(m.has_uninitialized_params())
        m.double()
        log.append(str(m.weight.dtype)[-7:] if m.weight is not None else 0)
        x = lib.ones(shape, dtype=lib.float64)
        y = m(x)
        log.append(tuple(y.shape))
        log.append(type(m).__name__)
        log.append([tuple(p.shape) for p in m.parameters()])
        log.append(len(m._forward_pre_hooks))
        log.append([p.requires_grad for p in m.parameters()])
        log.append(repr(m))
        log.append(sorted(m.state_dict()))
        c.load_state_dict(m.state_dict())
        log.append(c.has_uninitialized_params())
        c.double()
        c.eval()
        m.eval()
        log.append(np.allclose(c(x).detach().numpy(), m(x).detach().numpy()))
        log.append(type(c).__name__)
        d = cls(*a)
        e = cls(*a)
        d.load_state_dict(e.state_dict())
        log.append(d.has_uninitialized_params())
        log.append(sorted(d.state_dict()))
        f = cls(*a)
        try:
            m.load_state_dict(f.state_dict())
            log.append("loaded")
        except RuntimeError:
            log.append("refused")
    waiting = nn.LazyLinear(3)
    attempt(log, lambda: waiting.weight.shape, RuntimeError)
    attempt(log, lambda: waiting.weight + 1, ValueError)
    attempt(log, lambda: waiting.weight.materialize((3, 2)))
    log.append(type(waiting.weight).__name__)
    log.append(tuple(waiting.weight.shape))
    log.append(isinstance(nn.LazyLinear(3).weight, nn.Parameter))
    log.append(nn.LazyLinear(3, bias=False).bias)
    p = nn.UninitializedParameter(requires_grad=False)
    p.materialize((2,))
    log.append(p.requires_grad)
    b = nn.UninitializedBuffer()
    log.append(repr(b)[:22])
    b.materialize((2,))
    log.append(tuple(b.shape))
    log.append(isinstance(b, nn.Parameter))
    attempt(log, lambda: nn.LazyConv2d(4, 3)(lib.ones(2, 2)), RuntimeError)
    attempt(log, lambda: nn.LazyConv2d(4, 3, groups=2)(lib.ones(1, 3, 5, 5)), ValueError)
    q = pickle.loads(pickle.dumps(nn.LazyLinear(3)))
    log.append(repr(q))
    log.append(tuple(q(lib.ones(1, 2)).shape))
    s = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    s(lib.ones(2, 3))
    log.append(repr(s))
    return log
