"""`torch.overrides`: functions of subclasses of Tensor are not intercepted (`__torch_function__` is not called)."""

from __future__ import annotations

from collections.abc import Iterable

from ...runtime.tensor import Tensor
from ..placeholders import placeholder

__all__ = [
    "TorchFunctionMode", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property",
]  # fmt: skip

_REMEDY = "Wrap the functions that you call: calls are not intercepted."
TorchFunctionMode = placeholder("torch.overrides.TorchFunctionMode", _REMEDY)
handle_torch_function = placeholder("torch.overrides.handle_torch_function", _REMEDY)
is_tensor_method_or_property = placeholder("torch.overrides.is_tensor_method_or_property", _REMEDY)


def has_torch_function(relevant_args: Iterable[object]) -> bool:
    """Return False: no function is intercepted."""
    return False


def has_torch_function_unary(arg: object) -> bool:
    """Return False: no function is intercepted."""
    return False


def has_torch_function_variadic(*args: object) -> bool:
    """Return False: no function is intercepted."""
    return False


def is_tensor_like(inp: object) -> bool:
    """Return whether `inp` is a tensor."""
    return isinstance(inp, Tensor)
