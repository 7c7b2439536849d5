"""Check gradient scaling against a simulation: scale, skipped steps, in-place unscaling, state and wrong calls."""

import pickle

import numpy as np
import pytest
from vendors import change_capabilities

import weftgrad as wg
from weftgrad.amp._unscaling import Unscaling
from weftgrad.runtime.errors import ScalerError, WeftgradError


def parameters(count=2, dtype=wg.float32):
    return [wg.nn.Parameter(wg.tensor([1.0, 2.0], dtype=dtype, device="cpu")) for _ in range(count)]


def set_grads(params, *gradients):
    """Set gradients as backward would."""
    for p, g in zip(params, gradients, strict=True):
        p.grad = None if g is None else wg.tensor(g, dtype=p.dtype, device="cpu")


def ready_scaler(init_scale=8.0, **options):
    """Return a scaler that has scaled a loss, so that its other methods may be called."""
    scaler = wg.amp.GradScaler("cpu", init_scale=init_scale, **options)
    scaler.scale(wg.tensor(1.0, device="cpu"))
    return scaler


def test_the_scale_grows_and_backs_off():
    """A step with a non-finite gradient halves the scale and is skipped; three finite steps in a row double it."""
    params = parameters()
    sgd = wg.optim.SGD(params, lr=1.0)
    scaler = ready_scaler(growth_interval=3)
    factor, good_steps = 8.0, 0
    expected = np.array([[1.0, 2.0]] * 2)
    bad_grads = {2: [np.inf, 1], 3: [1, np.nan], 7: [-np.inf, np.nan]}
    for step in range(12):
        gradient = np.array([1.0, -1.0])
        set_grads(params, *([gradient * factor, bad_grads[step]] if step in bad_grads else [gradient * factor] * 2))
        scaler.step(sgd)
        scaler.update()
        if step in bad_grads:
            factor, good_steps = factor / 2, 0
        else:
            expected -= gradient
            good_steps += 1
            if good_steps == 3:
                factor, good_steps = factor * 2, 0
        assert (scaler.get_scale(), scaler.state_dict()["_growth_tracker"]) == (factor, good_steps), step
        np.testing.assert_array_equal([p.tolist() for p in params], expected)


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
    scaler = ready_scaler()
    set_grads(params, [8.0, 16.0], None, [-8.0, 0.0])
    grad = params[0].grad
    scaler.unscale_(sgd)
    assert grad.tolist() == [1.0, 2.0]
    scaler.step(sgd)
    assert [p.tolist() for p in params] == [[0.5, 1.0], [1.0, 2.0], [1.5, 2.0]]
    scaler.update()
    assert scaler.get_scale() == 8.0


def test_gradients_of_any_layout():
    """Unscale a strided, transposed gradient and one without elements; the memory between its elements is ignored."""
    leaf = wg.nn.Parameter(wg.zeros(3, 2, device="cpu"))
    empty = wg.nn.Parameter(wg.zeros(0, 2, device="cpu"))
    wide_grads = wg.tensor(np.arange(12, dtype=np.float32).reshape(2, 6), device="cpu")
    leaf.grad, empty.grad = wide_grads[:, ::2].T, wg.zeros(0, 2, device="cpu")
    scaler = ready_scaler(2.0)
    sgd = wg.optim.SGD([leaf, empty], lr=1.0)
    scaler.step(sgd)
    np.testing.assert_array_equal(leaf.detach().numpy(), -np.arange(12).reshape(2, 6)[:, ::2].T / 2)
    wide_grads[1, 4] = float("nan")
    wide_grads[0, 1] = float("nan")
    scaler.update()
    scaler.step(sgd)
    scaler.update()
    assert scaler.get_scale() == 1.0


@pytest.fixture(params=["cpu", "gpu"])
def schedules(request, monkeypatch):
    """Run a test with the schedules of a CPU and with those of a GPU."""
    yield from change_capabilities(
        {} if request.param == "cpu" else {"style": "gpu", "lanes": 4, "max_group": 64}, monkeypatch
    )


def test_one_kernel_finds_any_element(schedules):
    """One kernel notices a non-finite element at the end of a vector, of a work-item's share or of a tensor."""
    sizes = (1, 17, 3000, 40)
    unscaling = Unscaling()
    bad_elements = [(0, 0, np.nan), (1, 16, np.inf), (2, 0, -np.inf), (2, 2999, np.nan), (3, 31, np.inf)]
    for bad_element in (*bad_elements, None):
        arrays = [np.arange(n, dtype=np.float32) for n in sizes]
        if bad_element is not None:
            arrays[bad_element[0]][bad_element[1]] = bad_element[2]
        grads = [wg.tensor(a, device="cpu") for a in arrays]
        driver = grads[0].device.driver
        launches_before = driver.launches
        (found_inf,) = unscaling(grads, 0.5)
        assert driver.launches == launches_before + 1
        assert found_inf.item() == (bad_element is not None), bad_element
        for grad, array in zip(grads, arrays, strict=True):
            np.testing.assert_array_equal(grad.numpy(), array / 2)


