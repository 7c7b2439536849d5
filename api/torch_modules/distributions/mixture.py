"""Mixtures: `MixtureSameFamily`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..autograd.grad_mode import no_grad
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from . import constraints
from .categorical import Categorical
from .constraints import Constraint
from .distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture whose components are one batch of distributions.

    Args:
        mixture_distribution: The weights, of batch shape `(*batch_shape,)` with K classes.
        component_distribution: The components, of batch shape `(*batch_shape, K)`.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: An argument has the wrong class.
        ShapeError: The batch shapes or the numbers of components differ.

    Example:
        >>> D = wg.distributions
        >>> weights = D.Categorical(wg.tensor([1.0, 3.0]))
        >>> D.MixtureSameFamily(weights, D.Normal(wg.tensor([0.0, 4.0]), 1.0)).mean
        tensor(3.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {}

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution,
        validate_args: bool | None = None,
    ):  # fmt: skip
        if not isinstance(mixture_distribution, Categorical):
            raise ArgumentError("MixtureSameFamily: mixture_distribution must be a Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ArgumentError("MixtureSameFamily: component_distribution must be a Distribution")
        shape = component_distribution.batch_shape
        weights_shape = mixture_distribution.batch_shape
        count = mixture_distribution.param_shape[-1]
        if not shape or shape[-1] != count:
            raise ShapeError(
                f"MixtureSameFamily: {count} weights need a last batch dimension of {count}: {list(shape)}"
            )
        if any(
            a != b and a != 1 and b != 1 for a, b in zip(reversed(weights_shape), reversed(shape[:-1]), strict=False)
        ):
            raise ShapeError(
                f"MixtureSameFamily: batch shapes {list(weights_shape)} of the weights and {list(shape[:-1])} of the "
                "components differ"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        super().__init__(shape[:-1], component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:  # the class of a subclass
        clone = self._get_checked_instance(MixtureSameFamily, _instance)
        count = self._mixture_distribution.param_shape[-1]
        clone._component_distribution = self._component_distribution.expand((*batch_shape, count))
        clone._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        Distribution.__init__(clone, batch_shape, self.event_shape, validate_args=False)
        clone._validate_args = self._validate_args
        return clone

    @constraints.dependent_property
    def support(self) -> Constraint:
        """The support of the components."""
        return self._component_distribution.support

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution of the components' numbers."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    def _weights(self) -> Tensor:
        """Return the probabilities of the components, with a dimension of size 1 for each of the event."""
        probs = self._mixture_distribution.probs
        return probs.reshape(tuple(probs.shape) + (1,) * len(self.event_shape))

    @property
    def _component_dim(self) -> int:
        return -1 - len(self.event_shape)

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self._component_distribution.mean).sum(self._component_dim)

    @property
    def variance(self) -> Tensor:
        dim = self._component_dim
        inside = (self._weights() * self._component_distribution.variance).sum(dim)
        distances = self._component_distribution.mean - self.mean.unsqueeze(dim)
        return inside + (self._weights() * distances.square()).sum(dim)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            component = self._mixture_distribution.expand(self.batch_shape).sample(sample_shape)
            samples = self._component_distribution.sample(sample_shape)
            index = component.reshape((*component.shape, 1, *(1,) * len(self.event_shape)))
            index = index.expand((*component.shape, 1, *self.event_shape))
            return samples.gather(self._component_dim, index).squeeze(self._component_dim)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        log_density = self._component_distribution.log_prob(value.unsqueeze(self._component_dim))
        return (log_density + self._mixture_distribution.logits).logsumexp(-1)

    def cdf(self, value: Tensor) -> Tensor:
        value = value.unsqueeze(self._component_dim)
        return (self._component_distribution.cdf(value) * self._mixture_distribution.probs).sum(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
