"""Check scatter reductions, embeddings and embedding bags, and every form of index that users may write.

Expected values come from loops over NumPy arrays, expected gradients from central differences.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from op_devices import build, collecting
from op_running import exercise

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn import functional as F
from weftgrad.runtime import errors

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def host(tensor: Any) -> Array:
    return tensor.detach().cpu().numpy()


_is_collecting_kernels = False


def build_kernels_first(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test twice, because compiling its kernels in one batch is faster than one at a time.

    The first run only collects the kernels: it launches and compares nothing. The second run is the real test.
    """

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        global _is_collecting_kernels
        device = wg.device("cpu")
        _is_collecting_kernels = True
        try:
            with collecting(device) as steps, contextlib.suppress(Exception):
                test(*args, **kwargs)
        finally:
            _is_collecting_kernels = False
        build(device, steps)
        test(*args, **kwargs)

    return run


def assert_equal(actual: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert tuple(actual.shape) == expected.shape
    if not _is_collecting_kernels:
        np.testing.assert_array_equal(host(actual), expected)


def assert_close(actual: Array, expected: Any, rtol: float = 1e-13, atol: float = 1e-14) -> None:
    assert actual.shape == np.shape(expected)
    if not _is_collecting_kernels:
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def check_gradients(function: Callable[..., Any], inputs: list[Any], *, second: bool = True) -> None:
    """Compare first and second derivatives with central differences."""
    if _is_collecting_kernels:
        exercise(function, inputs)
        return
    assert wg.autograd.gradcheck(function, inputs)
    if second:
        assert wg.autograd.gradgradcheck(function, inputs)


def leaf(values: Array) -> Any:
    return wg.tensor(values.astype(np.float64), requires_grad=True)


# Reductions -----------------------------------------------------------------------------------------------------------

_FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    "sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min,
}  # fmt: skip


def reduce_reference(
    x: Array, positions: list[tuple[int, ...]], values: list[Any], reduce: str, include_self: bool
) -> Array:
    """Reduce the values of each position in a loop. The mean of integers is rounded down."""
    out = x.copy()
    for position in set(positions):
        group = [v for p, v in zip(positions, values, strict=True) if p == position]
        value = _FUNCTIONS[reduce](np.asarray([x[position], *group] if include_self else group, x.dtype))
        out[position] = np.floor(value) if x.dtype.kind == "i" else value
    return out


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", _FUNCTIONS)
@build_kernels_first
def test_scatter_reduce(reduce: str, include_self: bool) -> None:
    for dtype in ("float64", "int32") if include_self else ("float64",):
        x, source = (RNG.integers(-9, 9, s).astype(dtype) for s in ((4, 5), (6, 5)))
        index = RNG.integers(0, 4, (6, 4))
        positions = [(int(index[position]), position[1]) for position in np.ndindex(6, 4)]
        expected = reduce_reference(
            x, positions, [source[position] for position in np.ndindex(6, 4)], reduce, include_self
        )
        args = (0, wg.tensor(index), wg.tensor(source), reduce)
        assert_equal(wg.scatter_reduce(wg.tensor(x), *args, include_self=include_self), expected)
        target = wg.tensor(x)
        assert target.scatter_reduce_(*args, include_self=include_self) is target
        assert_equal(target, expected)
        if reduce != "sum":
            row = RNG.integers(0, 4, 6)
            positions = [(int(row[i]), j) for i, j in np.ndindex(6, 5)]
            expected = reduce_reference(x, positions, list(source.reshape(-1)), reduce, include_self)
            args = (-2, wg.tensor(row), wg.tensor(source), reduce)
            assert_equal(wg.tensor(x).index_reduce(*args, include_self=include_self), expected)
            assert_equal(wg.tensor(x).index_reduce_(*args, include_self=include_self), expected)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", _FUNCTIONS)
