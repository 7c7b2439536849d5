"""Transforms of random variables (`torch.distributions.transforms`).

The base class and chains are in `transform`; here are the functions of elements and of vectors. Those that take other
transforms, such as `IndependentTransform` and `StackTransform`, are in `structural_transforms`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .._generated import ops
from ..linear_algebra.factorizations import cholesky
from ..pointwise.type_info import finfo
from ..reductions.softmax import softmax
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from ..shape.broadcasting import broadcast_shapes
from ..shape.joining import cat
from . import constraints
from .constraints import Constraint
from .structural_transforms import (
    CatTransform,
    CumulativeDistributionTransform,
    IndependentTransform,
    ReshapeTransform,
    StackTransform,
)
from .transform import ComposeTransform, Transform, identity_transform, sum_last_dims

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CumulativeDistributionTransform",
    "ExpTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform",
    "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform",
    "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]  # fmt: skip

softplus = ops.softplus


class _StatelessTransform(Transform):
    """A transform without parameters: all instances are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


class ExpTransform(_StatelessTransform):
    """The function `exp(x)`.

    Example:
        >>> wg.distributions.ExpTransform()(wg.tensor(0.0))
        tensor(1.)
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """The function `x ** exponent` of positive numbers.

    Args:
        exponent: A number or a tensor.
        cache_size: See `Transform`.

    Example:
        >>> wg.distributions.PowerTransform(2.0)(wg.tensor(3.0))
        tensor(9.)
    """

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Tensor | float, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.exponent = exponent

    def with_cache(self, cache_size: int = 1) -> PowerTransform:
        return self if self._cache_size == cache_size else PowerTransform(self.exponent, cache_size=cache_size)

    @property
    def sign(self) -> Tensor | int:
        exponent = self.exponent
        return exponent.sign() if isinstance(exponent, Tensor) else (1 if exponent > 0 else -1)

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _broadcast(shape, self.exponent)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _broadcast(shape, self.exponent)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _equal(self.exponent, other.exponent)

    __hash__ = Transform.__hash__


class SigmoidTransform(_StatelessTransform):
    """The function `1 / (1 + exp(-x))`. Results are clamped to lie inside of (0, 1).

    Example:
        >>> wg.distributions.SigmoidTransform()(wg.tensor(0.0))
        tensor(0.5000)
    """

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        limits = finfo(x.dtype)
        return x.sigmoid().clamp(min=limits.tiny, max=1 - limits.eps / 2)

    def _inverse(self, y: Tensor) -> Tensor:
        limits = finfo(y.dtype)
        y = y.clamp(min=limits.tiny, max=1 - limits.eps / 2)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_StatelessTransform):
    """The function `log(1 + exp(x))`.

    Example:
        >>> wg.distributions.SoftplusTransform()(wg.tensor(0.0))
        tensor(0.6931)
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class TanhTransform(_StatelessTransform):
    """The function `tanh(x)`. Its inverse of ±1 is infinite: `cache_size=1` avoids it.

    Example:
        >>> wg.distributions.TanhTransform()(wg.tensor(0.0))
        tensor(0.)
    """

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * (math.log(2) - x - softplus(-2 * x))  # log(1 - tanh(x)**2) without cancellation


class AbsTransform(_StatelessTransform):
    """The function `|x|`. It is not bijective; its inverse returns the result itself.

    Example:
        >>> wg.distributions.AbsTransform()(wg.tensor(-2.0))
        tensor(2.)
    """

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """The function `loc + scale * x`.

    Args:
        loc: A number or a tensor.
        scale: A number or a tensor, not 0.
        event_dim: Number of last dimensions that count as one event.
        cache_size: See `Transform`.

    Example:
        >>> wg.distributions.AffineTransform(1.0, 2.0)(wg.tensor(3.0))
        tensor(7.)
    """

    bijective = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @property
    def domain(self) -> Constraint:  # type: ignore[override]  # read-only here
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    codomain = domain

    @property
    def sign(self) -> Tensor | int:
        scale = self.scale
        return scale.sign() if isinstance(scale, Tensor) else (scale > 0) - (scale < 0)

    def with_cache(self, cache_size: int = 1) -> AffineTransform:
        if self._cache_size == cache_size:
            return self
        return AffineTransform(self.loc, self.scale, self._event_dim, cache_size=cache_size)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale
        log_scale = scale.abs().log() if isinstance(scale, Tensor) else x.new_tensor(math.log(abs(scale)))
        return sum_last_dims(log_scale.expand(_broadcast(x.shape, log_scale)), self._event_dim)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _broadcast(shape, self.loc, self.scale)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _broadcast(shape, self.loc, self.scale)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and _equal(self.loc, other.loc) and _equal(self.scale, other.scale)

    __hash__ = Transform.__hash__


