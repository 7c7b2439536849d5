"""Public functions that are written in Python and call ops, such as `linear` and `dropout`: which ops they call."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

from ..runtime.records import OpRecord, registry
from .terminal import Style

__all__ = ["called_ops", "function_page", "public_functions"]

_ROOT = __package__.rpartition(".")[0]


@cache
def public_functions() -> dict[str, Callable[..., Any]]:
    """Return the public functions that no spec generates, by name: those of `nn.functional` first."""
    from .._generated import ops as generated

    functions: dict[str, Callable[..., Any]] = {}
    for module_name in ("nn.functional", "", "linalg", "special"):
        namespace = importlib.import_module(f"{_ROOT}.{module_name}".rstrip("."))
        for name in dir(namespace):
            value = getattr(namespace, name)
            is_public = inspect.isfunction(value) and not name.startswith("_")
            if is_public and name not in generated.FUNCTIONS and name not in generated.ALIASES:
                functions.setdefault(name, value)
    return functions


@cache
def called_ops(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the ops that a function's source calls, also through other Python functions of the package, in order.

    Operators of tensors (`x * y`) are not among them.
    """
    ops: dict[str, None] = {}
    visited: set[Any] = set()

    def visit(current: Callable[..., Any]) -> None:
        current = inspect.unwrap(current)
        if current in visited:
            return
        visited.add(current)
        tree = _syntax(current)
        names = {**current.__globals__, **_local_imports(tree, current)}
        for node in ast.walk(tree):
            value = _resolve(node, names)
            name = _op_name(value, node)
            if name:
                ops[name] = None
            elif inspect.isfunction(value) and _is_composite(value):
                visit(value)

    visit(function)
    return tuple(ops)


def _resolve(node: ast.AST, names: dict[str, Any]) -> Any:
    """Return the object of the package that a name or `module.name` stands for, or None."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module = names.get(node.value.id)
        return getattr(module, node.attr, None) if isinstance(module, ModuleType) else None
    return None


def _op_name(value: Any, node: ast.AST) -> str:
    """Return the op that an expression means: a record, a generated function, a name as text, or a method."""
    if isinstance(value, OpRecord):
        return value.name
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if node.value in _internal_names() else ""
    generated = _generated_names()
    if inspect.isfunction(value) and value.__module__.endswith("._generated.ops"):
        return value.__name__ if value.__name__ in registry else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in generated:
        return "" if isinstance(node.func.value, ast.Name) and node.func.value.id[:1].isupper() else node.func.attr
    return ""


@cache
def _generated_names() -> frozenset[str]:
    """Return the names of ops that are methods of tensors, without views."""
    from .._generated import ops as generated

    names = (name for name, (_, _, is_method) in generated.FUNCTIONS.items() if is_method and name in registry)
    return frozenset(name for name in names if registry[name].kind != "view")


@cache
def _internal_names() -> frozenset[str]:
    """Return the names of ops that are not public, which as text can only mean the op (`registry["uniform_fill"]`)."""
    from .._generated import ops as generated

    public = {name for name, (_, namespace, _) in generated.FUNCTIONS.items() if namespace != "hidden"}
    return frozenset(record.name for record in registry) - public - set(generated.ALIASES) - set(public_functions())


def _is_composite(function: Callable[..., Any]) -> bool:
    return function.__module__.startswith(f"{_ROOT}.") and not function.__module__.startswith(
        (f"{_ROOT}.runtime.", f"{_ROOT}._generated.")
    )


def _syntax(function: Callable[..., Any]) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # no source, as for functions in C
        return ast.Module([], [])


def _local_imports(tree: ast.AST, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the names that a function imports from the package in its body."""
    names: dict[str, Any] = {}
    package = str(function.__globals__.get("__package__") or "")
    for node in ast.walk(tree):
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


def function_page(name: str, function: Callable[..., Any], style: Style) -> Iterator[str]:
    """Yield the lines of a Python function's page: signature, summary, where it is, and the ops that it calls."""
    source = inspect.unwrap(function)
    module = source.__module__.removeprefix(f"{_ROOT}.")
    try:
        line = f", line {inspect.getsourcelines(source)[1]}"
    except OSError:
        line = ""
    ops = called_ops(function)
    head = f"{name}{inspect.signature(function)}".replace("'", "")
    yield from (style("heading", line) for line in textwrap.wrap(head, 118, subsequent_indent="    "))
    yield (inspect.getdoc(function) or "").partition("\n")[0]
    yield ""
    yield f"a function in Python: {_ROOT}.{module}.{source.__name__}{line}"
    if not ops:
        yield "it calls no op by name"
        return
    yield from textwrap.wrap(f"calls the ops: {', '.join(ops)}", 118, subsequent_indent="    ")
    yield ""
    yield from (f"weftgrad show {op}" for op in ops[:6])
