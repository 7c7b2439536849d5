"""Check modules: hooks, state_dict, names, containers and lazy layers; and activation checkpointing."""

import copy
import pickle
import warnings
from collections import OrderedDict

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn.modules import module as module_hooks
from weftgrad.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential


def linear(weight, bias=None):
    """Return a Linear layer with these weights."""
    weight = np.asarray(weight, np.float32)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": np.float32(bias)})
    return layer


class Double(nn.Module):
    def forward(self, x, other=None, *, flag=None):
        return x * 2


# Hooks ----------------------------------------------------------------------------------------------------------------


def test_forward_hooks_run_in_order_and_replace():
    calls = []
    layer = Double()
    layer.register_forward_pre_hook(lambda m, args: calls.append("pre"))
    layer.register_forward_pre_hook(
        lambda m, args, kwargs: calls.append(sorted(kwargs)) or ((args[0] + 1,), {}), prepend=True, with_kwargs=True
    )
    layer.register_forward_hook(lambda m, args, out: calls.append("after") or out * 2)
    layer.register_forward_hook(
        lambda m, args, kwargs, out: calls.append((len(args), kwargs)), prepend=True, with_kwargs=True
    )
    assert layer(wg.ones(2), flag=3).tolist() == [8, 8]
    assert calls == [["flag"], "pre", (1, {}), "after"]
    layer.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(ValueError, match="returns None or"):
        layer(wg.ones(2))
    with pytest.raises(TypeError, match="hook is a function"):
        layer.register_forward_hook(3)


def test_always_call_hooks_run_when_forward_raises():
    class Broken(nn.Module):
        def forward(self, x):
            raise LookupError("broken")

    def raise_key_error(module, args, out):
        raise KeyError("second")

    calls = []
    layer = Broken()
    layer.register_forward_hook(lambda m, args, out: calls.append("never"))
    layer.register_forward_hook(lambda m, args, out: calls.append(out), always_call=True)
    layer.register_forward_hook(raise_key_error, always_call=True)
    with pytest.raises(LookupError, match="broken"), pytest.warns(UserWarning, match="second"):
        layer(1)
    assert calls == [None]
    layer.forward = lambda x: x
    with pytest.raises(KeyError, match="second"):
        layer(1)
    assert calls == [None, "never", 1]  # called once, although another hook raises after it


def test_backward_hooks_see_and_replace_gradients():
    class Parts(nn.Module):
        def forward(self, a, b, name):
            return a * 2, b.detach(), name

    calls = []

    def record_gradients(module, grad_input, grad_output):
        calls.append([[None if g is None else g.tolist() for g in grads] for grads in (grad_input, grad_output)])

    layer = Parts()
    layer.register_full_backward_hook(record_gradients)
    layer.register_full_backward_pre_hook(lambda m, grads: (grads[0] * 3, None, None))
    layer.register_full_backward_hook(lambda m, gi, go: (gi[0] + 1, None, None))
    a, b = wg.ones(2, requires_grad=True), wg.ones(2)
    layer(a, b, "x")[0].sum().backward()
    assert calls == [[[[6, 6], [0, 0], None], [[3, 3], None, None]]]
    assert a.grad.tolist() == [7, 7]
    calls.clear()
    inner = Double()
    inner.register_full_backward_hook(record_gradients)
    (inner(b) * a).sum().backward()  # no gradient flows through the module, and its input needs none
    assert calls == []
    inner.scale = nn.Parameter(wg.ones(2))
    inner.forward = lambda x: x * inner.scale
    inner(b).sum().backward()
    assert calls == [[[None], [[1, 1]]]]


