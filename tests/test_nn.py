"""Check modules, layers, initial values and data loading against NumPy formulas."""

import copy
import io
import math
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from softmax_formula import softmax

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad import nn
from weftgrad.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, TensorDataset, random_split

RNG = np.random.default_rng(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.scale = nn.Parameter(wg.ones(5))
        self.register_buffer("steps", wg.zeros(()))
        self.register_buffer("scratch", wg.zeros(2), persistent=False)
        self.parts = nn.ModuleList([nn.Linear(5, 5, bias=False), nn.ReLU()])

    def forward(self, x):
        x = self.first(x) * self.scale
        for part in self.parts:
            x = part(x)
        return x


# Modules


def test_names_and_traversal_of_a_module():
    net = Block()
    names = ["scale", "first.weight", "first.bias", "parts.0.weight"]
    assert [n for n, _ in net.named_parameters()] == names
    assert [n for n, _ in net.named_buffers()] == ["steps", "scratch"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "parts", "parts.0", "parts.1"]
    assert [n for n, _ in net.named_children()] == ["first", "parts"]
    assert list(net.state_dict()) == ["scale", "steps", "first.weight", "first.bias", "parts.0.weight"]
    assert net.get_submodule("parts.0") is net.parts[0]
    assert net.get_parameter("first.bias") is net.first.bias
    assert all(isinstance(p, nn.Parameter) and p.requires_grad and p.is_leaf for p in net.parameters())
    net.alias = net.first
    assert [n for n, _ in net.named_parameters()] == names  # a shared module is listed once
    del net.alias
    assert not hasattr(net, "alias")
    net.eval()
    assert not net.parts[1].training
    assert net.requires_grad_(False).scale.requires_grad is False
    visited = []
    net.apply(lambda part: visited.append(type(part).__name__))
    assert visited == ["Linear", "Linear", "ReLU", "ModuleList", "Block"]
    assert repr(nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1))) == (
        "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n  (1): Dropout(p=0.1, inplace=False)\n)"
    )


def test_assignment_rules():
    net = Block()
    with pytest.raises(ValueError, match="cannot assign Tensor as parameter 'scale'"):
        net.scale = wg.ones(5)
    net.scale = None
    assert "scale" not in dict(net.named_parameters())
    net.steps = wg.ones(())
    assert dict(net.named_buffers())["steps"].item() == 1
    with pytest.raises(AttributeError, match="super"):
        type("Early", (nn.Module,), {"__init__": lambda self: setattr(self, "a", nn.Linear(1, 1))})()
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        net.missing
    with pytest.raises(KeyError, match="without dots"):
        net.register_buffer("a.b", wg.ones(1))
    param = nn.Parameter(wg.ones(1))
    param.node = (param * 2).node
    with pytest.raises(RuntimeError, match="leaf"):
        net.register_parameter("param", param)
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(1)


def test_state_dicts():
    source, target = Block(), Block()
    source.steps.fill_(3)
    x = wg.randn(2, 4)
    assert not np.allclose(source(x).detach().numpy(), target(x).detach().numpy())
    keys = target.load_state_dict(source.state_dict())
    assert keys == ([], [])
    assert target.steps.item() == 3
    assert (source(x).detach().numpy() == target(x).detach().numpy()).all()
    mismatched = OrderedDict(source.state_dict(), extra=wg.ones(1))
    mismatched["scale"] = wg.ones(4)
    del mismatched["first.bias"]
    old_weight = target.first.weight.detach().clone()
    mismatched["first.weight"] = wg.zeros(5, 4)
    with pytest.raises(
        ValueError, match=r"missing: first.bias; unexpected: extra; scale: has shape \[4\] in the state dict, \[5\]"
    ):
        target.load_state_dict(mismatched)
    assert (target.first.weight.detach().numpy() == old_weight.numpy()).all()
    mismatched["scale"] = wg.ones(5)
    assert target.load_state_dict(mismatched, strict=False) == (["first.bias"], ["extra"])
    copied = copy.deepcopy(source)
    copied.scale.detach().zero_()
    assert source.scale.detach().numpy().all()
    unpickled = pickle.loads(pickle.dumps(source))
    assert (unpickled(x).detach().numpy() == source(x).detach().numpy()).all()
    assert isinstance(unpickled.scale, nn.Parameter)


@pytest.mark.parametrize("dtype", [wg.float32, wg.bfloat16, wg.float16, wg.int64, wg.bool])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0, 2)])
def test_saved_tensors_keep_their_shape_and_dtype(dtype, shape):
    tensor = wg.ones(shape, dtype=dtype)
    file = io.BytesIO()
    wg.save({"tensor": tensor}, file)
    file.seek(0)
    for restored in (wg.load(file)["tensor"], pickle.loads(pickle.dumps(tensor))):
        assert (restored.shape, restored.dtype, restored.tolist()) == (tensor.shape, dtype, tensor.tolist())


