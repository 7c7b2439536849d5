"""What the user's devices were tuned to: one JSON file in the cache, shared by processes.

    {"version": 1, "devices": {DEVICE: {KEY: {"choice": {…} or null, "before": 1.2e-4, "after": 1e-4, "when": "…"}}}}

DEVICE names class, platform, driver version and cores; KEY template, op, dtype, shape class and layout (`schedules`).
`choice` is null where nothing was found that beats what is shipped; `before` and `after` are seconds.

Writers take a lock on a file beside it, read what others wrote meanwhile, and put the new text in place by renaming, so
a reader sees one whole state or another. What cannot be read as this is put aside under another name, with one warning.
Where the cache is off or cannot be written, what was found lasts as long as the process.
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
from typing import Any

from ..cache import cache_folder

__all__ = ["Entry", "choices", "clear", "entries", "merge", "path"]

Entry = dict[str, Any]
_VERSION = 1
_PATIENCE = 10.0  # seconds that a writer waits for the lock


def path() -> Path | None:
    """Where choices are kept; None where the cache is off."""
    folder = cache_folder()
    return None if folder is None else folder / "schedules.json"


def choices(device: str) -> dict[str, Mapping[str, Any] | None]:
    """The choices kept for a device, by key."""
    return {key: _choice(entry["choice"]) for key, entry in entries().get(device, {}).items()}


def entries() -> dict[str, dict[str, Entry]]:
    """Everything that is kept, by device and key."""
    place = path()
    return {} if place is None else _read(place)


def merge(device: str, found: Mapping[str, Entry]) -> bool:
    """Keep `found` beside what is there, in place of entries of the same keys; whether it could be written."""

    def change(every: dict[str, dict[str, Entry]]) -> None:
        every.setdefault(device, {}).update(found)

    return _write(change)


def clear(device: str | None = None) -> int:
    """Forget what is kept, for one device or all of them; how many choices that was. Raises `OSError`."""
    gone = 0

    def change(every: dict[str, dict[str, Entry]]) -> None:
        nonlocal gone
        for name in [name for name in every if device in (None, name)]:
            gone += len(every.pop(name))

    place = path()
    if place is not None and place.exists() and not _write(change):
        raise OSError(f"{place} cannot be written")
    return gone


def _choice(kept: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """JSON has lists where choices have tuples."""
    return None if kept is None else {k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()}


def _read(place: Path) -> dict[str, dict[str, Entry]]:
    try:
        text = place.read_bytes()
    except OSError:
        return {}
    try:
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise ValueError(f"version {found['version']!r}, not {_VERSION}")
        every = found["devices"]
        for device in every.values():
            for entry in device.values():
                if entry["choice"] is not None and not isinstance(entry["choice"], dict):
                    raise ValueError("a choice that is no mapping")
        return dict(every)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        _put_aside(place, text, error)
        return {}


def _put_aside(place: Path, text: bytes, error: Exception) -> None:
    """Out of the way, unless another process has put a good one there meanwhile."""
    aside = place.with_suffix(".unreadable")
    moved = ""
    with contextlib.suppress(OSError):
        if place.read_bytes() == text:
            os.replace(place, aside)
            moved = f"; it is now {aside.name}"
    reason = str(error) or type(error).__name__
    warnings.warn(
        f"{place} holds no tuned schedules that this version reads ({reason}){moved}: the shipped ones are used; "
        "run `weftgrad tune` again", stacklevel=2,
    )  # fmt: skip


def _write(change: Callable[[dict[str, dict[str, Entry]]], None]) -> bool:
    place = path()
    if place is None:
        return False
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _locked(place.with_suffix(".lock")):
            every = _read(place)
            change(every)
            text = json.dumps({"version": _VERSION, "devices": every}, indent=1, sort_keys=True)
            handle, name = tempfile.mkstemp(dir=place.parent, prefix="schedules", suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text + "\n")
                os.replace(name, place)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Alone among processes, by the system's lock on a file, which goes with a process that ends. Raises `OSError`."""
    try:
        import fcntl
    except ImportError:  # no such locks: writers still replace whole files, and the last one wins
        yield
        return
    with place.open("a") as file:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        yield
