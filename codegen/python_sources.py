"""Read Python modules by `ast`: functions with their annotations, classes, imports and tables of methods.

While weftgrad is being built it cannot be imported, so the generated stubs (`tensor_stub.py`) take the types of
functions that are written in Python from their sources.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Function", "Module", "Sources", "StubError"]

PACKAGE = "weftgrad"


class StubError(Exception):
    """The type of a function or method cannot be read from the sources."""


@dataclass(frozen=True)
class Module:
    """A parsed module.

    Attributes:
        name: Dotted name, such as `weftgrad.shape.joining`.
        tree: Its syntax tree.
        functions: Name -> definitions: one, or the overloads in order and then the implementation.
        classes: Name -> definition.
        values: Name -> the expression that was last assigned to it.
        imports: Local name -> (module, name in that module); the second is "" for an imported module.
    """

    name: str
    tree: ast.Module
    functions: dict[str, list[ast.FunctionDef]] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    values: dict[str, ast.expr] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)

    def absolute(self, node: ast.ImportFrom, is_package: bool = False) -> str:
        """Return the absolute name of the module that a `from … import` names."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parents = parts[: len(parts) - node.level + is_package]
        return ".".join([*parents, node.module] if node.module else parents)


@dataclass(frozen=True)
class Function:
    """A function with the module that its annotations refer to."""

    module: Module
    definitions: Sequence[ast.FunctionDef]

    def overloads(self) -> list[ast.FunctionDef]:
        """Return the overloads, or the only definition."""
        return list(self.definitions[:-1] or self.definitions)


class Sources:
    """The modules of the package, parsed when they are first asked for.

    Args:
        folder: The package's folder: `api` of a checkout, or the installed `weftgrad`.
        runtime: The folder of `weftgrad.runtime`.
        generated: Texts of generated modules by dotted name, which are read instead of files.
    """

    def __init__(self, folder: Path, runtime: Path, generated: dict[str, str]):
        self._folder = folder
        self._runtime = runtime
        self._generated = generated
        self._modules: dict[str, Module] = {}

    @classmethod
    def beside(cls, codegen: Path, generated: dict[str, str]) -> Sources:
        """Return the sources next to the folder of this generator, in a checkout or an installed package."""
        checkout = codegen.parent / "api"
        return cls(checkout if checkout.is_dir() else codegen.parent, codegen.parent / "runtime", generated)

    def module(self, name: str) -> Module:
        """Return a module of the package by its dotted name. Raises `StubError` if there is none."""
        if name not in self._modules:
            path = self._path(name)
            text = self._generated.get(name) or path.read_text(encoding="utf-8")
            module = Module(name, ast.parse(text))
            for statement in _top_level(module.tree.body):
                _collect(module, statement, path.name == "__init__.py")
            self._modules[name] = module
        return self._modules[name]

    def _path(self, name: str) -> Path:
        root, *parts = name.split(".")
        if root != PACKAGE:
            raise StubError(f"{name} is no module of {PACKAGE}")
        if parts[:1] == ["runtime"]:
            candidates = [self._runtime.joinpath(*parts[1:])]
        else:
            candidates = [self._folder.joinpath(*parts), self._folder.joinpath("torch_modules", *parts)]
        for path in candidates:
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file() or name in self._generated:
                    return file
        raise StubError(f"there is no module {name}")

    def function(self, module: Module, name: str) -> Function:
        """Return the function that `name` means in `module`, through imports and assignments such as `a = b`.

        Raises:
            StubError: It is not a function with a definition.
        """
        if name in module.functions:
            return Function(module, module.functions[name])
        value = module.values.get(name)
        if isinstance(value, ast.Name):
            return self.function(module, value.id)
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
            return self.function(self.module(self.imported_module(module, value.value.id)), value.attr)
        if name in module.imports:
            source, original = module.imports[name]
            return self.function(self.module(source), original)
        raise StubError(f"{module.name}.{name} has no definition with annotations")

    def imported_module(self, module: Module, name: str) -> str:
        """Return the dotted name of the module that was imported as `name`."""
        source, original = module.imports[name]
        return f"{source}.{original}" if original else source

    def exported_names(self, module: Module) -> list[str]:
        """Return the names in `__all__`, which must be a list of literals."""
        return names(module, module.values["__all__"])


def names(module: Module, node: ast.expr) -> list[str]:
    """Return the strings of a list or tuple, or of a variable that holds one."""
    if isinstance(node, ast.Name):
        return names(module, module.values[node.id])
    try:
        return [str(name) for name in ast.literal_eval(node)]
    except ValueError:
        raise StubError(f"{module.name}: {ast.unparse(node)} is no list of names") from None


def _top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, and those for type checkers (`if TYPE_CHECKING:`)."""
    for statement in body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from statement.body
        else:
            yield statement


def _collect(module: Module, statement: ast.stmt, is_package: bool) -> None:
    if isinstance(statement, ast.FunctionDef):
        module.functions.setdefault(statement.name, []).append(statement)
    elif isinstance(statement, ast.ClassDef):
        module.classes[statement.name] = statement
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                module.values[target.id] = statement.value
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        module.values[statement.target.id] = statement.value
    elif isinstance(statement, ast.ImportFrom):
        source = module.absolute(statement, is_package)
        for alias in statement.names:
            module.imports[alias.asname or alias.name] = (source, alias.name)
    elif isinstance(statement, ast.Import):
        for alias in statement.names:
            module.imports[alias.asname or alias.name.partition(".")[0]] = (alias.name, "")
