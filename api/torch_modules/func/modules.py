"""Call modules with other parameters: `functional_call`, `stack_module_state`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..nn.utils.stateless import call_with_tensors
from ..runtime.errors import ArgumentError
from ..shape.joining import stack

if TYPE_CHECKING:
    from ..nn.module import Module
    from ..runtime.tensor import Tensor

__all__ = ["functional_call", "stack_module_state"]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: object = None,
    kwargs: dict[str, object] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:  # what the module returns
    """Call a module with other parameters and buffers. The module itself is unchanged afterwards.

    Args:
        module: The module.
        parameter_and_buffer_dicts: A dict from paths to tensors, or several; gradients flow to these tensors. The
            module's own tensors are used for missing paths.
        args: Positional arguments; a single one need not be in a tuple.
        kwargs: Keyword arguments.
        tie_weights: Whether a tensor that the module has under two paths is replaced under both.
        strict: Whether missing and unknown paths are errors.

    Returns:
        The output of the module.

    Raises:
        ArgumentError: An argument has the wrong type.
        NoSuchMember: The module does not have a path.
        StateDictError: With `strict`, paths are missing or unknown.

    Example:
        >>> layer = wg.nn.Linear(1, 1, bias=False)
        >>> wg.func.functional_call(layer, {'weight': wg.tensor([[3.0]])}, wg.tensor([2.0])).tolist()
        [6.0]
    """
    return call_with_tensors(module, parameter_and_buffer_dicts, args, kwargs, tie_weights, strict)


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Stack the parameters and the buffers of modules of one structure, for `vmap` over an ensemble.

    Args:
        models: Modules of one class, all in training or all in evaluation mode.

    Returns:
        The parameters and the buffers by path; each has a new first dimension, the index of the module. Parameters are
        new leaves, which require grad where those of the modules do.

    Raises:
        ArgumentError: There is no module, or classes or modes differ.

    Example:
        >>> parameters, buffers = wg.func.stack_module_state([wg.nn.Linear(2, 3), wg.nn.Linear(2, 3)])
        >>> parameters['weight'].shape
        weftgrad.Size([2, 3, 2])
    """
    models = list(models)
    if not models:
        raise ArgumentError("stack_module_state: takes at least one module")
    if any(type(model) is not type(models[0]) or model.training != models[0].training for model in models):
        raise ArgumentError("stack_module_state: the modules must have one class and one mode")
    parameters = {}
    for name, first in models[0].named_parameters():
        stacked = stack([dict(model.named_parameters())[name].detach() for model in models])
        parameters[name] = stacked.requires_grad_(first.requires_grad)
    buffers = {
        name: stack([dict(model.named_buffers())[name] for model in models]) for name, _ in models[0].named_buffers()
    }
    return parameters, buffers
