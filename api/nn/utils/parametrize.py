"""Parametrizations: a parameter or buffer that is computed from other tensors whenever it is read.

`register_parametrization` changes the module's class to a subclass of its own, with a property for each parametrized
tensor. `module.parametrizations` holds the functions and the original tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, NoReturn

from ...autograd import no_grad
from ...runtime.errors import ArgumentError, DomainError
from ...runtime.tensor import Tensor
from ..containers import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

if TYPE_CHECKING:
    from ...runtime.device import Meta

    class _ParametrizationDict(ModuleDict):
        """The entries of `parametrizations`: a `ParametrizationList` for each tensor."""

        def __getitem__(self, key: str) -> ParametrizationList: ...

    class _ParametrizedModule(Module):
        parametrizations: _ParametrizationDict


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
    """Tensors computed inside `cached()`, by module id and name. `depth` counts the open contexts."""

    depth = 0
    tensors: ClassVar[dict[tuple[int, str], Tensor]] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor only once inside the context, when it is first read.

    Returns:
        Context manager.

    Example:
        >>> from weftgrad.nn.utils import parametrizations, parametrize
        >>> layer = parametrizations.weight_norm(wg.nn.Linear(2, 3))
        >>> with parametrize.cached():
        ...     layer.weight is layer.weight
        ...
        True
    """
    _Cache.depth += 1
    try:
        yield
    finally:
        _Cache.depth -= 1
        if not _Cache.depth:
            _Cache.tensors.clear()


class ParametrizationList(ModuleList):
    """The functions of one parametrized tensor, applied in order, and the original tensors.

    The original is `original`, or `original0`, `original1`, ... if the first function's `right_inverse` returns
    several.

    Args:
        modules: The functions.
        original: The tensor before parametrization.
        unsafe: Allow the functions to change dtype and shape.

    Raises:
        ArgumentError: If dtype or shape changes without `unsafe`.

    Example:
        >>> from weftgrad.nn.utils.parametrize import ParametrizationList
        >>> weights = ParametrizationList([wg.nn.ReLU()], wg.nn.Parameter(wg.tensor([-1.0, 2.0])))
        >>> weights().tolist(), weights.original.tolist()
        ([0.0, 2.0], [-1.0, 2.0])
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False):
        if not modules:
            raise ArgumentError("ParametrizationList: needs one module or more")
        super().__init__(modules)
        self.unsafe = unsafe
        layout = original.meta
        with no_grad():
            original_value: object = original
            for module in reversed(list(self)):
                original_value = _apply_right_inverse(module, original_value)
        if not isinstance(original_value, (Tensor, list, tuple)):
            raise ArgumentError(
                f"right_inverse gives a tensor or a sequence of tensors, not {type(original_value).__name__}"
            )
        self.is_tensor = isinstance(original_value, Tensor)
        self.ntensors = 1 if isinstance(original_value, Tensor) else len(original_value)
        if isinstance(original_value, Tensor):
            _check_same_layout(layout, original_value, "right_inverse", shape=False)
            _set_data(original, original_value)
            _register_tensor(self, "original", original)
        else:
            for i, tensor in enumerate(original_value):
                if not isinstance(tensor, Tensor):
                    raise ArgumentError(f"right_inverse gave {type(tensor).__name__} as tensor {i}")
                parameter = Parameter(tensor.detach()) if isinstance(original, Parameter) else tensor
                _register_tensor(self, f"original{i}", parameter.requires_grad_(original.needs_grad))
        if not unsafe:
            _check_same_layout(layout, self(), "a parametrization")

    def _originals(self) -> list[Tensor]:
        names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
        return [getattr(self, name) for name in names]

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the tensor becomes `value`.

        Args:
            value: Tensor of the dtype and device of the parametrized tensor.

        Raises:
            DomainError: If a function has no `right_inverse`.
            ArgumentError: If a `right_inverse` returns another number of tensors, or another dtype or device.

        Example:
            >>> from weftgrad.nn.utils import parametrizations
            >>> layer = parametrizations.weight_norm(wg.nn.Linear(2, 1))
            >>> layer.parametrizations.weight.right_inverse(wg.tensor([[3.0, 4.0]]))
            >>> layer.parametrizations.weight.original0.tolist()
            [[5.0]]
        """
        with no_grad():
            inverted: object = value
            for module in reversed(list(self)):
                right_inverse = getattr(module, "right_inverse", None)
                if right_inverse is None:
                    raise DomainError(f"{type(module).__name__} has no right_inverse(...), so its tensor cannot be set")
                inverted = right_inverse(inverted)
            values = [inverted] if self.is_tensor else inverted
            if not isinstance(values, (list, tuple)) or len(values) != self.ntensors:
                raise ArgumentError(f"right_inverse must give {self.ntensors} tensors, not {type(inverted).__name__}")
            for original, new_value in zip(self._originals(), values, strict=True):
                _set_data(original, _check_same_layout(original.meta, new_value, "right_inverse", shape=False))

    def forward(self) -> Tensor:
        """Compute the tensor from the originals.

        Returns:
            The tensor.

        Example:
            >>> from weftgrad.nn.utils.parametrize import ParametrizationList
            >>> ParametrizationList([wg.nn.ReLU()], wg.nn.Parameter(wg.tensor([-1.0, 2.0])))().tolist()
            [0.0, 2.0]
        """
        functions = list(self)
        output = functions[0](*self._originals())
        for function in functions[1:]:
            output = function(output)
        return output


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Replace a parameter or buffer by `parametrization(original)`.

    A second call adds a function that is applied to the result of the first. If the function has a `right_inverse`, it
    computes the original from the current value, and values can be assigned to the tensor.

    Args:
        module: The module.
        tensor_name: Name of the parameter or buffer.
        parametrization: Module that maps the original(s) to the tensor.
        unsafe: Allow it to change dtype and shape.

    Returns:
        The module.

    Raises:
        ArgumentError: If there is no such tensor, or dtype or shape changes without `unsafe`.

    Example:
        >>> from weftgrad.nn.utils import parametrize
        >>> class Symmetric(wg.nn.Module):
        ...     def forward(self, X):
        ...         return X.triu() + X.triu(1).T
        ...
        >>> layer = parametrize.register_parametrization(wg.nn.Linear(2, 2), 'weight', Symmetric())
        >>> wg.equal(layer.weight, layer.weight.T)
        True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            current = getattr(module, tensor_name)
            parametrized = parametrization(current)
            _check_same_layout(current.meta, parametrized, "a parametrization")
            inverted = _apply_right_inverse(parametrization, parametrized)
            _check_same_layout(current.meta, inverted, "right_inverse")
        parametrization_list = _parametrization_list(module, tensor_name)
        parametrization_list.append(parametrization)
        parametrization_list.unsafe |= unsafe
        return module
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ArgumentError(f"{type(module).__name__} has no parameter, buffer or parametrized tensor {tensor_name!r}")
    new_list = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _specialize_class(module)
        module.parametrizations = ModuleDict()
    _add_property(module, tensor_name)
    _parametrizations(module)[tensor_name] = new_list
    return module


