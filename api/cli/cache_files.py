"""The files that weftgrad wrote into its cache folder: count them, delete them, leave everything else alone.

A file is weftgrad's if its name is one that `runtime.cache`, `runtime.tuning.store` or Triton gives:

    ab/ab….bin, .idx, .ok    a compiled kernel, an index entry, a compiler that passed its probe; `ab…` is a SHA-256
    ab/tmp….part             a file that was being written when its process ended
    schedules.json, .lock …  tuned schedules
    triton/HASH/….cubin …    Triton's own cache

The walk opens folders relative to their parent without following links, so that nothing outside the folder is reached,
even if somebody puts a link in a folder's place meanwhile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["KINDS", "TUNED", "Content", "survey"]

TUNED = "tuned schedules"
KINDS = ("kernels", "indexes", "probes", TUNED, "triton", "unfinished")

_BY_SUFFIX = {"bin": "kernels", "idx": "indexes", "ok": "probes"}
_ENTRY = re.compile(r"([0-9a-f]{2})[0-9a-f]{62}\.(bin|idx|ok)")
_PART = re.compile(r"tmp[a-z0-9_]{8}\.part")
_SCHEDULES = re.compile(r"schedules(\.(json|lock|unreadable)|[a-z0-9_]{8}\.part)")
_SHARD = re.compile(r"[0-9a-f]{2}")
_TRITON_FOLDER = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}")
_TRITON_FILE = re.compile(r"[\w.+-]+\.(ttir|ttgir|llir|ptx|cubin|amdgcn|hsaco|source|json|so|pyd|c|lock)")


@dataclass
class Content:
    """What a cache folder has.

    Attributes:
        counts: Files and their bytes, by kind.
        foreign: Files, links and folders that weftgrad did not write.
        failures: Paths below the folder that could not be read or deleted, and why.
    """

    counts: dict[str, list[int]] = field(default_factory=lambda: {kind: [0, 0] for kind in KINDS})
    foreign: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def files(self) -> int:
        return sum(files for files, _ in self.counts.values())

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, nbytes in self.counts.values())


def survey(folder: Path, remove: Collection[str] = ()) -> Content:
    """Count what is in a cache folder, and delete what is of a kind in `remove`.

    Args:
        folder: The cache folder. Itself it may be a link.
        remove: Kinds, of `KINDS`. Only files of these kinds are counted, and folders that become empty go, too.
    """
    content = Content()
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return content
    except OSError as error:
        content.failures.append(f"{folder}: {error.strerror}")
        return content
    try:
        _walk(top, (), frozenset(remove), content)
    finally:
        os.close(top)
    return content


def _walk(handle: int, parents: tuple[str, ...], remove: frozenset[str], content: Content) -> None:
    """Go through one open folder, which lies under the folders `parents` of the cache folder."""
    with os.scandir(handle) as entries:
        members = sorted(entries, key=lambda entry: entry.name)
    for entry in members:
        path = "/".join((*parents, entry.name))
        try:
            if entry.is_dir(follow_symlinks=False) and _is_own_folder(parents, entry.name):
                _enter(handle, parents, entry.name, remove, content)
                continue
            kind = _kind(parents, entry.name) if entry.is_file(follow_symlinks=False) else ""
            if not kind:
                content.foreign += 1
                continue
            size = os.stat(entry.name, dir_fd=handle, follow_symlinks=False).st_size
            if remove:
                if kind not in remove:
                    continue
                os.unlink(entry.name, dir_fd=handle)
            content.counts[kind][0] += 1
            content.counts[kind][1] += size
        except FileNotFoundError:  # another process was faster
            continue
        except OSError as error:
            content.failures.append(f"{path}: {error.strerror}")


def _enter(handle: int, parents: tuple[str, ...], name: str, remove: frozenset[str], content: Content) -> None:
    files = content.files
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
    try:
        _walk(inner, (*parents, name), remove, content)
    finally:
        os.close(inner)
    if remove and content.files > files:
        with suppress(OSError):  # not empty
            os.rmdir(name, dir_fd=handle)


def _is_own_folder(parents: tuple[str, ...], name: str) -> bool:
    if not parents:
        return name == "triton" or bool(_SHARD.fullmatch(name))
    return parents == ("triton",) and bool(_TRITON_FOLDER.fullmatch(name))


def _kind(parents: tuple[str, ...], name: str) -> str:
    """Return the kind of a file by its name, or "" if the name is none of weftgrad's."""
    if not parents:
        return TUNED if _SCHEDULES.fullmatch(name) else ""
    if parents[0] == "triton":
        return "triton" if len(parents) == 2 and _TRITON_FILE.fullmatch(name) else ""
    entry = _ENTRY.fullmatch(name)
    if entry:
        return _BY_SUFFIX[entry[2]] if entry[1] == parents[0] else ""
    return "unfinished" if _PART.fullmatch(name) else ""
