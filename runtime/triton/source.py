"""From a kernel's text to a module that Triton can compile: imports, the math functions that it calls, the kernel.

The text is generic in dtype (pointers carry element types), so two modules serve all instances of an op: one for those
that read and write floats of half precision only, and one for all others. The first one takes the math functions of
`NAME.half.py` where there are some. They compute in float32 with an error that rounding to half precision hides.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from ..backends.protocol import Instance

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["Parameter", "functions", "module_text", "parameters", "parsing"]

# Held while Python parses source to an AST. CPython 3.11 and 3.12 may raise SystemError ("AST constructor recursion
# depth mismatch") if several threads parse at once, because they share a recursion counter.
parsing = threading.RLock()

_HALF_ENDING = ".half"
_HALVES = frozenset(("float16", "bfloat16"))
_FLOATS = _HALVES | {"float32", "float64"}
_HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel as declared in its text."""

    name: str
    constexpr: bool


@cache
def _math() -> dict[str, str]:
    """Return the texts of the math functions by name."""
    return _texts(resources.files("weftgrad.templates") / "triton" / "math")


def _texts(folder: Traversable) -> dict[str, str]:
    """Return a folder's texts by file stem. Other entries, such as an installer's `__pycache__`, are skipped."""
    files = [f for f in folder.iterdir() if f.name.endswith(".py")]
    texts = {f.name.removesuffix(".py"): f.read_text(encoding="utf-8") for f in files}
    return {name: text for name, text in sorted(texts.items()) if text.startswith("# needs:")}


def _closure(names: Iterable[str], texts: Mapping[str, str]) -> list[str]:
    """Return `names` with all their dependencies, ordered so that every function follows those it calls."""
    ordered: dict[str, None] = {}
    path: list[str] = []

    def visit(name: str) -> None:
        if name in ordered:
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
        ordered[name] = None

    for name in sorted(names):
        visit(name)
    return list(ordered)


@cache
def _math_for(is_half: bool) -> dict[str, str]:
    """Return the texts of the math functions by name, those for half precision if there are some and `is_half`."""
    texts = {name: text for name, text in _math().items() if not name.endswith(_HALF_ENDING)}
    if is_half:
        texts |= {n.removesuffix(_HALF_ENDING): text for n, text in _math().items() if n.endswith(_HALF_ENDING)}
    return texts


@cache
def _module_text(text: str, names: tuple[str, ...], is_half: bool) -> str:
    texts = _math_for(is_half)
    # Only names that have a file: most functions are Triton's own.
    needed = {n for n in names if n in texts} | {n for n in re.findall(r"\bwg_(\w+)", text) if n in texts}
    parts = [texts[name].partition("\n")[2].strip() for name in _closure(needed, texts)]
    return "\n\n\n".join([_HEAD, *parts, text.strip()]) + "\n"


def module_text(instance: Instance) -> str:
    """Return the module text with an instance's kernel, which depends on dtypes by `_is_half` only."""
    return _module_text(instance.text, instance.functions, _is_half(instance))


def _is_half(instance: Instance) -> bool:
    """Return True if all floats that a kernel reads and writes have half precision, and it computes in float32.

    A planner may say so with the define HALF_MATH where only values per row have float32.
    """
    if dict(instance.defines).get("HALF_MATH"):
        return True
    floats = {slot.dtype for slot in instance.slots if slot.dtype in _FLOATS}
    return instance.element == "float" and bool(floats) and floats <= _HALVES


@cache
def functions(text: str) -> dict[str, object]:
    """Execute a module's text, once per process, and return its globals.

    The text stays in `linecache`, from which `triton.jit` reads source lines.
    """
    name = f"<weftgrad triton {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, object] = {"__name__": name}
    exec(compile(text, name, "exec"), space)  # text from the generator, or from a trusted caller's template
    return space


@cache
def parameters(text: str, entry: str) -> tuple[Parameter, ...]:
    """Return the parameters of the kernel `entry` in a text, without executing the text."""
    with parsing:
        tree = ast.parse(text)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            return tuple(
                Parameter(a.arg, a.annotation is not None and "constexpr" in ast.unparse(a.annotation))
                for a in node.args.args
            )
    raise ValueError(f"no kernel {entry!r} in this text")
