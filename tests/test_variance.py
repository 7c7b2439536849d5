"""Variance and standard deviation: values beside float64, derivatives of two orders, and the number of launches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.bench.audit.capture import capture
from weftgrad.runtime.backends.protocol import Step

Array = Any
RNG = np.random.default_rng(11)
# Shape, order of the dimensions in memory, reduced dimensions: rows, columns, several dimensions, few and long rows.
GEOMETRY = [
    ((5, 70), (0, 1), 1), ((5, 70), (0, 1), 0), ((5, 70), (1, 0), 1), ((300, 7), (0, 1), 1), ((300, 33), (0, 1), 1),
    ((3, 40, 21), (0, 1, 2), (0, 2)), ((3, 40, 21), (2, 0, 1), (1,)), ((2, 90001), (0, 1), 1), ((4, 5), (0, 1), None),
]  # fmt: skip
RTOL = {"float32": 3e-7, "float64": 1e-13, "bfloat16": 4e-3}  # of rounding the results
CASES = [("float32", *geometry) for geometry in GEOMETRY] + [
    (dtype, *geometry) for dtype in ("float64", "bfloat16") for geometry in (GEOMETRY[0], GEOMETRY[6])
]


def operand(shape: tuple[int, ...], order: tuple[int, ...], dtype: str, mean: float = 3.0) -> tuple[Any, Array]:
    """Return a tensor whose memory has the dimensions in `order`, and its values in float64."""
    values = RNG.standard_normal([shape[d] for d in order]) + mean
    tensor = wg.tensor(values).to(getattr(wg, dtype)).permute(*np.argsort(order).tolist())
    return tensor, tensor.double().numpy()


def test_values() -> None:
    pending = []  # so that the kernels are compiled together
    for number, (dtype, shape, order, dim) in enumerate(CASES):
        x, exact = operand(shape, order, dtype)
        keepdim, correction = bool(number % 2), (1, 0, 2.5)[number % 3]
        options = {"correction": correction, "keepdim": keepdim}
        variance, mean = exact.var(dim, ddof=correction, keepdims=keepdim), exact.mean(dim, keepdims=keepdim)
        pending.append((*wg.var_mean(x, dim, **options), variance, mean, dtype, shape))
        if number in (0, 1, len(CASES) - 1):
            pending.append((*wg.std_mean(x, dim, **options), np.sqrt(variance), mean, dtype, shape))
    for spread, mean, expected, expected_mean, dtype, shape in pending:
        assert spread.dtype is mean.dtype is getattr(wg, dtype)
        for result, reference in ((spread, expected), (mean, expected_mean)):
            np.testing.assert_allclose(result.double().numpy(), reference, rtol=RTOL[dtype], err_msg=f"{dtype} {shape}")


def test_a_large_mean_costs_no_digits() -> None:
    for dtype, mean, rtol in (("float32", 1e4, 1e-6), ("float64", 1e6, 1e-9)):
        x, exact = operand((5, 70), (0, 1), dtype, mean)
        for dim in (0, 1):
            np.testing.assert_allclose(x.var(dim).numpy(), exact.var(dim, ddof=1), rtol=rtol)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_unusual_counts_and_values(dtype: str) -> None:
    def var(values: list[float], **options: Any) -> float:
        return float(wg.tensor(values, dtype=getattr(wg, dtype)).var(**options).item())

    assert np.isnan(var([]))
    assert np.isnan(var([2.0]))
    assert var([2.0], correction=0) == 0.0
    assert var([1.0, 2.0], correction=3) == np.inf
    assert np.isnan(var([1.0, np.nan, 2.0]))
    assert np.isnan(var([1.0, np.inf, 2.0]))
    assert var([1e30] * 7) <= 1e-30 * 1e60  # though a square is beyond float32's range


def derivatives(x: Array, seed: Array, direction: Array, dim: int, is_std: bool) -> tuple[Array, Array]:
    """Return the gradient of `(seed * spread).sum()`, and that of `(gradient * direction).sum()`, in float64."""
    dof = x.shape[dim] - 1
    deviation = x - x.mean(dim, keepdims=True)
    variance = np.square(deviation).sum(dim, keepdims=True) / dof
    centred = direction - direction.mean(dim, keepdims=True)
    if not is_std:
        return 2 / dof * seed * deviation, 2 / dof * seed * centred
    std = np.sqrt(variance)
    projection = (centred * deviation).sum(dim, keepdims=True) / (dof * variance)
    return seed * deviation / (dof * std), seed / (dof * std) * (centred - projection * deviation)


@pytest.mark.parametrize(
    ("dtype", "is_std", "dim"),
    [*itertools.product(["float32", "float64"], [False, True], [0, 1]), ("bfloat16", False, 1)],
)
def test_two_orders_of_derivatives(dtype: str, is_std: bool, dim: int) -> None:
    x, exact = operand((6, 50), (0, 1), dtype)
    seed, exact_seed = operand((1, 50) if dim == 0 else (6, 1), (0, 1), dtype)
    direction, exact_direction = operand((6, 50), (0, 1), dtype)
    x.requires_grad_()
    spread = (wg.std if is_std else wg.var)(x, dim, keepdim=True)
    (first,) = wg.autograd.grad(spread, x, seed, create_graph=True)
    expected = derivatives(exact, exact_seed, exact_direction, dim, is_std)
    # A column's mean can be 10 times its deviation, whose square the second derivative of std is divided by.
    rtol, atol = {"float32": (2e-5, 2e-5), "float64": (1e-12, 1e-12), "bfloat16": (8e-3, 1e-6)}[dtype]
    assert first.dtype is x.dtype
    np.testing.assert_allclose(first.detach().double().numpy(), expected[0], rtol=rtol, atol=atol)
    if dtype == "bfloat16":  # which rounds the sums inside of the second derivative
        return
    (second,) = wg.autograd.grad(first, x, direction)
    np.testing.assert_allclose(second.double().numpy(), expected[1], rtol=rtol, atol=atol)


def test_both_results_have_gradients() -> None:
    x, exact = operand((6, 50), (0, 1), "float32")
    x.requires_grad_()
    variance, mean = wg.var_mean(x, 1)
    (2 * variance + 3 * mean).sum().backward()
    expected = 4 / 49 * (exact - exact.mean(1, keepdims=True)) + 3 / 50
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=2e-6, atol=2e-7)
    (grad_mean,) = wg.autograd.grad(wg.std_mean(x, 1)[1].sum(), x)
    np.testing.assert_allclose(grad_mean.numpy(), np.full((6, 50), 1 / 50), rtol=1e-6)


def test_the_gradient_of_no_deviation_is_zero() -> None:
    x = wg.full((2, 5), 0.25, requires_grad=True)
    x.std(1).sum().backward()
    assert not x.grad.numpy().any()


def test_the_same_call_gives_the_same_bits() -> None:
    for shape, order, dim in GEOMETRY[:2] + GEOMETRY[7:8]:
        x, _ = operand(shape, order, "float32")
        assert x.var(dim).numpy().tobytes() == x.var(dim).numpy().tobytes()


# Launches


def steps(device: wg.device, prepare: Callable[[], Callable[[], object]]) -> list[Step]:
    launches, _ = capture(device, prepare)
    return [launch.step for launch in launches]


def entry_of(step: Step) -> str:
    return step.instance.entry


def _call(device: wg.device, dtype: wg.dtype, shape: tuple[int, ...], dim: int, name: str) -> Callable[[], Any]:
    x = wg.empty(shape, dtype=dtype, device=device)
    return lambda: getattr(wg, name)(x, dim)


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize("dtype", [wg.float32, wg.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "dim", "limit"), [((8192, 4096), 1, 1), ((8192, 4096), 0, 2), ((2, 1 << 20), 1, 2), ((64, 30), 1, 1)]
)
def test_launches(name: str, dtype: wg.dtype, shape: tuple[int, ...], dim: int, limit: int) -> None:
    device = wg.device("cpu")
    entries = [entry_of(s) for s in steps(device, lambda: _call(device, dtype, shape, dim, name))]
    assert 1 <= len(entries) <= limit, entries
    assert {entry.rpartition("_and_mean_")[0] for entry in entries} == {"variance" if name[0] == "v" else "std"}


def test_float64_takes_two_passes_without_a_temporary() -> None:
    device = wg.device("cpu")
    launches, _ = capture(device, lambda: _call(device, wg.float64, (512, 4096), 1, "var"))
    assert len(launches) == 2
    assert max(b.nbytes for launch in launches for b in launch.buffers[1:] if b.nbytes < 512 * 4096 * 8) <= 512 * 8


def test_backward_is_one_launch() -> None:
    device = wg.device("cpu")

    def prepare() -> Callable[[], object]:
        x = wg.empty(512, 1024, device=device, requires_grad=True)
        variance, seed = x.var(1), wg.empty(512, device=device)
        return lambda: wg.autograd.grad(variance, x, seed)

    assert [entry_of(s) for s in steps(device, prepare)] == ["variance_and_mean_grad_input_rows"]
