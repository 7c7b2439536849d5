"""Kullback-Leibler divergences of normal vectors with full and with low-rank covariance.

Each is half of `log_det(q) - log_det(p) + trace(inv(cov_q) @ cov_p) + distance_q(loc_q - loc_p)**2 - N`. The trace is a
sum of squares: with `inv(cov_q) = M.mT @ M` and `cov_p = F @ F.mT` it is that of the elements of `M @ F`.
"""

from __future__ import annotations

from ..linear_algebra.solving import solve_triangular
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .kl import register_kl
from .multivariate_normal import LowRankMultivariateNormal, MultivariateNormal, half_log_det, squared_mahalanobis

__all__: list[str] = []

_Normal = MultivariateNormal | LowRankMultivariateNormal


def _log_det(distribution: _Normal) -> Tensor:
    if isinstance(distribution, LowRankMultivariateNormal):
        return distribution.log_det()
    return 2 * half_log_det(distribution._unbroadcasted_scale_tril)


def _covariance_factors(distribution: _Normal) -> list[Tensor]:
    """Return matrices F of shape `(*batch, N, *)` with `covariance == sum(F @ F.mT)`."""
    if isinstance(distribution, LowRankMultivariateNormal):
        deviations = distribution._unbroadcasted_cov_diag.sqrt().diag_embed()
        return [distribution._unbroadcasted_cov_factor, deviations]
    return [distribution._unbroadcasted_scale_tril]


def _sum_of_squares(matrix: Tensor) -> Tensor:
    return matrix.square().sum((-2, -1))


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _to_full_covariance(p: _Normal, q: MultivariateNormal) -> Tensor:
    _check_event_shapes(p, q)
    scale_tril = q._unbroadcasted_scale_tril
    factors = _covariance_factors(p)
    trace = sum(_sum_of_squares(solve_triangular(scale_tril, factor, upper=False)) for factor in factors)
    distance = squared_mahalanobis(scale_tril, q.loc - p.loc)
    return 0.5 * (_log_det(q) - _log_det(p) + trace + distance - p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _to_low_rank_covariance(p: _Normal, q: LowRankMultivariateNormal) -> Tensor:
    _check_event_shapes(p, q)
    inverse_deviations = q._unbroadcasted_cov_diag.rsqrt().unsqueeze(-1)
    whitened = q.whitened_factor()
    trace = sum(
        _sum_of_squares(factor * inverse_deviations) - _sum_of_squares(whitened @ factor)
        for factor in _covariance_factors(p)
    )
    distance = q.squared_distance(q.loc - p.loc)
    return 0.5 * (_log_det(q) - _log_det(p) + trace + distance - p.event_shape[0])


def _check_event_shapes(p: _Normal, q: _Normal) -> None:
    if p.event_shape != q.event_shape:
        raise ArgumentError(
            f"kl_divergence: the events of both distributions have one shape, not {list(p.event_shape)} and "
            f"{list(q.event_shape)}"
        )
