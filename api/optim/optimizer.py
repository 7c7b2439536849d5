"""What optimizers share: groups of parameters with their options, state, hooks, and how all of it is saved."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

import numpy as np

from ..autograd import enable_grad, no_grad
from ..factories import tensor
from ..methods import Handle
from ..runtime import dtypes
from ..runtime.context import current_stream
from ..runtime.errors import ArgumentError, CaptureError, DomainError
from ..runtime.multi_tensor import MultiTensor
from ..runtime.records import registry
from ..runtime.rehearsal import Rehearsal, rehearse
from ..runtime.tensor import Tensor

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook", "required"]

_HOOKS = (
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks",
)  # fmt: skip
_global_pre_hooks: OrderedDict[int, Any] = OrderedDict()
_global_post_hooks: OrderedDict[int, Any] = OrderedDict()
_serial = iter(range(1 << 62))


class _Required:
    """The default of an option that has none."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _register(hooks: OrderedDict[int, Any], hook: Any, prepend: bool = False) -> Handle:
    key = next(_serial)
    hooks[key] = hook
    if prepend:
        hooks.move_to_end(key, last=False)
    return Handle(hooks, key)


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> Handle:
    """Call `hook(optimizer, args, kwargs)` before each step of every optimizer."""
    return _register(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> Handle:
    """Call `hook(optimizer, args, kwargs)` after each step of every optimizer."""
    return _register(_global_post_hooks, hook)


def _hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` of a class with the hooks around it, once however deep calls of `super().step()` go."""

    @functools.wraps(step)
    def wrapper(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if self._stepping:
            return step(self, *args, **kwargs)
        for hook in (*_global_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()):
            changed = hook(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise DomainError(
                        f"{type(self).__name__}.step: a step_pre_hook returns None or (args, kwargs), not {changed!r}"
                    )
                args, kwargs = changed
        self._stepping = self._opt_called = True
        try:
            found = step(self, *args, **kwargs)
        finally:
            self._stepping = False
        if self._rehearsals:
            self._rehearsed()
        for hook in (*self._optimizer_step_post_hooks.values(), *_global_post_hooks.values()):
            hook(self, args, kwargs)
        return found

    return wrapper


class Optimizer:
    """The base of optimizers.

    `param_groups` are dicts of `params` and options; options may differ by group and be changed at any time. `state`
    holds what a parameter's updates need beside it. A step is one kernel for all parameters of a group that are on
    one device, of one dtype, and equally many steps old; it writes parameters and state in place, and the host waits
    for nothing.

    A subclass with generated updates defines `start`, `advance` and `numbers`; any other defines `step`.
    """

    _optimizer_step_pre_hooks: OrderedDict[int, Any]
    _optimizer_step_post_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Any]
    _rehearsals: tuple[Rehearsal, ...] = ()  # of pools that hold parameters, until the first step
    _keeps = False  # gradients are filled with zeros, not dropped
    _stepping = False
    _opt_called = False  # schedulers warn where they come first
    _counts: tuple[str, ...] = ("step",)  # state that is a number here and a 0-d tensor in a state_dict

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in cls.__dict__:
            cls.step = _hooked(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]):
        self.defaults = defaults
        self._prepare()
        if isinstance(params, Tensor):
            raise ArgumentError(f"{type(self).__name__}: takes an iterable of parameters, not a tensor")
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ArgumentError(f"{type(self).__name__}: got no parameters (an empty list)")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)
        streams = [current_stream(d) for d in dict.fromkeys(p.meta.device for p in self._every_param())]
        self._rehearsals = tuple(rehearse(s.pool, self) for s in streams if getattr(s, "capture", None) is None)

    def _every_param(self) -> Iterable[Any]:
        return chain.from_iterable(group["params"] for group in self.param_groups)

    def _prepare(self) -> None:
        for name in _HOOKS:
            self.__dict__.setdefault(name, OrderedDict())
        self._calls: dict[Any, MultiTensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __repr__(self) -> str:
        shown = f"{type(self).__name__} ("
        for number, group in enumerate(self.param_groups):
            options = "".join(f"    {k}: {v}\n" for k, v in sorted(group.items()) if k != "params")
            shown += f"\nParameter Group {number}\n{options}"
        return shown + ")"

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, or (name, parameter) pairs, with options of their own.

        Raises `ArgumentError` for what is no leaf tensor, or in another group already, and for names that only some
        of the parameters have.
        """
        title = type(self).__name__
        if not isinstance(param_group, dict):
            raise ArgumentError(f"{title}: a parameter group is a dict, not {type(param_group).__name__}")
        given = param_group["params"]
        if isinstance(given, set):
            raise ArgumentError(f"{title}: parameters need an order that stays: give a list, not a set")
        listed = [given] if isinstance(given, Tensor) else list(given)
        names = [p[0] for p in listed if isinstance(p, tuple)]
        params = [p[1] if isinstance(p, tuple) else p for p in listed]
        if names and len(names) != len(params):
            raise ArgumentError(f"{title}: all parameters of a group have names, or none")
        for param in params:
            if not isinstance(param, Tensor):
                raise ArgumentError(f"{title}: can optimize tensors only, not {type(param).__name__}")
            if param.node is not None and not (param.extra is not None and param.extra.retains):
                raise ArgumentError(
                    f"{title}: can optimize leaves only; this tensor was computed by {param.node.name}: "
                    "pass what it was computed from, or .detach().requires_grad_() of it"
                )
        param_group["params"] = params
        if names:
            param_group["param_names"] = names
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ArgumentError(f"{title}: a parameter group needs a value of {name}")
            param_group.setdefault(name, default)
        own = {id(p) for p in params}
        if len(own) != len(params):
            warnings.warn(f"{title}: a parameter is in its group more than once", stacklevel=3)
        for group in self.param_groups:
            if ("param_names" in group) != ("param_names" in param_group):
                raise ArgumentError(f"{title}: the parameters of all groups have names, or none")
            if any(id(p) in own for p in group["params"]):
                raise ArgumentError(f"{title}: a parameter is in more than one group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the parameters' gradients, or fill them with zeros."""
        self._keeps = not set_to_none
        for group in self.param_groups:
            for param in group["params"]:
                if param.extra is None or param.extra.grad is None:
                    continue
                if set_to_none:
                    param.extra.grad = None
                else:
                    param.grad = param.grad.detach().zero_()

    # stepping

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient. A `closure` computes the loss anew, is called before, and its
        result returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for position, group in enumerate(self.param_groups):
                params, grads = [], []
                for param in group["params"]:
                    extra = param.extra
                    if extra is not None and (grad := extra.grad) is not None:
                        params.append(param)
                        grads.append(grad)
                if params:
                    self._move(position, group, params, grads)
        return loss

    def _move(self, position: int, group: dict[str, Any], params: list[Any], grads: list[Tensor]) -> None:
        if self._counts and params[0].meta.device.type == "cuda":
            self._check_capture(params[0])
        states = self._states(group, params)
        keys = self.advance(group, params, states)
        if len(params) == len({*map(id, params)}) and keys.count(keys[0]) == len(keys):
            self._update(position, 0, group, keys[0], params, grads, states)
            return
        apart: dict[Any, list[int]] = {}
        turns: dict[int, int] = {}  # how often a parameter was met: one that is there twice moves twice, in turn
        for i, key in enumerate(keys):
            turn = turns[id(params[i])] = turns.get(id(params[i]), -1) + 1
            apart.setdefault((turn, key), []).append(i)
        for number, ((_, key), chosen) in enumerate(apart.items()):
            own = [states[i] for i in chosen] if states else []
            self._update(position, number, group, key, [params[i] for i in chosen], [grads[i] for i in chosen], own)

    def _update(
        self, position: int, number: int, group: dict[str, Any], key: Any, params: list[Any], grads: list[Any],
        states: list[dict[str, Any]],
    ) -> None:  # fmt: skip
        name, fields, values = self.numbers(group, key)
        call = self._calls.get((position, number, name))
        if call is None:
            call = self._calls[position, number, name] = MultiTensor(registry[name])
        call([params, grads, *[[s[field] for s in states] for field in fields]], values)

    def _states(self, group: dict[str, Any], params: list[Any]) -> list[dict[str, Any]]:
        """The parameters' states, begun where they are empty."""
        own = self.state
        states = [own[param] for param in params]
        if not all(states):
            if self._rehearsals:
                self._provide(group, [p for p, s in zip(params, states, strict=True) if not s])
            for param, state in zip(params, states, strict=True):
                if not state:
                    self.start(param, state, group)
        return states

    def _provide(self, group: dict[str, Any], params: list[Any], like: int | None = None) -> None:
        """Memory of its own for the state that `params` are about to get: `like` tensors as the parameter, or what
        `start` makes, as the least of them tells."""
        if not params:
            return
        least = min(params, key=lambda p: p.meta.numel)
        tried: dict[str, Any] = {"like": [least] * (like or 0)}
        if like is None:
            self.start(least, tried, group)
        made = [(t.meta.nbytes, t.meta.dtype.itemsize, t.meta.shape == least.meta.shape) for t in _tensors(tried)]
        for rehearsal in self._rehearsals:
            own = [p for p in params if current_stream(p.meta.device).pool is rehearsal.pool]
            rehearsal.provide(p.meta.numel * item if same else size for p in own for size, item, same in made)

    def _rehearsed(self) -> None:
        """The first step is done: pools get ready for the next, so that it asks no driver for memory."""
        params = list(self._every_param())
        grads = [p.extra.grad for p in params if p.extra is not None and p.extra.grad is not None]
        if not grads:
            return
        rehearsals, self._rehearsals = self._rehearsals, ()
        lasting = [t.storage.block for t in (*params, *_tensors(self.state))]
        streams = [current_stream(d) for d in dict.fromkeys(p.meta.device for p in params)]
        pools = [s.pool for s in streams if getattr(s, "capture", None) is None]
        for rehearsal in rehearsals:
            if rehearsal.pool in pools:
                rehearsal.ended(self, lasting, [g.storage.block for g in grads], self._keeps)
            else:
                rehearsal.leave(self)

    def _check_capture(self, param: Any) -> None:
        if getattr(current_stream(param.meta.device), "capture", None) is not None:
            raise CaptureError(
                f"{type(self).__name__}.step: its numbers change from step to step, and a graph would replay those of "
                "this one; step outside of the graph, or capture SGD"
            )

    def start(self, param: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Fill the empty `state` of a parameter."""

    def advance(self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]) -> list[Any]:
        """Count a step in each state; what `numbers` needs to know of each. Parameters of equal answers move at once.

        By default this counts `step` where a state has it, and that is the answer.
        """
        for state in states:
            state["step"] += 1
        return [state["step"] for state in states]

    def numbers(self, group: dict[str, Any], key: Any) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        """The update's op, the state that is its operands after parameter and gradient, and its numbers."""
        raise NotImplementedError(f"{type(self).__name__} defines no numbers(...)")

    # hooks

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(optimizer, args, kwargs)` before a step; it may return other (args, kwargs)."""
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(optimizer, args, kwargs)` after a step."""
        return _register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` before `state_dict`."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` after `state_dict`; it may return another."""
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` before loading; it may return another to load."""
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` after loading."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # saving

    def state_dict(self) -> dict[str, Any]:
        """State and options in PyTorch's layout: parameters are numbers, in order over all groups; tensors of state
        are not copied, counts of steps are 0-d float32 tensors on the host."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                numbers.setdefault(id(param), len(numbers))
            groups.append({**group, "params": [numbers[id(p)] for p in group["params"]]})
        state = {
            numbers[id(p)] if isinstance(p, Tensor) else p: {k: self._saved(k, v) for k, v in s.items()}
            if isinstance(s, dict) else s
            for p, s in self.state.items()
        }  # fmt: skip
        found = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, found)
            found = found if changed is None else changed
        return found

    def _saved(self, key: str, value: Any) -> Any:
        counted = key in self._counts and isinstance(value, (int, float))
        return tensor(float(value), dtype=dtypes.float32, device="cpu") if counted else value

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over state and options, copied, on the parameters' devices and of their dtypes. Counts may be numbers
        or tensors, and tensors may be NumPy's or another library's.
        Raises `ArgumentError` where groups do not match in number or size.
        """
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        given = deepcopy(state_dict["param_groups"])
        sizes = [len(g["params"]) for g in given], [len(g["params"]) for g in self.param_groups]
        if sizes[0] != sizes[1]:
            raise ArgumentError(
                f"load_state_dict of {type(self).__name__}: groups have {sizes[0]} parameters there and {sizes[1]} here"
            )
        theirs = chain.from_iterable(g["params"] for g in given)
        own = dict(zip(theirs, chain.from_iterable(g["params"] for g in self.param_groups), strict=True))
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for number, entry in state_dict["state"].items():
            if number in own:
                state[own[number]] = {k: self._taken(k, v, own[number]) for k, v in entry.items()}
            else:
                state[number] = entry
        for group, new in zip(self.param_groups, given, strict=True):
            new["params"] = group["params"]
            if "param_names" in group:
                new.setdefault("param_names", group["param_names"])
        self.__setstate__({"state": state, "param_groups": given})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _taken(self, key: Any, value: Any, param: Any) -> Any:
        """State where its parameter lives, in its dtype: a copy, as the other optimizer may go on using it."""
        if key in self._counts and (isinstance(value, (Tensor, np.ndarray, np.generic)) or hasattr(value, "item")):
            return float(value.item())
        if hasattr(value, "__array__") and not isinstance(value, (Tensor, np.generic)):
            value = tensor(np.asarray(value))
        if isinstance(value, Tensor):
            kind = param.meta.dtype if param.meta.dtype.kind == "f" else value.meta.dtype
            return value.detach().to(device=param.meta.device, dtype=kind, copy=True)
        if isinstance(value, dict):
            return {k: self._taken(k, v, param) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._taken(None, v, param) for v in value)
        return value


def _tensors(value: Any) -> Iterable[Tensor]:
    """Tensors in containers within containers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors(each)


Optimizer.step = _hooked(Optimizer.step)  # type: ignore[method-assign]