def test_errors_of_backward_hooks():
    x = wg.ones(2, requires_grad=True)
    layer = nn.Sequential(nn.Identity())
    handle = layer.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    with pytest.raises(RuntimeError, match="returned 2 gradients, and grad_input has 1"):
        layer(x).sum().backward()
    handle.remove()
    layer.register_full_backward_hook(lambda m, gi, go: None)
    layer.forward = lambda x: x.mul_(2)
    with pytest.raises(RuntimeError, match="wrote an argument in place"):
        layer(x * 1)
    layer.forward = lambda x: {"out": x}
    with pytest.warns(UserWarning, match="not dict"):
        layer(x)
    with wg.no_grad():
        layer.forward = lambda x: x
        assert layer(x) is x
    changed = Double()
    changed.register_full_backward_hook(lambda m, gi, go: None)
    out = changed(x)
    out += 1  # a result may be written in place
    out.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_hooks_of_all_modules():
    calls = []
    handles = [
        module_hooks.register_module_forward_pre_hook(lambda m, args: calls.append(f"pre {type(m).__name__}")),
        module_hooks.register_module_forward_hook(lambda m, args, out: calls.append("after")),
        module_hooks.register_module_full_backward_pre_hook(lambda m, go: calls.append("back")),
        module_hooks.register_module_full_backward_hook(lambda m, gi, go: calls.append("through")),
    ]
    try:
        nn.Sequential(Double())(wg.ones(2, requires_grad=True)).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    assert calls == ["pre Sequential", "pre Double", "after", "after", "back", "back", "through", "through"]
    Double()(wg.ones(2))
    assert len(calls) == 8


# States ---------------------------------------------------------------------------------------------------------------


class Counted(nn.Module):
    _version = 3

    def __init__(self, count=0):
        super().__init__()
        self.weight = nn.Parameter(wg.ones(2))
        self.register_buffer("saved", wg.zeros(1))
        self.register_buffer("unsaved", wg.zeros(1), persistent=False)
        self.register_buffer("none", None)
        self.count = count

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]


def test_extra_state_versions_and_hooks_of_state_dicts():
    calls = []
    net = nn.Sequential(Counted(5), nn.Identity())
    net.register_state_dict_pre_hook(lambda m, prefix, keep: calls.append((prefix, keep)))
    net[0].register_state_dict_post_hook(lambda m, state, prefix, local: state.update({f"{prefix}more": 1}))
    state = net.state_dict()
    assert list(state) == ["0.weight", "0.saved", "0._extra_state", "0.more"]
    assert state._metadata == {"": {"version": 1}, "0": {"version": 3}, "1": {"version": 1}}
    assert next(iter(net.state_dict(prefix="a.", keep_vars=True))) == "a.0.weight"
    assert calls == [("", False), ("a.", True)]
    restored = nn.Sequential(Counted(), nn.Identity())
    restored[0]._register_load_state_dict_pre_hook(lambda state, prefix, local, *rest: calls.append((prefix, local)))
    restored[0].register_load_state_dict_pre_hook(lambda m, state, prefix, *rest: state.pop(f"{prefix}more"))
    restored.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
    assert str(restored.load_state_dict(OrderedDict(state, b=wg.ones(1)))) == "<All keys matched successfully>"
    assert restored[0].count == 5
    restored.load_state_dict(state)
    assert calls[-1] == ("0.", {"version": 3})
    net[0].register_state_dict_post_hook(lambda m, state, prefix, local: {})
    with pytest.raises(RuntimeError, match="returns None"):
        net.state_dict()


def test_mismatches_are_listed_and_nothing_is_loaded():
    net = nn.Sequential(Counted(1), nn.Linear(2, 2))
    state = net.state_dict()
    net[0].weight.data.fill_(7)
    state["1.weight"] = wg.zeros(3, 2)
    state["1.bias"] = [1.0, 2.0]
    state["0.other"] = wg.zeros(1)
    state["2.weight"] = wg.zeros(1)
    state["0.weight"] = wg.zeros(2)
    del state["0.saved"], state["0._extra_state"]
    with pytest.raises(RuntimeError) as info:
        net.load_state_dict(state)
    assert isinstance(info.value, ValueError)
    assert str(info.value) == (
        "load_state_dict of Sequential: missing: 0.saved, 0._extra_state; unexpected: 2.weight, 0.other; "
        "1.weight: has shape [3, 2] in the state dict, [2, 2] in the module; 1.bias: must be a tensor, not list"
    )
    assert net[0].weight.tolist() == [7, 7]
    del state["1.weight"], state["1.bias"]
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert missing == ["0.saved", "0._extra_state", "1.weight", "1.bias"]
    assert unexpected == ["2.weight", "0.other"]
    assert net[0].weight.tolist() == [0, 0]
    with pytest.raises(TypeError, match="takes a mapping"):
        net.load_state_dict([1])


