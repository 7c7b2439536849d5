"""Distributions of one class of several: `Categorical`, `OneHotCategorical`, `Multinomial`.

They take `probs`, vectors that are divided by their sum, or `logits`, logarithms up to a constant. The other one is
computed at its first use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..autograd.grad_mode import no_grad
from ..creation.factories import eye
from ..creation.sequences import arange
from ..layer_functions.embeddings import one_hot
from ..pointwise.type_info import finfo
from ..random import multinomial
from ..runtime import dtypes
from ..runtime.errors import ArgumentError, NotSupported, ShapeError
from ..runtime.tensor import Tensor
from ..shape.broadcasting import broadcast_tensors
from ..tensor_methods.size import Size
from . import constraints
from .constraints import Constraint
from .counts import Binomial
from .distribution import Distribution
from .utils import lazy_property, logits_to_probs, probs_to_logits

__all__ = ["Categorical", "Multinomial", "OneHotCategorical", "OneHotCategoricalStraightThrough"]


class Categorical(Distribution):
    """The distribution of the classes 0 to K - 1.

    Args:
        probs: Tensor `(*batch_shape, K)` from 0 on; each vector is divided by its sum.
        logits: Logarithms of probabilities, up to a constant for each vector; either this or `probs` is passed.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.
        DomainError: A probability is negative, or a logit is NaN.
        ShapeError: The parameter has no dimension.

    Example:
        >>> d = wg.distributions.Categorical(probs=wg.tensor([1.0, 3.0]))
        >>> d.probs, d.log_prob(wg.tensor(0)), d.sample((2, 3)).shape
        (tensor([0.2500, 0.7500]), tensor(-1.3863), weftgrad.Size([2, 3]))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex, "logits": constraints.real_vector
    }  # fmt: skip
    has_enumerate_support = True

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None):
        if (probs is None) == (logits is None):
            raise ArgumentError(
                f"{type(self).__name__}: takes either probs or logits, not {'neither' if probs is None else 'both'}"
            )
        parameter = probs if probs is not None else logits
        if not isinstance(parameter, Tensor) or parameter.ndim < 1:
            raise ShapeError(f"{type(self).__name__}: probs and logits are tensors of at least one dimension")
        if probs is not None:
            self.probs = probs / probs.sum(-1, True)
        else:
            self.logits = parameter - parameter.logsumexp(-1, True)
        super().__init__(parameter.shape[:-1], self._event_shape_of(parameter), validate_args=validate_args)

    @staticmethod
    def _event_shape_of(parameter: Tensor) -> Sequence[int]:
        return ()

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities, of shape `(*batch_shape, K)`."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities, of shape `(*batch_shape, K)`."""
        return logits_to_probs(self.logits)

    @property
    def _param(self) -> Tensor:
        parameter: Tensor = vars(self)["probs" if "probs" in vars(self) else "logits"]
        return parameter

    @property
    def param_shape(self) -> Size:
        """The shape of `probs` and `logits`."""
        return self._param.shape

    @property
    def _num_events(self) -> int:
        return self._param.shape[-1]

    @constraints.dependent_property(is_discrete=True)
    def support(self) -> Constraint:
        """The integers from 0 to K - 1."""
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return self.probs.new_full(tuple(self._batch_shape), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self.probs.new_full(tuple(self._batch_shape), math.nan)

    def _sample_classes(self, sample_shape: Sequence[int]) -> Tensor:
        """Return int64 classes of shape `(*sample_shape, *batch_shape)`."""
        shape = Size(sample_shape) + self._batch_shape
        count = Size(sample_shape).numel()
        with no_grad():
            if not shape.numel():
                return self._param.new_empty(tuple(shape), dtype=dtypes.int64)
            rows = self.probs.reshape((-1, self._num_events))
            return multinomial(rows, count, True).t().reshape(tuple(shape))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._sample_classes(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        index, logits = broadcast_tensors(value.to(dtypes.int64).unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._values_along_first_dim(arange(self._num_events, device=self._param.device), expand)


class OneHotCategorical(Categorical):
    """The distribution of vectors with a 1 at one of K classes.

    Args:
        probs: Tensor `(*batch_shape, K)` from 0 on; each vector is divided by its sum.
        logits: Logarithms of probabilities, up to a constant for each vector; either this or `probs` is passed.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.
        DomainError: A probability is negative, or a logit is NaN.

    Example:
        >>> wg.distributions.OneHotCategorical(probs=wg.tensor([0.0, 1.0])).sample()
        tensor([0., 1.])
    """

    support: Constraint = constraints.one_hot

    @staticmethod
    def _event_shape_of(parameter: Tensor) -> Sequence[int]:
        return parameter.shape[-1:]

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return one_hot(self.probs.argmax(-1), self._num_events).to(self.probs)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return one_hot(self._sample_classes(sample_shape), self._num_events).to(self._param)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, logits = broadcast_tensors(value, self.logits)
        return logits.gather(-1, value.argmax(-1, True)).squeeze(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._num_events
        values = eye(count, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape((count, *(1,) * len(self._batch_shape), count))
        return values.expand((count, *self._batch_shape, count)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose samples have the gradient of `probs` (Bengio et al. 2013). It is biased.

    Args:
        probs: See `OneHotCategorical`.
        logits: See `OneHotCategorical`.
        validate_args: See `Distribution`.

    Example:
        >>> logits = wg.zeros(2, requires_grad=True)
        >>> d = wg.distributions.OneHotCategoricalStraightThrough(logits=logits)
        >>> d.rsample()[0].backward()
        >>> logits.grad
        tensor([ 0.2500, -0.2500])
    """

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(Distribution):
    """The distribution of the counts of K classes in `total_count` draws.

    Args:
        total_count: Number of draws, an int.
        probs: Tensor `(*batch_shape, K)` from 0 on; each vector is divided by its sum.
        logits: Logarithms of probabilities, up to a constant for each vector; either this or `probs` is passed.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Both `probs` and `logits` are passed, or neither.
        NotSupported: `total_count` is no int.

    Example:
        >>> wg.distributions.Multinomial(8, wg.tensor([1.0, 3.0])).mean
        tensor([2., 6.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex, "logits": constraints.real_vector
    }  # fmt: skip
    total_count: int

    def __init__(
        self, total_count: int = 1, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        if not isinstance(total_count, int):
            raise NotSupported("Multinomial: total_count must be one int for all distributions")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:  # the class of a subclass
        clone = self._get_checked_instance(Multinomial, _instance)
        clone.total_count = self.total_count
        clone._categorical = self._categorical.expand(batch_shape)
        Distribution.__init__(clone, batch_shape, self.event_shape, validate_args=False)
        clone._validate_args = self._validate_args
        return clone

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Constraint:
        """Vectors of counts, with a sum of at most `total_count`."""
        return constraints.multinomial(self.total_count)

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def param_shape(self) -> Size:
        """The shape of `probs` and `logits`."""
        return self._categorical.param_shape

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        classes = self._categorical.sample((self.total_count, *sample_shape))
        counts = self.probs.detach().new_zeros(tuple(self._extended_shape(sample_shape)))
        index = classes.movedim(0, -1)
        return counts.scatter_add(-1, index, counts.new_ones(tuple(index.shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, value)
        log_choices = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return log_choices + (logits.masked_fill((value == 0) & (logits == -math.inf), 0.0) * value).sum(-1)

    def entropy(self) -> Tensor:
        n = self.probs.new_tensor(float(self.total_count))
        binomial = Binomial(n, self.probs, validate_args=False)
        weights = binomial.log_prob(binomial.enumerate_support(False)[1:]).exp()
        log_factorials = (binomial.enumerate_support(False)[1:] + 1).lgamma()
        return n * self._categorical.entropy() - (n + 1).lgamma() + (weights * log_factorials).sum((0, -1))
