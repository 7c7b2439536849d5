"""Window functions of `weftgrad.signal.windows` against SciPy's, and their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.signal import windows

references = pytest.importorskip("scipy.signal.windows")

# name, arguments here, arguments of SciPy's function of the same name
CASES: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    ("bartlett", {}, ()), ("blackman", {}, ()), ("cosine", {}, ()), ("hamming", {}, ()), ("hann", {}, ()),
    ("nuttall", {}, ()), ("exponential", {"tau": 2.5}, (None, 2.5)), ("gaussian", {"std": 1.7}, (1.7,)),
    ("general_cosine", {"a": [0.4, 0.3, 0.2, 0.1]}, ([0.4, 0.3, 0.2, 0.1],)),
    ("general_hamming", {"alpha": 0.6}, (0.6,)), ("kaiser", {"beta": 8.5}, (8.5,)), ("kaiser", {"beta": 0}, (0,)),
]  # fmt: skip


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize(("name", "arguments", "positional"), CASES, ids=[name for name, *_ in CASES])
def test_windows_equal_those_of_scipy(
    name: str, arguments: dict[str, Any], positional: tuple[Any, ...], sym: bool
) -> None:
    for points in (0, 1, 2, 3, 8, 33):
        window = getattr(windows, name)(points, sym=sym, dtype=wg.float64, **arguments)
        expected = getattr(references, name)(points, *positional, sym=sym)
        np.testing.assert_allclose(window.numpy(), expected, rtol=0, atol=1e-14, err_msg=f"{name} of {points}")


def test_dtypes_and_options() -> None:
    window = windows.hann(5, dtype=wg.float64, requires_grad=True)
    assert window.dtype == wg.float64
    assert window.requires_grad
    assert windows.hann(5).dtype == wg.float32
    shifted = windows.exponential(5, center=1, sym=False)
    np.testing.assert_allclose(shifted.numpy(), np.exp(-np.abs(np.arange(5) - 1.0)), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: windows.hann(-1), "signal.windows.hann: M must be an integer of at least 0, not -1"),
        (lambda: windows.hann(5, dtype=wg.float16), "dtype must be float32 or float64, not float16"),
        (lambda: windows.gaussian(5, std=0), "std must be positive, not 0"),
        (lambda: windows.exponential(5, tau=-1), "tau must be positive, not -1"),
        (lambda: windows.exponential(5, center=1), "symmetric windows have no center: pass sym=False"),
        (lambda: windows.kaiser(5, beta=-1), "beta must not be negative, not -1"),
        (lambda: windows.general_cosine(5, a=[]), "a must have at least one coefficient"),
    ],
)
def test_arguments_that_are_refused(call: Callable[[], wg.Tensor], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        call()
