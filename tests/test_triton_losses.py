"""Check the cross-entropy that launches two kernels forward and one backward, against float64 by SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

pytest.importorskip("triton")

from triton_running import interpreter

import weftgrad as wg
from weftgrad.nn import functional as F
from weftgrad.runtime import errors

DEVICE, DRIVER = interpreter("block=64,cores=2")  # rows of more than 1024 elements are swept
RNG = np.random.default_rng(5)
TOLERANCES = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1e-2}
KERNELS = ["cross_entropy_total", "class_loss_sums", "cross_entropy_slope"]


def reference(x: Any, target: Any, dim: int, reduction: str, ignore_index: int, smoothing: float) -> tuple[float, Any]:
    """Return the loss and its gradient (Szegedy et al. 2016, section 7)."""
    logs, counted = scipy.special.log_softmax(x, axis=dim), target != ignore_index
    distribution = np.full(x.shape, smoothing / x.shape[dim])
    classes = np.expand_dims(np.where(counted, target, 0), dim)
    share = np.take_along_axis(distribution, classes, dim) + 1 - smoothing
    np.put_along_axis(distribution, classes, share, dim)
    divisor = counted.sum() if reduction == "mean" else 1
    loss = -((distribution * logs).sum(dim) * counted).sum() / divisor
    return loss, (np.exp(logs) - distribution) * np.expand_dims(counted, dim) / divisor


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((6, 9), 1), ((7,), 0), ((4, 9, 5), 1), ((1, 1), 1), ((3, 1024), 1), ((3, 1025), 1), ((2, 1100, 3), 1)],
)
def test_cross_entropy(dtype: str, shape: tuple[int, ...], dim: int) -> None:
    for reduction, ignore_index, smoothing in (("mean", -100, 0.0), ("sum", 0, 0.2), ("mean", 0, 0.2)):
        x = wg.tensor(4 * RNG.standard_normal(shape), dtype=getattr(wg, dtype), device=DEVICE, requires_grad=True)
        target = RNG.integers(0, shape[dim], shape[:dim] + shape[dim + 1 :])
        target.flat[0] = ignore_index if target.size > 1 else shape[dim] - 1
        if not (target != ignore_index).any():
            ignore_index = -100
        target = np.where((target == -100) & (ignore_index != -100), 0, target)
        expected, slope = reference(x.detach().cpu().double().numpy(), target, dim, reduction, ignore_index, smoothing)
        launches = len(DRIVER.launched)
        with DRIVER.no_host_reads():
            loss = F.cross_entropy(
                x, wg.tensor(target, device=DEVICE), reduction=reduction, ignore_index=ignore_index,
                label_smoothing=smoothing,
            )  # fmt: skip
            loss.backward()
        names = [step.instance.name for step in DRIVER.launched[launches:]]
        assert [name for name in names if name != "full_like_as"] == KERNELS
        tolerance = TOLERANCES[dtype]
        assert loss.dtype is x.dtype is x.grad.dtype
        np.testing.assert_allclose(float(loss), expected, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(
            x.grad.cpu().double().numpy(), slope, rtol=tolerance, atol=tolerance * np.abs(slope).max()
        )
    wg.synchronize(DEVICE)


@pytest.mark.parametrize("classes", [10, 3000])
def test_a_large_constant_in_the_logits_changes_nothing(classes: int) -> None:
    """The logarithm of the sum of exponentials is small beside the maximum: their sum would lose its digits."""
    values = (RNG.standard_normal((4, classes)) + 1e5).astype(np.float32)
    target = RNG.integers(0, classes, 4)
    x = wg.tensor(values, device=DEVICE, requires_grad=True)
    loss = F.cross_entropy(x, wg.tensor(target, device=DEVICE))
    loss.backward()
    expected, slope = reference(values.astype(np.float64), target, 1, "mean", -100, 0.0)
    np.testing.assert_allclose(float(loss), expected, rtol=2e-5)
    np.testing.assert_allclose(x.grad.cpu().numpy(), slope, rtol=2e-5, atol=2e-6 * np.abs(slope).max())


def test_ignored_targets_that_float32_does_not_hold() -> None:
    x = wg.tensor(RNG.standard_normal((3, 5)), device=DEVICE)
    target = wg.tensor([1, 2**24 + 1, 2**24], device=DEVICE)
    F.cross_entropy(x, target, ignore_index=2**24)
    with pytest.raises(errors.IndexOutOfRange):
        wg.synchronize(DEVICE)


def test_layouts_and_integer_targets() -> None:
    values = RNG.standard_normal((9, 6))
    x = wg.tensor(values, device=DEVICE).T.requires_grad_(True)
    target = np.array([8, 0, 3, 3, 1, 7])
    for dtype in (wg.uint8, wg.int32, wg.int64):
        loss = F.cross_entropy(x, wg.tensor(target, dtype=dtype, device=DEVICE))
        np.testing.assert_allclose(float(loss), reference(values.T, target, 1, "mean", -100, 0.0)[0], rtol=1e-6)


def test_second_derivatives() -> None:
    target = wg.tensor(np.array([0, 3, 6, -100, 2]), device=DEVICE)
    x = wg.tensor(RNG.standard_normal((5, 7)), device=DEVICE, requires_grad=True)
    for reduction in ("mean", "sum"):
        assert wg.autograd.gradgradcheck(
            lambda x, r=reduction: F.cross_entropy(x, target, label_smoothing=0.1, reduction=r), (x,)
        )


def test_no_target_counts() -> None:
    x = wg.tensor(RNG.standard_normal((3, 4)), dtype=wg.float32, device=DEVICE, requires_grad=True)
    target = wg.tensor(np.full(3, -100), device=DEVICE)
    assert np.isnan(float(F.cross_entropy(x, target)))
    loss = F.cross_entropy(x, target, reduction="sum")
    loss.backward()
    assert float(loss) == 0
    assert not x.grad.cpu().numpy().any()


def test_a_wrong_target_raises_when_the_host_synchronizes() -> None:
    x = wg.tensor(RNG.standard_normal((3, 4)), device=DEVICE)
    for wrong in (4, -1):
        F.cross_entropy(x, wg.tensor(np.array([0, wrong, 2]), device=DEVICE))
        with pytest.raises(errors.IndexOutOfRange, match=f"target {wrong} .* 4 classes"):
            wg.synchronize(DEVICE)


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax, wg.logsumexp])
def test_long_rows_of_infinities_and_nan(function: Any) -> None:
    """The sum that is computed beside the maximum has the same special values as one computed after it."""
    inf, nan = np.inf, np.nan
    ends = (
        [-inf] * 1100, [inf, *[0.0] * 1099], [inf, inf, *[0.0] * 1098], [nan, *[0.0] * 1099], [*[-inf] * 1099, 1.0],
        [*[-inf] * 70, *np.linspace(-90, 88, 1030)], [*[1e38] * 1000, *[-1e38] * 100],
    )  # fmt: skip
    for values in ends:
        row = np.array(values, np.float32)
        expected = function(wg.tensor(row[None], dtype=wg.float64), 1).numpy()
        actual = function(wg.tensor(row[None], device=DEVICE), 1).cpu().numpy()
        np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=1e-7)
