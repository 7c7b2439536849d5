"""Check nn.utils, nn.init, func.functional_call and weight averaging against NumPy formulas."""

import copy
import math
import pickle

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.func import functional_call
from weftgrad.nn.utils import parametrizations, parametrize
from weftgrad.nn.utils._orthogonal import matrix_exp
from weftgrad.optim import SGD, swa_utils
from weftgrad.runtime.multi_tensor import MultiTensor

RNG = np.random.default_rng(5)


def random_array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def as_float64(tensor):
    return tensor.detach().numpy().astype(np.float64)


def assert_close(actual, expected, tolerance=2e-5):
    np.testing.assert_allclose(as_float64(actual), expected, rtol=tolerance, atol=tolerance)


def linear(*shape):
    """Return a Linear of shape (outputs, inputs), and its weight and bias in float64."""
    weight, bias = random_array(*shape), random_array(shape[0])
    layer = nn.Linear(shape[1], shape[0])
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer, weight.astype(np.float64), bias.astype(np.float64)


# Gradients and vectors ------------------------------------------------------------------------------------------------


def test_gradients_are_clipped_without_waiting(monkeypatch):
    params = [nn.Parameter(wg.ones(2, 3)), nn.Parameter(wg.ones(4)), nn.Parameter(wg.ones(1))]
    grads = [random_array(2, 3), random_array(4)]
    flat = np.concatenate([g.ravel() for g in grads]).astype(np.float64)

    def set_gradients():
        for param, grad in zip(params, grads, strict=False):
            param.grad = wg.tensor(grad)

    for order in (2.0, math.inf):
        expected = np.linalg.norm(flat, order)
        for limit in (expected / 2, expected * 2):
            set_gradients()
            with monkeypatch.context() as patched:
                patched.setattr("weftgrad.runtime.host_data.host_array", lambda *_: pytest.fail("the host waited"))
                norm = nn.utils.clip_grad_norm_(params, limit, order, foreach=True)
            assert_close(norm, expected)
            for param, grad in zip(params, grads, strict=False):
                assert_close(param.grad, grad * min(1, limit / (expected + 1e-6)))
    nn.utils.clip_grad_value_(iter(params), 0.1)
    assert_close(params[1].grad, np.clip(as_float64(params[1].grad), -0.1, 0.1))
    set_gradients()
    nn.utils.clip_grads_with_norm_(params[0], 1.0, wg.tensor(4.0))
    assert_close(params[0].grad, grads[0] / 4)
    assert nn.utils.clip_grad_norm_([], 1.0).item() == 0
    params[0].grad = wg.full((2, 3), math.nan)
    with pytest.raises(RuntimeError, match=r"norm of order 2\.0 of 2 tensors is nan"):
        nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert not np.isnan(as_float64(params[1].grad)).any()
    with pytest.warns(UserWarning, match="empty"):
        nn.utils.clip_grad_norm_(iter([]), 1.0)
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        nn.utils.clip_grad_norm(params[1], 1.0)


def test_repeated_clipping_reuses_its_address_table(monkeypatch):
    params = [nn.Parameter(wg.zeros(2, 3)), nn.Parameter(wg.zeros(4))]
    for param in params:
        param.grad = wg.zeros_like(param)
    for number in range(1, 4):
        if number == 2:  # the addresses of the gradients and of the factor are unchanged
            monkeypatch.setattr(MultiTensor, "_write_tables", lambda *_: pytest.fail("the table was written again"))
        for param in params:
            param.grad.fill_(float(number))
        assert_close(nn.utils.clip_grad_norm_(params, 1.0), number * math.sqrt(10))
        for param in params:
            assert_close(param.grad, np.full(param.shape, 1 / math.sqrt(10)))


