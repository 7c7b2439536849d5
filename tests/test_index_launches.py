"""Indexing by tensors: the kernel counts negative indices from the end and, where it can, checks the range.

On `cpu` an index out of range raises at once, elsewhere when the host next waits for the device, with the same message.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

Array = Any
RNG = np.random.default_rng(5)
X = RNG.standard_normal((6, 5, 4)).astype(np.float32)
ROWS, COLUMNS, LAYERS = np.array([0, -1, 3, 5, -6]), np.array([1, -5, 4, -1, 0]), np.array([[0], [-1]])
has_triton = importlib.util.find_spec("triton") is not None
DEVICES = [
    "cpu",
    "opencl",
    pytest.param("interpreter", marks=pytest.mark.skipif(not has_triton, reason="needs triton")),
]


class Target:
    """A device, and the number of its launches."""

    def __init__(self, name: str):
        self.name = name
        if name == "interpreter":
            from triton_running import interpreter

            self.device, self.driver = interpreter("block=64,cores=2")
        else:
            is_cpu = name == "cpu"
            self.device = (
                wg.device("cpu") if is_cpu else wg.testing.synthetic_device(913, "style=gpu,lanes=4,optimize=0")
            )
            self.driver = self.device.driver

    def tensor(self, values: Array, **options: Any) -> wg.Tensor:
        return wg.tensor(np.asarray(values), device=self.device, **options)

    def launches(self, function: Callable[[], object]) -> int:
        """Return the number of launches of a call."""
        function()
        before = self.driver.launches
        function()
        return int(self.driver.launches - before)


_targets: dict[str, Target] = {}


@pytest.fixture(params=DEVICES)
def target(request: Any) -> Target:
    if request.param not in _targets:
        _targets[request.param] = Target(request.param)
    return _targets[request.param]


def read(tensor: wg.Tensor) -> Array:
    return tensor.detach().cpu().numpy()


READS: dict[str, tuple[Callable[[Any, Any, Any, Any], Any], int]] = {  # and launches, with a check by the kernel
    "one index": (lambda x, i, j, k: x[i], 1),
    "a later dimension": (lambda x, i, j, k: x[:, j], 1),
    "beside a slice": (lambda x, i, j, k: x[1:, j, ::2], 1),
    "a matrix of indices": (lambda x, i, j, k: x[k], 1),
    "two indices": (lambda x, i, j, k: x[i, j], 2),
    "around a slice": (lambda x, i, j, k: x[i, :, k], 2),
    "three indices": (lambda x, i, j, k: x[i, j, k], 3),
}


@pytest.mark.parametrize("name", READS)
def test_reads(target: Target, name: str) -> None:
    function, count = READS[name]
    x, (i, j, k) = target.tensor(X), (target.tensor(n) for n in (ROWS, COLUMNS, LAYERS))
    np.testing.assert_array_equal(read(function(x, i, j, k)), function(X, ROWS, COLUMNS, LAYERS))
    checks = 1 if target.name == "opencl" else 0  # one launch computes the extremes of all indices
    assert target.launches(lambda: function(x, i, j, k)) == count + checks


def test_other_reads(target: Target) -> None:
    x, i = target.tensor(X), target.tensor(ROWS)
    checks = 1 if target.name == "opencl" else 0
    for dtype in (np.int32, np.int8):
        small = target.tensor(ROWS.astype(dtype))
        np.testing.assert_array_equal(read(x[small]), X[ROWS])
        assert target.launches(lambda small=small: x[small]) == 1 + checks
    np.testing.assert_array_equal(read(x.take(i)), X.take(ROWS))
    assert target.launches(lambda: x.take(i)) == 1 + checks
    along = np.array([[[-6], [0], [5], [-1], [2]]])
    indices = target.tensor(along)
    expected = np.take_along_axis(X, np.broadcast_to(along, (1, 5, 4)), 0)
    np.testing.assert_array_equal(read(wg.take_along_dim(x, indices, 0)), expected)
    assert target.launches(lambda: wg.take_along_dim(x, indices, 0)) == 1 + checks


def test_writes(target: Target) -> None:
    """Write rows and elements, and add, at negative and repeated positions."""
    i, j, rows = target.tensor(ROWS), target.tensor(COLUMNS), RNG.standard_normal((5, 5, 4)).astype(np.float32)
    source, elements = target.tensor(rows), rows[:, 0]
    checks = 1 if target.name == "opencl" else 0
    x, expected = target.tensor(X), X.copy()
    x[i], expected[ROWS] = source, rows
    np.testing.assert_array_equal(read(x), expected)
    assert target.launches(lambda: x.__setitem__(i, source)) == 1 + checks
    values = target.tensor(elements)
    x[i, j], expected[ROWS, COLUMNS] = values, elements
    np.testing.assert_array_equal(read(x), expected)
    assert target.launches(lambda: x.__setitem__((i, j), values)) == 2 + checks
    x = target.tensor(X)
    repeated = np.array([0, -1, -6, 5, 0])
    x.index_put_((target.tensor(repeated),), source, accumulate=True)
    expected = X.astype(np.float64)
    np.add.at(expected, repeated, rows)
    np.testing.assert_allclose(read(x), expected, rtol=1e-5, atol=1e-6)
    x.index_fill_(0, target.tensor([0, -1]), 7.0)
    assert (read(x)[[0, 5]] == 7).all()
    flat = target.tensor(X).put_(target.tensor([0, -1]), target.tensor(np.float32([5, 6])))
    assert (read(flat).ravel()[0], read(flat).ravel()[-1]) == (5, 6)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("values", [[1, 2, 0, 3], [-1, -2, 0, -3]])
def test_a_tensor_that_is_its_own_index(target: Target, values: list[int], dtype: str) -> None:
    index = np.array(values, dtype)
    expected = index.copy()
    expected[index] = [7, 8, 9, 6]
    writes: list[Callable[[wg.Tensor, wg.Tensor], object]] = [
        lambda x, v: x.__setitem__(x, v),
        lambda x, v: x.put_(x, v),
        lambda x, v: x.index_copy_(0, x, v),
        lambda x, v: x.scatter_(0, x, v),
    ]
    for write in writes if min(values) >= 0 else writes[:2]:
        x = target.tensor(index)
        write(x, target.tensor(np.array([7, 8, 9, 6], dtype)))
        np.testing.assert_array_equal(read(x), expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_many_indices(target: Target, dtype: str) -> None:
    """So many that `cpu` checks while it reads, and that kernels of GPUs sort them."""
    count = (1 << 16) + 77 if target.name == "cpu" else 1200
    x = target.tensor(RNG.integers(-8, 9, 3000)).to(getattr(wg, dtype))
    index = RNG.integers(-3000, 3000, count)
    exact = x.double().cpu().numpy()
    positions = target.tensor(index)
    np.testing.assert_array_equal(read(x[positions].double()), exact[index])
    ones = wg.ones(count, dtype=x.dtype, device=target.device) * 0.25
    total = x.double().index_put((positions,), ones.double(), accumulate=True)
    np.add.at(exact, index, 0.25)
    np.testing.assert_array_equal(read(total), exact)
    x[positions] = ones
    assert (read(x[positions].double()) == 0.25).all()
    strided = target.tensor(np.repeat(index, 2))[::2]
    np.testing.assert_array_equal(read(x[strided].double()), read(x[positions].double()))


def test_derivatives(target: Target) -> None:
    """The gradient adds at the positions counted from the end, too, and has a gradient itself."""
    i, j = target.tensor(ROWS), target.tensor(COLUMNS)
    for pair in (False, True):
        x = target.tensor(X, requires_grad=True)
        seed_values = RNG.standard_normal((5, 4) if pair else (5, 5, 4)).astype(np.float32)
        seed = target.tensor(seed_values, requires_grad=True)
        (gradient,) = wg.autograd.grad(x[i, j] if pair else x[i], x, seed, create_graph=True)
        expected = np.zeros(X.shape)
        np.add.at(expected, (ROWS, COLUMNS) if pair else ROWS, seed_values)
        np.testing.assert_allclose(read(gradient), expected, rtol=1e-6)
        (second,) = wg.autograd.grad(gradient, seed, target.tensor(X))
        np.testing.assert_array_equal(read(second), X[ROWS, COLUMNS] if pair else X[ROWS])


def test_derivatives_of_writes(target: Target) -> None:
    index = np.array([1, -1, 5])  # the last two are the same position: the last write wins
    x, source = target.tensor(X, requires_grad=True), target.tensor(X[:3], requires_grad=True)
    seed = RNG.standard_normal(X.shape).astype(np.float32)
    result = wg.index_put(x, (target.tensor(index),), source)
    grad_x, grad_source = wg.autograd.grad(result, (x, source), target.tensor(seed))
    expected = seed.copy()
    expected[index] = 0
    np.testing.assert_array_equal(read(grad_x), expected)
    expected_source = seed[index]
    expected_source[1] = 0
    np.testing.assert_array_equal(read(grad_source), expected_source)


ERRORS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "too large": (lambda x, t: x[t([0, 6])], "index of dimension 0: index 6 is out of range for a dimension of size 6"),
    "too small": (lambda x, t: x[t([0, -7])], "index of dimension 0: index -7 is out of range"),
    "the second": (lambda x, t: x[t([0, 1]), t([1, 5])], "index of dimension 1: index 5 is out of range for .* 5"),
    "the first": (lambda x, t: x[t([0, -9]), t([1, 2])], "index of dimension 0: index -9 is"),
    "the third": (
        lambda x, t: x[t([0]), t([1]), t([4])],
        "index of dimension 2: index 4 is out of range for .* size 4",
    ),
    "beside an array": (lambda x, t: x[np.array([0, 1]), t([7, 0])], "index of dimension 1: index 7 is"),
    "a huge one": (lambda x, t: x[t([2**62]), t([0])], "index of dimension 0: index [0-9]+ is"),
    "the smallest": (lambda x, t: x[t([-(2**63)]), t([0])], "index of dimension 0: index -[0-9]+ is"),
    "write": (lambda x, t: x.__setitem__(t([9]), 0.0), "index of dimension 0: index 9 is"),
    "write of elements": (lambda x, t: x.__setitem__((t([1]), t([-6])), 0.0), "index of dimension 1: index -6 is"),
    "many writes": (lambda x, t: x[0, 0].__setitem__(t([-5] * 1200), 0.0), "index of dimension 0: index -5 is"),
    "take": (
        lambda x, t: x.take(t([120])),
        "index of dimension 0: index 120 is out of range for a dimension of size 120",
    ),
    "index_fill_": (lambda x, t: x.index_fill_(1, t([-6]), 0.0), "index of dimension 1: index -6 is"),
    "index_add_": (lambda x, t: x.index_add_(0, t([6]), x[:1] * 1), "index_add_: index 6 is"),
    "scatter_": (lambda x, t: x.scatter_(0, t([[[-1]]]), 1.0), "scatter_: index -1 is .* not counted from the end"),
    "index_add": (lambda x, t: x.index_add(0, t([8] * 1100), x[:1].expand(1100, 5, 4)), "index_add: index 8 is"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(target: Target, name: str) -> None:
    function, message = ERRORS[name]
    x = target.tensor(X)

    def call_and_wait() -> None:
        function(x, lambda values: target.tensor(np.array(values)))
        if target.name != "cpu":
            wg.synchronize(target.device)

    with pytest.raises(IndexError, match=message):
        call_and_wait()
    valid = [x.sum().item(), x[target.tensor([0])].sum().item()]
    assert np.isfinite(valid).all(), "an element was written that no index names"
    np.testing.assert_array_equal(read(x), X)


def test_many_indices_out_of_range_on_cpu() -> None:
    index = np.zeros(1 << 17, np.int64)
    index[-1] = -6
    with pytest.raises(IndexError, match="index of dimension 0: index -6 is out of range for a dimension of size 5"):
        wg.zeros(5)[wg.tensor(index)]
    x = wg.zeros(5)
    with pytest.raises(IndexError, match="index -6"):
        x[wg.tensor(index)] = 1.0
    assert not x.any()


def test_indices_of_another_device() -> None:
    x = wg.tensor(X, device="opencl:0")
    np.testing.assert_array_equal(read(x[wg.tensor(ROWS)]), X[ROWS])
    np.testing.assert_array_equal(read(x[wg.tensor(ROWS), wg.tensor(COLUMNS)]), X[ROWS, COLUMNS])
    with pytest.raises(IndexError, match="index of dimension 0: index 6"):
        x[wg.tensor([6])]
