"""Check containers of modules, and layers that take their sizes from the first input."""

import copy
import pickle
from collections import OrderedDict

import pytest

import weftgrad as wg
from weftgrad import nn

# Containers


def sizes(parts):
    return [part.in_features for part in parts]


def test_sequences_of_modules():
    net = nn.Sequential(nn.Linear(1, 1), nn.Linear(2, 2), nn.Linear(3, 3))
    assert sizes(net + nn.Sequential(nn.Linear(4, 4))) == [1, 2, 3, 4]
    assert sizes(2 * net[1:]) == [2, 3, 2, 3]
    assert list(net[1:]._modules) == ["1", "2"]
    net += nn.Sequential(nn.Linear(5, 5))
    net *= 2
    assert net.pop(1).in_features == 2
    assert sizes(net.insert(-1, nn.Linear(9, 9))) == [1, 3, 5, 1, 2, 3, 9, 5]
    del net[1:-1]
    net[0] = nn.Linear(7, 7)
    assert (sizes(net), list(net._modules)) == ([7, 5], ["0", "1"])
    assert not [name for name in dir(net) if name.isdigit()]
    for error, call in (
        (IndexError, lambda: net[2]), (IndexError, lambda: net.insert(9, net[0])), (ValueError, lambda: net * 0),
        (TypeError, lambda: net + [1]), (TypeError, lambda: net.append(3)), (TypeError, lambda: net.extend(3)),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    modules = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU()])
    assert repr(nn.Sequential(modules)) == (
        "Sequential(\n  (0): ModuleList(\n    (0-1): 2 x Linear(in_features=2, out_features=2, bias=True)\n"
        "    (2): ReLU()\n  )\n)"
    )
    modules += [nn.Tanh()]
    assert len(modules + [nn.Tanh()]) == 5
    assert [repr(part) for part in modules[2:]] == ["ReLU()", "Tanh()"]
    with pytest.raises(NotImplementedError, match="forward"):
        modules(1)
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_dicts_of_modules():
    named = nn.ModuleDict({"b": nn.ReLU(), "a": nn.Tanh()})
    named.update([("c", nn.Sigmoid())])
    assert list(named) == ["b", "a", "c"]
    assert isinstance(named.pop("b"), nn.ReLU)
    assert [name for name, _ in named.items()] == list(named.keys()) == ["a", "c"]
    named.clear()
    assert (len(named), list(named.values())) == (0, [])
    for error, argument in ((TypeError, 3), (TypeError, [1]), (ValueError, [("a",)]), (KeyError, {"keys": nn.ReLU()})):
        with pytest.raises(error):
            nn.ModuleDict(argument)
    with pytest.raises(NotImplementedError):
        named(1)


def test_parameters_in_lists_and_dicts():
    params = nn.ParameterList([wg.ones(2, 3), nn.Parameter(wg.zeros(1)), "text"])
    params += [wg.ones(1)]
    assert repr(params) == (
        "ParameterList(\n    (0): Parameter containing: [weftgrad.float32 of size 2x3]\n"
        "    (1): Parameter containing: [weftgrad.float32 of size 1]\n    (2): Object of type: str\n"
        "    (3): Parameter containing: [weftgrad.float32 of size 1]\n)"
    )
    assert (params[2], len(params), list(params.state_dict())) == ("text", 4, ["0", "1", "3"])
    assert [tuple(p.shape) for p in params[:2]] == [(2, 3), (1,)]
    params[-2] = wg.ones(4)
    assert isinstance(params[2], nn.Parameter)
    named = nn.ParameterDict({"b": wg.ones(2), "a": wg.ones(1)})
    assert [name for name, _ in named.named_parameters()] == ["a", "b"]  # entries of a plain dict are sorted by name
    named["n"] = 3
    assert named.setdefault("s", wg.ones(1)) is named["s"]
    assert (named.get("none", 4), list(reversed(named)), named.popitem()[0]) == (4, ["s", "n", "b", "a"], "s")
    assert list(named | nn.ParameterDict(OrderedDict(z=wg.ones(1)))) == ["a", "b", "n", "z"]
    named |= {"y": wg.ones(1)}
    assert (named.pop("n"), list(named.copy()), "y" in named) == (3, ["a", "b", "y"], True)
    assert [k for k, v in named.fromkeys(["u", "v"], 1).items() if v == 1] == ["u", "v"]
    for error, call in (
        (IndexError, lambda: params[4]), (TypeError, lambda: params.extend(params[0])),
        (RuntimeError, lambda: params(1)), (KeyError, lambda: named["none"]), (AttributeError, lambda: named["none"]),
        (RuntimeError, lambda: named(1)), (TypeError, lambda: named.update(3)),
        (KeyError, lambda: nn.ParameterDict().popitem()),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    named.clear()
    assert repr(named) == "ParameterDict()"


# Lazy layers


def test_lazy_layers_take_their_sizes_from_the_first_input():
    net = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    assert repr(net[0]) == "LazyLinear(in_features=0, out_features=3, bias=True)"
    assert [repr(p) for p in net[0].parameters()] == ["<UninitializedParameter>"] * 2
    copied, unpickled = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
    for call in (lambda: net[0].weight.shape, lambda: net[0].weight + 1):
        with pytest.raises(RuntimeError, match="no shape yet"):
            call()
    assert nn.LazyLinear(3).half().weight.dtype is wg.float16
    weight = net[0].weight
    for model in (net, copied):
        model[1].forward = lambda x: x  # what it computes is tested elsewhere
    assert net(wg.ones(4, 2)).shape == (4, 3)
    assert weight is net[0].weight
    assert [type(part).__name__ for part in net] == ["Linear", "BatchNorm1d"]
    assert (tuple(weight.shape), weight.dtype, weight.requires_grad) == ((3, 2), wg.float32, True)
    assert len(net[0]._forward_pre_hooks) == 0
    assert 0 < abs(weight.detach().numpy()).max() <= 2**-0.5  # drawn as by Linear
    copied.load_state_dict(net.state_dict())
    assert not copied[0].has_uninitialized_params()
    copied.eval()(wg.ones(4, 2))
    assert repr(copied) == repr(net)
    unpickled.load_state_dict(copied.state_dict())
    empty = nn.LazyLinear(3)
    empty.load_state_dict(nn.LazyLinear(3).state_dict())
    assert empty.has_uninitialized_params()
    with pytest.raises(RuntimeError, match="no shape there yet"):
        net[0].load_state_dict(empty.state_dict())


def test_lazy_convolutions_take_their_channels_from_the_first_input():
    for kind, shape, expected in (
        (nn.LazyConv1d, (1, 4, 5), (2, 2, 3)), (nn.LazyConvTranspose1d, (4, 5), (4, 1, 3)),
    ):  # fmt: skip
        layer = kind(2, 3, groups=2)
        layer.forward = lambda x: x  # what it computes is tested elsewhere
        layer(wg.ones(shape))
        assert type(layer).__name__ == kind.__name__[4:]
        assert (layer.in_channels, tuple(layer.weight.shape), tuple(layer.bias.shape)) == (4, expected, (2,))
    with pytest.raises(ValueError, match="3 and 2 channels do not fall into 2 groups"):
        nn.LazyConv2d(2, 3, groups=2)(wg.ones(1, 3, 5, 5))
    with pytest.raises(RuntimeError, match="takes 3 or 4 dimensions"):
        nn.LazyConv2d(2, 3)(wg.ones(2, 2))