def test_parameters_share_a_vector():
    params = [nn.Parameter(wg.ones(2, 3)), nn.Parameter(wg.ones(4))]
    vector = wg.tensor(np.arange(10, dtype=np.float32))
    nn.utils.vector_to_parameters(vector, params)
    vector.zero_()
    assert params[0].tolist() == [[0] * 3] * 2
    assert params[0].requires_grad
    nn.utils.parameters_to_vector(params).sum().backward()
    assert params[1].grad.tolist() == [1] * 4
    for invalid in (3, wg.ones(9)):
        with pytest.raises(TypeError, match="vector_to_parameters"):
            nn.utils.vector_to_parameters(invalid, params)


# Parametrized weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, None])
def test_weight_norm_is_a_length_and_a_direction(dim):
    first, weight, bias = linear(2, 3)
    x, out = random_array(4, 3), random_array(4, 2)
    slope = out.T.astype(np.float64) @ x  # gradient of the weight
    axes = (1,) if dim == 0 else (0, 1)
    length = np.sqrt((weight**2).sum(axes, keepdims=dim == 0))
    unit = weight / length
    grad_length = (slope * unit).sum(axes, keepdims=dim == 0)
    layers = {
        "old": nn.utils.weight_norm(first, dim=dim),
        "new": parametrizations.weight_norm(linear(2, 3)[0], dim=dim),
    }
    layers["new"].load_state_dict(layers["old"].state_dict())  # saved under the old names
    for kind, layer in layers.items():
        output = layer(wg.tensor(x))
        assert_close(output, x @ weight.T + bias)
        (output * wg.tensor(out)).sum().backward()
        g, v = (
            (layer.weight_g, layer.weight_v)
            if kind == "old"
            else (layer.parametrizations.weight.original0, layer.parametrizations.weight.original1)
        )
        assert_close(g, length)
        assert_close(g.grad, grad_length)
        assert_close(v.grad, slope - grad_length * unit)  # initially g / ||v|| is 1
    with pytest.raises(RuntimeError, match="already"):
        nn.utils.weight_norm(first)
    with wg.no_grad():
        first.weight_g.mul_(2)
    nn.utils.remove_weight_norm(first)
    assert_close(first.weight, 2 * weight)
    assert [name for name, _ in first.named_parameters()] == ["bias", "weight"]
    with pytest.raises(ValueError, match="none on 'weight'"):
        nn.utils.remove_weight_norm(first)


def test_spectral_norm_divides_by_the_largest_singular_value():
    for spectral in (nn.utils.spectral_norm, parametrizations.spectral_norm):
        layer, weight, _ = linear(3, 4)
        spectral(layer, n_power_iterations=40)
        x = wg.tensor(random_array(1, 4))
        layer(x)
        assert_close(layer.weight, weight / np.linalg.svd(weight)[1][0], 1e-4)
        state = layer.state_dict()
        layer.eval()
        outputs = layer(x).tolist()
        unconverged = spectral(linear(3, 4)[0]).eval()
        assert unconverged(x).tolist() == unconverged(x).tolist()  # evaluation does not update the vectors
        restored = spectral(linear(3, 4)[0], n_power_iterations=40).eval()
        restored.load_state_dict(state)
        assert restored(x).tolist() == outputs
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert layer(x).tolist() == outputs
    layer = nn.utils.spectral_norm(nn.ConvTranspose1d(2, 3, 2))
    assert layer.weight_u.shape == (3,)  # one element per output channel
    assert layer.state_dict()._metadata[""]["spectral_norm"] == {"weight.version": 1}
    nn.utils.remove_spectral_norm(layer)
    assert not layer._state_dict_hooks
    with pytest.raises(ValueError, match="none on 'weight'"):
        nn.utils.remove_spectral_norm(layer)
    with pytest.raises(IndexError, match="dimension 5"):
        parametrizations.spectral_norm(layer, dim=5)
    with pytest.raises(ValueError, match="positive"):
        nn.utils.spectral_norm(layer, n_power_iterations=0)


