"""Kullback-Leibler divergences of two distributions of one class."""

from __future__ import annotations

import math

from .._generated.ops import softplus
from ..runtime.errors import NotSupported
from ..runtime.tensor import Tensor
from .categorical import Categorical, OneHotCategorical
from .continuous_bernoulli import ContinuousBernoulli
from .counts import Bernoulli, Binomial, Geometric, Poisson
from .distribution import ExponentialFamily
from .gamma import Beta, Dirichlet, Gamma
from .kl import kl_divergence, register_kl
from .location_scale import Cauchy, Gumbel, Laplace, Uniform
from .normal import HalfNormal, Normal
from .transform import sum_last_dims
from .transformed_distribution import Independent, TransformedDistribution
from .waiting_times import Exponential, Pareto

__all__: list[str] = []

_EULER_GAMMA = 0.57721566490153286


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_families(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """The Bregman divergence of the log-normalizer."""
    if type(p) is not type(q):
        raise NotSupported(f"kl_divergence: there is no formula for {type(p).__name__} and {type(q).__name__}")
    normalizer, means = p._normalizer_and_its_gradients()
    result = q._log_normalizer(*q._natural_params) - normalizer
    for p_param, q_param, mean in zip(p._natural_params, q._natural_params, means, strict=True):
        result = result - sum_last_dims((q_param - p_param) * mean, len(q.event_shape))
    return result


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    p_success, p_failure = p.probs, 1 - p.probs
    if_success = p_success * (softplus(-q.logits) - softplus(-p.logits))
    if_failure = p_failure * (softplus(q.logits) - softplus(p.logits))
    if_success = if_success.masked_fill(p_success == 0, 0.0).masked_fill((q.probs == 0) & (p_success > 0), math.inf)
    if_failure = if_failure.masked_fill(p_failure == 0, 0.0).masked_fill((q.probs == 1) & (p_failure > 0), math.inf)
    return if_success + if_failure


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if bool((q.total_count < p.total_count).any()):
        raise NotSupported("kl_divergence of binomials: the first total_count must not be above the second")
    divergence = p.total_count * (p.probs * (p.logits - q.logits) - softplus(p.logits) + softplus(q.logits))
    return divergence.masked_fill(q.total_count > p.total_count, math.inf)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = terms.masked_fill((q.probs == 0) & (p.probs > 0), math.inf).masked_fill(p.probs == 0, 0.0)
    return terms.sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_categorical(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p, q)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    p1, p0, q1, q0 = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    total = p1 + p0
    normalizers = (q1.lgamma() + q0.lgamma() + total.lgamma()) - (p1.lgamma() + p0.lgamma() + (q1 + q0).lgamma())
    means = (p1 - q1) * p1.digamma() + (p0 - q0) * p0.digamma() + (q1 + q0 - total) * total.digamma()
    return normalizers + means


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    normalizers = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return normalizers + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    normalizers = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return normalizers + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio = p.scale / q.scale
    distance = (p.loc - q.loc) / q.scale
    mean_of_exp = (-distance + (1 + ratio).lgamma()).exp()
    return distance - ratio.log() + ratio * _EULER_GAMMA + mean_of_exp - (1 + _EULER_GAMMA)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio = p.scale / q.scale
    distance = (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    distance = ((p.loc - q.loc) / q.scale).square()
    return (ratio + distance - 1 - ratio.log()) / 2


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    divergence = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return divergence.masked_fill(p.scale < q.scale, math.inf)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() - p.mean * q.logits + q._log_normalizer(q.logits)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate.xlogy(p.rate) - p.rate.xlogy(q.rate) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    divergence = ((q.high - q.low) / (p.high - p.low)).log()
    return divergence.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    """The formula of Chyzak and Nielsen, "A closed-form formula for the KL divergence between Cauchy distributions"."""
    squares = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return squares.log() - (4 * p.scale * q.scale).log()


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotSupported("kl_divergence of transformed distributions: the transforms or the event shapes differ")
    extra_ndim = len(p.event_shape) - len(p.base_dist.event_shape)
    return sum_last_dims(kl_divergence(p.base_dist, q.base_dist), extra_ndim)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotSupported("kl_divergence of Independent: reinterpreted_batch_ndims differ")
    return sum_last_dims(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
