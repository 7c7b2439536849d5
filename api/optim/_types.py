"""Types of optimizers and schedules, as names for annotations.

Programs calculate with the values of these dicts without naming their types (`group["lr"] *= 0.5`), and every optimizer
has entries of its own. So, as in PyTorch, type checkers do not check these values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from ..runtime.tensor import Tensor

__all__ = [
    "BatchKey", "KernelArguments", "ModelData", "Options", "ParamGroup", "ParamState", "Params", "Rate", "StateDict",
]  # fmt: skip

Options: TypeAlias = dict[str, Any]
"""Options by name. Every optimizer has options of its own."""

ParamGroup: TypeAlias = Options
"""Options of a group of parameters, with the list of these parameters under `params`."""

Params: TypeAlias = Iterable[Tensor | ParamGroup | tuple[str, Tensor]]
"""What optimizers accept: parameters, pairs of name and parameter, or groups with options of their own."""

ParamState: TypeAlias = dict[str, Any]
"""State of one parameter by name: tensors and numbers. Every update rule has entries of its own."""

StateDict: TypeAlias = dict[str, Any]
"""What `state_dict` of an optimizer or of a schedule returns, and `load_state_dict` takes."""

BatchKey: TypeAlias = Any
"""The value by which parameters are sorted into batches. Every update rule has hashable keys of a type of its own."""

KernelArguments: TypeAlias = tuple[str, tuple[str, ...], tuple[float, ...]]
"""Name of the update op, state entries that follow parameter and gradient as operands, scalar arguments."""

ModelData: TypeAlias = Any
"""An argument or the result of a user's model, whose `forward` decides on the types."""

Rate: TypeAlias = float | Tensor
"""A learning rate: a number or a one-element tensor."""
