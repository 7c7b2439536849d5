"""Checks for arguments that take over calls, put before the functions that are written in Python.

They are put there when a program first has such a class (`runtime.overriding.start`), into the functions themselves: a
function's code is replaced by code that looks at the arguments and calls the old code in a second function. So every
reference to the function has the check, also one from `from weftgrad import cat` before the class was defined, and
programs without such a class run the functions as they were written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, FunctionType

from .._generated import ops as generated
from ..runtime import overriding
from ..runtime.device import Device
from ..runtime.dtypes import DType
from ..runtime.tensor import Tensor

__all__ = ["find_functions", "is_overridable", "overridable_functions", "put_checks", "shadow_properties"]

_IGNORED_MODULES = (
    "amp", "autograd.grad_mode", "compiler", "creation", "execution", "nn.parameter", "random.generator", "runtime",
    "serialization", "tensor_methods.argument_checks", "tensor_methods.generated_methods", "tensor_methods.printing",
)  # fmt: skip
_IGNORED_NAMES = frozenset((
    "__hash__", "__init__", "as_subclass", "broadcast_shapes", "can_cast", "devices", "ensure_extra",
    "get_default_device", "is_tensor", "promote_types", "powers_of", "rand", "randint", "randn", "randperm",
    "tril_indices", "triu_indices",
))  # fmt: skip
_OVERRIDABLE_FACTORIES = ("empty_like", "full_like", "ones_like", "zeros_like")
_PACKAGE = __package__.rpartition(".")[0]

_NO_TENSOR = frozenset((
    "DType", "DTypeLike", "Device", "DeviceLike", "Dims", "Generator", "Literal", "MemoryFormat", "None", "Sequence",
    "Sizes", "bool", "float", "int", "list", "str", "tuple",
))  # fmt: skip
"""Names in annotations of arguments that are no tensors and have none."""

_FIRST_CALL = """write = "write"
        function = "public"
        write(function)
        return function(*args, **kwargs)"""
"""The body of a function before its first call. See `_replace_code` for the strings."""

_FILE = "<check of arguments, which warnings skip like importlib._bootstrap>"
"""The file of the code. `warnings.warn` does not count frames of such files, so that its `stacklevel` stays right."""

_originals: dict[FunctionType, FunctionType] = {}
"""The functions that have a check, and functions with their original code."""

overriding.PLAIN_TYPES.update((Device, DType))


def is_overridable(name: str, value: object) -> bool:
    """Return True if classes may take over calls of a function.

    Args:
        name: The function's name in its module or class.
        value: The function. For any other object the result is False.

    Returns:
        Python bool.

    Example:
        >>> from weftgrad.overrides import _checks
        >>> _checks.is_overridable("cat", wg.cat), _checks.is_overridable("zeros", wg.zeros)
        (True, False)
    """
    if not isinstance(value, FunctionType) or name in _IGNORED_NAMES:
        return False
    if name.startswith("_") and not name.startswith("__"):
        return False
    module = value.__module__.removeprefix(f"{_PACKAGE}.")
    is_ignored = any(module == ignored or module.startswith(f"{ignored}.") for ignored in _IGNORED_MODULES)
    return name in _OVERRIDABLE_FACTORIES or not is_ignored


def overridable_functions(namespace: Mapping[str, object]) -> dict[str, FunctionType]:
    """Return the functions of a namespace that classes may take over, by name.

    Args:
        namespace: The attributes of a module or class.

    Returns:
        Dictionary of functions.

    Example:
        >>> from weftgrad.overrides import _checks
        >>> list(_checks.overridable_functions({"cat": wg.cat, "pi": wg.pi}))
        ['cat']
    """
    return {name: value for name, value in namespace.items() if is_overridable(name, value)}  # type: ignore[misc]


def put_checks(namespace: Mapping[str, object]) -> None:
    """Put checks before the functions of a namespace that are written in Python.

    Generated functions need none: `dispatch` asks arguments of theirs.

    Args:
        namespace: Functions by name; other values are skipped.
    """
    for function in overridable_functions(namespace).values():
        if function not in _originals and function.__module__ != generated.__name__:
            _originals[function] = _copy(function)
            _replace_code(function, "*args, **kwargs", _FIRST_CALL)
            function.__wrapped__ = _originals[function]  # type: ignore[attr-defined]  # `inspect` reads that one


def _copy(function: FunctionType) -> FunctionType:
    """Return a second function with the same code."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
    copy.__qualname__, copy.__module__, copy.__doc__ = function.__qualname__, function.__module__, function.__doc__
    copy.__dict__.update(function.__dict__)  # `__wrapped__`, from which `inspect` reads the signature of a wrapper
    return copy


