"""Distributions of one event and of counts: `Bernoulli`, `Binomial`, `Geometric`, `NegativeBinomial`, `Poisson`.

Those with a probability take `probs` or `logits`, the log-odds; the other one is computed at its first use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from .._generated.ops import logsigmoid, softplus
from ..autograd.grad_mode import no_grad
from ..creation.sequences import arange
from ..nn._losses import binary_cross_entropy_with_logits
from ..random import bernoulli
from ..runtime.errors import ArgumentError, NotSupported
from ..runtime.tensor import Tensor
from ..tensor_methods.size import Size
from . import constraints
from .constraints import Constraint
from .distribution import Distribution, ExponentialFamily
from .gamma_gradients import log_standard_gamma
from .rejection import sample_binomial, sample_poisson
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits, uniform_inside

__all__ = ["Bernoulli", "Binomial", "Geometric", "NegativeBinomial", "Poisson"]


def _one_of(where: str, probs: object, logits: object) -> bool:
    """Return True if `probs` is given, False if `logits` is. Raises `ArgumentError` for both and for neither."""
    if (probs is None) == (logits is None):
        raise ArgumentError(f"{where}: takes either probs or logits, not {'neither' if probs is None else 'both'}")
    return probs is not None


class _HasOdds(Distribution):
    """A distribution with `probs` or `logits` of one event."""

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def _param(self) -> Tensor:
        """The parameter that the distribution was built with."""
        parameter: Tensor = vars(self)["probs" if "probs" in vars(self) else "logits"]
        return parameter

    @property
    def param_shape(self) -> Size:
        """The shape of `probs` and `logits`."""
        return self._param.shape


class Bernoulli(_HasOdds, ExponentialFamily):
    """The distribution of 1 with probability `probs`, and 0 otherwise.

    Args:
        probs: Probability of 1.
        logits: Log-odds of 1; either this or `probs` is passed.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.
        DomainError: A probability is not between 0 and 1.

    Example:
        >>> d = wg.distributions.Bernoulli(logits=wg.tensor([0.0, 1.0]))
        >>> d.mean, d.log_prob(wg.tensor([1.0, 0.0]))
        (tensor([0.5000, 0.7311]), tensor([-0.6931, -1.3133]))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval, "logits": constraints.real
    }  # fmt: skip
    support: Constraint = constraints.boolean
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | float | None = None, logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        if _one_of("Bernoulli", probs, logits):
            assert probs is not None
            (self.probs,) = broadcast_all(probs)
        else:
            assert logits is not None
            (self.logits,) = broadcast_all(logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, math.nan)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._values_along_first_dim(self._param.new_tensor([0.0, 1.0]), expand)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return softplus(natural_params[0])


class Binomial(_HasOdds):
    """The distribution of the number of successes among `total_count` trials.

    Args:
        total_count: Number of trials.
        probs: Probability of success.
        logits: Log-odds of success; either this or `probs` is passed.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.
        DomainError: A probability is not between 0 and 1, or `total_count` is no integer from 0 on.

    Example:
        >>> wg.distributions.Binomial(10, 0.5).mean
        tensor(5.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval, "logits": constraints.real,
    }  # fmt: skip
    has_enumerate_support = True

    def __init__(
        self, total_count: Tensor | int = 1, probs: Tensor | float | None = None, logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        if _one_of("Binomial", probs, logits):
            assert probs is not None
            (total, self.probs) = _with_count(total_count, probs)
        else:
            assert logits is not None
            (total, self.logits) = _with_count(total_count, logits)
        self.total_count = total
        super().__init__(self._param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True)
    def support(self) -> Constraint:
        """The integers from 0 to `total_count`."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return sample_binomial(self.total_count.expand(shape), self.probs.detach().expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        log_choices = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return log_choices + value * self.logits - n * softplus(self.logits)

    def entropy(self) -> Tensor:
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = int(self.total_count.max())
        if int(self.total_count.min()) != count:
            raise NotSupported("Binomial: distributions with different total_count do not enumerate their values")
        values = arange(1 + count, dtype=self._param.dtype, device=self._param.device)
        return self._values_along_first_dim(values, expand)


def _with_count(total_count: Tensor | int, parameter: Tensor | float) -> tuple[Tensor, Tensor]:
    """Broadcast the number of trials and a parameter; the number gets the parameter's dtype."""
    tensor = broadcast_all(parameter)[0]
    count = total_count.to(tensor) if isinstance(total_count, Tensor) else total_count
    count, tensor = broadcast_all(count, tensor)
    return count, tensor


class Geometric(_HasOdds):
    """The distribution of the number of failures before the first success.

    Args:
        probs: Probability of success, above 0.
        logits: Log-odds of success; either this or `probs` is passed.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.
        DomainError: A probability is not above 0 and at most 1.

    Example:
        >>> wg.distributions.Geometric(0.25).mean
        tensor(3.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval, "logits": constraints.real
    }  # fmt: skip
    support: Constraint = constraints.nonnegative_integer

    def __init__(
        self, probs: Tensor | float | None = None, logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        if _one_of("Geometric", probs, logits):
            assert probs is not None
            (self.probs,) = broadcast_all(probs)
        else:
            assert logits is not None
            (self.logits,) = broadcast_all(logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None:
            self._check_parameter("probs", self.probs, constraints.greater_than(0))

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return self.probs * 0

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            u = uniform_inside(self._extended_shape(sample_shape), self.probs)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        return value.xlogy(1 - probs) + probs.log()

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class NegativeBinomial(_HasOdds):
    """The distribution of the number of successes before `total_count` failures.

    Args:
        total_count: Number of failures, from 0 on; need not be an integer.
        probs: Probability of success, below 1.
        logits: Log-odds of success; either this or `probs` is passed.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.
        DomainError: A parameter does not satisfy its constraint.

    Example:
        >>> wg.distributions.NegativeBinomial(3.0, 0.5).mean
        tensor(3.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }  # fmt: skip
    support: Constraint = constraints.nonnegative_integer

    def __init__(
        self, total_count: Tensor | float, probs: Tensor | float | None = None, logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        if _one_of("NegativeBinomial", probs, logits):
            assert probs is not None
            self.total_count, self.probs = broadcast_all(total_count, probs)
        else:
            assert logits is not None
            self.total_count, self.logits = broadcast_all(total_count, logits)
        self.total_count = self.total_count.to(self._param)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            log_rate = log_standard_gamma(self.total_count.expand(self._extended_shape(sample_shape)))
            return sample_poisson((log_rate + self.logits).exp()).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        log_unnormalized = n * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        log_choices = (n + value).lgamma() - (1 + value).lgamma() - n.lgamma()
        return log_unnormalized + log_choices.masked_fill(n + value == 0, 0.0)


class Poisson(ExponentialFamily):
    """The Poisson distribution.

    Args:
        rate: Mean, from 0 on.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `rate` is negative.

    Example:
        >>> wg.distributions.Poisson(2.0).log_prob(wg.tensor(0.0))
        tensor(-2.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.nonnegative}
    support: Constraint = constraints.nonnegative_integer

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return sample_poisson(self.rate.detach().expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return value.xlogy(rate) - rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return natural_params[0].exp()

    def entropy(self) -> Tensor:
        raise NotSupported("Poisson has no formula for the entropy")
