"""Ranks that fail: all others end with an error that names the rank and the collective, and nothing hangs.

`test_distributed_kills` has failures at random moments.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from distributed_ranks import Ended, launch

_CALL = r"all_reduce #3 \(SUM, float32, shape \[8\], 32 bytes\)"


def reports(ended: Ended) -> dict[int, tuple[float, str]]:
    """Return the seconds and the error that each rank has reported."""
    matches = re.findall(r"REPORT (\d+) ([\d.]+) (.*?)(?=REPORT|\n|$)", ended.output)  # MPI may join two ranks' lines
    return {int(rank): (float(seconds), text) for rank, seconds, text in matches}


@pytest.mark.parametrize(
    ("fault", "seconds", "count", "expected"),
    [
        ("killed", 60, 4, rf"RankFailure: {_CALL}: rank 1 was killed"),
        ("raising", 60, 2, rf"RankFailure: {_CALL}: rank 1 failed: ValueError: a bad batch"),
        ("ended", 60, 2, rf"DistBackendError: {_CALL}: rank 1 has ended its program without calling it"),
        ("stopped", 3, 2, rf"CollectiveTimeout: {_CALL}: not completed within 3 s; rank 1 does not answer"),
        (
            "slow", 3, 2,
            rf"CollectiveTimeout: {_CALL}: not completed within 3 s; rank 1 has completed all_reduce #2 .* and called "
            r"none since; its main thread is in .*distributed_faults.py:\d+ \(fail\)",
        ),
    ],
)  # fmt: skip
def test_a_rank_that_does_not_come(fault: str, seconds: float, count: int, expected: str) -> None:
    ended = launch("distributed_faults.py", [fault, str(seconds)], count)
    assert ended.status != 0
    errors = reports(ended)
    assert sorted(errors) == [rank for rank in range(count) if rank != 1], ended.output + ended.errors
    assert any(re.match(expected, text) for _, text in errors.values()), errors
    for elapsed, text in errors.values():
        assert "rank 1" in text
        assert _CALL.replace("\\", "") in text
        assert elapsed < seconds + 10


@pytest.mark.parametrize(
    ("fault", "other"),
    [
        ("shape", "all_reduce #3 (SUM, float32, shape [9], 36 bytes)"),
        ("size", "all_reduce #3 (SUM, float32, shape [100000], 400000 bytes)"),
        ("dtype", "all_reduce #3 (SUM, int32, shape [8], 32 bytes)"),
        ("reduction", "all_reduce #3 (MAX, float32, shape [8], 32 bytes)"),
        ("order", "broadcast #3 (float32, shape [8], 32 bytes, root 0)"),
        ("asynchronous", "all_reduce #3 (SUM, float64, shape [8], 64 bytes)"),
    ],
)
def test_ranks_that_call_different_collectives(fault: str, other: str) -> None:
    ended = launch("distributed_faults.py", [fault, "60"], 2)
    assert ended.status != 0
    errors = reports(ended)
    assert sorted(errors) == [0, 1], ended.output + ended.errors
    expected = f"rank 0 called all_reduce #3 (SUM, float32, shape [8], 32 bytes); rank 1 called {other}"
    for _, text in errors.values():
        assert expected in text
    assert any(text.startswith("CollectiveMismatch") for _, text in errors.values())


def test_a_message_of_another_shape() -> None:
    ended = launch("distributed_faults.py", ["message", "20"], 2)
    assert ended.status != 0
    _, text = reports(ended)[0]
    assert text.startswith(
        "CollectiveMismatch: recv #0 (float32, shape [8], 32 bytes, root 1): the message of rank 1 is"
    )
    assert "send #0 (float32, shape [9], 36 bytes, root 0)" in text


def test_ranks_end_one_after_the_other() -> None:
    ended = launch("distributed_faults.py", ["one_after_the_other"], 3)
    assert ended.status == 0, ended.output + ended.errors
    assert "received from 1, is complete: False" in ended.output


def test_rank_0_is_killed_after_the_others_have_ended() -> None:
    assert launch("distributed_faults.py", ["rank_0_last"], 2).status != 0


def test_restarts(tmp_path: Path) -> None:
    ended = launch("distributed_faults.py", ["restart", str(tmp_path / "progress")], 2, "--restarts", "2")
    assert ended.status == 0, ended.output + ended.errors
    assert sorted(ended.output.split("\n"))[-2:] == ["resumed at 7 by 0 of 2", "resumed at 7 by 1 of 2"]
    assert "starting it again (2 more restarts)" in ended.errors


def test_a_training_that_fails_three_times_ends_with_the_same_bits(tmp_path: Path) -> None:
    """It goes on from the checkpoint before each failure, in the middle of an epoch."""
    texts = []
    for failures in (0, 3):
        folder = tmp_path / str(failures)
        folder.mkdir()
        ended = launch("distributed_resume.py", [str(folder), str(failures)], 2, "--restarts", "3")
        assert ended.status == 0, ended.output + ended.errors
        assert ended.errors.count("starting it again") == failures
        texts += re.findall(r"BITS (\w+) attempt (\d) from step (\d+) to (\d+)", ended.output)
    (whole, *start), (resumed, *end) = texts
    assert start == ["0", "0", "24"]
    assert end == ["3", "18", "24"]
    assert resumed == whole
