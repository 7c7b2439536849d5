"""Ready-made parametrizations: weight normalization, spectral normalization, orthogonal weights."""

from __future__ import annotations

from ..._generated import ops
from ...autograd import no_grad
from ...runtime.errors import ArgumentError, IndexOutOfRange
from ...runtime.tensor import Tensor
from ..functional import normalize
from ..module import Module
from ._orthogonal import MAPS, Orthogonal
from .parametrize import register_parametrization
from .spectral_norm import default_output_dim, random_unit_vector, weight_as_matrix
from .weight_norm import apply_weight_norm, norm_except_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return apply_weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return (norm, direction) of a weight."""
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn a weight as w = g v / ||v|| (Salimans and Kingma 2016, arXiv 1602.07868).

    g is `parametrizations.NAME.original0` and v is `original1`. State dicts of `nn.utils.weight_norm` can be loaded.

    Args:
        module: The module.
        name: Its parameter.
        dim: Dimension along which g has one norm per index; None for a single norm.

    Returns:
        The module.

    Raises:
        ArgumentError: If the module has no parameter or buffer `name`.

    Example:
        >>> from weftgrad.nn.utils import parametrizations
        >>> layer = parametrizations.weight_norm(wg.nn.Linear(2, 3))
        >>> layer.parametrizations.weight.original0.shape
        weftgrad.Size([3, 1])
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: dict[str, object], prefix: str, *_: object) -> None:
        old_keys = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if all(key in state_dict for key in old_keys):
            for index, key in enumerate(old_keys):
                state_dict[f"{prefix}parametrizations.{name}.original{index}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12):
        super().__init__()
        ndim = weight.meta.ndim
        if not -ndim <= dim < ndim:
            raise IndexOutOfRange(f"spectral_norm: dimension {dim} of a weight that has {ndim}")
        if n_power_iterations <= 0:
            raise ArgumentError(f"spectral_norm: n_power_iterations must be positive, not {n_power_iterations}")
        self.dim = dim % ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            with no_grad():
                matrix = weight_as_matrix(weight, self.dim)
                height, width = matrix.meta.shape
                self.register_buffer("_u", random_unit_vector(height, matrix, eps))
                self.register_buffer("_v", random_unit_vector(width, matrix, eps))
            self._power_method(matrix, 15)

    def _power_method(self, matrix: Tensor, count: int) -> None:
        with no_grad():
            for _ in range(count):
                self._u.copy_(normalize(matrix.mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.meta.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = weight_as_matrix(weight, self.dim)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # backward needs these values, and the next call overwrites the buffers
        return ops.true_divide(weight, u.dot(matrix.mv(v)))

    def right_inverse(self, value: Tensor) -> Tensor:
        """Return the value itself, whatever its norm is."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value (Miyato et al. 2018, arXiv 1802.05957).

    The singular value is estimated by power iteration, which runs in training mode. A vector is divided by its norm.

    Args:
        module: The module.
        name: Its parameter.
        n_power_iterations: Iterations per forward.
        eps: Smallest norm to divide by.
        dim: Output dimension; all others are flattened. None means 1 for transposed convolutions, otherwise 0.

    Returns:
        The module.

    Raises:
        ArgumentError: If the module has no tensor `name`, or `n_power_iterations` is not positive.
        IndexOutOfRange: If the tensor has no dimension `dim`.

    Example:
        >>> from weftgrad.nn.utils import parametrizations
        >>> layer = parametrizations.spectral_norm(wg.nn.Linear(2, 2))
        >>> [name for name, _ in layer.named_parameters()]
        ['bias', 'parametrizations.weight.original']
    """
    weight = _get_tensor(module, name, "spectral_norm")
    parametrization = _SpectralNorm(weight, n_power_iterations, default_output_dim(module, dim), eps)
    return register_parametrization(module, name, parametrization)


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keep the columns of a matrix (rows if it is wide) orthonormal.

    Args:
        module: The module.
        name: Its parameter, a matrix or a batch of matrices.
        orthogonal_map: `"matrix_exp"` (default for square matrices), `"householder"` (default for others) or
            `"cayley"`.
        use_trivialization: Apply the map around the current value (Lezcano-Casado 2019, arXiv 1909.09501); False
            applies it around the identity.

    Returns:
        The module.

    Raises:
        ArgumentError: If the parameter has fewer than 2 dimensions, or the map is unknown.

    Example:
        >>> from weftgrad.nn.utils import parametrizations
        >>> weight = parametrizations.orthogonal(wg.nn.Linear(2, 3)).weight
        >>> wg.allclose(weight.T @ weight, wg.eye(2), atol=1e-5)
        True
    """
    weight = _get_tensor(module, name, "orthogonal")
    if weight.meta.ndim < 2:
        raise ArgumentError(f"orthogonal: {name!r} must be a matrix or a batch of them, not {list(weight.meta.shape)}")
    is_square = weight.meta.shape[-2] == weight.meta.shape[-1]
    map_name = orthogonal_map or ("matrix_exp" if is_square else "householder")
    if map_name not in MAPS:
        raise ArgumentError(f"orthogonal: orthogonal_map is one of {', '.join(MAPS)}, not {orthogonal_map!r}")
    return register_parametrization(module, name, Orthogonal(weight, map_name, use_trivialization), unsafe=True)


def _get_tensor(module: Module, name: str, caller: str) -> Tensor:
    tensor = getattr(module, name, None)
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"{caller}: {type(module).__name__} has no parameter or buffer {name!r}")
    return tensor
