"""Weight gradients of convolutions with kernels of one pixel on the Triton target: `pixels_weight`, interpreted."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton")

from convolution_checks import Case, check, on_device
from triton_running import interpreter

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.kinds import triton

DEVICE, DRIVER = interpreter("block=64,cores=2")
CASES = (
    Case("channels fill a tile", (2, 16, 4, 4), (32, 16, 1, 1)),
    Case("channels of several tiles", (1, 130, 2, 4), (140, 130, 1, 1)),
    Case("wide tiles", (1, 150, 2, 2), (20, 150, 1, 1)),
    Case("tall tiles", (1, 17, 4, 3), (200, 17, 1, 1)),
    Case("pixels of two and a half steps", (3, 16, 8, 20), (16, 16, 1, 1)),
    Case("groups", (2, 40, 6, 4), (32, 20, 1, 1), groups=2),
)  # fmt: skip


def launched(start: int) -> set[str]:
    return {s.instance.entry.removeprefix("convolution_") for s in DRIVER.launched[start:]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_weight_gradients(case: Case) -> None:
    start = len(DRIVER.launched)
    check(case, "bfloat16", DEVICE, DRIVER)
    assert "pixels_weight" in launched(start)
    assert "channels_weight" not in launched(start)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_weight_gradients_in_other_dtypes(dtype: str) -> None:
    check(CASES[5], dtype, DEVICE, DRIVER)


def test_parts_of_the_pixels() -> None:
    start = len(DRIVER.launched)
    check(Case("parts", (3, 16, 20, 36), (16, 16, 1, 1)), "float32", DEVICE, DRIVER)
    assert {"pixels_weight", "sum"} <= launched(start)


def test_unaligned_pixels_are_packed() -> None:
    start = len(DRIVER.launched)
    check(Case("odd size", (2, 16, 7, 7), (16, 16, 1, 1)), "float32", DEVICE, DRIVER)
    assert "channels_weight" in launched(start)


def test_64_bit_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "_INT32", 0)
    forget_plans()  # those of other tests have offsets of 32 bits
    start = len(DRIVER.launched)
    check(CASES[5], "float32", DEVICE, DRIVER)
    (step,) = (s for s in DRIVER.launched[start:] if s.instance.entry == "convolution_pixels_weight")
    assert dict(step.instance.defines)["INDEX"] == "int64"
    forget_plans()


def test_slices_of_larger_tensors() -> None:
    rng = np.random.default_rng(5)
    x, grad = rng.standard_normal((4, 40, 4, 4)), rng.standard_normal((4, 40, 4, 4))
    w = on_device(np.ones((16, 16, 1, 1)), "float32", DEVICE)
    output = F.conv2d(wg.tensor(x, dtype=wg.float32, device=DEVICE)[::2, 8:24], w)
    output.backward(wg.tensor(grad, dtype=wg.float32, device=DEVICE)[::2, 3:35:2])
    expected = np.einsum("noyx,niyx->oi", grad[::2, 3:35:2], x[::2, 8:24])
    np.testing.assert_allclose(w.grad.cpu().numpy()[..., 0, 0], expected, rtol=1e-5, atol=1e-4)
