"""Classes that take over calls by `__torch_function__`, and the rules by which they are asked.

A class with a class method `__torch_function__(func, types, args, kwargs)` gets every call of a public function that
has one of its instances among the arguments. Programs without such a class pay nothing for it:

- A generated function ends in `dispatch.call`. There, C leaves operands of `classes` to Python, which calls
  `intercept`. An object that is no tensor has no plan, so Python asks `intercept` before it plans.
- Functions written in Python look for such arguments only once a class was registered: then the `api` package puts
  checks before them (`Checks`).
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any, Protocol

from .context import _local
from .errors import UnhandledFunction

__all__ = [
    "MISSING", "PLAIN_TYPES", "Checks", "Disabled", "ParameterNames", "add_functions", "call_arguments", "classes",
    "collect", "defines_override", "disabled_torch_function", "handle", "intercept", "is_enabled", "namespaces",
    "parameter_names", "register", "set_checks", "start",
]  # fmt: skip

MISSING: Any = object()
"""The result of `intercept` for a call that no argument takes over."""

classes: set[type] = set()
"""The subclasses of Tensor that take over calls. C reads this set."""

_RUNTIME = f"{__package__}."
_AXIS_ALIASES = frozenset(("axis", "keepdims"))  # generated functions resolve them before they call `dispatch`

PLAIN_TYPES: set[type] = {bool, int, float, str, bytes, type(None), type, slice, range}
"""Classes whose instances are never asked, `Tensor` among them."""


class Checks(Protocol):
    """What the `api` package does when classes take over calls: a module with these functions."""

    def put_checks(self, namespace: Mapping[str, object]) -> None: ...
    def find_functions(self, frame: FrameType) -> tuple[FunctionType, FunctionType] | None: ...
    def shadow_properties(self, cls: type) -> None: ...


_load_checks: Callable[[], Checks] | None = None
namespaces: list[Mapping[str, object]] = []
"""The modules' and classes' functions that classes may take over."""

_is_started = False


def set_checks(load: Callable[[], Checks]) -> None:
    """Set a function that returns the `Checks`. It is called when a program needs them first."""
    global _load_checks
    _load_checks = load


def add_functions(namespace: Mapping[str, object]) -> None:
    """Let classes take over the functions of a module or class.

    Args:
        namespace: Functions by name; other values are skipped.
    """
    namespaces.append(namespace)
    if _is_started and _load_checks is not None:
        _load_checks().put_checks(namespace)


def start() -> None:
    """Put checks before the functions that are written in Python. Does nothing if they are there."""
    global _is_started
    if not _is_started and _load_checks is not None:
        checks = _load_checks()
        _is_started = True
        for namespace in namespaces:
            checks.put_checks(namespace)


def disabled_torch_function(
    func: Callable[..., object], types: object, args: Sequence[object] = (), kwargs: Mapping[str, Any] | None = None
) -> object:
    """Call the function. As a class's `__torch_function__`, it means that the class takes over no calls."""
    return func(*args, **(kwargs or {}))


def register(cls: type) -> None:
    """Note a new subclass of Tensor, unless its `__torch_function__` is `disabled_torch_function`."""
    methods = (vars(base)["__torch_function__"] for base in cls.__mro__ if "__torch_function__" in vars(base))
    if _load_checks is None or next(methods, disabled_torch_function) is disabled_torch_function:
        PLAIN_TYPES.add(cls)
        return
    classes.add(cls)
    start()
    _load_checks().shadow_properties(cls)


class Disabled:
    """A context in which no argument takes over this thread's calls."""

    def __enter__(self) -> None:
        state = _local.state
        self._was_disabled = state.overriding_disabled
        state.overriding_disabled = True

    def __exit__(self, *_: object) -> None:
        _local.state.overriding_disabled = self._was_disabled


def is_enabled() -> bool:
    """Return True unless this thread is inside of `Disabled`."""
    return not _local.state.overriding_disabled


def defines_override(kind: type) -> bool:
    """Return True if instances of a class take over calls."""
    if kind in PLAIN_TYPES or kind in classes:
        return kind in classes
    method = getattr(kind, "__torch_function__", None)
    return method is not None and method is not disabled_torch_function


