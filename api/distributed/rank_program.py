"""Run a program as one rank of `weftgrad launch`: `python -m weftgrad.distributed.rank_program [-m] PROGRAM ARGS`.

It sets torchrun's variables from those of the MPI launcher, gives the rank its share of the machine's cores, and runs
the program as `__main__`, in a child process. MPICH's launcher may kill all ranks as soon as it sees that one has died.
The parent keeps the rank's connection to the launcher open for some seconds longer, in which the other ranks report
what has happened, and end.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import time
from collections.abc import Sequence

from .launchers import Place, read_environment

__all__ = ["main", "share_of_cores"]

_PR_SET_PDEATHSIG = 1
_SECONDS_AFTER_DEATH = 6.0  # a little more than `world._GRACE_SECONDS`, in which the other ranks end
_SECONDS_AFTER_ERROR = 1.0  # the rank itself has waited for the others; this is for their last output


def main(arguments: Sequence[str]) -> None:
    """Run the program.

    Args:
        arguments: `--bind` or nothing, `-m` or nothing, the program, and its arguments.
    """
    words = list(arguments)
    place = read_environment()
    os.environ.update({"RANK": str(place.rank), "WORLD_SIZE": str(place.size)})
    if place.local_rank >= 0:
        os.environ["LOCAL_RANK"] = str(place.local_rank)
    if place.local_size > 0:
        os.environ["LOCAL_WORLD_SIZE"] = str(place.local_size)
    if words[0] == "--bind":
        del words[0]
        if hasattr(os, "sched_setaffinity") and place.local_size > 1:
            os.sched_setaffinity(0, share_of_cores(place, sorted(os.sched_getaffinity(0))))
    if hasattr(os, "fork"):
        _supervise()
    is_module = words[0] == "-m"
    if is_module:
        del words[0]
    sys.argv = words
    if is_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        runpy.run_path(words[0], run_name="__main__")


def _supervise() -> None:
    """Return in a child process; in the parent, wait for the child and end as it has ended."""
    child = os.fork()
    if child == 0:
        _die_with_parent()
        return
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # MPICH's launcher reports the death of a rank by it
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: os.kill(child, received))
    _, status = os.waitpid(child, 0)  # from here on this process has no child
    code = os.waitstatus_to_exitcode(status)
    deadline = time.monotonic() + (_SECONDS_AFTER_DEATH if code < 0 else _SECONDS_AFTER_ERROR)
    while code and time.monotonic() < deadline and _is_another_rank_running():
        time.sleep(0.05)
    os._exit(code if code >= 0 else 128 - code)


def _is_another_rank_running() -> bool:
    """Return whether a process beside this one, which supervises another rank of this machine, has a child."""
    try:
        return any(_children(sibling) for sibling in _children(os.getppid()))
    except OSError:  # not Linux
        return True


def _children(process: int) -> list[int]:
    with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def _die_with_parent() -> None:
    """Have Linux kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def share_of_cores(place: Place, cores: Sequence[int]) -> list[int]:
    """Return the cores of a rank: neighbours, as many for each rank of the machine; one, if there are more ranks.

    Args:
        place: The rank's place, with its number on the machine and the number of ranks there.
        cores: The machine's cores.

    Example:
        >>> from weftgrad.distributed.launchers import Place
        >>> from weftgrad.distributed.rank_program import share_of_cores
        >>> share_of_cores(Place('MPICH', 1, 2, 1, 2), [0, 1, 2, 3])
        [2, 3]
    """
    count = len(cores) // place.local_size
    if not count:
        return [cores[place.local_rank % len(cores)]]
    start = place.local_rank * count
    return list(cores[start : start + count])


if __name__ == "__main__":
    main(sys.argv[1:])
