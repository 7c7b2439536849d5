"""States of models and optimizers with the parameters' paths as keys, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...nn.module import Module
from ...optim.optimizer import Optimizer
from ...runtime.errors import ArgumentError
from ...runtime.tensor import Tensor

__all__ = [
    "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
    "set_optimizer_state_dict", "set_state_dict",
]  # fmt: skip

_PREFIX = "module."


def _paths(model: Module) -> dict[int, str]:
    """Return the path of each parameter by its id, without the prefix of `DistributedDataParallel`."""
    return {id(param): _clean(name) for name, param in model.named_parameters()}


def _clean(name: str) -> str:
    return name.removeprefix(_PREFIX)


def get_model_state_dict(model: Module) -> dict[str, Any]:
    """Return parameters and persistent buffers by path. Sharded parameters are this rank's parts.

    Args:
        model: A module, also of `DistributedDataParallel` or `fully_shard`.
    """
    params = dict(model.named_parameters(remove_duplicate=False))
    state: dict[str, Any] = {}
    for name, value in model.state_dict().items():
        state[_clean(name)] = params.get(name, value)
    return state


def set_model_state_dict(model: Module, model_state_dict: dict[str, Any]) -> None:
    """Copy values that `get_model_state_dict` returned to a model with the same division.

    `checkpoint.load` into the result of `get_model_state_dict` writes to the model itself; then this does nothing.

    Args:
        model: The module.
        model_state_dict: The state.
    """
    own = get_model_state_dict(model)
    if own.keys() != model_state_dict.keys():
        raise ArgumentError(
            "set_model_state_dict: the state has other keys than the model: "
            f"{sorted(own.keys() ^ model_state_dict.keys())[:8]}"
        )
    for name, value in model_state_dict.items():
        if isinstance(value, Tensor) and value is not own[name]:
            own[name].detach().copy_(value)


def get_optimizer_state_dict(model: Module, optimizers: Optimizer | Iterable[Optimizer]) -> dict[str, Any]:
    """Return the state of optimizers by parameter paths. If there is none yet, it is created, so that it can be loaded.

    Args:
        model: The module whose parameters they optimize.
        optimizers: One or several optimizers.

    Returns:
        {"state": {path: {name: tensor or number}}, "param_groups": options and paths of each group}.
    """
    paths = _paths(model)
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in [optimizers] if isinstance(optimizers, Optimizer) else optimizers:
        for group in optimizer.param_groups:
            names = []
            for param in group["params"]:
                if id(param) not in paths:
                    raise ArgumentError(
                        "get_optimizer_state_dict: the optimizer has a parameter that the model has not"
                    )
                names.append(paths[id(param)])
                entries = optimizer.state[param]
                if not entries:
                    optimizer.init_state(param, entries, group)
                state[names[-1]] = {name: _with_layout(value, param) for name, value in entries.items()}
            groups.append({**{k: v for k, v in group.items() if k != "params"}, "params": names})
    return {"state": state, "param_groups": groups}


def _with_layout(value: Any, param: Tensor) -> Any:
    """Let the state of a sharded parameter have its layout: it has the parameter's shape."""
    layout = getattr(param, "shard_layout", None)
    if isinstance(value, Tensor) and layout is not None and value.meta.shape == param.meta.shape:
        value.shard_layout = layout  # type: ignore[attr-defined]
    return value


def set_optimizer_state_dict(
    model: Module, optimizers: Optimizer | Iterable[Optimizer], optim_state_dict: dict[str, Any]
) -> None:
    """Give optimizers the state that `get_optimizer_state_dict` returned and `checkpoint.load` has filled.

    Args:
        model: The module.
        optimizers: One or several optimizers, with the same groups.
        optim_state_dict: The state.
    """
    paths = _paths(model)
    groups = iter(optim_state_dict["param_groups"])
    for optimizer in [optimizers] if isinstance(optimizers, Optimizer) else optimizers:
        for group, saved in zip(optimizer.param_groups, groups, strict=False):
            group.update({name: value for name, value in saved.items() if name != "params"})
            for param in group["params"]:
                entries = optimizer.state[param]
                if not entries:
                    optimizer.init_state(param, entries, group)
                for name, value in optim_state_dict["state"][paths[id(param)]].items():
                    current = entries.get(name)
                    if isinstance(value, Tensor) and isinstance(current, Tensor):
                        if current is not value:
                            current.copy_(value)
                    else:
                        entries[name] = value


def get_state_dict(model: Module, optimizers: Optimizer | Iterable[Optimizer]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the states of a model and its optimizers.

    Args:
        model: The module.
        optimizers: One or several optimizers.
    """
    return get_model_state_dict(model), get_optimizer_state_dict(model, optimizers)


def set_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
) -> None:
    """Give a model and its optimizers the states that `get_state_dict` returned and `checkpoint.load` has filled.

    Args:
        model: The module.
        optimizers: One or several optimizers.
        model_state_dict: State of the model.
        optim_state_dict: State of the optimizers.
    """
    set_model_state_dict(model, model_state_dict)
    set_optimizer_state_dict(model, optimizers, optim_state_dict)
