"""Jobs of which one rank fails at a random moment: all others end with an error that names it, and nothing is left.

The thorough check of 100 jobs: `WEFTGRAD_TEST_KILLS=100 pytest tests/test_distributed_kills.py`.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed_ranks import find_launcher, launch

PROGRAM = "distributed_kills.py"
FAULTS = ("SIGKILL", "raise", "exit", "_exit", "SIGSTOP")
ROUNDS = int(os.environ.get("WEFTGRAD_TEST_KILLS", "4"))
SECONDS = 30.0
SECONDS_IF_STOPPED = 4.0
_MARK = "WEFTGRAD_TEST_JOB"


def survivors(job: str) -> list[str]:
    """Return the command lines of processes that the job has started, and that still run."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{_MARK}={job}".encode() not in (process / "environ").read_bytes().split(b"\0"):
                continue
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended, or is not ours
            continue
        if command and process.name != str(os.getpid()):
            lines.append(f"{process.name} {command}")
    return lines


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_rank_fails_at_a_random_moment(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_launcher()
    fault, count = FAULTS[seed % len(FAULTS)], 2 + seed // len(FAULTS) % 3 if ROUNDS > 4 else 2 + seed % 3
    victim = random.Random(seed).randrange(count)
    seconds = SECONDS_IF_STOPPED if fault == "SIGSTOP" else SECONDS
    job = f"{os.getpid()}-{seed}"
    monkeypatch.setenv(_MARK, job)
    begin = time.monotonic()
    ended = launch(PROGRAM, [str(tmp_path), str(seconds), fault, str(victim), str(seed)], count)
    elapsed = time.monotonic() - begin
    facts = f"{fault} of rank {victim} of {count}, {elapsed:.1f} s\n{ended.output}\n{ended.errors}"
    assert "WRONG" not in ended.output, facts
    reports = dict(re.findall(r"REPORT (\d+) [\d.]+ (.*?)(?=REPORT|\n|$)", ended.output))
    assert sorted(int(rank) for rank in reports if int(rank) != victim) == [r for r in range(count) if r != victim], (
        facts
    )
    for rank, text in reports.items():
        assert f"rank {victim}" in text or int(rank) == victim, facts
    if fault != "exit":  # by sys.exit(0), which the others turn into errors
        assert ended.status != 0, facts
    deadline = time.monotonic() + 60.0
    while (left := survivors(job)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, facts
    _check_what_is_on_disk(tmp_path, facts)


def _check_what_is_on_disk(folder: Path, facts: str) -> None:
    """A folder that says that it is a checkpoint is one."""
    command = [sys.executable, str(Path(__file__).parent / PROGRAM), str(folder), "0", "none", "0", "0"]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert loaded.returncode == 0, loaded.stderr + facts
