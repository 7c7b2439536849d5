"""The cache of compiled programs on disk: one file a program, named by everything that its binary depends on.

A program built as a batch (`weftgrad prebuild`) serves later runs that ask for one of its kernels alone: beside it lies
a small index file for each kernel, named by the program that this kernel alone would be, with the batch's name.

Files are written beside their place and renamed, so that several processes can share the folder; a file that cannot
be read or written is as good as none. `WEFTGRAD_CACHE` names the folder (default: the user's cache folder);
`WEFTGRAD_CACHE=off` switches the cache off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["BinaryCache", "cache_folder"]

_MAGIC = b"weftgrad-1\n"


def cache_folder() -> Path | None:
    """Where binaries are kept, or None if the cache is off."""
    named = os.environ.get("WEFTGRAD_CACHE")
    if named is not None:
        return None if named in ("", "off", "0") else Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "weftgrad"


class BinaryCache:
    """Binaries by key. `identity` holds what all of them depend on: driver, version, device."""

    def __init__(self, identity: str):
        self._identity = identity

    def key(self, source: str) -> str:
        """The name under which the binary of `source` is kept."""
        return hashlib.sha256(f"{self._identity}\0{source}".encode()).hexdigest()

    def _path(self, key: str, kind: str = "bin") -> Path | None:
        folder = cache_folder()
        return None if folder is None else folder / key[:2] / f"{key}.{kind}"

    def load(self, source: str) -> bytes | None:
        """The binary of `source`, or None. A damaged file counts as absent."""
        return self.load_key(self.key(source))

    def load_key(self, key: str, kind: str = "bin") -> bytes | None:
        """As `load`, by name."""
        path = self._path(key, kind)
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        digest, payload = data[len(_MAGIC) : len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
        if not data.startswith(_MAGIC) or hashlib.sha256(payload).digest() != digest:
            return None
        return payload

    def store(self, source: str, binary: bytes) -> None:
        """Keep the binary of `source`; silently does nothing where the folder cannot be written."""
        self._store(self._path(self.key(source)), binary)

    def index(self, alone: Sequence[str], batch: str) -> None:
        """Note that the program `batch` has the kernel of each program in `alone`."""
        for source in alone:
            self._store(self._path(self.key(source), "idx"), self.key(batch).encode())

    def find(self, source: str) -> str | None:
        """The name of a batch that has the kernel of `source`; None if there is none."""
        note = self.load_key(self.key(source), "idx")
        if note is None:
            return None
        path = self._path(note.decode())
        return note.decode() if path is not None and path.is_file() else None

    def _store(self, path: Path | None, binary: bytes) -> None:
        if path is None:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(binary).digest() + binary)
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
