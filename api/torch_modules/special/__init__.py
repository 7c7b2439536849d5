"""Special functions under the names of `torch.special`."""

from __future__ import annotations

from .._generated.ops import (
    digamma,
    erf,
    erfc,
    erfinv,
    exp2,
    expm1,
    log1p,
    sinc,
    xlogy,
)
from .._generated.ops import lgamma as gammaln
from .._generated.ops import sigmoid as expit
from ..pointwise.arithmetic import round
from ..pointwise.special_functions import logit, polygamma
from ..reductions.softmax import log_softmax, softmax
from ..reductions.statistics import logsumexp

psi = digamma

__all__ = [
    "digamma", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "gammaln", "log1p", "log_softmax", "logit",
    "logsumexp", "polygamma", "psi", "round", "sinc", "softmax", "xlogy",
]  # fmt: skip