def _replace_code(function: FunctionType, parameters: str, body: str) -> None:
    """Replace a function's code by that of a function with these parameters and this body.

    Strings in the body stand for objects, because the code runs with the names of the function's own module: see
    `values`. Python refuses code with another number of free variables, so the new code names as many after its end.
    """
    code = function.__code__
    names = [f"free{i}" for i in range(len(code.co_freevars))]
    source = f"""
def make({", ".join(names)}):
    def check({parameters}):
        {body}
        {"; ".join(names)}
    return check
"""
    namespace: dict[str, object] = {}
    exec(compile(source, _FILE, "exec", dont_inherit=True), namespace)
    check: CodeType = namespace["make"](*names).__code__  # type: ignore[operator]
    values = {
        "plain": overriding.PLAIN_TYPES, "public": function, "original": _originals[function], "write": _write_check,
        "ask": _ask,
    }  # fmt: skip
    function.__code__ = check.replace(
        co_consts=tuple(values.get(value, value) if isinstance(value, str) else value for value in check.co_consts),
        co_name=code.co_name, co_qualname=code.co_qualname,
    )  # fmt: skip


def _write_check(function: FunctionType) -> None:
    """Replace a function's code by a check of its arguments, before its first call.

    A check has the function's own parameters, because packing arguments costs more than comparing their classes.
    """
    code = _originals[function].__code__
    names = overriding.parameter_names(code)
    parameters, arguments, conditions = [], [], []
    for index, name in enumerate(names.positional):
        parameters += [name, "/"] if index + 1 == code.co_posonlyargcount else [name]
        arguments.append(name)
    parameters += [f"*{names.rest}"] if names.rest else ["*"] if names.keyword else []
    arguments += [f"*{names.rest}"] if names.rest else []
    parameters += [*names.keyword, *([f"**{names.keywords}"] if names.keywords else [])]
    arguments += [*(f"{name}={name}" for name in names.keyword), *([f"**{names.keywords}"] if names.keywords else [])]
    annotations = function.__annotations__
    for name in (*names.positional, *names.keyword):
        if not _NO_TENSOR.issuperset(re.findall(r"[A-Za-z_]\w*", str(annotations.get(name, "self")))):
            conditions.append(f'{name}.__class__ in "plain"')
    conditions += [f"not {name}" for name in (names.rest, names.keywords) if name]
    body = f"""if {" and ".join(conditions) or "True"}:
            original = "original"
            return original({", ".join(arguments)})
        ask = "ask"
        return ask("public", locals())"""
    body = body.replace("locals()", f"dict({', '.join(f'{name}={name}' for name in names.all())})")
    _replace_code(function, ", ".join(parameters), body)


def _ask(public: FunctionType, values: dict[str, object]) -> object:
    """Let the arguments of a call take it over, or call the function."""
    original = _originals[public]
    args, kwargs = overriding.call_arguments(original, values, has_run=False)
    arguments = overriding.collect((*args, *kwargs.values()))
    return overriding.handle(public, arguments, args, kwargs) if arguments else original(*args, **kwargs)


def find_functions(frame: FrameType) -> tuple[FunctionType, FunctionType] | None:
    """Return the generated function that a frame runs, and the public function of its name.

    Args:
        frame: A frame.

    Returns:
        Two functions; None if the frame runs another function, or one that is not public.
    """
    name = frame.f_code.co_name
    function = frame.f_globals.get(name)
    if not isinstance(function, FunctionType) or function.__code__ is not frame.f_code:
        return None
    if frame.f_globals is not vars(generated):  # ops of a user's own specs
        return (function, function) if "_call" in frame.f_globals else None
    if name in generated.FUNCTIONS and generated.FUNCTIONS[name][1] == "hidden":
        return None
    namespaces = overriding.namespaces
    if name in generated.INPLACE:
        namespaces = [vars(Tensor), *namespaces]
    for namespace in namespaces:
        public = namespace.get(name)
        if isinstance(public, FunctionType):
            return function, public
    return None


def shadow_properties(cls: type) -> None:
    """Give a subclass of Tensor properties that ask its `__torch_function__`, before Tensor's properties of their name.

    Args:
        cls: The class. Properties that it or one of its base classes defines stay.
    """
    subclasses = cls.__mro__[: cls.__mro__.index(Tensor)]
    for name, value in vars(Tensor).items():
        if isinstance(value, property) and not any(name in vars(base) for base in subclasses):
            type.__setattr__(cls, name, _shadow(value))


def _shadow(shadowed: property) -> property:
    def ask(method: Callable[..., object], *args: object) -> object:
        arguments = overriding.collect(args)
        return overriding.handle(method, arguments, args, {}) if arguments else method(*args)

    def get(self: Tensor) -> object:
        return ask(shadowed.__get__, self)

    def set_value(self: Tensor, value: object) -> None:
        ask(shadowed.__set__, self, value)

    def delete(self: Tensor) -> None:
        ask(shadowed.__delete__, self)

    return property(
        get, set_value if shadowed.fset else None, delete if shadowed.fdel else None, shadowed.__doc__
    )  # fmt: skip
