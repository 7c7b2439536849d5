"""`weftgrad launch -n 4 train.py ARGS`: start a program in several processes that `weftgrad.distributed` joins.

It finds the `mpiexec` of the MPI library, which starts the processes; here or, with `--hosts`, on several machines.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Mapping
from pathlib import Path

__all__ = ["add_options", "find_mpiexec", "launch_command"]

_SECONDS_TO_END = 5.0
_MISSING = (
    "weftgrad launch: there is no mpiexec beside Python and none on PATH; pip install 'weftgrad[distributed]', or name "
    "one by --mpiexec"
)


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the command's description and options to its parser."""
    command.description = (
        "Starts a Python program in several processes, by the mpiexec of the installed MPI library. There may be more "
        "processes than cores. The exit status is the program's."
    )
    command.add_argument("-n", "--processes", type=int, default=2, metavar="N", help="number of processes (default: 2)")
    command.add_argument("--hosts", metavar="NAMES", help="machines, separated by commas (default: this one)")
    command.add_argument(
        "--restarts", type=int, default=0, metavar="N", help="start all processes again, up to N times, after a failure"
    )
    command.add_argument("--no-bind", action="store_true", help="let every process use all cores of its machine")
    command.add_argument("--mpiexec", metavar="PATH", help="the mpiexec to use")
    command.add_argument("--dry-run", action="store_true", help="print the command line, and start nothing")
    command.add_argument("-m", "--module", action="store_true", help="the program is a module, as in python -m")
    command.add_argument("program", help="file of the program, or its module's name with -m")
    command.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Start the processes, and start them again after failures. Return the last exit status."""
    mpiexec = options.mpiexec or find_mpiexec()
    if mpiexec is None:
        print(_MISSING, file=sys.stderr)
        return 2
    if options.processes < 1 or options.restarts < 0:
        print("weftgrad launch: -n needs a number from 1, --restarts one from 0", file=sys.stderr)
        return 2
    command = launch_command(mpiexec, flavour_of(mpiexec), options)
    if options.dry_run:
        print(" ".join(command))
        return 0
    run_id = os.environ.get("TORCHELASTIC_RUN_ID", secrets.token_hex(4))
    for attempt in range(options.restarts + 1):
        variables = {
            "TORCHELASTIC_RUN_ID": run_id,
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "TORCHELASTIC_MAX_RESTARTS": str(options.restarts),
        }
        status, was_ended = _run_once(command, variables)
        if status == 0 or status == 128 + signal.SIGINT or was_ended:
            break
        remaining = options.restarts - attempt
        print(
            f"weftgrad launch: the program has ended with status {status}; "
            + (f"starting it again ({remaining} more restarts)" if remaining else "no restarts are left"),
            file=sys.stderr,
            flush=True,
        )
    return status


def find_mpiexec() -> str | None:
    """Return the path of the mpiexec beside this Python, where MPI's wheels put theirs, or on PATH; None if missing."""
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    for folder in folders:
        for name in ("mpiexec", "mpirun"):
            if os.access(folder / name, os.X_OK):
                return str(folder / name)
    return shutil.which("mpiexec") or shutil.which("mpirun")


def flavour_of(mpiexec: str) -> str:
    """Return which launcher an mpiexec is: `hydra` (MPICH, Intel MPI), `openmpi`, or "" for others."""
    try:
        answer = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = (answer.stdout + answer.stderr).lower()
    if "open mpi" in text or "open-mpi" in text or "openrte" in text or "prrte" in text:
        return "openmpi"
    return "hydra" if "hydra" in text or "intel(r) mpi" in text else ""


def launch_command(mpiexec: str, flavour: str, options: argparse.Namespace) -> list[str]:
    """Return the command line that starts the processes.

    Args:
        mpiexec: Path of the mpiexec.
        flavour: What `flavour_of` returns for it.
        options: The options of the command.
    """
    command = [mpiexec, "-n", str(options.processes)]
    if flavour == "hydra":
        # The ranks that are left report what has happened and end themselves, before the launcher would kill them.
        command.append("-disable-auto-cleanup")
        if options.hosts:
            command += ["-hosts", options.hosts]
    elif flavour == "openmpi":
        command.append("--oversubscribe")
        if options.hosts:
            command += ["--host", options.hosts]
    elif options.hosts:
        command += ["-host", options.hosts]
    command += [sys.executable, "-m", "weftgrad.distributed.rank_program"]
    command += [] if options.no_bind else ["--bind"]
    command += ["-m"] if options.module else []
    return [*command, options.program, *options.arguments]


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask mpiexec to end, and kill it if it waits for ranks that do not."""
    process.terminate()
    timer = threading.Timer(_SECONDS_TO_END, process.kill)
    timer.daemon = True
    timer.start()


def _run_once(command: list[str], variables: Mapping[str, str]) -> tuple[int, bool]:
    """Run mpiexec to its end, and pass SIGTERM on to it.

    Returns:
        Its exit status, and whether SIGTERM has ended it.
    """
    process = subprocess.Popen(command, env={**os.environ, **variables})
    signals = []

    def pass_on(number: int, frame: object) -> None:
        signals.append(number)
        _end_process(process)

    previous = signal.signal(signal.SIGTERM, pass_on)
    try:
        while True:
            try:
                status = process.wait()
                break
            except KeyboardInterrupt:  # mpiexec has got it, too, and ends the processes
                continue
    finally:
        signal.signal(signal.SIGTERM, previous)
    return (status if status >= 0 else 128 - status), bool(signals)
