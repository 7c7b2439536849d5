"""The functions of `scipy.special` that references use, for machines without SciPy; in float64, from the math module.

If SciPy is installed, `test_bare.py` compares both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "erf", "erfc", "erfinv", "expit", "gammaln", "log_expit", "log_softmax", "logsumexp", "ndtr", "polygamma", "psi",
    "softmax", "xlogy",
]  # fmt: skip

Array = Any

# Bernoulli numbers B2, B4, …
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_MIN_ASYMPTOTIC = 20.0  # from here on the asymptotic series are exact to the last bits


def _elementwise(function: Callable[..., float]) -> Callable[..., Array]:
    """Apply a function of numbers to arrays, element by element."""

    def run(*arrays: Any) -> Array:
        inputs = np.broadcast_arrays(*(np.asarray(a, np.float64) for a in arrays))
        flat = [function(*map(float, row)) for row in zip(*(a.reshape(-1) for a in inputs), strict=True)]
        return np.array(flat, np.float64).reshape(inputs[0].shape)[()]

    return run


def _gammaln(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return x if math.isinf(x) else math.inf
    return math.lgamma(x)


def _erfinv(y: float) -> float:
    if not -1 < y < 1:
        return math.copysign(math.inf, y) if abs(y) == 1 else math.nan
    if y < 0:
        return -_erfinv(-y)
    low, high = 0.0, 6.5  # erfc(6.5) is far below the distance of the last number from 1
    for _ in range(80):
        middle = (low + high) / 2
        # For large y compare the tail, which is more precise there.
        below = math.erf(middle) < y if y < 0.5 else math.erfc(middle) > 1 - y
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


def _psi(x: float) -> float:
    if math.isnan(x) or x == -math.inf:
        return math.nan
    if x == math.inf:
        return x
    if x == 0:
        return -math.copysign(math.inf, x)
    if x < 0:
        if x == math.floor(x):
            return math.nan
        part = math.fmod(x, 1.0)
        return _psi(1 - x) - math.pi / math.tan(math.pi * part)
    if abs(x - 1.461632144968362) < 0.05:  # near the zero, where sums would cancel
        return _psi_at_zero(x)
    terms = []
    while x < _MIN_ASYMPTOTIC:
        terms.append(-1 / x)
        x += 1
    terms += [math.log(x), -0.5 / x]
    terms += [-b / (2 * k + 2) * (1 / x) ** (2 * k + 2) for k, b in enumerate(_BERNOULLI)]
    return math.fsum(terms)


def _psi_at_zero(x: float) -> float:
    """Evaluate the Taylor series about the zero, whose position is known to twice the precision."""
    root, rest = 1.4616321449683622, 9.549995429965697e-17
    d = (x - root) - rest
    return math.fsum(_polygamma(k, root) * d**k / math.factorial(k) for k in range(1, 12))


def _polygamma(n: float, x: float) -> float:
    """(-1)^(n+1) n! zeta(n + 1, x), the sum by Euler and Maclaurin."""
    n = int(n)
    if n == 0:
        return _psi(x)
    if math.isnan(x):
        return x
    if x <= 0:
        return math.inf if x == math.floor(x) else math.nan
    if x == math.inf:
        return 0.0
    s, terms = n + 1, []
    while x < _MIN_ASYMPTOTIC + n:
        terms.append(x**-s if x > 1e-30 else math.inf)
        x += 1
    terms += [x ** (1 - s) / (s - 1), 0.5 * x**-s]
    rising = float(s)
    for k, b in enumerate(_BERNOULLI):
        terms.append(b / math.factorial(2 * k + 2) * rising * x ** (-s - 2 * k - 1))
        rising *= (s + 2 * k + 1) * (s + 2 * k + 2)
    return (-1) ** (n + 1) * math.factorial(n) * math.fsum(terms)


erf, erfc, erfinv = _elementwise(math.erf), _elementwise(math.erfc), _elementwise(_erfinv)
gammaln, psi, polygamma = _elementwise(_gammaln), _elementwise(_psi), _elementwise(_polygamma)
ndtr = _elementwise(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))


def expit(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def log_expit(x: Array) -> Array:
    """log(expit(x))."""
    x = np.asarray(x, np.float64)
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def xlogy(x: Array, y: Array) -> Array:
    """x log(y), and 0 where x is 0 and y is a number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((np.asarray(x) == 0) & ~np.isnan(y), 0.0, x * np.log(y))


def logsumexp(a: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """log(sum(exp(a)))."""
    top = np.max(a, axis=axis, keepdims=True)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        result = np.log(np.sum(np.exp(a - safe), axis=axis, keepdims=True)) + safe
    return result if keepdims else np.squeeze(result, axis=axis)


def softmax(x: Array, axis: Any = None) -> Array:
    """exp(x) / sum(exp(x))."""
    return np.exp(log_softmax(x, axis))


def log_softmax(x: Array, axis: Any = None) -> Array:
    """x - logsumexp(x)."""
    shifted = np.asarray(x, np.float64) - np.max(x, axis=axis, keepdims=True)
    return shifted - logsumexp(shifted, axis=axis, keepdims=True)


for _name in __all__:  # `testing.resolve_reference` accepts functions of SciPy only
    globals()[_name].__module__ = "scipy.special"
