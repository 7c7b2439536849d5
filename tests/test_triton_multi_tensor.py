"""One kernel for many tensors on the Triton target: in the interpreter, and by the CUDA backend on a stand-in."""

import gc
import weakref

import numpy as np
import pytest
from cuda_running import captured

import weftgrad as wg
from weftgrad import optim
from weftgrad.runtime.errors import CaptureError, LaunchError
from weftgrad.runtime.multi_tensor import MultiTensor
from weftgrad.runtime.records import registry

pytest.importorskip("triton")

from triton_running import interpreter

PLACE, DRIVER = interpreter("block=64,cores=2")
NUMBERS = (0.5, 0.25, 1.0)  # lr, weight decay, sign
SIZES = (1, 40, 64, 70, 3000)


def drawn(place, dtype, sizes=SIZES):
    rng = np.random.default_rng(0)
    return [[wg.tensor(rng.standard_normal(n)).to(place, dtype) for n in sizes] for _ in range(2)]


def check(update, lists, tolerance=1e-6):
    before = [[t.cpu().double().numpy().copy() for t in each] for each in lists]
    update(lists, NUMBERS)
    for p, old, grad in zip(lists[0], *before, strict=True):
        np.testing.assert_allclose(p.cpu().double().numpy(), old - 0.5 * (grad + 0.25 * old), tolerance, tolerance)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_updates_of_many_tensors(dtype):
    """Whole blocks and what is left, aligned tensors and others, in one launch each."""
    update = MultiTensor(registry["sgd_step"])
    lists = drawn(PLACE, getattr(wg, dtype))
    for wide in (1, 0):
        begun = len(DRIVER.launched)
        check(update, lists, 1e-6 if dtype == "float32" else 1e-2)
        (step,) = DRIVER.launched[begun:]
        assert (step.instance.entry, dict(step.instance.defines)["WIDE"]) == ("sgd_step_many", wide)
        assert step.global_size[0] > len(SIZES)  # the largest has several rows
        lists = [[t[1:] for t in each[1:]] for each in lists]


def test_memory_behind_a_tensor_is_out_of_reach():
    """Every access is checked, as it is where tensors are arguments."""
    update = MultiTensor(registry["sgd_step"])
    lists = drawn(PLACE, wg.float32, (64, 64))
    update(lists, NUMBERS)
    ((_, launch, bound, reached),) = update._launches
    everything = [*lists[0], *lists[1]]
    with pytest.raises(LaunchError, match="outside"):
        launch([*bound, *[everything[i] for i in reached[:-1]]], NUMBERS, None)  # without the last gradient


def test_gradients_are_let_go():
    """What a step keeps for the next one holds no tensor."""
    param = wg.ones(40, device=PLACE, requires_grad=True)
    optimizer = optim.SGD([param], lr=0.5)
    (param * param).sum().backward()
    held = weakref.ref(param.grad)
    optimizer.step()
    optimizer.zero_grad()
    gc.collect()
    assert held() is None


def test_on_cuda(cuda, computing):
    update = MultiTensor(registry["sgd_step"])
    lists = drawn("cuda", wg.float32)
    check(update, lists)
    lists[1] = [t.clone() for t in lists[1]]
    check(update, lists)


def test_a_captured_step(cuda, computing):
    """The table is written in the graph, and again outside of it; numbers that change cannot be captured."""
    param = wg.ones(5, device="cuda", requires_grad=True)
    optimizer = optim.SGD([param], lr=0.5)

    def step():
        optimizer.zero_grad()
        (param * param).sum().backward()
        optimizer.step()

    step()
    graph, _ = captured(param.device.driver, step)
    for _ in range(2):
        graph.replay()
    step()
    graph.replay()
    assert param.detach().tolist() == [0.0] * 5  # p - 0.5 * 2 p
    with wg.no_grad():
        param.fill_(3.0)
    optimizer.param_groups[0]["lr"] = 0.25  # the graph has 0.5
    step()
    assert param.detach().tolist() == [1.5] * 5
    graph.replay()
    assert param.detach().tolist() == [0.0] * 5
    adam = optim.Adam([param])
    with pytest.raises(CaptureError, match="outside of the graph"):
        captured(param.device.driver, adam.step)