@build_kernels_first
def test_gradients_of_scatter_reduce(reduce: str, include_self: bool) -> None:
    values = RNG.permutation(12) / 4 - 1.4  # all different, none is 0
    index = wg.tensor([0, 2, 0, 0, 1, 2, 0])
    for zeros in ((), (6,), (6, 8)) if reduce == "prod" else ((),):
        values[list(zeros)] = 0
        x, source = leaf(values[:5]), leaf(values[5:])
        check_gradients(lambda x, s: x.scatter_reduce(0, index, s, reduce, include_self=include_self), [x, source])
        check_gradients(
            lambda x, s: (x * 2).scatter_reduce_(0, index, s, reduce, include_self=include_self),
            [x, source],
            second=False,
        )
    if reduce != "sum":
        x, source = leaf(RNG.permutation(10).reshape(5, 2) / 4 + 0.3), leaf(RNG.permutation(14).reshape(7, 2) / 4 + 0.2)
        check_gradients(lambda x, s: x.index_reduce(0, index, s, reduce, include_self=include_self), [x, source])


@build_kernels_first
def test_equal_extremes_share_the_gradient() -> None:
    x, source = leaf(np.array([2.0, 0.0])), leaf(np.array([2.0, 1.0, 2.0, 3.0]))
    output = x.scatter_reduce(0, wg.tensor([0, 0, 0, 1]), source, "amax")
    output.backward(wg.tensor([6.0, 5.0], dtype=wg.float64))
    assert_equal(x.grad, [2.0, 0.0])
    assert_equal(source.grad, [2.0, 0.0, 2.0, 5.0])


@build_kernels_first
def test_nan_is_the_extreme() -> None:
    x = wg.tensor([1.0, np.nan, 1.0, 1.0])
    source = wg.tensor([np.nan, 2.0, 0.0])
    for reduce, last in (("amax", 1.0), ("amin", 0.0)):
        assert_equal(x.scatter_reduce(0, wg.tensor([0, 1, 2]), source, reduce), [np.nan, np.nan, last, 1.0])


@build_kernels_first
def test_scatter_multiplies() -> None:
    x, index = wg.tensor([1.0, 2.0, 3.0]), wg.tensor([1, 1, 0])
    assert_equal(x.scatter(0, index, 3.0, reduce="multiply"), [3.0, 18.0, 3.0])
    assert_equal(x.clone().scatter_(0, index, wg.tensor([2.0, 4.0, 5.0]), reduce="multiply"), [5.0, 16.0, 3.0])
    assert_equal(x.scatter(0, index, value=0.5, reduce="add"), [1.5, 3.0, 3.0])


@build_kernels_first
def test_put_and_its_errors() -> None:
    values = np.arange(12.0).reshape(3, 4)
    x, index, source = wg.tensor(values), wg.tensor([[1, -1], [1, 4]]), wg.tensor(np.arange(1.0, 5.0))
    expected = values.copy()
    expected.reshape(-1)[[-1, 1, 4]] = [2, 3, 4]
    assert_equal(x.put(index, source), expected)
    expected = values.copy()
    np.add.at(expected.reshape(-1), [1, -1, 1, 4], [1, 2, 3, 4])
    assert_equal(x.T.contiguous().T.put_(index, source, accumulate=True), expected)
    check_gradients(lambda x, s: x.put(index, s, True), [leaf(values), leaf(np.arange(4.0))], second=False)
    with pytest.raises(errors.IndexOutOfRange, match="one for each"):
        x.put(index, source[:3])
    with pytest.raises(errors.IndexOutOfRange, match=r"index 12 .* size 12"):
        x.put(wg.tensor([12]), source[:1])


@build_kernels_first
def test_results_are_written_to_out() -> None:
    x, index = wg.tensor(np.arange(12.0).reshape(3, 4)), wg.tensor([[2, 0, 1, 0]])
    row = wg.tensor([2, 0])
    for call in (
        lambda **o: wg.gather(x, 0, index, **o), lambda **o: wg.index_select(x, 1, row, **o),
        lambda **o: wg.take(x, row, **o), lambda **o: wg.scatter_reduce(x, 0, index, x, "amax", **o),
        lambda **o: wg.index_add(x, 1, row, x[:, :2], **o), lambda **o: wg.masked_select(x, x > 3, **o),
        lambda **o: wg.nonzero(x > 3, **o),
    ):  # fmt: skip
        expected = call()
        out = wg.zeros(*expected.shape[::-1], dtype=expected.dtype).T
        assert call(out=out) is out
        assert_equal(out, host(expected))


