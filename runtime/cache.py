"""The disk cache of compiled kernels: one file per program, named by a hash of everything that its content depends on.

A program with several kernels also serves later runs that need only one of them. For each kernel there is a small index
file; its name is the hash of the program with this kernel alone, and it contains the name of the program's file.

Files are written under a temporary name and renamed, so processes can share the folder. Each file begins with a
checksum: a truncated or overwritten file counts as absent. The files contain machine code that is executed, so the
folder must belong to the user who runs the program, and nobody else may be able to write to it. Otherwise, or if the
folder cannot be written, a private temporary folder is used until the process ends, with one warning.

`WEFTGRAD_CACHE` names the folder (default: `weftgrad` in the user's cache folder); `WEFTGRAD_CACHE=off` disables the
cache. `weftgrad cache` prints its path and size.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

__all__ = ["BinaryCache", "cache_folder", "preferred_folder", "why_unusable"]

_MAGIC = b"weftgrad-2\n"
_DIGEST = hashlib.sha256().digest_size


def preferred_folder() -> Path | None:
    """Return the folder that the environment asks for, or None if the cache is off. It need not exist."""
    named = os.environ.get("WEFTGRAD_CACHE")
    if named is not None:
        return None if named.lower() in ("", "off", "0") else Path(os.path.expanduser(named))
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "weftgrad"


def cache_folder() -> Path | None:
    """Return the folder where compiled kernels are kept, or None if the cache is off."""
    folder = preferred_folder()
    return None if folder is None else _usable(folder)


def why_unusable(folder: Path) -> str:
    """Return why kernels can be neither kept in nor loaded from `folder`, or "" if they can. Creates the folder."""
    if folder.parts[:1] == ("~",):
        return "this user has no home folder"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        return f"{error.strerror or error}"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if hasattr(os, "geteuid"):
        if status.st_uid != os.geteuid():
            return f"it belongs to another user (uid {status.st_uid})"
        if status.st_mode & 0o022:
            return f"other users can write to it (mode {stat.S_IMODE(status.st_mode):o}); chmod go-w makes it usable"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return "it cannot be written"
    return ""


@cache
def _usable(folder: Path) -> Path | None:
    reason = why_unusable(folder)
    return folder if not reason else _temporary(folder, reason)


def _temporary(folder: Path, reason: str) -> Path | None:
    """Create a private folder that is deleted when the process ends; return None if that fails, too."""
    try:
        substitute = tempfile.mkdtemp(prefix="weftgrad-")
    except OSError:
        substitute = ""
    else:
        atexit.register(_remove, substitute, os.getpid())
    whereabouts = f"kept in {substitute} until this process ends" if substitute else "not kept"
    warnings.warn(
        f"weftgrad: the cache folder {folder} cannot be used: {reason}. Compiled kernels are {whereabouts}; set "
        "WEFTGRAD_CACHE to a folder of your own, or to 'off'",
        RuntimeWarning,
        stacklevel=2,
    )
    return Path(substitute) if substitute else None


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)


class BinaryCache:
    """Binary files by key. `identity`: what all of them depend on, such as compiler, version and options."""

    def __init__(self, identity: str):
        self._identity = identity

    def key(self, source: str) -> str:
        """Return the name under which the binary of `source` is stored."""
        return hashlib.sha256(f"{self._identity}\0{source}".encode()).hexdigest()

    def _path(self, key: str, kind: str = "bin") -> Path | None:
        folder = cache_folder()
        return None if folder is None else folder / key[:2] / f"{key}.{kind}"

    def load(self, source: str) -> bytes | None:
        """Return the binary of `source`, or None. A damaged file counts as absent."""
        return self.load_key(self.key(source))

    def load_key(self, key: str, kind: str = "bin") -> bytes | None:
        """Return the content of the file of that name and kind, or None."""
        path = self._path(key, kind)
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        digest, payload = data[len(_MAGIC) : len(_MAGIC) + _DIGEST], data[len(_MAGIC) + _DIGEST :]
        if not data.startswith(_MAGIC) or _checksum(key, payload) != digest:
            return None
        return payload

    def store(self, source: str, binary: bytes) -> None:
        """Store the binary of `source`. Does nothing if the folder cannot be written or the disk is full."""
        self.store_key(self.key(source), binary)

    def store_key(self, key: str, binary: bytes, kind: str = "bin") -> None:
        """Store `binary` under that name and kind. Does nothing if the folder cannot be written."""
        path = self._path(key, kind)
        if path is None:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + _checksum(key, binary) + binary)
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise

    def index(self, alone: Sequence[str], batch: str) -> None:
        """Write an index file for each single-kernel program in `alone`, whose kernel the program `batch` contains."""
        for source in alone:
            self.store_key(self.key(source), self.key(batch).encode(), "idx")

    def find(self, source: str) -> str | None:
        """Return the name of a stored batch that contains the kernel of `source`, or None."""
        note = self.load_key(self.key(source), "idx")
        if note is None:
            return None
        path = self._path(note.decode())
        return note.decode() if path is not None and path.is_file() else None


def _checksum(key: str, payload: bytes) -> bytes:
    """Return the checksum of a file. It includes the key, so a file renamed to another key counts as damaged."""
    return hashlib.sha256(key.encode() + payload).digest()
