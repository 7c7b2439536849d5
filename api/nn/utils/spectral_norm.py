"""Weights divided by their largest singular value, found by power iteration (Miyato et al. 2018), by a hook before
`forward`. `parametrizations.spectral_norm` does the same by a parametrization.
"""

from __future__ import annotations

from typing import Any

from ..._generated import ops
from ...autograd import no_grad
from ...random import randn
from ...runtime.errors import ArgumentError, DomainError
from ..functional import normalize
from ..module import Module
from ..parameter import Parameter, is_lazy

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


def matrix_of(weight: Any, dim: int) -> Any:
    """`weight` with dimension `dim` first and all others as one: (height, width)."""
    if dim % weight.meta.ndim:
        weight = weight.transpose(0, dim) if weight.meta.ndim == 2 else weight.movedim(dim, 0)
    return weight.reshape(weight.meta.shape[0], -1)


def unit(count: int, like: Any, eps: float) -> Any:
    """A random vector of length 1."""
    return normalize(randn(count, dtype=like.meta.dtype, device=like.meta.device), dim=0, eps=eps)


def first_dim(module: Module, dim: int | None) -> int:
    """The dimension of outputs: 1 in transposed convolutions, else 0."""
    return (1 if getattr(module, "transposed", False) else 0) if dim is None else dim


class SpectralNorm:
    """The hook that computes `name` from `name_orig` and the singular vectors `name_u`, `name_v`."""

    _version = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12):
        if n_power_iterations <= 0:
            raise ArgumentError(f"spectral_norm: n_power_iterations must be positive, not {n_power_iterations}")
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Any:
        """The weight now, after `n_power_iterations` steps towards the singular vectors if asked for."""
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = matrix_of(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(normalize(matrix.mv(v), dim=0, eps=self.eps))
                u, v = u.clone(), v.clone()  # the next call writes the buffers, and backward reads these
        return ops.true_divide(weight, u.dot(matrix.mv(v)))

    def remove(self, module: Any) -> None:
        """Make the weight, as it is now, a parameter again."""
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for end in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + end)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    def note(self, module: Any, state_dict: Any, prefix: str, local_metadata: dict[str, Any]) -> None:
        """A state dict hook: the version goes into the metadata."""
        local_metadata.setdefault("spectral_norm", {})[self.name + ".version"] = self._version

    @staticmethod
    def apply(module: Any, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Put the hook on a module. Raises `DomainError` if it has one for `name`, or the weight has no shape yet."""
        if any(isinstance(h, SpectralNorm) and h.name == name for h in module._forward_pre_hooks.values()):
            raise DomainError(f"spectral_norm: {type(module).__name__} has one on {name!r} already")
        made = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters.get(name)
        if weight is None:
            raise ArgumentError(f"spectral_norm: {type(module).__name__} has no parameter {name!r}")
        if is_lazy(weight):
            raise DomainError(f"spectral_norm: {name!r} has no shape yet; call the module with an input first")
        with no_grad():
            height, width = matrix_of(weight, dim).meta.shape
            u, v = unit(height, weight, eps), unit(width, weight, eps)
        del module._parameters[name]
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.detach())  # an attribute until the first forward: data, no parameter
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(made)
        module._register_state_dict_hook(made.note)
        return made


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide `name` by its largest singular value in every `forward`; training moves the estimate of it.

    dim: the dimension of outputs (default: 1 for transposed convolutions, else 0); all others are one. Returns the
    module, which has `name_orig`, `name_u` and `name_v` from then on.
    """
    SpectralNorm.apply(module, name, n_power_iterations, first_dim(module, dim), eps)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Undo `spectral_norm`. Returns the module. Raises `ArgumentError` where there is none."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            for number, other in list(module._state_dict_hooks.items()):
                if getattr(other, "__self__", None) is hook:
                    del module._state_dict_hooks[number]
            return module
    raise ArgumentError(f"remove_spectral_norm: {type(module).__name__} has none on {name!r}")