@pytest.mark.parametrize(
    ("shape", "orthogonal_map"), [((3, 3), "matrix_exp"), ((3, 3), "cayley"), ((4, 2), "householder")]
)
def test_orthogonal_weights_stay_orthogonal(shape, orthogonal_map):
    layer = parametrizations.orthogonal(linear(*shape)[0], orthogonal_map=orthogonal_map)
    start = np.linalg.qr(random_array(*shape).astype(np.float64))[0]
    layer.weight = wg.tensor(start.astype(np.float32))
    assert_close(layer.weight, start)
    original = layer.parametrizations.weight.original
    (layer.weight * wg.tensor(random_array(*shape))).sum().backward()
    assert abs(original.grad.numpy()).max() > 0.01
    with wg.no_grad():
        original.sub_(original.grad * 0.3)
    weight = as_float64(layer.weight)
    assert abs(weight - start).max() > 0.01
    np.testing.assert_allclose(weight.T @ weight, np.eye(shape[1]), atol=1e-5)
    with pytest.raises(ValueError, match="orthogonal_map"):
        parametrizations.orthogonal(layer, orthogonal_map="unknown")
    skew = np.array([[0, -3.0], [3.0, 0]], np.float32)  # e^A is a rotation by 3
    assert_close(matrix_exp(wg.tensor(skew)), [[math.cos(3), -math.sin(3)], [math.sin(3), math.cos(3)]])


class Doubled(nn.Module):
    calls = 0

    def forward(self, x):
        Doubled.calls += 1
        return x * 2


class Halved(Doubled):
    def right_inverse(self, x):
        return x * 0.5


