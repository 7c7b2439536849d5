"""Count and delete the files that weftgrad wrote into its cache folder, and no others.

A file is weftgrad's if its name has the pattern of `runtime.cache`, `runtime.tuning.store` or Triton:

    ab/ab….bin, .idx, .ok    a compiled kernel, an index entry, the mark of a compiler that passed its probe; `ab…` is a
                             SHA-256
    ab/tmp….part             a file whose process ended while it was writing
    schedules.json, .lock …  tuned schedules
    triton/HASH/….cubin …    Triton's own cache

The walk opens each folder relative to its parent and follows no links. So it never leaves the cache folder, even if
another process replaces a folder by a link during the walk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["KINDS", "TUNED", "Content", "count_files", "delete_files"]

TUNED = "tuned schedules"
KINDS = ("kernels", "indexes", "probes", TUNED, "triton", "unfinished")

_KIND_BY_SUFFIX = {"bin": "kernels", "idx": "indexes", "ok": "probes"}
_ENTRY_FILE = re.compile(r"([0-9a-f]{2})[0-9a-f]{62}\.(bin|idx|ok)")
_UNFINISHED_FILE = re.compile(r"tmp[a-z0-9_]{8}\.part")
_SCHEDULES_FILE = re.compile(r"schedules(\.(json|lock|unreadable)|[a-z0-9_]{8}\.part)")
_SHARD_FOLDER = re.compile(r"[0-9a-f]{2}")
_TRITON_FOLDER = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}")
_TRITON_FILE = re.compile(r"[\w.+-]+\.(ttir|ttgir|llir|ptx|cubin|amdgcn|hsaco|source|json|so|pyd|c|lock)")


@dataclass
class Content:
    """The contents of a cache folder.

    Attributes:
        counts: `[number of files, bytes]` for each kind.
        foreign: Number of files, links and folders that weftgrad did not write.
        failures: Paths below the folder that could not be read or deleted, and why.
    """

    counts: dict[str, list[int]] = field(default_factory=lambda: {kind: [0, 0] for kind in KINDS})
    foreign: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def files(self) -> int:
        """The number of files of all kinds."""
        return sum(files for files, _ in self.counts.values())

    @property
    def nbytes(self) -> int:
        """The bytes of files of all kinds."""
        return sum(nbytes for _, nbytes in self.counts.values())


def count_files(folder: Path) -> Content:
    """Count the files of a cache folder, which may itself be a link."""
    return _scan(folder, frozenset())


def delete_files(folder: Path, kinds: Collection[str]) -> Content:
    """Delete files of a cache folder, and folders that become empty.

    Args:
        folder: The cache folder; it may itself be a link.
        kinds: Kinds of files, from `KINDS`; at least one.

    Returns:
        The deleted files, and the failures.
    """
    return _scan(folder, frozenset(kinds))


def _scan(folder: Path, kinds_to_delete: frozenset[str]) -> Content:
    """Delete and count the files of these kinds in a folder. If there are no kinds, count all files instead."""
    content = Content()
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return content
    except OSError as error:
        content.failures.append(f"{folder}: {error.strerror}")
        return content
    try:
        _walk(folder_fd, (), kinds_to_delete, content)
    finally:
        os.close(folder_fd)
    return content


def _walk(folder_fd: int, parents: tuple[str, ...], kinds_to_delete: frozenset[str], content: Content) -> None:
    """Count or delete the files of one open folder and its subfolders, as `_scan` does.

    Args:
        folder_fd: Descriptor of the folder.
        parents: Path of the folder within the cache folder, as names.
        kinds_to_delete: Kinds of files to delete; empty: count all files.
        content: The counts, which this function updates.
    """
    with os.scandir(folder_fd) as entries:
        members = sorted(entries, key=lambda entry: entry.name)
    for entry in members:
        path = "/".join((*parents, entry.name))
        try:
            if entry.is_dir(follow_symlinks=False) and _is_own_folder(parents, entry.name):
                _walk_subfolder(folder_fd, parents, entry.name, kinds_to_delete, content)
                continue
            kind = _kind(parents, entry.name) if entry.is_file(follow_symlinks=False) else ""
            if not kind:
                content.foreign += 1
                continue
            size = os.stat(entry.name, dir_fd=folder_fd, follow_symlinks=False).st_size
            if kinds_to_delete:
                if kind not in kinds_to_delete:
                    continue
                os.unlink(entry.name, dir_fd=folder_fd)
            content.counts[kind][0] += 1
            content.counts[kind][1] += size
        except FileNotFoundError:  # another process deleted it first
            continue
        except OSError as error:
            content.failures.append(f"{path}: {error.strerror}")


def _walk_subfolder(
    folder_fd: int, parents: tuple[str, ...], name: str, kinds_to_delete: frozenset[str], content: Content
) -> None:
    """Walk the subfolder `name`, and delete it if files of it were deleted and it is empty now."""
    files_before = content.files
    subfolder_fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder_fd)
    try:
        _walk(subfolder_fd, (*parents, name), kinds_to_delete, content)
    finally:
        os.close(subfolder_fd)
    if kinds_to_delete and content.files > files_before:
        with suppress(OSError):  # not empty
            os.rmdir(name, dir_fd=folder_fd)


def _is_own_folder(parents: tuple[str, ...], name: str) -> bool:
    """Return True if weftgrad or Triton makes folders of this name at this place."""
    if not parents:
        return name == "triton" or bool(_SHARD_FOLDER.fullmatch(name))
    return parents == ("triton",) and bool(_TRITON_FOLDER.fullmatch(name))


def _kind(parents: tuple[str, ...], name: str) -> str:
    """Return the kind of a file by its name, or "" if weftgrad writes no file of that name."""
    if not parents:
        return TUNED if _SCHEDULES_FILE.fullmatch(name) else ""
    if parents[0] == "triton":
        return "triton" if len(parents) == 2 and _TRITON_FILE.fullmatch(name) else ""
    entry = _ENTRY_FILE.fullmatch(name)
    if entry:
        return _KIND_BY_SUFFIX[entry[2]] if entry[1] == parents[0] else ""
    return "unfinished" if _UNFINISHED_FILE.fullmatch(name) else ""
