"""Check the structure of the project: imports between layers, package contents, module length, cost of the import.

A layer is a top-level folder. The sources are parsed, not imported. They are read from the folder that
WEFTGRAD_CHECKOUT names, else from the folder above tests/, else from the installed package, which has the same modules
but no pyproject.toml. ARCHITECTURE.md describes the layers.
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

LAYERS = ("templates", "codegen", "runtime", "api", "bench")
"""A layer may import itself and the layers before it in this order."""

MAX_LINES = 500  # docstrings do not count: public ones are long, and read apart from the code
LONG_MODULES: dict[str, str] = {}
"""Modules that may be longer than MAX_LINES (path from the root: reason). Remove those that became shorter."""


@dataclass(frozen=True)
class AllowedUse:
    """Say which modules may import a third-party package.

    Attributes:
        where: patterns of module paths.
        lazy: whether they may import it only inside functions.
    """

    where: tuple[str, ...]
    lazy: bool = False


THIRD_PARTY = {
    # The build environment has only jinja2 and yaml, so codegen must not import NumPy.
    "jinja2": AllowedUse(("codegen/**", "bench/page.py"), lazy=True),
    "yaml": AllowedUse(("codegen/**",)),
    "numpy": AllowedUse(("runtime/**", "api/**", "bench/**")),
    "tqdm": AllowedUse(("runtime/backends/cpu/kernels.py", "api/torch_names/stand_ins/model_zoo.py"), lazy=True),
    "setuptools": AllowedUse(("codegen/build_backend.py",)),
    # Under TYPE_CHECKING: type checkers bring it.
    "typing_extensions": AllowedUse(("api/utils/data/_types.py",)),
    # Only one file, the backend, imports a driver.
    "pyopencl": AllowedUse(("runtime/backends/opencl_devices.py",)),
    "mpi4py": AllowedUse(("api/distributed/world.py",), lazy=True),
    "triton": AllowedUse(
        tuple(f"runtime/triton/{name}.py" for name in ("builder", "compile", "interpret", "language"))
    ),
    "cuda": AllowedUse(("runtime/backends/*.py",)),
    # Optional.
    "ml_dtypes": AllowedUse(("runtime/host_data.py",), lazy=True),
    "matplotlib": AllowedUse(("bench/**", "api/demo/figure.py"), lazy=True),
    "torch": AllowedUse(("bench/**", "api/torch_names/*.py"), lazy=True),  # in torch_names it is weftgrad itself
    "cupy": AllowedUse(("bench/**",), lazy=True),
    "pytest": AllowedUse(("bench/skip_passed.py",), lazy=True),
    "jax": AllowedUse(("bench/**",), lazy=True),
    "tinygrad": AllowedUse(("bench/**",), lazy=True),
    "safetensors": AllowedUse(("api/serialization/safetensors_files.py",), lazy=True),
    "onnx": AllowedUse(("api/torch_modules/onnx/**",), lazy=True),
    "tensorboardX": AllowedUse(("api/utils/tensorboard.py",), lazy=True),
    # References that specs name; they are imported when a test of the op needs them.
    "scipy": AllowedUse(("api/torch_modules/testing/**", "bench/**"), lazy=True),
}


# --- Finding and reading the sources ----------------------------------------------------------------------------------


@cache
def checkout() -> Path | None:
    named = os.environ.get("WEFTGRAD_CHECKOUT")
    candidate = Path(named) if named else Path(__file__).resolve().parent.parent
    is_checkout = (candidate / "pyproject.toml").is_file() and (candidate / "codegen").is_dir()
    assert is_checkout or not named, f"WEFTGRAD_CHECKOUT names {candidate}, which is no checkout of weftgrad"
    return candidate if is_checkout else None


@cache
def layers() -> dict[str, Path]:
    root = checkout()
    if root:
        return {layer: root / layer for layer in LAYERS}
    spec = importlib.util.find_spec("weftgrad")
    assert spec
    assert spec.submodule_search_locations
    package = Path(next(iter(spec.submodule_search_locations)))
    return {layer: package if layer == "api" else package / layer for layer in LAYERS}


def needs_checkout() -> Path:
    root = checkout()
    if root is None:
        pytest.skip("needs the checkout: set WEFTGRAD_CHECKOUT")
    return root


@dataclass(frozen=True)
class Module:
    layer: str
    path: str  # from the root of a checkout, even if read from an installed package
    file: Path

    @property
    def package(self) -> list[str]:
        """Return the package that `from . import` refers to, as a list of its parts."""
        folders = list(PurePosixPath(self.path).parts[1:-1])
        if folders[:1] == ["torch_modules"]:  # pyproject maps its folders to the root: `weftgrad.cuda`
            del folders[0]
        return (["weftgrad"] if self.layer == "api" else ["weftgrad", self.layer]) + folders

    @property
    def generated(self) -> bool:
        return self.path.startswith("api/_generated/")


@cache
def modules() -> tuple[Module, ...]:
    collected = []
    for layer, folder in layers().items():
        for file in sorted(folder.rglob("*.py")):
            relative = file.relative_to(folder)
            # In an installed package the other layers are folders inside api's folder.
            if "__pycache__" in relative.parts or (layer == "api" and relative.parts[0] in LAYERS):
                continue
            if relative.parts[:2] == ("_generated", "kernels") or (layer == "templates" and len(relative.parts) > 1):
                continue  # kernel source
            collected.append(Module(layer, f"{layer}/{relative.as_posix()}", file))
    assert collected
    return tuple(collected)


@dataclass(frozen=True)
class Import:
    module: Module
    line: int
    name: str  # absolute and dotted; `from a import b` gives a.b
    lazy: bool
    level: int

    @property
    def layer(self) -> str | None:
        """Return the layer that is imported, or None for third-party modules."""
        parts = self.name.split(".")
        if parts[0] != "weftgrad":
            return parts[0] if parts[0] in LAYERS else None
        return parts[1] if len(parts) > 1 and parts[1] in LAYERS else "api"

    def __str__(self) -> str:
        return f"{self.module.path}:{self.line} imports {self.name}"


def called_name(call: ast.Call) -> str:
    """Return the last part of the dotted name of a called function, or "" if another expression is called."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_for_type_checkers(node: ast.If) -> bool:
    """Return True for `if TYPE_CHECKING:`, also with a longer condition."""
    return any("TYPE_CHECKING" in (getattr(part, "id", ""), getattr(part, "attr", "")) for part in ast.walk(node.test))


