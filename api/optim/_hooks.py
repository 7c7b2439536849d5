"""Hooks of optimizers: functions that run before and after `step`, `state_dict` and `load_state_dict`."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ..runtime.errors import DomainError
from ..tensor_methods.hooks import Handle
from ._state_memory import end_rehearsals
from ._types import StateDict

if TYPE_CHECKING:
    from .optimizer import Optimizer

__all__ = [
    "OptimizerHooks", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook", "run_hooks_around_step",
]  # fmt: skip

_Result = TypeVar("_Result")
_Self = TypeVar("_Self", bound="OptimizerHooks")
_Hook = TypeVar("_Hook", bound=Callable[..., object])

# The arguments of one call of `step`. Hooks get them as they are, so that any types are possible.
_Args: TypeAlias = tuple[object, ...]
_Kwargs: TypeAlias = dict[str, object]

_global_pre_hooks: OrderedDict[int, Callable[..., tuple[_Args, _Kwargs] | None]] = OrderedDict()
_global_post_hooks: OrderedDict[int, Callable[..., object]] = OrderedDict()
_hook_ids = iter(range(1 << 62))


def _add_hook(hooks: OrderedDict[int, _Hook], hook: _Hook, prepend: bool = False) -> Handle:
    key = next(_hook_ids)
    hooks[key] = hook
    if prepend:
        hooks.move_to_end(key, last=False)
    return Handle(hooks, key)


def register_optimizer_step_pre_hook(
    hook: Callable[[Optimizer, _Args, _Kwargs], tuple[_Args, _Kwargs] | None],
) -> Handle:
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


def register_optimizer_step_post_hook(hook: Callable[[Optimizer, _Args, _Kwargs], object]) -> Handle:
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


def run_hooks_around_step(step: Callable[..., _Result]) -> Callable[..., _Result]:
    """Wrap a class's `step` so that hooks run around it. Nested calls of `super().step()` run them once."""

    @functools.wraps(step)
    def wrapper(self: Optimizer, *args: object, **kwargs: object) -> _Result:
        if self._stepping or "_optimizer_step_pre_hooks" not in self.__dict__:
            return step(self, *args, **kwargs)  # of a class that wraps an optimizer, and did not call __init__
        for pre_hook in (*_global_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()):
            new_call = pre_hook(self, args, kwargs)
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
            end_rehearsals(self)
        for post_hook in (*self._optimizer_step_post_hooks.values(), *_global_post_hooks.values()):
            post_hook(self, args, kwargs)
        return output

    return wrapper


class OptimizerHooks:
    """The hooks of one optimizer, by key, and the methods that register them."""

    _optimizer_step_pre_hooks: OrderedDict[int, Callable[..., tuple[_Args, _Kwargs] | None]]
    _optimizer_step_post_hooks: OrderedDict[int, Callable[..., object]]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Callable[..., object]]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Callable[..., StateDict | None]]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Callable[..., StateDict | None]]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Callable[..., object]]

    def _init_hooks(self) -> None:
        """Create the dicts that do not exist: all of them in a new optimizer, and in one that was unpickled."""
        for name in OptimizerHooks.__annotations__:
            self.__dict__.setdefault(name, OrderedDict())

    def register_step_pre_hook(
        self: _Self, hook: Callable[[_Self, _Args, _Kwargs], tuple[_Args, _Kwargs] | None]
    ) -> Handle:
        """Call `hook(optimizer, args, kwargs)` before a step.

        Args:
            hook: Function; its result, if not None, replaces (args, kwargs) of the step. `step` raises `DomainError` if
                it is no pair.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Example:
            >>> weight = wg.ones(1, requires_grad=True)
            >>> optimizer = wg.optim.SGD([weight], lr=1.0)
            >>> def halve_rate(optimizer, args, kwargs):
            ...     optimizer.param_groups[0]['lr'] *= 0.5
            ...
            >>> handle = optimizer.register_step_pre_hook(halve_rate)
            >>> weight.sum().backward()
            >>> optimizer.step()
            >>> weight
            tensor([0.5000], requires_grad=True)
        """
        return _add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self: _Self, hook: Callable[[_Self, _Args, _Kwargs], object]) -> Handle:
        """Call `hook(optimizer, args, kwargs)` after a step.

        Args:
            hook: Function; its result is ignored.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Example:
            >>> weight = wg.ones(1, requires_grad=True)
            >>> optimizer = wg.optim.SGD([weight])
            >>> handle = optimizer.register_step_post_hook(lambda optimizer, args, kwargs: optimizer.zero_grad())
            >>> weight.sum().backward()
            >>> optimizer.step()
            >>> print(weight.grad)
            None
        """
        return _add_hook(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self: _Self, hook: Callable[[_Self], object], prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` before `state_dict`.

        Args:
            hook: Function; its result is ignored.
            prepend: Call it before the other hooks.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)])
            >>> handle = optimizer.register_state_dict_pre_hook(lambda optimizer: print('saving'))
            >>> saved = optimizer.state_dict()
            saving
        """
        return _add_hook(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(
        self: _Self, hook: Callable[[_Self, StateDict], StateDict | None], prepend: bool = False
    ) -> Handle:
        """Call `hook(optimizer, state_dict)` after `state_dict`.

        Args:
            hook: Function; its result, if not None, replaces the state dict.
            prepend: Call it before the other hooks.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)])
            >>> handle = optimizer.register_state_dict_post_hook(lambda optimizer, saved: {**saved, 'version': 2})
            >>> optimizer.state_dict()['version']
            2
        """
        return _add_hook(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self: _Self, hook: Callable[[_Self, StateDict], StateDict | None], prepend: bool = False
    ) -> Handle:
        """Call `hook(optimizer, state_dict)` before loading.

        Args:
            hook: Function; its result, if not None, is loaded instead. `state_dict` is a shallow copy.
            prepend: Call it before the other hooks.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)])
            >>> handle = optimizer.register_load_state_dict_pre_hook(lambda optimizer, saved: print(sorted(saved)))
            >>> optimizer.load_state_dict(optimizer.state_dict())
            ['param_groups', 'state']
        """
        return _add_hook(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self: _Self, hook: Callable[[_Self], object], prepend: bool = False
    ) -> Handle:
        """Call `hook(optimizer)` after loading.

        Args:
            hook: Function; its result is ignored.
            prepend: Call it before the other hooks.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)])
            >>> handle = optimizer.register_load_state_dict_post_hook(lambda optimizer: print('loaded'))
            >>> optimizer.load_state_dict(optimizer.state_dict())
            loaded
        """
        return _add_hook(self._optimizer_load_state_dict_post_hooks, hook, prepend)
