"""Check modules: hooks, state_dict, names and copies."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn.modules import module as module_hooks


class Double(nn.Module):
    def forward(self, x, other=None, *, flag=None):
        return x * 2


# Hooks


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


# States


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


# Names and copies


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
