"""Gradients clipped and weights averaged by one Triton kernel: in the interpreter."""

import gc

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.optim.swa_utils import get_ema_multi_avg_fn

pytest.importorskip("triton")

from triton_running import interpreter

PLACE, DRIVER = interpreter("block=64,cores=2")


def launched(call):
    """The entries of the kernels that a call launches."""
    begun = len(DRIVER.launched)
    call()
    return [step.instance.entry for step in DRIVER.launched[begun:]]


def clipped_and_averaged():
    arrays = [np.arange(1, n + 1, dtype=np.float32) for n in (1, 64, 70)]
    params = [nn.Parameter(wg.tensor(a).to(PLACE)) for a in arrays]
    for param, array in zip(params, arrays, strict=True):
        param.grad = wg.tensor(array).to(PLACE)
    factor = wg.tensor(4.0).to(PLACE)
    names = launched(lambda: nn.utils.clip_grads_with_norm_(params, 1.0, factor))
    assert names.count("scale_step_many") == 1
    assert not [name for name in names if name.startswith("mul_")][1:]  # the factor is made once
    assert factor.item() == 4
    for param, array in zip(params, arrays, strict=True):
        np.testing.assert_allclose(param.grad.cpu().numpy(), array / 4, rtol=1e-6)
    assert launched(lambda: nn.utils.clip_grad_value_(params, 2.0)) == ["limit_step_many"]
    np.testing.assert_allclose(params[2].grad.cpu().numpy(), np.minimum(arrays[2] / 4, 2), rtol=1e-6)
    current = [p.detach() for p in params]
    averages = [wg.tensor(np.zeros_like(a)).to(PLACE) for a in arrays]
    assert launched(lambda: get_ema_multi_avg_fn(0.75)(averages, current)) == ["average_step_many"]
    for average, array in zip(averages, arrays, strict=True):
        np.testing.assert_array_equal(average.cpu().numpy(), array / 4)


def test_one_kernel_for_all_tensors_which_are_not_kept():
    gc.collect()
    held = wg.memory_allocated(PLACE)
    clipped_and_averaged()
    gc.collect()
    assert wg.memory_allocated(PLACE) == held