def test_each_optimizer_skips_its_own_step():
    finite, infinite = parameters(1), parameters(1)
    finite_sgd, infinite_sgd = wg.optim.SGD(finite, lr=1.0), wg.optim.SGD(infinite, lr=1.0)
    scaler = ready_scaler()
    set_grads(finite, [8.0, 8.0])
    set_grads(infinite, [8.0, np.inf])
    scaler.step(finite_sgd)
    scaler.step(infinite_sgd)
    scaler.update()
    assert finite[0].tolist() == [0.0, 1.0]
    assert infinite[0].tolist() == [1.0, 2.0]
    assert scaler.get_scale() == 4.0


def test_factors_stay_finite():
    (p,) = parameters(1)
    sgd = wg.optim.SGD([p], lr=0.0)
    scaler = ready_scaler(2.0**127, growth_interval=1)
    set_grads([p], [0.0, 0.0])
    scaler.step(sgd)
    scaler.update()
    assert scaler.get_scale() == 2.0**127
    scaler.update(3.0)
    assert scaler.get_scale() == 3.0
    scaler.update(wg.tensor(5.0, device="cpu"))
    assert scaler.get_scale() == 5.0


def test_a_disabled_scaler_does_nothing():
    (p,) = parameters(1)
    sgd = wg.optim.SGD([p], lr=1.0)
    scaler = wg.amp.GradScaler("cpu", enabled=False)
    loss = p.sum()
    assert scaler.scale(loss) is loss
    set_grads([p], [np.inf, 1.0])
    scaler.unscale_(sgd)
    scaler.step(sgd)
    scaler.update()
    assert p.tolist() == [-np.inf, 1.0]
    assert (scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (1.0, {}, False)
    scaler.load_state_dict({"scale": 3.0})


def test_state_dict_round_trip():
    scaler = ready_scaler(16.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    (p,) = parameters(1)
    sgd = wg.optim.SGD([p], lr=1.0)
    set_grads([p], [1.0, 1.0])
    scaler.step(sgd)
    with pytest.raises(ScalerError, match="after update"):
        pickle.dumps(scaler)
    scaler.update()
    state = scaler.state_dict()
    assert state == {
        "scale": 16.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7, "_growth_tracker": 1,
    }  # fmt: skip
    for restored in (wg.amp.GradScaler("cpu"), ready_scaler()):
        restored.load_state_dict(state)
        assert restored.state_dict() == state
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == state
    with pytest.raises(RuntimeError, match="disabled"):
        ready_scaler().load_state_dict({})
    scaler.set_growth_factor(4.0)
    scaler.set_backoff_factor(0.5)
    scaler.set_growth_interval(9)
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (4.0, 0.5, 9)


def test_calls_in_the_wrong_order():
    (p,) = parameters(1)
    sgd = wg.optim.SGD([p], lr=1.0)
    unused = wg.amp.GradScaler("cpu")
    for call in (lambda: unused.step(sgd), lambda: unused.unscale_(sgd), unused.update):
        with pytest.raises(AssertionError, match="nothing was scaled"):
            call()
    scaler = ready_scaler()
    with pytest.raises(AssertionError, match="no gradients were looked at"):
        scaler.update()
    with pytest.raises(AssertionError, match="has a gradient"):
        scaler.step(sgd)
    scaler = ready_scaler()
    set_grads([p], [1.0, 1.0])
    scaler.unscale_(sgd)
    with pytest.raises(RuntimeError, match="already"):
        scaler.unscale_(sgd)
    scaler.step(sgd)
    with pytest.raises(RuntimeError, match="already"):
        scaler.step(sgd)
    with pytest.raises(RuntimeError, match="after step"):
        scaler.unscale_(sgd)
    with pytest.raises(WeftgradError, match="closure"):
        ready_scaler().step(sgd, closure=lambda: 0)
    halves = parameters(1, wg.float16)
    set_grads(halves, [1.0, 1.0])
    with pytest.raises(ValueError, match="float16 gradients"):
        ready_scaler().unscale_(wg.optim.SGD(halves, lr=1.0))
    for options in ({"growth_factor": 1.0}, {"backoff_factor": 1.0}):
        with pytest.raises(AssertionError, match="factor"):
            wg.amp.GradScaler("cpu", **options)


def test_one_synchronization_per_step(monkeypatch):
    """A step reads one value on the host, however many gradients there are."""
    params = parameters(7)
    set_grads(params, *[[1.0, 1.0]] * 7)
    scaler, sgd = ready_scaler(), wg.optim.SGD(params, lr=1.0)
    reads = []
    original_item = wg.Tensor.item
    monkeypatch.setattr(wg.Tensor, "item", lambda self: reads.append(1) or original_item(self))
    scaler.step(sgd)
    scaler.update()
    assert len(reads) == 1
