"""The house keeps its order: who imports whom, what is packed, how long a module is, what `import weftgrad` costs.

The sources are read, not imported. They are looked for in the folder that WEFTGRAD_CHECKOUT names, then beside this
folder, and else in the installed package, which has the same modules but no pyproject.toml.
"""

import ast
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

ROOMS = ("templates", "codegen", "runtime", "api", "bench")
"""In the order of the arrows: a room imports itself and what stands to its left."""

MAX_LINES = 500
LONG_MODULES: dict[str, str] = {}
"""Modules longer than MAX_LINES (path from the root: reason). One that became shorter has to leave the list."""


@dataclass(frozen=True)
class Use:
    """Where a distribution that is not ours may be imported: patterns of paths, and whether only inside functions."""

    where: tuple[str, ...]
    lazy: bool = False


FOREIGN = {
    # The build environment has jinja2 and yaml, nothing else: codegen has to import without NumPy.
    "jinja2": Use(("codegen/**", "bench/page.py"), lazy=True),
    "yaml": Use(("codegen/**",)),
    "numpy": Use(("runtime/**", "api/**", "bench/**")),
    "tqdm": Use(("runtime/backends/cpu/kernels.py",), lazy=True),
    "setuptools": Use(("codegen/build_backend.py",)),
    # A backend is one file; nothing else knows its driver.
    "pyopencl": Use(("runtime/backends/opencl_devices.py",)),
    "triton": Use(tuple(f"runtime/triton/{name}.py" for name in ("builder", "compile", "interpret", "language"))),
    "cuda": Use(("runtime/backends/*.py",)),
    # Never required.
    "matplotlib": Use(("bench/**",), lazy=True),
    "torch": Use(("bench/**",), lazy=True),
    "cupy": Use(("bench/**",), lazy=True),
    "jax": Use(("bench/**",), lazy=True),
    "tinygrad": Use(("bench/**",), lazy=True),
    # References of specs, resolved when a test of an op asks for them.
    "scipy": Use(("api/testing.py", "api/testing/**", "bench/**"), lazy=True),
}


# --- Finding and reading the sources ----------------------------------------------------------------------------------


@cache
def checkout() -> Path | None:
    named = os.environ.get("WEFTGRAD_CHECKOUT")
    candidate = Path(named) if named else Path(__file__).resolve().parent.parent
    found = (candidate / "pyproject.toml").is_file() and (candidate / "codegen").is_dir()
    assert found or not named, f"WEFTGRAD_CHECKOUT names {candidate}, which is no checkout of weftgrad"
    return candidate if found else None


@cache
def rooms() -> dict[str, Path]:
    root = checkout()
    if root:
        return {room: root / room for room in ROOMS}
    spec = importlib.util.find_spec("weftgrad")
    assert spec
    assert spec.submodule_search_locations
    package = Path(next(iter(spec.submodule_search_locations)))
    return {room: package if room == "api" else package / room for room in ROOMS}


def needs_checkout() -> Path:
    root = checkout()
    if root is None:
        pytest.skip("needs the checkout: set WEFTGRAD_CHECKOUT")
    return root


@dataclass(frozen=True)
class Module:
    room: str
    path: str  # from the root of a checkout, also when read from an installed package
    file: Path

    @property
    def package(self) -> list[str]:
        """The package whose names a relative import of one dot reaches."""
        folders = list(PurePosixPath(self.path).parts[1:-1])
        return (["weftgrad"] if self.room == "api" else ["weftgrad", self.room]) + folders

    @property
    def generated(self) -> bool:
        return self.path.startswith("api/_generated/")


@cache
def modules() -> tuple[Module, ...]:
    found = []
    for room, folder in rooms().items():
        for file in sorted(folder.rglob("*.py")):
            inside = file.relative_to(folder)
            # An installed package holds the other rooms inside api's folder.
            if "__pycache__" in inside.parts or (room == "api" and inside.parts[0] in ROOMS):
                continue
            if inside.parts[:2] == ("_generated", "kernels") or (room == "templates" and len(inside.parts) > 1):
                continue  # text of kernels
            found.append(Module(room, f"{room}/{inside.as_posix()}", file))
    assert found
    return tuple(found)


@dataclass(frozen=True)
class Import:
    module: Module
    line: int
    name: str  # absolute and dotted; `from a import b` gives a.b
    lazy: bool
    level: int

    @property
    def room(self) -> str | None:
        """The room it reaches, or None for what is not ours."""
        parts = self.name.split(".")
        if parts[0] != "weftgrad":
            return parts[0] if parts[0] in ROOMS else None
        return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "api"

    def __str__(self) -> str:
        return f"{self.module.path}:{self.line} imports {self.name}"


