"""The von Mises distribution of angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from .._generated.ops import i0e, i1e
from ..autograd.grad_mode import no_grad
from ..random import rand
from ..runtime.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .rejection import accept_first
from .utils import broadcast_all, sampling_dtype, uniform_inside

__all__ = ["VonMises"]


class VonMises(Distribution):
    """The von Mises distribution of angles x, with density proportional to `exp(concentration * cos(x - loc))`.

    Args:
        loc: Mean angle in radians.
        concentration: Inverse of the width, above 0.
        validate_args: See `Distribution`.

    Raises:
        DomainError: `concentration` is not positive.

    Example:
        >>> wg.distributions.VonMises(0.0, 1.0).log_prob(wg.tensor(0.0))
        tensor(-1.0738)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "concentration": constraints.positive}
    support: Constraint = constraints.real

    def __init__(self, loc: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """The mean angle."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance: 1 minus the mean of `cos(x - loc)`."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw samples from [-pi, pi) by the rejection of Best and Fisher (1979).

        Args:
            sample_shape: Shape of the samples of each distribution.

        Returns:
            Tensor of shape `(*sample_shape, *batch_shape)`.

        Example:
            >>> wg.distributions.VonMises(0.0, 1.0).sample((3,)).shape
            weftgrad.Size([3])
        """
        with no_grad():
            shape = self._extended_shape(sample_shape)
            k = self.concentration.to(sampling_dtype(self.concentration.dtype)).expand(shape)
            tau = 1 + (1 + 4 * k.square()).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            # For small k the quotient loses its digits, and r is 1 / k + k + O(k**3).
            r = ((1 + rho.square()) / (2 * rho)).where(k > 1e-2, 1 / k + k)

            def propose(k: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
                z = (math.pi * rand(tuple(k.shape), dtype=k.dtype, device=k.device)).cos()
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                u = uniform_inside(k.shape, k)
                is_accepted = (c * (2 - c) - u > 0) | ((c / u).log() + 1 - c >= 0)
                sign = (rand(tuple(k.shape), dtype=k.dtype, device=k.device) - 0.5).sign()
                return sign * f.clamp(min=-1, max=1).acos(), is_accepted

            angle = accept_first(propose, [k, r], k.isnan()) + self.loc
            return ((angle + math.pi) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        return k * ((value - self.loc).cos() - 1) - math.log(2 * math.pi) - i0e(k).log()

    def entropy(self) -> Tensor:
        k = self.concentration
        return math.log(2 * math.pi) + i0e(k).log() + k * (1 - i1e(k) / i0e(k))
