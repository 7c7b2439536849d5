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


@pytest.mark.parametrize("few", [2, 3, 5, 8, 13, 16, 37, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool"])
def test_short_rows_are_joined_beside_what_is_the_same_in_each(few: int, dtype: str) -> None:
    rng = np.random.default_rng(few)
    kind = getattr(wg, dtype)
    many = 40_000 // few  # shared by several work-items, which begin within a row
    rows, same, other = (wg.tensor(rng.integers(-9, 9, shape)).to(kind) for shape in [(many, few), (few,), (few,)])
    (step,) = dispatch.plan_for(registry["maximum"], (rows, same)).steps
    assert "PERIOD" in dict(step.instance.defines) or few > 4 * step.instance.lanes
    a, b, c = (t.to(wg.float64).numpy() for t in (rows, same, other))
    assert np.array_equal(wg.maximum(rows, same).to(wg.float64).numpy(), np.maximum(a, b))
    assert np.array_equal(wg.maximum(same, rows).to(wg.float64).numpy(), np.maximum(a, b))
    mask = other > 0  # a mask is no such operand: its rows stay apart
    assert np.array_equal(wg.where(mask, rows, same).to(wg.float64).numpy(), np.where(c > 0, a, b))
    assert np.array_equal(wg.where(rows > 0, same, other).to(wg.float64).numpy(), np.where(a > 0, b, c))
    assert np.array_equal(wg.maximum(rows[1:], same).to(wg.float64).numpy(), np.maximum(a[1:], b))


def test_short_rows_joined_in_place_and_within_more_dimensions() -> None:
    rng = np.random.default_rng(2)
    images, mean, scale = rng.standard_normal((6, 50, 40, 3)), rng.standard_normal(3), rng.standard_normal((6, 1, 1, 3))
    found = (wg.tensor(images) - wg.tensor(mean)) * wg.tensor(scale)
    assert np.array_equal(found.numpy(), (images - mean) * scale)
    cut = wg.tensor(images)[:, 3:20, 1:, :] - wg.tensor(mean)
    assert np.array_equal(cut.numpy(), images[:, 3:20, 1:, :] - mean)
    written = wg.tensor(images)
    written += wg.tensor(mean)
    assert np.array_equal(written.numpy(), images + mean)


@pytest.mark.parametrize("few", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "bool"])
def test_short_rows_that_lie_apart_are_walked_across(few: int, dtype: str) -> None:
    rng = np.random.default_rng(few)
    kind = getattr(wg, dtype)
    planes = wg.tensor(rng.integers(-9, 9, (3, few, 71, 83))).to(kind)
    a = planes.to(wg.float64).numpy()
    assert np.array_equal(planes.permute(0, 2, 3, 1).contiguous().to(wg.float64).numpy(), a.transpose(0, 2, 3, 1))
    pairs = planes.reshape(3, few, 71 * 83)[:, :, ::2]
    column = pairs[:, :1].transpose(1, 2)
    b = a.reshape(3, few, -1)[:, :, ::2]
    found = wg.maximum(pairs.transpose(1, 2), column).contiguous()
    assert np.array_equal(found.to(wg.float64).numpy(), np.maximum(b, b[:, :1]).transpose(0, 2, 1))
    deep = wg.tensor(np.arange(40 * few**5)).to(kind).reshape(40, few, few, few, few, few)
    turned = deep.permute(0, 5, 4, 3, 2, 1).contiguous()
    assert np.array_equal(turned.to(wg.float64).numpy(), deep.to(wg.float64).numpy().transpose(0, 5, 4, 3, 2, 1))
    blocks = planes.reshape(3, few, 71, 83).permute(2, 0, 3, 1).contiguous()
    assert np.array_equal(blocks.to(wg.float64).numpy(), a.transpose(2, 0, 3, 1))