class _Imports(ast.NodeVisitor):
    def __init__(self, module: Module) -> None:
        self.module = module
        self.found: list[Import] = []
        self.lazily = 0

    def add(self, node: ast.AST, name: str, level: int = 0) -> None:
        self.found.append(Import(self.module, node.lineno, name, self.lazily > 0, level))

    def visit_deferred(self, node: ast.AST) -> None:
        self.lazily += 1
        self.generic_visit(node)
        self.lazily -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_deferred

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            self.visit_deferred(node)
        else:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            package = self.module.package
            kept = package[: len(package) - node.level + 1]
            base = ".".join([*kept, base] if base else kept)
        for alias in node.names:
            name = base if alias.name == "*" else f"{base}.{alias.name}"
            self.add(node, name.lstrip("."), node.level)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
            name = str(node.args[0].value)
            dots = len(name) - len(name.lstrip("."))
            package = self.module.package
            self.add(node, ".".join([*package[: len(package) - dots + 1], name.lstrip(".")]) if dots else name, dots)
        self.generic_visit(node)


@cache
def imports() -> tuple[Import, ...]:
    found: list[Import] = []
    for module in modules():
        visitor = _Imports(module)
        visitor.visit(ast.parse(module.file.read_text(encoding="utf-8"), filename=module.path))
        found += visitor.found
    return tuple(found)


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(path.startswith(p[:-2]) if p.endswith("/**") else PurePosixPath(path).match(p) for p in patterns)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("runtime/kinds/window.py", "from ..device import CPU", ("weftgrad.runtime.device.CPU", "runtime", False)),
        ("runtime/device.py", "from .. import nn", ("weftgrad.nn", "api", False)),
        ("runtime/device.py", "from ..bench import command", ("weftgrad.bench.command", "bench", False)),
        ("runtime/device.py", "from weftgrad import codegen", ("weftgrad.codegen", "codegen", False)),
        ("runtime/device.py", "def f():\n import weftgrad.codegen", ("weftgrad.codegen", "codegen", True)),
        ("runtime/device.py", "import_module('weftgrad.bench')", ("weftgrad.bench", "bench", False)),
        ("runtime/device.py", "import codegen", ("codegen", "codegen", False)),
        ("api/nn/linear.py", "from ... import bench", ("bench", "bench", False)),
        ("api/nn/linear.py", "from .module import Module", ("weftgrad.nn.module.Module", "api", False)),
        ("api/tensor.py", "from . import runtime", ("weftgrad.runtime", "runtime", False)),
        ("codegen/expr/parse.py", "from ...runtime import dtypes", ("weftgrad.runtime.dtypes", "runtime", False)),
        ("codegen/expr/parse.py", "if TYPE_CHECKING:\n import numpy", ("numpy", None, True)),
        ("bench/suite.py", "import pyopencl as cl", ("pyopencl", None, False)),
    ],
)
def test_the_reader_of_imports_sees(path, text, expected):
    visitor = _Imports(Module(path.split("/")[0], path, Path(path)))
    visitor.visit(ast.parse(text))
    (found,) = visitor.found
    assert (found.name, found.room, found.lazy) == expected


# --- Who imports whom -------------------------------------------------------------------------------------------------


def test_a_room_imports_only_what_stands_to_its_left():
    wrong = [str(i) for i in imports() if i.room and ROOMS.index(i.room) > ROOMS.index(i.module.room)]
    assert not wrong


def test_runtime_reaches_codegen_only_when_asked():
    """Compiling user specs needs it; `import weftgrad` does not."""
    left = ("codegen", "templates")
    assert not [str(i) for i in imports() if i.module.room == "runtime" and i.room in left and not i.lazy]


def test_runtime_never_opens_the_generated_modules():
    assert not [str(i) for i in imports() if i.module.room == "runtime" and "_generated" in i.name.split(".")]


def test_rooms_are_imported_under_their_packaged_names():
    """`import codegen` works in a checkout only; the build backend is where it has to."""
    wrong = [
        str(i)
        for i in imports()
        if i.level == 0 and i.name.split(".")[0] in ROOMS and i.module.path != "codegen/build_backend.py"
    ]
    assert not wrong


def test_codegen_imports_itself_relatively_and_stays_inside():
    """While building it runs as top-level `codegen`, before `weftgrad` exists."""
    wrong = [
        str(i)
        for i in imports()
        if i.module.room == "codegen"
        and i.module.path != "codegen/build_backend.py"
        and i.room
        and (i.level == 0 or i.name.split(".")[:2] != ["weftgrad", "codegen"])
    ]
    assert not wrong


def complaints(i: Import, use: Use | None) -> list[str]:
    if use is None:
        return [f"{i}: not among the distributions that weftgrad uses"]
    if not matches(i.module.path, use.where):
        return [f"{i}: belongs in {', '.join(use.where)}"]
    return [f"{i}: optional, so only inside a function"] if use.lazy and not i.lazy else []


def test_foreign_imports_stay_where_they_belong():
    wrong: list[str] = []
    for i in imports():
        top = i.name.split(".")[0]
        if not i.room and top not in sys.stdlib_module_names:
            wrong += complaints(i, FOREIGN.get(top))
    assert not wrong


