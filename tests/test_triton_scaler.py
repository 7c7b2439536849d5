"""Check in the interpreter that one Triton kernel unscales all gradients and detects non-finite elements."""

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.amp._unscaling import Unscaling

pytest.importorskip("triton")

from triton_running import interpreter

DEVICE, DRIVER = interpreter("block=64,cores=2")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_kernel_finds_any_non_finite_element(dtype):
    """Infinite and NaN elements are found in full blocks and in a tensor's last partial block."""
    sizes = (1, 64, 70)
    unscaling = Unscaling()
    for position in ((0, 0, np.nan), (1, 63, -np.inf), (2, 3, np.inf), (2, 69, np.nan), None):
        arrays = [np.arange(n, dtype=np.float32) for n in sizes]
        if position is not None:
            arrays[position[0]][position[1]] = position[2]
        grads = [wg.tensor(a, dtype=getattr(wg, dtype)).to(DEVICE) for a in arrays]
        start = len(DRIVER.launched)
        (found_inf,) = unscaling(grads, 0.5)
        (step,) = DRIVER.launched[start:]
        assert step.instance.entry == "unscale_step_many"
        assert found_inf.item() == (position is not None), position
        for grad, array in zip(grads, arrays, strict=True):
            np.testing.assert_array_equal(grad.float().cpu().numpy(), array / 2)
