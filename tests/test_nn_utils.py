"""What is done to modules and their parameters as a whole: nn.utils, nn.init, func, averages of weights; in NumPy."""

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


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def values(tensor):
    return tensor.detach().numpy().astype(np.float64)


def close(found, expected, tolerance=2e-5):
    np.testing.assert_allclose(values(found), expected, rtol=tolerance, atol=tolerance)


def linear(*shape):
    """A Linear with these sizes (outputs first), and its weight and bias in float64."""
    weight, bias = array(*shape), array(shape[0])
    made = nn.Linear(shape[1], shape[0])
    made.load_state_dict({"weight": weight, "bias": bias})
    return made, weight.astype(np.float64), bias.astype(np.float64)


# Gradients and vectors ------------------------------------------------------------------------------------------------


def test_gradients_are_clipped_without_waiting(monkeypatch):
    params = [nn.Parameter(wg.ones(2, 3)), nn.Parameter(wg.ones(4)), nn.Parameter(wg.ones(1))]
    grads = [array(2, 3), array(4)]
    flat = np.concatenate([g.ravel() for g in grads]).astype(np.float64)

    def give():
        for param, grad in zip(params, grads, strict=False):
            param.grad = wg.tensor(grad)

    for order in (2.0, math.inf):
        expected = np.linalg.norm(flat, order)
        for limit in (expected / 2, expected * 2):
            give()
            with monkeypatch.context() as patched:
                patched.setattr("weftgrad._hosting.host_array", lambda *_: pytest.fail("the host waited"))
                found = nn.utils.clip_grad_norm_(params, limit, order, foreach=True)
            close(found, expected)
            for param, grad in zip(params, grads, strict=False):
                close(param.grad, grad * min(1, limit / (expected + 1e-6)))
    nn.utils.clip_grad_value_(iter(params), 0.1)
    close(params[1].grad, np.clip(values(params[1].grad), -0.1, 0.1))
    give()
    nn.utils.clip_grads_with_norm_(params[0], 1.0, wg.tensor(4.0))
    close(params[0].grad, grads[0] / 4)
    assert nn.utils.clip_grad_norm_([], 1.0).item() == 0
    params[0].grad = wg.full((2, 3), math.nan)
    with pytest.raises(RuntimeError, match=r"norm of order 2\.0 of 2 tensors is nan"):
        nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert not np.isnan(values(params[1].grad)).any()
    with pytest.warns(UserWarning, match="empty"):
        nn.utils.clip_grad_norm_(iter([]), 1.0)
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        nn.utils.clip_grad_norm(params[1], 1.0)


def test_clipping_again_writes_no_table_again(monkeypatch):
    params = [nn.Parameter(wg.zeros(2, 3)), nn.Parameter(wg.zeros(4))]
    for param in params:
        param.grad = wg.zeros_like(param)
    for number in range(1, 4):
        if number == 2:  # gradients lie where they lay, and the factor as well
            monkeypatch.setattr(MultiTensor, "_place", lambda *_: pytest.fail("the table was written again"))
        for param in params:
            param.grad.fill_(float(number))
        close(nn.utils.clip_grad_norm_(params, 1.0), number * math.sqrt(10))
        for param in params:
            close(param.grad, np.full(param.shape, 1 / math.sqrt(10)))


def test_parameters_share_a_vector():
    params = [nn.Parameter(wg.ones(2, 3)), nn.Parameter(wg.ones(4))]
    vector = wg.tensor(np.arange(10, dtype=np.float32))
    nn.utils.vector_to_parameters(vector, params)
    vector.zero_()
    assert params[0].tolist() == [[0] * 3] * 2
    assert params[0].requires_grad
    nn.utils.parameters_to_vector(params).sum().backward()
    assert params[1].grad.tolist() == [1] * 4
    for wrong in (3, wg.ones(9)):
        with pytest.raises(TypeError, match="vector_to_parameters"):
            nn.utils.vector_to_parameters(wrong, params)


