"""Hooks of modules: functions called before and after `forward` and during backward, for one module or for all.

`Hooks` is a base class of `Module`. Backward hooks work through an identity op around a call's inputs and outputs
(`_GradientTap`), whose backward calls the hooks.
"""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from ..autograd import Function, is_grad_enabled
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.tensor import Tensor
from ..tensor_methods.hooks import Handle

if TYPE_CHECKING:
    from .module import Module

__all__ = [
    "HookTable",
    "Hooks",
    "register_module_backward_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]

_ids = itertools.count()


class HookTable(OrderedDict[int, Any]):
    """Hooks by id, in the order of their calls.

    Attributes:
        kwargs: Ids of forward hooks that also get the keyword arguments.
        always: Ids of hooks that run even after an error.
    """

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.kwargs: set[int] = set()
        self.always: set[int] = set()

    def add(
        self, hook: Callable[..., Any], prepend: bool = False, with_kwargs: bool = False, always: bool = False
    ) -> Handle:
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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self.items()),), {"kwargs": set(self.kwargs), "always": set(self.always)}


_global_forward_pre = HookTable()
_global_forward = HookTable()
_global_backward_pre = HookTable()
_global_backward = HookTable()
_global_tables = (_global_forward_pre, _global_forward, _global_backward_pre, _global_backward)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> Handle:
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
    return _global_forward_pre.add(hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> Handle:
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
    return _global_forward.add(hook, False, with_kwargs, always_call)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> Handle:
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
    return _global_backward_pre.add(hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> Handle:
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
    return _global_backward.add(hook)


register_module_backward_hook = register_module_full_backward_hook


_Parameters = ParamSpec("_Parameters")
_Output = TypeVar("_Output", covariant=True)


class _WithForward(Protocol[_Parameters, _Output]):
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
    forward: Callable[..., Any]

    def __call__(
        self: _WithForward[_Parameters, _Output], *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> _Output:
        if not (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or _global_forward
            or _global_forward_pre
            or _global_backward
            or _global_backward_pre
        ):
            return self.forward(*args, **kwargs)
        return _call_with_hooks(self, args, kwargs)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
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
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
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

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
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

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
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

    def register_backward_hook(self, hook: Callable[..., Any]) -> Handle:
        """Deprecated alias of `register_full_backward_hook`.

        Args:
            hook: Function `hook(module, grad_input, grad_output)`.

        Returns:
            Handle, whose `remove()` unregisters the hook.
        """
        return self._backward_hooks.add(hook)


def _call_with_hooks(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    called_hooks: set[int] = set()
    try:
        return _call_inner(module, args, kwargs, called_hooks)
    except Exception:
        for table in (_global_forward, module._forward_hooks):
            for key in [k for k in table if k in table.always and k not in called_hooks]:
                try:
                    _run_forward_hook(table, key, module, args, kwargs, None)
                except Exception as error:  # the first error is raised, later ones are warnings
                    warnings.warn(
                        f"a forward hook with always_call=True raised an error while another was propagating: {error}",
                        stacklevel=3,
                    )
        raise


def _call_inner(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], called_hooks: set[int]) -> Any:
    for table in (_global_forward_pre, module._forward_pre_hooks):
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
    if module._backward_hooks or module._backward_pre_hooks or _global_backward or _global_backward_pre:
        hook_call = _BackwardHookCall(module, len(args))
        args = hook_call.wrap_inputs(args)
    output = module.forward(*args, **kwargs)
    for table in (_global_forward, module._forward_hooks):
        for key in list(table):
            called_hooks.add(key)
            replacement = _run_forward_hook(table, key, module, args, kwargs, output)
            output = output if replacement is None else replacement
    return output if hook_call is None else hook_call.wrap_outputs(output)


def _run_forward_hook(
    table: HookTable, key: int, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> Any:
    hook = table[key]
    return hook(module, args, kwargs, output) if key in table.kwargs else hook(module, args, output)


class _BackwardHookCall:
    """One call of a module with backward hooks. Identities around the call give the hooks its gradients."""

    def __init__(self, module: Module, num_args: int):
        self.module = module
        self.num_args = num_args
        self.input_indices: list[int] = []  # positions of wrapped arguments; empty if none requires grad
        self.output_indices: list[int] = []
        self.num_outputs = 1
        self.tapped_inputs: list[tuple[Tensor, Any]] = []
        self.layouts: list[Any] = []
        self.grad_output: tuple[Any, ...] | None = None

    def wrap_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with tensors passed through an identity that reports their gradients."""
        input_indices = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        if not is_grad_enabled() or not any(args[i].requires_grad for i in input_indices):
            return args
        self.input_indices = input_indices
        self.layouts = [args[i].meta for i in input_indices]
        identity_outputs = dict(
            zip(
                input_indices, _GradientTap.apply(self.grad_input_ready, *[args[i] for i in input_indices]), strict=True
            )
        )
        self.tapped_inputs = [(t, t.node) for t in identity_outputs.values()]
        return tuple(identity_outputs.get(i, a) for i, a in enumerate(args))

    def wrap_outputs(self, result: Any) -> Any:
        """Return the output with tensors passed through an identity that reports their gradients."""
        name = type(self.module).__name__
        if any(tensor.node is not node for tensor, node in self.tapped_inputs):
            raise GradientError(
                f"{name} has backward hooks and wrote an argument in place, so its gradient cannot be seen; "
                "use inplace=False, or remove the hooks"
            )
        self.tapped_inputs = []
        outputs = result if isinstance(result, tuple) else (result,)
        output_indices = [i for i, r in enumerate(outputs) if isinstance(r, Tensor)]
        if not output_indices:
            warnings.warn(
                f"{name}: backward hooks need a tensor or a tuple of tensors as output, not {type(result).__name__}; "
                "they are not called",
                stacklevel=4,
            )
            return result
        if not is_grad_enabled() or not any(outputs[i].requires_grad for i in output_indices):
            return result
        self.output_indices, self.num_outputs = output_indices, len(outputs)
        identity_outputs = dict(
            zip(
                output_indices,
                _GradientTap.apply(self.grad_output_ready, *[outputs[i] for i in output_indices]),
                strict=True,
            )
        )
        if not isinstance(result, tuple):
            return identity_outputs[0]
        new_outputs = [identity_outputs.get(i, r) for i, r in enumerate(outputs)]
        return type(result)(*new_outputs) if hasattr(result, "_fields") else type(result)(new_outputs)

    def grad_output_ready(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Call the backward pre-hooks, and the backward hooks too if no argument requires grad."""
        grad_by_index = dict(zip(self.output_indices, grads, strict=True))
        grad_output = tuple(grad_by_index.get(i) for i in range(self.num_outputs))
        for hook in (*_global_backward_pre.values(), *self.module._backward_pre_hooks.values()):
            grad_output = self._check_replacement(
                hook(self.module, grad_output), grad_output, "pre-hook", "grad_output"
            )
        self.grad_output = grad_output
        if not self.input_indices:
            no_grads = (None,) * self.num_args
            for hook in self._hooks():
                grad_input = self._check_replacement(
                    hook(self.module, no_grads, grad_output), no_grads, "hook", "grad_input"
                )
                if any(g is not None for g in grad_input):
                    raise GradientError(
                        f"{type(self.module).__name__}: no argument requires grad, so a backward hook returns None"
                    )
            self.grad_output = None
        return tuple(grad_output[i] for i in self.output_indices)

    def grad_input_ready(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Call the backward hooks and return the gradients of the arguments."""
        if self.grad_output is None:  # the gradient did not come through the output
            return grads
        filled = [_zeros(m) if g is None else g for g, m in zip(grads, self.layouts, strict=True)]
        grad_by_index = dict(zip(self.input_indices, filled, strict=True))
        grad_input = tuple(grad_by_index.get(i) for i in range(self.num_args))
        for hook in self._hooks():
            replacement = hook(self.module, grad_input, self.grad_output)
            grad_input = self._check_replacement(replacement, grad_input, "hook", "grad_input")
        self.grad_output = None
        return tuple(grad_input[i] for i in self.input_indices)

    def _hooks(self) -> Iterable[Callable[..., Any]]:
        return (*_global_backward.values(), *self.module._backward_hooks.values())

    def _check_replacement(
        self, replacement: Any, original: tuple[Any, ...], hook_kind: str, grads_name: str
    ) -> tuple[Any, ...]:
        if replacement is None:
            return original
        grads = replacement if isinstance(replacement, tuple) else (replacement,)
        if len(grads) != len(original):
            raise GradientError(
                f"{type(self.module).__name__}: a backward {hook_kind} returned {len(grads)} gradients, and "
                f"{grads_name} has {len(original)}"
            )
        return grads


def _zeros(layout: Any) -> Tensor:
    """Return the zero gradient that hooks get for an argument without a gradient."""
    from ..creation.factories import zeros

    return zeros(layout.shape, dtype=layout.dtype, device=layout.device)


class _GradientTap(Function):
    """The identity; its backward passes the gradients through `callback`."""

    @staticmethod
    def forward(ctx: Any, callback: Any, *tensors: Any) -> Any:
        ctx.callback = callback
        ctx.set_materialize_grads(False)
        outputs = tuple(tensor.detach() for tensor in tensors)
        ctx.mark_non_differentiable(
            *(output for output, tensor in zip(outputs, tensors, strict=True) if not tensor.needs)
        )
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.callback(grads))