class _Imports(ast.NodeVisitor):
    def __init__(self, module: Module) -> None:
        self.module = module
        self.imports: list[Import] = []
        self.deferred_depth = 0

    def add(self, node: ast.AST, name: str, level: int = 0) -> None:
        self.imports.append(Import(self.module, node.lineno, name, self.deferred_depth > 0, level))

    def visit_deferred(self, node: ast.AST) -> None:
        self.deferred_depth += 1
        self.generic_visit(node)
        self.deferred_depth -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_deferred

    def visit_If(self, node: ast.If) -> None:
        if is_for_type_checkers(node):
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
            parents = package[: len(package) - node.level + 1]
            base = ".".join([*parents, base] if base else parents)
        for alias in node.names:
            name = base if alias.name == "*" else f"{base}.{alias.name}"
            self.add(node, name.lstrip("."), node.level)

    def visit_Call(self, node: ast.Call) -> None:
        if (
            called_name(node) in ("import_module", "import_lazily", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            name = str(node.args[0].value)
            dots = len(name) - len(name.lstrip("."))
            package = self.module.package
            self.add(node, ".".join([*package[: len(package) - dots + 1], name.lstrip(".")]) if dots else name, dots)
        self.generic_visit(node)


@dataclass(frozen=True)
class ModuleFacts:
    """What the tests want to know of a module, of which one parsing gathers all: it takes seconds for all modules."""

    imports: tuple[Import, ...]
    has_docstring: bool
    lines_of_code: int


@cache
def facts() -> dict[Module, ModuleFacts]:
    return {module: gather_facts(module) for module in modules()}


def gather_facts(module: Module) -> ModuleFacts:
    source = module.file.read_text(encoding="utf-8")
    tree = ast.parse(source, filename=module.path)
    visitor = _Imports(module)
    visitor.visit(tree)
    return ModuleFacts(tuple(visitor.imports), bool(ast.get_docstring(tree)), count_lines_of_code(source, tree))


def count_lines_of_code(source: str, tree: ast.Module) -> int:
    """Return the number of lines of a module that are not in docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [
        node.body[0]
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
    ]
    return len(source.splitlines()) - sum((d.end_lineno or d.lineno) - d.lineno + 1 for d in docstrings)


@cache
def imports() -> tuple[Import, ...]:
    return tuple(imported for module in modules() for imported in facts()[module].imports)


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
        ("runtime/planners.py", "m.import_lazily('weftgrad.nn')", ("weftgrad.nn", "api", False)),
        ("runtime/device.py", "import codegen", ("codegen", "codegen", False)),
        ("api/nn/linear.py", "from ... import bench", ("bench", "bench", False)),
        ("api/nn/linear.py", "from .module import Module", ("weftgrad.nn.module.Module", "api", False)),
        ("api/tensor.py", "from . import runtime", ("weftgrad.runtime", "runtime", False)),
        ("codegen/expr/parse.py", "from ...runtime import dtypes", ("weftgrad.runtime.dtypes", "runtime", False)),
        ("codegen/expr/parse.py", "if TYPE_CHECKING:\n import numpy", ("numpy", None, True)),
        ("codegen/expr/parse.py", "if typing.TYPE_CHECKING and x:\n import numpy", ("numpy", None, True)),
        ("bench/suite.py", "import pyopencl as cl", ("pyopencl", None, False)),
    ],
)
def test_imports_are_parsed(path, text, expected):
    visitor = _Imports(Module(path.split("/")[0], path, Path(path)))
    visitor.visit(ast.parse(text))
    (imported,) = visitor.imports
    assert (imported.name, imported.layer, imported.lazy) == expected


# --- Imports between layers -------------------------------------------------------------------------------------------

# Type checkers see Tensor's methods, which the api installs, through a generated base class. No program imports it: it
# is a stub, and the import stands under `if TYPE_CHECKING:`.
TENSOR_STUB = ("runtime/tensor.py", "weftgrad._generated.tensor_methods.TensorMethods")


def is_tensor_stub(imported: Import) -> bool:
    return (imported.module.path, imported.name) == TENSOR_STUB and imported.lazy


def test_a_layer_imports_only_lower_layers():
    upward = [i for i in imports() if i.layer and LAYERS.index(i.layer) > LAYERS.index(i.module.layer)]
    assert not [str(i) for i in upward if not is_tensor_stub(i)]


def test_runtime_reaches_codegen_only_when_asked():
    """Compiling a user's spec needs codegen; `import weftgrad` does not."""
    left = ("codegen", "templates")
    assert not [str(i) for i in imports() if i.module.layer == "runtime" and i.layer in left and not i.lazy]


def test_runtime_never_opens_the_generated_modules():
    opened = [i for i in imports() if i.module.layer == "runtime" and "_generated" in i.name.split(".")]
    assert not [str(i) for i in opened if not is_tensor_stub(i)]


def test_layers_are_imported_under_their_packaged_names():
    """`import codegen` works only in a checkout, and only the build backend needs it."""
    violations = [
        str(i)
        for i in imports()
        if i.level == 0 and i.name.split(".")[0] in LAYERS and i.module.path != "codegen/build_backend.py"
    ]
    assert not violations


def test_codegen_imports_itself_relatively_and_stays_inside():
    """The build imports codegen as a top-level package, before `weftgrad` exists."""
    violations = [
        str(i)
        for i in imports()
        if i.module.layer == "codegen"
        and i.module.path != "codegen/build_backend.py"
        and i.layer
        and (i.level == 0 or i.name.split(".")[:2] != ["weftgrad", "codegen"])
    ]
    assert not violations


def import_problems(imported: Import, use: AllowedUse | None) -> list[str]:
    if use is None:
        return [f"{imported}: not among the distributions that weftgrad uses"]
    if not matches(imported.module.path, use.where):
        return [f"{imported}: belongs in {', '.join(use.where)}"]
    return [f"{imported}: optional, so only inside a function"] if use.lazy and not imported.lazy else []


def test_third_party_imports_are_only_in_allowed_modules():
    violations: list[str] = []
    for i in imports():
        top = i.name.split(".")[0]
        if not i.layer and top not in sys.stdlib_module_names:
            violations += import_problems(i, THIRD_PARTY.get(top))
    assert not violations


@pytest.mark.parametrize("driver", ["pyopencl", "cuda"])
def test_only_one_file_imports_a_driver(driver):
    files = {i.module.path for i in imports() if i.name.split(".")[0] == driver}
    assert len(files) <= 1, files


def test_no_module_of_codegen_shadows_another():
    """While building, `backend-path` puts the modules of codegen before the standard library."""
    reserved = sys.stdlib_module_names | {"jinja2", "markupsafe", "yaml", "setuptools", "wheel", *LAYERS}
    top_level_names = {PurePosixPath(m.path).parts[1].removesuffix(".py") for m in modules() if m.layer == "codegen"}
    assert not top_level_names & reserved


# --- Package contents -------------------------------------------------------------------------------------------------


def setuptools_table() -> dict:
    return tomllib.loads((needs_checkout() / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]


def package_folders() -> dict[str, Path]:
    """Return every folder with Python modules, by the name of its package."""
    api = layers()["api"]
    folders = {"weftgrad": api, "weftgrad._generated": api / "_generated"}  # _generated exists only after a build
    for module in modules():
        folders[".".join(module.package)] = module.file.parent
    return folders


def test_the_package_list_equals_the_tree():
    assert sorted(setuptools_table()["packages"]) == sorted(package_folders())


def test_every_package_has_an_init():
    needs_checkout()
    folders = [folder for folder in package_folders().values() if folder.is_dir()]
    assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]


def data_files() -> Iterator[Path]:
    for folder in layers().values():
        for file in sorted(folder.rglob("*")):
            # The other .py files are kernel source.
            is_module = file.suffix == ".py" and file.parent.parent.name != "triton"
            is_compiled = file.suffix in (".pyc", ".so", ".c", ".h")
            if file.is_file() and not is_module and not is_compiled and not file.name.startswith("."):
                yield file


def test_no_template_defines_a_compiler_option():
    """One program has kernels of several templates: a template that defines an option changes it for the others."""
    backend = (layers()["runtime"] / "backends" / "opencl_compiler.py").read_text(encoding="utf-8")
    options = set(re.findall(r'"-D(WG_\w+)"', backend))
    assert {"WG_NO_AHEAD"} <= options
    for path in sorted((layers()["templates"] / "opencl").rglob("*.j2")):
        defined = set(re.findall(r"#\s*(?:define|undef)\s+(WG_\w+)", path.read_text(encoding="utf-8")))
        assert not defined & options, path.name


def test_every_data_file_is_packed():
    table = setuptools_table()
    folders = package_folders()
    packed: set[Path] = set()
    for package, patterns in table["package-data"].items():
        assert package in table["packages"]
        for pattern in patterns:
            packed |= set(folders[package].glob(pattern)) if folders[package].is_dir() else set()
    root = needs_checkout()
    unpackaged = [file.relative_to(root).as_posix() for file in data_files() if file not in packed]
    assert not unpackaged


def test_every_c_source_is_compiled():
    (module,) = setuptools_table()["ext-modules"]
    root = needs_checkout()
    assert module["sources"] == sorted(f.relative_to(root).as_posix() for f in root.glob("runtime/csrc/*.c"))
    assert module["depends"] == sorted(f.relative_to(root).as_posix() for f in root.glob("runtime/csrc/*.h"))


def test_entry_points_can_be_loaded():
    points = importlib.metadata.distribution("weftgrad").entry_points
    assert {(e.group, e.name) for e in points} == {
        ("console_scripts", "weftgrad"),
        ("weftgrad.commands", "bench"),
        ("weftgrad.commands", "simulate"),
        ("weftgrad.commands", "audit"),
    }
    for point in points:
        assert callable(point.load())


# --- Readability ------------------------------------------------------------------------------------------------------


def test_modules_are_short():
    lengths = {module.path: facts()[module].lines_of_code for module in modules() if not module.generated}
    long_modules = {path: lines for path, lines in lengths.items() if lines > MAX_LINES}
    assert {path: lines for path, lines in long_modules.items() if path not in LONG_MODULES} == {}
    assert set(LONG_MODULES) <= set(long_modules), "now short enough: remove it from the list"


def test_every_module_has_a_docstring():
    assert not [module.path for module in modules() if not facts()[module].has_docstring]


# --- What an import costs ---------------------------------------------------------------------------------------------


def run_in_new_process(code: str, folder: Path) -> str:
    """Run `code` in a new interpreter in `folder`, with warnings as errors, and return its output."""
    process = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


TOOLING = ("weftgrad.codegen", "weftgrad.templates", "weftgrad.bench")
UNWANTED = ("jinja2", "yaml", "pyopencl", "triton", "cuda", "torch", "scipy", "matplotlib", *TOOLING)


def test_import_loads_no_optional_package(tmp_path):
    code = f"import sys, weftgrad; print(*[name for name in {UNWANTED!r} if name in sys.modules])"
    assert run_in_new_process(code, tmp_path) == ""


def test_layers_are_no_top_level_modules(tmp_path):
    names = ("api", "runtime", "codegen", "build_backend")
    code = f"import importlib.util as u; print(*[name for name in {names!r} if u.find_spec(name)])"
    assert run_in_new_process(code, tmp_path) == ""
    assert not set(names) & set(sys.modules)
