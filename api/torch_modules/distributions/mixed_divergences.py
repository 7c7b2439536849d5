"""Kullback-Leibler divergences of distributions of different classes.

Each is `-p.entropy()` minus the mean of `q.log_prob(x)` over samples x of p, which follows from moments of p. Where p
has samples outside of the support of q, it is infinite.
"""

from __future__ import annotations

import math

from ..runtime.tensor import Tensor
from ..shape.broadcasting import broadcast_tensors
from .continuous_bernoulli import ContinuousBernoulli
from .counts import Bernoulli, Binomial, Poisson
from .distribution import Distribution
from .gamma import Beta, Gamma
from .kl import register_kl
from .location_scale import Gumbel, Laplace, Uniform
from .normal import Normal
from .waiting_times import Exponential, Pareto

__all__: list[str] = []

_EULER_GAMMA = 0.57721566490153286


# --- Means of q.log_prob ----------------------------------------------------------------------------------------------


def _mean_log_normal_density(mean: Tensor, variance: Tensor, q: Normal) -> Tensor:
    squares = variance + (mean - q.loc).square()
    return -squares / (2 * q.variance) - q.scale.log() - math.log(2 * math.pi) / 2


def _mean_log_gamma_density(mean: Tensor, mean_of_log: Tensor, q: Gamma) -> Tensor:
    a = q.concentration
    return a * q.rate.log() - a.lgamma() + (a - 1) * mean_of_log - q.rate * mean


def _mean_log_exponential_density(mean: Tensor, q: Exponential) -> Tensor:
    return q.rate.log() - q.rate * mean


def _mean_log_gumbel_density(mean: Tensor, mean_of_exp: Tensor, q: Gumbel) -> Tensor:
    """`mean_of_exp` is the mean of `exp(-x / q.scale)`."""
    return -q.scale.log() - (mean - q.loc) / q.scale - (q.loc / q.scale).exp() * mean_of_exp


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous_bernoulli(p: Beta, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() - p.mean * q.logits + q._log_normalizer(q.logits)


@register_kl(Beta, Exponential)
def _beta_exponential(p: Beta, q: Exponential) -> Tensor:
    return -p.entropy() - _mean_log_exponential_density(p.mean, q)


@register_kl(Beta, Gamma)
def _beta_gamma(p: Beta, q: Gamma) -> Tensor:
    mean_of_log = p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    return -p.entropy() - _mean_log_gamma_density(p.mean, mean_of_log, q)


@register_kl(Beta, Normal)
def _beta_normal(p: Beta, q: Normal) -> Tensor:
    return -p.entropy() - _mean_log_normal_density(p.mean, p.variance, q)


@register_kl(Beta, Uniform)
def _beta_uniform(p: Beta, q: Uniform) -> Tensor:
    return (-p.entropy() + (q.high - q.low).log()).masked_fill((q.low > 0) | (q.high < 1), math.inf)


@register_kl(ContinuousBernoulli, Exponential)
def _continuous_bernoulli_exponential(p: ContinuousBernoulli, q: Exponential) -> Tensor:
    return -p.entropy() - _mean_log_exponential_density(p.mean, q)


@register_kl(ContinuousBernoulli, Normal)
def _continuous_bernoulli_normal(p: ContinuousBernoulli, q: Normal) -> Tensor:
    return -p.entropy() - _mean_log_normal_density(p.mean, p.variance, q)


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_bernoulli_uniform(p: ContinuousBernoulli, q: Uniform) -> Tensor:
    return (-p.entropy() + (q.high - q.low).log()).masked_fill((q.low > 0) | (q.high < 1), math.inf)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Exponential, q: Gamma) -> Tensor:
    return -p.entropy() - _mean_log_gamma_density(p.mean, -p.rate.log() - _EULER_GAMMA, q)


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Exponential, q: Gumbel) -> Tensor:
    mean_of_exp = p.rate / (p.rate + 1 / q.scale)
    return -p.entropy() - _mean_log_gumbel_density(p.mean, mean_of_exp, q)


@register_kl(Exponential, Normal)
def _exponential_normal(p: Exponential, q: Normal) -> Tensor:
    return -p.entropy() - _mean_log_normal_density(p.mean, p.variance, q)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Gamma, q: Exponential) -> Tensor:
    return -p.entropy() - _mean_log_exponential_density(p.mean, q)


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Gamma, q: Gumbel) -> Tensor:
    mean_of_exp = (-p.concentration * (1 / (p.rate * q.scale)).log1p()).exp()
    return -p.entropy() - _mean_log_gumbel_density(p.mean, mean_of_exp, q)


@register_kl(Gamma, Normal)
def _gamma_normal(p: Gamma, q: Normal) -> Tensor:
    return -p.entropy() - _mean_log_normal_density(p.mean, p.variance, q)


