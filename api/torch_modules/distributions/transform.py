"""The base class of transforms of random variables, their inverses, and chains of them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TypeVar

from ..runtime.errors import ArgumentError, NotSupported
from ..runtime.tensor import Tensor
from . import constraints
from .constraints import Constraint

__all__ = ["ComposeTransform", "Transform", "identity_transform", "sum_last_dims"]

_AnyTransform = TypeVar("_AnyTransform", bound="Transform")


class Transform:
    """A differentiable function of tensors whose Jacobian's determinant is known.

    Subclasses define `_call`, and `_inverse` and `log_abs_det_jacobian` if they have them.

    Args:
        cache_size: 1 keeps the last argument and result, so that the inverse of a result is exact and costs nothing;
            0 keeps none.

    Attributes:
        domain: The constraint of arguments.
        codomain: The constraint of results.
        bijective: Whether each result has one argument.

    Raises:
        ArgumentError: `cache_size` is neither 0 nor 1.

    Example:
        >>> exp = wg.distributions.ExpTransform()
        >>> exp(wg.tensor(0.0)), exp.inv(wg.tensor(1.0))
        (tensor(1.), tensor(0.))
    """

    bijective: bool = False
    domain: Constraint
    codomain: Constraint

    def __init__(self, cache_size: int = 0):
        if cache_size not in (0, 1):
            raise ArgumentError(f"{type(self).__name__}: cache_size is 0 or 1, not {cache_size}")
        self._cache_size = cache_size
        self._inverse_transform: weakref.ref[Transform] | None = None
        self._last_pair: tuple[Tensor | None, Tensor | None] = (None, None)

    @property
    def event_dim(self) -> int:
        """The number of last dimensions that the transform works on at once."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ArgumentError(f"{type(self).__name__}: use domain.event_dim or codomain.event_dim, which differ")
        return self.domain.event_dim

    @property
    def inv(self) -> Transform:
        """The inverse; its inverse is this transform."""
        inverse = None if self._inverse_transform is None else self._inverse_transform()
        if inverse is None:
            inverse = InverseTransform(self)
            self._inverse_transform = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Tensor | int:
        """1 if the function increases, -1 if it decreases."""
        raise NotSupported(f"{type(self).__name__} has no sign")

    def with_cache(self: _AnyTransform, cache_size: int = 1) -> _AnyTransform:
        """Return the transform with another `cache_size`.

        Args:
            cache_size: 0 or 1.

        Returns:
            This transform if it has that size, else a new one.

        Example:
            >>> wg.distributions.ExpTransform().with_cache(1)
            ExpTransform()
        """
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotSupported(f"{type(self).__name__} does not define with_cache")

    def __call__(self, x: Tensor) -> Tensor:
        last_x, last_y = self._last_pair
        if self._cache_size and x is last_x and last_y is not None:
            return last_y
        y = self._call(x)
        if self._cache_size:
            self._last_pair = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        last_x, last_y = self._last_pair
        if self._cache_size and y is last_y and last_x is not None:
            return last_x
        x = self._inverse(y)
        if self._cache_size:
            self._last_pair = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        """Return the function of `x`."""
        raise NotSupported(f"{type(self).__name__} has no forward function")

    def _inverse(self, y: Tensor) -> Tensor:
        """Return the argument that the function maps to `y`."""
        raise NotSupported(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the logarithm of the absolute determinant of the Jacobian.

        Args:
            x: Argument, of shape `(*batch, *event)`.
            y: The result for `x`.

        Returns:
            Tensor of shape `(*batch,)`.

        Raises:
            NotSupported: The transform is not bijective, or changes the number of elements.

        Example:
            >>> x = wg.tensor([0.0, 2.0])
            >>> wg.distributions.ExpTransform().log_abs_det_jacobian(x, x.exp())
            tensor([0., 2.])
        """
        raise NotSupported(f"{type(self).__name__} has no determinant")

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the result for an argument of a shape; the base class returns the same shape.

        Args:
            shape: Shape of an argument.

        Returns:
            Tuple of ints.

        Example:
            >>> wg.distributions.ReshapeTransform((6,), (2, 3)).forward_shape((4, 6))
            (4, 2, 3)
        """
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the argument for a result of a shape; the base class returns the same shape.

        Args:
            shape: Shape of a result.

        Returns:
            Tuple of ints.

        Example:
            >>> wg.distributions.ReshapeTransform((6,), (2, 3)).inverse_shape((4, 2, 3))
            (4, 6)
        """
        return tuple(shape)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class InverseTransform(Transform):
    """The inverse of a transform; `Transform.inv` returns it.

    Args:
        transform: The transform to invert.
    """

    def __init__(self, transform: Transform):
        super().__init__(cache_size=transform._cache_size)
        self._transform = transform

    @property
    def domain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return self._transform.codomain

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return self._transform.domain

    @property
    def bijective(self) -> bool:  # type: ignore[override]  # read-only here
        return self._transform.bijective

    @property
    def sign(self) -> Tensor | int:
        return self._transform.sign

    @property
    def inv(self) -> Transform:
        return self._transform

    def with_cache(self, cache_size: int = 1) -> Transform:  # type: ignore[override]  # the inverse of another class
        return self._transform.with_cache(cache_size).inv

    def __call__(self, x: Tensor) -> Tensor:
        return self._transform._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self._transform(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._transform.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._transform.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._transform.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InverseTransform) and self._transform == other._transform

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transform!r})"


class ComposeTransform(Transform):
    """Transforms that are applied one after the other.

    Args:
        parts: The transforms, in the order of their application.
        cache_size: See `Transform`; 1 gives it to each part.

    Example:
        >>> D = wg.distributions
        >>> chain = D.ComposeTransform([D.AffineTransform(1.0, 2.0), D.ExpTransform()])
        >>> chain(wg.tensor(0.0)), chain.log_abs_det_jacobian(wg.tensor(0.0), chain(wg.tensor(0.0)))
        (tensor(2.7183), tensor(1.6931))
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    @property
    def domain(self) -> Constraint:  # type: ignore[override]  # read-only here
        if not self.parts:
            return constraints.real
        event_dim = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            event_dim = max(event_dim + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        return _with_event_dim(self.parts[0].domain, event_dim)

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]  # read-only here
        if not self.parts:
            return constraints.real
        event_dim = self.parts[0].domain.event_dim
        for part in self.parts:
            event_dim = max(event_dim + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        return _with_event_dim(self.parts[-1].codomain, event_dim)

    @property
    def bijective(self) -> bool:  # type: ignore[override]  # read-only here
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Tensor | int:
        sign: Tensor | int = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Transform:
        inverse = None if self._inverse_transform is None else self._inverse_transform()
        if inverse is None:
            inverse = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inverse_transform = weakref.ref(inverse)
            inverse._inverse_transform = weakref.ref(self)
        return inverse

    def with_cache(self, cache_size: int = 1) -> ComposeTransform:
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return x * 0
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        event_dim = self.domain.event_dim
        total: Tensor | None = None
        for part, argument, result in zip(self.parts, values[:-1], values[1:], strict=True):
            term = sum_last_dims(part.log_abs_det_jacobian(argument, result), event_dim - part.domain.event_dim)
            total = term if total is None else total + term
            event_dim += part.codomain.event_dim - part.domain.event_dim
        assert total is not None
        return total

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return tuple(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts!r})"


identity_transform = ComposeTransform([])


def sum_last_dims(value: Tensor, count: int) -> Tensor:
    """Return the sum over the last `count` dimensions; the value itself for 0."""
    return value.sum(tuple(range(-count, 0))) if count else value


def _with_event_dim(constraint: Constraint, event_dim: int) -> Constraint:
    """Return the constraint for events of more dimensions."""
    extra = event_dim - constraint.event_dim
    return constraints.independent(constraint, extra) if extra else constraint
