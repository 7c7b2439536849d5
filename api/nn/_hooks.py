"""Hooks of modules: functions called before and after `forward`, and when gradients pass, of one module or of all."""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from ..autograd import Function, is_grad_enabled
from ..methods import Handle
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.tensor import Tensor

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
    """Hooks by number, in the order of their calls. `kwargs`, `always`: numbers of those registered so."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.kwargs: set[int] = set()
        self.always: set[int] = set()

    def add(
        self, hook: Callable[..., Any], prepend: bool = False, with_kwargs: bool = False, always: bool = False
    ) -> Handle:
        """Register `hook`, first of all if `prepend`; the handle takes it away."""
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


_every_pre = HookTable()
_every_forward = HookTable()
_every_backward_pre = HookTable()
_every_backward = HookTable()
_everywhere = (_every_pre, _every_forward, _every_backward_pre, _every_backward)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> Handle:
    """Call `hook(module, args)` before the `forward` of every module."""
    return _every_pre.add(hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> Handle:
    """Call `hook(module, args, output)` after the `forward` of every module, before the module's own hooks."""
    return _every_forward.add(hook, False, with_kwargs, always_call)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> Handle:
    """Call `hook(module, grad_output)` when the gradients of any module's output are known."""
    return _every_backward_pre.add(hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> Handle:
    """Call `hook(module, grad_input, grad_output)` when the gradients of any module's input are known."""
    return _every_backward.add(hook)


register_module_backward_hook = register_module_full_backward_hook


class Hooks:
    """What `Module` knows of hooks: registering, and calling `forward` between them."""

    _forward_hooks: HookTable
    _forward_pre_hooks: HookTable
    _backward_hooks: HookTable
    _backward_pre_hooks: HookTable
    forward: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or _every_forward
            or _every_pre
            or _every_backward
            or _every_backward_pre
        ):
            return self.forward(*args, **kwargs)
        return _call(self, args, kwargs)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call `hook(module, args)` before `forward`; what it returns, if anything, replaces the arguments (one that
        is no tuple is the only argument). With kwargs: `hook(module, args, kwargs)`, which returns both or None."""
        return self._forward_pre_hooks.add(hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> Handle:
        """Call `hook(module, args, output)` after `forward`; what it returns, if anything, replaces the output. With
        kwargs: `hook(module, args, kwargs, output)`. `always_call`: also when `forward` or another hook raises."""
        return self._forward_hooks.add(hook, prepend, with_kwargs, always_call)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(module, grad_output)` in backward before the module's own; what it returns replaces grad_output.

        Gradients are tuples with None for what is no tensor, or got no gradient.
        """
        return self._backward_pre_hooks.add(hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(module, grad_input, grad_output)` once the gradients of the positional tensor arguments are
        known; what it returns replaces grad_input. Such a module must not write its arguments in place."""
        return self._backward_hooks.add(hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> Handle:
        """As `register_full_backward_hook`, which PyTorch says to use instead."""
        return self._backward_hooks.add(hook)


def _call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    called: set[int] = set()
    try:
        return _call_inner(module, args, kwargs, called)
    except Exception:
        for table in (_every_forward, module._forward_hooks):
            for key in [k for k in table if k in table.always and k not in called]:
                try:
                    _after(table, key, module, args, kwargs, None)
                except Exception as error:  # the first one is the one to raise
                    warnings.warn(
                        f"a forward hook that is always called raised while another error was on its way: {error}",
                        stacklevel=3,
                    )
        raise


def _call_inner(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], called: set[int]) -> Any:
    for table in (_every_pre, module._forward_pre_hooks):
        for key, hook in list(table.items()):
            with_kwargs = key in table.kwargs
            given = hook(module, args, kwargs) if with_kwargs else hook(module, args)
            if given is None:
                continue
            if not with_kwargs:
                args = given if isinstance(given, tuple) else (given,)
            elif isinstance(given, tuple) and len(given) == 2:
                args, kwargs = given
            else:
                raise ArgumentError(
                    f"{type(module).__name__}: a forward pre-hook with kwargs returns None or (args, kwargs), "
                    f"not {given!r}"
                )
    watch = None
    if module._backward_hooks or module._backward_pre_hooks or _every_backward or _every_backward_pre:
        watch = _Watch(module, len(args))
        args = watch.inputs(args)
    result = module.forward(*args, **kwargs)
    for table in (_every_forward, module._forward_hooks):
        for key in list(table):
            called.add(key)
            given = _after(table, key, module, args, kwargs, result)
            result = result if given is None else given
    return result if watch is None else watch.outputs(result)


def _after(table: HookTable, key: int, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    hook = table[key]
    return hook(module, args, kwargs, result) if key in table.kwargs else hook(module, args, result)


class _Watch:
    """One call of a module with backward hooks: identities around it that see gradients go out and come in."""

    def __init__(self, module: Any, count: int):
        self.module = module
        self.count = count
        self.places: list[int] = []  # of arguments behind the identity; empty if none of them wants a gradient
        self.result_places: list[int] = []
        self.results = 1
        self.tapped: list[tuple[Tensor, Any]] = []
        self.layouts: list[Any] = []
        self.grad_output: tuple[Any, ...] | None = None

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        if not is_grad_enabled() or not any(args[i].requires_grad for i in places):
            return args
        self.places = places
        self.layouts = [args[i].meta for i in places]
        found = dict(zip(places, _Tap.apply(self.passed, *[args[i] for i in places]), strict=True))
        self.tapped = [(t, t.node) for t in found.values()]
        return tuple(found.get(i, a) for i, a in enumerate(args))

    def outputs(self, result: Any) -> Any:
        name = type(self.module).__name__
        if any(tensor.node is not node for tensor, node in self.tapped):
            raise GradientError(
                f"{name} has backward hooks and wrote an argument in place, so its gradient cannot be seen; "
                "use inplace=False, or remove the hooks"
            )
        self.tapped = []
        whole = result if isinstance(result, tuple) else (result,)
        places = [i for i, r in enumerate(whole) if isinstance(r, Tensor)]
        if not places:
            warnings.warn(
                f"{name}: backward hooks need a tensor or a tuple of tensors as output, not {type(result).__name__}; "
                "they are not called",
                stacklevel=4,
            )
            return result
        if not is_grad_enabled() or not any(whole[i].requires_grad for i in places):
            return result
        self.result_places, self.results = places, len(whole)
        found = dict(zip(places, _Tap.apply(self.arrived, *[whole[i] for i in places]), strict=True))
        if not isinstance(result, tuple):
            return found[0]
        items = [found.get(i, r) for i, r in enumerate(whole)]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)

    def arrived(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        spread = dict(zip(self.result_places, grads, strict=True))
        grad_output: tuple[Any, ...] = tuple(spread.get(i) for i in range(self.results))
        for hook in (*_every_backward_pre.values(), *self.module._backward_pre_hooks.values()):
            grad_output = self._replaced(hook(self.module, grad_output), grad_output, "pre-hook", "grad_output")
        self.grad_output = grad_output
        if not self.places:
            nothing: tuple[Any, ...] = (None,) * self.count
            for hook in self._hooks():
                given = self._replaced(hook(self.module, nothing, grad_output), nothing, "hook", "grad_input")
                if any(g is not None for g in given):
                    raise GradientError(
                        f"{type(self.module).__name__}: no argument requires grad, so a backward hook returns None"
                    )
            self.grad_output = None
        return tuple(grad_output[i] for i in self.result_places)

    def passed(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.grad_output is None:  # a gradient that came by another way than the output
            return grads
        whole = [_zeros(m) if g is None else g for g, m in zip(grads, self.layouts, strict=True)]
        spread = dict(zip(self.places, whole, strict=True))
        grad_input: tuple[Any, ...] = tuple(spread.get(i) for i in range(self.count))
        for hook in self._hooks():
            given = hook(self.module, grad_input, self.grad_output)
            grad_input = self._replaced(given, grad_input, "hook", "grad_input")
        self.grad_output = None
        return tuple(grad_input[i] for i in self.places)

    def _hooks(self) -> Iterable[Callable[..., Any]]:
        return (*_every_backward.values(), *self.module._backward_hooks.values())

    def _replaced(self, given: Any, before: tuple[Any, ...], kind: str, name: str) -> tuple[Any, ...]:
        if given is None:
            return before
        found = given if isinstance(given, tuple) else (given,)
        if len(found) != len(before):
            raise GradientError(
                f"{type(self.module).__name__}: a backward {kind} returned {len(found)} gradients, and {name} "
                f"has {len(before)}"
            )
        return found


def _zeros(layout: Any) -> Any:
    """The gradient of an argument that has none, as hooks see it."""
    from ..factories import zeros

    return zeros(layout.shape, dtype=layout.dtype, device=layout.device)


class _Tap(Function):
    """The identity, whose gradients go through a function."""

    @staticmethod
    def forward(ctx: Any, see: Any, *tensors: Any) -> Any:
        ctx.see = see
        ctx.set_materialize_grads(False)
        made = tuple(t.detach() for t in tensors)
        ctx.mark_non_differentiable(*(m for m, t in zip(made, tensors, strict=True) if not t.needs))
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.see(grads))
