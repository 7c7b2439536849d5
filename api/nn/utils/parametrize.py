"""Parameters and buffers that are computed from others: `module.weight` becomes `f(original)`, computed when read.

A module that has such a tensor is of a class of its own, a subclass of what it was, with a property for each of them;
the functions and the originals are in `module.parametrizations`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...autograd import no_grad
from ...runtime.errors import ArgumentError, DomainError
from ...runtime.tensor import Tensor
from ..containers import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]


class _Cache:
    """Tensors computed inside `cached()`, by module and name; `depth` counts the contexts that are open."""

    depth = 0
    tensors: dict[tuple[int, str], Any] = {}  # noqa: RUF012


@contextmanager
def cached() -> Iterator[None]:
    """Inside, every parametrized tensor is computed once, when it is first read."""
    _Cache.depth += 1
    try:
        yield
    finally:
        _Cache.depth -= 1
        if not _Cache.depth:
            _Cache.tensors.clear()


class ParametrizationList(ModuleList):
    """The functions of one tensor, applied in order, and what they are applied to.

    That is `original`, or `original0`, `original1`, … if the first function's `right_inverse` gives several tensors.
    unsafe: dtype and shape of the tensor may change. Raises `ArgumentError` where they do otherwise.
    """

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False):
        if not modules:
            raise ArgumentError("ParametrizationList: needs one module or more")
        super().__init__(modules)
        self.unsafe = unsafe
        layout = original.meta
        with no_grad():
            new: Any = original
            for module in reversed(list(self)):
                new = _inverted(module, new)
        if not isinstance(new, (Tensor, list, tuple)):
            raise ArgumentError(f"right_inverse gives a tensor or a sequence of tensors, not {type(new).__name__}")
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            _same(layout, new, "right_inverse", shape=False)
            _become(original, new)
            _register(self, "original", original)
        else:
            for i, each in enumerate(new):
                if not isinstance(each, Tensor):
                    raise ArgumentError(f"right_inverse gave {type(each).__name__} as tensor {i}")
                made: Any = Parameter(each.detach()) if isinstance(original, Parameter) else each  # type: ignore[attr-defined]
                _register(self, f"original{i}", made.requires_grad_(original.needs))
        if not unsafe:
            _same(layout, self(), "a parametrization")

    def _originals(self) -> list[Any]:
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the tensor becomes `value`. Raises `DomainError` where a function cannot."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise DomainError(f"{type(module).__name__} has no right_inverse(...), so its tensor cannot be set")
                value = module.right_inverse(value)
            given = [value] if self.is_tensor else value
            if not isinstance(given, (list, tuple)) or len(given) != self.ntensors:
                raise ArgumentError(f"right_inverse must give {self.ntensors} tensors, not {type(value).__name__}")
            for original, new in zip(self._originals(), given, strict=True):
                _same(original.meta, new, "right_inverse", shape=False)
                _become(original, new)

    def forward(self) -> Any:
        """The tensor now."""
        functions = list(self)
        found = functions[0](*self._originals())
        for function in functions[1:]:
            found = function(found)
        return found


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Make `module.tensor_name`, a parameter or a buffer, `parametrization(original)`. Returns the module.

    A second call adds a function that is applied to the first one's result. A `right_inverse` method, if there is one,
    gives the original(s) of the tensor's present value, and lets the tensor be assigned to. Raises `ArgumentError` if
    there is no such tensor, or its dtype or shape would change (unless `unsafe`).
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            _same(before.meta, after, "a parametrization")
            back = _inverted(parametrization, after)
            _same(before.meta, back, "right_inverse")
        found = module.parametrizations[tensor_name]
        found.append(parametrization)
        found.unsafe |= unsafe
        return module
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ArgumentError(f"{type(module).__name__} has no parameter, buffer or parametrized tensor {tensor_name!r}")
    made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _subclass(module)
        module.parametrizations = ModuleDict()
    _add_property(module, tensor_name)
    module.parametrizations[tensor_name] = made
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has a parametrized tensor, or this one."""
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make the tensor a plain parameter or buffer again: with its present value, or its original's. Returns the module.

    Raises `ArgumentError` where there is none, or `leave_parametrized` is False and there are several originals.
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"{type(module).__name__} has no parametrization of {tensor_name!r}")
    found = module.parametrizations[tensor_name]
    if not found.is_tensor and not leave_parametrized:
        raise ArgumentError(
            f"{tensor_name!r} is computed from {found.ntensors} tensors, none of which can stand for it; "
            "use leave_parametrized=True"
        )
    if not found.is_tensor:
        needs = any(o.needs for o in found._originals())
        with no_grad():
            value = getattr(module, tensor_name)
        original: Any = Parameter(value.detach()) if needs else value.detach()
    else:
        original = found.original
        if leave_parametrized:
            with no_grad():
                _become(original, getattr(module, tensor_name))
    delattr(module.__class__, tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = module.__class__.__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class a module had."""
    return module.__class__.__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give `to_module` the functions and the originals of one tensor of `from_module`, or of all. Returns it."""
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        theirs = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for function in theirs:
            register_parametrization(to_module, name, function)
        mine = to_module.parametrizations[name]
        for kind in ("_parameters", "_buffers"):
            for key, tensor in getattr(theirs, kind).items():
                mine._forget(key)
                getattr(mine, kind)[key] = tensor
    return to_module


def _inverted(function: Any, value: Any) -> Any:
    """What `right_inverse` gives, or the value itself where there is none, or none that can."""
    if not hasattr(function, "right_inverse"):
        return value
    try:
        return function.right_inverse(value)
    except NotImplementedError:
        return value


def _same(layout: Any, new: Any, who: str, shape: bool = True) -> None:
    if not isinstance(new, Tensor):
        raise ArgumentError(f"{who} must give a tensor, not {type(new).__name__}")
    if new.meta.dtype is not layout.dtype or new.meta.device is not layout.device:
        raise ArgumentError(
            f"{who} gave {new.meta.dtype.name} on {new.meta.device}, and the tensor is {layout.dtype.name} on "
            f"{layout.device}; pass unsafe=True if that is meant"
        )
    if shape and new.meta.shape != layout.shape:
        raise ArgumentError(
            f"{who} gave shape {list(new.meta.shape)}, and the tensor has {list(layout.shape)}; "
            "pass unsafe=True if that is meant"
        )


def _become(tensor: Any, new: Any) -> None:
    if new is not tensor:
        tensor.data = new.detach()


def _register(module: Module, name: str, tensor: Any) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _add_property(module: Module, name: str) -> None:
    def get(self: Any) -> Any:
        function = self.parametrizations[name]
        if not _Cache.depth:
            return function()
        key = (id(self), name)
        if key not in _Cache.tensors:
            _Cache.tensors[key] = function()
        return _Cache.tensors[key]

    def put(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(module.__class__, name, property(get, put))


def _subclass(module: Module) -> None:
    """Make a module's class its own."""
    kind = module.__class__
    own: dict[str, Callable[..., Any]] = {"__getstate__": _not_pickled, "__deepcopy__": _copied}
    if hasattr(kind, "__deepcopy__"):
        del own["__deepcopy__"]
    module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), own)


def _not_pickled(self: Any) -> Any:
    raise DomainError(
        f"{type(self).__name__} cannot be pickled, as its class exists here only; save its state_dict() instead"
    )


def _copied(self: Any, memo: dict[int, Any]) -> Any:
    kind = self.__class__
    made = kind.__new__(type(kind.__name__, kind.__bases__, dict(vars(kind))))
    memo[id(self)] = made
    made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return made
