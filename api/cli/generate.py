"""`weftgrad generate`: generate a package from spec files, or `api/_generated` from the project's own specs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..codegen import generate as generation
from ..codegen import reference
from ..ops import existing_ops as list_existing_ops
from ..runtime.errors import ArgumentError

if TYPE_CHECKING:
    from .types import Subparsers

__all__ = ["register"]

_MAX_LISTED_FILES = 20  # of those that `--check` finds out of date


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    command = subparsers.add_parser(
        "generate",
        help="write the package of a spec: bindings, kernels, derivatives",
        description="Writes an importable package for SPEC, which needs neither YAML nor Jinja2 to run. Without SPEC, "
        "regenerates the ops of weftgrad itself.",
    )
    command.add_argument("spec", nargs="*", type=Path, help="spec files")
    command.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="the package's folder; its name is the package's"
    )
    command.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a file would change")
    command.add_argument(
        "--docs", type=Path, metavar="DIR", help="write documentation pages of the ops and the language here"
    )
    command.add_argument("--schema", type=Path, metavar="FILE", help="write the JSON Schema of spec files, for editors")
    command.add_argument("--trust", action="store_true", help="allow custom ops, whose kernels are code")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the generated files, or compare them with `--check`."""
    status = 0
    if options.output or not (options.docs or options.schema):
        status = _package(options)
    if options.docs:
        paths = options.spec or generation.own_specs()
        ops = generation.load_files(paths, trust=options.trust or not options.spec)
        files = reference.pages(ops)
        for name, text in files.items():
            path = options.docs / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"{options.docs}: {len(files)} pages")
    if options.schema:
        options.schema.parent.mkdir(parents=True, exist_ok=True)
        options.schema.write_text(reference.schema_text(), encoding="utf-8")
        print(f"{options.schema}: written")
    return status


def _package(options: argparse.Namespace) -> int:
    """Write or check the package, and return the exit status."""
    folder, existing_ops = _folder(options), None
    if options.spec:
        existing_ops = list_existing_ops()
    try:
        changed = generation.generate(
            folder, options.spec or None, check=options.check, trust=options.trust, existing_ops=existing_ops
        )
    except generation.Drift as drift:
        print(f"{folder}: out of date; run weftgrad generate", file=sys.stderr)
        lines = [f"  {name}" for name in drift.files[:_MAX_LISTED_FILES]]
        if len(drift.files) > _MAX_LISTED_FILES:
            lines.append(f"  and {len(drift.files) - _MAX_LISTED_FILES} more")
        print("\n".join(lines), file=sys.stderr)
        return 1
    print(f"{folder}: {'up to date' if not changed else f'{len(changed)} files written'}")
    return 0


def _folder(options: argparse.Namespace) -> Path:
    """Return the package's folder.

    Raises:
        ArgumentError: There is a spec, but no `-o`, or its last part cannot be imported.
    """
    if not options.spec:
        return options.output or Path(__file__).resolve().parent.parent / "_generated"
    if options.output is None:
        raise ArgumentError("generate: -o DIR says where the package of these specs goes")
    if not options.output.name.isidentifier():
        raise ArgumentError(f"generate: {options.output.name!r}, the last part of DIR, is not a valid package name")
    return Path(options.output)
