"""Sorting, selecting and counting as users call them: forms, results by NumPy and SciPy, gradients, errors."""

from __future__ import annotations

import math
import zlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.stats
from op_running import MAIN, check_gradients, device_of

import weftgrad as wg

NAN, INF = math.nan, math.inf


@pytest.fixture(scope="module")
def place() -> Any:
    return device_of(MAIN)


def host(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()


@pytest.fixture(scope="module")
def matrix() -> Any:
    return (np.random.default_rng(0).integers(-6, 7, (5, 8)) / 2).astype("float32")


# Order ----------------------------------------------------------------------------------------------------------------


def test_zeros_keep_their_signs_and_their_order(place: Any) -> None:
    values, indices = wg.sort(wg.tensor([0.0, -0.0, NAN, -1.0, 0.0, -0.0, INF], device=place))
    assert host(indices).tolist() == [3, 0, 1, 4, 5, 6, 2]
    assert np.signbit(host(values)[:5]).tolist() == [True, False, True, False, True]
    down = wg.sort(wg.tensor([0.0, -0.0, NAN, 1.0], device=place), descending=True)
    assert host(down.indices).tolist() == [2, 3, 0, 1]


def test_forms_of_sort(place: Any, matrix: Any) -> None:
    x = wg.tensor(matrix, device=place)
    order = np.argsort(matrix, 1, kind="stable")
    for found in (x.argsort(), wg.argsort(x, 1, stable=True), wg.argsort(x, axis=-1), x.sort(stable=True).indices):
        assert (host(found) == order).all()
    assert (host(x.msort()) == np.sort(matrix, 0)).all()
    assert (host(wg.msort(wg.tensor(3.0, device=place))) == 3.0).all()
    out = (wg.empty(8, 5, device=place).T, wg.empty(5, 8, dtype=wg.int64, device=place))
    with wg.no_grad():
        found = wg.sort(x, out=out)
    assert found.values is out[0]
    assert (host(out[0]) == np.sort(matrix, 1)).all()
    assert (host(out[1]) == order).all()
    with pytest.raises(wg.runtime.errors.DTypeError):
        wg.sort(x, out=(wg.empty(5, 8, device=place), wg.empty(5, 8, dtype=wg.bool, device=place)))


@pytest.mark.parametrize("largest", [True, False])
def test_topk_takes_the_first_of_equal_elements(place: Any, largest: bool) -> None:
    x = np.random.default_rng(1).integers(0, 9, 700)
    order = np.argsort(-x if largest else x, kind="stable")[:20]
    values, indices = wg.tensor(x, device=place).topk(20, largest=largest, sorted=False)
    assert (host(indices) == order).all()
    assert (host(values) == x[order]).all()


@pytest.mark.parametrize("k", [1, 32, 33])
def test_topk_of_rows_that_are_full_of_ties(k: int) -> None:
    """Rows whose first few are bounded beforehand: all equal, few values, NaN and infinities among them."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((5, 700)).astype(np.float32)
    x[1], x[2], x[3, ::3], x[3, 5], x[4, 7:] = 2, np.floor(x[2]), np.nan, -np.inf, np.nan
    for largest in (True, False):
        values, indices = (t.numpy() for t in wg.topk(wg.tensor(x), k, largest=largest))
        ordered = np.sort(x, axis=1)
        assert np.array_equal(values, ordered[:, ::-1][:, :k] if largest else ordered[:, :k], equal_nan=True)
        assert np.array_equal(np.take_along_axis(x, indices, 1), values, equal_nan=True)
        assert all(len(set(row)) == k for row in indices.tolist())


def test_topk_finds_what_comes_late(place: Any) -> None:
    """After the first few are known, only what is before the last of them is looked at."""
    x = np.arange(10, 3010, dtype="float32")
    x[1500], x[2999], x[2998] = 12.5, 12.0, 13.0
    values, indices = wg.topk(wg.tensor(x, device=place), 5, largest=False)
    assert host(values).tolist() == [10, 11, 12, 12, 12.5]
    assert host(indices).tolist() == [0, 1, 2, 2999, 1500]


def test_the_kth_value(place: Any, matrix: Any) -> None:
    x = wg.tensor(matrix, device=place)
    for k in (1, 5, 8):
        values, indices = wg.kthvalue(x, k, keepdim=True)
        assert (host(values) == np.sort(matrix, 1)[:, k - 1 : k]).all()
        assert (np.take_along_axis(matrix, host(indices), 1) == host(values)).all()
    assert math.isnan(wg.tensor([NAN, 2.0, 1.0], device=place).kthvalue(3).values.item())
    assert wg.kthvalue(wg.tensor(4.0, device=place), 1).values.item() == 4.0


def test_medians(place: Any, matrix: Any) -> None:
    data = np.where(np.random.default_rng(2).random(matrix.shape) < 0.2, NAN, matrix).astype("float32")
    data[3] = NAN
    x = wg.tensor(data, device=place)
    for dim in (0, 1):
        middle = np.sort(data, dim).take((data.shape[dim] - 1) // 2, dim)
        expected = np.where(np.isnan(data).any(dim), NAN, middle)
        values, indices = wg.median(x, dim)
        assert np.array_equal(host(values), expected, equal_nan=True)
        at = np.expand_dims(host(indices), dim)
        assert np.array_equal(np.take_along_axis(data, at, dim).squeeze(dim), expected, equal_nan=True)
        rows = np.moveaxis(data, dim, -1)
        there = [np.sort(row[~np.isnan(row)]) for row in rows]
        lower = [row[(row.size - 1) // 2] if row.size else NAN for row in there]
        assert np.array_equal(host(x.nanmedian(dim, True).values).ravel(), np.array(lower, "float32"), equal_nan=True)
    whole = np.sort(data[~np.isnan(data)])
    assert x.nanmedian().item() == whole[(whole.size - 1) // 2]
    assert math.isnan(x.median().item())
    assert wg.median(wg.tensor([4, 1, 3, 2], device=place)).item() == 2
    assert math.isnan(wg.median(wg.empty(0, device=place)).item())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64", "uint8"])
@pytest.mark.parametrize("kind", ["normal", "sorted", "few", "same", "unlucky", "odd"])
def test_medians_of_long_vectors(kind: str, dtype: str) -> None:
    """By a sample, which may hold what is rare or leave out what is not, and by sorting where it does not help."""
    draw = np.random.default_rng(zlib.crc32(f"{kind} {dtype}".encode()))
    n = 3 * 65536 + (kind == "odd")
    x = draw.normal(scale=40, size=n).clip(-120, 120) + 120 * (dtype == "uint8")
    if kind == "sorted":
        x.sort()
    elif kind == "few":
        x = draw.integers(0, 3, n)
    elif kind == "same":
        x[:] = 7
    elif kind == "unlucky":  # every element of the sample is the least
        x = (np.arange(n) % (n // 4096) != 0) * 5
    tensor = wg.tensor(x, device="cpu").to(getattr(wg, dtype))
    given = np.sort(tensor.to(wg.float64).numpy())
    assert wg.median(tensor).item() == wg.nanmedian(tensor).item() == given[(n - 1) // 2], (kind, dtype)
    assert tensor.median().dtype is getattr(wg, dtype)


@pytest.mark.parametrize("missing", [1, 70000, 65536 * 2 - 1, 65536 * 2])
def test_medians_of_long_vectors_with_nan(missing: int) -> None:
    x = np.random.default_rng(5).normal(size=65536 * 2).astype("float32")
    x[np.random.default_rng(6).permutation(x.size)[:missing]] = np.nan
    tensor, there = wg.tensor(x, device="cpu", requires_grad=True), np.sort(x[~np.isnan(x)])
    assert math.isnan(tensor.median().item())
    found = tensor.nanmedian()
    if missing == x.size:
        assert math.isnan(found.item())
        return
    assert found.item() == there[(there.size - 1) // 2]
    found.backward()
    assert np.array_equal(np.flatnonzero(tensor.grad.numpy()), np.flatnonzero(x == found.item()))


def test_mode_is_the_smallest_of_the_most_frequent(place: Any) -> None:
    x = np.random.default_rng(3).integers(0, 4, (6, 9))
    for dim in (0, 1):
        values, indices = wg.mode(wg.tensor(x, device=place), dim)
        assert (host(values) == scipy.stats.mode(x, axis=dim).mode).all()
        last = [np.flatnonzero(row == v)[-1] for row, v in zip(np.moveaxis(x, dim, -1), host(values), strict=True)]
        assert host(indices).tolist() == last
    assert wg.mode(wg.tensor([NAN, NAN, 2.0, 3.0, 2.0], device=place)).values.item() == 2.0


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(place: Any, matrix: Any, method: str) -> None:
    data = matrix.copy()
    data[1, 2] = NAN
    x, q = wg.tensor(data, device=place), np.array([0.0, 0.3, 0.5, 1.0], "float32")
    given = wg.tensor(q, device=place)
    for dim in (0, 1, None):
        for keepdim in (False, True):
            for function, reference in ((wg.quantile, np.quantile), (wg.nanquantile, np.nanquantile)):
                expected = reference(data.astype("float64"), q, dim, method=method, keepdims=keepdim)
                found = host(function(x, given, dim, keepdim, interpolation=method))
                assert found.shape == expected.shape
                assert np.allclose(found, expected, 1e-5, 1e-6, equal_nan=True)
    assert x.nanquantile(0.25, 0, interpolation=method).shape == (8,)


# Distinct elements and members ----------------------------------------------------------------------------------------


def test_unique(place: Any) -> None:
    data = np.random.default_rng(4).integers(0, 3, (7, 2, 2))
    x = wg.tensor(data, device=place)
    for dim in (None, 0, 1, -1):
        expected = np.unique(data, return_inverse=True, return_counts=True, axis=dim)
        found = wg.unique(x, return_inverse=True, return_counts=True, dim=dim)
        for one, other in zip(found, expected, strict=True):
            assert (host(one) == other.reshape(one.shape)).all()
        assert found[1].shape == (data.shape if dim is None else (data.shape[dim],))
    assert host(x.unique()).tolist() == [0, 1, 2]
    odd = wg.tensor([NAN, 1.0, NAN, 0.0, -0.0], device=place)
    values, counts = odd.unique(return_counts=True)
    assert np.array_equal(host(values), [0, 1, NAN, NAN], equal_nan=True)
    assert host(counts).tolist() == [2, 1, 1, 1]
    for empty in wg.unique(wg.empty(0, device=place), return_inverse=True, return_counts=True):
        assert empty.shape == (0,)


def test_unique_consecutive(place: Any) -> None:
    x = wg.tensor([[1, 1], [1, 1], [2, 1], [1, 1]], device=place)
    values, inverse, counts = x.unique_consecutive(return_inverse=True, return_counts=True)
    assert (host(values).tolist(), host(counts).tolist()) == ([1, 2, 1], [4, 1, 3])
    assert host(inverse).tolist() == [[0, 0], [0, 0], [1, 2], [2, 2]]
    values, inverse = wg.unique_consecutive(x, return_inverse=True, dim=0)
    assert host(values).tolist() == [[1, 1], [2, 1], [1, 1]]
    assert host(inverse).tolist() == [0, 0, 1, 2]


def test_members(place: Any, matrix: Any) -> None:
    x, some = wg.tensor(matrix, device=place), np.array([1.0, NAN, -2.5, 1.0], "float32")
    for invert in (False, True):
        expected = np.isin(matrix, some, invert=invert)
        assert (host(wg.isin(x, wg.tensor(some, device=place), invert=invert)) == expected).all()
        assert (host(wg.isin(x, 1, invert=invert)) == np.isin(matrix, 1, invert=invert)).all()
        assert (host(wg.isin(x, wg.empty(0, device=place), invert=invert)) == invert).all()
    assert wg.isin(2, wg.tensor([1, 2], device=place)).item() is True


# Places and histograms ------------------------------------------------------------------------------------------------


def test_searching(place: Any) -> None:
    sequence, values = np.array([1, 3, 3, 5]), np.array([[0, 3], [4, 9]])
    s, v = wg.tensor(sequence, device=place), wg.tensor(values, device=place)
    for right in (False, True):
        expected = np.searchsorted(sequence, values, "right" if right else "left")
        assert (host(wg.searchsorted(s, v, right=right)) == expected).all()
        assert (host(wg.bucketize(v, s, right=right)) == expected).all()
    assert wg.searchsorted(s, v, side="right", out_int32=True).dtype is wg.int32
    assert (wg.searchsorted(s, 3.5).item(), wg.bucketize(3, s).item()) == (3, 1)
    mixed, order = wg.tensor([5, 1, 3, 3], device=place), wg.tensor([1, 2, 3, 0], device=place)
    assert (host(wg.searchsorted(mixed, v, sorter=order)) == np.searchsorted(sequence, values)).all()
    odd, asked = wg.tensor([1.0, 2.0, NAN], device=place), wg.tensor([NAN, 1.5], device=place)
    assert host(wg.searchsorted(odd, asked)).tolist() == [3, 1]


def test_histograms(place: Any) -> None:
    data = (np.random.default_rng(6).integers(-9, 10, 60) / 4).astype("float32")
    x = wg.tensor(data, device=place)
    counts, edges = np.histogram(data, 8, (-2, 2))
    assert (host(wg.histc(x, 8, -2, 2)) == counts).all()
    found = x.histogram(8, range=(-2, 2))
    assert (host(found.hist) == counts).all()
    assert (host(found.bin_edges) == edges).all()
    weight = (np.arange(60) / 8).astype("float32")
    for density in (False, True):
        expected = np.histogram(data, [-2, -0.5, 0.25, 2], weights=weight, density=density)[0]
        bins = wg.tensor([-2, -0.5, 0.25, 2], device=place)
        got = wg.histogram(x, bins, weight=wg.tensor(weight, device=place), density=density).hist
        assert np.allclose(host(got), expected, 1e-6)
    assert host(wg.histc(x)).sum() == 60
    assert host(wg.histc(wg.tensor([2.0, 2.0], device=place), 3)).tolist() == [0, 2, 0]
    assert host(wg.histc(wg.tensor([NAN, 1.0], device=place), 2, 0, 2)).tolist() == [0, 1]


def test_edges_are_rounded_once() -> None:
    """As PyTorch's are: the product of number and width is not rounded before the sum."""
    low, high, bins = -1.5, 0.7, 97
    edges = wg.histogram(wg.zeros(1, dtype=wg.float64), bins, range=(low, high)).bin_edges.tolist()
    step = Fraction((high - low) / bins)
    assert edges[: bins // 2] == [float(Fraction(low) + step * i) for i in range(bins // 2)]
    assert edges[bins // 2 + 1 :] == [float(Fraction(high) - step * (bins - i)) for i in range(bins // 2 + 1, bins + 1)]


def test_many_are_counted_in_shares() -> None:
    data = np.random.default_rng(7).integers(0, 300, 40_003)
    assert (wg.bincount(wg.tensor(data)).numpy() == np.bincount(data)).all()
    found = wg.histc(wg.tensor(data.astype("float32")), 60, 0, 300).numpy()
    assert (found == np.histogram(data, 60, (0, 300))[0]).all()


def test_bincount(place: Any) -> None:
    data = np.array([1, 4, 1, 0, 4, 4])
    x, weights = wg.tensor(data, device=place), np.arange(6, dtype="float32") / 2
    assert (host(x.bincount()) == np.bincount(data)).all()
    assert (host(wg.bincount(x, minlength=8)) == np.bincount(data, minlength=8)).all()
    found = wg.bincount(x, wg.tensor(weights, device=place))
    assert found.dtype is wg.float32
    assert (host(found) == np.bincount(data, weights)).all()
    assert wg.bincount(wg.empty(0, dtype=wg.int64, device=place)).shape == (0,)


# Gradients ------------------------------------------------------------------------------------------------------------


def test_a_median_shares_its_gradient(place: Any) -> None:
    x = wg.tensor([2.0, 1.0, 2.0, 3.0, 2.0], device=place, requires_grad=True)
    x.median().backward()
    assert np.allclose(host(x.grad), [1 / 3, 0, 1 / 3, 0, 1 / 3])
    x.grad = None
    x.median(0).values.backward()
    assert host(x.grad).tolist() == [0, 0, 1, 0, 0]
    x.grad = None
    x.mode().values.backward()
    assert host(x.grad).tolist() == [0, 0, 0, 0, 1]


def test_derivatives_of_selections() -> None:
    place = device_of("cpu")
    values = np.random.default_rng(7).permutation(12).reshape(3, 4) / 5.0
    q = wg.tensor([0.2, 0.55], dtype=wg.float64)

    x = wg.tensor(values, dtype=wg.float64, requires_grad=True)
    check_gradients("quantile", lambda x: wg.quantile(x, q, 1), [x], place, second=False)  # second ones: op_sort.py


# Errors ---------------------------------------------------------------------------------------------------------------

X = wg.tensor([[1.0, 2.0], [4.0, 3.0]])
I = wg.tensor([1, 2])  # noqa: E741


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: wg.sort(X, 2), IndexError, "out of range"),
        (lambda: wg.sort([3, 1]), TypeError, "takes tensors"),
        (lambda: wg.sort(X, out=wg.empty(2, 2)), TypeError, "two tensors"),
        (lambda: wg.topk(X, 3), RuntimeError, "k is 3, dimension 1 has 2"),
        (lambda: wg.topk(X, -1), RuntimeError, "out of range"),
        (lambda: wg.topk(X, 1.0), TypeError, "k must be an integer"),
        (lambda: wg.topk(X > 1, 1), RuntimeError, "bool"),
        (lambda: wg.kthvalue(X, 0), RuntimeError, "out of range"),
        (lambda: wg.kthvalue(wg.empty(2, 0), 1), IndexError, "no elements"),
        (lambda: wg.median(X > 1), NotImplementedError, "bool"),
        (lambda: wg.median(wg.empty(2, 0), 1), IndexError, "no elements"),
        (lambda: wg.mode(wg.empty(0)), IndexError, "no elements"),
        (lambda: wg.quantile(X, 1.5), RuntimeError, r"\[0, 1\], but got 1.5"),
        (lambda: wg.quantile(X, wg.tensor([1.5])), RuntimeError, r"\[0, 1\]"),
        (lambda: wg.quantile(X, wg.tensor([[0.5]])), RuntimeError, r"shape \[1, 1\]"),
        (lambda: wg.quantile(X, wg.tensor([0.5], dtype=wg.float64)), RuntimeError, "float64"),
        (lambda: wg.quantile(I, 0.5), RuntimeError, "int64"),
        (lambda: wg.quantile(wg.empty(0), 0.5), RuntimeError, "no elements"),
        (lambda: wg.quantile(X, 0.5, interpolation="cubic"), RuntimeError, "cubic"),
        (lambda: wg.unique(wg.tensor(1.0), dim=0), IndexError, "has none"),
        (lambda: wg.unique(wg.empty(2, 0), dim=0), RuntimeError, "0 sized"),
        (lambda: wg.isin(1, 2), TypeError, "must be a tensor"),
        (lambda: wg.isin(X > 1, X), RuntimeError, "bool"),
        (lambda: wg.searchsorted(I, I, side="middle"), RuntimeError, "middle"),
        (lambda: wg.searchsorted(I, I, side="left", right=True), RuntimeError, "opposites"),
        (lambda: wg.searchsorted(X, I), RuntimeError, r"\[2, 2\]"),
        (lambda: wg.searchsorted(I, I, sorter=wg.tensor([0])), RuntimeError, "same size"),
        (lambda: wg.searchsorted(I, I, sorter=wg.tensor([0, 5])), IndexError, "index 5"),
        (lambda: wg.searchsorted(I, I, sorter=I.int()), RuntimeError, "int64"),
        (lambda: wg.bucketize(I, X), RuntimeError, "vector"),
        (lambda: wg.bucketize(I > 1, I > 1), NotImplementedError, "bool"),
        (lambda: wg.histc(X, 0), RuntimeError, "bins must be > 0"),
        (lambda: wg.histc(X, 3, 2, 1), RuntimeError, "larger than min"),
        (lambda: wg.histc(wg.tensor([NAN])), RuntimeError, "not finite"),
        (lambda: wg.histc(I), NotImplementedError, "int64"),
        (lambda: wg.histogram(X, 3, weight=wg.ones(3)), RuntimeError, r"\[3\]"),
        (lambda: wg.histogram(X, wg.tensor([0, 1])), RuntimeError, "edges int64"),
        (lambda: wg.bincount(wg.tensor([-1])), RuntimeError, "has -1"),
        (lambda: wg.bincount(X), NotImplementedError, "float32"),
        (lambda: wg.bincount(I.reshape(2, 1)), RuntimeError, "vector"),
        (lambda: wg.bincount(I, minlength=-1), RuntimeError, "minlength"),
        (lambda: wg.bincount(I, wg.ones(3)), RuntimeError, r"\[3\]"),
    ],
)
def test_errors_say_what_is_wrong(call: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        call()
    assert isinstance(caught.value, wg.runtime.errors.WeftgradError)
