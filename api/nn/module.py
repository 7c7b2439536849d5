"""`Module`, the base class of layers and models, with parameters, buffers and submodules by name.

Hooks are in `_hooks`, saving and loading in `_state`, parameters in `parameter`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Self, TypeVar, overload

from ..arguments.types import MemoryFormat
from ..autograd import no_grad
from ..runtime import dtypes
from ..runtime.device import Device, DeviceLike
from ..runtime.dtypes import DType, DTypeLike
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.tensor import Tensor
from ..tensor_methods.conversion_arguments import parse_conversion
from ._errors import NameConflict, NoSuchMember
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

if TYPE_CHECKING:
    from ._types import Argument

__all__ = [
    "IncompatibleKeys",
    "Module",
    "register_module_backward_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]

_HOOK_TABLES = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
_MEMBER_DICTS = ("_parameters", "_buffers", "_modules")
_Tensor = TypeVar("_Tensor", bound=Tensor)


class Module(Hooks, State):
    """Base class of layers and models.

    A subclass calls `super().__init__()`, assigns `Parameter`s and `Module`s to attributes, and defines `forward`.
    `parameters()`, `children()`, `state_dict()` and so on list the members in the order in which they were assigned.
    Call the module itself, not `forward`, so that hooks run.

    Attributes:
        training: Whether the module is in training mode; dropout and batch normalization depend on it.

    Example:
        >>> class Scale(wg.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.factor = wg.nn.Parameter(wg.tensor(2.0))
        ...     def forward(self, x):
        ...         return x * self.factor
        ...
        >>> Scale()(wg.tensor([1.0, 3.0])).tolist()
        [2.0, 6.0]
    """

    training: bool

    def __init__(self) -> None:
        fields = self.__dict__
        fields["training"] = True
        for kind in _MEMBER_DICTS:
            fields[kind] = {}
        fields["_non_persistent_buffers_set"] = set()
        for table in _HOOK_TABLES:
            fields[table] = HookTable()

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, HookTable())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())

    def forward(self, *args: Argument, **kwargs: Argument) -> Argument:
        """Compute the module's output. Subclasses override this method.

        Args:
            *args: Positional arguments of the call.
            **kwargs: Keyword arguments of the call.

        Returns:
            The output.

        Raises:
            NotImplementedError: If the subclass does not define the method.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward(...)")

    # attributes

    def __getattr__(self, name: str) -> Tensor | Module:
        for kind in _MEMBER_DICTS:
            members = self.__dict__.get(kind)
            if members is not None and name in members:
                return members[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        fields = self.__dict__
        children = fields.get("_modules")
        if children is None:
            if isinstance(value, (Parameter, Module, Buffer)):
                raise AttributeError("call super().__init__() before assigning parameters or modules")
            fields[name] = value
        elif isinstance(value, Parameter):
            self._remove_member(name, "_parameters")
            self.register_parameter(name, value)
        elif name in fields["_parameters"]:
            _require_none(value, f"parameter {name!r}", "wrap it in Parameter")
            fields["_parameters"][name] = None
        elif isinstance(value, Module):
            self._remove_member(name, "_modules")
            children[name] = value
        elif name in children:
            _require_none(value, f"module {name!r}", "assign a Module")
            children[name] = None
        elif isinstance(value, Buffer):
            self._remove_member(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        elif name in fields["_buffers"]:
            if not isinstance(value, Tensor):
                _require_none(value, f"buffer {name!r}", "assign a tensor")
            fields["_buffers"][name] = value
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if not self._remove_member(name):
            object.__delattr__(self, name)

    def _remove_member(self, name: str, kept_in: str = "") -> bool:
        """Remove `name` from all member dicts except `kept_in`, where its position is kept.

        Return whether it was there.
        """
        fields = self.__dict__
        if kept_in:
            fields.pop(name, None)
        holders = [kind for kind in _MEMBER_DICTS if kind != kept_in and name in fields[kind]]
        for kind in holders:
            del fields[kind][name]
        if "_buffers" in holders:
            fields["_non_persistent_buffers_set"].discard(name)
        return bool(holders)

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *self._parameters, *self._buffers, *self._modules}
        return sorted(n for n in names if not n[:1].isdigit())

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None to reserve the name.

        Args:
            name: Attribute name.
            param: The parameter, or None.

        Raises:
            NameConflict: If the name contains a dot or an attribute of this name exists.
            ArgumentError: If `param` is not a `Parameter`.
            GradientError: If `param` is not a leaf.

        Example:
            >>> layer = wg.nn.Module()
            >>> layer.register_parameter('bias', wg.nn.Parameter(wg.zeros(2)))
            >>> [name for name, _ in layer.named_parameters()]
            ['bias']
        """
        self._check_name(name, "parameter", self.__dict__.get("_parameters"))
        if param is not None and not isinstance(param, Parameter):
            raise ArgumentError(f"parameter {name!r} must be a Parameter or None, not {type(param).__name__}")
        if param is not None and param.node is not None:
            raise GradientError(f"parameter {name!r} must be a leaf: it was computed from other tensors")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is part of the state but not learned, such as a running mean.

        Args:
            name: Attribute name.
            tensor: The tensor, or None to reserve the name.
            persistent: Include it in `state_dict`.

        Raises:
            NameConflict: If the name contains a dot or an attribute of this name exists.
            ArgumentError: If `tensor` is not a tensor.

        Example:
            >>> layer = wg.nn.Module()
            >>> layer.register_buffer('mean', wg.zeros(2))
            >>> layer.mean
            tensor([0., 0.])
        """
        self._check_name(name, "buffer", self.__dict__.get("_buffers"))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ArgumentError(f"buffer {name!r} must be a tensor or None, not {type(tensor).__name__}")
        self._buffers[name] = tensor
        names = self._non_persistent_buffers_set
        (names.discard if persistent else names.add)(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a submodule, or None to reserve the name. `add_module` is the same method.

        Args:
            name: Attribute name.
            module: The submodule, or None.

        Raises:
            ArgumentError: If `module` is neither a `Module` nor None, or `name` is not a string.
            NameConflict: If the name is empty or contains a dot, or an attribute of this name exists.

        Example:
            >>> model = wg.nn.Module()
            >>> model.register_module('act', wg.nn.ReLU())
            >>> model.act
            ReLU()
        """
        if module is not None and not isinstance(module, Module):
            raise ArgumentError(f"{name!r} must be a Module or None, not {type(module).__name__}")
        self._check_name(name, "module", self.__dict__.get("_modules"))
        self._modules[name] = module

    add_module = register_module

    def _check_name(self, name: object, kind: str, members: Mapping[str, object] | None) -> None:
        if members is None:
            raise AttributeError(f"call super().__init__() before adding a {kind}")
        if not isinstance(name, str):
            raise ArgumentError(f"the name of a {kind} is a string, not {type(name).__name__}")
        if not name or "." in name:
            raise NameConflict(f"the name of a {kind} is a string without dots, not {name!r}")
        if name not in members and hasattr(self, name):
            raise NameConflict(f"attribute {name!r} exists already; a {kind} needs another name")

    # parts by name

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield (path, module) of this module and all submodules.

        Args:
            memo: Modules to skip.
            prefix: Path of this module.
            remove_duplicate: Yield a module that has several paths only once.

        Yields:
            Pairs of path and module; a module comes before its submodules.

        Example:
            >>> [path for path, _ in wg.nn.Sequential(wg.nn.ReLU(), wg.nn.Sequential(wg.nn.Tanh())).named_modules()]
            ['', '0', '1', '1.0']
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, submodule in self._modules.items():
            if submodule is not None:
                yield from submodule.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Yield this module and all submodules.

        Args:
            remove_duplicate: Yield a module that has several paths only once.

        Returns:
            Iterator of modules; a module comes before its submodules.

        Example:
            >>> [type(m).__name__ for m in wg.nn.Sequential(wg.nn.ReLU(), wg.nn.Tanh()).modules()]
            ['Sequential', 'ReLU', 'Tanh']
        """
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield (name, module) of the direct submodules, each once.

        Yields:
            Pairs of name and module.

        Example:
            >>> [name for name, _ in wg.nn.Sequential(wg.nn.ReLU(), wg.nn.Tanh()).named_children()]
            ['0', '1']
        """
        visited: set[Module] = set()
        for name, child in self._modules.items():
            if child is not None and child not in visited:
                visited.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """Yield the direct submodules, each once.

        Returns:
            Iterator of modules.

        Example:
            >>> list(wg.nn.Sequential(wg.nn.ReLU(), wg.nn.Tanh()).children())
            [ReLU(), Tanh()]
        """
        return (child for _, child in self.named_children())

    def _named_members(
        self,
        get_members_fn: Callable[[Module], Iterable[tuple[str, _Tensor | None]]],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, _Tensor]]:
        visited: set[int] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, tensor in get_members_fn(module):
                if tensor is None or (remove_duplicate and id(tensor) in visited):
                    continue
                visited.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield (path, parameter).

        Args:
            prefix: Path of this module.
            recurse: Include submodules.
            remove_duplicate: Yield a parameter that has several paths only once.

        Returns:
            Iterator of pairs of path and parameter.

        Example:
            >>> [(path, tuple(p.shape)) for path, p in wg.nn.Sequential(wg.nn.Linear(2, 3)).named_parameters()]
            [('0.weight', (3, 2)), ('0.bias', (3,))]
        """
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield the parameters, each once, as an optimizer needs them.

        Args:
            recurse: Include submodules.

        Returns:
            Iterator of parameters.

        Example:
            >>> [tuple(p.shape) for p in wg.nn.Linear(2, 3).parameters()]
            [(3, 2), (3,)]
        """
        return (tensor for _, tensor in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield (path, buffer); see `named_parameters`.

        Args:
            prefix: Path of this module.
            recurse: Include submodules.
            remove_duplicate: Yield a buffer that has several paths only once.

        Returns:
            Iterator of pairs of path and buffer.

        Example:
            >>> [path for path, _ in wg.nn.BatchNorm1d(2).named_buffers()]
            ['running_mean', 'running_var', 'num_batches_tracked']
        """
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers, each once.

        Args:
            recurse: Include submodules.

        Returns:
            Iterator of tensors.

        Example:
            >>> [tuple(b.shape) for b in wg.nn.BatchNorm1d(2).buffers()]
            [(2,), (2,), ()]
        """
        return (tensor for _, tensor in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """Return the submodule at a path such as `encoder.0`; this module for the empty path.

        Args:
            target: Names of submodules, joined by dots.

        Returns:
            The module.

        Raises:
            NoSuchMember: If there is none.

        Example:
            >>> wg.nn.Sequential(wg.nn.ReLU(), wg.nn.Sequential(wg.nn.Tanh())).get_submodule('1.0')
            Tanh()
        """
        module: Module = self
        for name in target.split(".") if target else ():
            child = getattr(module, name, None)
            if not isinstance(child, Module):
                raise NoSuchMember(f"{type(module).__name__} has no module {name!r}, needed for {target!r}")
            module = child
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replace or add the submodule at a path.

        Args:
            target: The path.
            module: The new module.
            strict: Raise an error unless a module exists there.

        Raises:
            NoSuchMember: If the path does not exist, or names something that is not a module.
            ArgumentError: If `target` is empty, or `module` is not a `Module`.

        Example:
            >>> model = wg.nn.Sequential(wg.nn.ReLU())
            >>> model.set_submodule('0', wg.nn.Tanh())
            >>> model[0]
            Tanh()
        """
        path, _, name = target.rpartition(".")
        if not name:
            raise ArgumentError(f"set_submodule: cannot replace the module itself, the target is {target!r}")
        if not isinstance(module, Module):
            raise ArgumentError(f"set_submodule: takes a Module, not {type(module).__name__}")
        parent = self.get_submodule(path)
        current = getattr(parent, name, None)
        if (current is None and strict) or (current is not None and not isinstance(current, Module)):
            raise NoSuchMember(f"set_submodule: {type(parent).__name__} has no module {name!r} to replace")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter at a path such as `encoder.0.weight`.

        Args:
            target: Path of the module, a dot, and the parameter's name.

        Returns:
            The parameter.

        Raises:
            NoSuchMember: If there is none.

        Example:
            >>> wg.nn.Sequential(wg.nn.Linear(2, 3)).get_parameter('0.weight').shape
            weftgrad.Size([3, 2])
        """
        owner, name = self._get_owner(target)
        member = getattr(owner, name, None)
        if not isinstance(member, Parameter):
            raise NoSuchMember(f"{type(owner).__name__} has no parameter {name!r}")
        return member

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer at a path.

        Args:
            target: Path of the module, a dot, and the buffer's name.

        Returns:
            The buffer.

        Raises:
            NoSuchMember: If there is none.

        Example:
            >>> wg.nn.Sequential(wg.nn.BatchNorm1d(2)).get_buffer('0.running_mean')
            tensor([0., 0.])
        """
        owner, name = self._get_owner(target)
        buffer = owner._buffers.get(name)
        if buffer is None:
            raise NoSuchMember(f"{type(owner).__name__} has no buffer {name!r}")
        return buffer

    def _get_owner(self, target: str) -> tuple[Module, str]:
        """Return the module that the path of a tensor begins with, and the tensor's name in it."""
        path, _, name = target.rpartition(".")
        return self.get_submodule(path), name

    # all at once

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call `fn` with every submodule, then with this module, and return the module.

        Args:
            fn: Function of a module; its result is ignored.

        Returns:
            This module.

        Example:
            >>> model = wg.nn.Sequential(wg.nn.ReLU()).apply(lambda module: print(type(module).__name__))
            ReLU
            Sequential
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the data of parameters and gradients, and the buffers, by `fn` of them."""
        if recurse:
            for child in self.children():
                child._apply(fn)
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
                    buffer.convert(fn)
                elif buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    @overload
    def to(
        self, device: DeviceLike | None = None, dtype: DTypeLike | None = None, non_blocking: bool = False, *,
        memory_format: MemoryFormat | None = None,
    ) -> Self: ...  # fmt: skip
    @overload
    def to(
        self, dtype: DType | builtins.type[builtins.float], non_blocking: bool = False, *,
        memory_format: MemoryFormat | None = None,
    ) -> Self: ...  # fmt: skip
    @overload
    def to(self, tensor: Tensor, non_blocking: bool = False, *, memory_format: MemoryFormat | None = None) -> Self: ...
    def to(self, *args: object, **kwargs: object) -> Self:
        """Move parameters and buffers to a device and cast floating-point ones to a dtype, in place.

        `to(device=None, dtype=None, non_blocking=False)`, `to(dtype, non_blocking=False)` or
        `to(tensor, non_blocking=False)`. Parameters remain the same objects.

        Args:
            *args: A device, a dtype or a tensor whose device and dtype are used, in any order. A bool is
                `non_blocking`.
            **kwargs: `device`, `dtype`, `tensor`, `non_blocking` or `memory_format`; the last two are ignored.

        Returns:
            This module.

        Raises:
            ArgumentError: If the dtype is not a floating-point one, or an argument is of another kind.

        Example:
            >>> wg.nn.Linear(2, 3).to(wg.float64).weight.dtype
            weftgrad.float64
        """
        device, dtype = _parse_to_args(args, kwargs)

        def change(tensor: Tensor) -> Tensor:
            return tensor.to(device=device, dtype=dtype if tensor.meta.dtype.kind == "f" else None)

        return self._apply(change)

    def to_empty(self, *, device: DeviceLike | None, recurse: bool = True) -> Self:
        """Move to a device without copying: parameters and buffers are uninitialized there.

        Args:
            device: The device.
            recurse: Include submodules.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).to_empty(device='cpu').weight.shape
            weftgrad.Size([3, 2])
        """
        from ..creation.factories import empty

        def change(tensor: Tensor) -> Tensor:
            return empty(*tensor.meta.shape, dtype=tensor.meta.dtype, device=device)

        return self._apply(change, recurse)

    def cpu(self) -> Self:
        """Move to the CPU.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).cpu().weight.device
            device(type='cpu')
        """
        return self.to("cpu")

    def cuda(self, device: DeviceLike | None = None) -> Self:
        """Move to a CUDA device, by default the first.

        Args:
            device: The device; None: the first CUDA device.

        Returns:
            This module.

        Raises:
            DriverNotFound: If there is no GPU, or a package that it needs is missing.
        """
        return self.to("cuda:0" if device is None else device)

    def type(self, dst_type: DTypeLike) -> Self:
        """Cast all parameters and buffers, also integer ones, to `dst_type`.

        Args:
            dst_type: The dtype.

        Returns:
            This module.

        Example:
            >>> wg.nn.BatchNorm1d(2).type(wg.float64).num_batches_tracked.dtype
            weftgrad.float64
        """
        return self._apply(lambda tensor: tensor.to(dtype=dtypes.parse(dst_type)))

    def float(self) -> Self:
        """Cast floating-point parameters and buffers to float32.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3, dtype=wg.float64).float().weight.dtype
            weftgrad.float32
        """
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Cast floating-point parameters and buffers to float64.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).double().weight.dtype
            weftgrad.float64
        """
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """Cast floating-point parameters and buffers to float16.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).half().weight.dtype
            weftgrad.float16
        """
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast floating-point parameters and buffers to bfloat16.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).bfloat16().weight.dtype
            weftgrad.bfloat16
        """
        return self.to(dtypes.bfloat16)

    def share_memory(self) -> Self:
        """Move parameters and buffers to memory that other processes can map.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).share_memory().weight.is_shared()
            True
        """
        from ..multiprocessing.sharing import share_tensors

        share_tensors(t for t in (*self.parameters(), *self.buffers()) if not is_lazy(t))  # one shared segment for all
        return self._apply(lambda tensor: tensor.share_memory_())

    def train(self, mode: bool = True) -> Self:
        """Set training mode for this module and all submodules.

        Args:
            mode: True for training mode, False for evaluation mode.

        Returns:
            This module.

        Raises:
            ArgumentError: If `mode` is not a bool.

        Example:
            >>> wg.nn.Dropout().train(False).training
            False
        """
        if not isinstance(mode, bool):
            raise ArgumentError(f"train: the mode is True or False, not {mode!r}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode for this module and all submodules.

        Returns:
            This module.

        Example:
            >>> wg.nn.Dropout().eval()(wg.ones(2))
            tensor([1., 1.])
        """
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Choose whether gradients of the parameters are computed.

        Args:
            requires_grad: Whether gradients are computed.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).requires_grad_(False).weight.requires_grad
            False
        """
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def compile(self, *args: object, **kwargs: object) -> None:
        """Do nothing, like `weftgrad.compile`: the module's ops are compiled kernels already.

        Args:
            *args: Ignored.
            **kwargs: Ignored.
        """

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters.

        Args:
            set_to_none: Set `grad` to None, which frees its memory. False fills it with zeros.

        Example:
            >>> layer = wg.nn.Linear(2, 1)
            >>> layer(wg.ones(2)).backward()
            >>> layer.zero_grad()
            >>> print(layer.weight.grad)
            None
        """
        for param in self.parameters():
            if set_to_none or param.grad is None:
                param.grad = None
            else:
                param.grad = param.grad.detach().zero_()

    # showing

    def extra_repr(self) -> str:
        """Return the text that `repr` shows between the parentheses.

        Returns:
            Text; the empty string unless a subclass overrides this method.

        Example:
            >>> wg.nn.Linear(2, 3).extra_repr()
            'in_features=2, out_features=3, bias=True'
        """
        return ""

    def _get_name(self) -> str:
        return self.__class__.__name__

    def __repr__(self) -> str:
        lines = self.extra_repr().split("\n") if self.extra_repr() else []
        children = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({''.join(lines)})"
        return f"{self._get_name()}(\n  " + "\n  ".join([*lines, *children]) + "\n)"


def _require_none(value: object, member: str, remedy: str) -> None:
    if value is not None:
        raise ArgumentError(f"cannot assign {value.__class__.__name__} as {member}; {remedy}, or assign None")


def _parse_to_args(args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[Device | None, DType | None]:
    """Return the device and dtype from the arguments of `Module.to`, None for those not passed."""
    if "tensor" in kwargs:
        args = (kwargs.pop("tensor"), *args)
    if unknown := kwargs.keys() - {"device", "dtype", "non_blocking", "memory_format"}:
        raise ArgumentError(f"Module.to: got unexpected arguments {sorted(unknown)}")
    device, dtype, should_copy = parse_conversion("Module.to", args, kwargs.get("device"), kwargs.get("dtype"))
    if should_copy:
        raise ArgumentError("Module.to: converts in place and takes no copy; use copy.deepcopy(module).to(...)")
    if dtype is not None and dtype.kind != "f":
        raise ArgumentError(f"Module.to: takes a floating dtype, not {dtype.name}")
    return device, dtype
