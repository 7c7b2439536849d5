"""Check functions that take indices against NumPy: masks, gather, scatter, embedding, concatenation.

`test_indexing` runs this file again with GPU schedules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from index_checks import IS_NESTED, ONLY_ONCE, assert_equal, host, numbers, synchronized

import weftgrad as wg
from weftgrad.indexing.subscripts import index_put_
from weftgrad.layer_functions.embeddings import embedding, one_hot
from weftgrad.runtime.errors import (
    IndexOutOfRange,
    NotSupported,
    ShapeError,
)

# Single cases


@ONLY_ONCE
def test_placement_of_results_follows_pytorch() -> None:
    x = wg.zeros(2, 3, 4, 5)
    i, j = wg.tensor([0, 1, 1]), wg.tensor([1, 0, 2])
    assert tuple(x[:, i].shape) == (2, 3, 4, 5)
    assert tuple(x[:, i, j].shape) == (2, 3, 5)
    assert tuple(x[i, :, j].shape) == (3, 3, 5)
    assert tuple(x[:, i, :, j].shape) == (3, 2, 4)
    assert tuple(x[i, None, j].shape) == (3, 1, 4, 5)
    assert tuple(x[0, :, i].shape) == (3, 3, 5)  # NumPy treats 0 as an index array, and gives the same shape here
    assert tuple(x[0, :, :, i].shape) == (3, 4, 3)  # but (3, 3, 4) here
    assert tuple(x[i[:, None], j].shape) == (3, 3, 4, 5)
    assert tuple(x[True].shape) == (1, 2, 3, 4, 5)
    assert tuple(x[False].shape) == (0, 2, 3, 4, 5)
    assert tuple(x[wg.tensor(1)].shape) == (3, 4, 5)
    assert tuple(x[[]].shape) == (0, 3, 4, 5)
    assert tuple(x[..., np.int64(1), wg.tensor(2)].shape) == (2, 3)
    assert x[0].storage is x.storage
    assert x[..., 1:3].storage is x.storage


def test_masks() -> None:
    values = np.random.default_rng(0).standard_normal((37, 41)).astype("float32")
    x, mask = wg.tensor(values), values > 0.3
    assert_equal(x[wg.tensor(mask)], values[mask])
    assert_equal(x[mask], values[mask])
    assert_equal(wg.masked_select(x, wg.tensor(mask[:, :1])), values[np.broadcast_to(mask[:, :1], mask.shape)])
    assert_equal(wg.nonzero(wg.tensor(mask)), np.argwhere(mask))
    for actual, expected in zip(wg.tensor(mask).nonzero(as_tuple=True), np.nonzero(mask), strict=True):
        assert_equal(actual, expected)
    assert tuple(wg.nonzero(wg.zeros(3, 4)).shape) == (0, 2)
    assert tuple(wg.nonzero(wg.zeros(0, 4)).shape) == (0, 2)
    assert tuple(wg.nonzero(wg.tensor(2.0)).shape) == (1, 0)
    y = x.clone()
    y[wg.tensor(mask)] = 0
    assert_equal(y, np.where(mask, 0, values))
    y = x.clone()
    y[mask[:, 0]] = wg.tensor(2.5)
    assert_equal(y, np.where(mask[:, :1], np.float32(2.5), values))
    y = x.clone()
    y[mask] = wg.tensor(values[mask] * 2)
    assert_equal(y, np.where(mask, values * 2, values))
    assert_equal(x.masked_fill(wg.tensor(mask), -1.0), np.where(mask, np.float32(-1), values))
    expected = values.copy()
    np.place(expected, mask, numbers(mask.shape).reshape(-1))
    assert_equal(x.masked_scatter(wg.tensor(mask), wg.tensor(numbers(mask.shape))), expected)
    assert_equal(x.clone().masked_scatter_(wg.tensor(mask), wg.tensor(numbers(mask.shape))), expected)


def test_nonzero_at_the_sizes_of_work_groups_and_chunks() -> None:
    rng = np.random.default_rng(1)
    for size in (1, 31, 4095, 4096, 8193, 200_000):
        for density in (0.0, 0.5, 1.0):
            mask = rng.random(size) < density
            assert_equal(wg.nonzero(wg.tensor(mask)), np.argwhere(mask))


@pytest.mark.parametrize("dtype", ["float32", "float16"] if IS_NESTED else ["float32", "float16", "int64", "bool"])
def test_gather_and_scatter_equal_numpy(dtype: str) -> None:
    rng = np.random.default_rng(2)
    for shape in ((5,), (4, 7), (3, 4, 5), (2, 70, 3)) if dtype == "float32" else ((4, 7),):
        for dim in range(len(shape)):
            values = rng.integers(0, 20, shape).astype(dtype)
            index_shape = tuple(int(rng.integers(1, n + 1)) for n in shape)
            index_shape = index_shape[:dim] + (9,) + index_shape[dim + 1 :]
            index = rng.integers(0, shape[dim], index_shape)
            other_slices = tuple(slice(0, n) for d, n in enumerate(index_shape) if d != dim)
            source_region = values[other_slices[:dim] + (slice(None),) + other_slices[dim:]]
            assert_equal(
                wg.gather(wg.tensor(values), dim - len(shape), wg.tensor(index)),
                np.take_along_axis(source_region, index, dim),
            )
            source = rng.integers(0, 20, tuple(n + 1 for n in index_shape)).astype(dtype)
            expected, added = values.copy(), values.copy()
            for position in np.ndindex(*index_shape):
                target = (*position[:dim], index[position], *position[dim + 1 :])
                expected[target] = source[position]
                added[target] += source[position]
            assert_equal(wg.tensor(values).scatter(dim, wg.tensor(index), wg.tensor(source)), expected)
            if dtype != "bool":
                assert_equal(wg.tensor(values).scatter_add_(dim, wg.tensor(index), wg.tensor(source)), added)
            filled = values.copy()
            np.put_along_axis(
                filled[other_slices[:dim] + (slice(None),) + other_slices[dim:]], index, np.array(3, dtype), dim
            )
            assert_equal(wg.tensor(values).scatter_(dim, wg.tensor(index), value=3), filled)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("shape", [(5, 16), (3, 77), (2, 7), (2100, 1024)])
def test_gathers_of_neighbours_read_vectors_of_any_dtypes(dtype: str, shape: tuple[int, int]) -> None:
    """Check rows of whole vectors, with a remainder, shorter than a vector, and enough for non-temporal stores."""
    rng = np.random.default_rng(13)
    values = (rng.standard_normal(shape) * 100).astype(dtype)
    for index_dtype in ("int64", "int32", "int16", "uint8"):
        if index_dtype != "int64" and shape[0] > 1000:
            continue
        for dim in (1, 0):
            indices = rng.integers(0, min(shape[dim], 100), shape).astype(index_dtype)
            expected = np.take_along_axis(values, indices.astype(np.int64), dim)
            actual = wg.gather(wg.tensor(values), dim, wg.tensor(indices)).cpu().numpy()
            assert (actual == expected).all(), (dtype, index_dtype, shape, dim)


@pytest.mark.parametrize("bad_index", [64, -1, 2**32 + 3, -(2**40)])
@pytest.mark.parametrize("column", [0, 37, 69])
def test_vector_gathers_report_every_index_out_of_range(bad_index: int, column: int) -> None:
    indices = np.zeros((3, 70), np.int64)
    indices[1, column] = bad_index
    with pytest.raises(IndexError, match="out of"):
        wg.gather(wg.ones(3, 64), 1, wg.tensor(indices)).sum().item()


def test_slices_along_a_dimension() -> None:
    rng = np.random.default_rng(3)
    for shape in ((6,), (5, 33), (3, 4, 5)):
        for dim in range(len(shape)):
            values = rng.standard_normal(shape).astype("float32")
            index = rng.integers(0, shape[dim], 11)
            leading = np.moveaxis(values, dim, 0)
            source = rng.standard_normal((11, *leading.shape[1:])).astype("float32")
            index_tensor = wg.tensor(index)
            source_tensor = wg.tensor(np.moveaxis(source, 0, dim).copy())
            assert_equal(wg.index_select(wg.tensor(values), dim, index_tensor), np.take(values, index, dim))
            added, copied, filled = leading.copy(), leading.copy(), leading.copy()
            for k, i in enumerate(index):
                added[i] += 2 * source[k]
                copied[i] = source[k]
                filled[i] = 0.5
            for actual, expected in (
                (wg.tensor(values).index_add(dim, index_tensor, source_tensor, alpha=2), added),
                (wg.tensor(values).index_add_(dim, index_tensor, source_tensor, alpha=2), added),
                (wg.tensor(values).index_copy(dim, index_tensor, source_tensor), copied),
                (wg.tensor(values).index_copy_(dim, index_tensor, source_tensor), copied),
                (wg.tensor(values).index_fill(dim, index_tensor, 0.5), filled),
                (wg.tensor(values).index_fill_(dim, index_tensor, wg.tensor(0.5)), filled),
            ):
                assert_equal(actual, np.moveaxis(expected, 0, dim))


def test_sums_of_duplicates_are_in_order() -> None:
    """Accumulation has the bits of a sequential loop over the indices, every time."""
    rng = np.random.default_rng(4)
    index = rng.integers(0, 50, 5000)
    rows = rng.standard_normal((5000, 33)).astype("float32")
    expected = np.zeros((50, 33), "float32")
    for k, i in enumerate(index):
        expected[i] += rows[k]
    for _ in range(3):
        assert_equal(wg.zeros(50, 33).index_add_(0, wg.tensor(index), wg.tensor(rows)), expected)
    flat = rng.standard_normal(5000).astype("float32")
    summed = np.zeros(50, "float32")
    for k, i in enumerate(index):
        summed[i] += flat[k]
    assert_equal(wg.zeros(50).scatter_add(0, wg.tensor(index), wg.tensor(flat)), summed)


@ONLY_ONCE
@pytest.mark.parametrize("device_name", ["cpu", "opencl:909"])
@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16])
def test_sums_of_half_types_are_rounded_once(dtype: Any, device_name: str) -> None:
    device = (
        wg.device("cpu") if device_name == "cpu" else wg.testing.synthetic_device(909, "style=gpu,lanes=4,optimize=0")
    )
    rows = 5000
    source = wg.tensor(np.random.default_rng(0).random((rows, 3)), dtype=dtype, device=device)
    exact = np.asarray(source.double().cpu().tolist()).sum(0)
    index = wg.zeros(rows, dtype=wg.int64, device=device)
    wide_index = index.reshape(-1, 1).expand(rows, 3)

    def zeros(grad: bool = False) -> Any:
        return wg.zeros(2, 3, dtype=dtype, device=device, requires_grad=grad)

    def gradient(read_rows: Any) -> Any:
        """Return the gradient of a table from which `read_rows` reads row 0 for each row of `source`."""
        table = zeros(True)
        read_rows(table).backward(source)
        return table.grad

    for actual in (
        zeros().index_add_(0, index, source), wg.index_add(zeros(), 0, index, source),
        index_put_(zeros(), (index,), source, accumulate=True), zeros().scatter_add_(0, wide_index, source),
        wg.scatter_add(zeros(), 0, wide_index, source), zeros().T.contiguous().T.index_add_(0, index, source),
        zeros()[:, 0].index_add_(0, index, source[:, 0]).reshape(2, 1),
        gradient(lambda t: embedding(index, t)), gradient(lambda t: t[index]),
        gradient(lambda t: t.index_select(0, index)), gradient(lambda t: t.gather(0, wide_index)),
    ):  # fmt: skip
        assert actual.dtype is dtype
        values = np.asarray(actual.double().cpu().tolist())
        spacing = 2.0 ** (np.floor(np.log2(exact)) - (10 if dtype is wg.float16 else 7))
        assert (np.abs(values[0] - exact[: values.shape[1]]) <= spacing[: values.shape[1]]).all()
        assert not values[1].any()


def test_take_and_take_along_dim() -> None:
    values = numbers((3, 4, 5))
    index = np.array([[0, 59], [-1, 7]])
    assert_equal(wg.take(wg.tensor(values), wg.tensor(index)), np.take(values, index))
    assert_equal(wg.take(wg.tensor(values).transpose(0, 2), wg.tensor(index)), np.take(values.T, index))
    order = np.argsort(-values, 1)
    assert_equal(wg.take_along_dim(wg.tensor(values), wg.tensor(order), 1), np.take_along_axis(values, order, 1))
    assert_equal(wg.take_along_dim(wg.tensor(values), wg.tensor(order[:1, :, :1]), 1),
         np.take_along_axis(values, np.broadcast_to(order[:1, :, :1], values.shape), 1))  # fmt: skip
    assert_equal(wg.take_along_dim(wg.tensor(values), wg.tensor([1, 2])), values.reshape(-1)[[1, 2]])


def test_embedding() -> None:
    rng = np.random.default_rng(5)
    table = rng.standard_normal((10, 40))
    index = rng.integers(0, 10, (6, 7))
    index[0, :3] = 4
    for padding in (None, 4, -6):
        weight = wg.tensor(table, requires_grad=True)
        output = embedding(wg.tensor(index), weight, padding)
        assert_equal(output, table[index])
        grad = rng.standard_normal((6, 7, 40))
        output.backward(wg.tensor(grad))
        expected = np.zeros_like(table)
        np.add.at(expected, index, grad)
        if padding is not None:
            expected[padding] = 0
        assert np.allclose(host(weight.grad), expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(IndexOutOfRange, match=r"index 10 .* size 10"):
        synchronized(embedding(wg.tensor([10]), wg.tensor(table)))
    with pytest.raises(NotSupported):
        embedding(wg.tensor([1]), wg.tensor(table), sparse=True)


@ONLY_ONCE
def test_one_hot() -> None:
    assert_equal(one_hot(wg.tensor([[0, 2], [1, 1]])), np.eye(3, dtype=np.int64)[[[0, 2], [1, 1]]])
    assert tuple(one_hot(wg.tensor([0, 1]), 5).shape) == (2, 5)
    with pytest.raises(IndexOutOfRange, match="index 3"):
        synchronized(one_hot(wg.tensor([3]), 3))
    with pytest.raises(IndexOutOfRange, match=r"one_hot: class -5 is negative"):
        one_hot(wg.tensor([-7, -5]))
    with pytest.raises(IndexOutOfRange, match="index -5"):
        synchronized(one_hot(wg.tensor([1, -5])))


# Concatenation


@ONLY_ONCE
def test_joining_equals_numpy() -> None:
    a, b = numbers((3, 4)), -numbers((2, 4))
    x, y = wg.tensor(a), wg.tensor(b)
    assert_equal(wg.cat([x, y]), np.concatenate([a, b]))
    assert_equal(wg.cat([x.T, y.T], -1), np.concatenate([a.T, b.T], -1))
    assert_equal(wg.cat([x, wg.zeros(0), y]), np.concatenate([a, b]))
    assert_equal(wg.stack([x, x * 2], 1), np.stack([a, a * 2], 1))
    assert_equal(wg.stack([x, x * 2], -1), np.stack([a, a * 2], -1))
    assert_equal(wg.hstack([x, x]), np.hstack([a, a]))
    assert_equal(wg.vstack([x[0], x[1]]), np.vstack([a[0], a[1]]))
    assert_equal(wg.dstack([x, x]), np.dstack([a, a]))
    assert_equal(wg.column_stack([x[:, 0], x]), np.column_stack([a[:, 0], a]))
    mixed = wg.cat([wg.tensor([1, 2]), wg.tensor([0.5])])
    assert mixed.dtype is wg.float32
    assert_equal(mixed, np.float32([1, 2, 0.5]))
    for actual, expected in zip(wg.meshgrid(x[0], x[:, 0], indexing="xy"), np.meshgrid(a[0], a[:, 0]), strict=True):
        assert_equal(actual, expected)
    with pytest.raises(ShapeError, match=r"\[3, 4\] and \[4, 3\]"):
        wg.cat([x, x.T])
    with pytest.raises(ShapeError):
        wg.cat([])


@ONLY_ONCE
def test_cutting_and_repeating_equal_numpy() -> None:
    a = numbers((7, 6))
    x = wg.tensor(a)
    for actual, expected in zip(x.split(3), np.split(a, [3, 6]), strict=True):
        assert_equal(actual, expected)
        assert actual.storage is x.storage
    assert [tuple(p.shape) for p in x.split([1, 6])] == [(1, 6), (6, 6)]
    assert [tuple(p.shape) for p in x.chunk(4)] == [(2, 6), (2, 6), (2, 6), (1, 6)]
    for actual, expected in zip(x.tensor_split(4), np.array_split(a, 4), strict=True):
        assert_equal(actual, expected)
    for actual, expected in zip(x.hsplit(3), np.hsplit(a, 3), strict=True):
        assert_equal(actual, expected)
    assert_equal(x.repeat(2, 1, 3), np.tile(a, (2, 1, 3)))
    assert_equal(wg.tile(x, (2,)), np.tile(a, (2,)))
    assert_equal(x.repeat_interleave(2, 1), np.repeat(a, 2, 1))
    assert_equal(x.repeat_interleave(3), np.repeat(a, 3))
    assert_equal(x.repeat_interleave(wg.tensor([0, 1, 2, 0, 1, 1, 1]), 0), np.repeat(a, [0, 1, 2, 0, 1, 1, 1], 0))
    assert_equal(x.roll(2), np.roll(a, 2))
    assert_equal(x.roll((2, -1), (0, 1)), np.roll(a, (2, -1), (0, 1)))
    assert_equal(x.tril(1), np.tril(a, 1))
    assert_equal(x.triu(-2), np.triu(a, -2))
    assert_equal(wg.flip(x, (0,)), a[::-1])
    assert x.repeat(1, 1).storage is not x.storage
    with pytest.raises(ShapeError):
        x.split([1, 2])
