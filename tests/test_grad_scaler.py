"""Gradient scaling against a simulation: the factor, steps left out, gradients in place, state, wrong use."""

import pickle

import numpy as np
import pytest
from vendors import posing

import weftgrad as wg
from weftgrad.amp._unscaling import Unscaling
from weftgrad.runtime.errors import ScalerError, WeftgradError


def parameters(count=2, dtype=wg.float32):
    return [wg.nn.Parameter(wg.tensor([1.0, 2.0], dtype=dtype, device="cpu")) for _ in range(count)]


def give(params, *gradients):
    """Set gradients as backward would leave them."""
    for p, g in zip(params, gradients, strict=True):
        p.grad = None if g is None else wg.tensor(g, dtype=p.dtype, device="cpu")


def ready(init_scale=8.0, **options):
    """A scaler that has scaled something."""
    made = wg.amp.GradScaler("cpu", init_scale=init_scale, **options)
    made.scale(wg.tensor(1.0, device="cpu"))
    return made


def test_the_factor_follows_what_gradients_are():
    """By hand: a bad step halves the factor, three good ones in a row double it."""
    params = parameters()
    sgd = wg.optim.SGD(params, lr=1.0)
    scaler = ready(growth_interval=3)
    factor, good = 8.0, 0
    at = np.array([[1.0, 2.0]] * 2)
    bad = {2: [np.inf, 1], 3: [1, np.nan], 7: [-np.inf, np.nan]}
    for step in range(12):
        gradient = np.array([1.0, -1.0])
        give(params, *([gradient * factor, bad[step]] if step in bad else [gradient * factor] * 2))
        scaler.step(sgd)
        scaler.update()
        if step in bad:
            factor, good = factor / 2, 0
        else:
            at -= gradient
            good += 1
            if good == 3:
                factor, good = factor * 2, 0
        assert (scaler.get_scale(), scaler.state_dict()["_growth_tracker"]) == (factor, good), step
        np.testing.assert_array_equal([p.tolist() for p in params], at)


def test_losses_are_scaled_and_differentiated():
    scaler = wg.amp.GradScaler("cpu")
    (p,) = parameters(1)
    loss = p.sum()
    scaled = scaler.scale(loss)
    assert scaled.item() == 3 * 65536
    scaled.backward()
    assert p.grad.tolist() == [65536.0] * 2
    first, (second,) = scaler.scale([loss.detach(), (loss.detach(),)])
    assert first.item() == second.item() == 3 * 65536
    assert next(scaler.scale(t for t in (loss.detach(),))).item() == 3 * 65536
    half = scaler.scale(wg.tensor(3.0, dtype=wg.float16, device="cpu"))
    assert (half.dtype, half.item()) == (wg.float32, 3 * 65536)
    with pytest.raises(ValueError, match="takes a tensor"):
        scaler.scale(3)


@pytest.mark.parametrize("dtype", [wg.float32, wg.bfloat16])
def test_unscale_is_in_place_and_once(dtype):
    params = parameters(3, dtype)
    sgd = wg.optim.SGD(params, lr=0.5)
    scaler = ready()
    give(params, [8.0, 16.0], None, [-8.0, 0.0])
    kept = params[0].grad
    scaler.unscale_(sgd)
    assert kept.tolist() == [1.0, 2.0]
    scaler.step(sgd)
    assert [p.tolist() for p in params] == [[0.5, 1.0], [1.0, 2.0], [1.5, 2.0]]
    scaler.update()
    assert scaler.get_scale() == 8.0


def test_gradients_of_any_layout():
    """Transposed, expanded from a larger one, and with no element at all."""
    leaf = wg.nn.Parameter(wg.zeros(3, 2, device="cpu"))
    none = wg.nn.Parameter(wg.zeros(0, 2, device="cpu"))
    wide = wg.tensor(np.arange(12, dtype=np.float32).reshape(2, 6), device="cpu")
    leaf.grad, none.grad = wide[:, ::2].T, wg.zeros(0, 2, device="cpu")
    scaler = ready(2.0)
    sgd = wg.optim.SGD([leaf, none], lr=1.0)
    scaler.step(sgd)
    np.testing.assert_array_equal(leaf.detach().numpy(), -np.arange(12).reshape(2, 6)[:, ::2].T / 2)
    wide[1, 4] = float("nan")
    wide[0, 1] = float("nan")
    scaler.update()
    scaler.step(sgd)
    scaler.update()
    assert scaler.get_scale() == 1.0


@pytest.fixture(params=["cpu", "gpu"])
def schedules(request, monkeypatch):
    """The kernels of a CPU, and those of a GPU."""
    yield from posing({} if request.param == "cpu" else {"style": "gpu", "lanes": 4, "max_group": 64}, monkeypatch)


