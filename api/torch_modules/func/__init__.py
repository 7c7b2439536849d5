"""Call modules with other parameters (`torch.func`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..nn.utils.stateless import call_with_tensors

if TYPE_CHECKING:
    from ..nn.module import Module
    from ..runtime.tensor import Tensor

__all__ = ["functional_call"]


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
