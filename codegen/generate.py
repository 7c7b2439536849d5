"""Generate an importable package from spec files.

    generate(folder)                     the project's own ops, into `api/_generated`
    generate(folder, specs, package)     a user's specs, into a package that needs neither YAML nor Jinja2 to run

Only changed files are written, and stale ones are removed: builds stay fast, and time stamps mean something.
"""

from __future__ import annotations

import hashlib
import pprint
import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .bindings import bindings
from .kinds.composite import called_ops
from .loader import collisions, load_file
from .model import Op, SpecError, SpecErrors
from .python_sources import Sources
from .render import Generated, environment, record_literals, render_all, templates_folder
from .schedules import load as load_schedules
from .schedules import module_text as schedules_text
from .tensor_stub import functions_text, tensor_methods_text

__all__ = [
    "Drift", "ExistingOps", "functions_module", "generate", "load_files", "own_specs", "render_package",
    "resolve_calls", "write_files",
]  # fmt: skip

_SPEC_FOLDER = Path(__file__).resolve().parent / "specs"
_EXTENSIONS = {"opencl": "cl", "triton": "py"}
_COMMENT_MARKS = {"opencl": "//", "triton": "#"}


class Drift(Exception):
    """Generated files are out of date; `files` lists them."""

    def __init__(self, files: Sequence[str]):
        self.files = tuple(files)
        names = ", ".join(self.files[:10]) + (", ..." if len(self.files) > 10 else "")
        super().__init__(f"{len(self.files)} generated files are out of date: {names}; run `weftgrad generate`")


@dataclass(frozen=True, slots=True)
class ExistingOps:
    """The ops that exist already when a user's spec is loaded.

    Attributes:
        functions: names of public ops, which composites may call.
        reserved: names that a spec must not define.
        record_names: names that derived ops must not get.
        conflicts: for some reserved names, where the op comes from and how it differs, for the message of an error.
    """

    functions: Container[str] = ()
    reserved: Collection[str] = ()
    record_names: Iterable[str] = ()
    conflicts: Mapping[str, str] = field(default_factory=dict)


def own_specs() -> list[Path]:
    """Return the paths of the project's own spec files, sorted."""
    return sorted(_SPEC_FOLDER.glob("*.yaml"))


def generate(
    folder: Path,
    specs: Iterable[Path] | None = None,
    *,
    check: bool = False,
    trust: bool = False,
    existing_ops: ExistingOps | None = None,
) -> list[str]:
    """Write the package for `specs` to `folder`, and return the names of the files that changed.

    Args:
        folder: the folder of the package.
        specs: spec files; None: the project's own.
        check: write nothing, and raise `Drift` if a file would change.
        trust: accept custom ops, whose kernels are code.
        existing_ops: the ops that exist when the package is imported.

    Raises:
        SpecErrors: a spec is wrong.
        Drift: a file is out of date; only with `check`.
    """
    own = specs is None
    paths = own_specs() if specs is None else list(specs)
    ops = load_files(paths, trust=trust or own)
    files = render_package(ops, paths, own=own, existing_ops=existing_ops or ExistingOps())
    return write_files(folder, files, check=check)


def load_files(paths: Iterable[Path], *, trust: bool = False) -> list[Op]:
    """Load the ops of several files. Raises `SpecErrors` with the errors of all files."""
    ops: list[Op] = []
    errors: list[SpecError] = []
    for path in paths:
        try:
            ops += load_file(path, trust=trust)
        except SpecErrors as file_errors:
            errors += file_errors.errors
    if not errors:
        errors = collisions(ops)
    if errors:
        raise SpecErrors(errors)
    return ops


