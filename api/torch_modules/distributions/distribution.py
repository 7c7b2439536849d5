"""The base class of distributions, and that of exponential families (`torch.distributions.Distribution`).

A distribution has parameters of shape `batch_shape` (and further dimensions where a parameter is a vector), and samples
of shape `(*sample_shape, *batch_shape, *event_shape)`. One event has one log-probability: `log_prob` returns shape
`(*sample_shape, *batch_shape)`.

A subclass names its parameters in `arg_constraints`. They are attributes of the instance, which `expand`, the check of
parameters and `repr` read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from ..autograd.grad_mode import enable_grad, no_grad
from ..autograd.gradients import grad
from ..runtime.errors import ArgumentError, DomainError, NotSupported, ShapeError
from ..runtime.tensor import Tensor
from ..shape.broadcasting import broadcast_shapes
from ..tensor_methods.size import Size
from .constraints import Constraint, is_dependent
from .utils import lazy_property

__all__ = ["Distribution", "ExponentialFamily"]

_AnyDistribution = TypeVar("_AnyDistribution", bound="Distribution")


class Distribution:
    """The base class of distributions.

    Args:
        batch_shape: Shape of the batch of independent distributions.
        event_shape: Shape of one sample of one distribution.
        validate_args: Whether to check parameters, and the values passed to `log_prob` and `cdf`; None: the default of
            `set_default_validate_args`, which is True unless Python runs with `-O`. A check on a GPU waits for it.

    Attributes:
        arg_constraints: The constraint of each parameter.
        has_rsample: Whether `rsample` has gradients with respect to the parameters.
        has_enumerate_support: Whether `enumerate_support` returns all values.

    Raises:
        DomainError: A parameter does not satisfy its constraint (a `ValueError`).

    Example:
        >>> d = wg.distributions.Normal(wg.zeros(2), 1.0)
        >>> d.batch_shape, d.event_shape, d.sample((3,)).shape
        (weftgrad.Size([2]), weftgrad.Size([]), weftgrad.Size([3, 2]))
    """

    has_rsample: bool = False
    has_enumerate_support: bool = False
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _extra_attributes: ClassVar[tuple[str, ...]] = ()  # what `expand` copies beside the parameters
    _validate_args: bool = __debug__

    def __init__(
        self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = (), validate_args: bool | None = None
    ):
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                is_derived = name not in vars(self) and isinstance(getattr(type(self), name, None), lazy_property)
                if not is_dependent(constraint) and not is_derived:
                    self._check_parameter(name, getattr(self, name), constraint)

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether distributions check parameters and values by default.

        Args:
            value: True or False.

        Raises:
            ArgumentError: `value` is no bool.

        Example:
            >>> wg.distributions.Distribution.set_default_validate_args(True)
        """
        if value not in (True, False):
            raise ArgumentError(f"set_default_validate_args: takes a bool, not {value!r}")
        Distribution._validate_args = value

    # --- Shapes and parameters ----------------------------------------------------------------------------------------

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one distribution."""
        return self._event_shape

    @property
    def support(self) -> Constraint:
        """The constraint that samples satisfy."""
        raise NotSupported(f"{type(self).__name__} has no support")

    def expand(
        self: _AnyDistribution, batch_shape: Sequence[int], _instance: _AnyDistribution | None = None
    ) -> _AnyDistribution:
        """Return the distribution with expanded parameters, which share the memory of the parameters.

        Args:
            batch_shape: Shape that the batch shape expands to.

        Returns:
            A distribution of the same class.

        Raises:
            ShapeError: The batch shape does not expand to `batch_shape`.

        Example:
            >>> wg.distributions.Normal(0.0, 1.0).expand((3, 2)).batch_shape
            weftgrad.Size([3, 2])
        """
        clone = self._get_checked_instance(type(self), _instance)
        for name, constraint in self.arg_constraints.items():
            parameter = vars(self).get(name)
            if isinstance(parameter, Tensor):
                event_shape = parameter.shape[parameter.ndim - constraint.event_dim :]
                parameter = parameter.expand(Size(batch_shape) + tuple(event_shape))
            if parameter is not None:
                vars(clone)[name] = parameter
        for name in self._extra_attributes:
            vars(clone)[name] = vars(self)[name]
        Distribution.__init__(clone, batch_shape, self.event_shape, validate_args=False)
        clone._validate_args = self._validate_args
        return clone

    def _get_checked_instance(
        self, cls: type[_AnyDistribution], _instance: _AnyDistribution | None = None
    ) -> _AnyDistribution:
        """Return `_instance`, or a new instance without parameters, which `expand` fills."""
        if _instance is None and type(self).__init__ is not cls.__init__:
            raise NotSupported(f"{type(self).__name__} defines __init__, and must define expand, too")
        return cls.__new__(cls) if _instance is None else _instance

    # --- Moments ------------------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Tensor:
        """The mean, of shape `(*batch_shape, *event_shape)`."""
        raise NotSupported(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Tensor:
        """The most probable value, of shape `(*batch_shape, *event_shape)`."""
        raise NotSupported(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each element, of shape `(*batch_shape, *event_shape)`."""
        raise NotSupported(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation of each element, of shape `(*batch_shape, *event_shape)`."""
        return self.variance.sqrt()

    # --- Samples ------------------------------------------------------------------------------------------------------

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw samples without gradients.

        Args:
            sample_shape: Shape of the samples of each distribution.

        Returns:
            Tensor of shape `(*sample_shape, *batch_shape, *event_shape)`.

        Example:
            >>> wg.distributions.Normal(wg.zeros(2), 1.0).sample((3,)).shape
            weftgrad.Size([3, 2])
        """
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw samples that have gradients with respect to the parameters.

        Args:
            sample_shape: Shape of the samples of each distribution.

        Returns:
            Tensor of shape `(*sample_shape, *batch_shape, *event_shape)`.

        Raises:
            NotSupported: The samples have no gradients: see `has_rsample`.

        Example:
            >>> loc = wg.zeros(2, requires_grad=True)
            >>> wg.distributions.Normal(loc, 1.0).rsample((3,)).sum().backward()
            >>> loc.grad
            tensor([3., 3.])
        """
        raise NotSupported(f"{type(self).__name__} has no samples with gradients: use sample")

    def sample_n(self, n: int) -> Tensor:
        """Draw `n` samples of each distribution; `sample((n,))` says the same.

        Args:
            n: Number of samples.

        Returns:
            Tensor of shape `(n, *batch_shape, *event_shape)`.

        Example:
            >>> wg.distributions.Normal(0.0, 1.0).sample_n(3).shape
            weftgrad.Size([3])
        """
        return self.sample((n,))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return all values of a discrete distribution, along a new first dimension.

        Args:
            expand: Whether to expand the values to the batch shape, instead of size 1.

        Returns:
            Tensor of shape `(values, *batch_shape, *event_shape)`, or `(values, 1, ..., 1, *event_shape)`.

        Raises:
            NotSupported: The distribution has too many values: see `has_enumerate_support`.

        Example:
            >>> wg.distributions.Bernoulli(0.5).enumerate_support()
            tensor([0., 1.])
        """
        raise NotSupported(f"{type(self).__name__} does not enumerate its values")

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        """Return the shape of samples: `(*sample_shape, *batch_shape, *event_shape)`."""
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _values_along_first_dim(self, values: Tensor, expand: bool) -> Tensor:
        """Return a vector of values as the result of `enumerate_support`."""
        values = values.reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values

    # --- Probabilities ------------------------------------------------------------------------------------------------

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the density, or of the probability of a discrete value.

        Args:
            value: Tensor whose shape broadcasts with `(*batch_shape, *event_shape)`.

        Returns:
            Tensor of the broadcast shape without the event's dimensions.

        Raises:
            DomainError: A value is outside of the support, and arguments are checked.
            ShapeError: The shape does not broadcast with that of the distribution.

        Example:
            >>> wg.distributions.Exponential(1.0).log_prob(wg.tensor([0.0, 2.0]))
            tensor([ 0., -2.])
        """
        raise NotSupported(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability of a sample at or below `value`.

        Args:
            value: Tensor whose shape broadcasts with `batch_shape`.

        Returns:
            Tensor of the broadcast shape.

        Raises:
            DomainError: A value is outside of the support, and arguments are checked.
            NotSupported: The distribution has no formula for it.

        Example:
            >>> wg.distributions.Uniform(0.0, 2.0).cdf(wg.tensor(0.5))
            tensor(0.2500)
        """
        raise NotSupported(f"{type(self).__name__} has no cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """Return the inverse of `cdf`.

        Args:
            value: Probabilities, whose shape broadcasts with `batch_shape`.

        Returns:
            Tensor of the broadcast shape.

        Raises:
            NotSupported: The distribution has no formula for it.

        Example:
            >>> wg.distributions.Uniform(0.0, 2.0).icdf(wg.tensor(0.25))
            tensor(0.5000)
        """
        raise NotSupported(f"{type(self).__name__} has no icdf")

    def entropy(self) -> Tensor:
        """Return the entropy in nats.

        Returns:
            Tensor of shape `batch_shape`.

        Raises:
            NotSupported: The distribution has no formula for it.

        Example:
            >>> wg.distributions.Uniform(0.0, 1.0).entropy()
            tensor(0.)
        """
        raise NotSupported(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        """Return e to the power of the entropy.

        Returns:
            Tensor of shape `batch_shape`.

        Example:
            >>> wg.distributions.Categorical(wg.ones(4)).perplexity()
            tensor(4.)
        """
        return self.entropy().exp()

    # --- Checks -------------------------------------------------------------------------------------------------------

    def _check_parameter(self, name: str, value: Tensor, constraint: Constraint) -> None:
        is_valid = constraint.check(value)
        if not bool(is_valid.all()):
            raise DomainError(
                f"{type(self).__name__}: parameter {name} of shape {list(value.shape)} must satisfy {constraint}; "
                f"{_describe_invalid(value, is_valid, constraint)}"
            )

    def _validate_sample(self, value: Tensor) -> None:
        """Raise an error if `value` is no tensor, has a wrong shape, or has an element outside of the support."""
        where = type(self).__name__
        if not isinstance(value, Tensor):
            raise ArgumentError(f"{where}: a value is a tensor, not {type(value).__name__}")
        event_ndim = len(self._event_shape)
        if tuple(value.shape[value.ndim - event_ndim :]) != self._event_shape or value.ndim < event_ndim:
            raise ShapeError(
                f"{where}: the last dimensions of a value must be the event's, {list(self._event_shape)}; its shape is "
                f"{list(value.shape)}"
            )
        try:
            broadcast_shapes(tuple(value.shape), self._batch_shape + self._event_shape)
        except ShapeError:
            raise ShapeError(
                f"{where}: a value of shape {list(value.shape)} does not broadcast with batch shape "
                f"{list(self._batch_shape)} and event shape {list(self._event_shape)}"
            ) from None
        try:
            support = self.support
        except NotSupported:
            return
        is_valid = support.check(value)
        if not bool(is_valid.all()):
            raise DomainError(
                f"{where}: a value of shape {list(value.shape)} must be in the support {support}; "
                f"{_describe_invalid(value, is_valid, support)}"
            )

    def __repr__(self) -> str:
        parameters = {name: vars(self)[name] for name in self.arg_constraints if name in vars(self)}
        texts = [
            f"{name}: {value.shape if isinstance(value, Tensor) and value.numel() != 1 else value}"
            for name, value in parameters.items()
        ]
        return f"{type(self).__name__}({', '.join(texts)})"


def _describe_invalid(value: Tensor, is_valid: Tensor, constraint: Constraint) -> str:
    """Name the first invalid element, with its index, and the number of invalid ones."""
    positions = is_valid.logical_not().nonzero()
    count = len(positions)
    index = tuple(positions[0].tolist())
    leading = index[: value.ndim - constraint.event_dim] if value.shape != is_valid.shape else index
    try:
        element = value[leading].tolist()
    except IndexError:  # the value broadcast with the bounds of the constraint
        element = value.tolist()
    location = f"element {list(index)} is" if index else "it is"
    return f"{location} {element} ({count} of {is_valid.numel()} invalid)" if index else f"{location} {element}"


class ExponentialFamily(Distribution):
    """The base class of distributions with density `exp(t(x) . theta - F(theta) + k(x))`.

    Subclasses have the natural parameters theta as `_natural_params`, F as `_log_normalizer`, and the mean of the
    carrier measure k. The entropy and the divergence of two distributions of one class follow by differentiating F
    (Nielsen and Nock, "Entropies and cross-entropies of exponential families", 2010).
    """

    _mean_carrier_measure: float = 0.0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotSupported(f"{type(self).__name__} has no natural parameters")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotSupported(f"{type(self).__name__} has no normalizer of natural parameters")

    def _normalizer_and_its_gradients(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return F(theta) and its derivatives, the means of t(x). They have gradients if the parameters have."""
        params = self._natural_params
        needs_graph = any(param.requires_grad for param in params)
        leaves = [p.view_as(p) if p.requires_grad else p.detach().requires_grad_() for p in params]
        with enable_grad():
            normalizer = self._log_normalizer(*leaves)
            means = grad(normalizer.sum(), leaves, create_graph=needs_graph)
        return normalizer if needs_graph else normalizer.detach(), tuple(means)

    def entropy(self) -> Tensor:
        normalizer, means = self._normalizer_and_its_gradients()
        result = normalizer - self._mean_carrier_measure
        for param, mean in zip(self._natural_params, means, strict=True):
            result = result - (param * mean).reshape((*self._batch_shape, -1)).sum(-1)
        return result
