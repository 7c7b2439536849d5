"""Tables of hooks: the hooks of one module, and those that all modules call."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..runtime.errors import ArgumentError
from ..tensor_methods.hooks import Handle

if TYPE_CHECKING:
    from ._types import Hook

__all__ = [
    "HookTable",
    "register_module_backward_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]

_ids = itertools.count()


class HookTable(OrderedDict[int, "Hook"]):
    """Hooks by id, in the order of their calls.

    Attributes:
        kwargs: Ids of forward hooks that also get the keyword arguments.
        always: Ids of hooks that run even after an error.
    """

    def __init__(self, hooks: Iterable[tuple[int, Hook]] = ()):
        super().__init__(hooks)
        self.kwargs: set[int] = set()
        self.always: set[int] = set()

    def add(self, hook: Hook, prepend: bool = False, with_kwargs: bool = False, always: bool = False) -> Handle:
        """Register `hook` and return a handle that removes it. `prepend` puts it first."""
        if not callable(hook):
            raise ArgumentError(f"a hook is a function, not {type(hook).__name__}")
        key = next(_ids)
        self[key] = hook
        if prepend:
            self.move_to_end(key, last=False)
        if with_kwargs:
            self.kwargs.add(key)
        if always:
            self.always.add(key)
        return Handle(self, key)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (list(self.items()),), {"kwargs": set(self.kwargs), "always": set(self.always)}


global_forward_pre = HookTable()
global_forward = HookTable()
global_backward_pre = HookTable()
global_backward = HookTable()


def register_module_forward_pre_hook(hook: Hook) -> Handle:
    """Call `hook(module, args)` before the `forward` of every module.

    Args:
        hook: Function; its result, if not None, replaces the positional arguments.

    Returns:
        Handle, whose `remove()` unregisters the hook.

    Raises:
        ArgumentError: If `hook` is not callable.

    Example:
        >>> from weftgrad import nn
        >>> from weftgrad.nn.modules.module import register_module_forward_pre_hook
        >>> handle = register_module_forward_pre_hook(lambda module, args: print(type(module).__name__))
        >>> output = nn.Identity()(wg.ones(1))
        Identity
        >>> handle.remove()
    """
    return global_forward_pre.add(hook)


def register_module_forward_hook(hook: Hook, *, with_kwargs: bool = False, always_call: bool = False) -> Handle:
    """Call `hook(module, args, output)` after the `forward` of every module, before the module's own hooks.

    Args:
        hook: Function; its result, if not None, replaces the output.
        with_kwargs: Call `hook(module, args, kwargs, output)`.
        always_call: Also call it if `forward` or another hook raises an error.

    Returns:
        Handle, whose `remove()` unregisters the hook.

    Raises:
        ArgumentError: If `hook` is not callable.

    Example:
        >>> from weftgrad import nn
        >>> from weftgrad.nn.modules.module import register_module_forward_hook
        >>> handle = register_module_forward_hook(lambda module, args, output: output * 2)
        >>> nn.Identity()(wg.ones(1))
        tensor([2.])
        >>> handle.remove()
    """
    return global_forward.add(hook, False, with_kwargs, always_call)


def register_module_full_backward_pre_hook(hook: Hook) -> Handle:
    """Call `hook(module, grad_output)` when the gradient of any module's output is computed.

    Args:
        hook: Function; its result, if not None, replaces `grad_output`.

    Returns:
        Handle, whose `remove()` unregisters the hook.

    Raises:
        ArgumentError: If `hook` is not callable.

    Example:
        >>> from weftgrad import nn
        >>> from weftgrad.nn.modules.module import register_module_full_backward_pre_hook
        >>> handle = register_module_full_backward_pre_hook(lambda module, grad_output: print(grad_output))
        >>> nn.ReLU()(wg.ones(2, requires_grad=True)).sum().backward()
        (tensor([1., 1.]),)
        >>> handle.remove()
    """
    return global_backward_pre.add(hook)


def register_module_full_backward_hook(hook: Hook) -> Handle:
    """Call `hook(module, grad_input, grad_output)` when the gradient of any module's input is computed.

    Args:
        hook: Function; its result, if not None, replaces `grad_input`.

    Returns:
        Handle, whose `remove()` unregisters the hook.

    Raises:
        ArgumentError: If `hook` is not callable.

    Example:
        >>> from weftgrad import nn
        >>> from weftgrad.nn.modules.module import register_module_full_backward_hook
        >>> def show(module, grad_input, grad_output):
        ...     print(grad_input)
        ...
        >>> handle = register_module_full_backward_hook(show)
        >>> nn.ReLU()(wg.ones(2, requires_grad=True)).sum().backward()
        (tensor([1., 1.]),)
        >>> handle.remove()
    """
    return global_backward.add(hook)


register_module_backward_hook = register_module_full_backward_hook
