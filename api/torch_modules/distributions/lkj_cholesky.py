"""Correlation matrices: the distribution `LKJCholesky` of their factors, and a transform onto the factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from .._generated.ops import lgamma, softplus
from ..autograd.grad_mode import no_grad
from ..creation.factories import eye, ones_like, zeros
from ..creation.sequences import arange
from ..linear_algebra.triangles import tril_indices
from ..pointwise.special_functions import multigammaln
from ..pointwise.type_info import finfo
from ..random import randn
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ..shape.joining import cat
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .gamma import Beta
from .transform import Transform
from .utils import parameter_of

__all__ = ["CorrCholeskyTransform", "LKJCholesky"]


class LKJCholesky(Distribution):
    """The distribution of lower triangular factors L of correlation matrices, by Lewandowski, Kurowicka and Joe (2009).

    The density of `L @ L.mT` is proportional to its determinant to the power of `concentration - 1`. So with 1 all
    correlation matrices have the same density. Samples are drawn by the paper's onion method. PyTorch 2.13 has the same
    density, but its samples of three and more rows do not follow it.

    Args:
        dim: Number of rows D, at least 2.
        concentration: A positive number, or a tensor of shape `(*batch,)`.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: `dim` is below 2.
        DomainError: `concentration` is not positive.

    Example:
        >>> d = wg.distributions.LKJCholesky(2, 1.0)  # the correlation is uniform between -1 and 1
        >>> d.log_prob(wg.eye(2)), d.sample((5,)).shape
        (tensor(-0.6931), weftgrad.Size([5, 2, 2]))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"concentration": constraints.positive}
    support: Constraint = constraints.corr_cholesky
    _extra_attributes = ("dim",)

    def __init__(self, dim: int, concentration: Tensor | float = 1.0, validate_args: bool | None = None):
        if dim < 2:
            raise ArgumentError(f"LKJCholesky: dim is at least 2, not {dim}")
        self.dim = dim
        self.concentration = parameter_of(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args=validate_args)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            dtype, device = self.concentration.dtype, self.concentration.device
            # Row k has k elements before the diagonal, on a sphere in k dimensions. Row 0 has none.
            count = arange(self.dim, dtype=dtype, device=device).clamp(min=1)
            beta = self.concentration.unsqueeze(-1) + 0.5 * (self.dim - 1 - count)
            squared_radius = Beta(0.5 * count, beta).sample(sample_shape).unsqueeze(-1)
            normal = randn(self._extended_shape(sample_shape), dtype=dtype, device=device).tril(-1)
            tiny = finfo(dtype).tiny
            direction = normal / normal.norm(dim=-1, keepdim=True).clamp(min=tiny)
            rows = squared_radius.sqrt() * direction
            return rows + (1 - rows.square().sum(-1)).clamp(min=tiny).sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        dtype, device = self.concentration.dtype, self.concentration.device
        # The Jacobian of L -> L @ L.mT is the product of L[i, i] ** (D - i).
        exponents = self.dim - arange(2, self.dim + 1, dtype=dtype, device=device)
        exponents = 2 * (self.concentration.unsqueeze(-1) - 1) + exponents
        log_density = (exponents * value.diagonal(dim1=-2, dim2=-1)[..., 1:].log()).sum(-1)
        count = self.dim - 1
        alpha = self.concentration + 0.5 * count
        log_norm = multigammaln(alpha - 0.5, count) - lgamma(alpha) * count + 0.5 * count * math.log(math.pi)
        return log_density - log_norm


class CorrCholeskyTransform(Transform):
    """Map vectors of `D * (D - 1) / 2` numbers to factors of correlation matrices, of shape `(D, D)`.

    The hyperbolic tangents of the numbers, row by row, are partial correlations. Each breaks a share off the squared
    length of its row, which is 1.

    Example:
        >>> wg.distributions.CorrCholeskyTransform()(wg.zeros(3))
        tensor([[1., 0., 0.],
                [0., 1., 0.],
                [0., 0., 1.]])
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = finfo(x.dtype).eps
        size = _matrix_size(x.shape)
        partial = zeros((*x.shape[:-1], size, size), dtype=x.dtype, device=x.device)
        rows, columns = tril_indices(size, size, offset=-1, device=x.device)
        partial[..., rows, columns] = x.tanh().clamp(min=-1 + eps, max=1 - eps)
        remaining_length = (1 - partial.square()).sqrt().cumprod(-1)
        return (partial + eye(size, dtype=x.dtype, device=x.device)) * _shift_right(remaining_length)

    def _inverse(self, y: Tensor) -> Tensor:
        remaining = _shift_right(1 - y.square().cumsum(-1))
        rows, columns = tril_indices(y.shape[-1], y.shape[-1], offset=-1, device=y.device)
        partial = y[..., rows, columns] / remaining[..., rows, columns].sqrt()
        return (partial.log1p() - (-partial).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the logarithm of the Jacobian's determinant, of `x` to the elements of `y` below the diagonal."""
        rows, columns = tril_indices(y.shape[-1], y.shape[-1], offset=-2, device=y.device)
        remaining = (1 - y.square().cumsum(-1))[..., rows, columns]
        of_tanh = -2 * (x + softplus(-2 * x) - math.log(2)).sum(-1)
        return 0.5 * remaining.log().sum(-1) + of_tanh

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        size = _matrix_size(shape)
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ShapeError(f"CorrCholeskyTransform: the inverse takes square matrices, not shape {list(shape)}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


def _matrix_size(shape: Sequence[int]) -> int:
    """Return D for vectors of `D * (D - 1) / 2` elements."""
    count = shape[-1] if shape else -1
    size = round((0.25 + 2 * max(count, 0)) ** 0.5 + 0.5)
    if size * (size - 1) // 2 != count:
        raise ShapeError(f"CorrCholeskyTransform: takes vectors of D * (D - 1) / 2 elements, not shape {list(shape)}")
    return size


def _shift_right(tensor: Tensor) -> Tensor:
    """Return `tensor` without its last column, after a column of ones."""
    return cat([ones_like(tensor[..., :1]), tensor[..., :-1]], -1)
