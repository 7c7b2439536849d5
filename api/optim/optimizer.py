"""`Optimizer`, the base class of optimizers: parameter groups, per-parameter state, and steps.

`Optimizer.step` batches the parameters of a group and launches one multi-tensor kernel per batch
(`runtime/multi_tensor.py`). The update rules are in `adam`, `algorithms` and `lbfgs`. Hooks are in `_hooks`, the work
of `state_dict` and `load_state_dict` in `_state_dict`, and `_state_memory` prepares the memory pools for the state.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TypeVar, overload

from ..autograd import enable_grad, no_grad
from ..runtime.context import current_stream
from ..runtime.errors import ArgumentError, CaptureError
from ..runtime.multi_tensor import MultiTensor
from ..runtime.records import registry
from ..runtime.rehearsal import Rehearsal
from ..runtime.tensor import Tensor
from . import _state_dict
from ._hooks import (
    OptimizerHooks,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    run_hooks_around_step,
)
from ._state_memory import begin_rehearsals, reserve_state_memory
from ._types import BatchKey, KernelArguments, Options, ParamGroup, Params, ParamState, StateDict

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook", "required"]

_Loss = TypeVar("_Loss")


class _Required:
    """Marks an option without a default value."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class Optimizer(OptimizerHooks):
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

    _step_method_when_scheduled: object  # the attribute `step` of the instance when its first schedule was created
    _rehearsals: tuple[Rehearsal, ...] = ()  # one per memory pool with parameters, until the first step ends
    _zeros_grads = False  # zero_grad was called with set_to_none=False
    _stepping = False
    _opt_called = False  # step was called; a scheduler that steps first warns
    _scalar_entries: tuple[str, ...] = ("step",)  # state that is a float here, a 0-d tensor in a state_dict

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "step" in cls.__dict__:
            type.__setattr__(cls, "step", run_hooks_around_step(cls.__dict__["step"]))

    def __init__(self, params: Params, defaults: Options):
        self.defaults = defaults
        self._init_private_fields()
        if isinstance(params, Tensor):
            raise ArgumentError(f"{type(self).__name__}: takes an iterable of parameters, not a tensor")
        self.state: defaultdict[Tensor, ParamState] = defaultdict(dict)
        self.param_groups: list[ParamGroup] = []
        entries = list(params)
        if not entries:
            raise ArgumentError(f"{type(self).__name__}: got no parameters (an empty list)")
        if not isinstance(entries[0], dict):
            self.add_param_group({"params": entries})
        else:
            for group in entries:
                self.add_param_group(_check_group(self, group))
        self._rehearsals = begin_rehearsals(self)

    def _all_params(self) -> Iterable[Tensor]:
        return chain.from_iterable(group["params"] for group in self.param_groups)

    def _init_private_fields(self) -> None:
        self._init_hooks()
        self._kernels: dict[tuple[int, int, str], MultiTensor] = {}  # by group, batch and name of the update op

    def __getstate__(self) -> dict[str, object]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._init_private_fields()

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for index, group in enumerate(self.param_groups):
            options = "".join(f"    {k}: {v}\n" for k, v in sorted(group.items()) if k != "params")
            text += f"\nParameter Group {index}\n{options}"
        return text + ")"

    def add_param_group(self, param_group: ParamGroup) -> None:
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
        raw_params = _check_group(self, param_group)["params"]
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
    @run_hooks_around_step
    def step(self, closure: Callable[[], object] | None = None) -> object:
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

    def _step_group(self, position: int, group: ParamGroup, params: list[Tensor], grads: list[Tensor]) -> None:
        if self._scalar_entries and params[0].meta.device.type == "cuda":
            self._check_capture(params[0])
        states = self._states(group, params)
        keys = self.count_step(group, params, states)
        if len(params) == len({*map(id, params)}) and keys.count(keys[0]) == len(keys):
            self._launch_update(position, 0, group, keys[0], params, grads, states)
            return
        batches: dict[tuple[int, BatchKey], list[int]] = {}
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
        self, position: int, batch_number: int, group: ParamGroup, key: BatchKey, params: list[Tensor],
        grads: list[Tensor], states: list[ParamState],
    ) -> None:  # fmt: skip
        name, fields, values = self.kernel_arguments(group, key)
        kernel = self._kernels.get((position, batch_number, name))
        if kernel is None:
            kernel = self._kernels[position, batch_number, name] = MultiTensor(registry[name])
        kernel([params, grads, *[[s[field] for s in states] for field in fields]], values)

    def _states(self, group: ParamGroup, params: list[Tensor]) -> list[ParamState]:
        """Return the parameters' states; initialize the empty ones."""
        state_by_param = self.state
        states = [state_by_param[param] for param in params]
        if not all(states):
            if self._rehearsals:
                reserve_state_memory(self, group, [p for p, s in zip(params, states, strict=True) if not s])
            for param, state in zip(params, states, strict=True):
                if not state:
                    self.init_state(param, state, group)
        return states

    def _check_capture(self, param: Tensor) -> None:
        if getattr(current_stream(param.meta.device), "capture", None) is not None:
            raise CaptureError(
                f"{type(self).__name__}.step: its scalar arguments change every step, and a graph would replay those "
                "of this step; call step outside of the graph, or capture SGD"
            )

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        """Fill the empty `state` of a parameter.

        Args:
            param: The parameter.
            state: Dict to fill.
            group: The parameter's group.

        Example:
            >>> weight = wg.ones(1, requires_grad=True)
            >>> optimizer, state = wg.optim.Adam([weight]), {}
            >>> optimizer.init_state(weight, state, optimizer.param_groups[0])
            >>> sorted(state)
            ['exp_avg', 'exp_avg_sq', 'step']
        """

    def count_step(self, group: ParamGroup, params: list[Tensor], states: list[ParamState]) -> list[BatchKey]:
        """Count a step in each state and return one key per parameter.

        Parameters with equal keys are updated by one kernel launch; `kernel_arguments` receives the key. By default the
        key is the state's `step`, which this method increments.

        Args:
            group: The parameter group.
            params: Parameters of the group that have gradients.
            states: Their states.

        Returns:
            One key per parameter.

        Example:
            >>> weight = wg.ones(1, requires_grad=True)
            >>> optimizer = wg.optim.Adam([weight])
            >>> optimizer.count_step(optimizer.param_groups[0], [weight], [{'step': 2.0}])
            [3.0]
        """
        for state in states:
            state["step"] += 1
        return [state["step"] for state in states]

    def kernel_arguments(self, group: ParamGroup, key: BatchKey) -> KernelArguments:
        """Return the arguments of the update kernel.

        Args:
            group: The parameter group.
            key: The batch's key from `count_step`.

        Returns:
            (op name, state entries that follow parameter and gradient as operands, scalar arguments).

        Raises:
            NotImplementedError: If a subclass defines neither this method nor `step`.

        Example:
            >>> optimizer = wg.optim.SGD([wg.ones(1, requires_grad=True)], lr=0.5)
            >>> optimizer.kernel_arguments(optimizer.param_groups[0], 0.0)
            ('sgd_step', (), (0.5, 0.0, 1.0))
        """
        raise NotImplementedError(f"{type(self).__name__} defines no kernel_arguments(...)")

    # saving

    def state_dict(self) -> StateDict:
        """Return state and options in PyTorch's layout, with parameters numbered in order over all groups.

        State tensors are not copied. Step counts become 0-d float32 tensors on the host.

        Returns:
            Dict with `state`, a dict from parameter numbers to states, and `param_groups`, a list of dicts.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=0.5, momentum=0.9)
            >>> optimizer.state_dict()['param_groups'][0]['params']
            [0]
        """
        for pre_hook in self._optimizer_state_dict_pre_hooks.values():
            pre_hook(self)
        saved = _state_dict.build_state_dict(self)
        for post_hook in self._optimizer_state_dict_post_hooks.values():
            replacement = post_hook(self, saved)
            saved = saved if replacement is None else replacement
        return saved

    def load_state_dict(self, state_dict: StateDict) -> None:
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
        for pre_hook in self._optimizer_load_state_dict_pre_hooks.values():
            replacement = pre_hook(self, state_dict)
            state_dict = state_dict if replacement is None else replacement
        _state_dict.load_state_dict(self, state_dict)
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)


def _check_group(optimizer: Optimizer, group: object) -> ParamGroup:
    """Return `group`. Raise `ArgumentError` if it is not a dict."""
    if not isinstance(group, dict):
        raise ArgumentError(f"{type(optimizer).__name__}: a parameter group is a dict, not {type(group).__name__}")
    return group
