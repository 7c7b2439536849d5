"""`weftgrad generate`: spec files into a package, or a checkout's own specs into `api/_generated`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ..runtime.errors import ArgumentError

__all__ = ["register"]


def register(subparsers: Any) -> None:
    """Add the command."""
    made = subparsers.add_parser(
        "generate",
        help="write the package of a spec: bindings, kernels, derivatives",
        description="Writes an importable package for SPEC, which needs neither YAML nor Jinja2 to run. Without SPEC, "
        "regenerates the ops of weftgrad itself.",
    )
    made.add_argument("spec", nargs="*", type=Path, help="spec files")
    made.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="the package's folder; its name is the package's"
    )
    made.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a file would change")
    made.add_argument(
        "--docs", type=Path, metavar="DIR", help="write documentation pages of the ops and the language here"
    )
    made.add_argument("--schema", type=Path, metavar="FILE", help="write the JSON Schema of spec files, for editors")
    made.add_argument("--trust", action="store_true", help="take custom ops, whose kernels are code")
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write, or with --check compare."""
    from ..codegen import generate as generation
    from ..codegen import reference

    status = 0
    if options.output or not (options.docs or options.schema):
        status = _package(options, generation)
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


def _package(options: argparse.Namespace, generation: Any) -> int:
    folder, beside = _folder(options), None
    if options.spec:
        from ..ops import beside as standing

        beside = standing()
    try:
        changed = generation.generate(
            folder, options.spec or None, check=options.check, trust=options.trust, beside=beside
        )
    except generation.Drift as drift:
        print(f"{folder}: out of date; run weftgrad generate", file=sys.stderr)
        more = [f"  and {len(drift.files) - 20} more"] if len(drift.files) > 20 else []
        print("\n".join([*(f"  {name}" for name in drift.files[:20]), *more]), file=sys.stderr)
        return 1
    print(f"{folder}: {'up to date' if not changed else f'{len(changed)} files written'}")
    return 0


def _folder(options: argparse.Namespace) -> Path:
    if not options.spec:
        return options.output or Path(__file__).resolve().parent.parent / "_generated"
    if options.output is None:
        raise ArgumentError("generate: -o DIR says where the package of these specs goes")
    if not options.output.name.isidentifier():
        raise ArgumentError(f"generate: {options.output.name!r} is no package name; DIR's last part is imported")
    return Path(options.output)
