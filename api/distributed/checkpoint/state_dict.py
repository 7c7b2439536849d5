"""States of models and optimizers with the parameters' paths as keys, which are the same for any number of ranks."""

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

_WRAPPER_PREFIX = "module."  # of the paths in a `DistributedDataParallel`
_EXTRA_STATE = "_extra_state"


def _parameter_paths(model: Module) -> dict[int, str]:
    """Return the path of each parameter by its id, without the prefix of `DistributedDataParallel`."""
    return {id(param): _without_wrapper_prefix(name) for name, param in model.named_parameters()}


def _without_wrapper_prefix(name: str) -> str:
    return name.removeprefix(_WRAPPER_PREFIX)


def get_model_state_dict(model: Module) -> dict[str, Any]:
    """Return parameters and persistent buffers by path. Sharded parameters are this rank's parts.

    Args:
        model: A module, also of `DistributedDataParallel` or `fully_shard`.

    Returns:
        Dict from paths such as `0.weight` to tensors that share memory with the model; extra state under its path.

    Example:
        >>> from weftgrad.distributed import checkpoint
        >>> list(checkpoint.get_model_state_dict(wg.nn.Linear(2, 3)))
        ['weight', 'bias']
    """
    params = dict(model.named_parameters(remove_duplicate=False))
    state: dict[str, Any] = {}
    for name, value in model.state_dict().items():
        state[_without_wrapper_prefix(name)] = params.get(name, value)
    return state


def set_model_state_dict(model: Module, model_state_dict: dict[str, Any]) -> None:
    """Copy values that `get_model_state_dict` returned to a model with the same division.

    `checkpoint.load` into the result of `get_model_state_dict` writes to the model's tensors themselves. Then this sets
    only the extra state.

    Args:
        model: The module.
        model_state_dict: A value for each path of `get_model_state_dict(model)`, of the same shape.

    Raises:
        ArgumentError: The state has other paths than the model.

    Example:
        >>> from weftgrad.distributed import checkpoint
        >>> model = wg.nn.Linear(1, 1)
        >>> checkpoint.set_model_state_dict(model, {'weight': wg.tensor([[2.0]]), 'bias': wg.tensor([1.0])})
        >>> model.weight.item()
        2.0
    """
    own = get_model_state_dict(model)
    if own.keys() != model_state_dict.keys():
        raise ArgumentError(
            "set_model_state_dict: the state has other keys than the model: "
            f"{sorted(own.keys() ^ model_state_dict.keys())[:8]}"
        )
    for path, module in model.named_modules(remove_duplicate=False):
        name = _without_wrapper_prefix(f"{path}.{_EXTRA_STATE}" if path else _EXTRA_STATE)
        if name in own and type(module).get_extra_state is not Module.get_extra_state:
            module.set_extra_state(model_state_dict[name])
            del own[name]
    for name, tensor in own.items():
        value = model_state_dict[name]
        if value is not tensor:
            tensor.detach().copy_(value)


def get_optimizer_state_dict(model: Module, optimizers: Optimizer | Iterable[Optimizer]) -> dict[str, Any]:
    """Return the state of optimizers by parameter paths. Create it if there is none yet, so that it can be loaded.

    Args:
        model: The module whose parameters they optimize.
        optimizers: One or several optimizers.

    Returns:
        {"state": {path: {name: tensor or number}}, "param_groups": options and paths of each group}.

    Raises:
        ArgumentError: An optimizer has a parameter that the model does not have.

    Example:
        >>> from weftgrad.distributed import checkpoint
        >>> model = wg.nn.Linear(1, 1)
        >>> state = checkpoint.get_optimizer_state_dict(model, wg.optim.Adam(model.parameters()))
        >>> state['param_groups'][0]['params']
        ['weight', 'bias']
    """
    paths = _parameter_paths(model)
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in [optimizers] if isinstance(optimizers, Optimizer) else optimizers:
        for group in optimizer.param_groups:
            names = []
            for param in group["params"]:
                if id(param) not in paths:
                    raise ArgumentError(
                        "get_optimizer_state_dict: the optimizer has a parameter that the model does not have"
                    )
                names.append(paths[id(param)])
                entries = optimizer.state[param]
                if not entries:
                    optimizer.init_state(param, entries, group)
                state[names[-1]] = {name: _attach_shard_layout(value, param) for name, value in entries.items()}
            groups.append({**{k: v for k, v in group.items() if k != "params"}, "params": names})
    return {"state": state, "param_groups": groups}


def _attach_shard_layout(value: Any, param: Tensor) -> Any:
    """Set the attribute `shard_layout` of state that has the shape of a sharded parameter, and return the state."""
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

    Raises:
        ArgumentError: The state has another number of groups.

    Example:
        >>> from weftgrad.distributed import checkpoint
        >>> model = wg.nn.Linear(1, 1)
        >>> optimizer = wg.optim.SGD(model.parameters(), lr=0.1)
        >>> state = checkpoint.get_optimizer_state_dict(model, optimizer)
        >>> state['param_groups'][0]['lr'] = 0.5
        >>> checkpoint.set_optimizer_state_dict(model, optimizer, state)
        >>> optimizer.param_groups[0]['lr']
        0.5
    """
    paths = _parameter_paths(model)
    optimizer_list = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
    group_counts = (
        sum(len(optimizer.param_groups) for optimizer in optimizer_list),
        len(optim_state_dict["param_groups"]),
    )
    if group_counts[0] != group_counts[1]:
        raise ArgumentError(
            f"set_optimizer_state_dict: the optimizers have {group_counts[0]} groups, the state has {group_counts[1]}"
        )
    groups = iter(optim_state_dict["param_groups"])
    for optimizer in optimizer_list:
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

    Returns:
        The results of `get_model_state_dict` and `get_optimizer_state_dict`.
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
