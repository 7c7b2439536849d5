"""Scans as users call them: arguments, dtypes, results in place and in `out`, errors; long lines; specs."""

from __future__ import annotations

from typing import Any

import numpy as np
import op_cases as cases
import pytest
from op_running import MAIN, device_of

import weftgrad as wg
from weftgrad.codegen.loader import load_text
from weftgrad.codegen.model import SpecErrors
from weftgrad.runtime import dispatch, errors
from weftgrad.runtime.records import registry

PLACE = device_of(MAIN)
X = np.array([[1.5, -2.0, 0.25], [4.0, 0.5, -1.0]])


def made(values: Any = X, dtype: Any = wg.float32, **more: Any) -> Any:
    return wg.tensor(values, dtype=dtype, device=PLACE, **more)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(cases.host(found), np.asarray(expected), strict=False)


# Arguments and dtypes


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_running_totals(name: str) -> None:
    ours, numpys = getattr(wg, name), getattr(np, name)
    x = made()
    for found in (ours(x, 1), ours(x, dim=-1), ours(x, axis=1), getattr(x, name)(1), getattr(x, name)(axis=-1)):
        assert found.dtype is wg.float32
        same(found, numpys(X, 1))
    whole = made([3, 2, -4], wg.int8)
    assert ours(whole, 0).dtype is wg.int64
    assert ours(made([True, False], wg.bool), 0).dtype is wg.int64
    narrow = ours(made([100, 3], wg.int16), 0, dtype=wg.int8)
    assert narrow.dtype is wg.int8
    same(narrow, numpys(np.array([100, 3], np.int8), dtype=np.int8))
    same(ours(made([1.7, 2.6]), 0, dtype=wg.int32), numpys([1, 2]))
    same(ours(made(7.0), 0), 7.0)
    assert ours(wg.empty(3, 0, device=PLACE), 1).shape == (3, 0)


def test_half_types_are_rounded_from_a_wider_state() -> None:
    """Each result is that of the exact sum; a half-precision state would stay at 2048."""
    ones = wg.ones(4096, dtype=wg.float16, device=PLACE)
    same(ones.cumsum(0), np.arange(1, 4097).astype(np.float16))
    same(wg.full((3,), 2049.0, device=PLACE).cumsum(0, dtype=wg.float16), [2048, 4096, 6144])


