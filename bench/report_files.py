"""Read and write reports of `weftgrad bench --output`; `rows` documents the format.

A report is JSON. Files whose name ends in `.gz` are compressed: by gzip, without a time, so that equal reports give
equal files. Reading recognises compressed files by their first bytes, so that a renamed one is read, too.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.errors import ArgumentError
from . import figure_traces, page, steps, tables, terminal
from .colours import plain
from .rows import FORMAT, entries, sections

if TYPE_CHECKING:
    from .report_types import Report

__all__ = ["as_bytes", "load"]

_GZIP_MAGIC = b"\x1f\x8b"


def as_bytes(report: Report, path: Path, indent: int | None = 1) -> bytes:
    """Return the bytes of a report file: JSON, compressed if the name of `path` ends in `.gz`."""
    content = (json.dumps(report, indent=indent) + "\n").encode()
    return gzip.compress(content, mtime=0) if path.suffix == ".gz" else content


def load(path: Path) -> Report:
    """Read and validate a report of `weftgrad bench --output`.

    Raises:
        ArgumentError: the file cannot be read or is no valid report; the message says why.
    """
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content).decode()
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise ArgumentError(f"bench: {path} is a damaged or truncated gzip file: copy or measure it again") from None
    except OSError as error:
        raise ArgumentError(f"bench: {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise ArgumentError(f"bench: {path} is not JSON: it is no text in UTF-8") from None
    if not text.strip():
        raise ArgumentError(f"bench: {path} is empty: nothing was measured into it; run it again with --output")
    try:
        report = json.loads(text)
    except ValueError as error:
        is_truncated = getattr(error, "pos", 0) >= len(text.rstrip())
        remedy = "; it ends too early: copy or measure it again" if is_truncated else ""
        raise ArgumentError(f"bench: {path} is not JSON: {error}{remedy}") from None
    except RecursionError:
        raise ArgumentError(f"bench: {path} is no report of `weftgrad bench --output`: nested too deeply") from None
    if isinstance(report, dict) and isinstance(report.get("format"), int) and report["format"] > FORMAT:
        raise ArgumentError(
            f"bench: {path} is of format {report['format']}, of a newer weftgrad, and this one reads up to {FORMAT}: "
            "pip install --upgrade weftgrad"
        )
    try:
        _validate(report)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        raise ArgumentError(
            f"bench: {path} is no report of `weftgrad bench --output`: {type(error).__name__} {error}"
        ) from None
    validated: Report = report
    return validated


def _validate(report: Report) -> None:
    """Format every part of a report once, so that an invalid file fails here and not in the middle of the output."""
    all_entries = entries([report])
    page.machine_facts(report)
    for section in sections(all_entries):
        page.table(section, None)
        terminal.section_lines(section, None, plain)
    for _ in tables.records(all_entries):
        pass
    steps.curves(report)
    steps.timelines(report)
    figure_traces.step_traces(report)
    figure_traces.caching_runs(report)
