"""Check scans (cumsum, cumprod, cummax, cummin, logcumsumexp, diff, trapezoid) as users call them.

The tests cover arguments, dtypes, in-place results and `out=`, errors, schedules for short and for long lines, and
user-defined scans.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import op_cases as cases
import pytest
from op_devices import MAIN, device_of

import weftgrad as wg
from weftgrad.codegen.loader import load_text
from weftgrad.codegen.model import SpecErrors
from weftgrad.runtime import dispatch, errors
from weftgrad.runtime.records import registry

DEVICE = device_of(MAIN)
X = np.array([[1.5, -2.0, 0.25], [4.0, 0.5, -1.0]])


def tensor(values: Any = X, dtype: Any = wg.float32, **more: Any) -> Any:
    return wg.tensor(values, dtype=dtype, device=DEVICE, **more)


def assert_equal(actual: Any, expected: Any) -> None:
    np.testing.assert_array_equal(cases.host(actual), np.asarray(expected), strict=False)


# Arguments and dtypes


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_running_totals(name: str) -> None:
    function, reference = getattr(wg, name), getattr(np, name)
    x = tensor()
    for actual in (
        function(x, 1),
        function(x, dim=-1),
        function(x, axis=1),
        getattr(x, name)(1),
        getattr(x, name)(axis=-1),
    ):
        assert actual.dtype is wg.float32
        assert_equal(actual, reference(X, 1))
    integers = tensor([3, 2, -4], wg.int8)
    assert function(integers, 0).dtype is wg.int64
    assert function(tensor([True, False], wg.bool), 0).dtype is wg.int64
    int8_result = function(tensor([100, 3], wg.int16), 0, dtype=wg.int8)
    assert int8_result.dtype is wg.int8
    assert_equal(int8_result, reference(np.array([100, 3], np.int8), dtype=np.int8))
    assert_equal(function(tensor([1.7, 2.6]), 0, dtype=wg.int32), reference([1, 2]))
    assert_equal(function(tensor(7.0), 0), 7.0)
    assert function(wg.empty(3, 0, device=DEVICE), 1).shape == (3, 0)


def test_half_types_are_rounded_from_a_wider_state() -> None:
    """Each float16 result is the rounded exact sum; a running sum kept in float16 would stop at 2048."""
    ones = wg.ones(4096, dtype=wg.float16, device=DEVICE)
    assert_equal(ones.cumsum(0), np.arange(1, 4097).astype(np.float16))
    assert_equal(wg.full((3,), 2049.0, device=DEVICE).cumsum(0, dtype=wg.float16), [2048, 4096, 6144])


def test_in_place_and_out() -> None:
    integers = tensor([[1, 2], [3, 4]], wg.int32)
    assert integers.cumsum_(0) is integers
    assert integers.dtype is wg.int32
    assert_equal(integers, [[1, 2], [4, 6]])
    assert_equal(integers.T.cumprod_(0), [[1, 4], [2, 24]])
    assert_equal(integers, [[1, 2], [4, 24]])
    ones = tensor(np.ones(50000))
    ones.cumsum_(0)
    assert_equal(ones, np.arange(1, 50001))
    doubles = wg.empty(2, 3, dtype=wg.float64, device=DEVICE)
    assert wg.cumsum(tensor(), 0, out=doubles) is doubles
    assert_equal(doubles, X.cumsum(0))
    buffer = wg.zeros(3, 5, device=DEVICE)
    wg.cumsum(tensor(), 0, out=buffer[:, 1:3].T)
    assert_equal(buffer, np.pad(X.cumsum(0).T, ((0, 0), (1, 2))))
    values, indices = wg.empty(2, 3, device=DEVICE), wg.empty(2, 3, dtype=wg.int64, device=DEVICE)
    output = wg.cummax(tensor(), 1, out=(values, indices))
    assert output.values is values
    assert output.indices is indices
    assert_equal(indices, [[0, 0, 0], [0, 0, 0]])
    assert_equal(wg.logcumsumexp(tensor(), 1, out=values), np.logaddexp.accumulate(X.astype(np.float32), 1))


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", pytest.param("float16", marks=pytest.mark.thorough), "bfloat16", "int8", "int64", "bool"],
)
def test_scans_of_short_lines(dtype: str) -> None:
    """Short contiguous lines have their own CPU kernels, whose results must equal NumPy's.

    The calls cover every line length that has a kernel and the lengths next to it, forward and reverse scans (by the
    gradient), in-place calls, and a first line that does not start at a multiple of the vector size.
    """
    rng = np.random.default_rng(5)
    wg_dtype = getattr(wg, dtype)
    for line_count, count in ((256, 2), (257, 3), (300, 4), (1000, 5), (259, 7), (2049, 8), (300, 9)):
        x = (
            rng.integers(-4, 5, (line_count + 1, count))
            if dtype != "bool"
            else rng.integers(0, 2, (line_count + 1, count))
        )
        x = x.astype(bool) if dtype == "bool" else x
        operand = tensor(x, wg_dtype)[1:]
        x = x[1:]
        exact = x.astype(np.int64)
        assert_equal(operand.cumsum(1).long(), exact.cumsum(1))
        if wg_dtype.itemsize > 2 or not wg_dtype.is_floating_point:  # products of half types are not exact
            assert_equal(operand.cumprod(1).double(), exact.cumprod(1))
        extremes = operand.cummax(1)
        assert_equal(extremes.values.long(), np.maximum.accumulate(exact, 1))
        last_indices = [
            [max(k for k in range(i + 1) if r[k] == max(r[: i + 1])) for i in range(count)] for r in exact.tolist()
        ]
        assert_equal(extremes.indices, last_indices)
        if wg_dtype.is_floating_point:
            leaf = tensor(x, wg_dtype, requires_grad=True)
            (leaf.cumsum(1) * tensor(x, wg_dtype)).sum().backward()
            assert_equal(leaf.grad.long(), exact[:, ::-1].cumsum(1)[:, ::-1])
        if dtype not in ("bool", "int8"):
            copy = operand.clone()
            assert copy.cumsum_(1) is copy
            assert_equal(copy.long(), exact.cumsum(1))
            strided = wg.zeros(line_count, count + 1, dtype=wg_dtype, device=DEVICE)[:, 1:]
            wg.cumsum(operand, 1, out=strided)
            assert_equal(strided.long(), exact.cumsum(1))
            assert_equal(strided.cumsum(1).long(), exact.cumsum(1).cumsum(1))


def test_short_lines_have_their_own_schedule() -> None:
    x = tensor(np.zeros((600, 8)))
    plans = {
        "short": [(x, 1), (x.view(20, 30, 8), 2), (x[1:], 1), (x.view(1200, 4), 1)],
        "other": [(x[:255], 1), (x[::2], 1), (x, 0), (x[:, :4], 1), (x.view(400, 12), 1)],
    }
    for expected, calls in plans.items():
        for operand, dim in calls:
            entry = dispatch.plan_for(registry["cumsum"], (operand,), (dim, False, None)).steps[0].instance.entry
            assert (entry == "cumsum_short") == (expected == "short"), (operand.shape, operand.stride(), entry)


def test_in_place_histories() -> None:
    x = tensor(requires_grad=True)
    y = x * 1
    y.cumprod_(1)
    y.sum().backward()
    ((a, b, c), (d, e, f)) = X
    expected = [[1 + b + b * c, a + a * c, a * b], [1 + e + e * f, d + d * f, d * e]]
    np.testing.assert_allclose(cases.host(x.grad), expected, rtol=1e-6)
    with pytest.raises(errors.GradientError):
        x.cumsum_(0)
    with pytest.raises(errors.GradientError, match="out= does not record"):
        wg.cumsum(x, 0, out=wg.empty(2, 3, device=DEVICE))


@pytest.mark.parametrize("function", [wg.cummax, wg.cummin])
def test_cummax_and_cummin_prefer_the_last_of_equal_elements_and_nan(function: Any) -> None:
    """As in PyTorch, NaN is more extreme than any number, and equal elements give the index of the last one."""
    nan, inf = np.nan, np.inf
    assert_equal(function(tensor([1, nan, 1, nan, 5]), 0).indices, [0, 1, 1, 3, 3])
    assert_equal(function(tensor([2, 2, 2]), 0).indices, [0, 1, 2])
    assert_equal(
        function(tensor([-inf, inf, -inf, inf]), 0).indices, [0, 1, 1, 3] if function is wg.cummax else [0, 0, 2, 2]
    )
    assert_equal(
        function(tensor([True, False, True], wg.bool), 0).indices, [0, 0, 2] if function is wg.cummax else [0, 1, 1]
    )
    assert function(tensor(), 0)._fields == ("values", "indices")


def test_logcumsumexp_of_infinities_and_nan() -> None:
    inf = np.inf
    actual = cases.host(wg.logcumsumexp(tensor([-inf, -inf, 1, inf, 2, np.nan]), 0))
    np.testing.assert_array_equal(actual, [-inf, -inf, 1, inf, inf, np.nan])
    large_sums = cases.host(wg.logcumsumexp(tensor([1000.0, 1000.0, -1000.0]), 0))
    np.testing.assert_allclose(large_sums, 1000 + np.log([1, 2, 2]), rtol=1e-6)
    x = tensor([1.0, -inf, 2.0], requires_grad=True)
    wg.logcumsumexp(x, 0).sum().backward()
    np.testing.assert_allclose(cases.host(x.grad), [2 + 1 / (1 + np.e), 0, np.e / (1 + np.e)], rtol=1e-6)


INVALID_CALLS = [
    (lambda x: x.cumsum(2), IndexError, "expected -2 to 1, got 2"),
    (lambda x: x.cumsum(), TypeError, "give dim"),
    (lambda x: x.cumsum(0, axis=0), TypeError, "two names"),
    (lambda x: x.cumsum((0,)), TypeError, "dim must be an int"),
    (lambda x: x.cumsum(True), TypeError, "dim must be an int"),
    (lambda x: wg.cumsum([1, 2], 0), TypeError, "takes tensors, not list"),
    (lambda x: x.cumsum(0, dtype=wg.bool), NotImplementedError, "no results of bool"),
    (lambda x: x.bool().cumprod_(0), NotImplementedError, "no results of bool"),
    (lambda x: x.cumsum_(0, dtype=wg.float64), RuntimeError, r"float64 and cannot be written to float32; use cumsum\("),
    (lambda x: wg.cumsum(x, 0, dtype=wg.float32, out=x.double()), RuntimeError, "make them equal"),
    (lambda x: wg.cumsum(x, 0, out=wg.empty(3, device=DEVICE)), RuntimeError, r"the result has shape \[2, 3\]"),
    (lambda x: wg.cummax(x, 0, out=(x.clone(), x.clone())), RuntimeError, "the result is int64"),
    (lambda x: wg.cummin(x, 0, out=x), TypeError, "out takes two tensors"),
    (lambda x: x.long().logcumsumexp(0), NotImplementedError, r"convert with .float\(\)"),
    (lambda x: wg.logcumsumexp(x, 0, out=x.double()), RuntimeError, "the result is float32"),
    (lambda x: tensor(1.0).diff(), RuntimeError, "one dimension at least"),
    (lambda x: x.diff(-1), RuntimeError, "must not be negative"),
    (lambda x: x.diff(1.5), TypeError, "n must be an integer"),
    (lambda x: x.diff(prepend=wg.zeros(3, 1, device=DEVICE)), RuntimeError, "equal except in dimension 1"),
    (lambda x: x.diff(append=tensor(1.0)), RuntimeError, r"append has shape \[\]"),
    (lambda x: wg.trapezoid(x.bool()), RuntimeError, "is bool"),
    (lambda x: wg.trapezoid(tensor(1.0)), IndexError, "y is a 0-d tensor"),
    (lambda x: wg.trapezoid(x, tensor([0.0, 1])), RuntimeError, "y has 3 points in dimension 1, x has 2"),
    (lambda x: wg.cumulative_trapezoid(x, x, dx=2), TypeError, "pass one of them"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), INVALID_CALLS, ids=[m for *_, m in INVALID_CALLS])
def test_errors(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(errors.WeftgradError, match=message) as error_info:
        call(tensor())
    assert isinstance(error_info.value, kind)


# Differences and areas


def test_differences() -> None:
    x = tensor()
    assert_equal(x.diff(), np.diff(X))
    assert_equal(wg.diff(x, 2), np.diff(X, 2))
    assert_equal(wg.diff(x, axis=0), np.diff(X, axis=0))
    assert_equal(wg.diff(x, dim=0, prepend=x[:1], append=x), np.diff(X, axis=0, prepend=X[:1], append=X))
    assert_equal(wg.diff(x, n=0, prepend=x), X)
    assert x.diff(n=7).shape == (2, 0)
    assert_equal(tensor([5, 3, 9], wg.uint8).diff(), np.diff(np.array([5, 3, 9], np.uint8)))
    assert_equal(tensor([True, False, False], wg.bool).diff(), [True, False])
    out = wg.empty(2, 2, device=DEVICE)
    assert wg.diff(x, out=out) is out


@pytest.mark.parametrize("dim", [0, -1])
def test_areas(dim: int) -> None:
    y, positions = tensor(dtype=wg.float64), np.array([0.0, 1.0, 4.0])[: X.shape[dim]]
    x = tensor(positions, wg.float64)
    assert_equal(
        wg.trapezoid(y, dim=dim), np.trapezoid(X, axis=dim) if hasattr(np, "trapezoid") else np.trapz(X, axis=dim)
    )
    from scipy.integrate import cumulative_trapezoid, trapezoid

    assert_equal(wg.trapz(y, dx=3.0, dim=dim), trapezoid(X, dx=3.0, axis=dim))
    assert_equal(wg.trapezoid(y, x, dim=dim), trapezoid(X, positions, axis=dim))
    assert_equal(wg.cumulative_trapezoid(y, x, dim=dim), cumulative_trapezoid(X, positions, axis=dim))
    assert_equal(wg.cumulative_trapezoid(y, dx=0.5, dim=dim), cumulative_trapezoid(X, dx=0.5, axis=dim))
    assert_equal(wg.trapezoid(y, y * 2, dim=dim), trapezoid(X, X * 2, axis=dim))
    assert wg.trapezoid(wg.empty(2, 0, device=DEVICE)).tolist() == [0, 0]


# Long lines and memory layouts


def test_rounding_errors_of_long_sums_stay_small() -> None:
    """A line is summed in blocks, so rounding errors grow far slower than in a sequential sum."""
    x = np.random.default_rng(0).uniform(0, 1, 300_000).astype(np.float32)
    actual = cases.host(tensor(x).cumsum(0)).astype(np.float64)
    exact = np.cumsum(x.astype(np.float64))
    assert (np.abs(actual - exact) / exact).max() < 1e-5


def test_few_long_lines_are_split_between_work_items() -> None:
    def entries(*shape: int, dim: int) -> list[str]:
        x = wg.empty(*shape, device=DEVICE)
        return [s.instance.entry for s in dispatch.plan_for(registry["cumsum"], (x,), (dim, False, None)).steps]

    split_steps = entries(1 << 20, dim=0)
    assert len(split_steps) == 2
    assert len(entries(512, 2048, dim=1)) == 1
    assert len(entries(300_000, 2, dim=0)) == 2


def test_operands_with_different_directions() -> None:
    """One operand is flipped and the other is not, so the strides of the operands have different signs."""
    a, b = np.arange(40.0) % 3 - 1, np.arange(40.0)
    x, y = tensor(a, wg.float64), tensor(b, wg.float64)
    actual = dispatch.call(registry["recurrence"], (wg.flip(x, (0,)), y), (0, True))
    state, expected = 0.0, np.empty(40)
    for i in reversed(range(40)):
        state = expected[i] = a[::-1][i] * state + b[i]
    assert_equal(actual, expected)


def test_large_results_with_unaligned_lines() -> None:
    """Only results whose lines all start at a multiple of the vector size use stores that bypass the caches."""
    counts = np.arange(1, 32774, dtype=np.float32)
    for n in (32768, 32773):
        actual = wg.ones(65, n).cumsum(1).numpy()
        assert (actual == counts[:n]).all()


# Specs


def test_a_user_defined_scan_is_differentiable() -> None:
    user_ops = wg.ops.load(
        """
