"""Check indexing, assignment and their gradients against NumPy with random shapes and indices.

Expected values come from NumPy, gradients from central differences. The last test runs this file and
`test_index_functions` again with GPU schedules, on a device that does not share memory with the host.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_checks import IS_NESTED, NESTED_VARIABLE, ONLY_ONCE, assert_equal, numbers, synchronized

import weftgrad as wg
from weftgrad.autograd.gradcheck import gradcheck, gradgradcheck
from weftgrad.indexing.assignment import masked_fill_
from weftgrad.indexing.subscripts import index_put_
from weftgrad.layer_functions.embeddings import embedding
from weftgrad.runtime.errors import (
    ArgumentError,
    DTypeError,
    GradientError,
    IndexOutOfRange,
    ShapeError,
    VersionError,
)

RANDOM_CASES = 40 if IS_NESTED else 100


def random_leaf(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Return a float64 tensor that requires a gradient."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return wg.tensor(values, requires_grad=True)


# Random index tuples


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


# Gradients


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


# Errors


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
    wg.synchronize()  # no second error is pending
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
    """Run the tests of indexing again with GPU schedules, on a device with memory of its own."""
    files = [str(Path(__file__).with_name(f"{name}.py")) for name in ("test_indexing", "test_index_functions")]
    variables = {
        "WEFTGRAD_CAPABILITIES": "style=gpu,lanes=4,max_group=64,cores=3,optimize=0",
        "WEFTGRAD_DEVICE": "opencl:0",
        NESTED_VARIABLE: "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    process = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, cwd=Path(__file__).parent
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-2000:]