def resolve_calls(ops: Sequence[Op], existing_ops: ExistingOps) -> dict[str, str]:
    """Check the names of `ops` and the calls of composites among them.

    Returns:
        Name of an op that they may call -> its name in the generated module. An existing op gets the prefix `_own_`
        there.

    Raises:
        SpecErrors: a name exists already, a call names no op, or ops call each other in a cycle.
    """
    own_ops = {op.name: op for op in ops}
    errors = []
    calls: dict[str, set[str]] = {}
    for op in ops:
        for name in (op.name, *op.alias, *([f"{op.name}_"] if op.inplace else [])):
            if name in existing_ops.functions or name in existing_ops.reserved:
                detail = existing_ops.conflicts.get(name, "")
                errors.append(_error(op, f"an op named {name!r} exists already{detail}; choose another name", "op"))
        if op.kind == "composite":
            calls[op.name] = called_ops(op)
    called_names: set[str] = set().union(*calls.values())
    imported_names = {name for name in called_names if name not in own_ops and name in existing_ops.functions}
    callables = {name: name for name in own_ops} | {name: f"_own_{name}" for name in imported_names}
    for caller, callees in calls.items():
        unknown_names = sorted(callees - callables.keys())
        errors += [_error(own_ops[caller], f"no op is called {name!r}", "out") for name in unknown_names]
        if caller in _reachable_ops(calls, caller):
            errors.append(_error(own_ops[caller], f"{caller} calls itself, directly or through other ops", "out"))
    if errors:
        raise SpecErrors(errors)
    return callables


def _reachable_ops(calls: Mapping[str, set[str]], start: str) -> set[str]:
    """Return every op that a composite calls, directly or not."""
    reachable: set[str] = set()
    pending = list(calls[start])
    while pending:
        name = pending.pop()
        if name not in reachable:
            reachable.add(name)
            pending += calls.get(name, ())
    return reachable


def _error(op: Op, message: str, field: str) -> SpecError:
    return SpecError(message, file=op.file, line=op.line, field=field)


def functions_module(ops: Sequence[Op], generated: Generated, callables: Mapping[str, str], **head: object) -> str:
    """Return the text of the module with a function for each of `ops`. The template's first lines print `head`."""
    return _template("python/ops.py.j2", **_function_values(ops, generated, callables), **head)


def render_package(
    ops: Sequence[Op], paths: Sequence[Path], *, own: bool, existing_ops: ExistingOps | None = None
) -> dict[str, str]:
    """Return relative path -> text of the package's files."""
    existing_ops = existing_ops or ExistingOps()
    callables = resolve_calls(ops, existing_ops)
    generated = render_all(ops, reserved_names=existing_ops.record_names)
    runtime = "weftgrad.runtime"
    digest = inputs_digest(paths)
    sources = shown_names(path.name for path in paths)
    files: dict[str, str] = {}
    for name, data in generated.records.items():
        for target, source in data.rendered.sources.items():
            files[f"kernels/{target}/{name}.{_EXTENSIONS[target]}"] = _with_header(source.text, target)
    owner = None if own else f"the package made from {sources}"
    common = {"sources": sources, "digest": digest, "runtime": runtime, "owner": owner}
    files["records.py"] = _template(
        "python/records.py.j2", records=_record_rows(generated), names=_name_lines(generated.records), **common
    )
    files["ops.py"] = functions_module(ops, generated, callables, package=True, **common)
    files["__init__.py"] = _init_text(sources, digest, own)
    if own:
        modules = Sources.beside(Path(__file__).resolve().parent, {"weftgrad._generated.ops": files["ops.py"]})
        files["functions.pyi"] = functions_text(modules)
        files["tensor_methods.pyi"] = tensor_methods_text(modules)
        files["schedules.py"] = schedules_text(load_schedules(), digest, runtime)
    return {name: text if text.endswith("\n") else text + "\n" for name, text in files.items()}


def shown_names(names: Iterable[str]) -> str:
    """Join file names for a docstring or comment: unusual characters become `?`."""
    return ", ".join(re.sub(r"[^A-Za-z0-9_. +-]", "?", name) for name in names)