def _parametrizations(module: Module) -> ModuleDict:
    """Return the dict of a parametrized module."""
    parametrizations = module.parametrizations
    assert isinstance(parametrizations, ModuleDict)
    return parametrizations


def _parametrization_list(module: Module, tensor_name: str) -> ParametrizationList:
    parametrization_list = _parametrizations(module)[tensor_name]
    assert isinstance(parametrization_list, ParametrizationList)
    return parametrization_list


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Return whether `module` has any parametrized tensor, or the one named `tensor_name`.

    Args:
        module: The module.
        tensor_name: Name of a tensor; None: any.

    Returns:
        Python bool.

    Example:
        >>> from weftgrad.nn.utils import parametrizations, parametrize
        >>> layer = parametrizations.weight_norm(wg.nn.Linear(2, 3))
        >>> parametrize.is_parametrized(layer, 'weight'), parametrize.is_parametrized(layer, 'bias')
        (True, False)
    """
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a parametrized tensor a plain parameter or buffer again.

    Args:
        module: The module.
        tensor_name: Name of the tensor.
        leave_parametrized: Keep the current value; False restores the original.

    Returns:
        The module.

    Raises:
        ArgumentError: If the tensor is not parametrized, or has several originals and `leave_parametrized` is False.

    Example:
        >>> from weftgrad.nn.utils import parametrizations, parametrize
        >>> layer = parametrizations.weight_norm(wg.nn.Linear(2, 3))
        >>> [name for name, _ in parametrize.remove_parametrizations(layer, 'weight').named_parameters()]
        ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"{type(module).__name__} has no parametrization of {tensor_name!r}")
    parametrization_list = _parametrization_list(module, tensor_name)
    if not parametrization_list.is_tensor and not leave_parametrized:
        raise ArgumentError(
            f"{tensor_name!r} is computed from {parametrization_list.ntensors} tensors, none of which can replace it; "
            "use leave_parametrized=True"
        )
    if not parametrization_list.is_tensor:
        needs_grad = any(o.needs_grad for o in parametrization_list._originals())
        with no_grad():
            value: Tensor = getattr(module, tensor_name)
        original = Parameter(value.detach()) if needs_grad else value.detach()
    else:
        (original,) = parametrization_list._originals()
        if leave_parametrized:
            with no_grad():
                _set_data(original, getattr(module, tensor_name))
    delattr(module.__class__, tensor_name)
    del _parametrizations(module)[tensor_name]
    _register_tensor(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = module.__class__.__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """Return the module's class before parametrization.

    Args:
        module: The module.

    Returns:
        The class, such as `Linear`.

    Example:
        >>> from weftgrad.nn.utils import parametrizations, parametrize
        >>> layer = parametrizations.weight_norm(wg.nn.Linear(2, 3))
        >>> type(layer).__name__, parametrize.type_before_parametrizations(layer).__name__
        ('ParametrizedLinear', 'Linear')
    """
    return module.__class__.__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Copy the parametrizations and originals of one tensor (or of all) to `to_module`, and return `to_module`.

    Args:
        from_module: Module with parametrizations.
        to_module: Module that gets them.
        tensor_name: Name of the tensor; None: all parametrized ones.

    Returns:
        `to_module`.

    Example:
        >>> from weftgrad.nn.utils import parametrizations, parametrize
        >>> source = parametrizations.weight_norm(wg.nn.Linear(2, 3))
        >>> target = parametrize.transfer_parametrizations_and_params(source, wg.nn.Linear(2, 3))
        >>> wg.equal(source.weight, target.weight)
        True
    """
    if not is_parametrized(from_module):
        return to_module
    for name in list(_parametrizations(from_module)) if tensor_name is None else [tensor_name]:
        source = _parametrization_list(from_module, name)
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for function in source:
            register_parametrization(to_module, name, function)
        target = _parametrization_list(to_module, name)
        for member_dict in ("_parameters", "_buffers"):
            for key, tensor in getattr(source, member_dict).items():
                target._remove_member(key)
                getattr(target, member_dict)[key] = tensor
    return to_module


