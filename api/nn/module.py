"""`Module`, the base class of layers and models, with parameters, buffers and submodules by name.

Base classes hold most of its methods, by topic: `Hooks` calls `forward` between hooks, `NamedTensors` finds parameters
and buffers, `Conversion` moves and casts them, `State` saves and loads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Self

from ..runtime.errors import ArgumentError, GradientError
from ..runtime.tensor import Tensor
from ._conversion import Conversion
from ._errors import NameConflict, NoSuchMember
from ._hook_tables import (
    HookTable,
    register_module_backward_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from ._hooks import Hooks
from ._state import IncompatibleKeys, State
from .parameter import Buffer, Parameter

if TYPE_CHECKING:
    from ._types import Argument, Output

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


class Module(Hooks, Conversion, State):
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

    def __init__(self) -> None:
        fields = self.__dict__
        fields["training"] = True
        for dict_name in _MEMBER_DICTS:
            fields[dict_name] = {}
        fields["_non_persistent_buffers_set"] = set()
        for table in _HOOK_TABLES:
            fields[table] = HookTable()

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, HookTable())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())

    def forward(self, *args: Argument, **kwargs: Argument) -> Output:
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
        for dict_name in _MEMBER_DICTS:
            members = self.__dict__.get(dict_name)
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

    def _remove_member(self, name: str, new_dict: str = "") -> bool:
        """Remove `name` from the member dicts, and return whether one of them had it.

        With `new_dict`, the dict in which the caller stores a new member, leave that dict as it is, so that the member
        keeps its position there, and remove a plain attribute of the name as well.
        """
        fields = self.__dict__
        if new_dict:
            fields.pop(name, None)
        holders = [dict_name for dict_name in _MEMBER_DICTS if dict_name != new_dict and name in fields[dict_name]]
        for dict_name in holders:
            del fields[dict_name][name]
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
        """Raise an error unless a new member of `members` may have this name. kind: what it is, for messages."""
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

    def compile(self, *args: object, **kwargs: object) -> None:
        """Do nothing, like `weftgrad.compile`: the module's ops are compiled kernels already.

        Args:
            *args: Ignored.
            **kwargs: Ignored.

        Example:
            >>> layer = wg.nn.ReLU()
            >>> layer.compile()
        """

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
