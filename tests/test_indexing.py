"""Check indexing, assignment, gather, scatter and concatenation against NumPy with random shapes and indices.

Expected values come from NumPy, gradients from central differences. The last test runs this file again with GPU
schedules, on a device that does not share memory with the host.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.autograd.gradcheck import gradcheck, gradgradcheck
from weftgrad.indexing.assignment import masked_fill_
from weftgrad.indexing.subscripts import index_put_
from weftgrad.layer_functions.embeddings import embedding, one_hot
from weftgrad.runtime.errors import (
    ArgumentError,
    DTypeError,
    GradientError,
    IndexOutOfRange,
    NotSupported,
    ShapeError,
    VersionError,
)

NESTED_VARIABLE = "WEFTGRAD_TEST_INDEXING_NESTED"  # set in the process that the last test starts
IS_NESTED = NESTED_VARIABLE in os.environ
ONLY_ONCE = pytest.mark.skipif(IS_NESTED, reason="other tests cover these kernels")
RANDOM_CASES = 40 if IS_NESTED else 100


def host(tensor: Any) -> np.ndarray[Any, Any]:
    return tensor.detach().cpu().numpy()


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Return 1, 2, 3, ... in a shape."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=dtype).reshape(shape)


def random_leaf(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Return a float64 tensor that requires a gradient."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return wg.tensor(values, requires_grad=True)


def assert_equal(actual: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert tuple(actual.shape) == expected.shape
    assert np.array_equal(host(actual), expected)


def synchronized(tensor: Any) -> Any:
    """Return `tensor` after waiting for the device, which then reports invalid indices."""
    wg.synchronize()
    return tensor


# --- Random index tuples ----------------------------------------------------------------------------------------------


class Case:
    """A random shape and a random index tuple.

    PyTorch applies ints before index tensors, unlike NumPy. So the expected value is `x[basic][advanced]`, with two
    index tuples of NumPy.

    Attributes:
        shape: 1 to 4 dimensions of 1 to 5 elements.
        items: The index tuple.
        basic: Its ints, slices and None; `slice(None)` in place of index arrays.
        advanced: Index arrays and masks for the dimensions that `basic` leaves; `slice(None)` for the others.
        index_shape: The shape of its index arrays, which thus broadcast.
    """

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.shape = tuple(int(n) for n in self.rng.integers(1, 6, self.rng.integers(1, 5)))
        self.items: list[Any] = []
        self.basic: list[Any] = []
        self.advanced: list[Any] = []
        self.index_shape = [(), (3,), (2, 3), (1,), (0,)][self.rng.integers(0, 5)]
        has_mask = False
        has_ellipsis = False
        dim = 0
        while dim < len(self.shape):
            kind = self.rng.choice(["int", "slice", "index", "index", "list", "none", "dots", "mask", "stop"])
            size = self.shape[dim]
            if kind == "int":
                self._add(int(self.rng.integers(-size, size)))
            elif kind == "slice":
                self._add(self._slice(size))
            elif kind in ("index", "list"):
                shape = self.index_shape if not has_mask else ()
                index = self.rng.integers(-size, size, shape)
                if kind == "list" and index.ndim:
                    self.items.append(index.tolist() if index.size else [])
                    index = np.asarray(self.items[-1], np.int64)
                elif index.ndim:
                    dtype = self.rng.choice(["int64", "int32"])
                    self.items.append(wg.tensor(index.astype(dtype)))
                else:
                    self._add(int(index))
                    dim += 1
                    continue
                self.basic.append(slice(None))
                self.advanced.append(index)
            elif kind == "none":
                self._add(None)
                continue
            elif kind == "dots" and not has_ellipsis:
                has_ellipsis = True
                ellipsis_dims = int(self.rng.integers(0, len(self.shape) - dim))
                self.items.append(Ellipsis)
                self.basic += [slice(None)] * ellipsis_dims
                self.advanced += [slice(None)] * ellipsis_dims
                dim += ellipsis_dims
                self._add_basic_items(dim)
                return
            elif kind == "mask" and not has_mask and self.index_shape == (3,):
                has_mask = True
                span = int(self.rng.integers(1, len(self.shape) - dim + 1))
                mask = np.zeros(self.shape[dim : dim + span], bool)
                count = min(3, mask.size)
                if count < 3:
                    continue
                mask.reshape(-1)[self.rng.choice(mask.size, 3, replace=False)] = True
                self.items.append(wg.tensor(mask) if self.rng.integers(2) else mask)
                self.basic += [slice(None)] * span
                self.advanced.append(mask)
                dim += span
                continue
            elif kind == "stop":
                break
            else:
                continue
            dim += 1

    def _slice(self, size: int) -> slice:
        bounds = [None if self.rng.integers(3) == 0 else int(self.rng.integers(-size - 1, size + 2)) for _ in range(2)]
        return slice(bounds[0], bounds[1], [None, 1, 2, 3][self.rng.integers(4)])

    def _add(self, item: int | slice | None) -> None:
        """Add a basic item; an int removes its dimension."""
        self.items.append(item)
        self.basic.append(item)
        if not isinstance(item, int):
            self.advanced.append(slice(None))

    def _add_basic_items(self, first_dim: int) -> None:
        """Add one item for each dimension from `first_dim` on, behind `...`."""
        for size in self.shape[first_dim:]:
            if self.rng.integers(2):
                self._add(self._slice(size))
            else:
                self._add(int(self.rng.integers(-size, size)))

    def draw_index(self) -> Any:
        """Return the index tuple; if it has one item, half of the time that item alone."""
        is_single = len(self.items) == 1 and self.rng.integers(2)
        if is_single and isinstance(self.items[0], list) and any(isinstance(x, list) for x in self.items[0]):
            is_single = False  # a list of lists alone would be read as a tuple
        return self.items[0] if is_single else tuple(self.items)

    def apply(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the expected value."""
        basic_result = array[tuple(self.basic)]
        return basic_result[tuple(self.advanced)]