def test_saved_counts_of_batches_are_loaded(tmp_path):
    source, target = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    source(wg.rand(4, 3))
    wg.save(source.state_dict(), tmp_path / "norm.pt")
    target.load_state_dict(wg.load(tmp_path / "norm.pt"))
    assert target.num_batches_tracked.shape == ()
    assert target.num_batches_tracked.item() == 1


def test_conversion_and_gradients():
    net = Block().double()
    assert {p.dtype for p in net.parameters()} == {wg.float64}
    param = net.first.weight
    net(wg.ones(1, 4, dtype=wg.float64)).sum().backward()
    assert net.float().first.weight is param
    assert param.dtype is param.grad.dtype is wg.float32
    with pytest.raises(ValueError, match="floating dtype"):
        net.to(wg.int64)
    net.zero_grad(set_to_none=False)
    assert not param.grad.numpy().any()
    net.zero_grad()
    assert param.grad is None


def test_hooks():
    net = nn.Linear(3, 2)
    calls = []
    handles = [
        net.register_forward_pre_hook(lambda m, args: calls.append("before") or (args[0] * 2,)),
        net.register_forward_hook(lambda m, args, out: calls.append("after") or out + 1),
        net.register_full_backward_hook(
            lambda m, gi, go: calls.append(("backward", gi[0].shape, go[0].shape)) or (gi[0] * 10,)
        ),
    ]
    x = wg.ones(1, 3, requires_grad=True)
    out = net(x)
    expected = 2 * net.weight.detach().numpy().sum(1) + net.bias.detach().numpy() + 1
    np.testing.assert_allclose(out.detach().numpy()[0], expected, rtol=1e-6)
    out.sum().backward()
    assert calls == ["before", "after", ("backward", (1, 3), (1, 2))]
    np.testing.assert_allclose(x.grad.numpy()[0], 20 * net.weight.detach().numpy().sum(0), rtol=1e-5)
    for handle in handles:
        handle.remove()
    np.testing.assert_allclose(
        net(x).detach().numpy()[0], (expected - 1 + net.bias.detach().numpy()) / 2, rtol=1e-5, atol=1e-6
    )


def test_containers():
    net = nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.Tanh()))
    assert net.a is net[0]
    assert len(net[:1]) == 1
    assert list(net[:1]._modules) == ["a"]
    modules = nn.ModuleList([nn.Linear(1, 1)])
    modules.append(nn.Tanh()).extend([nn.ReLU()])
    modules.insert(0, nn.Sigmoid())
    assert [type(m).__name__ for m in modules] == ["Sigmoid", "Linear", "Tanh", "ReLU"]
    del modules[1]
    assert isinstance(modules.pop(), nn.ReLU)
    assert len(modules) == 2
    with pytest.raises(IndexError, match="out of range"):
        modules[5]
    named = nn.ModuleDict({"x": nn.Linear(1, 2)})
    named["y"] = nn.Tanh()
    assert list(named) == ["x", "y"]
    assert "x" in named
    assert len(list(named.parameters())) == 2
    params = nn.ParameterList([wg.ones(2), nn.Parameter(wg.zeros(3))])
    assert [tuple(p.shape) for p in params] == [(2,), (3,)]
    assert len(list(params.parameters())) == 2
    assert len(list(nn.ParameterDict({"a": wg.ones(1)}).parameters())) == 1


# Layers


def test_linear_and_embedding():
    x = RNG.standard_normal((2, 3, 4))
    layer = nn.Linear(4, 5, dtype=wg.float64)
    w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    np.testing.assert_allclose(layer(wg.tensor(x)).detach().numpy(), x @ w.T + b, rtol=1e-12)
    bilinear = nn.Bilinear(4, 4, 2, dtype=wg.float64)
    expected = np.einsum("abi,oij,abj->abo", x, bilinear.weight.detach().numpy(), x) + bilinear.bias.detach().numpy()
    np.testing.assert_allclose(bilinear(wg.tensor(x), wg.tensor(x)).detach().numpy(), expected, rtol=1e-10)
    table = nn.Embedding(6, 3, padding_idx=2)
    index = np.array([[1, 2], [1, 5]])
    out = table(wg.tensor(index))
    assert (out.detach().numpy() == table.weight.detach().numpy()[index]).all()
    assert not table.weight.detach().numpy()[2].any()
    out.sum().backward()
    assert table.weight.grad.numpy()[:, 0].tolist() == [0, 2, 0, 0, 0, 1]


