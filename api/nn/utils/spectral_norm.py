"""Spectral normalization by a forward pre-hook (Miyato et al. 2018, arXiv 1802.05957).

`parametrizations.spectral_norm` does the same by a parametrization.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._generated import ops
from ...autograd import no_grad
from ...random import randn
from ...runtime.errors import ArgumentError, DomainError
from ...runtime.tensor import Tensor
from ..functional import normalize
from ..module import Module
from ..parameter import Parameter, is_lazy

if TYPE_CHECKING:
    from .._types import StateDict

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


def weight_as_matrix(weight: Tensor, dim: int) -> Tensor:
    """Return `weight` as a matrix (height, width): dimension `dim` first, all others flattened."""
    if dim % weight.meta.ndim:
        weight = weight.transpose(0, dim) if weight.meta.ndim == 2 else weight.movedim(dim, 0)
    return weight.reshape(weight.meta.shape[0], -1)


def random_unit_vector(length: int, reference: Tensor, eps: float) -> Tensor:
    """Return a random vector of norm 1."""
    return normalize(randn(length, dtype=reference.meta.dtype, device=reference.meta.device), dim=0, eps=eps)


def default_output_dim(module: Module, dim: int | None) -> int:
    """Return `dim`, or for None the output dimension: 1 in transposed convolutions, otherwise 0."""
    return (1 if getattr(module, "transposed", False) else 0) if dim is None else dim


class SpectralNorm:
    """The hook that computes the weight `name` from `name_orig` and the singular vectors `name_u` and `name_v`.

    Args:
        name: Name of the weight.
        n_power_iterations: Iterations per forward in training mode.
        dim: Output dimension of the weight; all others are flattened.
        eps: Smallest norm to divide by.

    Raises:
        ArgumentError: If `n_power_iterations` is not positive.

    Example:
        >>> layer = wg.nn.utils.spectral_norm(wg.nn.Linear(2, 3))
        >>> [type(hook).__name__ for hook in layer._forward_pre_hooks.values()]
        ['SpectralNorm']
    """

    _version = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12):
        if n_power_iterations <= 0:
            raise ArgumentError(f"spectral_norm: n_power_iterations must be positive, not {n_power_iterations}")
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """Return the normalized weight.

        Args:
            module: The module with this hook.
            do_power_iteration: Improve the singular vectors first.

        Returns:
            Tensor of the shape of the weight.
        """
        weight, u, v = (getattr(module, self.name + suffix) for suffix in ("_orig", "_u", "_v"))
        matrix = weight_as_matrix(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(normalize(matrix.mv(v), dim=0, eps=self.eps))
                u, v = u.clone(), v.clone()  # backward needs these values, and the next call overwrites the buffers
        return ops.true_divide(weight, u.dot(matrix.mv(v)))

    def remove(self, module: Module) -> None:
        """Make the current weight a plain parameter again.

        Args:
            module: The module with this hook.
        """
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for suffix in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: object) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    def save_version(
        self, module: Module, state_dict: StateDict, prefix: str, local_metadata: dict[str, object]
    ) -> None:
        """Add the version to the metadata of a state dict. This is a state dict hook.

        Args:
            module: The module with this hook.
            state_dict: The state dict, which stays unchanged.
            prefix: Path of the module and a dot.
            local_metadata: The module's metadata.
        """
        versions = local_metadata.setdefault("spectral_norm", {})
        assert isinstance(versions, dict)
        versions[self.name + ".version"] = self._version

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Register the hook on a module.

        Args:
            module: The module.
            name: Name of its parameter.
            n_power_iterations: Iterations per forward in training mode.
            dim: Output dimension of the weight; all others are flattened.
            eps: Smallest norm to divide by.

        Returns:
            The hook.

        Raises:
            ArgumentError: If the module has no parameter `name`, or `n_power_iterations` is not positive.
            DomainError: If the weight has this hook already, or no shape yet.
        """
        if any(isinstance(h, SpectralNorm) and h.name == name for h in module._forward_pre_hooks.values()):
            raise DomainError(f"spectral_norm: {type(module).__name__} has one on {name!r} already")
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters.get(name)
        if weight is None:
            raise ArgumentError(f"spectral_norm: {type(module).__name__} has no parameter {name!r}")
        if is_lazy(weight):
            raise DomainError(f"spectral_norm: {name!r} has no shape yet; call the module with an input first")
        with no_grad():
            height, width = weight_as_matrix(weight, dim).meta.shape
            u, v = random_unit_vector(height, weight, eps), random_unit_vector(width, weight, eps)
        del module._parameters[name]
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.detach())  # a plain attribute, not a parameter, until the first forward
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(hook.save_version)
        return hook


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value in every `forward`; training mode improves the estimate.

    Args:
        module: The module, which gets `name_orig`, `name_u` and `name_v`.
        name: Its parameter.
        n_power_iterations: Iterations per forward.
        eps: Smallest norm to divide by.
        dim: Output dimension; all others are flattened. None means 1 for transposed convolutions, otherwise 0.

    Returns:
        The module.

    Raises:
        ArgumentError: If `n_power_iterations` is not positive, or the module has no parameter `name`.
        DomainError: If the parameter has this hook already, or no shape yet.

    Example:
        >>> layer = wg.nn.utils.spectral_norm(wg.nn.Linear(2, 3))
        >>> [name for name, _ in layer.named_buffers()]
        ['weight_u', 'weight_v']
    """
    SpectralNorm.apply(module, name, n_power_iterations, default_output_dim(module, dim), eps)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Undo `spectral_norm` and return the module.

    Args:
        module: The module.
        name: The parameter.

    Returns:
        The module, whose parameter has the current weight.

    Raises:
        ArgumentError: If `name` has no such hook.

    Example:
        >>> layer = wg.nn.utils.spectral_norm(wg.nn.Linear(2, 3))
        >>> [name for name, _ in wg.nn.utils.remove_spectral_norm(layer).named_parameters()]
        ['bias', 'weight']
    """
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            for hook_id, state_dict_hook in list(module._state_dict_hooks.items()):
                if getattr(state_dict_hook, "__self__", None) is hook:
                    del module._state_dict_hooks[hook_id]
            return module
    raise ArgumentError(f"remove_spectral_norm: {type(module).__name__} has none on {name!r}")
