"""Start programs in several ranks for `test_distributed*.py`, by mpiexec or by `weftgrad launch`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["Ended", "find_launcher", "launch", "run_ranks"]

_LIMIT_SECONDS = 300.0  # kernels are compiled anew, on cores that ranks share


@dataclass(frozen=True)
class Ended:
    """How a program of several ranks has ended: exit status, output, and errors."""

    status: int
    output: str
    errors: str


def find_launcher() -> str:
    """Return the path of mpiexec; skip the test where mpi4py or an MPI library is missing."""
    pytest.importorskip("mpi4py")
    from weftgrad.cli.launch import find_mpiexec

    mpiexec = find_mpiexec()
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    return mpiexec


def run_ranks(program: str, check: str | list[str], count: int) -> str:
    """Run a program with its arguments under plain mpiexec; every rank must print `ok RANK`. Return the output."""
    arguments = [check] if isinstance(check, str) else check
    command = [find_launcher(), "-n", str(count), sys.executable, str(Path(__file__).parent / program), *arguments]
    ended = _run(command)
    assert ended.status == 0, ended.output + ended.errors
    assert sorted(line for line in ended.output.splitlines() if line.startswith("ok ")) == [
        f"ok {rank}" for rank in range(count)
    ], ended.output + ended.errors
    return ended.output


def launch(program: str, arguments: list[str], count: int, *options: str) -> Ended:
    """Run a program by `weftgrad launch`."""
    command = [
        sys.executable, "-m", "weftgrad.cli", "launch", "-n", str(count), "--mpiexec", find_launcher(), *options,
        str(Path(__file__).parent / program), *arguments,
    ]  # fmt: skip
    return _run(command)


def _run(command: list[str]) -> Ended:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD"):
        environment.pop(name, None)
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    try:
        output, errors = process.communicate(timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, errors = process.communicate(timeout=30)
        pytest.fail(f"hangs: {output}{errors}")
    return Ended(process.returncode, output, errors)
