"""Check the import graph of the package: no cycles, and a reason for every import inside a function.

Sources are parsed, not imported. An import inside a function is an edge like any other. So is a call of
`import_module(f".x.{name}")` or of `import_lazily`, which may import each module of `x`, except where the `__getattr__`
of a package imports its submodules at their first use. Imports for type checkers only (`if TYPE_CHECKING:`) are no
edges, and that `import a.b.c` runs `a/__init__.py` first is none either. Generated modules are not part of the graph.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

import pytest
from test_structure import Module, called_name, is_for_type_checkers, modules

EXTENSIONS = ("weftgrad.runtime._native",)  # written in C
OPTIONAL = (
    "pyopencl", "triton", "cuda", "matplotlib", "ml_dtypes", "onnx", "onnxruntime", "tensorboardX", "tqdm", "rich",
    "torch", "cupy", "jax", "tinygrad", "scipy",
)  # fmt: skip
LAYERS_WITH_REASONS = ("runtime", "codegen", "bench")
REASON = re.compile(r"# lazy: \w.*")


@dataclass(frozen=True)
class ImportStatement:
    """One import of one name.

    Attributes:
        module: The importing module.
        line: Line of the statement.
        name: Absolute dotted name; `from a import b` gives a.b. `a.*` stands for all modules of `a`.
        is_lazy: True inside a function.
        reason: True if a comment gives the reason of a lazy import.
    """

    module: Module
    line: int
    name: str
    is_lazy: bool = False
    reason: bool = False

    def __str__(self) -> str:
        return f"{self.module.path}:{self.line} imports {self.name}{' in a function' if self.is_lazy else ''}"


def dotted_name(module: Module) -> str:
    stem = PurePosixPath(module.path).stem
    return ".".join(module.package if stem == "__init__" else [*module.package, stem])


def parse_imports(module: Module, source: str) -> Iterator[ImportStatement]:
    """Yield every import that runs, also those inside functions and by `import_module`."""
    lines = source.splitlines()

    def absolute(level: int, name: str) -> str:
        if not level:
            return name
        parents = module.package[: len(module.package) - level + 1]
        return ".".join([*parents, name] if name else parents)

    def visit_all(statements: Iterable[ast.AST], is_lazy: bool) -> Iterator[ImportStatement]:
        has_block_reason = False
        previous_is_import = False
        for node in statements:
            if isinstance(node, ast.Import | ast.ImportFrom):
                has_comment = bool(REASON.fullmatch(lines[node.lineno - 2].strip()))
                has_block_reason = has_comment or (has_block_reason and previous_is_import)
                own_lines = lines[node.lineno - 1 : node.end_lineno]
                reason = has_block_reason or any(REASON.search(line) for line in own_lines)
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                else:
                    base = absolute(node.level, node.module or "")
                    names = [base if alias.name == "*" else f"{base}.{alias.name}" for alias in node.names]
                for name in names:
                    yield ImportStatement(module, node.lineno, name, is_lazy, reason)
                previous_is_import = True
                continue
            previous_is_import = False
            yield from visit(node, is_lazy)

    def visit(node: ast.AST, is_lazy: bool) -> Iterator[ImportStatement]:
        if isinstance(node, ast.If) and is_for_type_checkers(node):
            yield from visit_all(node.orelse, is_lazy)
            return
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__" and module.path.endswith("/__init__.py"):
            return
        if isinstance(node, ast.Call) and called_name(node).lstrip("_") in ("import_module", "import_lazily"):
            pattern = imported_pattern(node.args[0])
            level = len(pattern) - len(pattern.lstrip("."))
            # Its second argument, `__package__` or the `__name__` of an `__init__.py`, is the package.
            yield ImportStatement(module, node.lineno, absolute(level, pattern.lstrip(".")), is_lazy, True)
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for _, value in ast.iter_fields(node):
            if isinstance(value, list):
                yield from visit_all([v for v in value if isinstance(v, ast.AST)], is_lazy or is_function)
            elif isinstance(value, ast.AST):
                yield from visit(value, is_lazy or is_function)

    yield from visit(ast.parse(source, filename=module.path), False)


def imported_pattern(argument: ast.expr) -> str:
    """Return the name that `import_module` is called with; a part that is computed becomes `*`."""
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    if isinstance(argument, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in argument.values)
    return "*"  # an absolute name, such as one that a user gives


def targets(name: str, known_names: frozenset[str]) -> Iterator[str]:
    """Yield the modules of the package that an import of `name` needs."""
    if "*" in name:
        expression = re.compile(re.escape(name).replace(r"\*", r"(?!__)\w+"))
        yield from (known for known in known_names if name != "*" and expression.fullmatch(known))
        return
    for candidate in (name, name.rpartition(".")[0]):  # a module, or an attribute of a module
        if candidate in known_names:
            yield candidate
            return


@cache
def statements() -> tuple[ImportStatement, ...]:
    sources = ((m, m.file.read_text(encoding="utf-8")) for m in modules() if not m.generated)
    return tuple(statement for module, source in sources for statement in parse_imports(module, source))


@cache
def graph() -> dict[str, dict[str, list[ImportStatement]]]:
    """Return the edges of the graph: importing module, imported module, the statements."""
    edges: dict[str, dict[str, list[ImportStatement]]] = {dotted_name(m): {} for m in modules() if not m.generated}
    known_names = frozenset(edges)
    for statement in statements():
        source = dotted_name(statement.module)
        if statement.name in EXTENSIONS:
            continue
        for target in targets(statement.name, known_names):
            if target != source:
                edges[source].setdefault(target, []).append(statement)
    return edges


def components(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan's algorithm, without recursion)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    result: list[list[str]] = []
    for root in sorted(edges):
        if root in number:
            continue
        pending: list[tuple[str, Iterator[str]]] = []
        unvisited: str | None = root
        while unvisited is not None or pending:
            if unvisited is not None:
                number[unvisited] = lowest[unvisited] = len(number)
                stack.append(unvisited)
                on_stack.add(unvisited)
                pending.append((unvisited, iter(sorted(edges[unvisited]))))
                unvisited = None
            node, successors = pending[-1]
            for successor in successors:
                if successor not in number:
                    unvisited = successor
                    break
                if successor in on_stack:
                    lowest[node] = min(lowest[node], number[successor])
            if unvisited is not None:
                continue
            pending.pop()
            if pending:
                parent = pending[-1][0]
                lowest[parent] = min(lowest[parent], lowest[node])
            if lowest[node] == number[node]:
                members = []
                while not members or members[-1] != node:
                    members.append(stack.pop())
                    on_stack.discard(members[-1])
                if len(members) > 1:
                    result.append(sorted(members))
    return result


def shortest_cycle(edges: dict[str, set[str]], members: list[str]) -> list[str]:
    """Return the nodes of a shortest cycle inside a component, with the first node repeated at the end."""
    best: list[str] = []
    for start in members:
        predecessor: dict[str, str] = {}
        frontier = [start]
        while frontier and start not in predecessor:
            reached = []
            for node in frontier:
                for successor in sorted(edges[node] & set(members)):
                    if successor not in predecessor:
                        predecessor[successor] = node
                        reached.append(successor)
            frontier = reached
        path = [start, predecessor[start]]
        while path[-1] != start:
            path.append(predecessor[path[-1]])
        if not best or len(path) < len(best):
            best = path[::-1]
    return best


def describe(members: list[str], edges: dict[str, set[str]]) -> str:
    """Return a message that names a component's modules and the statements of one shortest cycle."""
    cycle = shortest_cycle(edges, members)
    lines = [f"{len(members)} modules import each other: {', '.join(members)}. A shortest cycle:"]
    lines += [f"    {graph()[a][b][0]}" for a, b in itertools.pairwise(cycle)]
    return "\n".join(lines)