def test_arrays_and_tensors_become_a_modules_state():
    layer = nn.Linear(2, 2)
    layer.load_state_dict({"weight": np.eye(2), "bias": np.array([1, 2], np.int32)})
    assert layer(wg.ones(1, 2)).tolist() == [[2, 3]]
    state = {"weight": wg.ones(2, 2, dtype=wg.float64), "bias": wg.zeros(2, dtype=wg.float64)}
    old_weight = layer.weight
    layer.bias.requires_grad_(False)
    layer.load_state_dict(state, assign=True)
    assert layer.weight is not old_weight
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight.data_ptr() == state["weight"].data_ptr()
    assert (layer.weight.requires_grad, layer.bias.requires_grad) == (True, False)
    single = nn.Module()
    single.value = nn.Parameter(wg.tensor(0.0))
    single.load_state_dict({"value": wg.tensor([3.0])})
    assert single.value.item() == 3


# Names and copies -----------------------------------------------------------------------------------------------------


def test_invalid_names():
    layer = nn.Linear(2, 2)
    layer.part = nn.Identity()
    layer.register_buffer("state", wg.ones(1))
    array = wg.ones(1)
    for error, call in (
        (KeyError, lambda: layer.register_parameter("a.b", None)), (KeyError, lambda: layer.add_module("", None)),
        (TypeError, lambda: layer.register_buffer(3, None)), (KeyError, lambda: layer.add_module("forward", None)),
        (KeyError, lambda: layer.register_buffer("weight", None)), (TypeError, lambda: layer.register_buffer("u", 3)),
        (KeyError, lambda: layer.add_module("state", nn.Identity())), (TypeError, lambda: layer.add_module("u", 3)),
        (TypeError, lambda: layer.register_parameter("u", array)), (TypeError, lambda: setattr(layer, "weight", array)),
        (TypeError, lambda: setattr(layer, "part", 3)), (TypeError, lambda: setattr(layer, "state", 3)),
        (TypeError, lambda: setattr(layer, "weight", nn.Identity())), (ValueError, lambda: layer.train(1)),
        (AttributeError, lambda: layer.get_submodule("none")), (AttributeError, lambda: layer.get_parameter("state")),
        (AttributeError, lambda: layer.get_buffer("weight")), (AttributeError, lambda: layer.get_submodule("weight")),
        (AttributeError, lambda: layer.set_submodule("none", nn.Identity(), strict=True)),
        (ValueError, lambda: layer.set_submodule("", nn.Identity())), (TypeError, lambda: layer.to(wg.int64)),
        (TypeError, lambda: layer.to("cpu", unknown=1)), (TypeError, lambda: layer.to([1])),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    with pytest.raises(KeyError) as info:
        layer.register_buffer("weight", None)
    assert str(info.value) == "attribute 'weight' exists already; a buffer needs another name"
    layer.set_submodule("part", nn.Tanh())
    assert isinstance(layer.part, nn.Tanh)
    assert layer.get_buffer("state") is layer.state
    layer.state = nn.Parameter(wg.ones(1))  # moves from the buffers to the parameters
    assert "state" not in dict(layer.named_buffers())
    assert layer.get_parameter("state") is layer.state
    layer.plain = 3
    layer.plain = nn.Buffer(wg.ones(1), persistent=False)
    assert "plain" in dir(layer)
    assert "plain" not in layer.state_dict()
    del layer.plain
    assert not hasattr(layer, "plain")


# Where version 0.2 defined classes and functions that lie in other modules of nn now; pickled modules name them so.
FORMER_PLACES = [
    ("activations", "ReLU"), ("activations", "PReLU"), ("losses", "CrossEntropyLoss"), ("pooling_layers", "Unfold"),
    ("pooling_layers", "AdaptiveAvgPool2d"), ("transformers", "MultiheadAttention"), ("lazy", "LazyConv2d"),
    ("transformers", "NonDynamicallyQuantizableLinear"), ("transformers", "TransformerEncoderLayer"),
    ("lazy", "LazyBatchNorm1d"), ("lazy", "LazyModuleMixin"), ("recurrent", "RNNBase"), ("_hooks", "HookTable"),
    ("utils.rnn", "PackedSequence"), ("adaptive", "AdaptiveLogSoftmaxWithLoss"), ("fractional", "FractionalMaxPool2d"),
    ("_activations", "relu"), ("_activations", "softmax"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name"), FORMER_PLACES)
def test_pickles_of_version_0_2_find_their_classes(module, name):
    unpickled = pickle.loads(f"cweftgrad.nn.{module}\n{name}\n.".encode())
    assert unpickled.__name__ == name
    assert unpickled is getattr(nn, name, getattr(nn.functional, name, unpickled))


def test_shared_parts_are_shared_in_copies():
    net = nn.Module()
    net.a, net.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    net.b.weight, net.c = net.a.weight, net.a
    assert [name for name, _ in net.named_parameters()] == ["a.weight"]
    all_names = ["a.weight", "b.weight", "c.weight"]
    assert [name for name, _ in net.named_parameters(remove_duplicate=False)] == all_names
    assert [name for name, _ in net.named_modules(remove_duplicate=False)] == ["", "a", "b", "c"]
    assert len(list(net.modules())) == 3
    assert list(net.state_dict()) == all_names
    calls = []
    net.register_forward_hook(calls.append)
    for clone in (copy.deepcopy(net.double()), pickle.loads(pickle.dumps(nn.ModuleDict({"x": net.a, "y": net.a})))):
        first, second = (clone.a, clone.c) if hasattr(clone, "a") else (clone["x"], clone["y"])
        assert first is second
        assert isinstance(first.weight, nn.Parameter)
        assert first.weight is not net.a.weight
        assert first.weight.dtype is wg.float64
    assert len(copy.deepcopy(net)._forward_hooks) == 1
    buffer = copy.deepcopy(nn.Buffer(wg.ones(2), persistent=False))
    assert (type(buffer), buffer.persistent) == (nn.Buffer, False)
    assert pickle.loads(pickle.dumps(buffer)).persistent is False


def test_conversions_keep_parameters():
    layer = nn.Linear(2, 3)
    layer.register_buffer("count", wg.zeros(1, dtype=wg.int64))
    weight = layer.weight
    layer.to(wg.zeros(1, dtype=wg.float64)).to("cpu", wg.float64, True)
    assert layer.weight is weight
    assert (weight.dtype, layer.count.dtype) == (wg.float64, wg.int64)
    layer.type(wg.float32)
    assert layer.count.dtype is wg.float32
    layer.to_empty(device="cpu")
    assert (layer.weight is weight, tuple(weight.shape), weight.requires_grad) == (True, (3, 2), True)
    frozen = nn.Sequential(nn.Linear(1, 1))
    frozen[0].train = lambda mode=True: modes.append(mode)
    modes = []
    frozen.eval()
    assert modes == [False]  # children override `train`


# Containers -----------------------------------------------------------------------------------------------------------


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


# Lazy layers ----------------------------------------------------------------------------------------------------------


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


# Checkpoints of activations -------------------------------------------------------------------------------------------


def deep():
    wg.manual_seed(3)
    layers = [nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5), nn.Sigmoid()) for _ in range(12)]
    return nn.Sequential(*[nn.Sequential(*layers[i : i + 3]) for i in range(0, 12, 3)])


def step(net, checkpointing):
    """Return every gradient and the next random number, and the bytes held before backward."""
    net.zero_grad()
    wg.manual_seed(7)
    x = wg.tensor(np.linspace(-1, 0, 256 * 32, dtype=np.float32).reshape(256, 32), requires_grad=True)
    bytes_before = wg.memory_allocated()
    out = x
    if checkpointing == "sequential":
        out = checkpoint_sequential(net, 2, x, use_reentrant=False)
    else:
        for part in net:
            out = part(out) if checkpointing is None else checkpoint(part, out, use_reentrant=checkpointing)
    held_bytes = wg.memory_allocated() - bytes_before
    out.sum().backward()
    return [x.grad.numpy(), *(p.grad.numpy() for p in net.parameters()), wg.rand(1).item()], held_bytes


@pytest.mark.parametrize("checkpointing", [True, False, "sequential"])
def test_checkpoints_give_the_same_bits_from_less_memory(checkpointing):
    net = deep()
    expected, plain_bytes = step(net, None)
    actual, held_bytes = step(net, checkpointing)
    assert all((a == b).all() if isinstance(a, np.ndarray) else a == b for a, b in zip(expected, actual, strict=True))
    assert held_bytes < 0.6 * plain_bytes


def test_checkpoints_in_checkpoints_higher_derivatives_and_written_values():
    def inner(x):
        y = x * 3
        y.mul_(x)
        return y.exp()

    def outer(x, *, scale):
        return checkpoint(inner, x * scale, use_reentrant=False).exp()

    derivatives = []
    for is_plain in (False, True):
        x = wg.tensor([-1.0, 0.5, 0.25], requires_grad=True)
        y = inner(x * 2).exp() if is_plain else checkpoint(outer, x, scale=2, use_reentrant=False)
        (first,) = wg.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = wg.autograd.grad(first.sum(), x, retain_graph=True)
        (second_again,) = wg.autograd.grad(first.sum(), x)
        assert second_again.tolist() == second.tolist()
        derivatives.append((first.tolist(), second.tolist()))
    assert derivatives[0] == derivatives[1]


def test_checkpoints_repeat_the_casts_of_autocast():
    layer = linear(np.eye(2), [1, 2])
    results = []
    for is_plain in (True, False):
        layer.zero_grad()
        x = wg.tensor([[0.3, 0.7]], requires_grad=True)
        with wg.autocast("cpu", dtype=wg.bfloat16):
            y = layer(layer(x)) if is_plain else checkpoint(lambda x: layer(layer(x)), x, use_reentrant=False)
        y.sum().backward()  # outside the autocast region, whose cached casts are gone
        results.append((y.dtype, x.grad.tolist(), layer.weight.grad.tolist(), layer.bias.grad.tolist()))
    assert results[0] == results[1]
    assert results[0][0] is wg.bfloat16


def test_errors_of_checkpoints():
    x = wg.ones(3, requires_grad=True)
    runs = []

    def fickle(x):
        runs.append(1)
        return x.exp() if len(runs) % 2 else x.exp().exp()

    with pytest.raises(CheckpointError, match=r"fickle recorded 1 calls .* and 2 in backward"):
        checkpoint(fickle, x, use_reentrant=False).sum().backward()
    middle = x * 2
    out = checkpoint(wg.exp, middle, use_reentrant=False)
    middle.zero_()
    with pytest.raises(RuntimeError, match="modified in place"):
        out.sum().backward()
    with pytest.warns(UserWarning, match="none of the arguments requires grad"):
        checkpoint(wg.exp, wg.ones(3), use_reentrant=True)
    with pytest.warns(UserWarning, match="pass use_reentrant"):
        checkpoint(wg.exp, x)
    with pytest.raises(ValueError, match="only be used with use_reentrant=False"):
        checkpoint(wg.exp, x, use_reentrant=True, flag=1)
    with pytest.raises(ValueError, match="'default' or 'none'"):
        checkpoint(wg.exp, x, use_reentrant=False, determinism_check="x")
    with pytest.raises(ValueError, match="3 segments"):
        checkpoint_sequential([wg.exp], 3, x, use_reentrant=False)
    with wg.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoint(wg.exp, x, use_reentrant=False).node is None