ACTIVATIONS = {
    nn.ReLU: lambda x: np.maximum(x, 0),
    nn.ReLU6: lambda x: x.clip(0, 6),
    nn.Sigmoid: lambda x: 1 / (1 + np.exp(-x)),
    nn.Tanh: np.tanh,
    nn.LeakyReLU: lambda x: np.where(x > 0, x, 0.01 * x),
    nn.ELU: lambda x: np.where(x > 0, x, np.expm1(x)),
    nn.CELU: lambda x: np.where(x > 0, x, np.expm1(x)),
    nn.SELU: lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    nn.GELU: lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    nn.SiLU: lambda x: x / (1 + np.exp(-x)),
    nn.Mish: lambda x: x * np.tanh(np.log1p(np.exp(x))),
    nn.Softplus: lambda x: np.log1p(np.exp(x)),
    nn.Softsign: lambda x: x / (1 + abs(x)),
    nn.LogSigmoid: lambda x: -np.log1p(np.exp(-x)),
    nn.Hardtanh: lambda x: x.clip(-1, 1),
    nn.Tanhshrink: lambda x: x - np.tanh(x),
    nn.Hardswish: lambda x: x * (x + 3).clip(0, 6) / 6,
    nn.Hardsigmoid: lambda x: (x + 3).clip(0, 6) / 6,
    nn.Softshrink: lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0),
    nn.Hardshrink: lambda x: np.where(abs(x) > 0.5, x, 0),
    nn.PReLU: lambda x: np.where(x > 0, x, 0.25 * x),
    nn.GLU: lambda x: x[:, :4] / (1 + np.exp(-x[:, 4:])),
    lambda: nn.Softmax(dim=1): lambda x: softmax(x, 1),
    lambda: nn.LogSoftmax(dim=0): lambda x: np.log(softmax(x, 0)),
    lambda: nn.Softmin(dim=1): lambda x: softmax(-x, 1),
    lambda: nn.GELU(approximate="tanh"): lambda x: (
        0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    lambda: nn.Threshold(0.3, -1.0): lambda x: np.where(x > 0.3, x, -1),
}


def test_activations_and_their_gradients():
    x = RNG.standard_normal((6, 8)) * 3 + 0.013
    for make, formula in ACTIVATIONS.items():
        module = make().double()
        tensor = wg.tensor(x, requires_grad=True)
        out = module(tensor)
        weights = RNG.standard_normal(out.shape)
        np.testing.assert_allclose(out.detach().numpy(), formula(x), rtol=1e-10, atol=1e-12, err_msg=repr(module))
        (out * wg.tensor(weights)).sum().backward()
        direction, step = RNG.standard_normal(x.shape), 1e-6
        slope = ((formula(x + step * direction) - formula(x - step * direction)) * weights).sum() / (2 * step)
        np.testing.assert_allclose(
            (tensor.grad.numpy() * direction).sum(), slope, rtol=1e-5, atol=1e-7, err_msg=repr(module)
        )
    assert repr(nn.LeakyReLU(0.2)) == "LeakyReLU(negative_slope=0.2)"
    with pytest.raises(TypeError, match="unexpected keyword argument 'slope'"):
        nn.LeakyReLU(slope=1)