def test_one_kernel_finds_any_element(schedules):
    """At the ends of vectors, of shares of work-items, and of tensors; and none where there is none."""
    sizes = (1, 17, 3000, 40)
    unscaling = Unscaling()
    bad = [(0, 0, np.nan), (1, 16, np.inf), (2, 0, -np.inf), (2, 2999, np.nan), (3, 31, np.inf)]
    for place in (*bad, None):
        arrays = [np.arange(n, dtype=np.float32) for n in sizes]
        if place is not None:
            arrays[place[0]][place[1]] = place[2]
        grads = [wg.tensor(a, device="cpu") for a in arrays]
        driver = grads[0].device.driver
        before = driver.launches
        (found,) = unscaling(grads, 0.5)
        assert driver.launches == before + 1
        assert found.item() == (place is not None), place
        for grad, array in zip(grads, arrays, strict=True):
            np.testing.assert_array_equal(grad.numpy(), array / 2)


def test_optimizers_are_judged_apart_and_the_factor_by_all():
    good, bad = parameters(1), parameters(1)
    a, b = wg.optim.SGD(good, lr=1.0), wg.optim.SGD(bad, lr=1.0)
    scaler = ready()
    give(good, [8.0, 8.0])
    give(bad, [8.0, np.inf])
    scaler.step(a)
    scaler.step(b)
    scaler.update()
    assert good[0].tolist() == [0.0, 1.0]
    assert bad[0].tolist() == [1.0, 2.0]
    assert scaler.get_scale() == 4.0


def test_factors_stay_finite():
    (p,) = parameters(1)
    sgd = wg.optim.SGD([p], lr=0.0)
    scaler = ready(2.0**127, growth_interval=1)
    give([p], [0.0, 0.0])
    scaler.step(sgd)
    scaler.update()
    assert scaler.get_scale() == 2.0**127
    scaler.update(3.0)
    assert scaler.get_scale() == 3.0
    scaler.update(wg.tensor(5.0, device="cpu"))
    assert scaler.get_scale() == 5.0


def test_disabled_it_does_nothing():
    (p,) = parameters(1)
    sgd = wg.optim.SGD([p], lr=1.0)
    scaler = wg.amp.GradScaler("cpu", enabled=False)
    loss = p.sum()
    assert scaler.scale(loss) is loss
    give([p], [np.inf, 1.0])
    scaler.unscale_(sgd)
    scaler.step(sgd)
    scaler.update()
    assert p.tolist() == [-np.inf, 1.0]
    assert (scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (1.0, {}, False)
    scaler.load_state_dict({"scale": 3.0})


def test_state_goes_on():
    scaler = ready(16.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    (p,) = parameters(1)
    sgd = wg.optim.SGD([p], lr=1.0)
    give([p], [1.0, 1.0])
    scaler.step(sgd)
    with pytest.raises(ScalerError, match="after update"):
        pickle.dumps(scaler)
    scaler.update()
    state = scaler.state_dict()
    assert state == {
        "scale": 16.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7, "_growth_tracker": 1,
    }  # fmt: skip
    for other in (wg.amp.GradScaler("cpu"), ready()):
        other.load_state_dict(state)
        assert other.state_dict() == state
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == state
    with pytest.raises(RuntimeError, match="disabled"):
        ready().load_state_dict({})
    scaler.set_growth_factor(4.0)
    scaler.set_backoff_factor(0.5)
    scaler.set_growth_interval(9)
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (4.0, 0.5, 9)


def test_out_of_turn():
    (p,) = parameters(1)
    sgd = wg.optim.SGD([p], lr=1.0)
    new = wg.amp.GradScaler("cpu")
    for call in (lambda: new.step(sgd), lambda: new.unscale_(sgd), new.update):
        with pytest.raises(AssertionError, match="nothing was scaled"):
            call()
    scaler = ready()
    with pytest.raises(AssertionError, match="no gradients were looked at"):
        scaler.update()
    with pytest.raises(AssertionError, match="has a gradient"):
        scaler.step(sgd)
    scaler = ready()
    give([p], [1.0, 1.0])
    scaler.unscale_(sgd)
    with pytest.raises(RuntimeError, match="already"):
        scaler.unscale_(sgd)
    scaler.step(sgd)
    with pytest.raises(RuntimeError, match="already"):
        scaler.step(sgd)
    with pytest.raises(RuntimeError, match="after step"):
        scaler.unscale_(sgd)
    with pytest.raises(WeftgradError, match="closure"):
        ready().step(sgd, closure=lambda: 0)
    halves = parameters(1, wg.float16)
    give(halves, [1.0, 1.0])
    with pytest.raises(ValueError, match="float16 gradients"):
        ready().unscale_(wg.optim.SGD(halves, lr=1.0))
    for options in ({"growth_factor": 1.0}, {"backoff_factor": 1.0}):
        with pytest.raises(AssertionError, match="factor"):
            wg.amp.GradScaler("cpu", **options)


def test_one_wait_a_step(monkeypatch):
    """However many gradients there are."""
    params = parameters(7)
    give(params, *[[1.0, 1.0]] * 7)
    scaler, sgd = ready(), wg.optim.SGD(params, lr=1.0)
    waits = []
    item = wg.Tensor.item
    monkeypatch.setattr(wg.Tensor, "item", lambda self: waits.append(1) or item(self))
    scaler.step(sgd)
    scaler.update()
    assert len(waits) == 1
