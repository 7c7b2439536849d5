"""The Wishart distribution of positive definite matrices, and the divergence of two such distributions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

from .._generated.ops import digamma
from ..creation.from_data import tensor
from ..creation.sequences import arange
from ..linear_algebra.determinants import slogdet
from ..linear_algebra.solving import cholesky_inverse, cholesky_solve, solve_triangular
from ..pointwise.comparison import where
from ..pointwise.special_functions import multigammaln
from ..pointwise.type_info import finfo
from ..random import randn
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..shape.broadcasting import broadcast_shapes
from . import constraints
from .constraints import Constraint
from .distribution import ExponentialFamily
from .gamma import Chi2
from .kl import register_kl
from .multivariate_normal import factor_of, half_log_det, only_matrix
from .utils import lazy_property

__all__ = ["Wishart"]

_LOG_2 = math.log(2)


class Wishart(ExponentialFamily):
    """The distribution of `X.mT @ X`, where X has `df` rows, independent normal vectors with mean 0 and one covariance.

    Pass exactly one of the three matrices. `df` need not be an integer. Samples are computed from a random triangular
    factor (Bartlett's decomposition).

    Args:
        df: Degrees of freedom, above N - 1: a number, or a tensor of shape `(*batch,)`.
        covariance_matrix: Positive definite matrices of shape `(*batch, N, N)`.
        precision_matrix: Inverses of the covariance matrices, of shape `(*batch, N, N)`.
        scale_tril: Lower triangular matrices L of shape `(*batch, N, N)` with a positive diagonal. The covariance is
            `L @ L.mT`.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: Not exactly one matrix is given, it has too few dimensions, or `df` is too small.
        DomainError: The matrix is not positive definite, or not lower triangular.

    Example:
        >>> d = wg.distributions.Wishart(4.0, scale_tril=wg.eye(2))
        >>> d.mean, d.log_prob(wg.eye(2)), d.sample((5,)).shape
        (tensor([[4., 0.],
                [0., 4.]]), tensor(-4.2242), weftgrad.Size([5, 2, 2]))
    """

    support: Constraint = constraints.positive_definite
    has_rsample = True
    _extra_attributes = ("_unbroadcasted_scale_tril",)

    @property
    def arg_constraints(self) -> dict[str, Constraint]:  # type: ignore[override]  # depends on N
        """The constraint of each parameter."""
        return {
            "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self.event_shape[-1] - 1),
        }  # fmt: skip

    def __init__(
        self, df: Tensor | float, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None, validate_args: bool | None = None,
    ):  # fmt: skip
        name, matrix = only_matrix("Wishart", covariance_matrix, precision_matrix, scale_tril)
        if not isinstance(df, Tensor):
            df = tensor(float(df), dtype=matrix.dtype, device=matrix.device)
        batch_shape = broadcast_shapes(tuple(matrix.shape[:-2]), tuple(df.shape))
        self.df = df.expand(batch_shape)
        size = matrix.shape[-1]
        if bool((self.df <= size - 1).any()):
            raise ArgumentError(f"Wishart: df is above {size - 1} for matrices of size {size}, not {df}")
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        if bool((self.df < size).any()):
            warnings.warn("Wishart: df is below the size of the matrices, so samples may be singular", stacklevel=2)
        super().__init__(batch_shape, matrix.shape[-2:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = factor_of(name, matrix)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangular factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix."""
        covariance = self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT
        return covariance.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        return cholesky_inverse(self._unbroadcasted_scale_tril).expand(self._batch_shape + self._event_shape)

    @property
    def mean(self) -> Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        multiple = self.df - self._event_shape[-1] - 1  # of the covariance
        return multiple.masked_fill(multiple <= 0, math.nan)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        return self.df[..., None, None] * (covariance.square() + diagonal[..., :, None] * diagonal[..., None, :])

    def _draw(self, sample_shape: Sequence[int]) -> Tensor:
        """Draw samples. Some may be singular by rounding.

        Bartlett's factor is lower triangular: normal below the diagonal, and on it the root of a chi-squared variable
        with `df - i` degrees of freedom in row i.
        """
        shape = self._extended_shape(sample_shape)
        chi_squares = Chi2(self.df.unsqueeze(-1) - arange(shape[-1], dtype=self.df.dtype, device=self.df.device))
        diagonal = chi_squares.rsample(sample_shape).sqrt().clamp(min=finfo(self.df.dtype).eps)
        bartlett = randn(shape, dtype=self.df.dtype, device=self.df.device).tril(-1) + diagonal.diag_embed()
        factor = self._unbroadcasted_scale_tril @ bartlett
        return factor @ factor.mT

    def rsample(self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None) -> Tensor:
        """Draw samples that have gradients with respect to the parameters.

        Samples that are singular by rounding are drawn again.

        Args:
            sample_shape: Shape of the samples of each distribution.
            max_try_correction: How many times to draw singular samples again; None: 10.

        Returns:
            Tensor of shape `(*sample_shape, *batch_shape, N, N)`. If samples are still singular, there is a warning.

        Example:
            >>> wg.distributions.Wishart(5.0, wg.eye(3)).rsample((2,)).shape
            weftgrad.Size([2, 3, 3])
        """
        sample = self._draw(sample_shape)
        is_singular = self.support.check(sample).logical_not()
        for _ in range(10 if max_try_correction is None else max_try_correction):
            if not bool(is_singular.any()):
                return sample
            sample = where(is_singular[..., None, None], self._draw(sample_shape), sample)
            is_singular = self.support.check(sample).logical_not()
        if bool(is_singular.any()):
            warnings.warn("Wishart: some samples are singular", stacklevel=2)
        return sample

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        size, factor = self._event_shape[-1], self._unbroadcasted_scale_tril
        trace = cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        log_norm = self.df * (size * _LOG_2 / 2 + half_log_det(factor)) + multigammaln(self.df / 2, size)
        return (self.df - size - 1) / 2 * slogdet(value).logabsdet - trace / 2 - log_norm

    def entropy(self) -> Tensor:
        size = self._event_shape[-1]
        covariance_terms = (size + 1) * (size * _LOG_2 / 2 + half_log_det(self._unbroadcasted_scale_tril))
        df_terms = multigammaln(self.df / 2, size) - (self.df - size - 1) / 2 * _multivariate_digamma(self.df / 2, size)
        return covariance_terms + df_terms + self.df * size / 2

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        negative_half_precision, exponent = natural_params
        size = self._event_shape[-1]
        half_df = exponent + (size + 1) / 2
        return half_df * (_LOG_2 * size - slogdet(-2 * negative_half_precision).logabsdet) + multigammaln(half_df, size)


def _multivariate_digamma(x: Tensor, size: int) -> Tensor:
    """Return the derivative of `multigammaln(x, size)`."""
    return digamma(x.unsqueeze(-1) - arange(size, dtype=x.dtype, device=x.device) / 2).sum(-1)


@register_kl(Wishart, Wishart)
def _wishart(p: Wishart, q: Wishart) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ArgumentError(f"kl_divergence: matrices have one size, not {p.event_shape[-1]} and {q.event_shape[-1]}")
    size, p_factor, q_factor = p.event_shape[-1], p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    trace = solve_triangular(q_factor, p_factor, upper=False).square().sum((-2, -1))
    covariance_terms = q.df * (half_log_det(q_factor) - half_log_det(p_factor)) + p.df / 2 * (trace - size)
    df_terms = multigammaln(q.df / 2, size) - multigammaln(p.df / 2, size)
    return covariance_terms + df_terms + (p.df - q.df) / 2 * _multivariate_digamma(p.df / 2, size)
