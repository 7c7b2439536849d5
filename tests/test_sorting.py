"""Check sorting, selection and counting as users call them, against NumPy and SciPy; gradients and errors."""

from __future__ import annotations

import math
import zlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.stats
from op_devices import MAIN, device_of
from op_running import check_gradients

import weftgrad as wg

NAN, INF = math.nan, math.inf


@pytest.fixture(scope="module")
def device() -> Any:
    return device_of(MAIN)


def host(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()


@pytest.fixture(scope="module")
def matrix() -> Any:
    return (np.random.default_rng(0).integers(-6, 7, (5, 8)) / 2).astype("float32")


# Sorting and selection ------------------------------------------------------------------------------------------------


def test_zeros_keep_their_signs_and_their_order(device: Any) -> None:
    values, indices = wg.sort(wg.tensor([0.0, -0.0, NAN, -1.0, 0.0, -0.0, INF], device=device))
    assert host(indices).tolist() == [3, 0, 1, 4, 5, 6, 2]
    assert np.signbit(host(values)[:5]).tolist() == [True, False, True, False, True]
    down = wg.sort(wg.tensor([0.0, -0.0, NAN, 1.0], device=device), descending=True)
    assert host(down.indices).tolist() == [2, 3, 0, 1]


def test_forms_of_sort(device: Any, matrix: Any) -> None:
    x = wg.tensor(matrix, device=device)
    order = np.argsort(matrix, 1, kind="stable")
    for output in (x.argsort(), wg.argsort(x, 1, stable=True), wg.argsort(x, axis=-1), x.sort(stable=True).indices):
        assert (host(output) == order).all()
    assert (host(x.msort()) == np.sort(matrix, 0)).all()
    assert (host(wg.msort(wg.tensor(3.0, device=device))) == 3.0).all()
    out = (wg.empty(8, 5, device=device).T, wg.empty(5, 8, dtype=wg.int64, device=device))
    with wg.no_grad():
        output = wg.sort(x, out=out)
    assert output.values is out[0]
    assert (host(out[0]) == np.sort(matrix, 1)).all()
    assert (host(out[1]) == order).all()
    with pytest.raises(wg.runtime.errors.DTypeError):
        wg.sort(x, out=(wg.empty(5, 8, device=device), wg.empty(5, 8, dtype=wg.bool, device=device)))


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced"])
def test_columns_that_are_copied_into_rows(layout: str, device: Any) -> None:
    """Matrices of these sizes are sorted by column as copies, and matrices that are transposed already are not."""
    values = np.random.default_rng(0).integers(-50, 50, (3, 90, 170)).astype(np.float32)
    values[0, 5, 7] = np.nan
    x = wg.tensor(values, device=device)
    if layout == "transposed":
        x = wg.tensor(values.swapaxes(1, 2).copy(), device=device).transpose(1, 2)
    elif layout == "sliced":
        x = wg.tensor(np.repeat(values, 2, 2), device=device)[:, :, ::2]
    expected = np.argsort(values, 1, kind="stable")
    ordered = wg.sort(x, 1)
    assert ordered.indices.tolist() == expected.tolist()
    np.testing.assert_array_equal(ordered.values.cpu().numpy(), np.take_along_axis(values, expected, 1))
    assert ordered.values.is_contiguous()
    assert wg.topk(x, 4, 1, largest=False).indices.tolist() == expected[:, :4].tolist()
    assert wg.kthvalue(x, 30, 1).indices.tolist() == expected[:, 29].tolist()
    assert wg.median(x[1:], 1).values.tolist() == np.sort(values[1:], 1)[:, 44].tolist()
    leaf = x[1:].clone().requires_grad_()
    (wg.sort(leaf, 1).values * wg.arange(90.0, device=device)[:, None]).sum().backward()
    rank = np.argsort(expected[1:], 1, kind="stable")
    np.testing.assert_array_equal(leaf.grad.cpu().numpy(), rank)


@pytest.mark.parametrize("largest", [True, False])
def test_topk_takes_the_first_of_equal_elements(device: Any, largest: bool) -> None:
    x = np.random.default_rng(1).integers(0, 9, 700)
    order = np.argsort(-x if largest else x, kind="stable")[:20]
    values, indices = wg.tensor(x, device=device).topk(20, largest=largest, sorted=False)
    assert (host(indices) == order).all()
    assert (host(values) == x[order]).all()


@pytest.mark.parametrize("k", [1, 32, 33])
def test_topk_of_rows_with_many_ties_and_nan(k: int) -> None:
    """topk bounds the selected elements in a first pass: check rows of equal values, ties, NaN and infinities."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((5, 700)).astype(np.float32)
    x[1], x[2], x[3, ::3], x[3, 5], x[4, 7:] = 2, np.floor(x[2]), np.nan, -np.inf, np.nan
    for largest in (True, False):
        values, indices = (t.numpy() for t in wg.topk(wg.tensor(x), k, largest=largest))
        ordered = np.sort(x, axis=1)
        assert np.array_equal(values, ordered[:, ::-1][:, :k] if largest else ordered[:, :k], equal_nan=True)
        assert np.array_equal(np.take_along_axis(x, indices, 1), values, equal_nan=True)
        assert all(len(set(row)) == k for row in indices.tolist())


def test_topk_finds_elements_near_the_end(device: Any) -> None:
    """Once k candidates are known, elements that cannot replace one are skipped; a better one may come late."""
    x = np.arange(10, 3010, dtype="float32")
    x[1500], x[2999], x[2998] = 12.5, 12.0, 13.0
    values, indices = wg.topk(wg.tensor(x, device=device), 5, largest=False)
    assert host(values).tolist() == [10, 11, 12, 12, 12.5]
    assert host(indices).tolist() == [0, 1, 2, 2999, 1500]


def test_the_kth_value(device: Any, matrix: Any) -> None:
    x = wg.tensor(matrix, device=device)
    for k in (1, 5, 8):
        values, indices = wg.kthvalue(x, k, keepdim=True)
        assert (host(values) == np.sort(matrix, 1)[:, k - 1 : k]).all()
        assert (np.take_along_axis(matrix, host(indices), 1) == host(values)).all()
    assert math.isnan(wg.tensor([NAN, 2.0, 1.0], device=device).kthvalue(3).values.item())
    assert wg.kthvalue(wg.tensor(4.0, device=device), 1).values.item() == 4.0


def test_medians(device: Any, matrix: Any) -> None:
    array = np.where(np.random.default_rng(2).random(matrix.shape) < 0.2, NAN, matrix).astype("float32")
    array[3] = NAN
    x = wg.tensor(array, device=device)
    for dim in (0, 1):
        middle = np.sort(array, dim).take((array.shape[dim] - 1) // 2, dim)
        expected = np.where(np.isnan(array).any(dim), NAN, middle)
        values, indices = wg.median(x, dim)
        assert np.array_equal(host(values), expected, equal_nan=True)
        index = np.expand_dims(host(indices), dim)
        assert np.array_equal(np.take_along_axis(array, index, dim).squeeze(dim), expected, equal_nan=True)
        rows = np.moveaxis(array, dim, -1)
        numbers = [np.sort(row[~np.isnan(row)]) for row in rows]
        lower = [row[(row.size - 1) // 2] if row.size else NAN for row in numbers]
        assert np.array_equal(host(x.nanmedian(dim, True).values).ravel(), np.array(lower, "float32"), equal_nan=True)
    all_numbers = np.sort(array[~np.isnan(array)])
    assert x.nanmedian().item() == all_numbers[(all_numbers.size - 1) // 2]
    assert math.isnan(x.median().item())
    assert wg.median(wg.tensor([4, 1, 3, 2], device=device)).item() == 2
    assert math.isnan(wg.median(wg.empty(0, device=device)).item())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64", "uint8"])
@pytest.mark.parametrize("kind", ["normal", "sorted", "few", "same", "unlucky", "odd"])
def test_medians_of_long_vectors(kind: str, dtype: str) -> None:
    """Long vectors are searched between bounds taken from a sample; unlucky samples must give exact medians too."""
    rng = np.random.default_rng(zlib.crc32(f"{kind} {dtype}".encode()))
    n = 3 * 65536 + (kind == "odd")
    x = rng.normal(scale=40, size=n).clip(-120, 120) + 120 * (dtype == "uint8")
    if kind == "sorted":
        x.sort()
    elif kind == "few":
        x = rng.integers(0, 3, n)
    elif kind == "same":
        x[:] = 7
    elif kind == "unlucky":  # every element of the sample is the minimum
        x = (np.arange(n) % (n // 4096) != 0) * 5
    tensor = wg.tensor(x, device="cpu").to(getattr(wg, dtype))
    ordered = np.sort(tensor.to(wg.float64).numpy())
    assert wg.median(tensor).item() == wg.nanmedian(tensor).item() == ordered[(n - 1) // 2], (kind, dtype)
    assert tensor.median().dtype is getattr(wg, dtype)


@pytest.mark.parametrize("missing", [1, 70000, 65536 * 2 - 1, 65536 * 2])
def test_medians_of_long_vectors_with_nan(missing: int) -> None:
    x = np.random.default_rng(5).normal(size=65536 * 2).astype("float32")
    x[np.random.default_rng(6).permutation(x.size)[:missing]] = np.nan
    tensor, numbers = wg.tensor(x, device="cpu", requires_grad=True), np.sort(x[~np.isnan(x)])
    assert math.isnan(tensor.median().item())
    median = tensor.nanmedian()
    if missing == x.size:
        assert math.isnan(median.item())
        return
    assert median.item() == numbers[(numbers.size - 1) // 2]
    median.backward()
    assert np.array_equal(np.flatnonzero(tensor.grad.numpy()), np.flatnonzero(x == median.item()))


def test_mode_is_the_smallest_of_the_most_frequent(device: Any) -> None:
    x = np.random.default_rng(3).integers(0, 4, (6, 9))
    for dim in (0, 1):
        values, indices = wg.mode(wg.tensor(x, device=device), dim)
        assert (host(values) == scipy.stats.mode(x, axis=dim).mode).all()
        last = [np.flatnonzero(row == v)[-1] for row, v in zip(np.moveaxis(x, dim, -1), host(values), strict=True)]
        assert host(indices).tolist() == last
    assert wg.mode(wg.tensor([NAN, NAN, 2.0, 3.0, 2.0], device=device)).values.item() == 2.0


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(device: Any, matrix: Any, method: str) -> None:
    array = matrix.copy()
    array[1, 2] = NAN
    x, q = wg.tensor(array, device=device), np.array([0.0, 0.3, 0.5, 1.0], "float32")
    q_tensor = wg.tensor(q, device=device)
    for dim in (0, 1, None):
        for keepdim in (False, True):
            for function, reference in ((wg.quantile, np.quantile), (wg.nanquantile, np.nanquantile)):
                expected = reference(array.astype("float64"), q, dim, method=method, keepdims=keepdim)
                actual = host(function(x, q_tensor, dim, keepdim, interpolation=method))
                assert actual.shape == expected.shape
                assert np.allclose(actual, expected, 1e-5, 1e-6, equal_nan=True)
    assert x.nanquantile(0.25, 0, interpolation=method).shape == (8,)


# unique and isin ------------------------------------------------------------------------------------------------------


def test_unique(device: Any) -> None:
    array = np.random.default_rng(4).integers(0, 3, (7, 2, 2))
    x = wg.tensor(array, device=device)
    for dim in (None, 0, 1, -1):
        expected = np.unique(array, return_inverse=True, return_counts=True, axis=dim)
        actual = wg.unique(x, return_inverse=True, return_counts=True, dim=dim)
        for actual_part, expected_part in zip(actual, expected, strict=True):
            assert (host(actual_part) == expected_part.reshape(actual_part.shape)).all()
        assert actual[1].shape == (array.shape if dim is None else (array.shape[dim],))
    assert host(x.unique()).tolist() == [0, 1, 2]
    with_nan = wg.tensor([NAN, 1.0, NAN, 0.0, -0.0], device=device)
    values, counts = with_nan.unique(return_counts=True)
    assert np.array_equal(host(values), [0, 1, NAN, NAN], equal_nan=True)
    assert host(counts).tolist() == [2, 1, 1, 1]
    for empty in wg.unique(wg.empty(0, device=device), return_inverse=True, return_counts=True):
        assert empty.shape == (0,)


def test_unique_consecutive(device: Any) -> None:
    x = wg.tensor([[1, 1], [1, 1], [2, 1], [1, 1]], device=device)
    values, inverse, counts = x.unique_consecutive(return_inverse=True, return_counts=True)
    assert (host(values).tolist(), host(counts).tolist()) == ([1, 2, 1], [4, 1, 3])
    assert host(inverse).tolist() == [[0, 0], [0, 0], [1, 2], [2, 2]]
    values, inverse = wg.unique_consecutive(x, return_inverse=True, dim=0)
    assert host(values).tolist() == [[1, 1], [2, 1], [1, 1]]
    assert host(inverse).tolist() == [0, 0, 1, 2]


def test_isin(device: Any, matrix: Any) -> None:
    x, members = wg.tensor(matrix, device=device), np.array([1.0, NAN, -2.5, 1.0], "float32")
    for invert in (False, True):
        expected = np.isin(matrix, members, invert=invert)
        assert (host(wg.isin(x, wg.tensor(members, device=device), invert=invert)) == expected).all()
        assert (host(wg.isin(x, 1, invert=invert)) == np.isin(matrix, 1, invert=invert)).all()
        assert (host(wg.isin(x, wg.empty(0, device=device), invert=invert)) == invert).all()
    assert wg.isin(2, wg.tensor([1, 2], device=device)).item() is True


# searchsorted, bucketize and histograms -------------------------------------------------------------------------------


def test_searchsorted_and_bucketize(device: Any) -> None:
    sequence, values = np.array([1, 3, 3, 5]), np.array([[0, 3], [4, 9]])
    s, v = wg.tensor(sequence, device=device), wg.tensor(values, device=device)
    for right in (False, True):
        expected = np.searchsorted(sequence, values, "right" if right else "left")
        assert (host(wg.searchsorted(s, v, right=right)) == expected).all()
        assert (host(wg.bucketize(v, s, right=right)) == expected).all()
    assert wg.searchsorted(s, v, side="right", out_int32=True).dtype is wg.int32
    assert (wg.searchsorted(s, 3.5).item(), wg.bucketize(3, s).item()) == (3, 1)
    unsorted, order = wg.tensor([5, 1, 3, 3], device=device), wg.tensor([1, 2, 3, 0], device=device)
    assert (host(wg.searchsorted(unsorted, v, sorter=order)) == np.searchsorted(sequence, values)).all()
    with_nan, queries = wg.tensor([1.0, 2.0, NAN], device=device), wg.tensor([NAN, 1.5], device=device)
    assert host(wg.searchsorted(with_nan, queries)).tolist() == [3, 1]


def test_histograms(device: Any) -> None:
    array = (np.random.default_rng(6).integers(-9, 10, 60) / 4).astype("float32")
    x = wg.tensor(array, device=device)
    counts, edges = np.histogram(array, 8, (-2, 2))
    assert (host(wg.histc(x, 8, -2, 2)) == counts).all()
    histogram = x.histogram(8, range=(-2, 2))
    assert (host(histogram.hist) == counts).all()
    assert (host(histogram.bin_edges) == edges).all()
    weight = (np.arange(60) / 8).astype("float32")
    for density in (False, True):
        expected = np.histogram(array, [-2, -0.5, 0.25, 2], weights=weight, density=density)[0]
        bins = wg.tensor([-2, -0.5, 0.25, 2], device=device)
        actual = wg.histogram(x, bins, weight=wg.tensor(weight, device=device), density=density).hist
        assert np.allclose(host(actual), expected, 1e-6)
    assert host(wg.histc(x)).sum() == 60
    assert host(wg.histc(wg.tensor([2.0, 2.0], device=device), 3)).tolist() == [0, 2, 0]
    assert host(wg.histc(wg.tensor([NAN, 1.0], device=device), 2, 0, 2)).tolist() == [0, 1]


def test_edges_are_rounded_once() -> None:
    """As in PyTorch, `low + i * step` is rounded once: the product is not rounded before the sum."""
    low, high, bins = -1.5, 0.7, 97
    edges = wg.histogram(wg.zeros(1, dtype=wg.float64), bins, range=(low, high)).bin_edges.tolist()
    step = Fraction((high - low) / bins)
    assert edges[: bins // 2] == [float(Fraction(low) + step * i) for i in range(bins // 2)]
    assert edges[bins // 2 + 1 :] == [float(Fraction(high) - step * (bins - i)) for i in range(bins // 2 + 1, bins + 1)]


def test_large_inputs_are_counted_by_several_work_items() -> None:
    array = np.random.default_rng(7).integers(0, 300, 40_003)
    assert (wg.bincount(wg.tensor(array)).numpy() == np.bincount(array)).all()
    actual = wg.histc(wg.tensor(array.astype("float32")), 60, 0, 300).numpy()
    assert (actual == np.histogram(array, 60, (0, 300))[0]).all()


def test_bincount(device: Any) -> None:
    array = np.array([1, 4, 1, 0, 4, 4])
    x, weights = wg.tensor(array, device=device), np.arange(6, dtype="float32") / 2
    assert (host(x.bincount()) == np.bincount(array)).all()
    assert (host(wg.bincount(x, minlength=8)) == np.bincount(array, minlength=8)).all()
    actual = wg.bincount(x, wg.tensor(weights, device=device))
    assert actual.dtype is wg.float32
    assert (host(actual) == np.bincount(array, weights)).all()
    assert wg.bincount(wg.empty(0, dtype=wg.int64, device=device)).shape == (0,)


# Gradients ------------------------------------------------------------------------------------------------------------


def test_gradients_of_medians_and_modes(device: Any) -> None:
    x = wg.tensor([2.0, 1.0, 2.0, 3.0, 2.0], device=device, requires_grad=True)
    x.median().backward()
    assert np.allclose(host(x.grad), [1 / 3, 0, 1 / 3, 0, 1 / 3])
    x.grad = None
    x.median(0).values.backward()
    assert host(x.grad).tolist() == [0, 0, 1, 0, 0]
    x.grad = None
    x.mode().values.backward()
    assert host(x.grad).tolist() == [0, 0, 0, 0, 1]


def test_derivatives_of_quantiles() -> None:
    device = device_of("cpu")
    values = np.random.default_rng(7).permutation(12).reshape(3, 4) / 5.0
    quantiles = wg.tensor([0.2, 0.55], dtype=wg.float64)

    x = wg.tensor(values, dtype=wg.float64, requires_grad=True)
    # op_sort.py checks second derivatives.
    check_gradients("quantile", lambda x: wg.quantile(x, quantiles, 1), [x], device, second=False)


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
    with pytest.raises(kind, match=words) as error_info:
        call()
    assert isinstance(error_info.value, wg.runtime.errors.WeftgradError)


@pytest.mark.parametrize("dtype", [wg.float32, wg.int64], ids=str)
def test_order_statistics_are_contiguous(dtype):
    """The indices were slices of all sorted positions, and the values had their strides: `view` raised."""
    x = wg.arange(24, device="cpu").reshape(2, 3, 4).to(dtype)
    functions = (wg.median, wg.nanmedian, wg.mode, lambda t, dim: t.kthvalue(2, dim))
    for function in functions:
        for dim in range(3):
            for result in function(x, dim):
                assert result.is_contiguous()
                assert result.view(-1).shape == (result.numel(),)
