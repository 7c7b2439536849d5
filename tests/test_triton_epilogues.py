"""Epilogues of the Triton target, in Triton's interpreter: every schedule that stores through one, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import weftgrad as wg
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.backends.interpreter import InterpreterDriver
from weftgrad.runtime.device import Device, meta
from weftgrad.runtime.kinds import Request, planner
from weftgrad.runtime.records import registry


def interpreter(overrides: str) -> Device:
    place = Device("interpreter", None)
    place._driver = InterpreterDriver(place, overrides)
    return place


ONE, MANY, HOPPER = interpreter("cores=1"), interpreter("cores=64"), interpreter("cores=4,sm=90,local_memory=232448")


def product(place: Device, op: str, tensors: Any, numbers: tuple[float, ...], expected: Any, tolerance: float) -> Any:
    """Check the op on arrays (dtypes by their names), and give its schedules."""
    given = [wg.tensor(x, dtype=getattr(wg, dtype), device=place) for x, dtype in tensors]
    found = dispatch.call(registry[op], (*given, *numbers))
    assert found.dtype is given[-1].dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.float().cpu().numpy(), expected, rtol=tolerance, atol=tolerance)
    operands = (*(meta(dtypes.BY_NAME[d], x.shape, None, place) for x, d in tensors), *(float for _ in numbers))
    steps = planner("contraction")(Request(registry[op], operands, (), place)).steps
    return [s.instance.entry.removeprefix("contraction_") for s in steps]


def drawn(*shape: int) -> Any:
    return (np.random.default_rng(sum(shape)).integers(-32, 33, shape) / 32).astype(np.float32)


@pytest.mark.parametrize("shape", [(70,), (40, 1), (40, 70), ()])
def test_a_tile_stores_through_the_epilogue(shape: tuple[int, ...]) -> None:
    a, b, c = drawn(40, 65), drawn(65, 70), drawn(*shape)
    tensors = [(c, "float32"), (a, "float32"), (b, "float32")]
    assert product(ONE, "addmm_product", tensors, (0.5, 2.0), 0.5 * c + 2 * (a @ b), 1e-4) == ["tile"]


def test_other_schedules() -> None:
    c = drawn(70)
    a, b = drawn(5, 3), drawn(3, 70)
    names = [(c, "float32"), (a, "float32"), (b, "float32")]
    assert product(ONE, "addmm_relu", names, (1.0, 1.0), np.maximum(c + a @ b, 0), 1e-5) == ["multiply"]
    a, b = drawn(1, 65), drawn(65, 70)
    names = [(c, "float32"), (a, "float32"), (b, "float32")]
    assert product(ONE, "addmm_relu", names, (1.0, 1.0), np.maximum(c + a @ b, 0), 1e-4) == ["dots", "move"]
    a, b = drawn(16, 8192), drawn(8192, 16)
    c = drawn(16)
    names = [(c, "float16"), (a, "float16"), (b, "float16")]
    steps = product(MANY, "addmm_product", names, (-1.0, 0.25), 0.25 * (a @ b) - c, 5e-2)
    assert steps == ["tile", "finish", "move"]
    a, b = np.zeros((4, 0), np.float32), np.zeros((0, 16), np.float32)
    names = [(c, "float32"), (a, "float32"), (b, "float32")]
    product(ONE, "addmm_product", names, (2.0, 1.0), np.broadcast_to(2 * c, (4, 16)), 0)


def test_a_batch_and_the_copy_engine() -> None:
    c, a, b = drawn(3, 1, 33), drawn(3, 18, 40), drawn(3, 40, 33)
    names = [(c, "float32"), (a, "float32"), (b, "float32")]
    assert product(ONE, "baddbmm_product", names, (3.0, 1.0), 3 * c + a @ b, 1e-4) == ["tile"]
    c, a, b = drawn(256), drawn(384, 256), drawn(256, 256)
    names = [(a, "float16"), (b.T.copy(), "float16"), (c, "float16")]
    assert product(HOPPER, "linear_bias", names, (), a @ b + c, 5e-2) == ["tma"]
