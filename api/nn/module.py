"""`Module`: a function with parameters, buffers and parts, all of which it knows by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

from ..autograd import no_grad
from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.tensor import Tensor
from ._errors import NameTaken, NoSuchPart
from ._hooks import (
    Hooks,
    HookTable,
    register_module_backward_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from ._state import IncompatibleKeys, State
from .parameter import Buffer, Parameter, is_lazy

__all__ = [
    "IncompatibleKeys",
    "Module",
    "register_module_backward_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]

_TABLES = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
_KINDS = ("_parameters", "_buffers", "_modules")


class Module(Hooks, State):
    """The base of layers and models.

    Attributes that are `Parameter`s, `Module`s or registered buffers are found again by `parameters()`, `children()`,
    `state_dict()` and the like, in the order in which they were assigned. Define `forward`; call the module itself.
    """

    training: bool

    def __init__(self) -> None:
        own = self.__dict__
        own["training"] = True
        for kind in _KINDS:
            own[kind] = {}
        own["_non_persistent_buffers_set"] = set()
        for table in _TABLES:
            own[table] = HookTable()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in _TABLES:
            self.__dict__.setdefault(table, HookTable())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward(...)")

    # attributes

    def __getattr__(self, name: str) -> Any:
        for kind in _KINDS:
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
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif name in own["_parameters"]:
            _only_none(value, f"parameter {name!r}", "wrap it in Parameter")
            own["_parameters"][name] = None
        elif isinstance(value, Module):
            self._forget(name, "_modules")
            parts[name] = value
        elif name in parts:
            _only_none(value, f"module {name!r}", "a part is a Module")
            parts[name] = None
        elif isinstance(value, Buffer):
            self._forget(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        elif name in own["_buffers"]:
            if not isinstance(value, Tensor):
                _only_none(value, f"buffer {name!r}", "a buffer is a tensor")
            own["_buffers"][name] = value
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if not self._forget(name):
            object.__delattr__(self, name)

    def _forget(self, name: str, but: str = "") -> bool:
        """Take `name` out of whatever holds it, except for the dict `but`, in which it keeps its place."""
        own = self.__dict__
        if but:
            own.pop(name, None)
        held = [kind for kind in _KINDS if kind != but and name in own[kind]]
        for kind in held:
            del own[kind][name]
        if "_buffers" in held:
            own["_non_persistent_buffers_set"].discard(name)
        return bool(held)

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *self._parameters, *self._buffers, *self._modules}
        return sorted(n for n in names if not n[:1].isdigit())

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or a place for one (None). Raises `NameTaken`, `ArgumentError`, and `GradientError` for what
        is no leaf."""
        self._check_name(name, "parameter", self.__dict__.get("_parameters"))
        if param is not None and not isinstance(param, Parameter):
            raise ArgumentError(f"parameter {name!r} must be a Parameter or None, not {type(param).__name__}")
        if param is not None and param.node is not None:
            raise GradientError(f"parameter {name!r} must be a leaf: it was computed from other tensors")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not learned; one that is not persistent is left out of `state_dict`."""
        self._check_name(name, "buffer", self.__dict__.get("_buffers"))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ArgumentError(f"buffer {name!r} must be a tensor or None, not {type(tensor).__name__}")
        self._buffers[name] = tensor
        change = self._non_persistent_buffers_set
        (change.discard if persistent else change.add)(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a part."""
        if module is not None and not isinstance(module, Module):
            raise ArgumentError(f"{name!r} must be a Module or None, not {type(module).__name__}")
        self._check_name(name, "module", self.__dict__.get("_modules"))
        self._modules[name] = module

    add_module = register_module

    def _check_name(self, name: Any, what: str, held: dict[str, Any] | None) -> None:
        if held is None:
            raise AttributeError(f"call super().__init__() before adding a {what}")
        if not isinstance(name, str):
            raise ArgumentError(f"the name of a {what} is a string, not {type(name).__name__}")
        if not name or "." in name:
            raise NameTaken(f"the name of a {what} is a string without dots, not {name!r}")
        if name not in held and hasattr(self, name):
            raise NameTaken(f"attribute {name!r} exists already; a {what} needs another name")

    # parts by name

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all within it, each once (unless `remove_duplicate` is False), with its path."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, part in self._modules.items():
            if part is not None:
                yield from part.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all within it."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct parts, each once."""
        seen: set[Module] = set()
        for name, part in self._modules.items():
            if part is not None and part not in seen:
                seen.add(part)
                yield name, part

    def children(self) -> Iterator[Module]:
        """The direct parts, each once."""
        return (part for _, part in self.named_children())

    def _named_members(
        self,
        get_members_fn: Callable[[Any], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        parts = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, part in parts:
            for name, tensor in get_members_fn(part):
                if tensor is None or (remove_duplicate and id(tensor) in seen):
                    continue
                seen.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their paths, each once (unless `remove_duplicate` is False)."""
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters, each once: what an optimizer takes."""
        return (tensor for _, tensor in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their paths, each once (unless `remove_duplicate` is False)."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers, each once."""
        return (tensor for _, tensor in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The part at a path such as `encoder.0`; this module for an empty one. Raises `NoSuchPart`."""
        found: Any = self
        for name in target.split(".") if target else ():
            inner = getattr(found, name, None)
            if not isinstance(inner, Module):
                raise NoSuchPart(f"{type(found).__name__} has no module {name!r}, wanted as a part of {target!r}")
            found = inner
        return found  # type: ignore[no-any-return]

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at a path; with `strict`, only where there is one already. Raises `NoSuchPart`."""
        path, _, name = target.rpartition(".")
        if not name:
            raise ArgumentError(f"set_submodule: cannot replace the module itself, the target is {target!r}")
        if not isinstance(module, Module):
            raise ArgumentError(f"set_submodule: takes a Module, not {type(module).__name__}")
        holder = self.get_submodule(path)
        there = getattr(holder, name, None)
        if (there is None and strict) or (there is not None and not isinstance(there, Module)):
            raise NoSuchPart(f"set_submodule: {type(holder).__name__} has no module {name!r} to replace")
        setattr(holder, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path such as `encoder.0.weight`. Raises `NoSuchPart`."""
        return self._get(target, "parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path. Raises `NoSuchPart`."""
        return self._get(target, "buffer")

    def _get(self, target: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        holder = self.get_submodule(path)
        found = getattr(holder, name, None)
        if found is None or not (isinstance(found, Parameter) if what == "parameter" else name in holder._buffers):
            raise NoSuchPart(f"{type(holder).__name__} has no {what} {name!r}")
        return found

    # all at once

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` with every part, then with this module. Returns the module."""
        for part in self.children():
            part.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        """Replace the data of parameters and of their gradients, and the buffers, by what `fn` makes of them."""
        if recurse:
            for part in self.children():
                part._apply(fn)
        with no_grad():
            for param in self._parameters.values():
                if param is None:
                    continue
                if is_lazy(param):
                    param.convert(fn)
                    continue
                param.data = fn(param.data)
                if param.grad is not None:
                    param.grad = fn(param.grad)
            for name, buffer in self._buffers.items():
                if buffer is not None and is_lazy(buffer):
                    buffer.convert(fn)  # type: ignore[attr-defined]
                elif buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move parameters and buffers to a device, floating ones to a dtype, in place. Returns the module.

        `to(device=None, dtype=None, non_blocking=False)`, `to(dtype, non_blocking=False)` or
        `to(tensor, non_blocking=False)`. Parameters stay the same objects. Raises `ArgumentError` for other dtypes.
        """
        device, dtype = _destination(args, kwargs)

        def change(tensor: Any) -> Tensor:
            return tensor.to(device=device, dtype=dtype if tensor.meta.dtype.kind == "f" else None)

        return self._apply(change)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Move to a device without copying values: parameters and buffers are uninitialised there."""
        from ..factories import empty

        def change(tensor: Any) -> Tensor:
            return empty(*tensor.meta.shape, dtype=tensor.meta.dtype, device=device)

        return self._apply(change, recurse)

    def cpu(self) -> Self:
        """Move to the host."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Self:
        """Move to a CUDA device."""
        return self.to("cuda:0" if device is None else device)

    def type(self, dst_type: Any) -> Self:
        """All parameters and buffers, whatever they hold, as `dst_type`."""
        return self._apply(lambda tensor: tensor.to(dtype=dtypes.parse(dst_type)))

    def float(self) -> Self:
        """Floating parameters and buffers as float32."""
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Floating parameters and buffers as float64."""
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """Floating parameters and buffers as float16."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Floating parameters and buffers as bfloat16."""
        return self.to(dtypes.bfloat16)

    def share_memory(self) -> Self:
        """Move parameters and buffers to memory that other processes can open."""
        from ..multiprocessing.sharing import share_tensors

        share_tensors(t for t in (*self.parameters(), *self.buffers()) if not is_lazy(t))  # in one go, so in one piece
        return self._apply(lambda tensor: tensor.share_memory_())

    def train(self, mode: bool = True) -> Self:
        """Set training mode (dropout on) of this module and all within it. Returns the module."""
        if not isinstance(mode, bool):
            raise ArgumentError(f"train: the mode is True or False, not {mode!r}")
        self.training = mode
        for part in self.children():
            part.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Whether gradients of the parameters are wanted."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)  # type: ignore[attr-defined]
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing, as `weftgrad.compile`: the module's ops are compiled kernels already."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the parameters' gradients, or fill them with zeros."""
        for param in self.parameters():
            if set_to_none or param.grad is None:  # type: ignore[attr-defined]
                param.grad = None  # type: ignore[attr-defined]
            else:
                param.grad = param.grad.detach().zero_()  # type: ignore[attr-defined]

    # showing

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses."""
        return ""

    def _get_name(self) -> str:
        return self.__class__.__name__

    def __repr__(self) -> str:
        lines = self.extra_repr().split("\n") if self.extra_repr() else []
        shown = [f"({name}): " + repr(part).replace("\n", "\n  ") for name, part in self._modules.items()]
        if not shown and len(lines) <= 1:
            return f"{self._get_name()}({''.join(lines)})"
        return f"{self._get_name()}(\n  " + "\n  ".join([*lines, *shown]) + "\n)"


def _only_none(value: Any, what: str, remedy: str) -> None:
    if value is not None:
        raise ArgumentError(f"cannot assign {value.__class__.__name__} as {what}; {remedy}, or assign None")


def _destination(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, DType | None]:
    """The device and the dtype that the arguments of `Module.to` name, None where they name none."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    if "tensor" in kwargs:
        args = (kwargs.pop("tensor"), *args)
    if kwargs.keys() - {"non_blocking", "memory_format"}:
        raise ArgumentError(f"Module.to: got unexpected arguments {sorted(kwargs)}")
    for arg in args:
        if isinstance(arg, Tensor):
            device, dtype = arg.meta.device, arg.meta.dtype
        elif isinstance(arg, DType) or arg is float:
            dtype = arg
        elif isinstance(arg, (Device, str)) or (isinstance(arg, int) and not isinstance(arg, bool)):
            device = arg
        elif arg is not None and not isinstance(arg, bool):  # a bool is non_blocking
            raise ArgumentError(f"Module.to: takes a device, a dtype or a tensor, not {type(arg).__name__}")
    found = None if dtype is None else dtypes.parse(dtype)
    if found is not None and found.kind != "f":
        raise ArgumentError(f"Module.to: takes a floating dtype, not {found.name}")
    return device, found