@pytest.mark.parametrize("driver", ["pyopencl", "cuda"])
def test_one_file_knows_a_driver(driver):
    files = {i.module.path for i in imports() if i.name.split(".")[0] == driver}
    assert len(files) <= 1, files


def test_no_module_of_codegen_shadows_another():
    """`backend-path` puts the modules of codegen in front of the standard library while building."""
    taken = sys.stdlib_module_names | {"jinja2", "markupsafe", "yaml", "setuptools", "wheel", *ROOMS}
    tops = {PurePosixPath(m.path).parts[1].removesuffix(".py") for m in modules() if m.room == "codegen"}
    assert not tops & taken


# --- What is packed ---------------------------------------------------------------------------------------------------


def setuptools_table() -> dict:
    return tomllib.loads((needs_checkout() / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]


def package_folders() -> dict[str, Path]:
    """Every folder of the tree that holds Python, by the name it is packed under."""
    api = rooms()["api"]
    found = {"weftgrad": api, "weftgrad._generated": api / "_generated"}  # the second exists once something was built
    for module in modules():
        found[".".join(module.package)] = module.file.parent
    return found


def test_the_package_list_equals_the_tree():
    assert sorted(setuptools_table()["packages"]) == sorted(package_folders())


def test_every_package_has_an_init():
    needs_checkout()
    folders = [folder for folder in package_folders().values() if folder.is_dir()]
    assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]


def data_files() -> Iterator[Path]:
    for folder in rooms().values():
        for file in sorted(folder.rglob("*")):
            code = file.suffix == ".py" and file.parent.parent.name != "triton"  # the others are text of kernels
            compiled = file.suffix in (".pyc", ".so", ".c", ".h")
            if file.is_file() and not code and not compiled and not file.name.startswith("."):
                yield file


def test_no_template_defines_what_a_compiler_is_told():
    """Programs hold kernels of several templates: one that defined an option's name would take it from the others."""
    backend = (rooms()["runtime"] / "backends" / "opencl_compiler.py").read_text(encoding="utf-8")
    options = set(re.findall(r'"-D(WG_\w+)"', backend))
    assert {"WG_NO_AHEAD"} <= options
    for path in sorted((rooms()["templates"] / "opencl").rglob("*.j2")):
        told = set(re.findall(r"#\s*(?:define|undef)\s+(WG_\w+)", path.read_text(encoding="utf-8")))
        assert not told & options, path.name


def test_every_data_file_is_packed():
    table = setuptools_table()
    folders = package_folders()
    packed: set[Path] = set()
    for package, patterns in table["package-data"].items():
        assert package in table["packages"]
        for pattern in patterns:
            packed |= set(folders[package].glob(pattern)) if folders[package].is_dir() else set()
    root = needs_checkout()
    forgotten = [file.relative_to(root).as_posix() for file in data_files() if file not in packed]
    assert not forgotten


def test_every_c_source_is_compiled():
    (module,) = setuptools_table()["ext-modules"]
    root = needs_checkout()
    assert module["sources"] == sorted(f.relative_to(root).as_posix() for f in root.glob("runtime/csrc/*.c"))
    assert module["depends"] == [f.relative_to(root).as_posix() for f in root.glob("runtime/csrc/*.h")]


def test_entry_points_lead_somewhere():
    points = importlib.metadata.distribution("weftgrad").entry_points
    assert {(e.group, e.name) for e in points} == {("console_scripts", "weftgrad"), ("weftgrad.commands", "bench")}
    for point in points:
        assert callable(point.load())


# --- How it reads -----------------------------------------------------------------------------------------------------


def test_a_module_fits_one_head():
    lengths = {m.path: len(m.file.read_text(encoding="utf-8").splitlines()) for m in modules() if not m.generated}
    long = {path: lines for path, lines in lengths.items() if lines > MAX_LINES}
    assert {path: lines for path, lines in long.items() if path not in LONG_MODULES} == {}
    assert set(LONG_MODULES) <= set(long), "shorter by now: take it off the list"


def test_every_module_says_what_it_is():
    silent = [m.path for m in modules() if not ast.get_docstring(ast.parse(m.file.read_text(encoding="utf-8")))]
    assert not silent


# --- What an import costs ---------------------------------------------------------------------------------------------


def fresh(code: str, folder: Path) -> str:
    """Run `code` in a new interpreter, in an empty folder, with warnings as errors; return what it printed."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


OURS = ("weftgrad.codegen", "weftgrad.templates", "weftgrad.bench")
HEAVY = ("jinja2", "yaml", "pyopencl", "triton", "cuda", "torch", "scipy", "matplotlib", *OURS)


def test_import_is_light(tmp_path):
    code = f"import sys, weftgrad; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    assert fresh(code, tmp_path) == ""


def test_rooms_are_no_top_level_modules(tmp_path):
    names = ("api", "runtime", "codegen", "build_backend")
    code = f"import importlib.util as u; print(*[name for name in {names!r} if u.find_spec(name)])"
    assert fresh(code, tmp_path) == ""
    assert not set(names) & set(sys.modules)