def _apply_right_inverse(function: Module, value: object) -> object:
    """Return `function.right_inverse(value)`, or `value` if the function has none or does not implement it."""
    right_inverse = getattr(function, "right_inverse", None)
    if right_inverse is None:
        return value
    try:
        return right_inverse(value)
    except NotImplementedError:
        return value


def _check_same_layout(layout: Meta, tensor: object, source: str, shape: bool = True) -> Tensor:
    """Return `tensor`. Raise `ArgumentError` unless it is a tensor of the same dtype, device and (optionally) shape."""
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"{source} must give a tensor, not {type(tensor).__name__}")
    if tensor.meta.dtype is not layout.dtype or tensor.meta.device is not layout.device:
        raise ArgumentError(
            f"{source} gave {tensor.meta.dtype.name} on {tensor.meta.device}, and the tensor is {layout.dtype.name} on "
            f"{layout.device}; pass unsafe=True if that is meant"
        )
    if shape and tensor.meta.shape != layout.shape:
        raise ArgumentError(
            f"{source} gave shape {list(tensor.meta.shape)}, and the tensor has {list(layout.shape)}; "
            "pass unsafe=True if that is meant"
        )
    return tensor


def _set_data(tensor: Tensor, value: Tensor) -> None:
    if value is not tensor:
        tensor.data = value.detach()


def _register_tensor(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _add_property(module: Module, name: str) -> None:
    def getter(self: _ParametrizedModule) -> Tensor:
        function = self.parametrizations[name]
        if not _Cache.depth:
            return function()
        key = (id(self), name)
        if key not in _Cache.tensors:
            _Cache.tensors[key] = function()
        return _Cache.tensors[key]

    def setter(self: _ParametrizedModule, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(module.__class__, name, property(getter, setter))


def _specialize_class(module: Module) -> None:
    """Give the module a class of its own, to which properties can be added."""
    cls = module.__class__
    class_members: dict[str, Callable[..., object]] = {
        "__getstate__": _raise_not_picklable,
        "__deepcopy__": _deepcopy_parametrized,
    }
    if hasattr(cls, "__deepcopy__"):
        del class_members["__deepcopy__"]
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), class_members)


def _raise_not_picklable(self: Module) -> NoReturn:
    raise DomainError(
        f"{type(self).__name__} cannot be pickled: its class was created at run time; save its state_dict() instead"
    )


def _deepcopy_parametrized(self: Module, memo: dict[int, object]) -> Module:
    cls = self.__class__
    new_module: Module = cls.__new__(type(cls.__name__, cls.__bases__, dict(vars(cls))))
    memo[id(self)] = new_module
    new_module.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return new_module
