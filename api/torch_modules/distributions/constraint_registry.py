"""Transforms from unconstrained numbers to a constraint: `biject_to` and `transform_to`.

    transform_to(constraints.positive)(wg.zeros(2))     # positive numbers from any numbers

Both take a constraint. `biject_to` returns bijective transforms, which change densities; `transform_to` returns
transforms that need not be, such as softmax, which suit optimizers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..runtime.errors import ArgumentError, NotSupported
from . import constraints
from .constraints import Constraint
from .lkj_cholesky import CorrCholeskyTransform
from .transform import ComposeTransform, Transform, identity_transform
from .transforms import (
    AffineTransform,
    CatTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
)

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

_Factory = TypeVar("_Factory", bound=Callable[[Any], Transform])


class ConstraintRegistry:
    """A table from classes of constraints to functions that return a transform.

    Example:
        >>> D = wg.distributions
        >>> D.transform_to(D.constraints.greater_than(2.0))(wg.tensor(0.0))
        tensor(3.)
    """

    def __init__(self) -> None:
        self._factories: dict[type[Constraint], Callable[[Any], Transform]] = {}

    def register(self, constraint: type[Constraint] | Constraint, factory: _Factory | None = None) -> Any:
        """Register a function for a class of constraints; also as a decorator.

        Args:
            constraint: A class of constraints, or a constraint of that class.
            factory: Takes a constraint, and returns a transform onto it. None: the result is a decorator.

        Returns:
            `factory`, or a decorator.

        Raises:
            ArgumentError: `constraint` is no constraint.

        Example:
            >>> class Even(wg.distributions.constraints.Constraint):
            ...     pass
            ...
            >>> double = wg.distributions.AffineTransform(0.0, 2.0)
            >>> factory = wg.distributions.biject_to.register(Even, lambda constraint: double)
            >>> wg.distributions.biject_to(Even()) is double
            True
        """
        if factory is None:
            return lambda decorated: self.register(constraint, decorated)
        constraint_class = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(constraint_class, type) or not issubclass(constraint_class, Constraint):
            raise ArgumentError(f"register: takes a constraint or a class of them, not {constraint!r}")
        self._factories[constraint_class] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        factory = self._factories.get(type(constraint))
        if factory is None:
            raise NotSupported(f"there is no transform onto {constraint!r}: add one with register")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _to_real(constraint: Constraint) -> Transform:
    return identity_transform


def _to_greater_than(constraint: constraints.GreaterThan) -> Transform:
    if not isinstance(constraint.lower_bound, int | float) or constraint.lower_bound:
        return ComposeTransform([ExpTransform(), AffineTransform(constraint.lower_bound, 1)])
    return ExpTransform()


def _to_less_than(constraint: constraints.LessThan) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.upper_bound, -1)])


def _to_interval(constraint: constraints.Interval) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, int | float) and isinstance(high, int | float) and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _fill(registry: ConstraintRegistry, simplex: type[Transform]) -> None:
    registry.register(constraints.real, _to_real)
    for bound in (constraints.GreaterThan, constraints.GreaterThanEq):
        registry.register(bound, _to_greater_than)
    registry.register(constraints.LessThan, _to_less_than)
    for interval in (constraints.Interval, constraints.HalfOpenInterval):
        registry.register(interval, _to_interval)
    registry.register(constraints.simplex, lambda constraint: simplex())

    def to_independent(constraint: constraints.Independent) -> Transform:
        return IndependentTransform(registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims)

    def to_cat(constraint: constraints.Cat) -> Transform:
        return CatTransform([registry(c) for c in constraint.cseq], constraint.dim, constraint.lengths)

    def to_stack(constraint: constraints.Stack) -> Transform:
        return StackTransform([registry(c) for c in constraint.cseq], constraint.dim)

    registry.register(constraints.Independent, to_independent)
    registry.register(constraints.Cat, to_cat)
    registry.register(constraints.Stack, to_stack)


_fill(biject_to, StickBreakingTransform)
_fill(transform_to, SoftmaxTransform)
transform_to.register(constraints.lower_cholesky, lambda constraint: LowerCholeskyTransform())
for _constraint in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_constraint, lambda constraint: PositiveDefiniteTransform())
for _registry in (biject_to, transform_to):
    _registry.register(constraints.corr_cholesky, lambda constraint: CorrCholeskyTransform())