def collect(arguments: Iterable[object]) -> list[object]:
    """Return the arguments that take over calls, one of each class, in the order in which they are asked.

    That is the order of the arguments, but an instance of a subclass comes before those of its base classes.

    Args:
        arguments: The arguments of a call. The items of lists and tuples among them count, too.
    """
    if _local.state.overriding_disabled:
        return []
    overriding: list[object] = []
    for argument in arguments:
        items = argument if isinstance(argument, (list, tuple)) else (argument,)
        if PLAIN_TYPES.issuperset(map(type, items)):
            continue
        for item in items:
            kind = type(item)
            if kind in PLAIN_TYPES or not defines_override(kind) or any(type(other) is kind for other in overriding):
                continue
            index = next((i for i, other in enumerate(overriding) if issubclass(kind, type(other))), len(overriding))
            overriding.insert(index, item)
    return overriding


def handle(
    func: Callable[..., object], overriding: Sequence[Any], args: tuple[object, ...], kwargs: dict[str, Any]
) -> Any:
    """Return what the first of the overriding arguments returns for a call that is not NotImplemented.

    Args:
        func: The public function.
        overriding: Arguments from `collect`.
        args: The positional arguments of the call.
        kwargs: The keyword arguments.

    Raises:
        UnhandledFunction: All return NotImplemented. It is a `TypeError`.
    """
    types = tuple(map(type, overriding))
    for argument in overriding:
        result = argument.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    names = ", ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in types)
    raise UnhandledFunction(
        f"{getattr(func, '__qualname__', func)}: __torch_function__ returned NotImplemented for all types that define "
        f"it: {names}; handle this function there, or pass tensors"
    )


def intercept(operands: Iterable[object], outs: Iterable[object] = ()) -> Any:
    """Let operands that take over calls handle the call that `dispatch` is about to make for a generated function.

    Args:
        operands: The operands of the op.
        outs: The tensors to write.

    Returns:
        The result of their `__torch_function__`, or MISSING if the op is to run on the operands.
    """
    overriding = collect((*operands, *outs))
    if not overriding or _load_checks is None:
        return MISSING
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_RUNTIME):
        frame = frame.f_back
    functions = _load_checks().find_functions(frame)
    if functions is None:  # the runtime or a function of ours made the call itself
        return MISSING
    start()
    args, kwargs = call_arguments(functions[0], frame.f_locals)
    return handle(functions[1], overriding, args, kwargs)


@dataclass(frozen=True)
class ParameterNames:
    """The names of a function's parameters.

    Attributes:
        positional: Those that may be passed by position.
        rest: That of `*rest`, or the empty string.
        keyword: Those that are passed by keyword only.
        keywords: That of `**keywords`, or the empty string.
    """

    positional: tuple[str, ...]
    rest: str
    keyword: tuple[str, ...]
    keywords: str

    def all(self) -> list[str]:
        """Return the names of all parameters."""
        return [name for name in (*self.positional, self.rest, *self.keyword, self.keywords) if name]


def parameter_names(code: CodeType) -> ParameterNames:
    """Return the names of the parameters of a function with this code."""
    names = code.co_varnames
    end = code.co_argcount + code.co_kwonlyargcount
    rest = names[end] if code.co_flags & inspect.CO_VARARGS else ""
    keywords = names[end + bool(rest)] if code.co_flags & inspect.CO_VARKEYWORDS else ""
    return ParameterNames(names[: code.co_argcount], rest, names[code.co_argcount : end], keywords)


def call_arguments(
    function: FunctionType, values: Mapping[str, Any], *, has_run: bool = True
) -> tuple[tuple[object, ...], dict[str, Any]]:
    """Return positional and keyword arguments of a call, from the values of its function's parameters.

    Positional are the required ones, and those after them up to the first that has its default. Of the others, those
    that differ from their default are keyword arguments.

    Args:
        function: The function.
        values: The values by name.
        has_run: The function has begun: it has put a value of `axis` or `keepdims` into `dim` or `keepdim`.
    """
    names = parameter_names(function.__code__)
    defaults = function.__defaults__ or ()
    by_name = dict(zip(names.positional[len(names.positional) - len(defaults) :], defaults, strict=True))
    by_name.update(function.__kwdefaults__ or {})

    def has_default(name: str) -> bool:
        return name in by_name and values[name] is by_name[name]

    rest = values[names.rest] if names.rest else ()
    leading = names.positional
    if not rest:
        leading = tuple(itertools.takewhile(lambda name: not has_default(name), leading))
    others = [*names.positional[len(leading) :], *names.keyword]
    if has_run:
        others = [name for name in others if name not in _AXIS_ALIASES]
    kwargs = {name: values[name] for name in others if not has_default(name)}
    kwargs.update(values[names.keywords] if names.keywords else {})
    return (*(values[name] for name in leading), *rest), kwargs