class SoftmaxTransform(_StatelessTransform):
    """The function `softmax(x)` of vectors. It is not bijective; its inverse returns logarithms.

    Example:
        >>> wg.distributions.SoftmaxTransform()(wg.zeros(2))
        tensor([0.5000, 0.5000])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _vector_shape(shape, "SoftmaxTransform", 0)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _vector_shape(shape, "SoftmaxTransform", 0)


class LowerCholeskyTransform(_StatelessTransform):
    """Take the lower triangle of square matrices, with the exponentials of the diagonal.

    Example:
        >>> wg.distributions.LowerCholeskyTransform()(wg.tensor([[0.0, 5.0], [3.0, 0.0]]))
        tensor([[1., 0.],
                [3., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_StatelessTransform):
    """Map square matrices to positive definite ones: the products `L @ L.mT` of `LowerCholeskyTransform`'s values L.

    Example:
        >>> wg.distributions.PositiveDefiniteTransform()(wg.tensor([[0.0, 5.0], [3.0, 0.0]]))
        tensor([[ 1.,  3.],
                [ 3., 10.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(cholesky(y))


class StickBreakingTransform(_StatelessTransform):
    """Map vectors of n numbers to n + 1 probabilities: each number decides which share of the rest to break off.

    Zeros give equal probabilities.

    Example:
        >>> wg.distributions.StickBreakingTransform()(wg.zeros(3))
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _log_shares(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logarithms of the shares that are broken off, and of the shares that remain, of shape `(*, n)`."""
        parts_left = x.new_tensor([float(n) for n in range(x.shape[-1], 0, -1)])
        logits = x - parts_left.log()
        return -softplus(-logits), -softplus(logits)

    def _call(self, x: Tensor) -> Tensor:
        log_share, log_rest = self._log_shares(x)
        zero = x.new_zeros((*x.shape[:-1], 1))
        log_stick = log_rest.cumsum(-1)
        return (cat([log_share, zero], -1) + cat([zero, log_stick], -1)).exp()

    def _inverse(self, y: Tensor) -> Tensor:
        leading = y[..., :-1]
        parts_left = y.new_tensor([float(n) for n in range(leading.shape[-1], 0, -1)])
        rest = (1 - leading.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return leading.log() - rest.log() + parts_left.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        log_share, log_rest = self._log_shares(x)
        # The stick before each break is the sum of its parts; the derivative of a share is share * (1 - share) * stick.
        log_stick = log_rest.cumsum(-1) - log_rest
        return (log_share + log_rest + log_stick).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _vector_shape(shape, "StickBreakingTransform", 1)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _vector_shape(shape, "StickBreakingTransform", -1)


def _vector_shape(shape: Sequence[int], where: str, difference: int) -> tuple[int, ...]:
    if not shape:
        raise ShapeError(f"{where}: takes vectors, not a tensor without dimensions")
    return (*shape[:-1], shape[-1] + difference)


def _broadcast(shape: Sequence[int], *parameters: Tensor | float) -> tuple[int, ...]:
    return tuple(broadcast_shapes(tuple(shape), *(tuple(p.shape) for p in parameters if isinstance(p, Tensor))))


def _equal(a: Tensor | float, b: Tensor | float) -> bool:
    return bool((a == b).all()) if isinstance(a, Tensor) else bool(a == b)
