"""Ready-made parametrizations: weights of a length and a direction, of spectral norm 1, with orthogonal columns."""

from __future__ import annotations

from typing import Any

from ..._generated import ops
from ...autograd import no_grad
from ...runtime.errors import ArgumentError, IndexOutOfRange
from ...runtime.tensor import Tensor
from ..functional import normalize
from ..module import Module
from ._orthogonal import MAPS, Orthogonal
from .parametrize import register_parametrization
from .spectral_norm import first_dim, matrix_of, unit
from .weight_norm import norm_except_dim, normed

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return normed(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Any) -> Any:
        """The length and the direction of a weight."""
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn a weight as w = g v / ||v|| (Salimans and Kingma 2016). Returns the module.

    g (`parametrizations.NAME.original0`) has a length for each position of `dim`, one for None; v (`original1`) has the
    weight's shape. State dicts of `nn.utils.weight_norm` are loaded too.
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: Any, prefix: str, *_: Any) -> None:
        old = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if all(key in state_dict for key in old):
            for number, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{number}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    def __init__(self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12):
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
                matrix = matrix_of(weight, self.dim)
                height, width = matrix.meta.shape
                self.register_buffer("_u", unit(height, matrix, eps))
                self.register_buffer("_v", unit(width, matrix, eps))
            self._power_method(matrix, 15)

    def _power_method(self, matrix: Any, count: int) -> None:
        with no_grad():
            for _ in range(count):
                self._u.copy_(normalize(matrix.mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Any) -> Any:
        if weight.meta.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = matrix_of(weight, self.dim)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the next call writes the buffers, and backward reads these
        return ops.true_divide(weight, u.dot(matrix.mv(v)))

    def right_inverse(self, value: Any) -> Any:
        """The value: its norm may be anything."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value, found by power iteration in training (Miyato et al. 2018).

    dim: the dimension of outputs (default: 1 for transposed convolutions, else 0); all others count as one. A vector is
    divided by its length. Returns the module.
    """
    weight = _tensor(module, name, "spectral_norm")
    made = _SpectralNorm(weight, n_power_iterations, first_dim(module, dim), eps)
    return register_parametrization(module, name, made)


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keep a matrix's columns (rows, if it is wide) orthonormal. Returns the module.

    orthogonal_map: `matrix_exp` (default for square ones), `householder` (default for others) or `cayley`.
    use_trivialization: the map is applied around the present value, which it then starts at (Lezcano-Casado 2019); else
    around the identity. Raises `ArgumentError` for no matrix.
    """
    weight = _tensor(module, name, "orthogonal")
    if weight.meta.ndim < 2:
        raise ArgumentError(f"orthogonal: {name!r} must be a matrix or a batch of them, not {list(weight.meta.shape)}")
    square = weight.meta.shape[-2] == weight.meta.shape[-1]
    chosen = orthogonal_map or ("matrix_exp" if square else "householder")
    if chosen not in MAPS:
        raise ArgumentError(f"orthogonal: orthogonal_map is one of {', '.join(MAPS)}, not {orthogonal_map!r}")
    return register_parametrization(module, name, Orthogonal(weight, chosen, use_trivialization), unsafe=True)


def _tensor(module: Module, name: str, where: str) -> Any:
    found = getattr(module, name, None)
    if not isinstance(found, Tensor):
        raise ArgumentError(f"{where}: {type(module).__name__} has no parameter or buffer {name!r}")
    return found
