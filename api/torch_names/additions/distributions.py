"""Names of `torch.distributions` that weftgrad has nothing for, so that programs can import them."""

from __future__ import annotations

from ..placeholders import placeholder

__all__ = [
    "CorrCholeskyTransform", "LKJCholesky", "LowRankMultivariateNormal", "MultivariateNormal",
    "PositiveDefiniteTransform", "Wishart",
]  # fmt: skip

_REMEDY = "Transform a normal vector by a triangular matrix: there are no distributions with full covariance."

CorrCholeskyTransform = placeholder("torch.distributions.CorrCholeskyTransform", _REMEDY)
LKJCholesky = placeholder("torch.distributions.LKJCholesky", _REMEDY)
LowRankMultivariateNormal = placeholder("torch.distributions.LowRankMultivariateNormal", _REMEDY)
MultivariateNormal = placeholder("torch.distributions.MultivariateNormal", _REMEDY)
PositiveDefiniteTransform = placeholder("torch.distributions.PositiveDefiniteTransform", _REMEDY)
Wishart = placeholder("torch.distributions.Wishart", _REMEDY)
