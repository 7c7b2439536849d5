"""Pools of planes on the Triton target: the schedule `tiles` of window ops, in the interpreter.

References are loops over windows, with NaN and equal elements as PyTorch treats them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

from triton_running import interpreter

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.kinds import triton
from weftgrad.runtime.kinds.triton import plane_tiles

Array = Any
DEVICE, DRIVER = interpreter("block=128,cores=2")


@dataclass(frozen=True)
class Case:
    """A pool: shape of the images, and the arguments of `max_pool2d` and `avg_pool2d`."""

    label: str
    shape: tuple[int, ...]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)  # of max_pool2d only
    ceil_mode: bool = False

    def windows(self) -> Iterator[tuple[int, int, list[int], list[int]]]:
        """Yield position, rows and columns of each window; rows and columns lie inside of the image."""
        counts = []
        for n, k, s, p, d in zip(self.shape[-2:], self.kernel, self.stride, self.padding, self.dilation, strict=True):
            span = n + 2 * p - d * (k - 1) - 1
            count = (-(-span // s) if self.ceil_mode else span // s) + 1
            counts.append(count - (self.ceil_mode and (count - 1) * s >= n + p))
        for y in range(counts[0]):
            for x in range(counts[1]):
                rows, columns = (
                    [i * s - p + j * d for j in range(k) if 0 <= i * s - p + j * d < n]
                    for i, n, k, s, p, d in zip(
                        (y, x), self.shape[-2:], self.kernel, self.stride, self.padding, self.dilation, strict=True
                    )
                )
                yield y, x, rows, columns

    def result_shape(self) -> tuple[int, ...]:
        y, x, *_ = list(self.windows())[-1]
        return (*self.shape[:-2], y + 1, x + 1)


CASES = (
    Case("of a residual network", (2, 2, 15, 16), (3, 3), (2, 2), (1, 1)),
    Case("halves", (1, 3, 8, 16), (2, 2), (2, 2)),
    Case("every element", (1, 2, 9, 9), (3, 3), (1, 1), (1, 1)),
    Case("wide window", (3, 6, 13), (2, 5), (1, 2), (1, 2)),
    Case("gaps between windows", (1, 2, 11, 10), (2, 1), (3, 4)),
    Case("beyond the end", (1, 2, 8, 7), (3, 2), (2, 2), (1, 1), ceil_mode=True),
    Case("one element", (1, 2, 1, 1), (1, 1), (1, 1)),
    Case("one row", (2, 1, 1, 40), (1, 3), (1, 2), (0, 1)),
)  # fmt: skip
DILATED = Case("dilation", (1, 2, 12, 11), (3, 2), (1, 2), (1, 0), (2, 3))


@pytest.fixture(autouse=True)
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small planes have tiles that only large ones have otherwise, because they need all lanes."""
    monkeypatch.setattr(plane_tiles, "_LANES_PER_CORE", 1)
    forget_plans()


def values(case: Case, dtype: str, seed: int) -> Array:
    """Return float64 values with many equal elements, all of which `dtype` can represent."""
    return np.random.default_rng(seed).integers(-6, 7, case.shape) / 2.0


def on_device(array: Array, dtype: str) -> wg.Tensor:
    return wg.tensor(array, dtype=getattr(wg, dtype), device=DEVICE, requires_grad=dtype.startswith(("f", "b")))


def entries(start: int) -> list[str]:
    return [s.instance.entry for s in DRIVER.launched[start:] if "window" in s.instance.entry]


def largest(case: Case, x: Array) -> tuple[Array, Array]:
    """Return the first largest element of each window, or the last NaN, and its position in the plane."""
    shape = case.result_shape()
    result, positions = np.zeros(shape), np.zeros(shape, np.int64)
    for y, column, rows, columns in case.windows():
        places = [(i, j) for i in rows for j in columns]
        window = np.stack([x[..., i, j] for i, j in places], -1)
        is_nan = np.isnan(window)
        last_nan = window.shape[-1] - 1 - np.argmax(is_nan[..., ::-1], -1)
        choice = np.where(is_nan.any(-1), last_nan, np.argmax(np.where(is_nan, -np.inf, window), -1))
        result[..., y, column] = np.take_along_axis(window, choice[..., None], -1)[..., 0]
        positions[..., y, column] = np.array([i * case.shape[-1] + j for i, j in places])[choice]
    return result, positions


def check_max(case: Case, dtype: str, x: Array) -> None:
    tensor = on_device(x, dtype)
    start = len(DRIVER.launched)
    output, positions = F.max_pool2d(
        tensor, case.kernel, case.stride, case.padding, case.dilation, case.ceil_mode, return_indices=True
    )
    expected, expected_positions = largest(case, x)
    np.testing.assert_array_equal(output.detach().cpu().to(wg.float64).numpy(), expected)
    assert (positions.cpu().numpy() == expected_positions).all()
    assert entries(start) == ["max_windows_tiles"]
    if not tensor.requires_grad:
        return
    grad = np.random.default_rng(2).integers(-8, 9, expected.shape) / 4.0
    output.backward(wg.tensor(grad, dtype=getattr(wg, dtype), device=DEVICE))
    planes = np.zeros((int(np.prod(case.shape[:-2])), case.shape[-2] * case.shape[-1]))
    for plane, place, value in zip(planes, expected_positions.reshape(len(planes), -1),
                                   grad.reshape(len(planes), -1), strict=True):  # fmt: skip
        np.add.at(plane, place, value)
    result = tensor.grad.cpu().to(wg.float64).numpy()
    np.testing.assert_array_equal(result, planes.reshape(case.shape))
    assert entries(start)[1:] == ["max_windows_back_tiles"]


