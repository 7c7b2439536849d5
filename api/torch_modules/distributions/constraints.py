"""Sets of values that a parameter or a sample may have (`torch.distributions.constraints`).

A constraint checks each element, or each event: `event_dim` is the number of last dimensions that one value has. The
names in lower case are PyTorch's: some are constraints (`positive`), others classes to make one (`greater_than(2)`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..linear_algebra.factorizations import cholesky_ex
from ..linear_algebra.spectra import eigvalsh
from ..pointwise.comparison import isclose
from ..pointwise.type_info import finfo
from ..runtime.errors import ArgumentError, NotSupported
from ..runtime.tensor import Tensor
from ..shape.joining import cat as concatenate
from ..shape.joining import stack as stack_tensors

__all__ = [
    "Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
    "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent",
    "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot",
    "positive", "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex",
    "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip

_SIMPLEX_TOLERANCE = 1e-6  # PyTorch's
_SYMMETRY_TOLERANCE = 1e-6  # PyTorch's; and 1e-5 of the elements


class Constraint:
    """A set of values. Subclasses define `check`.

    Attributes:
        is_discrete: True if the set contains integers only.
        event_dim: Number of last dimensions of one value: 0 for numbers, 1 for vectors.

    Example:
        >>> wg.distributions.constraints.positive.check(wg.tensor([-1.0, 2.0]))
        tensor([False,  True])
    """

    is_discrete: bool = False
    event_dim: int = 0

    def check(self, value: Tensor) -> Tensor:
        """Tell which values are in the set.

        Args:
            value: Tensor of shape `(*batch, *event)`, where `event` has `event_dim` dimensions.

        Returns:
            Bool tensor of shape `(*batch,)`.

        Raises:
            NotSupported: The set depends on a parameter, so that there is no check without a distribution.

        Example:
            >>> wg.distributions.constraints.interval(0, 1).check(wg.tensor([0.5, 2.0]))
            tensor([ True, False])
        """
        raise NotSupported(f"{self!r} has no check")

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={value}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({numbers})"


class Dependent(Constraint):
    """A set that depends on the distribution's other parameters; `Distribution` does not check it.

    Args:
        is_discrete: True if it contains integers only.
        event_dim: Number of last dimensions of one value.
    """

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0):
        self.is_discrete = is_discrete
        self.event_dim = event_dim


class dependent_property(property, Dependent):
    """A property that returns a constraint of an instance. On the class it is a dependent constraint.

    Args:
        fget: The property's function; None where the decorator is called with keyword arguments.
        is_discrete: True if the set contains integers only.
        event_dim: Number of last dimensions of one value.

    Example:
        >>> wg.distributions.Uniform(1.0, 2.0).support
        Interval(lower_bound=1.0, upper_bound=2.0)
        >>> wg.distributions.constraints.is_dependent(wg.distributions.Uniform.support)
        True
    """

    def __init__(
        self, fget: Callable[[Any], Constraint] | None = None, *, is_discrete: bool = False, event_dim: int = 0
    ):
        super().__init__(fget)
        self.is_discrete = is_discrete
        self.event_dim = event_dim

    def __call__(self, fget: Callable[[Any], Constraint]) -> dependent_property:
        return dependent_property(fget, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: object) -> bool:
    """Return True if a constraint depends on a distribution's parameters, so that its class cannot check it.

    Args:
        constraint: A constraint.

    Returns:
        Python bool.

    Example:
        >>> wg.distributions.constraints.is_dependent(wg.distributions.constraints.real)
        False
    """
    return isinstance(constraint, Dependent)


class Independent(Constraint):
    """Check events whose last dimensions are values of another constraint: all of them must be in the set.

    Args:
        base_constraint: The constraint of one value.
        reinterpreted_batch_ndims: Number of batch dimensions that belong to the event.
    """

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self._event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]  # read-only here
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]  # read-only here
        return self._event_dim

    def check(self, value: Tensor) -> Tensor:
        if value.ndim < self._event_dim:
            raise ArgumentError(f"{self!r}: a value has at least {self._event_dim} dimensions, not {value.ndim}")
        is_valid = self.base_constraint.check(value)
        batch_ndim = is_valid.ndim - self.reinterpreted_batch_ndims
        return is_valid.reshape((*is_valid.shape[:batch_ndim], -1)).all(-1)


class Boolean(Constraint):
    """The numbers 0 and 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class OneHot(Constraint):
    """Vectors with one 1 and zeros."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class IntegerInterval(Constraint):
    """Integers of a closed interval.

    Args:
        lower_bound: Number or tensor.
        upper_bound: Number or tensor.
    """

    is_discrete = True

    def __init__(self, lower_bound: Tensor | float, upper_bound: Tensor | float):
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound) & (value <= self.upper_bound)


class IntegerGreaterThanEq(Constraint):
    """Integers from a bound on.

    Args:
        lower_bound: Number or tensor.
    """

    is_discrete = True

    def __init__(self, lower_bound: Tensor | float):
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


class Real(Constraint):
    """All numbers but NaN."""

    def check(self, value: Tensor) -> Tensor:
        return value == value


class GreaterThan(Constraint):
    """Numbers above a bound.

    Args:
        lower_bound: Number or tensor.
    """

    def __init__(self, lower_bound: Tensor | float):
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class GreaterThanEq(GreaterThan):
    """Numbers from a bound on.

    Args:
        lower_bound: Number or tensor.
    """

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class LessThan(Constraint):
    """Numbers below a bound.

    Args:
        upper_bound: Number or tensor.
    """

    def __init__(self, upper_bound: Tensor | float):
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class Interval(Constraint):
    """Numbers of a closed interval.

    Args:
        lower_bound: Number or tensor.
        upper_bound: Number or tensor.
    """

    def __init__(self, lower_bound: Tensor | float, upper_bound: Tensor | float):
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class HalfOpenInterval(Interval):
    """Numbers of an interval that contains its lower bound only.

    Args:
        lower_bound: Number or tensor.
        upper_bound: Number or tensor.
    """

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class Simplex(Constraint):
    """Vectors of numbers from 0 on whose sum is 1."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < _SIMPLEX_TOLERANCE)


class Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        is_square = value.shape[-2] == value.shape[-1]
        return (value == value).all(-1).all(-1) & is_square


class Symmetric(Square):
    """Symmetric matrices."""

    def check(self, value: Tensor) -> Tensor:
        is_square = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return is_square
        return is_square & isclose(value, value.mT, atol=_SYMMETRY_TOLERANCE).all(-1).all(-1)


class PositiveSemidefinite(Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: Tensor) -> Tensor:
        is_symmetric = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return is_symmetric
        return is_symmetric & (eigvalsh(value) >= 0).all(-1)


class PositiveDefinite(Symmetric):
    """Symmetric matrices with positive eigenvalues: those that have a Cholesky factor."""

    def check(self, value: Tensor) -> Tensor:
        is_symmetric = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return is_symmetric
        return is_symmetric & (cholesky_ex(value.detach()).info == 0)


class LowerTriangular(Constraint):
    """Matrices with zeros above the diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).all(-1).all(-1)


class LowerCholesky(LowerTriangular):
    """Lower triangular matrices with a positive diagonal."""

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class CorrCholesky(LowerCholesky):
    """Lower triangular matrices with a positive diagonal, whose rows have length 1."""

    def check(self, value: Tensor) -> Tensor:
        tolerance = finfo(value.dtype).eps * value.shape[-1] * 10
        lengths = value.square().sum(-1).sqrt()
        return super().check(value) & ((lengths - 1).abs() < tolerance).all(-1)


class Multinomial(Constraint):
    """Vectors of counts whose sum is not above a bound.

    Args:
        upper_bound: Number of trials.
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Tensor | int):
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class Cat(Constraint):
    """Pieces along a dimension, each with a constraint of its own.

    Args:
        cseq: The constraint of each piece.
        dim: The dimension.
        lengths: Size of each piece; None: 1.
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None):
        self.cseq = list(cseq)
        self.dim = dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ArgumentError(f"cat: {len(self.cseq)} constraints need as many lengths, not {len(self.lengths)}")

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]  # read-only here
        return any(constraint.is_discrete for constraint in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]  # read-only here
        return max(constraint.event_dim for constraint in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        pieces = value.split(self.lengths, self.dim)
        return concatenate([c.check(piece) for c, piece in zip(self.cseq, pieces, strict=True)], self.dim)


class Stack(Constraint):
    """Slices of a dimension, each with a constraint of its own.

    Args:
        cseq: The constraint of each slice.
        dim: The dimension.
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0):
        self.cseq = list(cseq)
        self.dim = dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]  # read-only here
        return any(constraint.is_discrete for constraint in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]  # read-only here
        dim = max(constraint.event_dim for constraint in self.cseq)
        return dim + (self.dim + dim < 0)

    def check(self, value: Tensor) -> Tensor:
        slices = value.unbind(self.dim)
        return stack_tensors([c.check(part) for c, part in zip(self.cseq, slices, strict=True)], self.dim)


# PyTorch's names.
dependent = Dependent()
independent = Independent
boolean = Boolean()
one_hot = OneHot()
nonnegative_integer = IntegerGreaterThanEq(0)
positive_integer = IntegerGreaterThanEq(1)
integer_interval = IntegerInterval
real = Real()
real_vector = Independent(real, 1)
positive = GreaterThan(0.0)
nonnegative = GreaterThanEq(0.0)
greater_than = GreaterThan
greater_than_eq = GreaterThanEq
less_than = LessThan
multinomial = Multinomial
unit_interval = Interval(0.0, 1.0)
interval = Interval
half_open_interval = HalfOpenInterval
simplex = Simplex()
square = Square()
symmetric = Symmetric()
positive_semidefinite = PositiveSemidefinite()
positive_definite = PositiveDefinite()
lower_triangular = LowerTriangular()
lower_cholesky = LowerCholesky()
corr_cholesky = CorrCholesky()
cat = Cat
stack = Stack
