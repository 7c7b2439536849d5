"""Build the state dict of an optimizer, and load one: for `Optimizer.state_dict` and `Optimizer.load_state_dict`."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ..creation.foreign_tensors import copy_foreign_tensor, is_foreign_tensor
from ..creation.from_data import tensor
from ..runtime import dtypes
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ._types import ParamState, StateDict

if TYPE_CHECKING:
    from .optimizer import Optimizer

__all__ = ["build_state_dict", "load_state_dict"]


def build_state_dict(optimizer: Optimizer) -> StateDict:
    """Return the state and the options of `optimizer`, with an integer in place of each parameter.

    Parameters are numbered in the order of the groups. Tensors of the state are not copied.

    Args:
        optimizer: The optimizer.

    Returns:
        {"state": state by the parameter's number, "param_groups": the groups, with numbers under "params"}.
    """
    param_indices: dict[int, int] = {}
    groups = []
    for group in optimizer.param_groups:
        for param in group["params"]:
            param_indices.setdefault(id(param), len(param_indices))
        groups.append({**group, "params": [param_indices[id(p)] for p in group["params"]]})
    scalar_entries = optimizer._scalar_entries
    state: dict[object, object] = {}
    for key, entries in optimizer.state.items():
        index = param_indices[id(key)] if isinstance(key, Tensor) else key  # a program may store state under other keys
        if isinstance(entries, dict):
            state[index] = {name: _save_value(value, name in scalar_entries) for name, value in entries.items()}
        else:
            state[index] = entries
    return {"state": state, "param_groups": groups}


def _save_value(value: object, is_scalar_entry: bool) -> object:
    """Return a scalar entry as PyTorch saves it, a 0-d float32 tensor, and other values as they are."""
    if is_scalar_entry and isinstance(value, (int, float)):
        return tensor(float(value), dtype=dtypes.float32, device="cpu")
    return value


def load_state_dict(optimizer: Optimizer, state_dict: StateDict) -> None:
    """Replace the state and the options of `optimizer` by saved ones.

    The options and the state of parameters are copied. State that belongs to no parameter is not.

    Args:
        optimizer: The optimizer.
        state_dict: Result of `build_state_dict`, or PyTorch's state dict of the same optimizer.

    Raises:
        ArgumentError: If the number of groups, or of parameters in a group, differs.
    """
    saved_groups = deepcopy(state_dict["param_groups"])
    saved_sizes = [len(group["params"]) for group in saved_groups]
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if saved_sizes != sizes:
        raise ArgumentError(
            f"load_state_dict of {type(optimizer).__name__}: the saved groups have {saved_sizes} parameters, and the "
            f"optimizer's have {sizes} parameters; create the optimizer with the same groups as the saved one"
        )
    saved_indices = chain.from_iterable(g["params"] for g in saved_groups)
    param_by_index: dict[object, Tensor] = dict(zip(saved_indices, optimizer._all_params(), strict=True))
    scalar_entries = optimizer._scalar_entries
    state: defaultdict[Tensor, ParamState] = defaultdict(dict)
    for index, entries in state_dict["state"].items():
        param = param_by_index.get(index)
        if param is None:  # state of no parameter, which a program stored itself
            state[index] = entries
        else:
            copies: dict[int, object] = {}
            state[param] = {k: _restore_value(k, v, param, scalar_entries, copies) for k, v in entries.items()}
    for group, saved_group in zip(optimizer.param_groups, saved_groups, strict=True):
        saved_group["params"] = group["params"]
        if "param_names" in group:
            saved_group.setdefault("param_names", group["param_names"])
    optimizer.__setstate__({"state": state, "param_groups": saved_groups})


def _restore_value(
    key: str | None, value: object, param: Tensor, scalar_entries: tuple[str, ...], copies: dict[int, object]
) -> object:
    """Return a copy of a state value for `param`. Scalar entries become floats.

    Tensors move to the device of `param`, and to its dtype if that is floating.

    Args:
        key: Name of the value; None for an element of a list or tuple.
        value: The saved value.
        param: The parameter.
        scalar_entries: Names of the values that are floats in an optimizer and 0-d tensors in a state dict.
        copies: Copies of containers by the ids of these: several may hold one, and one may hold itself.
    """
    if key in scalar_entries and hasattr(value, "item"):
        return float(value.item())
    # Tensors of other libraries, and NumPy's arrays; its scalars are numbers.
    if is_foreign_tensor(value) and not isinstance(value, np.generic):
        value = copy_foreign_tensor(value)
    if isinstance(value, Tensor):
        dtype = param.meta.dtype if param.meta.dtype.kind == "f" else value.meta.dtype
        return value.detach().to(device=param.meta.device, dtype=dtype, copy=True)
    if id(value) in copies:
        return copies[id(value)]
    if isinstance(value, dict):
        entries: dict[object, object] = {}
        copies[id(value)] = entries
        entries.update({k: _restore_value(k, v, param, scalar_entries, copies) for k, v in value.items()})
        return entries
    if type(value) is list:
        items: list[object] = []
        copies[id(value)] = items
        items += [_restore_value(None, v, param, scalar_entries, copies) for v in value]
        return items
    if isinstance(value, (list, tuple)):
        copies[id(value)] = type(value)(_restore_value(None, v, param, scalar_entries, copies) for v in value)
        return copies[id(value)]
    return value
