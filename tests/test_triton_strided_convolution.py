"""Input gradients of strided convolutions on the Triton target: a program computes pixels of one phase, interpreted."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton")

from convolution_checks import Case, check, on_device
from triton_running import interpreter

import weftgrad as wg
import weftgrad.nn.functional as F

DEVICE, DRIVER = interpreter("block=64,cores=2")
PHASED = (
    Case("even size", (2, 16, 8, 6), (16, 16, 3, 3), (2, 2), (1, 1)),
    Case("odd size", (1, 17, 9, 7), (20, 17, 3, 3), (2, 2), (1, 1)),
    Case("pixels that no tap meets", (1, 16, 8, 7), (16, 16, 1, 1), (2, 3)),
    Case("different strides, wide padding", (1, 16, 7, 8), (18, 16, 4, 3), (3, 2), (5, 3)),
    Case("a stride along height", (1, 16, 9, 5), (16, 16, 2, 3), (4, 1), (1, 1)),
    Case("dilation where the stride is 1", (1, 16, 9, 8), (16, 16, 3, 2), (1, 2), (2, 1), (3, 1)),
    Case("groups", (1, 32, 7, 6), (40, 16, 3, 3), (2, 2), (1, 1), groups=2),
    Case("one pixel", (1, 16, 1, 1), (16, 16, 3, 3), (2, 2), (1, 1)),
    Case("few channels of the result", (1, 16, 4, 5), (5, 16, 3, 3), (2, 2), (1, 1)),
    Case("few channels of the input", (1, 3, 8, 8), (16, 3, 4, 4), (2, 2), (1, 1)),
)  # fmt: skip


def defines_of_input_gradient(start: int) -> dict[str, object]:
    """Return the constants of the only launch of `channels` since `start` that computes an input gradient."""
    (defines,) = (d for s in DRIVER.launched[start:] if (d := dict(s.instance.defines)).get("BACK"))
    return defines


@pytest.mark.parametrize("case", PHASED, ids=lambda case: case.label)
def test_phases(case: Case) -> None:
    start = len(DRIVER.launched)
    check(case, "float32", DEVICE, DRIVER)
    assert defines_of_input_gradient(start)["PHASED"] == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_phases_in_half_precision(dtype: str) -> None:
    check(PHASED[1], dtype, DEVICE, DRIVER)


def test_strides_with_dilation_have_no_phases() -> None:
    start = len(DRIVER.launched)
    check(Case("dilation", (1, 16, 9, 8), (16, 16, 2, 3), (2, 3), (2, 1), (3, 2)), "float32", DEVICE, DRIVER)
    defines = defines_of_input_gradient(start)
    assert (defines["PHASED"], defines["STRIDED"]) == (0, 1)


def test_volumes() -> None:
    rng = np.random.default_rng(5)
    y, w = rng.standard_normal((1, 16, 2, 3, 2)), rng.standard_normal((16, 16, 3, 2, 3))
    volume = F.conv_transpose3d(on_device(y, "float32", DEVICE), on_device(w, "float32", DEVICE), stride=(2, 1, 3))
    expected = np.zeros((1, 16, 5, 4, 6))
    for i in range(3):
        for j in range(2):
            for k in range(3):
                expected[:, :, i : i + 3 : 2, j : j + 3, k : k + 4 : 3] += np.einsum(
                    "bozyx,oi->bizyx", y, w[..., i, j, k]
                )
    np.testing.assert_allclose(volume.detach().cpu().numpy(), expected, rtol=1e-5, atol=2e-5)


def test_infinite_and_undefined_elements_stay_where_they_are_read() -> None:
    grad = np.zeros((1, 16, 4, 4), "float32")
    grad[0, 2, 1, 1], grad[0, 5, 3, 3] = np.inf, np.nan
    result = F.conv_transpose2d(on_device(grad, "float32", DEVICE), wg.ones(16, 16, 3, 3, device=DEVICE), stride=2)
    values = result.detach().cpu().numpy()[0]
    is_near = np.zeros((9, 9), bool)
    is_near[2:5, 2:5] = True
    assert np.isinf(values[:, is_near]).all()
    assert np.isnan(values[:, 6:, 6:]).all()
    is_near[6:, 6:] = True
    assert (values[:, ~is_near] == 0).all()
