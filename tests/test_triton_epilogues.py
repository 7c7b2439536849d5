"""Check epilogues of Triton contractions: every schedule that stores through one, in the interpreter, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import weftgrad as wg
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.backends.interpreter import InterpreterDriver
from weftgrad.runtime.device import Device, create_device, meta
from weftgrad.runtime.kinds import Request
from weftgrad.runtime.planners import planner
from weftgrad.runtime.records import registry


def interpreter(overrides: str) -> Device:
    device = create_device("interpreter")
    device._driver = InterpreterDriver(device, overrides)
    return device


ONE_CORE, MANY_CORES, HOPPER = (
    interpreter("cores=1"),
    interpreter("cores=64"),
    interpreter("cores=4,sm=90,local_memory=232448"),
)


def check_product(
    device: Device, op: str, typed_arrays: Any, numbers: tuple[float, ...], expected: Any, tolerance: float
) -> Any:
    """Check the op on arrays, each with the name of its dtype, and return its schedules."""
    tensors = [wg.tensor(x, dtype=getattr(wg, dtype), device=device) for x, dtype in typed_arrays]
    actual = dispatch.call(registry[op], (*tensors, *numbers))
    assert actual.dtype is tensors[-1].dtype
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual.float().cpu().numpy(), expected, rtol=tolerance, atol=tolerance)
    operands = (*(meta(dtypes.BY_NAME[d], x.shape, None, device) for x, d in typed_arrays), *(float for _ in numbers))
    steps = planner("contraction")(Request(registry[op], operands, (), device)).steps
    return [s.instance.entry.removeprefix("contraction_") for s in steps]


def random_array(*shape: int) -> Any:
    return (np.random.default_rng(sum(shape)).integers(-32, 33, shape) / 32).astype(np.float32)


@pytest.mark.parametrize("shape", [(70,), (40, 1), (40, 70), ()])
def test_a_tile_stores_through_the_epilogue(shape: tuple[int, ...]) -> None:
    a, b, c = random_array(40, 65), random_array(65, 70), random_array(*shape)
    tensors = [(c, "float32"), (a, "float32"), (b, "float32")]
    assert check_product(ONE_CORE, "addmm_product", tensors, (0.5, 2.0), 0.5 * c + 2 * (a @ b), 1e-4) == ["tile"]


def test_other_schedules() -> None:
    c = random_array(70)
    a, b = random_array(5, 3), random_array(3, 70)
    operands = [(c, "float32"), (a, "float32"), (b, "float32")]
    assert check_product(ONE_CORE, "addmm_relu", operands, (1.0, 1.0), np.maximum(c + a @ b, 0), 1e-5) == ["multiply"]
    a, b = random_array(1, 65), random_array(65, 70)
    operands = [(c, "float32"), (a, "float32"), (b, "float32")]
    assert check_product(ONE_CORE, "addmm_relu", operands, (1.0, 1.0), np.maximum(c + a @ b, 0), 1e-4) == [
        "dots",
        "move",
    ]
    a, b = random_array(16, 8192), random_array(8192, 16)
    c = random_array(16)
    operands = [(c, "float16"), (a, "float16"), (b, "float16")]
    steps = check_product(MANY_CORES, "addmm_product", operands, (-1.0, 0.25), 0.25 * (a @ b) - c, 5e-2)
    assert steps == ["tile", "finish", "move"]
    a, b = np.zeros((4, 0), np.float32), np.zeros((0, 16), np.float32)
    operands = [(c, "float32"), (a, "float32"), (b, "float32")]
    check_product(ONE_CORE, "addmm_product", operands, (2.0, 1.0), np.broadcast_to(2 * c, (4, 16)), 0)


def test_a_batch_and_the_copy_engine() -> None:
    c, a, b = random_array(3, 1, 33), random_array(3, 18, 40), random_array(3, 40, 33)
    operands = [(c, "float32"), (a, "float32"), (b, "float32")]
    assert check_product(ONE_CORE, "baddbmm_product", operands, (3.0, 1.0), 3 * c + a @ b, 1e-4) == ["tile"]
    c, a, b = random_array(256), random_array(384, 256), random_array(256, 256)
    operands = [(a, "float16"), (b.T.copy(), "float16"), (c, "float16")]
    assert check_product(HOPPER, "linear_bias", operands, (), a @ b + c, 5e-2) == ["tma"]