@register_kl(Gumbel, Normal)
def _gumbel_normal(p: Gumbel, q: Normal) -> Tensor:
    return -p.entropy() - _mean_log_normal_density(p.mean, p.variance, q)


@register_kl(Laplace, Normal)
def _laplace_normal(p: Laplace, q: Normal) -> Tensor:
    return -p.entropy() - _mean_log_normal_density(p.mean, p.variance, q)


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Normal, q: Gumbel) -> Tensor:
    mean_of_exp = (-p.loc / q.scale + (p.scale / q.scale).square() / 2).exp()
    return -p.entropy() - _mean_log_gumbel_density(p.mean, mean_of_exp, q)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    distance = p.loc - q.loc
    ratio = distance / p.scale
    mean_distance = math.sqrt(2 / math.pi) * p.scale * (-ratio.square() / 2).exp()
    mean_distance = mean_distance + distance * (ratio / math.sqrt(2)).erf()
    return -p.entropy() + (2 * q.scale).log() + mean_distance / q.scale


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Pareto, q: Exponential) -> Tensor:
    return -p.entropy() - _mean_log_exponential_density(p.mean, q)


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Pareto, q: Gamma) -> Tensor:
    return -p.entropy() - _mean_log_gamma_density(p.mean, p.scale.log() + 1 / p.alpha, q)


@register_kl(Pareto, Normal)
def _pareto_normal(p: Pareto, q: Normal) -> Tensor:
    divergence = -p.entropy() - _mean_log_normal_density(p.mean, p.variance, q)
    return divergence.masked_fill(p.alpha <= 2, math.inf)


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    width = p.high - p.low
    mean_of_log = (p.high.xlogy(p.high) - p.low.xlogy(p.low)) / width - 1
    mean_of_log_rest = ((1 - p.low).xlogy(1 - p.low) - (1 - p.high).xlogy(1 - p.high)) / width - 1
    log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
    divergence = -width.log() + log_beta - (a - 1) * mean_of_log - (b - 1) * mean_of_log_rest
    return divergence.masked_fill((p.high > 1) | (p.low < 0), math.inf)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    divergence = -p.entropy() - p.mean * q.logits + q._log_normalizer(q.logits)
    return divergence.masked_fill((p.high > 1) | (p.low < 0), math.inf)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return (-p.entropy() - _mean_log_exponential_density(p.mean, q)).masked_fill(p.low < 0, math.inf)


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    mean_of_log = (p.high.xlogy(p.high) - p.low.xlogy(p.low)) / (p.high - p.low) - 1
    return (-p.entropy() - _mean_log_gamma_density(p.mean, mean_of_log, q)).masked_fill(p.low < 0, math.inf)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Uniform, q: Gumbel) -> Tensor:
    mean_of_exp = q.scale * ((-p.low / q.scale).exp() - (-p.high / q.scale).exp()) / (p.high - p.low)
    return -p.entropy() - _mean_log_gumbel_density(p.mean, mean_of_exp, q)


@register_kl(Uniform, Normal)
def _uniform_normal(p: Uniform, q: Normal) -> Tensor:
    return -p.entropy() - _mean_log_normal_density(p.mean, p.variance, q)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    mean_of_log = (p.high.xlogy(p.high) - p.low.xlogy(p.low)) / (p.high - p.low) - 1
    mean_log_density = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * mean_of_log
    return (-p.entropy() - mean_log_density).masked_fill(p.low < q.scale, math.inf)


# --- Pairs of which the first has samples outside of the support of the second ----------------------------------------


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    """Return infinity in the broadcast batch shape."""
    p_parameter, q_parameter = (getattr(d, next(n for n in d.arg_constraints if n in vars(d))) for d in (p, q))
    return (broadcast_tensors(p_parameter, q_parameter)[0] * 0).detach() + math.inf


for _p, _q in (
    (Beta, Pareto), (Exponential, Beta), (Exponential, Pareto), (Exponential, Uniform), (Gamma, Beta), (Gamma, Pareto),
    (Gamma, Uniform), (Gumbel, Beta), (Gumbel, Exponential), (Gumbel, Gamma), (Gumbel, Pareto), (Gumbel, Uniform),
    (Laplace, Beta), (Laplace, Exponential), (Laplace, Gamma), (Laplace, Pareto), (Laplace, Uniform), (Normal, Beta),
    (Normal, Exponential), (Normal, Gamma), (Normal, Pareto), (Normal, Uniform), (Pareto, Beta), (Pareto, Uniform),
    (Poisson, Bernoulli), (Poisson, Binomial), (ContinuousBernoulli, Pareto), (Exponential, ContinuousBernoulli),
    (Gamma, ContinuousBernoulli), (Gumbel, ContinuousBernoulli), (Laplace, ContinuousBernoulli),
    (Normal, ContinuousBernoulli), (Pareto, ContinuousBernoulli),
):  # fmt: skip
    register_kl(_p, _q)(_infinite)
