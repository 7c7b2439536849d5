"""Weight normalization, w = g v / ||v||, by a forward pre-hook (Salimans and Kingma 2016, arXiv 1602.07868).

`parametrizations.weight_norm` does the same by a parametrization.
"""

from __future__ import annotations

from ..._generated import ops
from ...autograd import no_grad
from ...runtime.errors import ArgumentError, DomainError
from ...runtime.tensor import Tensor
from ..module import Module
from ..parameter import Parameter, is_lazy

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


def norm_except_dim(v: Tensor, dim: int | None) -> Tensor:
    """Return the norms of `v` over all dimensions except `dim`, with size 1 there; one 0-d norm for None or -1."""
    if dim is None or dim == -1:
        return v.norm(2)
    dims = tuple(d for d in range(v.meta.ndim) if d != dim % v.meta.ndim)
    return v.norm(2, dims, True) if dims else v.abs()


def apply_weight_norm(v: Tensor, g: Tensor, dim: int | None) -> Tensor:
    """Return v g / ||v||."""
    return ops.mul(v, ops.true_divide(g, norm_except_dim(v, dim)))


class WeightNorm:
    """The hook that computes the weight `name` from `name_g` and `name_v` before each `forward`.

    Args:
        name: Name of the weight.
        dim: Dimension along which `name_g` has one norm per index; None or -1 for a single norm, as in PyTorch.

    Example:
        >>> layer = wg.nn.utils.weight_norm(wg.nn.Linear(2, 3))
        >>> [type(hook).__name__ for hook in layer._forward_pre_hooks.values()]
        ['WeightNorm']
    """

    def __init__(self, name: str, dim: int | None):
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """Return the current weight.

        Args:
            module: The module with this hook.

        Returns:
            Tensor of the shape of the weight.
        """
        return apply_weight_norm(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Register the hook on a module.

        Args:
            module: The module.
            name: Name of its parameter.
            dim: Dimension along which `name_g` has one norm per index; None or -1 for a single norm, as in PyTorch.

        Returns:
            The hook.

        Raises:
            ArgumentError: If the module has no parameter `name`.
            DomainError: If the weight has this hook already, or no shape yet.
        """
        if any(isinstance(h, WeightNorm) and h.name == name for h in module._forward_pre_hooks.values()):
            raise DomainError(f"weight_norm: {type(module).__name__} has one on {name!r} already")
        weight = module._parameters.get(name)
        if weight is None:
            raise ArgumentError(f"weight_norm: {type(module).__name__} has no parameter {name!r}")
        if is_lazy(weight):
            raise DomainError(f"weight_norm: {name!r} has no shape yet; call the module with an input first")
        hook = WeightNorm(name, dim)
        del module._parameters[name]
        with no_grad():
            module.register_parameter(name + "_g", Parameter(norm_except_dim(weight, hook.dim).detach()))
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Module) -> None:
        """Make the current weight a plain parameter again.

        Args:
            module: The module with this hook.
        """
        with no_grad():
            weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: object) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn a weight as a norm `name_g` and a direction `name_v`.

    Args:
        module: The module.
        name: Its parameter.
        dim: Dimension along which `name_g` has one norm per index; None or -1 for a single norm, as in PyTorch.

    Returns:
        The module.

    Raises:
        ArgumentError: If the module has no parameter `name`.
        DomainError: If the parameter has this hook already, or no shape yet.

    Example:
        >>> layer = wg.nn.utils.weight_norm(wg.nn.Linear(2, 3))
        >>> [(name, tuple(p.shape)) for name, p in layer.named_parameters()]
        [('bias', (3,)), ('weight_g', (3, 1)), ('weight_v', (3, 2))]
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Undo `weight_norm` and return the module.

    Args:
        module: The module.
        name: The parameter.

    Returns:
        The module, whose parameter has the current weight.

    Raises:
        ArgumentError: If `name` has no such hook.

    Example:
        >>> layer = wg.nn.utils.weight_norm(wg.nn.Linear(2, 3))
        >>> [name for name, _ in wg.nn.utils.remove_weight_norm(layer).named_parameters()]
        ['bias', 'weight']
    """
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ArgumentError(f"remove_weight_norm: {type(module).__name__} has none on {name!r}")
