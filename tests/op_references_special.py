"""References of the ops in `special.yaml` that are not one function of SciPy with the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sp

Array = np.ndarray[Any, Any]


def _of_degree(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a polynomial's reference: integer degrees, 0 for negative ones, NaN where one is not finite."""

    def reference(x: Array, n: Array) -> Array:
        x, n = np.broadcast_arrays(np.asarray(x), np.asarray(n))
        degree = np.where(np.isfinite(n) & (abs(n) < 1e6), np.trunc(n), -1).astype(np.int64)
        values = np.where(degree < 0, 0.0, function(np.maximum(degree, 0), x))
        values = np.where(degree == 0, 1.0, values)
        return np.where(np.isnan(n) | (n > 1e6), np.nan, values)

    return reference


def _third_kind(n: Array, x: Array) -> Array:
    """V by its cosines (18.5.3 of the NIST Digital Library of Mathematical Functions)."""
    return np.cos((n + 0.5) * np.arccos(x)) / np.cos(0.5 * np.arccos(x))


def _fourth_kind(n: Array, x: Array) -> Array:
    """W by its sines (18.5.4 of the NIST Digital Library of Mathematical Functions)."""
    below = np.where(x == 1, 0.0, x)
    values = np.sin((n + 0.5) * np.arccos(below)) / np.sin(0.5 * np.arccos(below))
    return np.where(x == 1, 2.0 * n + 1, values)


def _with_limit(function: Callable[[Array], Array], limit: float, sign: float = 1.0) -> Callable[[Array], Array]:
    """Return a function with its limits at infinity and, times `sign`, at -infinity, where SciPy's is NaN."""
    return lambda x: np.where(np.isinf(x), np.where(x > 0, limit, sign * limit), function(x))


def _shifted(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda n, x: function(n, 2 * x - 1)


SPECIAL_REFERENCES: dict[str, Callable[..., Any]] = {
    "airy_ai": lambda x: np.where(np.isinf(x), np.nan, sp.airy(x)[0]),
    "bessel_j0": _with_limit(sp.j0, 0.0),
    "bessel_j1": _with_limit(sp.j1, 0.0),
    "bessel_y0": _with_limit(sp.y0, 0.0, np.nan),
    "bessel_y1": _with_limit(sp.y1, 0.0, np.nan),
    "i0": _with_limit(sp.i0, np.inf),
    "i1": _with_limit(sp.i1, np.inf, -1.0),
    "spherical_bessel_j0": lambda x: sp.spherical_jn(0, x),
    "chebyshev_polynomial_t": _of_degree(sp.eval_chebyt),
    "chebyshev_polynomial_u": _of_degree(sp.eval_chebyu),
    "chebyshev_polynomial_v": _of_degree(_third_kind),
    "chebyshev_polynomial_w": _of_degree(_fourth_kind),
    "shifted_chebyshev_polynomial_t": _of_degree(_shifted(sp.eval_chebyt)),
    "shifted_chebyshev_polynomial_u": _of_degree(_shifted(sp.eval_chebyu)),
    "shifted_chebyshev_polynomial_v": _of_degree(_shifted(_third_kind)),
    "shifted_chebyshev_polynomial_w": _of_degree(_shifted(_fourth_kind)),
    "legendre_polynomial_p": _of_degree(sp.eval_legendre),
    "hermite_polynomial_h": _of_degree(sp.eval_hermite),
    "hermite_polynomial_he": _of_degree(sp.eval_hermitenorm),
    "laguerre_polynomial_l": _of_degree(sp.eval_laguerre),
}
