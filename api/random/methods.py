"""Methods of Tensor that fill it with random numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..autograd import no_grad
from ..runtime.device import meta
from ..runtime.dispatch import empty
from ..runtime.dtypes import float32, float64
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .distributions import bernoulli
from .drawing import fill_integers, fill_random, require_floating, to_probability, uniform_levels
from .generator import Generator

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object

__all__ = ["RandomMethods", "install"]


class RandomMethods(TensorBase):
    """In-place methods of `Tensor`, to which `install` copies them. `self` is a tensor of any shape and device."""

    def uniform_(
        self, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None, **named: float
    ) -> Tensor:
        """Fill with samples of the uniform distribution over [from, to).

        Args:
            from_: Lower bound, included.
            to: Upper bound, excluded.
            generator: Source of random numbers; None: the default generator.
            **named: `from=`: the lower bound.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If the lower bound is above the upper one.
            UnsupportedDType: If the dtype is not floating.

        Example:
            >>> x = wg.empty(3).uniform_(2, 3)
            >>> bool(((x >= 2) & (x < 3)).all())
            True
        """
        low, high = float(named.pop("from", from_)), float(to)
        if named:
            raise ArgumentError(f"uniform_() got an unexpected keyword argument {next(iter(named))!r}")
        if high < low:
            raise ArgumentError(f"uniform_: from {low} is above to {high}")
        require_floating(self, "uniform_")
        return fill_random("uniform_fill", self, (low, high, uniform_levels(self.meta.dtype)), generator, True)

    def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with samples of the normal distribution.

        Args:
            mean: Mean.
            std: Standard deviation.
            generator: Source of random numbers; None: the default generator.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If `std` is negative.
            UnsupportedDType: If the dtype is not floating.

        Example:
            >>> wg.empty(2).normal_(1.5, 0.0)
            tensor([1.5000, 1.5000])
        """
        if std < 0:
            raise ArgumentError(f"normal_: std must not be negative, got {std}")
        return fill_random("normal_fill", require_floating(self, "normal_"), (float(mean), float(std)), generator, True)

    def bernoulli_(self, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor:
        """Fill with 1 with probability `p`, else 0.

        Args:
            p: Number, or a tensor of probabilities that expands to this tensor's shape.
            generator: Source of random numbers; None: the default generator.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If `p`, or on `cpu` one of its elements, is not between 0 and 1.

        Example:
            >>> wg.empty(2).bernoulli_(wg.tensor([0.0, 1.0]))
            tensor([0., 1.])
        """
        if isinstance(p, Tensor):
            return self.copy_(bernoulli(p.expand(self.meta.shape), generator=generator))
        return fill_random("bernoulli_fill", self, (to_probability(p, "bernoulli_"),), generator, True)

    def exponential_(self, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with samples of the exponential distribution with mean 1 / lambd.

        Args:
            lambd: Rate, above 0.
            generator: Source of random numbers; None: the default generator.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If `lambd` is not positive.
            UnsupportedDType: If the dtype is not floating.

        Example:
            >>> bool((wg.empty(3).exponential_() >= 0).all())
            True
        """
        if not lambd > 0:
            raise ArgumentError(f"exponential_: lambd must be positive, got {lambd}")
        return fill_random("exponential_fill", require_floating(self, "exponential_"), (float(lambd),), generator, True)

    def cauchy_(self, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with samples of the Cauchy distribution.

        Args:
            median: Location of the peak.
            sigma: Half of the width at half of the peak's height, above 0.
            generator: Source of random numbers; None: the default generator.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If `sigma` is not positive.
            UnsupportedDType: If the dtype is not floating.

        Example:
            >>> bool(wg.empty(3).cauchy_().isfinite().all())
            True
        """
        if not sigma > 0:
            raise ArgumentError(f"cauchy_: sigma must be positive, got {sigma}")
        with no_grad():
            angles = _draw_uniform(self, "cauchy_", generator).sub_(0.5).mul_(math.pi)
            return self.copy_(angles.tan_().mul_(sigma).add_(median))

    def log_normal_(self, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with numbers whose logarithms have the normal distribution.

        Args:
            mean: Mean of the logarithms.
            std: Standard deviation of the logarithms, above 0.
            generator: Source of random numbers; None: the default generator.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If `std` is not positive.
            UnsupportedDType: If the dtype is not floating.

        Example:
            >>> bool((wg.empty(3).log_normal_() > 0).all())
            True
        """
        if not std > 0:
            raise ArgumentError(f"log_normal_: std must be positive, got {std}")
        with no_grad():
            return self.normal_(mean, std, generator=generator).exp_()

    def geometric_(self, p: float, *, generator: Generator | None = None) -> Tensor:
        """Fill with the number of trials up to the first success, which each trial has with probability `p`.

        Args:
            p: Probability, above 0 and below 1.
            generator: Source of random numbers; None: the default generator.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If `p` is not between 0 and 1.

        Example:
            >>> bool((wg.empty(3, dtype=wg.int64).geometric_(0.5) >= 1).all())
            True
        """
        if not 0 < p < 1:
            raise ArgumentError(f"geometric_: p must be between 0 and 1, got {p}")
        with no_grad():
            failures = _draw_uniform(self, "geometric_", generator).neg_().log1p_().div_(math.log1p(-p))
            return self.copy_(failures.floor_().add_(1))

    def random_(
        self, *bounds: int | None, to: int | None = None, generator: Generator | None = None, **named: int
    ) -> Tensor:
        """Fill with integers from [from, to).

        `random_(from, to)` has both bounds, `random_(to)` starts at 0, and `random_(from, None)` ends at the largest
        integer of the dtype, or the largest up to which a floating dtype has all integers; `random_()` does both.

        Args:
            bounds: At most two: the lower bound, included, and the upper one, excluded.
            to: Upper bound, instead of the last of `bounds`.
            generator: Source of random numbers; None: the default generator.
            **named: `from=`: the lower bound.

        Returns:
            This tensor.

        Raises:
            ArgumentError: A bound is no integer, the lower one is not below the upper one, or there are more than two.

        Example:
            >>> wg.empty(2).random_(3, 4)
            tensor([3., 3.])
        """
        dtype = self.meta.dtype
        if "from" in named:
            bounds = (named.pop("from"), *(bounds or (() if to is not None else (None,))))
        if named:
            raise ArgumentError(f"random_() got an unexpected keyword argument {next(iter(named))!r}")
        if to is not None:
            bounds = (*bounds, to)
        if len(bounds) > 2:
            raise ArgumentError(f"random_: takes two bounds at most, not {bounds}")
        low, high = bounds if len(bounds) == 2 else (0, *(bounds or (None,)))
        if high is None:
            bits = {"f": {"float64": 53, "float16": 11, "bfloat16": 8}.get(dtype.name, 24), "b": 1, "u": 8}
            high = (1 << bits.get(dtype.kind, 8 * dtype.itemsize - 1)) + (dtype.kind == "f")
        if low is None:
            raise ArgumentError("random_: the lower bound is an int, not None")
        return fill_integers(self, low, high, "random_", generator, True)


def _draw_uniform(like: Tensor, where: str, generator: Generator | None) -> Tensor:
    """Return samples from [0, 1) in the shape and on the device of a tensor: float64 for float64, else float32."""
    if where != "geometric_":
        require_floating(like, where)
    samples = empty(meta(float64 if like.meta.dtype is float64 else float32, like.meta.shape, None, like.meta.device))
    return fill_random("uniform_fill", samples, (0.0, 1.0, uniform_levels(samples.meta.dtype)), generator, False)


def install() -> None:
    """Add the in-place methods to `Tensor`."""
    for name, value in vars(RandomMethods).items():
        if not name.startswith("__"):
            setattr(Tensor, name, value)
