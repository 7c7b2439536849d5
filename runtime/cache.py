"""The cache of compiled kernels on disk: one file a program, named by everything that its content depends on.

A program with several kernels serves later runs that ask for one of them: beside it lies a small index file for each
kernel, named by the program that this kernel alone would be, with the name of the file that has it.

Files are written beside their place and renamed, so several processes can share the folder, and each begins with a
checksum: a file that was cut short, emptied or overwritten counts as absent. Machine code is loaded from here, so the
folder must belong to the user who runs the program, and nobody else may be able to write to it. Where that is not so,
or the folder cannot be written, a private temporary folder serves until the process ends, and one warning says so.

`WEFTGRAD_CACHE` names the folder (default: `weftgrad` in the user's cache folder); `WEFTGRAD_CACHE=off` switches the
cache off. `weftgrad cache` tells where it is and how large.
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
    """A private folder until the process ends, in place of `folder`; None if even that cannot be had."""
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
    """Files by key. `identity` holds what the content of all of them depends on: compiler, version, options."""

    def __init__(self, identity: str):
        self._identity = identity

    def key(self, source: str) -> str:
        """Return the name under which the binary of `source` is kept."""
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
        """Keep the binary of `source`. Does nothing where the folder cannot be written or the disk is full."""
        self.store_key(self.key(source), binary)

    def store_key(self, key: str, binary: bytes, kind: str = "bin") -> None:
        """Keep `binary` under that name and kind. Does nothing where the folder cannot be written."""
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
        """Note that the program `batch` has the kernel of each program in `alone`."""
        for source in alone:
            self.store_key(self.key(source), self.key(batch).encode(), "idx")

    def find(self, source: str) -> str | None:
        """Return the name of a batch that has the kernel of `source`; None if there is none."""
        note = self.load_key(self.key(source), "idx")
        if note is None:
            return None
        path = self._path(note.decode())
        return note.decode() if path is not None and path.is_file() else None


def _checksum(key: str, payload: bytes) -> bytes:
    """The key is part of it, so a file under another file's name is as good as none."""
    return hashlib.sha256(key.encode() + payload).digest()
