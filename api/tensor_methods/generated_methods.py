"""Add the generated functions to Tensor (methods, operators, in-place forms) and to the package's namespaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from .._generated import ops as generated
from ..creation import from_data
from ..runtime import native
from ..runtime.errors import UnhandledFunction
from ..runtime.overriding import defines_override
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["OF_LAYERS", "install_ops", "operators"]

# Functions of `torch.nn.functional` that `torch` exports too. The package's `__getattr__` takes them from
# `nn._torch_names` at their first use, so that `import weftgrad` does not import the layers.
OF_LAYERS = frozenset((
    "alpha_dropout", "alpha_dropout_", "batch_norm", "binary_cross_entropy_with_logits", "celu", "celu_",
    "cosine_embedding_loss", "cosine_similarity", "ctc_loss", "dropout", "dropout_", "embedding_bag",
    "feature_alpha_dropout", "feature_alpha_dropout_", "feature_dropout", "feature_dropout_", "group_norm",
    "hardshrink", "hinge_embedding_loss", "instance_norm", "kl_div", "layer_norm", "margin_ranking_loss",
    "pairwise_distance", "poisson_nll_loss", "prelu", "rms_norm", "rrelu", "rrelu_", "selu_", "threshold", "threshold_",
    "triplet_margin_loss",
))  # fmt: skip

# symbol -> (method, reflected method, in-place method)
_OPERATORS = {
    "+": ("__add__", "__radd__", "__iadd__"), "-": ("__sub__", "__rsub__", "__isub__"),
    "*": ("__mul__", "__rmul__", "__imul__"), "/": ("__truediv__", "__rtruediv__", "__itruediv__"),
    "//": ("__floordiv__", "__rfloordiv__", "__ifloordiv__"), "%": ("__mod__", "__rmod__", "__imod__"),
    "**": ("__pow__", "__rpow__", "__ipow__"), "@": ("__matmul__", "__rmatmul__", ""),
    "&": ("__and__", "__rand__", "__iand__"), "|": ("__or__", "__ror__", "__ior__"),
    "^": ("__xor__", "__rxor__", "__ixor__"), "<<": ("__lshift__", "__rlshift__", "__ilshift__"),
    ">>": ("__rshift__", "__rrshift__", "__irshift__"),
    "~": ("__invert__", "", ""), "neg": ("__neg__", "", ""), "abs": ("__abs__", "", ""),
    "==": ("__eq__", "", ""), "!=": ("__ne__", "", ""), "<": ("__lt__", "", ""), "<=": ("__le__", "", ""),
    ">": ("__gt__", "", ""), ">=": ("__ge__", "", ""),
}  # fmt: skip
_UNARY = ("~", "neg", "abs")


_Method = TypeVar("_Method", bound=Callable[[Tensor, object], object])


def install_ops(namespaces: dict[str, dict[str, object]]) -> None:
    """Add every generated function to its namespace in `namespaces`, and methods and operators to Tensor."""
    for name, (function, namespace, method) in generated.FUNCTIONS.items():
        names = [name, *(alias for alias, original in generated.ALIASES.items() if original == name)]
        for exported_name in names:
            if namespace in namespaces:
                namespaces[namespace].setdefault(exported_name, function)
            if method and namespace == "torch" and exported_name not in vars(Tensor):
                setattr(Tensor, exported_name, function)
    for name, function in generated.INPLACE.items():
        if name not in vars(Tensor):
            setattr(Tensor, name, function)
    operators(generated.OPERATORS, generated.INPLACE)


def operators(functions: Mapping[str, Callable[..., object]], inplace: Mapping[str, Callable[..., object]]) -> None:
    """Set the operator methods of Tensor, such as `__add__`, `__radd__` and `__iadd__`.

    Args:
        functions: The function of each operator symbol, from the specs.
        inplace: In-place functions by name, such as `add_`.
    """
    for symbol, function in functions.items():
        method_name, reflected_name, in_place_name = _OPERATORS[symbol]
        if symbol in _UNARY:
            setattr(Tensor, method_name, function)
            continue
        record = registry[function.__name__]
        setattr(Tensor, method_name, native.operator(record, _named(method_name, _binary(function)), False))
        if reflected_name:
            setattr(Tensor, reflected_name, native.operator(record, _named(reflected_name, _reflected(function)), True))
        in_place_function = inplace.get(f"{function.__name__}_")
        if in_place_name and in_place_function is not None:
            setattr(Tensor, in_place_name, _named(in_place_name, _binary(in_place_function)))


_OPERANDS = (Tensor, int, float)


def _named(name: str, method: _Method) -> _Method:
    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    return method


def _binary(function: Callable[..., object]) -> Callable[[Tensor, object], object]:
    def operator(self: Tensor, other: object) -> object:
        if isinstance(other, _OPERANDS):
            return function(self, other)
        return _converted(function, self, other, False)

    return operator


def _reflected(function: Callable[..., object]) -> Callable[[Tensor, object], object]:
    def operator(self: Tensor, other: object) -> object:
        if isinstance(other, _OPERANDS):
            return function(other, self)
        return _converted(function, self, other, True)

    return operator


def _converted(function: Callable[..., object], tensor: Tensor, other: object, reflected: bool) -> object:
    """Convert a NumPy scalar to a number, or a NumPy array to a tensor, and call `function` with it.

    Returns:
        The result, or NotImplemented if `other` has another type that does not take over the call either.
    """
    if isinstance(other, np.generic):
        number = other.item()
        return function(number, tensor) if reflected else function(tensor, number)
    if isinstance(other, np.ndarray):
        operand = from_data.tensor(other, device=tensor.meta.device)
        return function(operand, tensor) if reflected else function(tensor, operand)
    if defines_override(type(other)):
        try:
            return function(other, tensor) if reflected else function(tensor, other)
        except UnhandledFunction:  # Python then asks `other` for its own operator
            return NotImplemented
    return NotImplemented
