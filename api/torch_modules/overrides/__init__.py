"""Take over calls of functions by classes with `__torch_function__` (`torch.overrides`).

A class takes over each call that has one of its instances among the arguments, if it defines

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None): ...

It is asked with the function, the classes of the arguments that define the method, and the arguments. It returns the
result, or NotImplemented for the next of these classes to be asked. Subclasses of `Tensor` inherit a method that calls
the function and gives its tensors the subclass; `super().__torch_function__` calls it.

A class that is no subclass of Tensor takes over generated ops at once, and functions that are written in Python from
the import of this module on, or from the first call that it took over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any, TypeVar

from ..runtime import overriding
from ..runtime.tensor import Tensor
from ..tensor_methods.override_methods import unconverted_functions as get_default_nowrap_functions
from . import _checks

__all__ = [
    "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions", "handle_torch_function",
    "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "is_tensor_like",
    "is_tensor_method_or_property", "resolve_name", "wrap_torch_function",
]  # fmt: skip

_Function = TypeVar("_Function", bound=Callable[..., Any])


def has_torch_function(relevant_args: Iterable[object]) -> bool:
    """Return True if one of the arguments takes over calls.

    Args:
        relevant_args: Arguments of a call.

    Returns:
        Python bool.

    Example:
        >>> wg.overrides.has_torch_function((wg.ones(2), 3))
        False
    """
    return bool(overriding.collect(tuple(relevant_args)))


def has_torch_function_unary(arg: object) -> bool:
    """Return True if the argument takes over calls.

    Args:
        arg: An argument of a call.

    Returns:
        Python bool.

    Example:
        >>> class Picture(wg.Tensor): pass
        >>> wg.overrides.has_torch_function_unary(wg.ones(2).as_subclass(Picture))
        True
    """
    return bool(overriding.collect((arg,)))


def has_torch_function_variadic(*args: object) -> bool:
    """Return True if one of the arguments takes over calls.

    Args:
        *args: Arguments of a call.

    Returns:
        Python bool.

    Example:
        >>> wg.overrides.has_torch_function_variadic(wg.ones(2), wg.ones(2))
        False
    """
    return bool(overriding.collect(args))


def handle_torch_function(
    public_api: Callable[..., object], relevant_args: Iterable[object], *args: object, **kwargs: object
) -> Any:
    """Let the arguments that take over calls handle a call.

    Args:
        public_api: The function that was called.
        relevant_args: The arguments to ask.
        *args: The positional arguments of the call.
        **kwargs: Its keyword arguments.

    Returns:
        What the first `__torch_function__` returns that does not return NotImplemented.

    Raises:
        UnhandledFunction: All return NotImplemented. It is a `TypeError`.

    Example:
        >>> def double(x):
        ...     if wg.overrides.has_torch_function_unary(x):
        ...         return wg.overrides.handle_torch_function(double, (x,), x)
        ...     return 2 * x
        >>> class Picture(wg.Tensor): pass
        >>> type(double(wg.ones(2).as_subclass(Picture))).__name__
        'Picture'
    """
    return overriding.handle(public_api, overriding.collect(tuple(relevant_args)), args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[object]]) -> Callable[[_Function], _Function]:
    """Return a decorator that lets arguments take over the calls of a function.

    Args:
        dispatcher: Called with the function's arguments; returns those to ask.

    Returns:
        The decorator.

    Example:
        >>> @wg.overrides.wrap_torch_function(lambda x: (x,))
        ... def double(x):
        ...     return 2 * x
        >>> double(wg.ones(2))
        tensor([2., 2.])
    """

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            relevant_args = tuple(dispatcher(*args, **kwargs))
            if overriding.collect(relevant_args):
                return handle_torch_function(call, relevant_args, *args, **kwargs)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]  # it takes and returns what `function` does

    return decorate


def is_tensor_like(inp: object) -> bool:
    """Return True for tensors, and for objects whose class defines `__torch_function__`.

    Args:
        inp: Any object.

    Returns:
        Python bool.

    Example:
        >>> wg.overrides.is_tensor_like(wg.ones(2)), wg.overrides.is_tensor_like([1.0])
        (True, False)
    """
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


@cache
def get_overridable_functions() -> dict[object, list[Callable[..., Any]]]:
    """Return the functions whose calls classes may take over.

    Returns:
        Dictionary from a module or class to its functions. Properties are there as their `__get__`.

    Example:
        >>> wg.cat in wg.overrides.get_overridable_functions()[wg]
        True
    """
    functions: dict[object, list[Callable[..., Any]]] = {}
    for owner in _owners():
        functions[owner] = list(_checks.overridable_functions(vars(owner)).values())
    functions[Tensor] += [value.__get__ for value in vars(Tensor).values() if isinstance(value, property)]
    return functions


@cache
def get_ignored_functions() -> set[Callable[..., Any]]:
    """Return public functions whose calls no class takes over, such as those that create tensors.

    Returns:
        Set of functions.

    Example:
        >>> wg.zeros in wg.overrides.get_ignored_functions()
        True
    """
    overridable = {function for functions in get_overridable_functions().values() for function in functions}
    values = (value for owner in _owners() for name, value in vars(owner).items() if not name.startswith("_"))
    return {value for value in values if callable(value) and not isinstance(value, type) and value not in overridable}


def _owners() -> list[Any]:
    """Return the modules with functions that classes may take over, and Tensor."""
    import weftgrad as root  # lazy: weftgrad imports this module when a class first takes over calls

    return [root, Tensor, root.nn.functional, root.special, root.linalg]


def is_tensor_method_or_property(func: Callable[..., object]) -> bool:
    """Return True if a function is a method of Tensor, or the `__get__` of one of its properties.

    Args:
        func: A function that was passed to `__torch_function__`.

    Returns:
        Python bool.

    Example:
        >>> wg.overrides.is_tensor_method_or_property(wg.Tensor.add_)
        True
    """
    return func in get_overridable_functions()[Tensor]


def resolve_name(f: Callable[..., object]) -> str | None:
    """Return the name under which a function is overridable.

    Args:
        f: A function that was passed to `__torch_function__`.

    Returns:
        Its name after that of its module or class; None for other functions.

    Example:
        >>> wg.overrides.resolve_name(wg.cat), wg.overrides.resolve_name(wg.Tensor.shape.__get__)
        ('weftgrad.cat', 'weftgrad.Tensor.shape.__get__')
    """
    if isinstance(getattr(f, "__self__", None), property):
        names = [name for name, value in vars(Tensor).items() if value is f.__self__]  # type: ignore[attr-defined]
        return f"weftgrad.Tensor.{names[0]}.{f.__name__}" if names else None
    for owner, functions in get_overridable_functions().items():
        if f in functions:
            prefix = "weftgrad.Tensor" if owner is Tensor else owner.__name__  # type: ignore[attr-defined]
            return f"{prefix}.{f.__name__}"
    return None


overriding.start()