# Weights computed from others -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, None])
def test_weight_norm_is_a_length_and_a_direction(dim):
    first, weight, bias = linear(2, 3)
    x, out = array(4, 3), array(4, 2)
    slope = out.T.astype(np.float64) @ x  # of the weight
    axes = (1,) if dim == 0 else (0, 1)
    length = np.sqrt((weight**2).sum(axes, keepdims=dim == 0))
    unit = weight / length
    along = (slope * unit).sum(axes, keepdims=dim == 0)
    made = {"old": nn.utils.weight_norm(first, dim=dim), "new": parametrizations.weight_norm(linear(2, 3)[0], dim=dim)}
    made["new"].load_state_dict(made["old"].state_dict())  # under the old names
    for kind, layer in made.items():
        found = layer(wg.tensor(x))
        close(found, x @ weight.T + bias)
        (found * wg.tensor(out)).sum().backward()
        g, v = (
            (layer.weight_g, layer.weight_v)
            if kind == "old"
            else (layer.parametrizations.weight.original0, layer.parametrizations.weight.original1)
        )
        close(g, length)
        close(g.grad, along)
        close(v.grad, slope - along * unit)  # g / ||v|| is 1 at the start
    with pytest.raises(RuntimeError, match="already"):
        nn.utils.weight_norm(first)
    with wg.no_grad():
        first.weight_g.mul_(2)
    nn.utils.remove_weight_norm(first)
    close(first.weight, 2 * weight)
    assert [name for name, _ in first.named_parameters()] == ["bias", "weight"]
    with pytest.raises(ValueError, match="none on 'weight'"):
        nn.utils.remove_weight_norm(first)


def test_spectral_norm_divides_by_the_largest_singular_value():
    for spectral in (nn.utils.spectral_norm, parametrizations.spectral_norm):
        layer, weight, _ = linear(3, 4)
        spectral(layer, n_power_iterations=40)
        x = wg.tensor(array(1, 4))
        layer(x)
        close(layer.weight, weight / np.linalg.svd(weight)[1][0], 1e-4)
        state = layer.state_dict()
        layer.eval()
        before = layer(x).tolist()
        rough = spectral(linear(3, 4)[0]).eval()
        assert rough(x).tolist() == rough(x).tolist()  # evaluation leaves the vectors alone
        again = spectral(linear(3, 4)[0], n_power_iterations=40).eval()
        again.load_state_dict(state)
        assert again(x).tolist() == before
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert layer(x).tolist() == before
    layer = nn.utils.spectral_norm(nn.ConvTranspose1d(2, 3, 2))
    assert layer.weight_u.shape == (3,)  # one an output channel
    assert layer.state_dict()._metadata[""]["spectral_norm"] == {"weight.version": 1}
    nn.utils.remove_spectral_norm(layer)
    assert not layer._state_dict_hooks
    with pytest.raises(ValueError, match="none on 'weight'"):
        nn.utils.remove_spectral_norm(layer)
    with pytest.raises(IndexError, match="dimension 5"):
        parametrizations.spectral_norm(layer, dim=5)
    with pytest.raises(ValueError, match="positive"):
        nn.utils.spectral_norm(layer, n_power_iterations=0)


@pytest.mark.parametrize(("shape", "way"), [((3, 3), "matrix_exp"), ((3, 3), "cayley"), ((4, 2), "householder")])
def test_orthogonal_weights_stay_so(shape, way):
    layer = parametrizations.orthogonal(linear(*shape)[0], orthogonal_map=way)
    start = np.linalg.qr(array(*shape).astype(np.float64))[0]
    layer.weight = wg.tensor(start.astype(np.float32))
    close(layer.weight, start)
    original = layer.parametrizations.weight.original
    (layer.weight * wg.tensor(array(*shape))).sum().backward()
    assert abs(original.grad.numpy()).max() > 0.01
    with wg.no_grad():
        original.sub_(original.grad * 0.3)
    found = values(layer.weight)
    assert abs(found - start).max() > 0.01
    np.testing.assert_allclose(found.T @ found, np.eye(shape[1]), atol=1e-5)
    with pytest.raises(ValueError, match="orthogonal_map"):
        parametrizations.orthogonal(layer, orthogonal_map="unknown")
    turn = np.array([[0, -3.0], [3.0, 0]], np.float32)  # e^A is a rotation by 3
    close(matrix_exp(wg.tensor(turn)), [[math.cos(3), -math.sin(3)], [math.sin(3), math.cos(3)]])


