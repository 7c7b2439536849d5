"""Check pointwise ops on transposed operands (in tiles, with partial tiles at the edges) and on short rows."""

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime import dispatch
from weftgrad.runtime.records import registry


def entries(name: str, *operands: wg.Tensor) -> set[str]:
    return {step.instance.entry for step in dispatch.plan_for(registry[name], operands).steps}


@pytest.mark.parametrize("shape", [(16, 16), (33, 150), (2, 70, 65)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "bool"])
def test_tiles_compute_the_same_values_as_rows(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    wg_dtype = getattr(wg, dtype)
    x = wg.tensor(rng.integers(-50, 50, shape)).to(wg_dtype)
    y = wg.tensor(rng.integers(-50, 50, (*shape[:-2], shape[-1], shape[-2]))).to(wg_dtype)
    a, b = x.to(wg.float64).numpy(), np.swapaxes(y.to(wg.float64).numpy(), -1, -2)
    transposed = y.transpose(-1, -2)
    assert entries("maximum", x, transposed) == {"maximum_tiles"}
    assert np.array_equal(wg.maximum(x, transposed).to(wg.float64).numpy(), np.maximum(a, b))
    assert np.array_equal(wg.where(transposed > 0, transposed, x).to(wg.float64).numpy(), np.where(b > 0, b, a))
    assert np.array_equal(transposed.contiguous().to(wg.float64).numpy(), b)


def test_tiles_in_place_with_broadcasting_and_in_three_dimensions() -> None:
    rng = np.random.default_rng(1)
    x, row = rng.standard_normal((40, 50)), rng.standard_normal(40)
    output = wg.tensor(x).t() * wg.tensor(row) + wg.tensor(x[:1].T.copy())
    assert np.allclose(output.numpy(), x.T * row + x[:1].T, rtol=1e-15)
    square = wg.tensor(x[:, :40].copy())
    updated = square.clone()
    updated += square.t()
    assert np.array_equal(updated.numpy(), x[:, :40] + x[:, :40].T)
    cube = rng.standard_normal((20, 3, 30, 40)).astype(np.float32)
    for order in ((3, 2, 1, 0), (0, 3, 1, 2), (2, 0, 3, 1)):
        actual = wg.tensor(cube).permute(order).contiguous().numpy()
        assert np.array_equal(actual, cube.transpose(order)), order


@pytest.mark.parametrize("row_length", [2, 3, 5, 8, 13, 16, 37, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool"])
def test_short_rows_are_merged_with_a_broadcast_row(row_length: int, dtype: str) -> None:
    rng = np.random.default_rng(row_length)
    wg_dtype = getattr(wg, dtype)
    row_count = 40_000 // row_length  # split between several work-items, which start within a row
    rows, shared_row, other_row = (
        wg.tensor(rng.integers(-9, 9, shape)).to(wg_dtype)
        for shape in [(row_count, row_length), (row_length,), (row_length,)]
    )
    (step,) = dispatch.plan_for(registry["maximum"], (rows, shared_row)).steps
    assert "PERIOD" in dict(step.instance.defines) or row_length > 4 * step.instance.lanes
    a, b, c = (t.to(wg.float64).numpy() for t in (rows, shared_row, other_row))
    assert np.array_equal(wg.maximum(rows, shared_row).to(wg.float64).numpy(), np.maximum(a, b))
    assert np.array_equal(wg.maximum(shared_row, rows).to(wg.float64).numpy(), np.maximum(a, b))
    mask = other_row > 0  # rows are not merged beside a broadcast mask
    assert np.array_equal(wg.where(mask, rows, shared_row).to(wg.float64).numpy(), np.where(c > 0, a, b))
    assert np.array_equal(wg.where(rows > 0, shared_row, other_row).to(wg.float64).numpy(), np.where(a > 0, b, c))
    assert np.array_equal(wg.maximum(rows[1:], shared_row).to(wg.float64).numpy(), np.maximum(a[1:], b))


def test_short_rows_are_merged_in_place_and_in_more_dimensions() -> None:
    rng = np.random.default_rng(2)
    images, mean, scale = rng.standard_normal((6, 50, 40, 3)), rng.standard_normal(3), rng.standard_normal((6, 1, 1, 3))
    actual = (wg.tensor(images) - wg.tensor(mean)) * wg.tensor(scale)
    assert np.array_equal(actual.numpy(), (images - mean) * scale)
    sliced = wg.tensor(images)[:, 3:20, 1:, :] - wg.tensor(mean)
    assert np.array_equal(sliced.numpy(), images[:, 3:20, 1:, :] - mean)
    updated = wg.tensor(images)
    updated += wg.tensor(mean)
    assert np.array_equal(updated.numpy(), images + mean)


@pytest.mark.parametrize("row_length", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "bool"])
def test_strided_short_rows_are_computed_column_by_column(row_length: int, dtype: str) -> None:
    rng = np.random.default_rng(row_length)
    wg_dtype = getattr(wg, dtype)
    planes = wg.tensor(rng.integers(-9, 9, (3, row_length, 71, 83))).to(wg_dtype)
    a = planes.to(wg.float64).numpy()
    assert np.array_equal(planes.permute(0, 2, 3, 1).contiguous().to(wg.float64).numpy(), a.transpose(0, 2, 3, 1))
    pairs = planes.reshape(3, row_length, 71 * 83)[:, :, ::2]
    column = pairs[:, :1].transpose(1, 2)
    b = a.reshape(3, row_length, -1)[:, :, ::2]
    actual = wg.maximum(pairs.transpose(1, 2), column).contiguous()
    assert np.array_equal(actual.to(wg.float64).numpy(), np.maximum(b, b[:, :1]).transpose(0, 2, 1))
    deep = (
        wg.tensor(np.arange(40 * row_length**5))
        .to(wg_dtype)
        .reshape(40, row_length, row_length, row_length, row_length, row_length)
    )
    reversed_axes = deep.permute(0, 5, 4, 3, 2, 1).contiguous()
    assert np.array_equal(reversed_axes.to(wg.float64).numpy(), deep.to(wg.float64).numpy().transpose(0, 5, 4, 3, 2, 1))
    blocks = planes.reshape(3, row_length, 71, 83).permute(2, 0, 3, 1).contiguous()
    assert np.array_equal(blocks.to(wg.float64).numpy(), a.transpose(2, 0, 3, 1))
