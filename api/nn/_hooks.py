"""Registration of a module's hooks, and its call: `forward` between the hooks.

A hook is a function that is called before or after `forward`, or during backward (`_backward_hooks`). The tables of
hooks are in `_hook_tables`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from ..runtime.errors import ArgumentError
from ._backward_hooks import BackwardHookCall
from ._hook_tables import HookTable, global_backward, global_backward_pre, global_forward, global_forward_pre

if TYPE_CHECKING:
    from ..tensor_methods.hooks import Handle
    from ._types import Hook, Output

__all__ = ["Hooks", "WithForward"]

_Parameters = ParamSpec("_Parameters")
_Output = TypeVar("_Output", covariant=True)


class WithForward(Protocol[_Parameters, _Output]):
    """A module for type checkers: `__call__` takes and returns what the subclass's `forward` does."""

    _forward_hooks: HookTable
    _forward_pre_hooks: HookTable
    _backward_hooks: HookTable
    _backward_pre_hooks: HookTable

    def forward(self, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Output: ...


class Hooks:
    """Base class of `Module`: registers hooks and calls `forward` between them."""

    _forward_hooks: HookTable
    _forward_pre_hooks: HookTable
    _backward_hooks: HookTable
    _backward_pre_hooks: HookTable
    if TYPE_CHECKING:  # `typing.get_type_hints` of a user's class must find no name that is not imported
        forward: Callable[..., Output]

    def __call__(
        self: WithForward[_Parameters, _Output], *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> _Output:
        if not (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or global_forward
            or global_forward_pre
            or global_backward
            or global_backward_pre
        ):
            return self.forward(*args, **kwargs)
        return _call_with_hooks(self, args, kwargs)

    def register_forward_pre_hook(self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False) -> Handle:
        """Call `hook(module, args)` before `forward`.

        Args:
            hook: Its result, if not None, replaces the arguments. A result that is not a tuple is the only argument.
            prepend: Call it before the other hooks.
            with_kwargs: Call `hook(module, args, kwargs)`, which returns (args, kwargs) or None.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Raises:
            ArgumentError: If `hook` is not callable. The call of the module raises it if a hook with `with_kwargs`
                returns neither None nor (args, kwargs).

        Example:
            >>> layer = wg.nn.ReLU()
            >>> handle = layer.register_forward_pre_hook(lambda module, args: -args[0])
            >>> layer(wg.tensor([-1.0, 2.0]))
            tensor([1., 0.])
        """
        return self._forward_pre_hooks.add(hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> Handle:
        """Call `hook(module, args, output)` after `forward`.

        Args:
            hook: Its result, if not None, replaces the output.
            prepend: Call it before the other hooks.
            with_kwargs: Call `hook(module, args, kwargs, output)`.
            always_call: Also call it if `forward` or another hook raises an error.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Raises:
            ArgumentError: If `hook` is not callable.

        Example:
            >>> layer = wg.nn.ReLU()
            >>> handle = layer.register_forward_hook(lambda module, args, output: output + 1)
            >>> layer(wg.tensor([-1.0, 2.0]))
            tensor([1., 3.])
        """
        return self._forward_hooks.add(hook, prepend, with_kwargs, always_call)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call `hook(module, grad_output)` in backward, before the module's own backward.

        Args:
            hook: Its result, if not None, replaces `grad_output`, a tuple with None for outputs without a gradient.
            prepend: Call it before the other hooks.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Raises:
            ArgumentError: If `hook` is not callable.

        Example:
            >>> layer = wg.nn.ReLU()
            >>> handle = layer.register_full_backward_pre_hook(lambda module, grad_output: (grad_output[0] * 10,))
            >>> x = wg.tensor([-1.0, 2.0], requires_grad=True)
            >>> layer(x).sum().backward()
            >>> x.grad
            tensor([ 0., 10.])
        """
        return self._backward_pre_hooks.add(hook, prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call `hook(module, grad_input, grad_output)` in backward.

        It is called when the gradients of the positional tensor arguments are computed.

        A module with such a hook must not modify its arguments in place.

        Args:
            hook: Its result, if not None, replaces `grad_input`.
            prepend: Call it before the other hooks.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Raises:
            ArgumentError: If `hook` is not callable.
            GradientError: From the call of the module, if it wrote an argument in place.

        Example:
            >>> layer = wg.nn.ReLU()
            >>> handle = layer.register_full_backward_hook(lambda module, grad_input, grad_output: print(grad_input))
            >>> layer(wg.tensor([-1.0, 2.0], requires_grad=True)).sum().backward()
            (tensor([0., 1.]),)
        """
        return self._backward_hooks.add(hook, prepend)

    def register_backward_hook(self, hook: Hook) -> Handle:
        """Deprecated alias of `register_full_backward_hook`.

        Args:
            hook: Function `hook(module, grad_input, grad_output)`.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Example:
            >>> layer = wg.nn.ReLU()
            >>> handle = layer.register_backward_hook(lambda module, grad_input, grad_output: print(grad_output))
            >>> layer(wg.ones(2, requires_grad=True)).sum().backward()
            (tensor([1., 1.]),)
        """
        return self._backward_hooks.add(hook)


def _call_with_hooks(module: WithForward[..., _Output], args: tuple[object, ...], kwargs: dict[str, object]) -> Output:
    called_hooks: set[int] = set()
    try:
        return _call_inner(module, args, kwargs, called_hooks)
    except Exception:
        for table in (global_forward, module._forward_hooks):
            for key in [k for k in table if k in table.always and k not in called_hooks]:
                try:
                    _run_forward_hook(table, key, module, args, kwargs, None)
                except Exception as error:  # the first error is raised, later ones are warnings
                    warnings.warn(
                        f"a forward hook with always_call=True raised an error while another was propagating: {error}",
                        stacklevel=3,
                    )
        raise


def _call_inner(
    module: WithForward[..., _Output], args: tuple[object, ...], kwargs: dict[str, object], called_hooks: set[int]
) -> Output:
    for table in (global_forward_pre, module._forward_pre_hooks):
        for key, hook in list(table.items()):
            with_kwargs = key in table.kwargs
            replacement = hook(module, args, kwargs) if with_kwargs else hook(module, args)
            if replacement is None:
                continue
            if not with_kwargs:
                args = replacement if isinstance(replacement, tuple) else (replacement,)
            elif isinstance(replacement, tuple) and len(replacement) == 2:
                args, kwargs = replacement
            else:
                raise ArgumentError(
                    f"{type(module).__name__}: a forward pre-hook with kwargs returns None or (args, kwargs), "
                    f"not {replacement!r}"
                )
    hook_call = None
    if module._backward_hooks or module._backward_pre_hooks or global_backward or global_backward_pre:
        hook_call = BackwardHookCall(module, len(args))
        args = hook_call.wrap_inputs(args)
    output: Output = module.forward(*args, **kwargs)
    for table in (global_forward, module._forward_hooks):
        for key in list(table):
            called_hooks.add(key)
            replacement = _run_forward_hook(table, key, module, args, kwargs, output)
            output = output if replacement is None else replacement
    return output if hook_call is None else hook_call.wrap_outputs(output)


def _run_forward_hook(
    table: HookTable, key: int, module: object, args: tuple[object, ...], kwargs: dict[str, object], output: object
) -> object:
    hook = table[key]
    return hook(module, args, kwargs, output) if key in table.kwargs else hook(module, args, output)
