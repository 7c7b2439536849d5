"""From a kernel's text to a module that Triton can compile: its imports, the math functions it calls, itself.

Text is generic in dtype (pointers carry element types), so one module serves every instance of one op.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from ..backends.protocol import Instance

__all__ = ["Parameter", "functions", "module_text", "parameters", "parsing"]

# Held while Python parses text to a tree: in several threads at once, CPython 3.11 to 3.12 may raise SystemError
# ("AST constructor recursion depth mismatch"), because a count that belongs to one call is shared by all.
parsing = threading.RLock()

_HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel, as its text declares it."""

    name: str
    constexpr: bool


@cache
def _math() -> dict[str, str]:
    """The math functions' texts by name."""
    return _texts(resources.files("weftgrad.templates") / "triton" / "math")


def _texts(folder: Any) -> dict[str, str]:
    """The texts of a folder by file stem. An installer that compiles modules ahead leaves `__pycache__` beside them."""
    files = [f for f in folder.iterdir() if f.name.endswith(".py")]
    found = {f.name.removesuffix(".py"): f.read_text(encoding="utf-8") for f in files}
    return {name: text for name, text in sorted(found.items()) if text.startswith("# needs:")}


def _closure(names: Iterable[str]) -> list[str]:
    """`names` and all they need, in an order in which every function follows what it calls."""
    texts, done, path = _math(), {}, []  # type: ignore[var-annotated]

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path:
            raise ValueError(f"the math functions {' -> '.join([*path, name])} need each other")
        if name not in texts:
            raise ValueError(f"no math function is called {name!r}")
        path.append(name)
        head = texts[name].partition("\n")[0].removeprefix("# needs:")
        for other in head.split(","):
            if other.strip():
                visit(other.strip())
        path.pop()
        done[name] = None

    for name in sorted(names):
        visit(name)
    return list(done)


@cache
def _module_text(text: str, names: tuple[str, ...]) -> str:
    texts = _math()
    # Only names that have a file: most of the vocabulary is Triton's own.
    wanted = {n for n in names if n in texts} | {n for n in re.findall(r"\bwg_(\w+)", text) if n in texts}
    parts = [texts[name].partition("\n")[2].strip() for name in _closure(wanted)]
    return "\n\n\n".join([_HEAD, *parts, text.strip()]) + "\n"


def module_text(instance: Instance) -> str:
    """The module that holds the kernel of `instance`: the same for all its dtypes, shapes and schedules."""
    return _module_text(instance.text, instance.functions)


@cache
def functions(text: str) -> dict[str, Any]:
    """What a module's text defines, executed once a process. Its lines stay in `linecache`, where `triton.jit` reads
    them."""
    name = f"<weftgrad triton {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": name}
    exec(compile(text, name, "exec"), space)  # text that the generator made, or a trusted caller's template
    return space


@cache
def parameters(text: str, entry: str) -> tuple[Parameter, ...]:
    """The parameters of the kernel `entry` of a text, read without importing it."""
    with parsing:
        tree = ast.parse(text)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            return tuple(
                Parameter(a.arg, a.annotation is not None and "constexpr" in ast.unparse(a.annotation))
                for a in node.args.args
            )
    raise ValueError(f"no kernel {entry!r} in this text")
