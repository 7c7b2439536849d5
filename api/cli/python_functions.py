"""Find the ops that a public function written in Python calls, such as `linear` or `dropout`, for `weftgrad show`.

The functions are not run: the ops come from their source, by `ast`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import ModuleType

from .._generated import ops as generated
from ..runtime.records import OpRecord, registry
from .terminal import Style

__all__ = ["called_ops", "function_page", "public_functions", "signature_text"]

_ROOT = __package__.rpartition(".")[0]
_WIDTH = 118  # columns of a page
_QUOTED_ANNOTATION = r"(?<=: |> )'([^']*)'"
_MAX_HINTS = 6  # ops for which a page ends with a `weftgrad show OP` line


@cache
def public_functions() -> dict[str, Callable[..., object]]:
    """Return the public functions that no spec generates, by name.

    If several namespaces have a name, the function of `nn.functional` counts.
    """
    functions: dict[str, Callable[..., object]] = {}
    for module_name in ("nn.functional", "", "linalg", "special"):
        namespace = importlib.import_module(f"{_ROOT}.{module_name}".rstrip("."))
        for name in dir(namespace):
            value = getattr(namespace, name)
            is_public = inspect.isfunction(value) and not name.startswith("_")
            if is_public and name not in generated.FUNCTIONS and name not in generated.ALIASES:
                functions.setdefault(name, value)
    return functions


@cache
def called_ops(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the ops that a function's source calls, directly or through other Python functions of the package.

    Operators of tensors (`x * y`) do not count: the source does not show the operands' types.
    """
    ops: dict[str, None] = {}
    visited: set[Callable[..., object]] = set()

    def visit(current: Callable[..., object]) -> None:
        current = inspect.unwrap(current)
        if current in visited:
            return
        visited.add(current)
        for reference in _references(current):
            if isinstance(reference, str):
                ops[reference] = None
            else:
                visit(reference)

    visit(function)
    return tuple(ops)


@cache
def _references(function: Callable[..., object]) -> tuple[str | Callable[..., object], ...]:
    """Return what a function's source refers to, in this order: names of ops, and functions of the package.

    Cached, because most functions are reached from many others, and parsing is slow.
    """
    tree = _parse_source(function)
    nodes = list(ast.walk(tree))
    names = {**function.__globals__, **_local_imports(nodes, function)}
    references: dict[str | Callable[..., object], None] = {}
    for node in nodes:
        value = _resolve(node, names)
        name = _op_name(value, node)
        if name:
            references[name] = None
        elif inspect.isfunction(value) and _is_written_in_api(value):
            references[value] = None
    return tuple(references)


def _resolve(node: ast.AST, names: Mapping[str, object]) -> object:
    """Return the object that a name or `module.name` refers to, or None for any other expression."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module = names.get(node.value.id)
        return getattr(module, node.attr, None) if isinstance(module, ModuleType) else None
    return None


def _op_name(value: object, node: ast.AST) -> str:
    """Return the name of the op that an expression refers to, or "".

    An op is written as a record, a function of `_generated.ops`, a string (`registry["uniform_fill"]`) or a method.
    """
    if isinstance(value, OpRecord):
        return value.name
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if node.value in _internal_ops() else ""
    if inspect.isfunction(value) and value.__module__.endswith("._generated.ops"):
        return value.__name__ if value.__name__ in registry else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _method_ops():
        # `F.gelu(x)` and `Class.name(x)` are no methods of tensors; `visit` meets their function as `module.name`.
        owner = node.func.value
        return "" if isinstance(owner, ast.Name) and owner.id[:1].isupper() else node.func.attr
    return ""


@cache
def _method_ops() -> frozenset[str]:
    """Return the names of ops that are methods of tensors, without views."""
    names = (name for name, (_, _, is_method) in generated.FUNCTIONS.items() if is_method and name in registry)
    return frozenset(name for name in names if registry[name].kind != "view")


@cache
def _internal_ops() -> frozenset[str]:
    """Return the names of ops that are not public.

    A string constant with such a name means the op. A public name, such as "mean", can be any other argument.
    """
    public = {name for name, (_, namespace, _) in generated.FUNCTIONS.items() if namespace != "hidden"}
    return frozenset(record.name for record in registry) - public - set(generated.ALIASES) - set(public_functions())


def _is_written_in_api(function: Callable[..., object]) -> bool:
    """Return True for a function of the package outside the runtime and the generated modules."""
    return function.__module__.startswith(f"{_ROOT}.") and not function.__module__.startswith(
        (f"{_ROOT}.runtime.", f"{_ROOT}._generated.")
    )


def _parse_source(function: Callable[..., object]) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # no source, as for functions in C
        return ast.Module([], [])


def _local_imports(nodes: Iterable[ast.AST], function: Callable[..., object]) -> dict[str, object]:
    """Return the objects that relative imports among the nodes of a function's body bind, by name."""
    names: dict[str, object] = {}
    package = str(function.__globals__.get("__package__") or "")
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                module = importlib.import_module(base)
                if not hasattr(module, alias.name):
                    module_name = f"{base}.{alias.name}"
                    names[alias.asname or alias.name] = importlib.import_module(module_name)
                else:
                    names[alias.asname or alias.name] = getattr(module, alias.name)
    return names


def signature_text(name: str, function: Callable[..., object]) -> str:
    """Return a function's signature, its annotations without the quotes that they have as strings."""
    return name + re.sub(_QUOTED_ANNOTATION, r"\1", str(inspect.signature(function)))


def function_page(name: str, function: Callable[..., object], style: Style) -> Iterator[str]:
    """Yield the lines that `weftgrad show` prints for a Python function.

    They are its signature, summary, module and line, and the ops that it calls.
    """
    source = inspect.unwrap(function)
    module = source.__module__.removeprefix(f"{_ROOT}.")
    try:
        line_number = f", line {inspect.getsourcelines(source)[1]}"
    except OSError:  # the source file is not installed
        line_number = ""
    ops = called_ops(function)
    head = signature_text(name, function)
    yield from (style("heading", line) for line in textwrap.wrap(head, _WIDTH, subsequent_indent="    "))
    yield (inspect.getdoc(function) or "").partition("\n")[0]
    yield ""
    yield f"a function in Python: {_ROOT}.{module}.{source.__name__}{line_number}"
    if not ops:
        yield "it calls no op directly"
        return
    yield from textwrap.wrap(f"calls the ops: {', '.join(ops)}", _WIDTH, subsequent_indent="    ")
    yield ""
    yield from (f"weftgrad show {op}" for op in ops[:_MAX_HINTS])
