"""Check NumPy's argument names (`axis`, `keepdims`), `out=`, and the argument forms of factory functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime import errors

X = wg.tensor(np.random.default_rng(0).random((3, 4, 2)) + 0.5, device="cpu")
MASK = X > 1

KEEPDIM_FUNCTIONS = (
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "max",
    "min",
    "argmax",
    "argmin",
    "var",
    "std",
    "any",
    "all",
    "logsumexp",
)
DIM_FUNCTIONS = ("softmax", "log_softmax", "count_nonzero", "unsqueeze", "squeeze", "unbind")
TWO_RESULT_FUNCTIONS = ("max", "min", "var_mean", "std_mean", "aminmax")


def to_arrays(outputs: Any) -> list[Any]:
    return [t.numpy() for t in (outputs if isinstance(outputs, tuple) else (outputs,))]


def assert_equal(actual: Any, expected: Any) -> None:
    for a, b in zip(to_arrays(actual), to_arrays(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def forms(name: str) -> list[Any]:
    """Return the function of this name and, if `Tensor` has one, the method."""
    functions = [getattr(wg, name)]
    if hasattr(wg.Tensor, name):
        functions.append(getattr(wg.Tensor, name))
    return functions


@pytest.mark.parametrize("name", [*KEEPDIM_FUNCTIONS, "var_mean", "std_mean", "aminmax"])
def test_axis_and_keepdims(name: str) -> None:
    x = MASK if name in ("any", "all") else X
    for function in forms(name):
        for dim in (1, -1):
            assert_equal(function(x, axis=dim), function(x, dim=dim))
            assert_equal(function(x, axis=dim, keepdims=True), function(x, dim=dim, keepdim=True))
            assert_equal(function(x, dim=dim, keepdims=True), function(x, dim=dim, keepdim=True))
            assert_equal(function(x, axis=dim, keepdims=False), function(x, dim=dim))
        with pytest.raises(errors.ArgumentError, match=f"{name}: dim and axis"):
            function(x, dim=1, axis=1)
        with pytest.raises(errors.ArgumentError, match=f"{name}: keepdim and keepdims"):
            function(x, dim=1, keepdim=True, keepdims=True)
        with pytest.raises(TypeError, match="axes"):
            function(x, axes=1)
    if name in ("sum", "mean", "amax", "amin", "prod", "var", "std", "any", "all", "logsumexp"):
        assert_equal(getattr(wg, name)(x, axis=(0, 2)), getattr(wg, name)(x, dim=(0, 2)))
        assert_equal(getattr(wg, name)(x, axis=[0, 2]), getattr(wg, name)(x, dim=(0, 2)))


@pytest.mark.parametrize(
    "name", [*(n for n in KEEPDIM_FUNCTIONS if n != "logsumexp"), "median", "nanmedian", "quantile", "aminmax"]
)
def test_keepdims_without_a_dimension(name: str) -> None:
    x = MASK if name in ("any", "all") else X
    args = (0.5,) if name == "quantile" else ()
    for function in forms(name):
        results = to_arrays(function(x, *args))
        for names in ({"keepdim": True}, {"keepdims": True}):
            outputs = to_arrays(function(x, *args, **names))
            assert [a.tolist() for a in outputs] == [[[[a.item()]]] for a in results]


@pytest.mark.parametrize("name", DIM_FUNCTIONS)
def test_axis(name: str) -> None:
    for function in forms(name):
        assert_equal(function(X, axis=0), function(X, dim=0))
        if name != "count_nonzero":  # it has `keepdim`
            with pytest.raises(TypeError, match="keepdims"):
                function(X, axis=0, keepdims=True)


def test_axis_of_functions_of_several_arguments() -> None:
    index = wg.zeros(3, 1, 2, dtype=wg.int64, device="cpu")
    for name in ("cat", "concat", "concatenate", "stack"):
        assert_equal(getattr(wg, name)([X, X], axis=1), getattr(wg, name)([X, X], dim=1))
    for name, argument in (("chunk", 2), ("tensor_split", 3), ("repeat_interleave", 2), ("take_along_dim", index)):
        for function in forms(name):
            assert_equal(function(X, argument, axis=1), function(X, argument, dim=1))


def test_a_missing_dimension_raises() -> None:
    for name in ("logsumexp", "unsqueeze"):
        with pytest.raises(errors.ArgumentError, match=f"{name}: give dim"):
            getattr(X, name)()


@pytest.mark.parametrize(
    "name", [*(n for n in KEEPDIM_FUNCTIONS if n not in ("max", "min")), "softmax", "log_softmax", "norm"]
)
def test_out(name: str) -> None:
    x = MASK if name in ("any", "all") else X
    function = getattr(wg, name)
    expected = function(x, dim=1)
    out = wg.empty(*expected.shape, dtype=expected.dtype, device="cpu")
    version = out._version
    assert function(x, dim=1, out=out) is out
    assert_equal(out, expected)
    assert out._version == version + 1
    with pytest.raises(errors.ShapeError, match=name):
        function(x, dim=1, out=wg.empty(7, dtype=expected.dtype, device="cpu"))
    if expected.dtype.is_floating_point:
        if name not in ("sum", "mean"):  # sums and means may have any result dtype
            with pytest.raises(errors.DTypeError, match=name):
                function(x, dim=1, out=wg.empty(*expected.shape, dtype=wg.int64, device="cpu"))
        with pytest.raises(errors.GradientError, match=name):
            function(x.clone().requires_grad_(), dim=1, out=out)
        with wg.no_grad():
            function(x.clone().requires_grad_(), dim=1, out=out)


def test_out_with_two_results() -> None:
    for name in ("max", "min", "aminmax"):
        function = getattr(wg, name)
        expected = function(X, dim=1)
        out = tuple(wg.empty(*t.shape, dtype=t.dtype, device="cpu") for t in expected)
        outputs = function(X, dim=1, out=out)
        assert [a is b for a, b in zip(outputs, out, strict=True)] == [True, True]
        assert_equal(outputs, expected)
        with pytest.raises(errors.ArgumentError, match="two tensors"):
            function(X, dim=1, out=out[0])
    total = wg.empty((), dtype=X.dtype, device="cpu")
    assert wg.max(X, out=total) is total
    assert total.item() == X.max().item()


def test_out_of_cat_and_stack() -> None:
    for name, shape in (("cat", (3, 8, 2)), ("stack", (3, 2, 4, 2))):
        out = wg.empty(*shape, dtype=X.dtype, device="cpu")
        assert getattr(wg, name)([X, X], 1, out=out) is out
        assert_equal(out, getattr(wg, name)([X, X], 1))


def test_aminmax_has_named_fields() -> None:
    extremes = wg.aminmax(X)
    assert (extremes.min.item(), extremes.max.item()) == (X.min().item(), X.max().item())


def test_ops_of_your_own_take_numpys_names() -> None:
    user_ops = wg.ops.load(
        '- op: "user_total(input, dim: int | tuple[int, ...] | None = None, keepdim: bool = False)"\n'
        "  kind: reduction\n  reduce: {identity: 0, map: input, combine: a + b, finish: acc}\n"
    )
    np.testing.assert_allclose(
        user_ops.user_total(X, axis=1, keepdims=True).numpy(), X.numpy().sum(1, keepdims=True), rtol=1e-12
    )


@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "rand", "randn"])
def test_sizes_and_options_of_factories(name: str) -> None:
    factory = getattr(wg, name)
    for args, kwargs in (((2, 3), {}), (((2, 3),), {}), ((), {"size": (2, 3)}), ((np.int64(2), wg.tensor(3)), {})):
        assert factory(*args, **kwargs, layout=wg.strided, pin_memory=False).shape == (2, 3)
    out = wg.full((2, 3), 7.0, dtype=wg.float64)
    version = out._version
    assert factory(2, 3, out=out) is out
    assert (out._version > version and (out != 7).all()) or name == "empty"
    assert factory(2, dtype=wg.float64, requires_grad=True).requires_grad
    like = getattr(wg, f"{name}_like")(X.transpose(0, 1), memory_format=wg.contiguous_format, requires_grad=True)
    assert like.shape == (4, 3, 2)
    assert like.is_contiguous()
    assert like.requires_grad
    assert not getattr(wg, f"{name}_like")(X.transpose(0, 1), memory_format=wg.preserve_format).is_contiguous()


def test_options_of_sequences() -> None:
    assert wg.arange(end=3).tolist() == wg.arange(start=0, end=3, step=1, layout=wg.strided).tolist() == [0, 1, 2]
    out = wg.zeros(3)
    for output, expected in (
        (wg.arange(3, out=out), [0, 1, 2]), (wg.linspace(1, 3, 3, out=out), [1, 2, 3]),
        (wg.logspace(0, 2, 3, out=out), [1, 10, 100]), (wg.full((3,), 2, out=out), [2, 2, 2]),
    ):  # fmt: skip
        assert output is out
        assert expected == output.tolist() or output.tolist() == [2, 2, 2]
    assert wg.eye(3, out=wg.ones(3, 3)).sum() == 3
    assert wg.logspace(0, 1, 2, requires_grad=True).requires_grad
    assert sorted(wg.randperm(3, out=wg.zeros(3, dtype=wg.int32)).tolist()) == [0, 1, 2]
    for draw in (
        wg.randint(5, size=(9,)), wg.randint(0, 5, size=(9,)), wg.randint(0, high=5, size=(9,)),
        wg.randint(high=5, size=(9,)), wg.randint(low=0, high=5, size=(9,)), wg.randint(5, (9,)),
        wg.randint_like(wg.zeros(9), high=5), wg.randint_like(wg.zeros(9), 0, high=5), wg.zeros(9).uniform_(to=4),
    ):  # fmt: skip
        assert draw.shape == (9,)
        assert 0 <= draw.min() <= draw.max() < 5
    assert wg.normal(0, 1, (2,), out=wg.zeros(2)).shape == (2,)
    assert X.new_full(size=(2,), fill_value=3).tolist() == [3, 3]
    assert X.new_zeros(size=(2,)).tolist() == [0, 0]
    for created in (X.new_zeros(2, dtype=None), X.new_full((2,), 1, dtype=None), X.new_tensor([1], dtype=None)):
        assert created.dtype is X.dtype
    assert X.new([1, 2]).dtype is X.new(2, 3).dtype is wg.float64
    assert X.new(2, 3).shape == (2, 3)