@pytest.mark.parametrize("case", [*CASES, DILATED], ids=lambda case: case.label)
def test_max_pools(case: Case) -> None:
    check_max(case, "bfloat16", values(case, "bfloat16", 1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "uint8"])
def test_max_pools_in_other_dtypes(dtype: str) -> None:
    x = values(CASES[0], dtype, 1)
    check_max(CASES[0], dtype, x if dtype.startswith("f") else np.abs(2 * x))


def test_max_pools_of_infinite_and_undefined_elements() -> None:
    x = values(CASES[0], "float32", 1)
    x[0, 0, :4] = -np.inf
    x[0, 1, 3, 3:6], x[1, 0, 0, 0] = np.nan, np.inf
    check_max(CASES[0], "float32", x)


@pytest.mark.parametrize("counts_padding", [True, False])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_average_pools(case: Case, counts_padding: bool) -> None:
    x = values(case, "float32", 3)
    tensor = on_device(x, "float32")
    start = len(DRIVER.launched)
    output = F.avg_pool2d(tensor, case.kernel, case.stride, case.padding, case.ceil_mode, counts_padding)
    grad = np.random.default_rng(4).integers(-8, 9, output.shape) / 4.0
    output.backward(wg.tensor(grad, dtype=wg.float32, device=DEVICE))
    expected, expected_grad = np.zeros(case.result_shape()), np.zeros(case.shape)
    for y, column, rows, columns in case.windows():
        count = len(rows) * len(columns)
        if counts_padding:
            count = 1
            for i, n, k, s, p in zip((y, column), case.shape[-2:], case.kernel, case.stride, case.padding, strict=True):
                count *= min(i * s - p + k, n + p) - (i * s - p)
        for i in rows:
            for j in columns:
                expected[..., y, column] += x[..., i, j] / count
                expected_grad[..., i, j] += grad[..., y, column] / count
    np.testing.assert_allclose(output.detach().cpu().numpy(), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(tensor.grad.cpu().numpy(), expected_grad, rtol=1e-6, atol=1e-6)
    assert entries(start) == ["average_windows_tiles", "average_windows_back_tiles"]


def test_average_pools_with_a_divisor() -> None:
    x = values(CASES[1], "float32", 3)
    output = F.avg_pool2d(on_device(x, "float32"), 2, divisor_override=3)
    expected = x.reshape(1, 3, 4, 2, 8, 2).sum((3, 5)) / 3
    np.testing.assert_allclose(output.detach().cpu().numpy(), expected, rtol=1e-6)


def test_average_pools_of_integers_round_towards_zero() -> None:
    x = (2 * values(CASES[1], "int64", 3)).astype("int64")
    output = F.avg_pool2d(wg.tensor(x, device=DEVICE), 2)
    sums = x.reshape(1, 3, 4, 2, 8, 2).sum((3, 5))
    assert (output.cpu().numpy() == np.trunc(sums / 4)).all()


def test_pools_of_other_layouts() -> None:
    x = np.random.default_rng(5).standard_normal((2, 4, 6, 8)).astype("float32")
    expected = F.max_pool2d(wg.tensor(x, device=DEVICE), 3, 2, 1).cpu().numpy()
    for tensor in (
        wg.tensor(x.transpose(0, 2, 3, 1).copy(), device=DEVICE).permute(0, 3, 1, 2),
        wg.tensor(np.repeat(x, 2, 3), device=DEVICE)[..., ::2],
        wg.tensor(np.append(np.float32(0), x.ravel()), device=DEVICE)[1:].reshape(x.shape),
        wg.tensor(x[:, :, ::-1].copy(), device=DEVICE).flip(2),
    ):
        np.testing.assert_array_equal(F.max_pool2d(tensor, 3, 2, 1).cpu().numpy(), expected)


def test_pools_with_64_bit_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "_INT32", 0)
    start = len(DRIVER.launched)
    check_max(CASES[5], "float32", values(CASES[5], "float32", 1))
    steps = [s for s in DRIVER.launched[start:] if "window" in s.instance.entry]
    assert {dict(s.instance.defines)["INDEX"] for s in steps} == {"int64"}
    forget_plans()


def test_other_windows_take_the_general_kernel() -> None:
    start = len(DRIVER.launched)
    F.max_pool3d(wg.ones(1, 1, 3, 4, 4, device=DEVICE), 2)
    F.adaptive_avg_pool2d(wg.ones(1, 1, 5, 7, device=DEVICE), (2, 3))
    assert entries(start) == ["max_window_values_cells", "average_windows_cells"]


def test_max_pools_without_gradient_store_no_positions() -> None:
    x = values(CASES[0], "float32", 1)
    x[0, 1, 3, 3:6] = np.nan
    start = len(DRIVER.launched)
    with wg.no_grad():
        output = F.max_pool2d(on_device(x, "float32"), 3, 2, 1)
    assert entries(start) == ["max_window_values_tiles"]
    np.testing.assert_array_equal(output.cpu().numpy(), largest(CASES[0], x)[0])
