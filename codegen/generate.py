"""Generation: spec files in, an importable package out.

    generate(folder)                     the project's own ops, into `api/_generated`
    generate(folder, specs, package)     a user's specs, into a package that needs neither YAML nor Jinja2 to run

Files are written only if they change, and stale ones are removed, so that builds are quick and diffs are true.
"""

from __future__ import annotations

import hashlib
import pprint
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .bindings import bindings
from .kinds.composite import called_ops
from .loader import collisions, load_file
from .model import Op, SpecError, SpecErrors
from .render import Generated, RecordData, environment, record_literals, render_all, templates_folder
from .schedules import load as load_schedules
from .schedules import module_text as schedules_text

__all__ = ["Beside", "Drift", "functions_module", "generate", "own_specs", "render_package", "resolve"]

_OWN = Path(__file__).resolve().parent / "specs"


class Drift(Exception):
    """Generated files are not what their inputs give: `files` lists them."""

    def __init__(self, files: Sequence[str]):
        self.files = tuple(files)
        super().__init__(f"{len(self.files)} generated files are out of date: {', '.join(self.files[:10])}")


@dataclass(frozen=True, slots=True)
class Beside:
    """The ops beside which those of a user's spec will live.

    functions: public ones, which composites may call. reserved: names that a spec may not define. taken: names that
    no derivative of the spec's ops may get.
    """

    functions: Container[str] = ()
    reserved: Container[str] = ()
    taken: Iterable[str] = ()


def own_specs() -> list[Path]:
    """The spec files of the project itself, in order."""
    return sorted(_OWN.glob("*.yaml"))


def generate(
    folder: Path,
    specs: Iterable[Path] | None = None,
    *,
    check: bool = False,
    trust: bool = False,
    beside: Beside | None = None,
) -> list[str]:
    """Write the package for `specs` (None: the project's own) to `folder`; the names of files that changed.

    beside: the ops that a user's package will stand beside.

    Raises `SpecErrors` where a spec is wrong, and with `check`, `Drift` where a file would change (none is written).
    """
    own = specs is None
    paths = own_specs() if specs is None else list(specs)
    ops = load_files(paths, trust=trust or own)
    files = render_package(ops, paths, own=own, beside=beside or Beside())
    return _write(folder, files, check)


def load_files(paths: Iterable[Path], *, trust: bool = False) -> list[Op]:
    """The ops of several files. Raises `SpecErrors` with what is wrong in any of them."""
    ops: list[Op] = []
    errors: list[SpecError] = []
    for path in paths:
        try:
            ops += load_file(path, trust=trust)
        except SpecErrors as found:
            errors += found.errors
    if not errors:
        errors = collisions(ops)
    if errors:
        raise SpecErrors(errors)
    return ops


def resolve(ops: Sequence[Op], beside: Beside) -> dict[str, str]:
    """The ops that composites among `ops` may call, and how the generated module spells them: its own by their names.

    Raises `SpecErrors` for a name that is taken, a call of no op, and ops that call each other in a circle.
    """
    own = {op.name: op for op in ops}
    errors = []
    calls: dict[str, set[str]] = {}
    for op in ops:
        for name in (op.name, *op.alias, *([f"{op.name}_"] if op.inplace else [])):
            if name in beside.functions or name in beside.reserved:
                errors.append(_error(op, f"an op named {name!r} exists already; choose another name", "op"))
        if op.kind == "composite":
            calls[op.name] = called_ops(op)
    called = set().union(*calls.values()) if calls else set()
    known = {name: name for name in own} | {n: f"_own_{n}" for n in called if n not in own and n in beside.functions}
    for name, targets in calls.items():
        errors += [_error(own[name], f"no op is called {t!r}", "out") for t in sorted(targets - set(known))]
        if name in _reached(calls, name):
            errors.append(_error(own[name], f"{name} calls itself", "out"))
    if errors:
        raise SpecErrors(errors)
    return known


def _reached(calls: Mapping[str, set[str]], start: str) -> set[str]:
    """Every op that a composite ends in."""
    reached: set[str] = set()
    waiting = list(calls[start])
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += calls.get(name, ())
    return reached


def _error(op: Op, message: str, field: str) -> SpecError:
    return SpecError(message, file=op.file, line=op.line, field=field)


def functions_module(ops: Sequence[Op], made: Generated, known: Mapping[str, str], **head: Any) -> str:
    """The text of the module that has a function for each of `ops`."""
    return _template("python/ops.py.j2", **_functions(ops, made, known), **head)