class Doubled(nn.Module):
    calls = 0

    def forward(self, x):
        Doubled.calls += 1
        return x * 2


class Halved(Doubled):
    def right_inverse(self, x):
        return x * 0.5


def test_parametrizations_come_and_go():
    layer, weight, _ = linear(2, 2)
    before = layer.weight
    parametrize.register_parametrization(layer, "weight", Halved())
    assert layer.parametrizations.weight.original is before
    close(layer.weight, weight)
    assert isinstance(layer, nn.Linear)
    assert type(layer).__name__ == "ParametrizedLinear"
    assert [name for name, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    layer.weight = wg.tensor(np.float32(weight * 3))
    close(before, weight * 1.5)
    copied = copy.deepcopy(layer)
    parametrize.remove_parametrizations(copied, "weight")
    close(layer.weight, weight * 3)  # the copy's class is its own
    parametrize.register_parametrization(layer, "weight", Doubled())
    close(layer.weight, weight * 6)
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
    assert layer.weight is before
    assert type(layer) is nn.Linear
    layer.register_buffer("state", wg.ones(1))
    parametrize.register_parametrization(layer, "state", Doubled())
    assert [name for name, _ in layer.named_buffers()] == ["parametrizations.state.original"]
    other = parametrize.transfer_parametrizations_and_params(layer, nn.Linear(2, 2))
    assert other.state.item() == 2
    assert parametrize.is_parametrized(other, "state")
    assert parametrize.type_before_parametrizations(other) is nn.Linear


# Modules as functions, fused, without values --------------------------------------------------------------------------


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

    net, weight, x = Tied(), array(2, 2), array(1, 2)
    given = {"a.weight": wg.tensor(weight, requires_grad=True), "count": wg.ones(1)}
    own = net.a.weight
    found = functional_call(net, given, (wg.tensor(x),), {"scale": 2.0}, strict=True)
    close(found, 2 * x @ weight.T.astype(np.float64) @ weight.T)
    assert (net.a.weight is own, net.count.item(), given["count"].item()) == (True, 0, 2)
    found.sum().backward()
    assert given["a.weight"].grad is not None
    assert own.grad is None
    apart = {"a.weight": wg.tensor(weight), "b.weight": wg.tensor(2 * weight)}
    close(functional_call(net, apart, wg.tensor(x), tie_weights=False), 2 * x @ weight.T.astype(np.float64) @ weight.T)
    for error, call in (
        (ValueError, lambda: functional_call(net, apart, wg.tensor(x))),
        (AttributeError, lambda: functional_call(net, {"c": wg.ones(1)}, wg.ones(1, 2))),
        (RuntimeError, lambda: functional_call(net, {"a.weight": own}, wg.ones(1, 2), strict=True)),
        (ValueError, lambda: functional_call(net, [apart, apart], wg.ones(1, 2))),
        (TypeError, lambda: functional_call(net, {"a.weight": weight}, wg.ones(1, 2))),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    assert net.a.weight is own


def test_normalisation_folds_into_the_layer_before():
    layer, weight, bias = linear(3, 2)
    norm = nn.BatchNorm1d(3)
    mean, var, scale, shift = array(3), array(3) ** 2 + 0.5, array(3), array(3)
    norm.load_state_dict(
        {"running_mean": mean, "running_var": var, "weight": scale, "bias": shift, "num_batches_tracked": np.int64(1)}
    )
    with pytest.raises(ValueError, match="evaluation"):
        nn.utils.fuse_linear_bn_eval(layer, norm)
    factor = scale / np.sqrt(var.astype(np.float64) + 1e-5)
    fused = nn.utils.fuse_linear_bn_eval(layer.eval(), norm.eval())
    close(fused.weight, weight * factor[:, None])
    close(fused.bias, (bias - mean) * factor + shift)
    conv = nn.Conv1d(2, 3, 1, bias=False)
    conv.load_state_dict({"weight": weight[:, :, None]})
    fused = nn.utils.fuse_conv_bn_eval(conv.eval(), norm)
    close(fused.weight, (weight * factor[:, None])[:, :, None])
    close(fused.bias, shift - mean * factor)
    assert conv.bias is None
    assert not fused.bias.requires_grad


def test_initial_values_can_be_left_out():
    wg.manual_seed(0)
    made = nn.utils.skip_init(nn.Linear, 3, 4, bias=False)
    assert (tuple(made.weight.shape), wg.random.default_generator.offset) == ((4, 3), 0)
    for wrong in (nn.ReLU, 3):
        with pytest.raises(RuntimeError, match="skip_init"):
            nn.utils.skip_init(wrong)
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
    with pytest.warns(UserWarning, match="2 deviations"):
        nn.init.trunc_normal_(wg.empty(1), 9.0)
    with pytest.warns(UserWarning, match="no elements"):
        nn.init.kaiming_uniform_(wg.empty(0, 2))
    with pytest.warns(FutureWarning, match="constant_"):
        assert nn.init.constant(wg.empty(2), 3).tolist() == [3, 3]
    one, two = (wg.Generator().manual_seed(1) for _ in range(2))
    drawn = nn.init.xavier_uniform_(wg.empty(2, 2), generator=one)
    assert drawn.tolist() == nn.init.xavier_uniform_(wg.empty(2, 2), generator=two).tolist()


# Averages of weights --------------------------------------------------------------------------------------------------


def test_averages_of_models():
    steps = [array(2, 2) for _ in range(4)]
    even = np.mean(steps, axis=0)
    moving = steps[0].astype(np.float64)
    for now in steps[1:]:
        moving = 0.9 * moving + 0.1 * now
    for expected, options in (
        (even, {}), (even, {"avg_fn": swa_utils.get_swa_avg_fn()}), (moving, {"avg_fn": swa_utils.get_ema_avg_fn(0.9)}),
        (moving, {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9), "use_buffers": True}),
    ):  # fmt: skip
        model = nn.Linear(2, 2, bias=False)
        model.register_buffer("state", wg.zeros(2, 2))
        average = swa_utils.AveragedModel(model, **options)
        for now in steps:
            model.load_state_dict({"weight": now, "state": now})
            average.update_parameters(model)
        close(average.module.weight, expected)
        close(average.module.state, moving if "use_buffers" in options else steps[-1])
        assert sorted(average.state_dict()) == ["module.state", "module.weight", "n_averaged"]
        assert average.n_averaged.item() == 4
        assert average.module.weight is not model.weight
        close(average(wg.ones(1, 2)), expected.sum(1)[None])
    with pytest.raises(ValueError, match="not both"):
        swa_utils.AveragedModel(model, avg_fn=max, multi_avg_fn=max)
    with pytest.raises(ValueError, match="between 0 and 1"):
        swa_utils.get_ema_multi_avg_fn(1.5)


def test_running_statistics_are_computed_anew():
    norm = nn.BatchNorm1d(2)
    norm.eval()
    batches = [array(4, 2), array(4, 2)]
    swa_utils.update_bn([(wg.tensor(b), None) for b in batches], nn.Sequential(norm).eval())
    close(norm.running_mean, np.mean([b.mean(0) for b in batches], axis=0))
    close(norm.running_var, np.mean([b.var(0, ddof=1) for b in batches], axis=0))
    assert (norm.momentum, norm.training, norm.num_batches_tracked.item()) == (0.1, False, 2)


@pytest.mark.parametrize("way", ["cos", "linear"])
def test_rates_anneal_to_that_of_averaging(way):
    optimizer = SGD([nn.Parameter(wg.ones(1))], lr=1.0)
    schedule = swa_utils.SWALR(optimizer, 0.2, anneal_epochs=4, anneal_strategy=way)
    found = [optimizer.param_groups[0]["lr"]]
    for _ in range(6):
        optimizer.step()
        schedule.step()
        found.append(schedule.get_last_lr()[0])
    done = [min(1, t / 4) for t in range(7)]
    part = done if way == "linear" else [(1 - math.cos(math.pi * t)) / 2 for t in done]
    assert found == pytest.approx([0.2 * p + 1.0 * (1 - p) for p in part])
    for rate, epochs, wrong in (([0.1, 0.2], 4, way), (0.1, 4, "x"), (0.1, -1, way)):
        with pytest.raises(ValueError, match="SWALR"):
            swa_utils.SWALR(optimizer, rate, epochs, wrong)
