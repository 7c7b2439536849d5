"""What the activation functions and the dropouts of `nn.functional` share: checks of dtypes, and calls in place."""

from __future__ import annotations

from .. import random as _random
from ..runtime import dtypes
from ..runtime.dispatch import call, call_into
from ..runtime.errors import UnsupportedDType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["call_activation", "call_random_op", "require_floating", "to_floating"]


def call_activation(name: str, input: Tensor, numbers: tuple[object, ...], inplace: bool) -> Tensor:
    """Call the op `name` with a tensor and number operands.

    Args:
        name: The op, which has one result of the shape and dtype of `input`.
        input: Tensor of any shape.
        numbers: Operands after `input`, such as a slope.
        inplace: Whether to write the result to `input` and return `input`.
    """
    only_tensors(name, input)
    if inplace:
        return call_into(registry[name], (input, *numbers), (), (input,), in_place=True)
    return call(registry[name], (input, *numbers))


def require_floating(input: Tensor, caller: str) -> Tensor:
    """Return the input. Raise `UnsupportedDType` unless it is floating-point."""
    only_tensors(caller, input)
    if input.meta.dtype.kind != "f":
        raise UnsupportedDType(f"{caller}: takes floating dtypes, not {input.meta.dtype.name}; convert with .float()")
    return input


def to_floating(input: Tensor, caller: str) -> Tensor:
    """Return a floating-point input as it is, any other one cast to the default dtype.

    For the functions that PyTorch computes by other ops, which take integers, such as softsign's `x / (1 + abs(x))`.
    """
    only_tensors(caller, input)
    if input.meta.dtype.kind == "f":
        return input
    return call(registry["copy"], (input,), (dtypes.default_dtype(),))


def call_random_op(name: str, input: Tensor, numbers: tuple[float, ...], inplace: bool) -> Tensor:
    """Call the random op `name`, as `call_activation` does, with random numbers of the default generator."""
    record = registry[name]
    operands = (input, *numbers, *_random.default_generator.take(int(record.detail["draws"])))
    if inplace:
        return call_into(record, operands, (), (input,), in_place=True)
    return call(record, operands)
