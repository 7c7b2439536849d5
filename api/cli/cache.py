"""`weftgrad cache`: show the folder of compiled kernels and its size, and delete them with `--clear`.

`--clear` keeps tuned schedules, because finding them took a search; `weftgrad tune --clear` deletes those. It also
keeps every file that weftgrad did not write. `cache_files` finds and deletes the files.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from ..runtime.cache import preferred_folder, why_unusable
from ..runtime.errors import format_bytes
from .cache_files import KINDS, TUNED, Content, count_files, delete_files
from .terminal import Style, table

__all__ = ["add_options"]

_ANOTHER_USER = "belongs to another user"  # part of the reason that `runtime.cache.why_unusable` returns
_OFF_MESSAGE = "the cache is off (WEFTGRAD_CACHE): every process compiles its kernels again"


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the command's description and options to its parser."""
    command.description = (
        "Shows the folder of compiled kernels, its size, and whether it can be used. The exit status is 1 if it cannot."
    )
    command.add_argument("--clear", action="store_true", help="delete compiled kernels, but not tuned schedules")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Delete with `--clear`, then print the folder's contents. Return 1 if the folder cannot be used."""
    folder = preferred_folder()
    if folder is None:
        report = _report(None, "off", Content(), None)
        print(json.dumps(report, indent=1) if options.json else _OFF_MESSAGE)
        return 0
    reason = why_unusable(folder)
    deleted = None
    if options.clear:
        if _ANOTHER_USER in reason:  # delete nothing, although root could
            deleted = Content(failures=[f"{folder}: {reason}"])
        else:
            deleted = delete_files(folder, [kind for kind in KINDS if kind != TUNED])
    content = count_files(folder)
    if options.json:
        print(json.dumps(_report(folder, reason, content, deleted), indent=1))
    else:
        _print(folder, reason, content, deleted)
    return 1 if reason or _failures(content, deleted) else 0


def _failures(content: Content, deleted: Content | None) -> list[str]:
    """Return the paths that could not be read or deleted, and why."""
    return [*content.failures, *(deleted.failures if deleted is not None else [])]


def _report(folder: Path | None, reason: str, content: Content, deleted: Content | None) -> dict[str, object]:
    """Return what `--json` prints.

    Args:
        folder: The cache folder; None if the cache is off.
        reason: Why the folder cannot be used; "" if it can.
        content: The files that are in the folder now.
        deleted: The files that `--clear` has deleted; None without `--clear`.
    """
    return {
        "folder": None if folder is None else str(folder),
        "is_off": folder is None,
        "is_usable": folder is not None and not reason,
        "reason": reason,
        "files": content.files,
        "bytes": content.nbytes,
        "kinds": {kind: {"files": files, "bytes": nbytes} for kind, (files, nbytes) in content.counts.items()},
        "foreign": content.foreign,
        "deleted": None if deleted is None else {"files": deleted.files, "bytes": deleted.nbytes},
        "failures": _failures(content, deleted),
    }


def _print(folder: Path, reason: str, content: Content, deleted: Content | None) -> None:
    """Print the same as `_report` for a reader."""
    style = Style()
    origin = "WEFTGRAD_CACHE" if "WEFTGRAD_CACHE" in os.environ else "the default; WEFTGRAD_CACHE changes it"
    print(f"{folder} ({origin})")
    if reason:
        print(style("bad", f"cannot be used: {reason}. Compiled kernels last as long as their process"))
    if deleted is not None:
        print(f"deleted {deleted.files} files, {format_bytes(deleted.nbytes)}")
        if content.counts[TUNED][0]:
            print(f"{TUNED} remain: weftgrad tune --clear deletes them")
    rows = [[kind, str(files), format_bytes(nbytes)] for kind, (files, nbytes) in content.counts.items() if files]
    rows.append(["total", str(content.files), format_bytes(content.nbytes)])
    print(table(rows, ("what", "files", "size"), style))
    if content.foreign:
        print(style("comment", f"{content.foreign} more files, links or folders do not belong to weftgrad"))
    for failure in _failures(content, deleted):
        print(style("bad", failure))
