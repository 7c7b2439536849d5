"""Check kernels that update many tensors on the Triton target: in the interpreter, and on a simulated CUDA driver."""

import gc
import weakref

import numpy as np
import pytest
from cuda_running import capture

import weftgrad as wg
from weftgrad import optim
from weftgrad.runtime.errors import CaptureError, LaunchError
from weftgrad.runtime.multi_tensor import MultiTensor
from weftgrad.runtime.records import registry

pytest.importorskip("triton")

from triton_running import interpreter

DEVICE, DRIVER = interpreter("block=64,cores=2")
NUMBERS = (0.5, 0.25, 1.0)  # lr, weight decay, sign
SIZES = (1, 40, 64, 70, 3000)


def random_tensors(device, dtype, sizes=SIZES):
    rng = np.random.default_rng(0)
    return [[wg.tensor(rng.standard_normal(n)).to(device, dtype) for n in sizes] for _ in range(2)]


def check_update(update, lists, tolerance=1e-6):
    old_arrays = [[t.cpu().double().numpy().copy() for t in tensors] for tensors in lists]
    update(lists, NUMBERS)
    for param, old_param, grad in zip(lists[0], *old_arrays, strict=True):
        np.testing.assert_allclose(
            param.cpu().double().numpy(), old_param - 0.5 * (grad + 0.25 * old_param), tolerance, tolerance
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_updates_of_many_tensors(dtype):
    """One launch updates tensors with full and partial blocks; only aligned tensors use wide loads."""
    update = MultiTensor(registry["sgd_step"])
    lists = random_tensors(DEVICE, getattr(wg, dtype))
    for is_wide in (1, 0):
        start = len(DRIVER.launched)
        check_update(update, lists, 1e-6 if dtype == "float32" else 1e-2)
        (step,) = DRIVER.launched[start:]
        assert (step.instance.entry, dict(step.instance.defines)["WIDE"]) == ("sgd_step_many", is_wide)
        assert step.global_size[0] > len(SIZES)  # the largest tensor has several rows in the table
        lists = [[t[1:] for t in tensors[1:]] for tensors in lists]


def test_accesses_outside_of_a_tensor_raise():
    """The interpreter checks accesses through a table of addresses like those through arguments."""
    update = MultiTensor(registry["sgd_step"])
    lists = random_tensors(DEVICE, wg.float32, (64, 64))
    update(lists, NUMBERS)
    ((_, launch, bound, reached),) = update._launches
    tensors = [*lists[0], *lists[1]]
    with pytest.raises(LaunchError, match="outside"):
        launch([*bound, *[tensors[i] for i in reached[:-1]]], NUMBERS, None)  # without the last gradient


def test_optimizers_do_not_keep_gradients():
    """The state that an optimizer reuses in the next step references no gradient."""
    param = wg.ones(40, device=DEVICE, requires_grad=True)
    optimizer = optim.SGD([param], lr=0.5)
    (param * param).sum().backward()
    grad_ref = weakref.ref(param.grad)
    optimizer.step()
    optimizer.zero_grad()
    gc.collect()
    assert grad_ref() is None


def test_on_cuda(cuda, computing):
    update = MultiTensor(registry["sgd_step"])
    lists = random_tensors("cuda", wg.float32)
    check_update(update, lists)
    lists[1] = [t.clone() for t in lists[1]]
    check_update(update, lists)


def test_a_captured_step(cuda, computing):
    """Steps inside and outside of a graph both write the address table; changing numbers cannot be captured."""
    param = wg.ones(5, device="cuda", requires_grad=True)
    optimizer = optim.SGD([param], lr=0.5)

    def step():
        optimizer.zero_grad()
        (param * param).sum().backward()
        optimizer.step()

    step()
    graph, _ = capture(param.device.driver, step)
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
        capture(param.device.driver, adam.step)
