"""Modules as functions of their parameters, under the name of `torch.func`."""

from __future__ import annotations

from typing import Any

from .nn.utils.stateless import called

__all__ = ["functional_call"]


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with the parameters and buffers of a dict from paths to tensors (or of several dicts).

    The module's own tensors stand in for those not given (with `strict` that is an error, as are paths it does not
    have), and are untouched afterwards; gradients flow to the given ones. tie_weights: a tensor that the module has
    under two paths is replaced under both. One argument need not be in a tuple. Raises `ArgumentError`, `NoSuchPart`,
    `StateDictError`.
    """
    return called(module, parameter_and_buffer_dicts, args, kwargs, tie_weights, strict)
