"""Keep the tuned schedules of the user's devices in one JSON file in the cache, shared by processes.

    {"version": 2, "devices": {DEVICE: {KEY: {"choice": {…} or null, "before": 1.2e-4, "after": 1e-4, "when": "…"}}}}

DEVICE names the class, platform, driver version and core count; KEY names the space, op, dtype, shape class and layout
(see `schedules`). `choice` is null if no schedule beats the shipped one; `before` and `after` are seconds.

A writer locks a file beside it, reads the current content, and replaces the file by renaming a new one. So readers
always see a complete file. A file that cannot be parsed, or is of another version, is renamed, with one warning. If
the cache is off or cannot be written, tuned schedules last as long as the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ..cache import cache_folder

if TYPE_CHECKING:
    from ..schedules import Choice

__all__ = ["Entry", "choices", "clear", "entries", "merge", "path"]

_VERSION = 2  # to increase when a parameter of `codegen/schedules.yaml` is renamed, or means something else
_LOCK_TIMEOUT_SECONDS = 10.0


class Entry(TypedDict):
    """The result of tuning one call, as the file stores it."""

    choice: Choice | None
    before: float
    after: float
    when: str
    call: str


def path() -> Path | None:
    """Return the path of the file, or None if the cache is off."""
    folder = cache_folder()
    return None if folder is None else folder / "schedules.json"


def choices(device: str) -> dict[str, Choice | None]:
    """Return the tuned choices of a device, by key; None stands for the shipped choice."""
    return {key: _lists_to_tuples(entry["choice"]) for key, entry in entries().get(device, {}).items()}


def entries() -> dict[str, dict[str, Entry]]:
    """Return all entries, by device and key."""
    file_path = path()
    return {} if file_path is None else _read(file_path)


def merge(device: str, new_entries: Mapping[str, Entry]) -> bool:
    """Add `new_entries` to the entries of a device; entries of the same keys are replaced.

    Returns:
        True if the file could be written.
    """

    def change(devices: dict[str, dict[str, Entry]]) -> None:
        devices.setdefault(device, {}).update(new_entries)

    return _write(change)


def clear(device: str | None = None) -> int:
    """Remove the entries of one device, or of all of them.

    Returns:
        The number of entries removed.

    Raises:
        OSError: The file cannot be written.
    """
    removed = 0

    def change(devices: dict[str, dict[str, Entry]]) -> None:
        nonlocal removed
        for name in [name for name in devices if device in (None, name)]:
            removed += len(devices.pop(name))

    file_path = path()
    if file_path is not None and file_path.exists() and not _write(change):
        raise OSError(f"{file_path} cannot be written")
    return removed


def _lists_to_tuples(choice: Choice | None) -> Choice | None:
    """Turn the lists of a choice read from JSON into tuples."""
    return None if choice is None else {k: tuple(v) if isinstance(v, list) else v for k, v in choice.items()}


def _read(file_path: Path) -> dict[str, dict[str, Entry]]:
    try:
        text = file_path.read_bytes()
    except OSError:
        return {}
    try:
        content = json.loads(text)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']!r}, not {_VERSION}")
        devices = content["devices"]
        for device in devices.values():
            for entry in device.values():
                if entry["choice"] is not None and not isinstance(entry["choice"], dict):
                    raise ValueError("a choice that is no mapping")
        return dict(devices)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        _set_aside(file_path, text, error)
        return {}


def _set_aside(file_path: Path, text: bytes, error: Exception) -> None:
    """Rename an unreadable file, unless another process has replaced it in the meantime."""
    renamed_path = file_path.with_suffix(".unreadable")
    note = ""
    with contextlib.suppress(OSError):
        if file_path.read_bytes() == text:
            os.replace(file_path, renamed_path)
            note = f"; it is now {renamed_path.name}"
    reason = str(error) or type(error).__name__
    warnings.warn(
        f"{file_path} holds no tuned schedules that this version reads ({reason}){note}: the shipped ones are used; "
        "run `weftgrad tune` again", stacklevel=2,
    )  # fmt: skip


def _write(change: Callable[[dict[str, dict[str, Entry]]], None]) -> bool:
    file_path = path()
    if file_path is None:
        return False
    try:
        file_path.parent.mkdir(parents=True, exist_ok=True)
        with _file_lock(file_path.with_suffix(".lock")):
            devices = _read(file_path)
            change(devices)
            text = json.dumps({"version": _VERSION, "devices": devices}, indent=1, sort_keys=True)
            handle, part_name = tempfile.mkstemp(dir=file_path.parent, prefix="schedules", suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text + "\n")
                os.replace(part_name, file_path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part_name)
                raise
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _file_lock(lock_path: Path) -> Iterator[None]:
    """Hold an exclusive `flock` on a file; the system releases it if the process dies. Raises `OSError`."""
    try:
        import fcntl  # lazy: POSIX only
    except ImportError:  # no `flock` here: writers still replace whole files, and the last one wins
        yield
        return
    with lock_path.open("a") as file:
        deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        yield
