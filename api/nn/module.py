"""`Module`: a function with parameters, buffers and parts, all of which it knows by name."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..autograd import Function, no_grad
from ..methods import Handle
from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.tensor import Tensor
from .parameter import Buffer, Parameter

__all__ = ["IncompatibleKeys", "Module"]

_hook_ids = itertools.count()


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` did not match."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module:
    """The base of layers and models.

    Attributes that are `Parameter`s, `Module`s or registered buffers are found again by `parameters()`, `children()`,
    `state_dict()` and the like, in the order in which they were assigned. Define `forward`; call the module itself.
    """

    training: bool

    def __init__(self) -> None:
        own = self.__dict__
        own["training"] = True
        own["_parameters"] = {}
        own["_buffers"] = {}
        own["_modules"] = {}
        own["_transient"] = set()
        own["_forward_hooks"] = {}
        own["_forward_pre_hooks"] = {}
        own["_backward_hooks"] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward(...)")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._forward_hooks or self._forward_pre_hooks or self._backward_hooks):
            return self.forward(*args, **kwargs)
        return self._call_with_hooks(args, kwargs)

    # attributes

    def __getattr__(self, name: str) -> Any:
        for kind in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(kind)
            if found is not None and name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        parts = own.get("_modules")
        if parts is None:
            if isinstance(value, (Parameter, Module, Buffer)):
                raise AttributeError("call super().__init__() before assigning parameters or modules")
            own[name] = value
        elif isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._forget(name)
            parts[name] = value
        elif isinstance(value, Buffer):
            self.register_buffer(name, value, value.persistent)
        elif name in own["_parameters"]:
            if value is not None:
                raise ArgumentError(
                    f"cannot assign {type(value).__name__} as parameter {name!r}; wrap it in Parameter, or assign None"
                )
            own["_parameters"][name] = None
        elif name in own["_buffers"] and (value is None or isinstance(value, Tensor)):
            own["_buffers"][name] = value
        elif name in parts and value is None:
            parts[name] = None
        else:
            self._forget(name)
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if not self._forget(name):
            object.__delattr__(self, name)

    def _forget(self, name: str) -> bool:
        """Take `name` out of whatever holds it."""
        own = self.__dict__
        held = [kind for kind in (own["_parameters"], own["_buffers"], own["_modules"]) if name in kind]
        for kind in held:
            del kind[name]
        own["_transient"].discard(name)
        return bool(held)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._parameters, *self._buffers, *self._modules})

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or a place for one (None). Raises `ArgumentError` for what is no leaf."""
        _check_attribute(name, "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise ArgumentError(f"parameter {name!r} must be a Parameter or None, not {type(param).__name__}")
        if param is not None and param.node is not None:
            raise GradientError(f"parameter {name!r} must be a leaf: it was computed from other tensors")
        self._forget(name)
        self.__dict__.pop(name, None)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not learned; one that is not persistent is left out of `state_dict`."""
        _check_attribute(name, "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ArgumentError(f"buffer {name!r} must be a tensor or None, not {type(tensor).__name__}")
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"attribute {name!r} exists already")
        self._buffers[name] = tensor
        (self._transient.discard if persistent else self._transient.add)(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a part."""
        _check_attribute(name, "module")
        if module is not None and not isinstance(module, Module):
            raise ArgumentError(f"{name!r} must be a Module or None, not {type(module).__name__}")
        self._forget(name)
        self._modules[name] = module

    add_module = register_module

    # parts by name

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all within it, each once, with its path."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, part in self._modules.items():
            if part is not None:
                yield from part.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """This module and all within it."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct parts."""
        seen: set[Module] = set()
        for name, part in self._modules.items():
            if part is not None and part not in seen:
                seen.add(part)
                yield name, part

    def children(self) -> Iterator[Module]:
        """The direct parts."""
        return (part for _, part in self.named_children())

    def _named(self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        parts = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, part in parts:
            for name, tensor in part.__dict__[kind].items():
                if tensor is None or (remove_duplicate and id(tensor) in seen):
                    continue
                seen.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their paths, each once."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters, each once: what an optimizer takes."""
        return (tensor for _, tensor in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their paths."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers, each once."""
        return (tensor for _, tensor in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The part at a path such as `encoder.0`."""
        found: Any = self
        for name in target.split(".") if target else ():
            found = getattr(found, name)
            if not isinstance(found, Module):
                raise AttributeError(f"{name!r} of {target!r} is no module")
        return found

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path such as `encoder.0.weight`."""
        path, _, name = target.rpartition(".")
        return self.get_submodule(path)._parameters[name]

    # all at once

    def apply(self, fn: Callable[[Module], Any]) -> Module:
        """Call `fn` with every part, then with this module. Returns the module."""
        for part in self.children():
            part.apply(fn)
        fn(self)
        return self

    def _convert(self, change: Callable[[Tensor], Tensor]) -> Module:
        with no_grad():
            for module in self.modules():
                for param in module._parameters.values():
                    if param is not None:
                        param.data = change(param.data)
                        if param.grad is not None:
                            param.grad = change(param.grad)
                for name, buffer in module._buffers.items():
                    if buffer is not None:
                        module._buffers[name] = change(buffer)
        return self

    def to(self, *args: Any, device: Any = None, dtype: Any = None, **_: Any) -> Module:
        """Move parameters and buffers to a device, floating ones to a dtype, in place. Returns the module."""
        for arg in args:
            if isinstance(arg, Tensor):
                device, dtype = arg.meta.device, arg.meta.dtype
            elif isinstance(arg, DType) or arg is float:
                dtype = arg
            elif isinstance(arg, (Device, str, int)):
                device = arg
        if dtype is not None and dtypes.parse(dtype).kind != "f":
            raise ArgumentError(f"Module.to: takes a floating dtype, not {dtypes.parse(dtype).name}")

        def change(tensor: Any) -> Tensor:
            return tensor.to(device=device, dtype=dtype if tensor.meta.dtype.kind == "f" else None)

        return self._convert(change)

    def cpu(self) -> Module:
        """Move to the host."""
        return self.to("cpu")

    def cuda(self, device: int | None = None) -> Module:
        """Move to a CUDA device."""
        return self.to(f"cuda:{device or 0}")

    def float(self) -> Module:
        """Floating parameters and buffers as float32."""
        return self.to(dtypes.float32)

    def double(self) -> Module:
        """Floating parameters and buffers as float64."""
        return self.to(dtypes.float64)

    def half(self) -> Module:
        """Floating parameters and buffers as float16."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Module:
        """Floating parameters and buffers as bfloat16."""
        return self.to(dtypes.bfloat16)

    def train(self, mode: bool = True) -> Module:
        """Set training mode (dropout on) of this module and all within it. Returns the module."""
        for module in self.modules():
            module.__dict__["training"] = bool(mode)
        return self

    def eval(self) -> Module:
        """Set evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Whether gradients of the parameters are wanted."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)  # type: ignore[attr-defined]
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the parameters' gradients, or fill them with zeros."""
        for param in self.parameters():
            if set_to_none or param.grad is None:  # type: ignore[attr-defined]
                param.grad = None  # type: ignore[attr-defined]
            else:
                param.grad = param.grad.detach().zero_()  # type: ignore[attr-defined]

    # state

    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by path; the tensors share memory with the module."""
        found = OrderedDict() if destination is None else destination
        for kind in (self._parameters, self._buffers):
            for name, tensor in kind.items():
                if tensor is not None and name not in self._transient:
                    found[prefix + name] = tensor if keep_vars else tensor.detach()
        for name, part in self._modules.items():
            if part is not None:
                part.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        return found

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy the values of `state_dict` into parameters and buffers (or with `assign`, take its tensors).

        Raises `ArgumentError` that lists every missing, unexpected and wrongly shaped entry; nothing is changed then.
        """
        own = self.state_dict(keep_vars=True)
        missing = [k for k in own if k not in state_dict]
        unexpected = [k for k in state_dict if k not in own]
        faults = []
        if strict and missing:
            faults.append(f"missing: {', '.join(missing)}")
        if strict and unexpected:
            faults.append(f"unexpected: {', '.join(unexpected)}")
        for name, tensor in own.items():
            given = state_dict.get(name)
            if given is not None and not isinstance(given, Tensor):
                faults.append(f"{name}: must be a tensor, not {type(given).__name__}")
            elif given is not None and given.meta.shape != tensor.meta.shape:
                faults.append(
                    f"{name}: has shape {list(given.meta.shape)} there and {list(tensor.meta.shape)} in the module"
                )
        if faults:
            raise ArgumentError(f"load_state_dict of {type(self).__name__}: " + "; ".join(faults))
        with no_grad():
            for name, tensor in own.items():
                if name in state_dict and assign:
                    tensor.data = state_dict[name].detach()
                elif name in state_dict:
                    tensor.copy_(state_dict[name])
        return IncompatibleKeys(missing, unexpected)

    # hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call `hook(module, args)` before `forward`; what it returns, if anything, replaces the arguments."""
        return _add(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> Handle:
        """Call `hook(module, args, output)` after `forward`; what it returns, if anything, replaces the output."""
        return _add(self._forward_hooks, (hook, with_kwargs), prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(module, grad_input, grad_output)` in backward; what it returns replaces grad_input."""
        return _add(self._backward_hooks, (hook, False), prepend)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for hook, with_kwargs in list(self._forward_pre_hooks.values()):
            given = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if given is not None and with_kwargs:
                args, kwargs = given
            elif given is not None:
                args = given if isinstance(given, tuple) else (given,)
        state = _Backward(self) if self._backward_hooks else None
        result = self.forward(*(state.inputs(args) if state else args), **kwargs)
        for hook, with_kwargs in list(self._forward_hooks.values()):
            given = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
            result = result if given is None else given
        return state.outputs(result) if state else result

    # showing

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        lines = self.extra_repr().splitlines() if self.extra_repr() else []
        shown = [f"({name}): " + repr(part).replace("\n", "\n  ") for name, part in self._modules.items()]
        if not shown and len(lines) <= 1:
            return f"{self._get_name()}({''.join(lines)})"
        return f"{self._get_name()}(\n  " + "\n  ".join([*lines, *shown]) + "\n)"


def _check_attribute(name: str, what: str) -> None:
    if not isinstance(name, str) or not name or "." in name:
        raise KeyError(f"the name of a {what} is a string without dots, not {name!r}")


def _add(hooks: dict[int, Any], entry: Any, prepend: bool) -> Handle:
    key = next(_hook_ids)
    hooks[-key if prepend else key] = entry
    if prepend:
        for old in sorted(hooks):
            hooks[old] = hooks.pop(old)
    return Handle(hooks, -key if prepend else key)


class _Backward:
    """One call of a module with backward hooks: identities around it that see gradients go out and come in."""

    def __init__(self, module: Module):
        self.module = module
        self.grad_output: tuple[Any, ...] = ()
        self.inside = 0  # tensors among the arguments, if none of them wants a gradient

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        if not any(args[i].requires_grad for i in places):
            self.inside = len(places)
            return args
        tapped = _Tap.apply(self.passed, *[args[i] for i in places]) if places else ()
        found = dict(zip(places, tapped, strict=True))
        return tuple(found.get(i, a) for i, a in enumerate(args))

    def outputs(self, result: Any) -> Any:
        if isinstance(result, Tensor):
            return _Tap.apply(self.arrived, result)[0]
        if isinstance(result, tuple) and all(isinstance(r, Tensor) for r in result):
            return _Tap.apply(self.arrived, *result)
        return result

    def arrived(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        self.grad_output = grads
        if self.inside:
            self.passed((None,) * self.inside)
        return grads

    def passed(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook, _ in list(self.module._backward_hooks.values()):
            given = hook(self.module, grads, self.grad_output)
            if given is not None:
                grads = given if isinstance(given, tuple) else (given,)
        return grads


class _Tap(Function):
    """The identity, whose gradients go through a function."""

    @staticmethod
    def forward(ctx: Any, see: Any, *tensors: Tensor) -> Any:
        ctx.see = see
        return tuple(t.view_as(t) for t in tensors)  # type: ignore[attr-defined]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.see(grads))