@build_kernels_first
def test_axis_is_another_name_of_dim() -> None:
    x, index, row = wg.tensor(np.arange(12.0).reshape(3, 4)), wg.tensor([[2, 0, 1, 0]]), wg.tensor([2, 0])
    assert_equal(x.gather(axis=0, index=index), host(x.gather(0, index)))
    assert_equal(wg.index_select(x, axis=1, index=row), host(x[:, [2, 0]]))
    assert_equal(x.scatter_add(axis=0, index=index, src=x), host(x.scatter_add(0, index, x)))
    assert_equal(wg.index_fill(x, axis=1, index=row, value=0.0), host(x.index_fill(1, row, 0.0)))
    assert_equal(x.select(axis=1, index=2), host(x[:, 2]))
    assert_equal(wg.narrow(x, axis=1, start=wg.tensor(1), length=2), host(x[:, 1:3]))
    with pytest.raises(errors.ArgumentError, match="dim and axis"):
        x.gather(0, axis=0, index=index)


# Embeddings -----------------------------------------------------------------------------------------------------------

TABLE = RNG.standard_normal((10, 3))
BAG_INDICES = RNG.integers(0, 10, 14)
OFFSETS = np.array([0, 3, 3, 8])
BAGS = [BAG_INDICES[0:3], BAG_INDICES[3:3], BAG_INDICES[3:8], BAG_INDICES[8:]]


@pytest.mark.parametrize("norm_type", [2.0, float("inf")])
@build_kernels_first
def test_max_norm_renormalizes_the_rows_that_are_read(norm_type: float) -> None:
    weight, index = wg.tensor(TABLE, requires_grad=True), np.array([[1, 4], [4, 7]])
    expected = TABLE.copy()
    for row in (1, 4, 7):
        norm = np.linalg.norm(TABLE[row], norm_type)
        expected[row] = TABLE[row] * (1.5 / (norm + 1e-7) if norm > 1.5 else 1)
    assert not np.array_equal(expected, TABLE)
    output = F.embedding(wg.tensor(index), weight, max_norm=1.5, norm_type=norm_type)
    assert_close(host(weight), expected, rtol=1e-14)
    assert_equal(output, host(weight)[index])
    np.testing.assert_array_equal(host(weight)[[0, 2, 3]], TABLE[[0, 2, 3]])


@build_kernels_first
def test_scale_grad_by_freq_divides_by_how_often_a_row_is_read() -> None:
    index, grad = np.array([1, 4, 4, 1, 4, 0]), RNG.standard_normal((6, 3))
    weight = wg.tensor(TABLE, requires_grad=True)
    F.embedding(wg.tensor(index), weight, padding_idx=-10, scale_grad_by_freq=True).backward(wg.tensor(grad))
    expected = np.zeros_like(TABLE)
    expected[1], expected[4] = grad[[0, 3]].mean(0), grad[[1, 2, 4]].mean(0)
    assert_close(host(weight.grad), expected, rtol=1e-14, atol=1e-15)


def bag_reference(mode: str, padding: int | None, factors: Array | None = None) -> Array:
    output = np.zeros((4, 3))
    for i, bag in enumerate(BAGS):
        mask = bag != (10 if padding is None else padding % 10)
        rows = TABLE[bag] * (1 if factors is None else factors[OFFSETS[i] : OFFSETS[i] + len(bag), None])
        if mask.any():
            output[i] = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode](rows[mask], axis=0)
    return output


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@build_kernels_first
def test_bags(mode: str) -> None:
    index, offsets = wg.tensor(BAG_INDICES), wg.tensor(OFFSETS)
    ends = wg.tensor([*OFFSETS, len(BAG_INDICES)], dtype=wg.int32)
    for padding in (None, int(BAG_INDICES[4]), int(BAG_INDICES[9]) - 10):
        expected = bag_reference(mode, padding)
        for actual in (
            F.embedding_bag(index, wg.tensor(TABLE), offsets, mode=mode, padding_idx=padding),
            F.embedding_bag(index, wg.tensor(TABLE), ends, mode=mode, padding_idx=padding, include_last_offset=True),
        ):
            assert_close(host(actual), expected, rtol=1e-14, atol=1e-15)
        weight = wg.tensor(TABLE, requires_grad=True)
        check_gradients(
            lambda w, p=padding: F.embedding_bag(index, w, offsets, mode=mode, padding_idx=p), [weight], second=False
        )
    flat = F.embedding_bag(wg.tensor(BAG_INDICES.reshape(2, 7)), wg.tensor(TABLE), mode=mode)
    reduced = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode](TABLE[BAG_INDICES.reshape(2, 7)], axis=1)
    assert_close(host(flat), reduced, rtol=1e-14)
    assert_equal(F.embedding_bag(index[:0], wg.tensor(TABLE), offsets[:1], mode=mode), np.zeros((1, 3)))