def test_no_import_cycles():
    edges = {source: set(imported) for source, imported in graph().items()}
    assert len(edges) > 300, "the graph has lost its modules"
    cycles = [describe(members, edges) for members in components(edges)]
    assert not cycles, "\n".join(cycles)


def test_lazy_imports_have_reasons():
    unexplained = [
        str(s)
        for s in statements()
        if s.is_lazy and not s.reason and s.module.layer in LAYERS_WITH_REASONS and s.name.split(".")[0] not in OPTIONAL
    ]
    assert not unexplained, "give the reason, as in `# lazy: start-up`:\n" + "\n".join(unexplained)


# --- The tools themselves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from . import b", [("weftgrad.runtime.b", False, False)]),
        ("from .b import c, d", [("weftgrad.runtime.b.c", False, False), ("weftgrad.runtime.b.d", False, False)]),
        ("def f():\n from .. import nn", [("weftgrad.nn", True, False)]),
        ("def f():\n from . import b  # lazy: start-up", [("weftgrad.runtime.b", True, True)]),
        ("def f():\n from . import b  # lazy:", [("weftgrad.runtime.b", True, False)]),
        (
            "def f():\n # lazy: start-up\n from . import b\n import c\n x = 1\n import d",
            [("weftgrad.runtime.b", True, True), ("c", True, True), ("d", True, False)],
        ),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n import b", [("typing.TYPE_CHECKING", False, False)]),
        ("f = lambda: import_module(f'.kinds.{name}', __package__)", [("weftgrad.runtime.kinds.*", True, True)]),
        ("import_module(name)", [("*", False, True)]),
        ("import_lazily(f'.kinds.{name}', __package__)", [("weftgrad.runtime.kinds.*", False, True)]),
    ],
)
def test_imports_are_parsed(text, expected):
    module = Module("runtime", "runtime/a.py", PurePosixPath("a.py"))
    assert [(s.name, s.is_lazy, s.reason) for s in parse_imports(module, text)] == expected


def test_targets_are_resolved():
    known_names = frozenset({"w", "w.a", "w.a.b", "w.a.c", "w.a.c.d"})
    assert list(targets("w.a.b.function", known_names)) == ["w.a.b"]
    assert list(targets("w.generated.ops", known_names)) == []
    assert sorted(targets("w.a.*", known_names)) == ["w.a.b", "w.a.c"]
    assert list(targets("numpy.linalg", known_names)) == []
    assert list(targets("*", known_names)) == []


def test_components_are_found():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": {"f", "d"}, "f": {"d"}, "g": {"a", "f"}}
    assert sorted(components(edges)) == [["b", "c"], ["d", "e", "f"]]
    assert shortest_cycle(edges, ["d", "e", "f"]) in (["d", "e", "d"], ["e", "d", "e"])
    assert components({"a": {"b"}, "b": set()}) == []