def inputs_digest(paths: Sequence[Path]) -> str:
    """Return a hash of everything that generated text depends on: specs, templates, vocabulary and this generator."""
    here = Path(__file__).resolve().parent
    inputs = [*paths, *sorted(templates_folder().rglob("*.j2")), here / "functions.yaml", here / "schedules.yaml"]
    inputs += sorted(here.rglob("*.py"))
    digest = hashlib.sha256()
    for path in inputs:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _init_text(sources: str, digest: str, own: bool) -> str:
    text = f'"""Generated by `weftgrad generate` from {sources}; do not edit. Inputs: {digest}."""\n'
    if own:
        text += "\nfrom . import schedules  # noqa: F401  (what planners choose from)\n"
    else:
        text += "\nimport weftgrad  # noqa: F401  (its ops come first)\n\nfrom .ops import *  # noqa: F403\n"
    return text


def _with_header(text: str, target: str) -> str:
    """Return kernel text below a comment that says where it comes from."""
    return f"{_COMMENT_MARKS[target]} Generated by `weftgrad generate`; do not edit.\n{text.rstrip()}\n"


def _template(name: str, **values: object) -> str:
    return str(environment().get_template(name).render(**values))


def _record_rows(generated: Generated) -> list[dict[str, object]]:
    """Return for each record the values that `records.py.j2` prints."""
    rows: list[dict[str, object]] = []
    for name, data in generated.records.items():
        literals = [
            (field, _literal(value))
            for field, value in record_literals(data).items()
            if value not in ({}, (), "") or field == "rules"  # the other defaults; {} says that an op has no gradients
        ]
        sources = data.rendered.sources
        called_functions = ", ".join(f"{target}={source.functions!r}" for target, source in sorted(sources.items()))
        text_arguments = f"{name!r}, {called_functions}" if sources else None
        rows.append({"literals": literals, "text": text_arguments})
    return rows


def _name_lines(names: Iterable[str]) -> str:
    """Return the names as lines of string literals, indented for a set in `records.py.j2`."""
    return pprint.pformat(sorted(names), width=116, compact=True).replace("\n", "\n    ")


def _literal(value: object) -> str:
    """Return `value` as Python code, indented for an argument in `records.py.j2`."""
    text = pprint.pformat(value, width=100, sort_dicts=False, compact=True)
    return text.replace("\n", "\n        ")


def _function_values(ops: Sequence[Op], generated: Generated, callables: Mapping[str, str]) -> dict[str, object]:
    """Return the values that `ops.py.j2` prints."""
    functions = [b for op in ops for b in bindings(generated.records[op.name], callables)]
    return {
        "borrowed": sorted((n, s) for n, s in callables.items() if n != s),
        "functions": functions,
        "recorded": [op.name for op in ops if op.kind != "composite"],
        "aliases": [(alias, op.name) for op in ops for alias in op.alias],
        "operators": [(op.operator, op.name) for op in ops if op.operator],
        "inplace": [f"{op.name}_" for op in ops if op.inplace],
    }


def write_files(folder: Path, files: Mapping[str, str], *, check: bool = False) -> list[str]:
    """Write files to a folder, remove files that were generated before, and return the names of those that changed.

    Args:
        folder: The folder.
        files: Text by the file's path in the folder. Each first line says that it was generated.
        check: Write nothing.

    Raises:
        Drift: With `check`, a file would change.
    """
    changed_names = [
        n for n, text in files.items() if not (folder / n).is_file() or (folder / n).read_text("utf-8") != text
    ]
    present_paths = [p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    other_names = sorted({p.relative_to(folder).as_posix() for p in present_paths} - set(files))
    stale_names = [name for name in other_names if _is_generated(folder / name)]
    if check:
        if changed_names or stale_names:
            raise Drift(changed_names + stale_names)
        return []
    for name in changed_names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name], encoding="utf-8")
    for name in stale_names:
        (folder / name).unlink()
    return changed_names


def _is_generated(path: Path) -> bool:
    """Return True if the file's first line says that it was generated: only such files are ever removed."""
    try:
        with path.open(encoding="utf-8") as file:
            return "Generated by `weftgrad generate`" in file.readline()
    except (OSError, UnicodeDecodeError):
        return False