def test_normalisation():
    x = RNG.standard_normal((4, 6, 5)) * 2 + 1
    tensor = wg.tensor(x)

    def standardized(axes, eps=1e-5):
        return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)

    layer = nn.LayerNorm((6, 5), dtype=wg.float64)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    expected = standardized((1, 2)) * layer.weight.detach().numpy() + layer.bias.detach().numpy()
    np.testing.assert_allclose(layer(tensor).detach().numpy(), expected, rtol=1e-10, atol=1e-12)
    expected = x / np.sqrt((x * x).mean(-1, keepdims=True) + 2.0**-52)
    np.testing.assert_allclose(nn.RMSNorm(5, dtype=wg.float64)(tensor).detach().numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(F.normalize(tensor).numpy(), x / np.linalg.norm(x, axis=1, keepdims=True), rtol=1e-12)


# Initial values, utils, data


def test_initial_values():
    wg.manual_seed(0)
    layer, conv = nn.Linear(300, 200), nn.Conv2d(6, 40, 5)
    for weight, bias, fan in ((layer.weight, layer.bias, 300), (conv.weight, conv.bias, 150)):
        for values in (weight, bias):
            array, bound = values.detach().numpy(), 1 / math.sqrt(fan)
            assert 0.9 * bound < abs(array).max() <= bound
    weight = wg.empty(400, 300)
    for fill, expected in (
        (lambda: nn.init.kaiming_normal_(weight, nonlinearity="relu"), math.sqrt(2 / 300)),
        (lambda: nn.init.kaiming_uniform_(weight, mode="fan_out"), math.sqrt(2 / 400)),
        (lambda: nn.init.xavier_normal_(weight, 2.0), 2 * math.sqrt(2 / 700)),
        (lambda: nn.init.xavier_uniform_(weight), math.sqrt(2 / 700)), (lambda: nn.init.trunc_normal_(weight), 0.8796),
    ):  # fmt: skip
        assert abs(fill().numpy().std() / expected - 1) < 0.01
    assert abs(weight.numpy()).max() <= 2
    q = nn.init.orthogonal_(wg.empty(5, 8, dtype=wg.float64)).numpy()
    np.testing.assert_allclose(q @ q.T, np.eye(5), atol=1e-12)
    np.testing.assert_array_equal(nn.init.eye_(wg.empty(2, 3)).numpy(), np.eye(2, 3))
    image = wg.randn(1, 2, 5, 5)
    filtered = F.conv2d(image, nn.init.dirac_(wg.empty(2, 2, 3, 3)), padding=1)
    np.testing.assert_array_equal(filtered.numpy(), image.numpy())
    assert (nn.init.sparse_(wg.empty(10, 4), 0.3).numpy() == 0).sum(0).tolist() == [3] * 4


def test_utils():
    params = [nn.Parameter(wg.ones(2, 3)), nn.Parameter(wg.ones(4)), nn.Parameter(wg.ones(1))]
    values = [RNG.standard_normal((2, 3)), RNG.standard_normal(4)]
    for param, value in zip(params, values, strict=False):
        param.grad = wg.tensor(value, dtype=wg.float32)
    norm = math.sqrt(sum((v**2).sum() for v in values))
    assert abs(nn.utils.clip_grad_norm_(params, 0.5).item() - norm) < 1e-5
    for param, value in zip(params, values, strict=False):
        np.testing.assert_allclose(param.grad.numpy(), value * 0.5 / norm, rtol=1e-5)
    nn.utils.clip_grad_value_(params, 0.01)
    assert abs(params[0].grad.numpy()).max() <= 0.01
    vector = nn.utils.parameters_to_vector(params)
    assert vector.shape == (11,)
    nn.utils.vector_to_parameters(wg.arange(11).float(), params)
    assert params[1].tolist() == [6, 7, 8, 9]


class Squares(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, i):
        return {"x": np.full(2, i), "y": i * i, "z": (float(i), str(i))}


class Counting(IterableDataset):
    def __iter__(self):
        return iter(range(5))


def test_data():
    x, y = wg.arange(10).reshape(10, 1), wg.arange(10)
    dataset = TensorDataset(x, y)
    batches = list(DataLoader(dataset, 4))
    assert [b[1].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(DataLoader(dataset, 4, drop_last=True)) == len(list(DataLoader(dataset, 4, drop_last=True))) == 2
    orders = []
    for _ in range(2):
        loader = DataLoader(dataset, 3, shuffle=True, generator=wg.Generator().manual_seed(1))
        shuffled_batches = list(loader)
        assert all(a.shape == (len(b), 1) for a, b in shuffled_batches)
        orders.append([n for _, b in shuffled_batches for n in b.tolist()])
        assert orders[-1] != [n for _, b in loader for n in b.tolist()]  # another order the second time
    assert orders[0] == orders[1] != list(range(10))
    assert sorted(orders[0]) == list(range(10))
    batch = next(iter(DataLoader(Squares(), 3)))
    assert batch["x"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert batch["y"].tolist() == [0, 1, 4]
    assert batch["z"][0].dtype is wg.float64
    assert batch["z"][1] == ("0", "1", "2")
    assert [b.tolist() for b in DataLoader(Counting(), 2)] == [[0, 1], [2, 3], [4]]
    assert len(ConcatDataset([dataset, Squares()])) == 17
    assert (Squares() + Squares())[-1]["y"] == 36
    parts = random_split(dataset, [0.5, 0.3, 0.2], wg.Generator().manual_seed(0))
    assert [len(p) for p in parts] == [5, 3, 2]
    assert sorted(p[i][1].item() for p in parts for i in range(len(p))) == list(range(10))
    with pytest.raises(ValueError, match="positive int"):
        DataLoader(dataset, 0)


def test_data_parallel_calls_its_module():
    model = nn.DataParallel(nn.Linear(2, 3))
    x = wg.ones(4, 2)
    np.testing.assert_array_equal(model(x).detach().numpy(), model.module(x).detach().numpy())
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    on_cpu = nn.DataParallel(nn.Linear(2, 3), device_ids=["cpu"])
    assert on_cpu(input=x).shape == (4, 3)
    assert nn.parallel.data_parallel(model.module, x).shape == (4, 3)
    with pytest.raises(NotImplementedError, match="DataParallel: device_ids names 2 devices"):
        nn.DataParallel(nn.Linear(2, 3), device_ids=[0, 1])
