"""The cache of compiled programs on disk: one file a program, named by everything that its binary depends on.

Files are written beside their place and renamed, so that several processes can share the folder; a file that cannot
be read or written is as good as none. `WEFTGRAD_CACHE` names the folder (default: the user's cache folder);
`WEFTGRAD_CACHE=off` switches the cache off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
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

    def _path(self, source: str) -> Path | None:
        folder = cache_folder()
        if folder is None:
            return None
        key = hashlib.sha256(f"{self._identity}\0{source}".encode()).hexdigest()
        return folder / key[:2] / f"{key}.bin"

    def load(self, source: str) -> bytes | None:
        """The binary of `source`, or None. A damaged file counts as absent."""
        path = self._path(source)
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
        path = self._path(source)
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
