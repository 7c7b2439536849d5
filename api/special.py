"""Special functions under the names of `torch.special`."""

from __future__ import annotations

from ._generated.ops import (
    digamma,
    erf,
    erfc,
    erfinv,
    exp2,
    expm1,
    log1p,
    xlogy,
)
from ._generated.ops import lgamma as gammaln
from ._generated.ops import sigmoid as expit
from .functions import logsumexp, polygamma, round

psi = digamma

__all__ = [
    "digamma", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "gammaln", "log1p", "logsumexp", "polygamma", "psi",
    "round", "xlogy",
]  # fmt: skip
