"""What optimizers share: groups of parameters with their options, state, and how both are saved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from ..autograd import enable_grad, no_grad
from ..runtime.dispatch import call_into
from ..runtime.errors import ArgumentError
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["Optimizer"]


class Optimizer:
    """The base of optimizers.

    `param_groups` are dicts of `params` and options; options may differ by group and be changed at any time. `state`
    holds what a parameter's updates need beside it. A step is one kernel a parameter, written in place.
    """

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]):
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        if isinstance(params, Tensor):
            raise ArgumentError(f"{type(self).__name__}: takes an iterable of parameters, not a tensor")
        groups = list(params)
        if not groups:
            raise ArgumentError(f"{type(self).__name__}: got no parameters")
        if isinstance(groups[0], tuple):  # named_parameters()
            groups = [param for _, param in groups]
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own. Raises `ArgumentError` for what is no leaf, or here already."""
        given = param_group["params"]
        params = [given] if isinstance(given, Tensor) else list(given)
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for param in params:
            if not isinstance(param, Tensor):
                raise ArgumentError(f"{type(self).__name__}: can optimize tensors only, not {type(param).__name__}")
            if param.node is not None:
                raise ArgumentError(
                    f"{type(self).__name__}: can optimize leaves only; this tensor was computed by {param.node.name}"
                )
            if id(param) in known:
                raise ArgumentError(f"{type(self).__name__}: a parameter is in more than one group, or twice in one")
            known.add(id(param))
        group = {**self.defaults, **param_group, "params": params}
        self.check(group)
        self.param_groups.append(group)

    def check(self, group: dict[str, Any]) -> None:
        """Raise `ArgumentError` for options out of range."""
        for name in ("lr", "eps", "weight_decay", "momentum", "lr_decay", "initial_accumulator_value"):
            if name in group and not group[name] >= 0:
                raise ArgumentError(f"{type(self).__name__}: {name} must not be negative, got {group[name]}")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the parameters' gradients, or fill them with zeros."""
        for group in self.param_groups:
            for param in group["params"]:
                if param.extra is None or param.extra.grad is None:
                    continue
                if set_to_none:
                    param.extra.grad = None
                else:
                    param.grad = param.grad.detach().zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient. A `closure` computes the loss anew and is called before."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                for param in group["params"]:
                    extra = param.extra
                    if extra is not None and extra.grad is not None:
                        self.update(param, extra.grad, self.state[param], group)
        return loss

    def update(self, param: Any, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One parameter's step."""
        raise NotImplementedError(f"{type(self).__name__} defines no update(...)")

    def state_dict(self) -> dict[str, Any]:
        """State and options, with parameters as numbers: in order, over all groups."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                numbers.setdefault(id(param), len(numbers))
            groups.append({**group, "params": [numbers[id(p)] for p in group["params"]]})
        return {"state": {numbers[id(p)]: dict(s) for p, s in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over state and options. Raises `ArgumentError` where groups do not match in number or size."""
        given = state_dict["param_groups"]
        sizes = [len(g["params"]) for g in given], [len(g["params"]) for g in self.param_groups]
        if sizes[0] != sizes[1]:
            raise ArgumentError(
                f"load_state_dict of {type(self).__name__}: groups have {sizes[0]} parameters there and {sizes[1]} here"
            )
        own = {
            n: p
            for g, h in zip(given, self.param_groups, strict=True)
            for n, p in zip(g["params"], h["params"], strict=True)
        }
        self.state = defaultdict(dict)
        for number, entry in state_dict["state"].items():
            param = own[number]
            self.state[param] = {k: _taken(v, param) for k, v in entry.items()}
        for mine, theirs in zip(self.param_groups, given, strict=True):
            mine.update({k: v for k, v in theirs.items() if k != "params"})

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {k}: {v}" for k, v in sorted(group.items()) if k != "params"]
        return "\n".join([*lines, ")"])


def _taken(value: Any, param: Any) -> Any:
    """A state tensor where its parameter lives, in its dtype: a copy, as the other optimizer may go on using it."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().to(device=param.meta.device, dtype=param.meta.dtype, copy=True)  # type: ignore[attr-defined]


def run(name: str, written: tuple[Any, ...], grad: Tensor, *numbers: float) -> None:
    """The update `name`: operands are the parameter, its gradient, then state; all but the gradient is written."""
    call_into(registry[name], (written[0], grad, *written[1:], *numbers), (), written, in_place=False)
