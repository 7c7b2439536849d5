"""Continuous relaxations of discrete distributions: `RelaxedBernoulli`, `RelaxedOneHotCategorical`.

A temperature near 0 makes samples nearly discrete; samples have gradients with respect to the logits (Jang et al.,
"Categorical reparameterization with Gumbel-softmax", and Maddison et al., "The concrete distribution", 2016).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from .._generated.ops import softplus
from ..runtime.tensor import Tensor
from . import constraints
from .categorical import Categorical
from .constraints import Constraint
from .counts import Bernoulli
from .distribution import Distribution
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform, SigmoidTransform
from .utils import parameter_of, uniform_inside

__all__ = ["ExpRelaxedCategorical", "LogitRelaxedBernoulli", "RelaxedBernoulli", "RelaxedOneHotCategorical"]


class _RelaxedLogits(Distribution):
    """Base class for distributions of log-odds and log-probabilities: a discrete distribution and a temperature.

    Args:
        temperature: Number or tensor, above 0.
        discrete: The distribution that is relaxed.
        event_shape: The shape of a sample.
    """

    has_rsample = True

    def __init__(self, temperature: Tensor | float, discrete: Bernoulli | Categorical, event_shape: Sequence[int] = ()):
        self.temperature = parameter_of(temperature)
        self._discrete = discrete
        super().__init__(discrete.batch_shape, event_shape, validate_args=False)
        self._validate_args = discrete._validate_args

    def _expand_into(self, clone: Any, batch_shape: Sequence[int]) -> Any:  # the class of a subclass
        _RelaxedLogits.__init__(clone, self.temperature, self._discrete.expand(batch_shape), self.event_shape)
        clone._validate_args = self._validate_args
        return clone

    @property
    def logits(self) -> Tensor:
        """The log-odds, or the logarithms of the probabilities."""
        return self._discrete.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._discrete.probs


class _Relaxed(TransformedDistribution):
    """A relaxed distribution: transformed samples of its `_RelaxedLogits`, whose parameters it has."""

    base_dist: _RelaxedLogits

    @property
    def temperature(self) -> Tensor:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log-odds, or the logarithms of the probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self.base_dist.probs


class LogitRelaxedBernoulli(_RelaxedLogits):
    """The distribution of the log-odds of `RelaxedBernoulli`.

    Args:
        temperature: Number or tensor, above 0.
        probs: Probability of 1.
        logits: Log-odds of 1; either this or `probs` is passed.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.

    Example:
        >>> wg.distributions.LogitRelaxedBernoulli(1.0, 0.5).log_prob(wg.tensor(0.0))
        tensor(-1.3863)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval, "logits": constraints.real
    }  # fmt: skip
    support: Constraint = constraints.real

    def __init__(
        self, temperature: Tensor | float, probs: Tensor | float | None = None, logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        super().__init__(temperature, Bernoulli(probs, logits, validate_args=validate_args))

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:  # the class of a subclass
        return self._expand_into(self._get_checked_instance(LogitRelaxedBernoulli, _instance), batch_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = uniform_inside(self._extended_shape(sample_shape), self.logits)
        return (u.log() - (-u).log1p() + self.logits) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        difference = self.logits - value * self.temperature
        return self.temperature.log() + difference - 2 * softplus(difference)


class RelaxedBernoulli(_Relaxed):
    """A continuous relaxation of `Bernoulli`, over (0, 1).

    Args:
        temperature: Number or tensor, above 0.
        probs: Probability of 1.
        logits: Log-odds of 1; either this or `probs` is passed.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.

    Example:
        >>> logits = wg.zeros(2, requires_grad=True)
        >>> wg.distributions.RelaxedBernoulli(0.5, logits=logits).rsample().sum().backward()
        >>> logits.grad.shape
        weftgrad.Size([2])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval, "logits": constraints.real
    }  # fmt: skip
    support: Constraint = constraints.unit_interval
    base_dist: LogitRelaxedBernoulli

    def __init__(
        self, temperature: Tensor | float, probs: Tensor | float | None = None, logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)


class ExpRelaxedCategorical(_RelaxedLogits):
    """The distribution of the logarithm of `RelaxedOneHotCategorical`.

    Args:
        temperature: Number or tensor, above 0.
        probs: Tensor `(*batch_shape, K)`.
        logits: Logarithms of probabilities; either this or `probs` is passed.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.

    Example:
        >>> wg.distributions.ExpRelaxedCategorical(1.0, wg.ones(3)).event_shape
        weftgrad.Size([3])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex, "logits": constraints.real_vector
    }  # fmt: skip
    support: Constraint = constraints.real_vector

    def __init__(
        self, temperature: Tensor | float, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        categorical = Categorical(probs, logits, validate_args=validate_args)
        super().__init__(temperature, categorical, categorical.param_shape[-1:])

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:  # the class of a subclass
        return self._expand_into(self._get_checked_instance(ExpRelaxedCategorical, _instance), batch_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = uniform_inside(self._extended_shape(sample_shape), self.logits)
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, True)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        count = self.event_shape[-1]
        score = self.logits - value * self.temperature
        score = (score - score.logsumexp(-1, True)).sum(-1)
        return score + math.lgamma(count) + (count - 1) * self.temperature.log()


class RelaxedOneHotCategorical(_Relaxed):
    """A continuous relaxation of `OneHotCategorical`: vectors of probabilities.

    Args:
        temperature: Number or tensor, above 0.
        probs: Tensor `(*batch_shape, K)`.
        logits: Logarithms of probabilities; either this or `probs` is passed.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.

    Example:
        >>> d = wg.distributions.RelaxedOneHotCategorical(0.5, wg.ones(3))
        >>> bool(abs(d.rsample().sum() - 1) < 1e-5)
        True
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex, "logits": constraints.real_vector
    }  # fmt: skip
    support: Constraint = constraints.simplex
    base_dist: ExpRelaxedCategorical

    def __init__(
        self, temperature: Tensor | float, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
