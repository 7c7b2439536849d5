"""The base class of optimizers: parameter groups, per-parameter state, hooks, and saving.

`Optimizer.step` batches the parameters of a group and launches one multi-tensor kernel per batch
(`runtime/multi_tensor.py`). The update rules are in `adam`, `algorithms` and `lbfgs`.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np

from ..autograd import enable_grad, no_grad
from ..creation.from_data import tensor
from ..runtime import dtypes
from ..runtime.context import current_stream
from ..runtime.errors import ArgumentError, CaptureError, DomainError
from ..runtime.multi_tensor import MultiTensor
from ..runtime.records import registry
from ..runtime.rehearsal import Rehearsal, rehearse
from ..runtime.tensor import Tensor
from ..tensor_methods.hooks import Handle

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook", "required"]

_HOOKS = (
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks",
)  # fmt: skip
_global_pre_hooks: OrderedDict[int, Any] = OrderedDict()
_global_post_hooks: OrderedDict[int, Any] = OrderedDict()
_hook_ids = iter(range(1 << 62))


class _Required:
    """Marks an option without a default value."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _add_hook(hooks: OrderedDict[int, Any], hook: Callable[..., Any], prepend: bool = False) -> Handle:
    key = next(_hook_ids)
    hooks[key] = hook
    if prepend:
        hooks.move_to_end(key, last=False)
    return Handle(hooks, key)


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> Handle:
    """Call `hook(optimizer, args, kwargs)` before each step of every optimizer.

    Args:
        hook: Function; its result, if not None, replaces (args, kwargs) of the step.

    Returns:
        Handle, whose `remove()` unregisters the hook.

    Example:
        >>> from weftgrad.optim.optimizer import register_optimizer_step_pre_hook
        >>> handle = register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: print(type(optimizer).__name__))
        >>> wg.optim.SGD([wg.zeros(1, requires_grad=True)]).step()
        SGD
        >>> handle.remove()
    """
    return _add_hook(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> Handle:
    """Call `hook(optimizer, args, kwargs)` after each step of every optimizer.

    Args:
        hook: Function; its result is ignored.

    Returns:
        Handle, whose `remove()` unregisters the hook.

    Example:
        >>> from weftgrad.optim.optimizer import register_optimizer_step_post_hook
        >>> handle = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: print(type(optimizer).__name__))
        >>> wg.optim.SGD([wg.zeros(1, requires_grad=True)]).step()
        SGD
        >>> handle.remove()
    """
    return _add_hook(_global_post_hooks, hook)


def _with_step_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a class's `step` so that hooks run around it. Nested calls of `super().step()` run them once."""

    @functools.wraps(step)
    def wrapper(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if self._stepping:
            return step(self, *args, **kwargs)
        for hook in (*_global_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()):
            new_call = hook(self, args, kwargs)
            if new_call is not None:
                if not (isinstance(new_call, tuple) and len(new_call) == 2):
                    raise DomainError(
                        f"{type(self).__name__}.step: a step_pre_hook returns None or (args, kwargs), not {new_call!r}"
                    )
                args, kwargs = new_call
        self._stepping = self._opt_called = True
        try:
            output = step(self, *args, **kwargs)
        finally:
            self._stepping = False
        if self._rehearsals:
            self._finish_rehearsal()
        for hook in (*self._optimizer_step_post_hooks.values(), *_global_post_hooks.values()):
            hook(self, args, kwargs)
        return output

    return wrapper


_Loss = TypeVar("_Loss")

Params: TypeAlias = Iterable[Tensor | dict[str, Any] | tuple[str, Tensor]]
"""What optimizers accept: parameters, pairs of name and parameter, or groups with options of their own."""


class Optimizer:
    """Base class of optimizers.

    One step is one kernel for all parameters of a group that share device, dtype and step count. It writes parameters
    and state in place. The host does not wait for the device.

    A subclass with a generated update kernel defines `init_state`, `count_step` and `kernel_arguments`. Any other
    subclass defines `step`.

    Args:
        params: Parameters, (name, parameter) pairs, or dicts with `params` and options of that group.
        defaults: Default value of each option.

    Attributes:
        param_groups: One dict per group, with `params` and the options. Options may be changed at any time.
        state: Per parameter, the tensors and numbers that its updates need.

    Raises:
        ArgumentError: If there are no parameters, or one of them is not a leaf tensor.

    Example:
        >>> optimizer = wg.optim.SGD([{'params': [wg.zeros(1, requires_grad=True)], 'lr': 0.5}], lr=0.1)
        >>> isinstance(optimizer, wg.optim.Optimizer), optimizer.param_groups[0]['lr']
        (True, 0.5)
    """

    _optimizer_step_pre_hooks: OrderedDict[int, Any]
    _step_method_when_scheduled: Any  # set by schedules
    _optimizer_step_post_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Any]
    _rehearsals: tuple[Rehearsal, ...] = ()  # one per memory pool with parameters, until the first step ends
    _zeros_grads = False  # zero_grad was called with set_to_none=False
    _stepping = False
    _opt_called = False  # step was called; a scheduler that steps first warns
    _counts: tuple[str, ...] = ("step",)  # state that is a float here, a 0-d tensor in a state_dict

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in cls.__dict__:
            cls.step = _with_step_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, params: Params, defaults: dict[str, Any]):
        self.defaults = defaults
        self._init_private_fields()
        if isinstance(params, Tensor):
            raise ArgumentError(f"{type(self).__name__}: takes an iterable of parameters, not a tensor")
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups: list[Any] = list(params)
        if not groups:
            raise ArgumentError(f"{type(self).__name__}: got no parameters (an empty list)")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)
        streams = [current_stream(d) for d in dict.fromkeys(p.meta.device for p in self._all_params())]
        self._rehearsals = tuple(rehearse(s.pool, self) for s in streams if getattr(s, "capture", None) is None)

    def _all_params(self) -> Iterable[Any]:
        return chain.from_iterable(group["params"] for group in self.param_groups)

    def _init_private_fields(self) -> None:
        for name in _HOOKS:
            self.__dict__.setdefault(name, OrderedDict())
        self._kernels: dict[Any, MultiTensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._init_private_fields()

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for index, group in enumerate(self.param_groups):
            options = "".join(f"    {k}: {v}\n" for k, v in sorted(group.items()) if k != "params")
            text += f"\nParameter Group {index}\n{options}"
        return text + ")"

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with options of its own.

        Args:
            param_group: A dict with `params` (tensors or (name, tensor) pairs) and options. Missing options get
                defaults.

        Raises:
            ArgumentError: If a parameter is not a leaf tensor or is in another group already, if only some parameters
                have names, or if a required option is missing.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=0.1)
            >>> optimizer.add_param_group({'params': [wg.zeros(2, requires_grad=True)], 'lr': 0.5})
            >>> [group['lr'] for group in optimizer.param_groups]
            [0.1, 0.5]
        """
        title = type(self).__name__
        if not isinstance(param_group, dict):
            raise ArgumentError(f"{title}: a parameter group is a dict, not {type(param_group).__name__}")
        raw_params = param_group["params"]
        if isinstance(raw_params, set):
            raise ArgumentError(f"{title}: parameters need a fixed order: pass a list, not a set")
        entries = [raw_params] if isinstance(raw_params, Tensor) else list(raw_params)
        names = [p[0] for p in entries if isinstance(p, tuple)]
        params = [p[1] if isinstance(p, tuple) else p for p in entries]
        if names and len(names) != len(params):
            raise ArgumentError(f"{title}: all parameters of a group have names, or none")
        for param in params:
            if not isinstance(param, Tensor):
                raise ArgumentError(f"{title}: can optimize tensors only, not {type(param).__name__}")
            if param.node is not None and not (param.extra is not None and param.extra.retains):
                raise ArgumentError(
                    f"{title}: can optimize leaves only; this tensor was computed by {param.node.name}: "
                    "pass the tensors it was computed from, or its .detach().requires_grad_()"
                )
        param_group["params"] = params
        if names:
            param_group["param_names"] = names
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ArgumentError(f"{title}: a parameter group needs a value of {name}")
            param_group.setdefault(name, default)
        param_ids = {id(p) for p in params}
        if len(param_ids) != len(params):
            warnings.warn(f"{title}: a parameter is in its group more than once", stacklevel=3)
        for group in self.param_groups:
            if ("param_names" in group) != ("param_names" in param_group):
                raise ArgumentError(f"{title}: the parameters of all groups have names, or none")
            if any(id(p) in param_ids for p in group["params"]):
                raise ArgumentError(f"{title}: a parameter is in more than one group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters.

        Args:
            set_to_none: Set `grad` to None, which frees its memory. False fills it with zeros.

        Example:
            >>> weight = wg.ones(1, requires_grad=True)
            >>> optimizer = wg.optim.SGD([weight])
            >>> weight.sum().backward()
            >>> optimizer.zero_grad()
            >>> print(weight.grad)
            None
        """
        self._zeros_grads = not set_to_none
        for group in self.param_groups:
            for param in group["params"]:
                if param.extra is None or param.extra.grad is None:
                    continue
                if set_to_none:
                    param.extra.grad = None
                else:
                    param.grad = param.grad.detach().zero_()

    # stepping

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], _Loss]) -> _Loss: ...
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: Function that computes the loss and its gradients again. It is called before the update.

        Returns:
            The closure's result, or None without a closure.

        Example:
            >>> weight = wg.ones(1, requires_grad=True)
            >>> weight.sum().backward()
            >>> wg.optim.SGD([weight], lr=0.5).step()
            >>> weight
            tensor([0.5000], requires_grad=True)
        """
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
                    self._step_group(position, group, params, grads)
        return loss

    def _step_group(self, position: int, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        if self._counts and params[0].meta.device.type == "cuda":
            self._check_capture(params[0])
        states = self._states(group, params)
        keys = self.count_step(group, params, states)
        if len(params) == len({*map(id, params)}) and keys.count(keys[0]) == len(keys):
            self._launch_update(position, 0, group, keys[0], params, grads, states)
            return
        batches: dict[Any, list[int]] = {}
        occurrences: dict[int, int] = {}  # a parameter that is listed twice is updated twice, one batch after the other
        for i, key in enumerate(keys):
            occurrence = occurrences[id(params[i])] = occurrences.get(id(params[i]), -1) + 1
            batches.setdefault((occurrence, key), []).append(i)
        for batch_number, ((_, key), indices) in enumerate(batches.items()):
            batch_states = [states[i] for i in indices] if states else []
            self._launch_update(
                position,
                batch_number,
                group,
                key,
                [params[i] for i in indices],
                [grads[i] for i in indices],
                batch_states,
            )

    def _launch_update(
        self, position: int, batch_number: int, group: dict[str, Any], key: Any, params: list[Tensor],
        grads: list[Tensor], states: list[dict[str, Any]],
    ) -> None:  # fmt: skip
        name, fields, values = self.kernel_arguments(group, key)
        kernel = self._kernels.get((position, batch_number, name))
        if kernel is None:
            kernel = self._kernels[position, batch_number, name] = MultiTensor(registry[name])
        kernel([params, grads, *[[s[field] for s in states] for field in fields]], values)

    def _states(self, group: dict[str, Any], params: list[Tensor]) -> list[dict[str, Any]]:
        """Return the parameters' states; initialize the empty ones."""
        state_by_param = self.state
        states = [state_by_param[param] for param in params]
        if not all(states):
            if self._rehearsals:
                self._reserve_state_memory(group, [p for p, s in zip(params, states, strict=True) if not s])
            for param, state in zip(params, states, strict=True):
                if not state:
                    self.init_state(param, state, group)
        return states

    def _reserve_state_memory(self, group: dict[str, Any], params: list[Tensor], like: int | None = None) -> None:
        """Reserve memory for the state that `params` will get: `like` tensors of the parameter's shape.

        If `like` is None, `init_state` is called once for the smallest parameter and its tensors are measured.
        """
        if not params:
            return
        smallest = min(params, key=lambda p: p.meta.numel)
        sample_state: dict[str, Any] = {"like": [smallest] * (like or 0)}
        if like is None:
            self.init_state(smallest, sample_state, group)
        tensor_sizes = [
            (t.meta.nbytes, t.meta.dtype.itemsize, t.meta.shape == smallest.meta.shape)
            for t in _iter_tensors(sample_state)
        ]
        for rehearsal in self._rehearsals:
            pool_params = [p for p in params if current_stream(p.meta.device).pool is rehearsal.pool]
            rehearsal.provide(
                p.meta.numel * itemsize if has_param_shape else nbytes
                for p in pool_params
                for nbytes, itemsize, has_param_shape in tensor_sizes
            )

    def _finish_rehearsal(self) -> None:
        """After the first step, prepare the memory pools so that later steps need no allocation from the driver."""
        params = list(self._all_params())
        grads = [p.extra.grad for p in params if p.extra is not None and p.extra.grad is not None]
        if not grads:
            return
        rehearsals, self._rehearsals = self._rehearsals, ()
        persistent_blocks = [t.storage.block for t in (*params, *_iter_tensors(self.state))]
        streams = [current_stream(d) for d in dict.fromkeys(p.meta.device for p in params)]
        pools = [s.pool for s in streams if getattr(s, "capture", None) is None]
        for rehearsal in rehearsals:
            if rehearsal.pool in pools:
                rehearsal.end_step(self, persistent_blocks, [g.storage.block for g in grads], self._zeros_grads)
            else:
                rehearsal.leave(self)

    def _check_capture(self, param: Tensor) -> None:
        if getattr(current_stream(param.meta.device), "capture", None) is not None:
            raise CaptureError(
                f"{type(self).__name__}.step: its scalar arguments change every step, and a graph would replay those "
                "of this step; call step outside of the graph, or capture SGD"
            )

    def init_state(self, param: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Fill the empty `state` of a parameter.

        Args:
            param: The parameter.
            state: Dict to fill.
            group: The parameter's group.
        """

    def count_step(self, group: dict[str, Any], params: list[Tensor], states: list[dict[str, Any]]) -> list[Any]:
        """Count a step in each state and return one key per parameter.

        Parameters with equal keys are updated by one kernel launch; `kernel_arguments` receives the key. By default the
        key is the state's `step`, which this method increments.

        Args:
            group: The parameter group.
            params: Parameters of the group that have gradients.
            states: Their states.

        Returns:
            One key per parameter.
        """
        for state in states:
            state["step"] += 1
        return [state["step"] for state in states]

    def kernel_arguments(self, group: dict[str, Any], key: Any) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        """Return the arguments of the update kernel.

        Args:
            group: The parameter group.
            key: The batch's key from `count_step`.

        Returns:
            (op name, state entries that follow parameter and gradient as operands, scalar arguments).

        Raises:
            NotImplementedError: If a subclass defines neither this method nor `step`.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no kernel_arguments(...)")

    # hooks

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(optimizer, args, kwargs)` before a step.

        Args:
            hook: Function; its result, if not None, replaces (args, kwargs) of the step. `step` raises `DomainError` if
                it is no pair.

        Returns:
            Handle, whose `remove()` unregisters the hook.
        """
        return _add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(optimizer, args, kwargs)` after a step.

        Args:
            hook: Function; its result is ignored.

        Returns:
            Handle, whose `remove()` unregisters the hook.
        """
        return _add_hook(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` before `state_dict`.

        Args:
            hook: Function; its result is ignored.
            prepend: Call it before the other hooks.

        Returns:
            Handle, whose `remove()` unregisters the hook.
        """
        return _add_hook(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` after `state_dict`.

        Args:
            hook: Function; its result, if not None, replaces the state dict.
            prepend: Call it before the other hooks.

        Returns:
            Handle, whose `remove()` unregisters the hook.
        """
        return _add_hook(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` before loading.

        Args:
            hook: Function; its result, if not None, is loaded instead. `state_dict` is a shallow copy.
            prepend: Call it before the other hooks.

        Returns:
            Handle, whose `remove()` unregisters the hook.
        """
        return _add_hook(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` after loading.

        Args:
            hook: Function; its result is ignored.
            prepend: Call it before the other hooks.

        Returns:
            Handle, whose `remove()` unregisters the hook.
        """
        return _add_hook(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # saving

    def state_dict(self) -> dict[str, Any]:
        """Return state and options in PyTorch's layout, with parameters numbered in order over all groups.

        State tensors are not copied. Step counts become 0-d float32 tensors on the host.

        Returns:
            Dict with `state`, a dict from parameter numbers to states, and `param_groups`, a list of dicts.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=0.5, momentum=0.9)
            >>> optimizer.state_dict()['param_groups'][0]['params']
            [0]
        """
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        param_indices: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                param_indices.setdefault(id(param), len(param_indices))
            groups.append({**group, "params": [param_indices[id(p)] for p in group["params"]]})
        state = {
            param_indices[id(p)] if isinstance(p, Tensor) else p: {k: self._save_value(k, v) for k, v in s.items()}
            if isinstance(s, dict) else s
            for p, s in self.state.items()
        }  # fmt: skip
        saved = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            replacement = hook(self, saved)
            saved = saved if replacement is None else replacement
        return saved

    def _save_value(self, key: str, value: Any) -> Any:
        is_step_count = key in self._counts and isinstance(value, (int, float))
        return tensor(float(value), dtype=dtypes.float32, device="cpu") if is_step_count else value

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Copy state and options from `state_dict`.

        Tensors are moved to the device of their parameter and cast to its dtype. They may come from NumPy or another
        library; step counts may be numbers or tensors.

        Args:
            state_dict: Dict with `state` and `param_groups`, as `state_dict` returns it.

        Raises:
            ArgumentError: If the number of groups, or of parameters in a group, differs.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=0.5)
            >>> other = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=0.1)
            >>> other.load_state_dict(optimizer.state_dict())
            >>> other.param_groups[0]['lr']
            0.5
        """
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            replacement = hook(self, state_dict)
            state_dict = state_dict if replacement is None else replacement
        saved_groups = deepcopy(state_dict["param_groups"])
        sizes = [len(g["params"]) for g in saved_groups], [len(g["params"]) for g in self.param_groups]
        if sizes[0] != sizes[1]:
            raise ArgumentError(
                f"load_state_dict of {type(self).__name__}: the saved groups have {sizes[0]} parameters, and the "
                f"optimizer's have {sizes[1]} parameters"
            )
        saved_indices = chain.from_iterable(g["params"] for g in saved_groups)
        param_by_index = dict(
            zip(saved_indices, chain.from_iterable(g["params"] for g in self.param_groups), strict=True)
        )
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for index, entry in state_dict["state"].items():
            if index in param_by_index:
                state[param_by_index[index]] = {
                    k: self._restore_value(k, v, param_by_index[index]) for k, v in entry.items()
                }
            else:
                state[index] = entry
        for group, saved_group in zip(self.param_groups, saved_groups, strict=True):
            saved_group["params"] = group["params"]
            if "param_names" in group:
                saved_group.setdefault("param_names", group["param_names"])
        self.__setstate__({"state": state, "param_groups": saved_groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _restore_value(self, key: str | None, value: Any, param: Tensor) -> Any:
        """Return a copy of a state value, on its parameter's device and in its dtype."""
        if key in self._counts and (isinstance(value, (Tensor, np.ndarray, np.generic)) or hasattr(value, "item")):
            return float(value.item())
        if hasattr(value, "__array__") and not isinstance(value, (Tensor, np.generic)):
            value = tensor(np.asarray(value))
        if isinstance(value, Tensor):
            dtype = param.meta.dtype if param.meta.dtype.kind == "f" else value.meta.dtype
            return value.detach().to(device=param.meta.device, dtype=dtype, copy=True)
        if isinstance(value, dict):
            return {k: self._restore_value(k, v, param) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._restore_value(None, v, param) for v in value)
        return value


def _iter_tensors(value: Any) -> Iterable[Tensor]:
    """Yield the tensors in nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for element in value.values() if isinstance(value, dict) else value:
            yield from _iter_tensors(element)


Optimizer.step = _with_step_hooks(Optimizer.step)  # type: ignore[method-assign]