def test_in_place_and_out() -> None:
    whole = made([[1, 2], [3, 4]], wg.int32)
    assert whole.cumsum_(0) is whole
    assert whole.dtype is wg.int32
    same(whole, [[1, 2], [4, 6]])
    same(whole.T.cumprod_(0), [[1, 4], [2, 24]])
    same(whole, [[1, 2], [4, 24]])
    long = made(np.ones(50000))
    long.cumsum_(0)
    same(long, np.arange(1, 50001))
    wide = wg.empty(2, 3, dtype=wg.float64, device=PLACE)
    assert wg.cumsum(made(), 0, out=wide) is wide
    same(wide, X.cumsum(0))
    board = wg.zeros(3, 5, device=PLACE)
    wg.cumsum(made(), 0, out=board[:, 1:3].T)
    same(board, np.pad(X.cumsum(0).T, ((0, 0), (1, 2))))
    values, indices = wg.empty(2, 3, device=PLACE), wg.empty(2, 3, dtype=wg.int64, device=PLACE)
    found = wg.cummax(made(), 1, out=(values, indices))
    assert found.values is values
    assert found.indices is indices
    same(indices, [[0, 0, 0], [0, 0, 0]])
    same(wg.logcumsumexp(made(), 1, out=values), np.logaddexp.accumulate(X.astype(np.float32), 1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64", "bool"])
def test_lines_of_few_elements(dtype: str) -> None:
    """Many of them, one after the other, have kernels of their own on CPUs: the results are those of NumPy, at every
    length and its neighbours, from either end, in place, and where a first line does not begin at a vector."""
    rng = np.random.default_rng(5)
    own = getattr(wg, dtype)
    for number, count in ((256, 2), (257, 3), (300, 4), (1000, 5), (259, 7), (2049, 8), (300, 9)):
        x = rng.integers(-4, 5, (number + 1, count)) if dtype != "bool" else rng.integers(0, 2, (number + 1, count))
        x = x.astype(bool) if dtype == "bool" else x
        given = made(x, own)[1:]
        x = x[1:]
        wide = x.astype(np.int64)
        same(given.cumsum(1).long(), wide.cumsum(1))
        if own.itemsize > 2 or not own.is_floating_point:  # whose products are exact
            same(given.cumprod(1).double(), wide.cumprod(1))
        found = given.cummax(1)
        same(found.values.long(), np.maximum.accumulate(wide, 1))
        last = [[max(k for k in range(i + 1) if r[k] == max(r[: i + 1])) for i in range(count)] for r in wide.tolist()]
        same(found.indices, last)
        if own.is_floating_point:
            leaf = made(x, own, requires_grad=True)
            (leaf.cumsum(1) * made(x, own)).sum().backward()
            same(leaf.grad.long(), wide[:, ::-1].cumsum(1)[:, ::-1])
        if dtype not in ("bool", "int8"):
            again = given.clone()
            assert again.cumsum_(1) is again
            same(again.long(), wide.cumsum(1))
            apart = wg.zeros(number, count + 1, dtype=own, device=PLACE)[:, 1:]
            wg.cumsum(given, 1, out=apart)
            same(apart.long(), wide.cumsum(1))
            same(apart.cumsum(1).long(), wide.cumsum(1).cumsum(1))


def test_lines_of_few_elements_are_a_schedule() -> None:
    x = made(np.zeros((600, 8)))
    plans = {
        "short": [(x, 1), (x.view(20, 30, 8), 2), (x[1:], 1), (x.view(1200, 4), 1)],
        "other": [(x[:255], 1), (x[::2], 1), (x, 0), (x[:, :4], 1), (x.view(400, 12), 1)],
    }
    for expected, calls in plans.items():
        for given, dim in calls:
            entry = dispatch.plan_for(registry["cumsum"], (given,), (dim, False, None)).steps[0].instance.entry
            assert (entry == "cumsum_short") == (expected == "short"), (given.shape, given.stride(), entry)


def test_in_place_histories() -> None:
    x = made(requires_grad=True)
    y = x * 1
    y.cumprod_(1)
    y.sum().backward()
    ((a, b, c), (d, e, f)) = X
    expected = [[1 + b + b * c, a + a * c, a * b], [1 + e + e * f, d + d * f, d * e]]
    np.testing.assert_allclose(cases.host(x.grad), expected, rtol=1e-6)
    with pytest.raises(errors.GradientError):
        x.cumsum_(0)
    with pytest.raises(errors.GradientError, match="out= does not record"):
        wg.cumsum(x, 0, out=wg.empty(2, 3, device=PLACE))


@pytest.mark.parametrize("better", [wg.cummax, wg.cummin])
def test_the_last_of_equals_and_of_nan(better: Any) -> None:
    """As PyTorch: NaN wins over numbers and stays; of equal elements the last one's index."""
    nan, inf = np.nan, np.inf
    same(better(made([1, nan, 1, nan, 5]), 0).indices, [0, 1, 1, 3, 3])
    same(better(made([2, 2, 2]), 0).indices, [0, 1, 2])
    same(better(made([-inf, inf, -inf, inf]), 0).indices, [0, 1, 1, 3] if better is wg.cummax else [0, 0, 2, 2])
    same(better(made([True, False, True], wg.bool), 0).indices, [0, 0, 2] if better is wg.cummax else [0, 1, 1])
    assert better(made(), 0)._fields == ("values", "indices")


def test_logcumsumexp_of_what_is_not_finite() -> None:
    inf = np.inf
    found = cases.host(wg.logcumsumexp(made([-inf, -inf, 1, inf, 2, np.nan]), 0))
    np.testing.assert_array_equal(found, [-inf, -inf, 1, inf, inf, np.nan])
    high = cases.host(wg.logcumsumexp(made([1000.0, 1000.0, -1000.0]), 0))
    np.testing.assert_allclose(high, 1000 + np.log([1, 2, 2]), rtol=1e-6)
    x = made([1.0, -inf, 2.0], requires_grad=True)
    wg.logcumsumexp(x, 0).sum().backward()
    np.testing.assert_allclose(cases.host(x.grad), [2 + 1 / (1 + np.e), 0, np.e / (1 + np.e)], rtol=1e-6)


WRONG = [
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
    (lambda x: wg.cumsum(x, 0, out=wg.empty(3, device=PLACE)), RuntimeError, r"the result has shape \[2, 3\]"),
    (lambda x: wg.cummax(x, 0, out=(x.clone(), x.clone())), RuntimeError, "the result is int64"),
    (lambda x: wg.cummin(x, 0, out=x), TypeError, "out takes two tensors"),
    (lambda x: x.long().logcumsumexp(0), NotImplementedError, r"convert with .float\(\)"),
    (lambda x: wg.logcumsumexp(x, 0, out=x.double()), RuntimeError, "the result is float32"),
    (lambda x: made(1.0).diff(), RuntimeError, "one dimension at least"),
    (lambda x: x.diff(-1), RuntimeError, "must not be negative"),
    (lambda x: x.diff(1.5), TypeError, "n must be an integer"),
    (lambda x: x.diff(prepend=wg.zeros(3, 1, device=PLACE)), RuntimeError, "equal except in dimension 1"),
    (lambda x: x.diff(append=made(1.0)), RuntimeError, r"append has shape \[\]"),
    (lambda x: wg.trapezoid(x.bool()), RuntimeError, "is bool"),
    (lambda x: wg.trapezoid(made(1.0)), IndexError, "no dimensions"),
    (lambda x: wg.trapezoid(x, made([0.0, 1])), RuntimeError, "y has 3 points in dimension 1, x has 2"),
    (lambda x: wg.cumulative_trapezoid(x, x, dx=2), TypeError, "give one of them"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), WRONG, ids=[m for *_, m in WRONG])
def test_errors(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(errors.WeftgradError, match=message) as caught:
        call(made())
    assert isinstance(caught.value, kind)


# Differences and areas


def test_differences() -> None:
    x = made()
    same(x.diff(), np.diff(X))
    same(wg.diff(x, 2), np.diff(X, 2))
    same(wg.diff(x, axis=0), np.diff(X, axis=0))
    same(wg.diff(x, dim=0, prepend=x[:1], append=x), np.diff(X, axis=0, prepend=X[:1], append=X))
    same(wg.diff(x, n=0, prepend=x), X)
    assert x.diff(n=7).shape == (2, 0)
    same(made([5, 3, 9], wg.uint8).diff(), np.diff(np.array([5, 3, 9], np.uint8)))
    same(made([True, False, False], wg.bool).diff(), [True, False])
    out = wg.empty(2, 2, device=PLACE)
    assert wg.diff(x, out=out) is out


@pytest.mark.parametrize("dim", [0, -1])
def test_areas(dim: int) -> None:
    y, places = made(dtype=wg.float64), np.array([0.0, 1.0, 4.0])[: X.shape[dim]]
    x = made(places, wg.float64)
    same(wg.trapezoid(y, dim=dim), np.trapezoid(X, axis=dim) if hasattr(np, "trapezoid") else np.trapz(X, axis=dim))
    from scipy.integrate import cumulative_trapezoid, trapezoid

    same(wg.trapz(y, dx=3.0, dim=dim), trapezoid(X, dx=3.0, axis=dim))
    same(wg.trapezoid(y, x, dim=dim), trapezoid(X, places, axis=dim))
    same(wg.cumulative_trapezoid(y, x, dim=dim), cumulative_trapezoid(X, places, axis=dim))
    same(wg.cumulative_trapezoid(y, dx=0.5, dim=dim), cumulative_trapezoid(X, dx=0.5, axis=dim))
    same(wg.trapezoid(y, y * 2, dim=dim), trapezoid(X, X * 2, axis=dim))
    assert wg.trapezoid(wg.empty(2, 0, device=PLACE)).tolist() == [0, 0]


# Long lines, and where results lie


def test_errors_of_long_sums_stay_small() -> None:
    """A share of a line is summed in blocks, so rounding errors grow far slower than one after the other."""
    x = np.random.default_rng(0).uniform(0, 1, 300_000).astype(np.float32)
    found = cases.host(made(x).cumsum(0)).astype(np.float64)
    exact = np.cumsum(x.astype(np.float64))
    assert (np.abs(found - exact) / exact).max() < 1e-5


def test_lines_are_cut_where_there_are_few() -> None:
    def entries(*shape: int, dim: int) -> list[str]:
        x = wg.empty(*shape, device=PLACE)
        return [s.instance.entry for s in dispatch.plan_for(registry["cumsum"], (x,), (dim, False, None)).steps]

    cut = entries(1 << 20, dim=0)
    assert len(cut) == 2
    assert len(entries(512, 2048, dim=1)) == 1
    assert len(entries(300_000, 2, dim=0)) == 2


def test_operands_of_other_directions() -> None:
    """A flipped operand beside one that is not: the directions are each operand's own."""
    a, b = np.arange(40.0) % 3 - 1, np.arange(40.0)
    x, y = made(a, wg.float64), made(b, wg.float64)
    found = dispatch.call(registry["recurrence"], (wg.flip(x, (0,)), y), (0, True))
    state, expected = 0.0, np.empty(40)
    for i in reversed(range(40)):
        state = expected[i] = a[::-1][i] * state + b[i]
    same(found, expected)


def test_large_results_whose_lines_begin_anywhere() -> None:
    """Their stores bypass the caches where lines begin at whole vectors, and only there."""
    counts = np.arange(1, 32774, dtype=np.float32)
    for n in (32768, 32773):
        found = wg.ones(65, n).cumsum(1).numpy()
        assert (found == counts[:n]).all()


# Specs


def test_a_running_sum_of_ones_own_is_differentiable() -> None:
    mine = wg.ops.load(
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
    x = made(requires_grad=True)
    mine.running_total(x, 1, True)[:, 1].sum().backward()
    same(x.grad, [[0, 1, 1], [0, 1, 1]])
    same(mine.running_count(made(X > 0, wg.bool), 1), np.cumsum(X > 0, 1))


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
    with pytest.raises(SpecErrors) as caught:
        load_text(f'- op: "{signature}"\n  kind: scan\n  scan: {scan}\n')
    assert message in str(caught.value)
