"""Convolutions with few input channels on the Triton target: `pack_pixels`, `runs` and `runs_weight`, interpreted."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton")

from convolution_checks import Case, check, on_device
from triton_running import convolve, interpreter

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.kinds import triton

DEVICE, DRIVER = interpreter("block=64,cores=2")
PACKED = frozenset(("pack", "pack_pixels", "runs", "runs_weight"))
CASES = (
    Case("first layer of a network", (2, 3, 18, 21), (16, 3, 7, 7), (2, 2), (3, 3), kernels=PACKED),
    Case("stride 1, more results than a tile", (1, 5, 6, 9), (130, 5, 3, 3), padding=(1, 1), kernels=PACKED),
    Case("rows of 16 bytes", (1, 7, 5, 16), (9, 7, 3, 4), (1, 3), (0, 2), kernels=PACKED),
    Case("one pixel", (1, 6, 1, 1), (12, 6, 3, 3), padding=(1, 1), kernels=PACKED),
    Case("dilation along height", (1, 6, 9, 7), (10, 6, 2, 3), (1, 2), (2, 1), (3, 1), kernels=PACKED),
    Case("one channel", (1, 1, 12, 10), (9, 1, 9, 9), padding=(4, 4), kernels=PACKED),
    Case("patches", (1, 3, 16, 24), (20, 3, 8, 8), (8, 8), kernels=frozenset(("runs", "runs_weight"))),
    Case("patches of 14 pixels", (1, 2, 28, 16), (17, 2, 14, 14), (14, 14),
         kernels=frozenset(("pack", "runs", "runs_weight"))),
    Case("patches with pixels between them", (1, 6, 10, 18), (12, 6, 3, 4), (4, 6),
         kernels=frozenset(("runs", "runs_weight"))),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_first_layers(case: Case) -> None:
    check(case, "bfloat16", DEVICE, DRIVER, input_gradient=False)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", [CASES[0], CASES[6]], ids=lambda case: case.label)
def test_first_layers_in_other_dtypes(case: Case, dtype: str) -> None:
    check(case, dtype, DEVICE, DRIVER, input_gradient=False)


def test_parts_of_the_pixels() -> None:
    case = Case("parts", (1, 3, 46, 46), (8, 3, 2, 2), (1, 1), (1, 1), kernels=PACKED | {"sum"})
    check(case, "float32", DEVICE, DRIVER, input_gradient=False)


def test_64_bit_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "_INT32", 0)
    forget_plans()  # those of other tests have offsets of 32 bits
    start = len(DRIVER.launched)
    check(CASES[2], "float32", DEVICE, DRIVER, input_gradient=False)
    steps = [s for s in DRIVER.launched[start:] if s.instance.entry.startswith("convolution_")]
    assert {dict(s.instance.defines)["INDEX"] for s in steps} == {"int64"}
    forget_plans()


@pytest.mark.parametrize("layout", ["channels innermost", "sliced", "expanded gradient"])
def test_layouts_of_operands(layout: str) -> None:
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((2, 3, 8, 10)), rng.standard_normal((8, 3, 4, 4))

    def stored(a: np.ndarray) -> wg.Tensor:
        if layout == "channels innermost":
            return on_device(a.transpose(0, 2, 3, 1).copy(), "float32", DEVICE).permute(0, 3, 1, 2)
        if layout == "sliced":
            return on_device(np.repeat(a, 2, 3), "float32", DEVICE)[:, :, :, ::2]
        return on_device(a, "float32", DEVICE)

    tensors = [stored(a).detach().requires_grad_() for a in (x, w)]
    output = F.conv2d(*tensors, stride=2, padding=1)
    expected = convolve(x, w, 2, 1, 1)
    np.testing.assert_allclose(output.detach().cpu().numpy(), expected, rtol=1e-5, atol=2e-5)
    output.sum().backward()  # a gradient whose elements are one element
    direction = rng.standard_normal(w.shape)
    slope = convolve(x, direction, 2, 1, 1).sum()
    np.testing.assert_allclose((tensors[1].grad.cpu().numpy() * direction).sum(), slope, rtol=1e-4)


def test_volumes() -> None:
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((1, 3, 5, 6, 8)), rng.standard_normal((8, 3, 2, 3, 3))
    start = len(DRIVER.launched)
    volume = F.conv3d(on_device(x, "float32", DEVICE), on_device(w, "float32", DEVICE), padding=1, stride=(2, 1, 2))
    assert "convolution_runs" in {s.instance.entry for s in DRIVER.launched[start:]}
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3, 3), (2, 3, 4))[:, :, ::2, :, ::2]
    expected = np.einsum("bczyxkij,ockij->bozyx", windows, w)
    np.testing.assert_allclose(volume.detach().cpu().numpy(), expected, rtol=1e-5, atol=2e-5)


def test_infinite_and_undefined_elements_stay_where_they_are_read() -> None:
    x = np.zeros((1, 3, 9, 9), "float32")
    x[0, 1, 4, 4], x[0, 2, 8, 0] = np.inf, np.nan
    output = F.conv2d(on_device(x, "float32", DEVICE), wg.ones(8, 3, 3, 3, device=DEVICE), padding=1)
    values = output.detach().cpu().numpy()[0]
    is_near = np.zeros((9, 9), bool)
    is_near[3:6, 3:6] = True
    assert np.isinf(values[:, is_near]).all()
    assert np.isnan(values[:, 7:, :2]).all()
    is_near[7:, :2] = True
    assert (values[:, ~is_near] == 0).all()