def render_package(
    ops: Sequence[Op], paths: Sequence[Path], *, own: bool, beside: Beside | None = None
) -> dict[str, str]:
    """The files of the package, by relative path."""
    beside = beside or Beside()
    known = resolve(ops, beside)
    made = render_all(ops, taken=beside.taken)
    runtime = "weftgrad.runtime"
    digest = inputs_digest(paths)
    sources = shown_names(path.name for path in paths)
    files: dict[str, str] = {}
    for name, data in made.records.items():
        for target, source in data.rendered.sources.items():
            extension = {"opencl": "cl", "triton": "py"}[target]
            files[f"kernels/{target}/{name}.{extension}"] = _headed(data, source.text, target)
    owner = None if own else f"the package made from {sources}"
    common = {"sources": sources, "digest": digest, "runtime": runtime, "owner": owner}
    files["records.py"] = _template(
        "python/records.py.j2", records=_records(made), names=_names(made.records), **common
    )
    files["ops.py"] = functions_module(ops, made, known, package=True, **common)
    files["__init__.py"] = _package(sources, digest, own)
    if own:
        files["schedules.py"] = schedules_text(load_schedules(), digest, runtime)
    return {name: text if text.endswith("\n") else text + "\n" for name, text in files.items()}


def shown_names(names: Iterable[str]) -> str:
    """File names, fit for a docstring and a comment: anything unusual in them becomes `?`."""
    return ", ".join(re.sub(r"[^A-Za-z0-9_. +-]", "?", name) for name in names)


def inputs_digest(paths: Sequence[Path]) -> str:
    """A hash over everything that generated text depends on: specs, templates, vocabulary and this generator."""
    here = Path(__file__).resolve().parent
    inputs = [*paths, *sorted(templates_folder().rglob("*.j2")), here / "functions.yaml", here / "schedules.yaml"]
    inputs += sorted(here.rglob("*.py"))
    digest = hashlib.sha256()
    for path in inputs:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _package(sources: str, digest: str, own: bool) -> str:
    text = f'"""Generated by `weftgrad generate` from {sources}; do not edit. Inputs: {digest}."""\n'
    if not own:
        text += "\nimport weftgrad  # noqa: F401  (its ops come first)\n\nfrom .ops import *  # noqa: F403\n"
    else:
        text += "\nfrom . import schedules  # noqa: F401  (what planners choose from)\n"
    return text


def _headed(data: RecordData, text: str, target: str) -> str:
    mark = {"opencl": "//", "triton": "#"}[target]
    return f"{mark} Generated by `weftgrad generate`; do not edit.\n{text.rstrip()}\n"


def _template(name: str, **values: Any) -> str:
    return str(environment().get_template(name).render(**values))


def _records(made: Generated) -> list[dict[str, Any]]:
    found = []
    for name, data in made.records.items():
        literals = [(k, _literal(v)) for k, v in record_literals(data).items() if v not in ({}, (), "") or k == "rules"]
        sources = data.rendered.sources
        texts = ", ".join(f"{target}={source.functions!r}" for target, source in sorted(sources.items()))
        text = f"{name!r}, {texts}" if sources else None
        found.append({"literals": literals, "text": text})
    return found


def _names(names: Iterable[str]) -> str:
    return pprint.pformat(sorted(names), width=116, compact=True).replace("\n", "\n    ")


def _literal(value: Any) -> str:
    text = pprint.pformat(value, width=100, sort_dicts=False, compact=True)
    return text.replace("\n", "\n        ")


def _functions(ops: Sequence[Op], made: Generated, known: Mapping[str, str]) -> dict[str, Any]:
    functions = [b for op in ops for b in bindings(made.records[op.name], known)]
    return {
        "borrowed": sorted((n, s) for n, s in known.items() if n != s),
        "functions": functions,
        "recorded": [op.name for op in ops if op.kind != "composite"],
        "aliases": [(alias, op.name) for op in ops for alias in op.alias],
        "operators": [(op.operator, op.name) for op in ops if op.operator],
        "inplace": [f"{op.name}_" for op in ops if op.inplace],
    }


def _write(folder: Path, files: dict[str, str], check: bool) -> list[str]:
    changed = [n for n, text in files.items() if not (folder / n).is_file() or (folder / n).read_text("utf-8") != text]
    present = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    stale = sorted(present - set(files)) if folder.is_dir() else []
    if check:
        if changed or stale:
            raise Drift(changed + stale)
        return []
    for name in changed:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name], encoding="utf-8")
    for name in stale:
        if _is_generated(folder / name):
            (folder / name).unlink()
    return changed


def _is_generated(path: Path) -> bool:
    """Whether a file says that it was generated: nothing else is ever removed."""
    try:
        with path.open(encoding="utf-8") as file:
            return "Generated by `weftgrad generate`" in file.readline()
    except (OSError, UnicodeDecodeError):
        return False
