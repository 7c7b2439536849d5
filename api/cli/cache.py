"""`weftgrad cache`: where compiled kernels are kept, how many there are, and `--clear` to delete them.

Clearing leaves tuned schedules, which took a search to find (`weftgrad tune --clear` forgets those), and everything
that weftgrad did not write.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from .cache_files import KINDS, TUNED, Content, survey
from .terminal import Style, table

__all__ = ["register"]

_ANOTHER_USER = "belongs to another user"  # of what `runtime.cache.why_unusable` says


def register(subparsers: Any) -> None:
    """Add the command."""
    command = subparsers.add_parser(
        "cache",
        help="where compiled kernels are kept, and how many; --clear deletes them",
        description="Says where compiled kernels are kept, how many files and bytes they take, and whether the folder "
        "can be used. Ends with 1 if it cannot.",
    )
    command.add_argument("--clear", action="store_true", help="delete compiled kernels, but no tuned schedules")
    command.add_argument("--json", action="store_true", help="print the same as JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what the cache folder has, after deleting if that was asked for; 1 if it cannot be used."""
    from ..runtime.cache import preferred_folder, why_unusable

    folder = preferred_folder()
    if folder is None:
        report = _report(None, "off", Content(), None)
        print(json.dumps(report, indent=1) if options.json else _OFF)
        return 0
    reason = why_unusable(folder)
    deleted = None
    if options.clear:
        refuses = _ANOTHER_USER in reason
        deleted = Content() if refuses else survey(folder, [kind for kind in KINDS if kind != TUNED])
        if refuses:
            deleted.failures.append(f"{folder}: {reason}")
    content = survey(folder)
    if options.json:
        print(json.dumps(_report(folder, reason, content, deleted), indent=1))
    else:
        _print(folder, reason, content, deleted)
    return 1 if reason or content.failures or (deleted is not None and deleted.failures) else 0


_OFF = "the cache is off (WEFTGRAD_CACHE): every process compiles its kernels anew"


def _report(folder: Path | None, reason: str, content: Content, deleted: Content | None) -> dict[str, Any]:
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
        "failures": [*content.failures, *(deleted.failures if deleted is not None else [])],
    }


def _print(folder: Path, reason: str, content: Content, deleted: Content | None) -> None:
    from ..runtime.errors import format_bytes

    style = Style()
    origin = "WEFTGRAD_CACHE" if "WEFTGRAD_CACHE" in os.environ else "the default; WEFTGRAD_CACHE names another"
    print(f"{folder} ({origin})")
    if reason:
        print(style("bad", f"cannot be used: {reason}. Compiled kernels last as long as their process"))
    if deleted is not None:
        print(f"deleted {deleted.files} files, {format_bytes(deleted.nbytes)}")
        if content.counts[TUNED][0]:
            print(f"{TUNED} stay: weftgrad tune --clear forgets them")
    rows = [[kind, str(files), format_bytes(nbytes)] for kind, (files, nbytes) in content.counts.items() if files]
    rows.append(["total", str(content.files), format_bytes(content.nbytes)])
    print(table(rows, ("what", "files", "size"), style))
    if content.foreign:
        print(style("comment", f"{content.foreign} more files, links or folders are not weftgrad's"))
    for failure in [*content.failures, *(deleted.failures if deleted is not None else [])]:
        print(style("bad", failure))
