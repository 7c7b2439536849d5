"""Check in the interpreter that one Triton kernel clips all gradients, and one averages all weights."""

import gc

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.optim.swa_utils import get_ema_multi_avg_fn

pytest.importorskip("triton")

from triton_running import interpreter

DEVICE, DRIVER = interpreter("block=64,cores=2")


def launched_entries(call):
    """Return the names of the kernels that a call launches."""
    start = len(DRIVER.launched)
    call()
    return [step.instance.entry for step in DRIVER.launched[start:]]


def check_clipping_and_averaging():
    arrays = [np.arange(1, n + 1, dtype=np.float32) for n in (1, 64, 70)]
    params = [nn.Parameter(wg.tensor(a).to(DEVICE)) for a in arrays]
    for param, array in zip(params, arrays, strict=True):
        param.grad = wg.tensor(array).to(DEVICE)
    factor = wg.tensor(4.0).to(DEVICE)
    names = launched_entries(lambda: nn.utils.clip_grads_with_norm_(params, 1.0, factor))
    assert names.count("scale_step_many") == 1
    assert not [name for name in names if name.startswith("mul_")][1:]  # the factor is computed once
    assert factor.item() == 4
    for param, array in zip(params, arrays, strict=True):
        np.testing.assert_allclose(param.grad.cpu().numpy(), array / 4, rtol=1e-6)
    assert launched_entries(lambda: nn.utils.clip_grad_value_(params, 2.0)) == ["limit_step_many"]
    np.testing.assert_allclose(params[2].grad.cpu().numpy(), np.minimum(arrays[2] / 4, 2), rtol=1e-6)
    current = [p.detach() for p in params]
    averages = [wg.tensor(np.zeros_like(a)).to(DEVICE) for a in arrays]
    assert launched_entries(lambda: get_ema_multi_avg_fn(0.75)(averages, current)) == ["average_step_many"]
    for average, array in zip(averages, arrays, strict=True):
        np.testing.assert_array_equal(average.cpu().numpy(), array / 4)


def test_one_kernel_updates_all_tensors_and_keeps_none():
    gc.collect()
    allocated = wg.memory_allocated(DEVICE)
    check_clipping_and_averaging()
    gc.collect()
    assert wg.memory_allocated(DEVICE) == allocated
