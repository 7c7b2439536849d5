"""Gradients unscaled by one Triton kernel: in the interpreter."""

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.amp._unscaling import Unscaling

pytest.importorskip("triton")

from triton_running import interpreter

PLACE, DRIVER = interpreter("block=64,cores=2")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_kernel_finds_any_element(dtype):
    """In whole blocks and in what is left of a tensor; and none where there is none."""
    sizes = (1, 64, 70)
    unscaling = Unscaling()
    for place in ((0, 0, np.nan), (1, 63, -np.inf), (2, 3, np.inf), (2, 69, np.nan), None):
        arrays = [np.arange(n, dtype=np.float32) for n in sizes]
        if place is not None:
            arrays[place[0]][place[1]] = place[2]
        grads = [wg.tensor(a, dtype=getattr(wg, dtype)).to(PLACE) for a in arrays]
        begun = len(DRIVER.launched)
        (found,) = unscaling(grads, 0.5)
        (step,) = DRIVER.launched[begun:]
        assert step.instance.entry == "unscale_step_many"
        assert found.item() == (place is not None), place
        for grad, array in zip(grads, arrays, strict=True):
            np.testing.assert_array_equal(grad.float().cpu().numpy(), array / 2)