@build_kernels_first
def test_weighted_bags() -> None:
    index, offsets, factors = wg.tensor(BAG_INDICES), wg.tensor(OFFSETS), RNG.standard_normal(14)
    weight = wg.tensor(TABLE, requires_grad=True)
    actual = F.embedding_bag(index, weight, offsets, mode="sum", per_sample_weights=wg.tensor(factors))
    assert_close(host(actual), bag_reference("sum", None, factors), rtol=1e-13, atol=1e-14)

    def bags(w: Any, f: Any) -> Any:
        return F.embedding_bag(index, w, offsets, mode="sum", per_sample_weights=f, padding_idx=3)

    check_gradients(bags, [weight, leaf(factors)])


@build_kernels_first
def test_embedding_layers() -> None:
    layer = nn.EmbeddingBag(10, 3, mode="sum", padding_idx=-1, dtype=wg.float64)
    assert layer.padding_idx == 9
    assert not host(layer.weight)[9].any()
    assert str(layer) == "EmbeddingBag(10, 3, mode='sum', padding_idx=9)"
    index, offsets = wg.tensor(BAG_INDICES), wg.tensor(OFFSETS)
    assert_equal(layer(index, offsets), host(F.embedding_bag(index, layer.weight, offsets, mode="sum", padding_idx=9)))
    pretrained = nn.EmbeddingBag.from_pretrained(wg.tensor(TABLE), mode="max")
    assert not pretrained.weight.requires_grad
    assert_close(host(pretrained(index, offsets)), bag_reference("max", None))
    plain = nn.Embedding(10, 3, max_norm=1.0, scale_grad_by_freq=True, dtype=wg.float64)
    plain(wg.tensor([1, 2])).sum().backward()
    assert np.linalg.norm(host(plain.weight)[[1, 2]], axis=1).max() <= 1.0
    assert str(plain) == "Embedding(10, 3, max_norm=1.0, scale_grad_by_freq=True)"
    with pytest.raises(errors.NotSupported):
        nn.Embedding(3, 4, sparse=True)


@build_kernels_first
def test_one_hot_of_other_shapes() -> None:
    assert_equal(F.one_hot(wg.tensor(2), 4), [0, 0, 1, 0])
    assert tuple(F.one_hot(wg.zeros(0, 2, dtype=wg.int64), 3).shape) == (0, 2, 3)
    with pytest.raises(RuntimeError, match="num_classes"):
        F.one_hot(wg.zeros(0, dtype=wg.int64))


# Forms of indices -----------------------------------------------------------------------------------------------------


@build_kernels_first
def test_masks_of_uint8() -> None:
    values = RNG.standard_normal((4, 5))
    mask = (values > 0).astype(np.uint8)
    for index in (mask, wg.tensor(mask)):
        with pytest.warns(UserWarning, match="uint8"):
            assert_equal(wg.tensor(values)[index], values[mask > 0])
        actual = wg.tensor(values)
        with pytest.warns(UserWarning, match="uint8"):
            actual[index] = 0.5
        assert_equal(actual, np.where(mask > 0, 0.5, values))
    with pytest.warns(UserWarning, match="uint8"):
        assert_equal(wg.tensor(values)[:, wg.tensor(mask[0])], values[:, mask[0] > 0])
    with pytest.warns(UserWarning, match="uint8"):
        assert tuple(wg.tensor(values)[wg.tensor(1, dtype=wg.uint8)].shape) == (1, 4, 5)


