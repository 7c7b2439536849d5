"""Pointwise ops on operands that lie across their results: in tiles, with what fills none, of every kind of operand."""

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime import dispatch
from weftgrad.runtime.records import registry


def entries(name: str, *operands: wg.Tensor) -> set[str]:
    return {step.instance.entry for step in dispatch.plan_for(registry[name], operands).steps}


@pytest.mark.parametrize("shape", [(16, 16), (33, 150), (2, 70, 65)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "bool"])
def test_tiles_have_the_values_of_rows(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    kind = getattr(wg, dtype)
    x = wg.tensor(rng.integers(-50, 50, shape)).to(kind)
    y = wg.tensor(rng.integers(-50, 50, (*shape[:-2], shape[-1], shape[-2]))).to(kind)
    a, b = x.to(wg.float64).numpy(), np.swapaxes(y.to(wg.float64).numpy(), -1, -2)
    turned = y.transpose(-1, -2)
    assert entries("maximum", x, turned) == {"maximum_tiles"}
    assert np.array_equal(wg.maximum(x, turned).to(wg.float64).numpy(), np.maximum(a, b))
    assert np.array_equal(wg.where(turned > 0, turned, x).to(wg.float64).numpy(), np.where(b > 0, b, a))
    assert np.array_equal(turned.contiguous().to(wg.float64).numpy(), b)


def test_tiles_in_place_broadcast_and_of_three_dimensions() -> None:
    rng = np.random.default_rng(1)
    x, row = rng.standard_normal((40, 50)), rng.standard_normal(40)
    made = wg.tensor(x).t() * wg.tensor(row) + wg.tensor(x[:1].T.copy())
    assert np.allclose(made.numpy(), x.T * row + x[:1].T, rtol=1e-15)
    square = wg.tensor(x[:, :40].copy())
    written = square.clone()
    written += square.t()
    assert np.array_equal(written.numpy(), x[:, :40] + x[:, :40].T)
    cube = rng.standard_normal((20, 3, 30, 40)).astype(np.float32)
    for order in ((3, 2, 1, 0), (0, 3, 1, 2), (2, 0, 3, 1)):
        found = wg.tensor(cube).permute(order).contiguous().numpy()
        assert np.array_equal(found, cube.transpose(order)), order
