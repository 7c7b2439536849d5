"""Normal vectors whose elements are correlated: `MultivariateNormal` and `LowRankMultivariateNormal`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from ..creation.factories import eye
from ..linear_algebra.factorizations import cholesky
from ..linear_algebra.solving import cholesky_inverse, solve_triangular
from ..random import randn
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ..shape.broadcasting import broadcast_shapes, broadcast_tensors
from ..shape.reshaping import flip
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .utils import lazy_property

__all__ = [
    "LowRankMultivariateNormal", "MultivariateNormal", "factor_precision", "half_log_det", "squared_mahalanobis",
]  # fmt: skip

_LOG_2PI = math.log(2 * math.pi)


def half_log_det(scale_tril: Tensor) -> Tensor:
    """Return half the logarithm of the determinant of `scale_tril @ scale_tril.mT`.

    Args:
        scale_tril: Lower triangular matrices of shape `(*batch, N, N)` with a positive diagonal.

    Returns:
        Tensor of shape `(*batch,)`.
    """
    return scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def squared_mahalanobis(scale_tril: Tensor, difference: Tensor) -> Tensor:
    """Return `x^T (L L^T)^-1 x` for vectors x. Vectors that share L are columns of one triangular system.

    Args:
        scale_tril: Lower triangular matrices L of shape `(*batch, N, N)`.
        difference: Vectors of shape `(*samples, *full_batch, N)`; `batch` broadcasts to `full_batch` of as many
            dimensions.

    Returns:
        Tensor of shape `(*samples, *full_batch)`.
    """
    leading_shape = difference.shape[:-1]
    batch_ndim = scale_tril.ndim - 2
    batch_shape = leading_shape[len(leading_shape) - batch_ndim :]
    count = math.prod(leading_shape[: len(leading_shape) - batch_ndim])
    columns = difference.reshape((count, *batch_shape, difference.shape[-1])).movedim(0, -1)
    solution = solve_triangular(scale_tril, columns, upper=False)
    return solution.square().sum(-2).movedim(-1, 0).reshape(tuple(leading_shape))


def factor_precision(precision: Tensor) -> Tensor:
    """Return the lower triangular L with `L @ L.mT == inv(precision)`.

    The Cholesky factor of the matrix with rows and columns in reverse order gives `precision = U @ U.mT` with an upper
    triangular U, and L is the inverse of `U.mT`.

    Args:
        precision: Positive definite matrices of shape `(*batch, N, N)`.

    Returns:
        Tensor of shape `(*batch, N, N)`.
    """
    upper = flip(cholesky(flip(precision, (-2, -1))), (-2, -1))
    identity = eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return solve_triangular(upper.mT, identity, upper=False)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors, with a mean and a covariance matrix.

    Exactly one of the three matrices is given. `scale_tril` is the fastest: of the others its factor is computed first.

    Args:
        loc: Mean vectors of shape `(*batch, N)`.
        covariance_matrix: Positive definite matrices of shape `(*batch, N, N)`.
        precision_matrix: Inverses of covariance matrices, of shape `(*batch, N, N)`.
        scale_tril: Lower triangular matrices L with a positive diagonal, whose covariance is `L @ L.mT`.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: `loc` or the matrix has too few dimensions, or not exactly one matrix is given.
        DomainError: The matrix is not positive definite, or not lower triangular.
        ShapeError: The shapes do not broadcast.

    Example:
        >>> covariance = wg.tensor([[4.0, 2.0], [2.0, 3.0]])
        >>> d = wg.distributions.MultivariateNormal(wg.zeros(2), covariance)
        >>> d.log_prob(wg.zeros(2)), d.variance, d.sample((5,)).shape
        (tensor(-2.8776), tensor([4., 3.]), weftgrad.Size([5, 2]))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip
    support: Constraint = constraints.real_vector
    has_rsample = True
    _extra_attributes = ("_unbroadcasted_scale_tril",)

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None, validate_args: bool | None = None,
    ):  # fmt: skip
        if loc.ndim < 1:
            raise ArgumentError("MultivariateNormal: loc has at least one dimension")
        name, matrix = only_matrix("MultivariateNormal", covariance_matrix, precision_matrix, scale_tril)
        batch_shape = broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = factor_of(name, matrix)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangular factor of the covariance."""
        return self._expand_matrix(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix."""
        return self._expand_matrix(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        return self._expand_matrix(cholesky_inverse(self._unbroadcasted_scale_tril))

    def _expand_matrix(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.square().sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self._unbroadcasted_scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        scale_tril = self._unbroadcasted_scale_tril
        distance = squared_mahalanobis(scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * _LOG_2PI + distance) - half_log_det(scale_tril)

    def entropy(self) -> Tensor:
        entropy = 0.5 * self._event_shape[0] * (1.0 + _LOG_2PI) + half_log_det(self._unbroadcasted_scale_tril)
        return entropy.expand(self._batch_shape)


def only_matrix(
    title: str, covariance_matrix: Tensor | None, precision_matrix: Tensor | None, scale_tril: Tensor | None
) -> tuple[str, Tensor]:
    """Return name and value of the one matrix that is not None.

    Raises:
        ArgumentError: Not exactly one matrix is given, or it has fewer than two dimensions.
    """
    options = {
        "covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril,
    }  # fmt: skip
    matrices = [(name, value) for name, value in options.items() if value is not None]
    if len(matrices) != 1:
        raise ArgumentError(f"{title}: takes exactly one of covariance_matrix, precision_matrix and scale_tril")
    name, matrix = matrices[0]
    if matrix.ndim < 2:
        raise ArgumentError(f"{title}: {name} has at least two dimensions, not shape {list(matrix.shape)}")
    return name, matrix


def factor_of(name: str, matrix: Tensor) -> Tensor:
    """Return the lower triangular factor of the covariance, computed from the matrix called `name`."""
    if name == "scale_tril":
        return matrix
    return cholesky(matrix) if name == "covariance_matrix" else factor_precision(matrix)


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with covariance `cov_factor @ cov_factor.mT + diag(cov_diag)`.

    Densities need factors of `(R, R)` matrices only, by Woodbury's identity and the matrix determinant lemma.

    Args:
        loc: Mean vectors of shape `(*batch, N)`.
        cov_factor: Matrices of shape `(*batch, N, R)`.
        cov_diag: Positive vectors of shape `(*batch, N)`.
        validate_args: See `Distribution`.

    Raises:
        ArgumentError: A parameter has too few dimensions, or the shapes do not fit.
        DomainError: An element of `cov_diag` is not positive.

    Example:
        >>> d = wg.distributions.LowRankMultivariateNormal(wg.zeros(2), wg.tensor([[1.0], [2.0]]), wg.ones(2))
        >>> d.covariance_matrix
        tensor([[2., 2.],
                [2., 5.]])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }  # fmt: skip
    support: Constraint = constraints.real_vector
    has_rsample = True
    _extra_attributes = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None):
        shapes = f"loc {list(loc.shape)}, cov_factor {list(cov_factor.shape)}, cov_diag {list(cov_diag.shape)}"
        if loc.ndim < 1 or cov_factor.ndim < 2 or cov_diag.ndim < 1:
            raise ArgumentError(f"LowRankMultivariateNormal: a parameter has too few dimensions: {shapes}")
        if not loc.shape[-1] == cov_factor.shape[-2] == cov_diag.shape[-1]:
            raise ArgumentError(f"LowRankMultivariateNormal: the sizes of events differ: {shapes}")
        try:
            loc_columns, self.cov_factor, diag_columns = broadcast_tensors(
                loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1)
            )
        except ShapeError:
            raise ArgumentError(f"LowRankMultivariateNormal: the batch shapes do not broadcast: {shapes}") from None
        self.loc, self.cov_diag = loc_columns[..., 0], diag_columns[..., 0]
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        super().__init__(self.loc.shape[:-1], self.loc.shape[-1:], validate_args=validate_args)
        identity = eye(cov_factor.shape[-1], dtype=cov_factor.dtype, device=cov_factor.device)
        self._capacitance_tril = cholesky(self._scaled_factor() @ cov_factor + identity)

    def _scaled_factor(self) -> Tensor:
        """Return `cov_factor.mT @ inv(diag(cov_diag))`."""
        return self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)

    def whitened_factor(self) -> Tensor:
        """Return A of shape `(*batch, R, N)` with `inv(covariance) == inv(diag(cov_diag)) - A.mT @ A`."""
        return solve_triangular(self._capacitance_tril, self._scaled_factor(), upper=False)

    def squared_distance(self, difference: Tensor) -> Tensor:
        """Return `x^T inv(covariance) x` of vectors x, of shape `(*samples, *batch, N)`."""
        projection = (self._scaled_factor() @ difference.unsqueeze(-1)).squeeze(-1)
        by_diagonal = (difference.square() / self._unbroadcasted_cov_diag).sum(-1)
        return by_diagonal - squared_mahalanobis(self._capacitance_tril, projection)

    def log_det(self) -> Tensor:
        """Return the logarithm of the covariance's determinant."""
        return 2 * half_log_det(self._capacitance_tril) + self._unbroadcasted_cov_diag.log().sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The variance of each element, of shape `(*batch_shape, *event_shape)`."""
        variance = self._unbroadcasted_cov_factor.square().sum(-1) + self._unbroadcasted_cov_diag
        return variance.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangular factor of the covariance."""
        # The matrix I + D^-1/2 W W^T D^-1/2 has no eigenvalue below 1, so that its factor is accurate.
        deviations = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / deviations
        identity = eye(self._event_shape[0], dtype=scaled.dtype, device=scaled.device)
        return self._expand_matrix(deviations * cholesky(scaled @ scaled.mT + identity))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix."""
        factor = self._unbroadcasted_cov_factor
        return self._expand_matrix(factor @ factor.mT + self._unbroadcasted_cov_diag.diag_embed())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        whitened = self.whitened_factor()
        return self._expand_matrix(self._unbroadcasted_cov_diag.reciprocal().diag_embed() - whitened.mT @ whitened)

    def _expand_matrix(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        factor = self._unbroadcasted_cov_factor
        common_noise = randn((*shape[:-1], factor.shape[-1], 1), dtype=self.loc.dtype, device=self.loc.device)
        own_noise = randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (factor @ common_noise).squeeze(-1) + self._unbroadcasted_cov_diag.sqrt() * own_noise

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = self.squared_distance(value - self.loc)
        return -0.5 * (self._event_shape[0] * _LOG_2PI + self.log_det() + distance)

    def entropy(self) -> Tensor:
        entropy = 0.5 * (self._event_shape[0] * (1.0 + _LOG_2PI) + self.log_det())
        return entropy.expand(self._batch_shape)
