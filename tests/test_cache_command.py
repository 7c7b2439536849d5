"""Check `weftgrad cache`: what it counts, what it deletes and what it leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from doctor_running import HASH, command_runner

from weftgrad.cli import cache_files


@pytest.fixture
def run(capsys, monkeypatch):
    return command_runner(capsys, monkeypatch)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """Fill a cache folder with one file of each kind and several files that are not weftgrad's."""
    folder = tmp_path / "cache"
    outside = tmp_path / "outside"
    for path in (folder / "ab", folder / "triton" / HASH, folder / "triton" / "notes", folder / "mine", outside / "ab"):
        path.mkdir(parents=True)
    folder.chmod(0o700)
    for name in ("bin", "idx", "ok"):
        (folder / "ab" / f"{HASH}.{name}").write_bytes(b"12345")
        (outside / "ab" / f"{HASH}.{name}").write_bytes(b"12345")
    (folder / "ab" / "tmpx1y2z3_4.part").write_bytes(b"1")
    (folder / "schedules.json").write_text("{}")
    (folder / "triton" / HASH / "kernel.cubin").write_bytes(b"123")
    # Not weftgrad's: other names, wrong folders, links to files and to folders.
    (folder / "README").write_text("mine")
    (folder / "ab" / "notes.txt").write_text("mine")
    (folder / "mine" / f"{HASH}.bin").write_text("mine")
    (folder / "triton" / "notes" / "kernel.cubin").write_text("mine")
    (folder / "triton" / HASH / "notes.txt").write_text("mine")
    (folder / "ab" / f"{HASH[:-1]}e.bin").symlink_to(outside / "ab" / f"{HASH}.bin")
    (folder / "cd").symlink_to(outside / "ab")
    monkeypatch.setenv("WEFTGRAD_CACHE", str(folder))
    return folder


def every_file(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_cache_counts(cache, run):
    status, out = run("cache", "--json")
    report = json.loads(out)
    assert status == 0
    assert set(report) == {
        "folder", "is_off", "is_usable", "reason", "files", "bytes", "kinds", "foreign", "deleted", "failures"
    }  # fmt: skip
    assert report["folder"] == str(cache)
    assert {kind: count["files"] for kind, count in report["kinds"].items()} == {
        "kernels": 1, "indexes": 1, "probes": 1, "tuned schedules": 1, "triton": 1, "unfinished": 1
    }  # fmt: skip
    assert report["kinds"]["kernels"]["bytes"] == 5
    assert (report["files"], report["bytes"]) == (6, 21)
    assert report["foreign"] == 7
    assert report["deleted"] is None
    status, out = run("cache")
    assert str(cache) in out
    assert "(WEFTGRAD_CACHE)" in out
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("total")] == [["total", "6"]]


def test_clearing_leaves_everything_else(cache, run):
    files_before, outside = every_file(cache), every_file(cache.parent / "outside")
    status, out = run("cache", "--clear", "--json")
    assert status == 0
    assert json.loads(out)["deleted"] == {"files": 5, "bytes": 19}
    removed = {f"ab/{HASH}.{suffix}" for suffix in ("bin", "idx", "ok")}
    removed |= {"ab/tmpx1y2z3_4.part", f"triton/{HASH}/kernel.cubin"}
    assert every_file(cache) == files_before - removed
    assert every_file(cache.parent / "outside") == outside
    status, out = run("cache", "--clear")
    assert status == 0
    assert "deleted 0 files" in out
    assert "weftgrad tune --clear" in out


def test_clearing_removes_folders_that_became_empty(tmp_path, monkeypatch, run):
    (tmp_path / "ab").mkdir()
    (tmp_path / "cd").mkdir()  # it was empty before, so it may belong to somebody else
    (tmp_path / "ab" / f"{HASH}.bin").write_bytes(b"1")
    tmp_path.chmod(0o700)
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)  # the cache folder itself may be a link, as the user chose it
    monkeypatch.setenv("WEFTGRAD_CACHE", str(link))
    assert run("cache", "--clear")[0] == 0
    assert every_file(tmp_path) == {"cd"}


def test_a_cache_of_another_user_is_left_alone(cache, run, monkeypatch):
    files_before = every_file(cache)
    monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    status, out = run("cache", "--clear", "--json")
    report = json.loads(out)
    assert (status, report["is_usable"], report["deleted"]) == (1, False, {"files": 0, "bytes": 0})
    assert report["failures"]
    assert every_file(cache) == files_before


def test_files_that_cannot_be_deleted(cache, monkeypatch):
    def refuse(*arguments: Any, **options: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "unlink", refuse)
    content = cache_files.delete_files(cache, ["kernels"])
    assert (content.files, content.failures) == (0, [f"ab/{HASH}.bin: Operation not permitted"])


def test_a_cache_that_is_off(monkeypatch, run):
    monkeypatch.setenv("WEFTGRAD_CACHE", "off")
    for words in (("cache",), ("cache", "--clear")):
        status, out = run(*words)
        assert status == 0
        assert "the cache is off" in out
    status, out = run("cache", "--json")
    assert (status, json.loads(out)["is_off"]) == (0, True)
