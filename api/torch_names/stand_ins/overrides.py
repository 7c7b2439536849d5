"""`torch.overrides`: the names of `weftgrad.overrides`, and those that only PyTorch has."""

from __future__ import annotations

from collections.abc import Iterable

from ...overrides import (
    get_default_nowrap_functions,
    get_ignored_functions,
    get_overridable_functions,
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
    is_tensor_like,
    is_tensor_method_or_property,
    resolve_name,
    wrap_torch_function,
)
from ...runtime.overriding import collect
from ..placeholders import placeholder

__all__ = [
    "TorchFunctionMode", "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions",
    "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
    "is_tensor_like", "is_tensor_method_or_property", "resolve_name", "wrap_torch_function",
]  # fmt: skip

_REMEDY = "Only classes of arguments take over calls: define __torch_function__ in a subclass of Tensor."
TorchFunctionMode = placeholder("torch.overrides.TorchFunctionMode", _REMEDY)


def _get_overloaded_args(relevant_args: Iterable[object]) -> list[object]:
    """Return the arguments that take over calls, in the order in which they are asked."""
    return collect(tuple(relevant_args))