def test_random_reads_equal_numpy() -> None:
    for seed in range(RANDOM_CASES):
        case = Case(seed)
        values = numbers(case.shape)
        try:
            assert_equal(wg.tensor(values)[case.draw_index()], case.apply(values))
        except Exception as error:
            raise AssertionError(f"seed {seed}: shape {case.shape}, index {case.items}: {error}") from error


@ONLY_ONCE
def test_random_reads_of_permuted_tensors() -> None:
    for seed in range(RANDOM_CASES // 3):
        case = Case(1000 + seed)
        values = numbers(case.shape[::-1]).T
        assert values.shape == case.shape
        tensor = wg.tensor(np.ascontiguousarray(values.T)).permute(*range(len(case.shape))[::-1])
        assert_equal(tensor[case.draw_index()], case.apply(values))


def test_random_writes_equal_numpy() -> None:
    """An element that an index names several times gets the last value; values broadcast."""
    for seed in range(RANDOM_CASES):
        case = Case(2000 + seed)
        values = numbers(case.shape)
        positions = case.apply(np.arange(values.size).reshape(case.shape))
        new_values = -1 - np.arange(positions.size, dtype="float32").reshape(positions.shape)
        if seed % 3 == 1 and new_values.ndim:
            new_values = new_values[:1]
        if seed % 3 == 2:
            new_values = np.float32(-7)
        expected = values.copy()
        broadcast_values = np.broadcast_to(new_values, positions.shape)
        for position, value in zip(positions.reshape(-1), broadcast_values.reshape(-1), strict=True):
            expected.reshape(-1)[position] = value
        tensor = wg.tensor(values)
        tensor[case.draw_index()] = float(new_values) if new_values.ndim == 0 else wg.tensor(new_values)
        try:
            assert_equal(tensor, expected)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: shape {case.shape}, index {case.items}") from error


def test_random_accumulation_equals_numpy() -> None:
    for seed in range(RANDOM_CASES // 2):
        case = Case(3000 + seed)
        values = numbers(case.shape)
        positions = case.apply(np.arange(values.size).reshape(case.shape))
        added_values = np.arange(positions.size, dtype="float32").reshape(positions.shape)
        expected = values.copy()
        np.add.at(expected.reshape(-1), positions.reshape(-1), added_values.reshape(-1))
        assert_equal(
            wg.tensor(values).index_put_(tuple(case.items), wg.tensor(added_values), accumulate=True), expected
        )


@ONLY_ONCE
def test_random_gradients_of_reads_and_writes() -> None:
    for seed in range(RANDOM_CASES // 8):
        case = Case(4000 + seed)
        values = numbers(case.shape)
        positions = case.apply(np.arange(values.size).reshape(case.shape))
        grad = 1 + np.arange(positions.size, dtype="float32").reshape(positions.shape)
        x = wg.tensor(values, requires_grad=True)
        x[case.draw_index()].backward(wg.tensor(grad))
        expected = np.zeros(values.size)
        np.add.at(expected, positions.reshape(-1), grad.reshape(-1))
        assert_equal(x.grad, expected.reshape(case.shape))

        x, v = wg.tensor(values, requires_grad=True), wg.tensor(grad, requires_grad=True)
        y = x * 1.0
        y[case.draw_index()] = v
        weights = 1 + np.arange(values.size, dtype="float32").reshape(case.shape)
        (y * wg.tensor(weights)).sum().backward()
        winner = {int(position): i for i, position in enumerate(positions.reshape(-1))}
        expected_grad = weights.copy()
        expected_grad.reshape(-1)[list(winner)] = 0.0
        assert_equal(x.grad, expected_grad)
        expected_value_grad = np.zeros(grad.size)
        for position, i in winner.items():
            expected_value_grad[i] = weights.reshape(-1)[position]
        if grad.size:
            assert_equal(v.grad, expected_value_grad.reshape(grad.shape))


# --- Single cases -----------------------------------------------------------------------------------------------------


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


# --- Concatenation ----------------------------------------------------------------------------------------------------


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


# --- Gradients --------------------------------------------------------------------------------------------------------


@ONLY_ONCE
def test_gradients_by_differences() -> None:
    x, v = random_leaf((4, 5)), random_leaf((3, 5), 1)
    rows = wg.tensor([2, 0, 2])
    row_index = wg.tensor([[0, 1, 3, 3, 2], [1, 1, 0, 2, 3], [3, 0, 0, 0, 1]])
    mask = wg.tensor(np.arange(20).reshape(4, 5) % 3 == 0)
    assert gradcheck(lambda x: x[rows] * x[:, [1]][rows], [x])
    assert gradcheck(lambda x: x.gather(0, row_index) ** 2, [x])
    assert gradcheck(lambda x: x[mask] ** 2, [x])
    assert gradcheck(lambda x, v: x.scatter(0, row_index, v) ** 2, [x, v])
    assert gradcheck(lambda x, v: x.scatter_add(0, row_index, v) ** 2, [x, v])
    assert gradcheck(lambda x, v: x.index_add(0, rows, v, alpha=3) ** 2, [x, v])
    assert gradcheck(lambda x, v: x.index_copy(0, rows, v) ** 2, [x, v])
    assert gradcheck(lambda x: x.masked_fill(mask, 3.0) ** 2, [x])
    assert gradcheck(lambda x, v: x.masked_scatter(mask, v) ** 2, [x, v])
    assert gradcheck(lambda x, v: wg.cat([x, v, x]) ** 2, [x, v])
    assert gradcheck(lambda x: wg.stack([x, x * 2], 1) ** 2, [x])
    assert gradcheck(lambda x: wg.roll(x, 2, 1).repeat(2, 1).tril() ** 2, [x])
    assert gradcheck(lambda x: x.repeat_interleave(2, 0) ** 2, [x])
    assert gradcheck(lambda w: embedding(row_index, w, 1) ** 2, [x], raise_exception=False) is False  # row 1 is padding


@ONLY_ONCE
def test_second_gradients() -> None:
    x, v = random_leaf((4, 5)), random_leaf((3, 5), 1)
    rows = wg.tensor([2, 0, 2])
    row_index = wg.tensor([[0, 1, 3, 3, 2], [1, 1, 0, 2, 3], [3, 0, 0, 0, 1]])
    assert gradgradcheck(lambda x: x[rows] ** 3, [x])
    assert gradgradcheck(lambda x: x.gather(1, row_index) ** 3, [x])
    assert gradgradcheck(lambda x, v: x.scatter(0, row_index, v) ** 3, [x, v])
    assert gradgradcheck(lambda x, v: x.index_add(0, rows, v) ** 3, [x, v])
    assert gradgradcheck(lambda x, v: wg.cat([x, v]) ** 3, [x, v])


@ONLY_ONCE
def test_gradients_of_writes_in_place() -> None:
    i = wg.tensor([2, 0, 2])
    mask = wg.tensor([True, False, True, False])

    def write_in_place(x: Any, v: Any) -> Any:
        y = x * 2
        y[1:, 1:4][[0, 2, 0]] = v[:, :3]  # writes to a view change y
        y[i, 1:4] = v[:, 1:4]
        y[mask] = 0.25
        y[1] = v[0] * y[1].clone()
        y.index_put_((i, wg.tensor([0, 1, 0])), v[:, 0], accumulate=True)
        y[:, 2].index_add_(0, i, v[:, 2])
        y.T.scatter_add_(1, wg.tensor([[0], [0], [3]]), v[:, :1])
        return y**2

    assert gradcheck(write_in_place, [random_leaf((4, 5)), random_leaf((3, 5), 1)])
    x = random_leaf((4, 5))
    with pytest.raises(GradientError):
        x[i] = 0.0
    y = x * 1.0
    z = y.exp()
    z[i] = 1.0
    with pytest.raises(VersionError, match="exp"):
        z.sum().backward()
    constant = wg.zeros(4, 5, dtype=wg.float64)
    constant[1] = x[0]
    assert constant.requires_grad
    version_before = constant._version
    constant[[0, 1]] = 2.0
    assert constant._version == version_before + 1


@ONLY_ONCE
def test_assigned_values_may_share_memory_with_the_target() -> None:
    a = numbers((6,))
    x = wg.tensor(a)
    x[[1, 2, 3]] = x[:3]
    assert_equal(x, [1, 1, 2, 3, 5, 6])
    x = wg.tensor(a)
    x[1:4] = x[:3]
    assert_equal(x, [1, 1, 2, 3, 5, 6])


@ONLY_ONCE
def test_values_are_converted() -> None:
    x = wg.zeros(3, dtype=wg.int64)
    x[[0, 1]] = wg.tensor([1.7, -2.5])
    assert_equal(x, [1, -2, 0])
    x[2] = 3.9
    assert_equal(x, [1, -2, 3])
    y = wg.zeros(2, 3)
    y[:, [0, 2]] = np.array([[1, 2]])
    y[1, 1:] = [7.0, 8.0]
    assert_equal(y, [[1, 0, 2], [1, 7, 8]])


# --- Errors -----------------------------------------------------------------------------------------------------------


def test_errors_name_the_index_and_the_size() -> None:
    x = wg.zeros(3, 4)
    for index, message in (
        (3, "index 3 .* size 3"), (-4, "index -4 .* size 3"), ((0, 4), "index 4 .* size 4"),
        ([0, 3], "index 3 .* size 3"),
        (wg.tensor([0, -4]), "index -4 .* size 3"), ((slice(None), wg.tensor([[9]])), "index 9 .* size 4"),
        ((0, 0, 0), "too many indices: 3"), (([0], [0], [0]), "too many indices: 3"), ((..., 0, ...), "at most one"),
        (wg.zeros(4, dtype=wg.bool), r"mask of shape \[4\]"),
    ):  # fmt: skip
        with pytest.raises(IndexOutOfRange, match=message):
            synchronized(x[index])
    with pytest.raises(IndexOutOfRange, match="0-d"):
        wg.tensor(1.0)[0]
    with pytest.raises(DTypeError, match="float32"):
        x[wg.tensor([0.0])]
    with pytest.raises(DTypeError, match="float64"):
        x[np.array([0.5])]
    with pytest.raises(ArgumentError, match="str"):
        x["a"]
    with pytest.raises(ShapeError, match="broadcast"):
        x[[0, 1], [0, 1, 2]]
    with pytest.raises(ShapeError, match="positive"):
        x[::-1]
    with pytest.raises(ShapeError, match="does not broadcast"):
        x[[0, 1]] = wg.zeros(3)
    with pytest.raises(ShapeError, match="does not broadcast"):
        x[0] = wg.zeros(3)
    with pytest.raises(IndexOutOfRange, match=r"index -1 .*negative"):
        synchronized(x.gather(0, wg.tensor([[-1]])))
    with pytest.raises(IndexOutOfRange, match=r"index 4 .* size 4"):
        synchronized(x.index_add(1, wg.tensor([4]), wg.zeros(3, 1)))
    with pytest.raises(ShapeError, match="as many"):
        x.gather(0, wg.tensor([0]))
    with pytest.raises(DTypeError, match="int64"):
        x.index_add(0, wg.tensor([0]), wg.zeros(1, 4, dtype=wg.int64))
    with pytest.raises(IndexOutOfRange):
        wg.zeros(0, 3)[wg.tensor([0])]
    assert tuple(wg.zeros(0, 3)[wg.tensor(np.zeros((0,), np.int64))].shape) == (0, 3)


@ONLY_ONCE
def test_loops_over_rows_leave_the_table_of_plans_alone() -> None:
    from weftgrad.runtime.context import state

    x = wg.zeros(300, 2)
    x[0]
    plans_before = len(state().plans)
    for i in range(300):
        x[i], x[-i - 1]
    assert len(state().plans) == plans_before


@ONLY_ONCE
def test_forms_of_functions() -> None:
    x = wg.zeros(3)
    assert index_put_(x, [wg.tensor([0])], 1.0) is x
    assert masked_fill_(x, wg.tensor([False, True, False]), 2.0) is x
    assert_equal(x, [1, 2, 0])
    assert wg.index_put(x, [wg.tensor([2])], wg.tensor(5.0)) is not x


@ONLY_ONCE
@pytest.mark.thorough
def test_schedules_of_a_gpu() -> None:
    """Run this file's tests again with GPU schedules, on a device with memory of its own."""
    variables = {
        "WEFTGRAD_CAPABILITIES": "style=gpu,lanes=4,max_group=64,cores=3,optimize=0",
        "WEFTGRAD_DEVICE": "opencl:0",
        NESTED_VARIABLE: "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(Path(__file__))]
    process = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, cwd=Path(__file__).parent
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-2000:]
