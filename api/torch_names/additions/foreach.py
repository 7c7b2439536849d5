"""`torch._foreach_add` and its siblings: one op for each tensor of a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ...runtime.dtypes import DType
from ...runtime.errors import ArgumentError
from ...runtime.tensor import Tensor

__all__ = ["FUNCTIONS"]

Tensors: TypeAlias = Sequence[Tensor]

# Methods of Tensor that are called for each tensor, with an item of each further argument.
_METHODS = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc", "add", "div", "lerp", "mul", "pow", "sub",
)  # fmt: skip
_LIMITS = {"clamp_max": "minimum", "clamp_min": "maximum", "maximum": "maximum", "minimum": "minimum"}
_TERNARY = ("addcdiv", "addcmul")

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The functions by name: `_foreach_add`, `_foreach_add_`, …"""


def _per_tensor(value: object, count: int, function_name: str) -> Sequence[object]:
    """Return the operand of each tensor: the items of a list or tuple, or the same object for all."""
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise ArgumentError(f"{function_name}: lists of {count} and {len(value)} items; they must be of one length")
        return value
    return [value] * count


def _apply(
    function_name: str, method: str, tensors: Tensors, others: Sequence[object], options: dict[str, object]
) -> Any:
    """Call the method of each tensor with its items of `others`."""
    columns = [_per_tensor(other, len(tensors), function_name) for other in others]
    rows = zip(*columns, strict=True) if columns else [()] * len(tensors)
    results = [getattr(tensor, method)(*row, **options) for tensor, row in zip(tensors, rows, strict=True)]
    return None if method.endswith("_") else results


def _define(method: str) -> None:
    """Define `_foreach_METHOD` and `_foreach_METHOD_`."""
    function_name = f"_foreach_{method}"

    def function(self: Tensors, *others: object, **options: object) -> Any:
        return _apply(function_name, method, self, others, options)

    def in_place(self: Tensors, *others: object, **options: object) -> None:
        _apply(f"{function_name}_", f"{method}_", self, others, options)

    for suffix, variant in (("", function), ("_", in_place)):
        variant.__name__ = variant.__qualname__ = f"{function_name}{suffix}"
        FUNCTIONS[variant.__name__] = variant


for _name in _METHODS:
    _define(_name)


def _limit(function_name: str, method: str) -> Callable[..., list[Tensor]]:
    """Return the function, whose second operand may be a number, a list of numbers or a list of tensors."""

    def function(self: Tensors, other: object) -> list[Tensor]:
        others = _per_tensor(other, len(self), function_name)
        clamp = "clamp_max" if method == "minimum" else "clamp_min"
        return [
            getattr(tensor, method)(limit) if isinstance(limit, Tensor) else getattr(tensor, clamp)(limit)
            for tensor, limit in zip(self, others, strict=True)
        ]

    return function


def _in_place(function: Callable[..., list[Tensor]]) -> Callable[..., None]:
    def in_place(self: Tensors, *args: object, **options: object) -> None:
        for tensor, value in zip(self, function(self, *args, **options), strict=True):
            tensor.copy_(value)

    return in_place


for _name, _method in _LIMITS.items():
    FUNCTIONS[f"_foreach_{_name}"] = _limit(f"_foreach_{_name}", _method)
    FUNCTIONS[f"_foreach_{_name}_"] = _in_place(FUNCTIONS[f"_foreach_{_name}"])


def _ternary(method: str) -> Callable[..., list[Tensor]]:
    """Return `_foreach_addcmul` or `_foreach_addcdiv`.

    The factor may be a number for all tensors, or a list or a tensor of one dimension with a number for each.
    """

    def function(
        self: Tensors, tensor1: Tensors, tensor2: Tensors, value: object = 1, *, scalars: object = None
    ) -> list[Tensor]:
        factor = value if scalars is None else scalars
        if isinstance(factor, Tensor) and factor.ndim:
            factor = factor.tolist()
        factors = _per_tensor(factor, len(self), f"_foreach_{method}")
        rows = zip(self, tensor1, tensor2, factors, strict=True)
        return [getattr(tensor, method)(first, second, value=number) for tensor, first, second, number in rows]

    return function


for _name in _TERNARY:
    FUNCTIONS[f"_foreach_{_name}"] = _ternary(_name)
    FUNCTIONS[f"_foreach_{_name}_"] = _in_place(FUNCTIONS[f"_foreach_{_name}"])


def _foreach_norm(self: Tensors, ord: float = 2, dtype: DType | None = None) -> list[Tensor]:
    """Return the norm of each tensor."""
    return [tensor.flatten().norm(ord) if dtype is None else tensor.to(dtype).flatten().norm(ord) for tensor in self]


def _foreach_zero_(self: Tensors) -> None:
    """Fill each tensor with zeros."""
    for tensor in self:
        tensor.zero_()


def _foreach_copy_(self: Tensors, src: Tensors, non_blocking: bool = False) -> None:
    """Copy each tensor of `src` to that of `self`."""
    for tensor, source in zip(self, src, strict=True):
        tensor.copy_(source, non_blocking)


FUNCTIONS.update(_foreach_norm=_foreach_norm, _foreach_zero_=_foreach_zero_, _foreach_copy_=_foreach_copy_)