- op: "running_total(input, dim: int, reverse: bool = False)"
  kind: scan
  dtypes: float
  scan: {identity: 0, map: input, combine: a + b}
- op: "running_count(input: Mask, dim: int)"
  kind: scan
  dtypes: all
  result: index
  scan: {identity: 0, map: "where(input, 1, 0)", combine: a + b}
"""
    )
    x = tensor(requires_grad=True)
    user_ops.running_total(x, 1, True)[:, 1].sum().backward()
    assert_equal(x.grad, [[0, 1, 1], [0, 1, 1]])
    assert_equal(user_ops.running_count(tensor(X > 0, wg.bool), 1), np.cumsum(X > 0, 1))


@pytest.mark.parametrize(
    ("signature", "scan", "message"),
    [
        ("f(input, dim: int)", "{identity: 0, map: input}", "scan: a scan needs `scan:` with identity"),
        ("f(input, dim: int)", "{identity: 0, map: input, combine: c}", "scan.combine: unknown name 'c'"),
        ("f(input, dim: int)", "{identity: false, map: input > 0, combine: a or b}", "a field is a number"),
        ("f(input, dim: int)", "{identity: 0, map: input, combine: a + b, finish: acc / n}", "there is no `n`"),
        ("f(input)", "{identity: 0, map: input, combine: a + b}", "a scan goes along one dimension"),
        ("f(input, dim: int, keepdim: bool)", "{identity: 0, map: input, combine: a + b}", "no parameter 'keepdim'"),
        ("f(input, other, dim: int)", "{identity: 0, map: input, combine: a + b}", "'other' is used by no expression"),
    ],
)
def test_wrong_specs(signature: str, scan: str, message: str) -> None:
    with pytest.raises(SpecErrors) as error_info:
        load_text(f'- op: "{signature}"\n  kind: scan\n  scan: {scan}\n')
    assert message in str(error_info.value)
