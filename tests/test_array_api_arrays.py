"""Functions of the array API standard over whole arrays: shapes, reductions, sorting, sets and linear algebra."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from array_api_samples import FLOATS, INF, NAN, NUMPY_FOLLOWS, check, sample, xp

import weftgrad as wg

pytestmark = pytest.mark.skipif(not NUMPY_FOLLOWS, reason="NumPy follows the standard from 2.1 on")


# Manipulation and indexing


def test_shapes():
    x = sample((2, 3, 4))
    t = wg.tensor(x)
    for axis in (0, 1, 3, -1, -4, (0, 2), (-1, 0)):
        check(xp.expand_dims(t, axis=axis), np.expand_dims(x, axis))
    with pytest.raises(IndexError):
        xp.expand_dims(t, axis=5)
    for axes in ((0, 1, 2), (2, 0, 1), (-1, 0, 1)):
        check(xp.permute_dims(t, axes), np.permute_dims(x, axes))
    for source, destination in ((0, -1), ((0, 1), (2, 0)), (-1, 0)):
        check(xp.moveaxis(t, source, destination), np.moveaxis(x, source, destination))
    y = sample((1, 3, 1))
    for axis in (0, 2, -1, (0, 2), (-3, -1)):
        check(xp.squeeze(wg.tensor(y), axis), np.squeeze(y, axis))
    with pytest.raises(ValueError, match="squeeze"):
        xp.squeeze(wg.tensor(y), 1)
    for shape in ((6, 4), (-1,), (24,), (2, 1, 12), (4, -1)):
        check(xp.reshape(t, shape), np.reshape(x, shape))
        check(xp.reshape(xp.permute_dims(t, (2, 0, 1)), shape), np.reshape(np.permute_dims(x, (2, 0, 1)), shape))
    assert xp.reshape(t, (6, 4), copy=True).data_ptr() != t.data_ptr()
    assert xp.reshape(t, (6, 4), copy=False).data_ptr() == t.data_ptr()
    with pytest.raises(ValueError, match="copy=False"):
        xp.reshape(xp.permute_dims(t, (2, 0, 1)), (24,), copy=False)
    check(xp.broadcast_to(wg.tensor(y), (5, 2, 3, 4)), np.broadcast_to(y, (5, 2, 3, 4)))
    z = sample((2, 1, 4))
    for result, expected in zip(xp.broadcast_arrays(*map(wg.tensor, (y, z))), np.broadcast_arrays(y, z), strict=True):
        check(result, expected)
    for axis in (0, 1, -1):
        results = xp.unstack(t, axis=axis)
        assert isinstance(results, tuple)
        for result, expected in zip(results, np.unstack(x, axis=axis), strict=True):
            check(result, expected)


def test_joining_and_repeating():
    x, y = sample((2, 3), "int8"), sample((2, 3), "int32", 1)
    pair = [wg.tensor(x), wg.tensor(y)]
    for axis in (0, 1, -1, None):
        check(xp.concat(pair, axis=axis), np.concat([x, y], axis=axis))
    for axis in (0, 1, 2, -1):
        check(xp.stack(tuple(pair), axis=axis), np.stack([x, y], axis=axis))
    t = pair[1]
    for axis in (None, 0, 1, -1, (0, 1)):
        check(xp.flip(t, axis=axis), np.flip(y, axis))
    for shift, axis in ((1, None), (-4, None), (1, 0), (2, -1), ((1, 2), (0, 1)), (1, (0, 1)), (7, 1)):
        check(xp.roll(t, shift, axis=axis), np.roll(y, shift, axis))
    for repeats, axis in ((2, None), (0, 0), (3, 1)):
        check(xp.repeat(t, repeats, axis=axis), np.repeat(y, repeats, axis))
    counts = np.array([1, 0, 2])
    check(xp.repeat(t, wg.tensor(counts), axis=1), np.repeat(y, counts, 1))
    check(xp.repeat(t, wg.tensor(2)), np.repeat(y, 2))
    for repetitions in ((2,), (2, 1), (1, 2, 3), (), (0, 2)):
        check(xp.tile(t, repetitions), np.tile(y, repetitions))


def test_take():
    x = sample((3, 4))
    t = wg.tensor(x)
    for axis, indices in ((0, [2, 0, -1]), (1, [3, -4, 0, 1, 1]), (-1, [])):
        for dtype in ("int32", "int64"):
            positions = np.array(indices, dtype)
            check(xp.take(t, wg.tensor(positions), axis=axis), np.take(x, positions.astype("int64"), axis))
    check(xp.take(t[0], wg.tensor([1, -1])), np.take(x[0], [1, -1]))
    for axis in (0, 1, -1):
        positions = np.argsort(x, axis=axis)
        check(xp.take_along_axis(t, wg.tensor(positions), axis=axis), np.take_along_axis(x, positions, axis))
        length = x.shape[axis]
        check(xp.take_along_axis(t, wg.tensor(positions - length), axis=axis), np.take_along_axis(x, positions, axis))
    check(xp.take_along_axis(t, wg.tensor([[1], [-1], [0]])), np.take_along_axis(x, np.array([[1], [-1], [0]]), -1))
    for function, arguments in ((xp.take, (t, wg.tensor([0]))), (xp.take, (t[0], wg.tensor([0.5])))):
        with pytest.raises(ValueError, match="take"):
            function(*arguments)
    for bad in (7, -5):
        with pytest.raises(IndexError):
            xp.take(t, wg.tensor([bad]), axis=1)
    with pytest.raises(ValueError, match="axes"):
        xp.take_along_axis(t, wg.tensor([0]), axis=0)


# Reductions

AXES = (None, 0, -1, (0, 2), (), (-1, 1))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "count_nonzero"])
def test_reductions(name):
    kinds = {
        "mean": FLOATS,
        "std": FLOATS,
        "var": FLOATS,
        "sum": ("float64", "int8", "uint8"),
        "max": ("float32", "int8"),
    }
    kinds = kinds.get(name, ("float64", "int8"))
    for dtype, axis, keepdims in itertools.product(kinds, AXES, (False, True)):
        x = sample((2, 3, 4), dtype)
        with np.errstate(all="ignore"):
            expected = np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims))
        if dtype == "uint8" and name in ("sum", "prod"):
            expected = expected.astype("int64")  # there is no uint64
        if name == "count_nonzero" and axis == ():
            expected = (x != 0).astype("int64")
        rtol = 1e-5 if dtype == "float32" else 1e-12 if dtype == "float64" else 0
        check(getattr(xp, name)(wg.tensor(x), axis=axis, keepdims=keepdims), expected, rtol)


def test_reductions_of_special_values_and_of_nothing():
    x = np.array([[1.0, NAN], [INF, -INF]])
    for name in ("sum", "prod", "max", "min", "mean", "all", "any"):
        with np.errstate(all="ignore"):
            expected = np.asarray(getattr(np, name)(x, axis=1))
        check(getattr(xp, name)(wg.tensor(x), axis=1), expected)
    empty = np.zeros((0, 3))
    for name in ("sum", "prod", "all", "any", "count_nonzero"):
        check(getattr(xp, name)(wg.tensor(empty), axis=0), np.asarray(getattr(np, name)(empty, axis=0)))
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ValueError, match=r"dimension|reduce|element"):
            getattr(xp, name)(wg.tensor(empty), axis=0)
    x = sample((3, 4))
    for correction in (0, 1, 0.5, 2):
        check(xp.var(wg.tensor(x), axis=0, correction=correction), np.var(x, axis=0, correction=correction), 1e-13)
        check(xp.std(wg.tensor(x), correction=correction), np.std(x, correction=correction), 1e-13)
    check(xp.sum(wg.tensor([1, 2], dtype=wg.int8), dtype=xp.float64), np.array(3.0))
    check(xp.prod(wg.tensor([2, 3], dtype=wg.int8), dtype=xp.int16), np.array(6, "int16"))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_of_extrema(name):
    for dtype, axis, keepdims in itertools.product(("float64", "int8"), (None, 0, 1, -1), (False, True)):
        x = sample((4, 5), dtype)
        check(getattr(xp, name)(wg.tensor(x), axis=axis, keepdims=keepdims),
              np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims)))  # fmt: skip
    x = np.array([1.0, NAN, 3.0, NAN])
    check(getattr(xp, name)(wg.tensor(x)), np.asarray(getattr(np, name)(x)))


def test_nonzero():
    for x in (sample((3, 4), "int8"), sample(5, "bool"), np.array([0.0, -0.0, NAN])):
        for result, expected in zip(xp.nonzero(wg.tensor(x)), np.nonzero(x), strict=True):
            check(result, expected)
    with pytest.raises(ValueError, match="nonzero"):
        xp.nonzero(wg.tensor(1))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_cumulative(name):
    for dtype, axis, initial in itertools.product(("float64", "int8"), (0, -1), (False, True)):
        x = sample((3, 4), dtype)
        check(getattr(xp, name)(wg.tensor(x), axis=axis, include_initial=initial),
              getattr(np, name)(x, axis=axis, include_initial=initial), 1e-13 if dtype == "float64" else 0)  # fmt: skip
    x = sample(4, "int8")
    check(getattr(xp, name)(wg.tensor(x), dtype=xp.float64), getattr(np, name)(x, dtype="float64"))
    with pytest.raises(ValueError, match="axis"):
        getattr(xp, name)(wg.ones(2, 2))


def test_diff():
    x = sample((3, 5), "int64")
    t = wg.tensor(x)
    for axis, n in itertools.product((0, 1, -1), (0, 1, 2)):
        check(xp.diff(t, axis=axis, n=n), np.diff(x, n, axis))
    before, after = sample((3, 2), "int64", 1), sample((3, 1), "int64", 2)
    check(xp.diff(t, prepend=wg.tensor(before), append=wg.tensor(after)), np.diff(x, prepend=before, append=after))
    check(xp.diff(t, n=0, append=wg.tensor(after)), np.concat([x, after], axis=1))


# Sorting and sets


def test_sorting():
    for dtype, axis in itertools.product(("float64", "int8", "bool"), (0, -1)):
        x = sample((6, 7), dtype)
        t = wg.tensor(x)
        order = np.argsort(x, axis=axis, stable=True)
        check(xp.argsort(t, axis=axis), order)
        check(xp.sort(t, axis=axis), np.sort(x, axis=axis))
        length = x.shape[axis]
        # Equal elements keep their order: sort the reversed tensor, and count from the other end.
        descending = length - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, stable=True), axis)
        check(xp.argsort(t, axis=axis, descending=True), descending)
        check(xp.sort(t, axis=axis, descending=True), np.take_along_axis(x, descending, axis))
    check(xp.sort(wg.tensor([2.0, NAN, -INF, 1.0])), np.array([-INF, 1, 2, NAN], "float32"))


def test_searchsorted():
    x = np.sort(sample(8, "int64"))
    values = np.arange(-6, 7).reshape(1, 13)
    for side in ("left", "right"):
        check(xp.searchsorted(wg.tensor(x), wg.tensor(values), side=side), np.searchsorted(x, values, side))
    shuffled = x[::-1].copy()
    order = np.argsort(shuffled)
    check(
        xp.searchsorted(wg.tensor(shuffled), wg.tensor(values), sorter=wg.tensor(order)),
        np.searchsorted(shuffled, values, sorter=order),
    )
    check(xp.searchsorted(wg.tensor([1.0, 2.0]), wg.tensor(1.5, dtype=wg.float64)), np.array(1))
    with pytest.raises(ValueError, match="vector"):
        xp.searchsorted(wg.ones(2, 2), wg.ones(2))


def test_unique_elements():
    for x in (sample((4, 5), "int8"), np.array([NAN, 1.0, NAN, -0.0, 0.0, 1.0]), sample(9, "bool"), np.zeros((0, 2))):
        t = wg.tensor(x)
        expected = np.unique_all(x)
        result = xp.unique_all(t)
        assert result._fields == expected._fields
        assert np.array_equal(result.values.numpy(), expected.values, equal_nan=x.dtype.kind == "f")
        assert result.values.numpy().dtype == x.dtype
        number = ~np.isnan(expected.values) if x.dtype.kind == "f" else np.ones(len(expected.values), bool)
        for name in ("indices", "counts"):
            check(getattr(result, name)[wg.tensor(number)], getattr(expected, name)[number])
        flat = x.reshape(-1)
        assert np.array_equal(flat[result.indices.numpy()], expected.values, equal_nan=x.dtype.kind == "f")
        rebuilt = result.values.numpy()[result.inverse_indices.numpy()]
        assert rebuilt.shape == x.shape
        assert np.array_equal(rebuilt, x, equal_nan=x.dtype.kind == "f")
        assert np.array_equal(xp.unique_values(t).numpy(), expected.values, equal_nan=x.dtype.kind == "f")
        assert xp.unique_counts(t).counts.tolist() == result.counts.tolist()
        assert xp.unique_inverse(t).inverse_indices.tolist() == result.inverse_indices.tolist()


# Linear algebra


@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_products(dtype):
    rtol = {"float32": 1e-5, "float64": 1e-12}.get(dtype, 0)
    for first, second in (((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((5, 1, 2, 3), (4, 3, 2))):
        a, b = sample(first, dtype), sample(second, dtype, 1)
        for function, reference in ((xp.matmul, np.matmul), (xp.linalg.matmul, np.linalg.matmul)):
            check(function(wg.tensor(a), wg.tensor(b)), np.asarray(reference(a, b)), rtol)
    a, b = sample((2, 3, 4), dtype), sample((4, 3, 2), dtype, 1)
    for axes in (1, 0, ((1, 2), (1, 0)), ((0,), (2,)), ([2], [0])):
        check(xp.tensordot(wg.tensor(a), wg.tensor(b), axes=axes), np.tensordot(a, b, axes), rtol)
    for shapes, axis in ((((2, 3), (3,)), -1), (((2, 3), (2, 1)), -2), (((3,), (3,)), -1), (((4, 1, 3), (5, 3)), -1)):
        a, b = sample(shapes[0], dtype), sample(shapes[1], dtype, 1)
        check(xp.vecdot(wg.tensor(a), wg.tensor(b), axis=axis), np.asarray(np.vecdot(a, b, axis=axis)), rtol)
    with pytest.raises(ValueError, match="vecdot"):
        xp.vecdot(wg.ones(2), wg.ones(3))
    a = sample((2, 3, 4), dtype)
    check(xp.matrix_transpose(wg.tensor(a)), np.matrix_transpose(a))
    check(wg.tensor(a).mT, a.mT)
    with pytest.raises(ValueError, match="two axes"):
        xp.matrix_transpose(wg.ones(2))


def test_products_of_two_dtypes():
    a, b = sample((2, 3), "int8"), sample((3, 2), "int32", 1)
    check(xp.matmul(wg.tensor(a), wg.tensor(b)), a @ b)
    check(xp.tensordot(wg.tensor(a), wg.tensor(b), axes=1), np.tensordot(a, b, 1))
    check(xp.vecdot(wg.tensor(a), wg.tensor(b.T.copy())), np.vecdot(a, b.T))


def test_linalg():
    x = sample((2, 3, 4))
    t = wg.tensor(x)
    for offset in (0, 1, -2, 5):
        if offset < 4:
            check(xp.linalg.diagonal(t, offset=offset), np.linalg.diagonal(x, offset=offset))
        check(xp.linalg.trace(t, offset=offset), np.linalg.trace(x, offset=offset), 1e-13)
    check(xp.linalg.trace(wg.ones(2, 2, dtype=wg.int8)), np.array(2))
    for axis, keepdims, order in itertools.product((None, -1, (0, 1)), (False, True), (2, 1, 0, 3, -INF)):
        check(
            xp.linalg.vector_norm(t, axis=axis, keepdims=keepdims, ord=order),
            np.asarray(np.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=order)), 1e-12,
        )  # fmt: skip
    for order, keepdims in itertools.product(("fro", "nuc", 1, -1, 2, -2, INF, -INF), (False, True)):
        check(
            xp.linalg.matrix_norm(t, ord=order, keepdims=keepdims),
            np.linalg.matrix_norm(x, ord=order, keepdims=keepdims), 1e-12,
        )  # fmt: skip
    square = sample((2, 3, 3))
    for n in (0, 1, 2, 3, 5, -2):
        check(xp.linalg.matrix_power(wg.tensor(square), n), np.linalg.matrix_power(square, n), 1e-12)
    for function in ("det", "inv"):
        check(getattr(xp.linalg, function)(wg.tensor(square)), getattr(np.linalg, function)(square), 1e-11)
    for actual, expected in zip(xp.linalg.slogdet(wg.tensor(square)), np.linalg.slogdet(square), strict=True):
        check(actual, expected, 1e-12)
    definite = square @ square.swapaxes(1, 2) + np.eye(3)
    check(xp.linalg.eigvalsh(wg.tensor(definite)), np.linalg.eigvalsh(definite), 1e-12)
    values, vectors = xp.linalg.eigh(wg.tensor(definite))
    check(vectors @ (values[..., None] * vectors.mT), definite, 1e-12)
    check(xp.linalg.svdvals(t), np.linalg.svd(x, compute_uv=False), 1e-12)
    for mode in ("reduced", "complete"):
        for actual, expected in zip(xp.linalg.qr(t, mode=mode), np.linalg.qr(x, mode), strict=True):
            check(actual, expected, 1e-12)
    U, S, Vh = xp.linalg.svd(t, full_matrices=False)
    check(U @ (S[..., None] * Vh), x, 1e-12)
    assert xp.linalg.svd(t).Vh.shape == (2, 4, 4)
    check(xp.linalg.pinv(t), np.linalg.pinv(x), 1e-11)
    check(xp.linalg.matrix_rank(t, rtol=0.5), np.linalg.matrix_rank(x, rtol=0.5))
    for upper in (False, True):
        factor = np.linalg.cholesky(definite, upper=upper)
        check(xp.linalg.cholesky(wg.tensor(definite), upper=upper), factor, 1e-12)
    for right in (sample((3,)), sample((2, 3, 2)), sample((3, 4)), sample((2, 3, 3))[:, :, :1]):
        check(xp.linalg.solve(wg.tensor(square), wg.tensor(right)), np.linalg.solve(square, right), 1e-11)
    matrices, right = sample((3, 2, 2)), sample((3, 2, 2), seed=2)[0]  # no vectors, although PyTorch takes (..., M)
    check(xp.linalg.solve(wg.tensor(matrices), wg.tensor(right)), np.linalg.solve(matrices, right), 1e-11)
    a, b = sample((4, 3)), sample((4, 3), seed=1)
    check(xp.linalg.cross(wg.tensor(a), wg.tensor(b)), np.linalg.cross(a, b), 1e-13)
    check(xp.linalg.cross(wg.tensor(a.T), wg.tensor(b.T), axis=0), np.linalg.cross(a.T, b.T, axis=0), 1e-13)
    check(xp.linalg.outer(wg.tensor(a[0]), wg.tensor(b[0])), np.linalg.outer(a[0], b[0]))
    with pytest.raises(ValueError, match="outer"):
        xp.linalg.outer(wg.tensor(a), wg.tensor(b[0]))
