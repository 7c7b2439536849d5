"""Save the state of an optimizer, and load it: the work of `Optimizer.state_dict` and `Optimizer.load_state_dict`."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ..creation.from_data import tensor
from ..runtime import dtypes
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ._types import ParamState, StateDict

if TYPE_CHECKING:
    from .optimizer import Optimizer

__all__ = ["load", "save"]


def save(optimizer: Optimizer) -> StateDict:
    """Return the state and the options, with parameters replaced by their numbers in the order of the groups."""
    param_indices: dict[int, int] = {}
    groups = []
    for group in optimizer.param_groups:
        for param in group["params"]:
            param_indices.setdefault(id(param), len(param_indices))
        groups.append({**group, "params": [param_indices[id(p)] for p in group["params"]]})
    counts = optimizer._counts
    state = {
        param_indices[id(p)] if isinstance(p, Tensor) else p: {k: _save_value(v, k in counts) for k, v in s.items()}
        if isinstance(s, dict) else s
        for p, s in optimizer.state.items()
    }  # fmt: skip
    return {"state": state, "param_groups": groups}


def _save_value(value: object, is_count: bool) -> object:
    """Return a count as PyTorch saves it, a 0-d float32 tensor, and other values as they are."""
    if is_count and isinstance(value, (int, float)):
        return tensor(float(value), dtype=dtypes.float32, device="cpu")
    return value


def load(optimizer: Optimizer, state_dict: StateDict) -> None:
    """Replace the state and the options of `optimizer` by copies of the saved ones.

    Raises:
        ArgumentError: If the number of groups, or of parameters in a group, differs.
    """
    saved_groups = deepcopy(state_dict["param_groups"])
    sizes = [len(g["params"]) for g in saved_groups], [len(g["params"]) for g in optimizer.param_groups]
    if sizes[0] != sizes[1]:
        raise ArgumentError(
            f"load_state_dict of {type(optimizer).__name__}: the saved groups have {sizes[0]} parameters, and the "
            f"optimizer's have {sizes[1]} parameters"
        )
    saved_indices = chain.from_iterable(g["params"] for g in saved_groups)
    param_by_index: dict[object, Tensor] = dict(zip(saved_indices, optimizer._all_params(), strict=True))
    counts = optimizer._counts
    state: defaultdict[Tensor, ParamState] = defaultdict(dict)
    for index, entry in state_dict["state"].items():
        param = param_by_index.get(index)
        if param is None:  # state of no parameter, which a program stored itself
            state[index] = entry
        else:
            state[param] = {k: _restore_value(k, v, param, counts) for k, v in entry.items()}
    for group, saved_group in zip(optimizer.param_groups, saved_groups, strict=True):
        saved_group["params"] = group["params"]
        if "param_names" in group:
            saved_group.setdefault("param_names", group["param_names"])
    optimizer.__setstate__({"state": state, "param_groups": saved_groups})


def _restore_value(key: str | None, value: object, param: Tensor, counts: tuple[str, ...]) -> object:
    """Return a copy of a state value, on its parameter's device and in its dtype. Step counts become floats."""
    if key in counts and hasattr(value, "item"):
        return float(value.item())
    if hasattr(value, "__array__") and not isinstance(value, (Tensor, np.generic)):
        value = tensor(np.asarray(value))
    if isinstance(value, Tensor):
        dtype = param.meta.dtype if param.meta.dtype.kind == "f" else value.meta.dtype
        return value.detach().to(device=param.meta.device, dtype=dtype, copy=True)
    if isinstance(value, dict):
        return {k: _restore_value(k, v, param, counts) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_restore_value(None, v, param, counts) for v in value)
    return value
