"""The Kullback-Leibler divergence of two distributions: `kl_divergence`, and `register_kl` for pairs of your own.

`same_family_divergences` and `mixed_divergences` register the pairs that have formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..runtime.errors import ArgumentError, NotSupported
from ..runtime.tensor import Tensor
from .distribution import Distribution

__all__ = ["kl_divergence", "register_kl"]

_Divergence = TypeVar("_Divergence", bound=Callable[[Any, Any], Tensor])

_registered: dict[tuple[type[Distribution], type[Distribution]], Callable[[Any, Any], Tensor]] = {}
_resolved: dict[tuple[type[Distribution], type[Distribution]], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[_Divergence], _Divergence]:
    """Register a function for the divergences of two classes of distributions, and of their subclasses; a decorator.

    For subclasses the function of the nearest classes is used: nearest to the first class, then to the second.

    Args:
        type_p: Class of the first distribution.
        type_q: Class of the second distribution.

    Returns:
        A decorator of functions that take two distributions and return a tensor of their batch shape.

    Raises:
        ArgumentError: An argument is no subclass of `Distribution`.

    Example:
        >>> class Coin(wg.distributions.Bernoulli):
        ...     pass
        ...
        >>> @wg.distributions.register_kl(Coin, Coin)
        ... def kl_of_coins(p, q):
        ...     return wg.tensor(0.0)
        ...
        >>> wg.distributions.kl_divergence(Coin(0.5), Coin(0.5))
        tensor(0.)
    """
    for argument in (type_p, type_q):
        if not (isinstance(argument, type) and issubclass(argument, Distribution)):
            raise ArgumentError(f"register_kl: takes subclasses of Distribution, not {argument!r}")

    def decorator(function: _Divergence) -> _Divergence:
        _registered[type_p, type_q] = function
        _resolved.clear()
        return function

    return decorator


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Return the Kullback-Leibler divergence: the mean of `p.log_prob(x) - q.log_prob(x)` over samples x of `p`.

    Args:
        p: A distribution.
        q: A distribution whose batch shape broadcasts with that of `p`.

    Returns:
        Tensor of the broadcast batch shape, with gradients with respect to the parameters of both.

    Raises:
        NotSupported: There is no formula for the two classes.

    Example:
        >>> D = wg.distributions
        >>> D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(1.0, 1.0))
        tensor(0.5000)
    """
    pair = type(p), type(q)
    function = _resolved.get(pair)
    if function is None:
        function = _resolved[pair] = _nearest(*pair)
    return function(p, q)


def _nearest(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[Any, Any], Tensor]:
    """Return the function that is registered for the nearest classes."""
    for class_p in type_p.__mro__:
        for class_q in type_q.__mro__:
            if (class_p, class_q) in _registered:
                return _registered[class_p, class_q]
    raise NotSupported(f"kl_divergence: there is no formula for {type_p.__name__} and {type_q.__name__}")