@build_kernels_first
def test_lists_of_sequences_are_tuples() -> None:
    values = np.arange(12.0).reshape(3, 4)
    for index, equivalent in (
        ([[0, 1], [1, 0]], ([0, 1], [1, 0])), ([slice(0, 2), 1], (slice(0, 2), 1)),
        ([None, wg.tensor([0, 2])], (None, [0, 2])),
    ):  # fmt: skip
        with pytest.warns(UserWarning, match="tuple"):
            assert_equal(wg.tensor(values)[index], values[equivalent])
        actual, expected = wg.tensor(values), values.copy()
        expected[equivalent] = -1
        with pytest.warns(UserWarning, match="tuple"):
            actual[index] = -1
        assert_equal(actual, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_equal(wg.tensor(values)[[0, 2]], values[[0, 2]])
        assert_equal(wg.tensor(values)[:, range(0, 4, 2)], values[:, ::2])
        assert_equal(wg.tensor(values)[[True, False, True]], values[[0, 2]])


INDEX, SHAPE, DTYPE = errors.IndexOutOfRange, errors.ShapeError, errors.DTypeError
X, ROW = wg.zeros(3, 4), wg.tensor([1])
# (call, our error, the built-in exception that PyTorch raises, pattern of the message)
INVALID_CALLS: dict[str, tuple[Callable[[], Any], type, type, str]] = {
    "gather": (lambda: X.gather(1, wg.tensor([[4]])), INDEX, RuntimeError, "index 4 .* size 4"),
    "scatter": (lambda: X.scatter(1, wg.tensor([[-1]]), 1.0), INDEX, RuntimeError, "index -1 .* size 4"),
    "index_select": (lambda: X.index_select(0, wg.tensor([3])), INDEX, IndexError, "index 3 .* size 3"),
    "index_copy": (lambda: X.index_copy(0, ROW, wg.zeros(2, 4)), INDEX, IndexError, r"\[1, 4\], not \[2, 4\]"),
    "index_fill": (lambda: X.index_fill(0, wg.tensor([-4]), 1), INDEX, IndexError, "index -4"),
    "index_fill of a vector": (lambda: X.index_fill(0, ROW, wg.ones(2)), SHAPE, RuntimeError, "0-d"),
    "a broken broadcast": (lambda: X[[0, 1], [0, 1, 2]], SHAPE, IndexError, "broadcast"),
    "a float index": (lambda: X[wg.tensor([1.0])], DTYPE, IndexError, "float32"),
    "a word": (lambda: X["a"], errors.ArgumentError, IndexError, "str"),
    "a negative step": (lambda: X[::-1], SHAPE, ValueError, "positive"),
    "reduce": (lambda: X.scatter(0, ROW[None], 1.0, reduce="mean"), errors.NotSupported, RuntimeError, "multiply"),
    "scatter_reduce": (
        lambda: X.scatter_reduce(0, ROW[None], X, "max"), errors.NotSupported, RuntimeError, "amax",
    ),
    "index_reduce": (lambda: X.index_reduce(0, ROW, X[:1], "sum"), errors.NotSupported, RuntimeError, "prod"),
    "scatter_add of a number": (lambda: X.scatter_add(0, ROW[None], 1.0), errors.ArgumentError, TypeError, "tensors"),
    "src dtype": (lambda: X.scatter_reduce(0, ROW[None], X.double(), "sum"), DTYPE, RuntimeError, "float64"),
    "mask dtype": (lambda: X.masked_fill(X, 1.0), DTYPE, RuntimeError, "bool"),
    "mask value": (lambda: X.masked_fill(X > 0, wg.ones(1)), SHAPE, RuntimeError, "0-d"),
    "mode": (lambda: F.embedding_bag(ROW, X, ROW * 0, mode="min"), errors.ArgumentError, ValueError, "'max'"),
    "no offsets": (lambda: F.embedding_bag(ROW, X), errors.ArgumentError, ValueError, "offsets"),
    "two offsets": (lambda: F.embedding_bag(ROW[None], X, ROW), errors.ArgumentError, ValueError, "one dimension"),
    "first offset": (lambda: F.embedding_bag(ROW, X, ROW), INDEX, RuntimeError, "first of the offsets.* index 1"),
    "last offset": (lambda: F.embedding_bag(ROW, X, wg.tensor([0, 2])), INDEX, RuntimeError, "index 2 .* size 2"),
    "factors of a mean": (
        lambda: F.embedding_bag(ROW, X, ROW * 0, per_sample_weights=wg.ones(1)), errors.NotSupported,
        NotImplementedError, "'sum'",
    ),
    "a bag's index": (lambda: F.embedding_bag(wg.tensor([3]), X, ROW * 0), INDEX, RuntimeError, "index 3 .* size 3"),
    "padding": (lambda: F.embedding(ROW, X, 3), INDEX, IndexError, "padding_idx 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", INVALID_CALLS)
def test_errors(case: str) -> None:
    call, error, builtin, message = INVALID_CALLS[case]
    with pytest.raises(error, match=message) as error_info:
        call()
    assert isinstance(error_info.value, builtin)


# Large index tensors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1])
def test_many_indices(dim: int) -> None:
    """Kernels check large index tensors themselves, and results of 8 MiB are stored past the caches."""
    rng = np.random.default_rng(1)
    shape = (2049, 1040)
    x, source = rng.standard_normal((2, *shape)).astype(np.float32)
    index = rng.integers(0, shape[dim], (shape[0], 64) if dim else (64, shape[1]))
    full = rng.integers(0, shape[dim], shape)
    updates = source[tuple(slice(n) for n in index.shape)]
    expected = x.astype(np.float64)
    grid = np.ogrid[: index.shape[0], : index.shape[1]]
    np.add.at(expected, (grid[0], index) if dim else (index, grid[1]), updates)
    target, some_indices, all_indices = wg.tensor(x).requires_grad_(), wg.tensor(index), wg.tensor(full)
    gathered = wg.gather(target, dim, all_indices)
    scattered = wg.scatter_add(target, dim, some_indices, wg.tensor(source))
    np.testing.assert_array_equal(host(gathered), np.take_along_axis(x, full, dim))
    np.testing.assert_allclose(host(scattered), expected, rtol=1e-5, atol=1e-5)
    (gathered.sum() + scattered.sum()).backward()
    counts = np.apply_along_axis(np.bincount, dim, full, minlength=shape[dim])
    np.testing.assert_array_equal(host(target.grad), counts + 1)
    integers = wg.scatter_add(wg.tensor(full), dim, some_indices, wg.tensor(index))
    assert integers.sum().item() == full.sum() + index.sum()
    for bad_index in (-1, shape[dim]):
        for tensor in (some_indices, all_indices):
            tensor[-1, 3] = bad_index
            with pytest.raises(errors.IndexOutOfRange, match=f"gather: index {bad_index} "):
                wg.gather(target, dim, tensor)
            with pytest.raises(errors.IndexOutOfRange, match=f"scatter_add: index {bad_index} "):
                wg.scatter_add(target, dim, tensor, wg.tensor(source))
            with pytest.raises(errors.IndexOutOfRange, match=f"scatter: index {bad_index} "):
                wg.scatter(target.detach(), dim, tensor, 1.0)


# More than 2^31 elements ----------------------------------------------------------------------------------------------


@build_kernels_first
def test_more_than_2_31_elements() -> None:
    """Index beyond 2^31 into expanded tensors, whose elements share memory: offsets must have 64 bits throughout."""
    huge = (1 << 33) + 5
    x = wg.tensor([3.0, 4.0]).reshape(2, 1).expand(2, huge)
    indices = wg.tensor([huge - 1, 0, 1 << 31])
    assert_equal(x.index_select(1, indices), [[3, 3, 3], [4, 4, 4]])
    assert_equal(x[:, indices], [[3, 3, 3], [4, 4, 4]])
    assert_equal(wg.gather(x, 1, indices.expand(2, 3)), [[3, 3, 3], [4, 4, 4]])
    assert_equal(x.take(wg.tensor([huge - 1, huge, 2 * huge - 1, -1])), [3, 4, 4, 4])
    with pytest.raises(errors.IndexOutOfRange, match=str(huge)):
        x.index_select(1, wg.tensor([huge]))


def test_the_switch_for_deterministic_algorithms() -> None:
    assert not wg.are_deterministic_algorithms_enabled()
    wg.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert wg.are_deterministic_algorithms_enabled()
        assert wg.is_deterministic_algorithms_warn_only_enabled()
        assert wg.get_deterministic_debug_mode() == 1
        wg.set_deterministic_debug_mode("error")
        assert wg.get_deterministic_debug_mode() == 2
        assert not wg.is_deterministic_algorithms_warn_only_enabled()
    finally:
        wg.set_deterministic_debug_mode(0)
    assert not wg.are_deterministic_algorithms_enabled()
    with pytest.raises(TypeError):
        wg.use_deterministic_algorithms(1)
    with pytest.raises(ValueError, match="debug_mode"):
        wg.set_deterministic_debug_mode("never")