def test_parametrizations_are_registered_and_removed():
    layer, weight, _ = linear(2, 2)
    parameter = layer.weight
    parametrize.register_parametrization(layer, "weight", Halved())
    assert layer.parametrizations.weight.original is parameter
    assert_close(layer.weight, weight)
    assert isinstance(layer, nn.Linear)
    assert type(layer).__name__ == "ParametrizedLinear"
    assert [name for name, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    layer.weight = wg.tensor(np.float32(weight * 3))
    assert_close(parameter, weight * 1.5)
    copied = copy.deepcopy(layer)
    parametrize.remove_parametrizations(copied, "weight")
    assert_close(layer.weight, weight * 3)  # the copy has its own class
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert_close(layer.weight, weight * 6)
    for error, call in (
        (RuntimeError, lambda: setattr(layer, "weight", wg.ones(2, 2))), (RuntimeError, lambda: pickle.dumps(layer)),
        (KeyError, lambda: setattr(layer, "weight", nn.Parameter(wg.ones(2, 2)))),
        (ValueError, lambda: parametrize.register_parametrization(layer, "weight", nn.Flatten(0))),
        (ValueError, lambda: parametrize.register_parametrization(layer, "none", Doubled())),
        (ValueError, lambda: parametrize.remove_parametrizations(layer, "bias")),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    Doubled.calls = 0
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert Doubled.calls == 2
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is parameter
    assert type(layer) is nn.Linear
    layer.register_buffer("state", wg.ones(1))
    parametrize.register_parametrization(layer, "state", Doubled())
    assert [name for name, _ in layer.named_buffers()] == ["parametrizations.state.original"]
    target = parametrize.transfer_parametrizations_and_params(layer, nn.Linear(2, 2))
    assert target.state.item() == 2
    assert parametrize.is_parametrized(target, "state")
    assert parametrize.type_before_parametrizations(target) is nn.Linear


# Functional calls, fusion, skipped initialisation ---------------------------------------------------------------------


def test_modules_are_functions_of_their_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight
            self.register_buffer("count", wg.zeros(1))

        def forward(self, x, scale=1.0):
            self.count = self.count + 1
            return self.b(self.a(x)) * scale

    net, weight, x = Tied(), random_array(2, 2), random_array(1, 2)
    tensors = {"a.weight": wg.tensor(weight, requires_grad=True), "count": wg.ones(1)}
    parameter = net.a.weight
    output = functional_call(net, tensors, (wg.tensor(x),), {"scale": 2.0}, strict=True)
    assert_close(output, 2 * x @ weight.T.astype(np.float64) @ weight.T)
    assert (net.a.weight is parameter, net.count.item(), tensors["count"].item()) == (True, 0, 2)
    output.sum().backward()
    assert tensors["a.weight"].grad is not None
    assert parameter.grad is None
    untied = {"a.weight": wg.tensor(weight), "b.weight": wg.tensor(2 * weight)}
    assert_close(
        functional_call(net, untied, wg.tensor(x), tie_weights=False), 2 * x @ weight.T.astype(np.float64) @ weight.T
    )
    for error, call in (
        (ValueError, lambda: functional_call(net, untied, wg.tensor(x))),
        (AttributeError, lambda: functional_call(net, {"c": wg.ones(1)}, wg.ones(1, 2))),
        (RuntimeError, lambda: functional_call(net, {"a.weight": parameter}, wg.ones(1, 2), strict=True)),
        (ValueError, lambda: functional_call(net, [untied, untied], wg.ones(1, 2))),
        (TypeError, lambda: functional_call(net, {"a.weight": weight}, wg.ones(1, 2))),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    assert net.a.weight is parameter


def test_functional_call_of_a_module_that_is_registered_twice():
    shared = nn.Linear(2, 2)
    net = nn.Sequential(shared, shared)
    own_weight = shared.weight
    functional_call(net, {"0.weight": wg.zeros(2, 2)}, wg.ones(1, 2))
    assert shared.weight is own_weight
    tensors = {"0.weight": wg.zeros(2, 2), "1.weight": wg.zeros(2, 2)}
    passed = dict(tensors)
    functional_call(net, tensors, wg.ones(1, 2), tie_weights=False)
    assert shared.weight is own_weight
    assert tensors["1.weight"] is passed["1.weight"]


def test_normalisation_folds_into_the_layer_before():
    layer, weight, bias = linear(3, 2)
    norm = nn.BatchNorm1d(3)
    mean, var, scale, shift = random_array(3), random_array(3) ** 2 + 0.5, random_array(3), random_array(3)
    norm.load_state_dict(
        {"running_mean": mean, "running_var": var, "weight": scale, "bias": shift, "num_batches_tracked": np.int64(1)}
    )
    with pytest.raises(ValueError, match="evaluation"):
        nn.utils.fuse_linear_bn_eval(layer, norm)
    factor = scale / np.sqrt(var.astype(np.float64) + 1e-5)
    fused = nn.utils.fuse_linear_bn_eval(layer.eval(), norm.eval())
    assert_close(fused.weight, weight * factor[:, None])
    assert_close(fused.bias, (bias - mean) * factor + shift)
    conv = nn.Conv1d(2, 3, 1, bias=False)
    conv.load_state_dict({"weight": weight[:, :, None]})
    fused = nn.utils.fuse_conv_bn_eval(conv.eval(), norm)
    assert_close(fused.weight, (weight * factor[:, None])[:, :, None])
    assert_close(fused.bias, shift - mean * factor)
    assert conv.bias is None
    assert not fused.bias.requires_grad


def test_skipped_and_computed_initial_values():
    wg.manual_seed(0)
    layer = nn.utils.skip_init(nn.Linear, 3, 4, bias=False)
    assert (tuple(layer.weight.shape), wg.random.default_generator.offset) == ((4, 3), 0)
    for module_class in (nn.ReLU, 3):
        with pytest.raises(RuntimeError, match="skip_init"):
            nn.utils.skip_init(module_class)
    gains = {"linear": 1, "relu": math.sqrt(2), "tanh": 5 / 3, "selu": 0.75, "leaky_relu": math.sqrt(2 / 1.0001)}
    assert {name: nn.init.calculate_gain(name) for name in gains} == pytest.approx(gains)
    assert nn.init._calculate_fan_in_and_fan_out(wg.empty(2, 3, 4)) == (12, 8)
    assert nn.init.calculate_gain("leaky_relu", 0.5) == pytest.approx(math.sqrt(1.6))
    for call in (
        lambda: nn.init.calculate_gain("unknown"), lambda: nn.init.calculate_gain("leaky_relu", True),
        lambda: nn.init.xavier_normal_(wg.ones(3)), lambda: nn.init.kaiming_normal_(wg.ones(3, 3), mode="x"),
        lambda: nn.init.eye_(wg.ones(3)), lambda: nn.init.dirac_(wg.ones(3, 3, 3), 2),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            call()
    with pytest.warns(UserWarning, match="2 standard deviations"):
        nn.init.trunc_normal_(wg.empty(1), 9.0)
    with pytest.warns(UserWarning, match="without elements"):
        nn.init.kaiming_uniform_(wg.empty(0, 2))
    with pytest.warns(FutureWarning, match="constant_"):
        assert nn.init.constant(wg.empty(2), 3).tolist() == [3, 3]
    generator, same_generator = (wg.Generator().manual_seed(1) for _ in range(2))
    weight = nn.init.xavier_uniform_(wg.empty(2, 2), generator=generator)
    assert weight.tolist() == nn.init.xavier_uniform_(wg.empty(2, 2), generator=same_generator).tolist()


# Averages of weights --------------------------------------------------------------------------------------------------


def test_averages_of_models():
    steps = [random_array(2, 2) for _ in range(4)]
    mean = np.mean(steps, axis=0)
    ema = steps[0].astype(np.float64)
    for weight in steps[1:]:
        ema = 0.9 * ema + 0.1 * weight
    for expected, options in (
        (mean, {}), (mean, {"avg_fn": swa_utils.get_swa_avg_fn()}), (ema, {"avg_fn": swa_utils.get_ema_avg_fn(0.9)}),
        (ema, {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9), "use_buffers": True}),
    ):  # fmt: skip
        model = nn.Linear(2, 2, bias=False)
        model.register_buffer("state", wg.zeros(2, 2))
        average = swa_utils.AveragedModel(model, **options)
        for weight in steps:
            model.load_state_dict({"weight": weight, "state": weight})
            average.update_parameters(model)
        assert_close(average.module.weight, expected)
        assert_close(average.module.state, ema if "use_buffers" in options else steps[-1])
        assert sorted(average.state_dict()) == ["module.state", "module.weight", "n_averaged"]
        assert average.n_averaged.item() == 4
        assert average.module.weight is not model.weight
        assert_close(average(wg.ones(1, 2)), expected.sum(1)[None])
    with pytest.raises(ValueError, match="not both"):
        swa_utils.AveragedModel(model, avg_fn=max, multi_avg_fn=max)
    with pytest.raises(ValueError, match="between 0 and 1"):
        swa_utils.get_ema_multi_avg_fn(1.5)


def test_update_bn_recomputes_running_statistics():
    norm = nn.BatchNorm1d(2)
    norm.eval()
    batches = [random_array(4, 2), random_array(4, 2)]
    swa_utils.update_bn([(wg.tensor(b), None) for b in batches], nn.Sequential(norm).eval())
    assert_close(norm.running_mean, np.mean([b.mean(0) for b in batches], axis=0))
    assert_close(norm.running_var, np.mean([b.var(0, ddof=1) for b in batches], axis=0))
    assert (norm.momentum, norm.training, norm.num_batches_tracked.item()) == (0.1, False, 2)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_learning_rates_of_weight_averaging(strategy):
    optimizer = SGD([nn.Parameter(wg.ones(1))], lr=1.0)
    schedule = swa_utils.SWALR(optimizer, 0.2, anneal_epochs=4, anneal_strategy=strategy)
    rates = [optimizer.param_groups[0]["lr"]]
    for _ in range(6):
        optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    progress = [min(1, t / 4) for t in range(7)]
    fractions = progress if strategy == "linear" else [(1 - math.cos(math.pi * t)) / 2 for t in progress]
    assert rates == pytest.approx([0.2 * p + 1.0 * (1 - p) for p in fractions])
    for rate, epochs, invalid_strategy in (([0.1, 0.2], 4, strategy), (0.1, 4, "x"), (0.1, -1, strategy)):
        with pytest.raises(ValueError, match="SWALR"):
            swa_utils.SWALR(optimizer, rate, epochs, invalid_strategy)
