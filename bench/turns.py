"""Processes that take turns, so that what they measure is of the same minutes.

A machine that others use too has fast and slow minutes. Of two devices that are measured one after another, one may get
the better ones; of two whose processes take turns, a round of samples each, both get the same. One process works at a
time, the others wait: next is the one that is behind in rows, of several the one that has waited longest. A process
that ends, however it ends, is out, and the rest go on.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
from collections.abc import Callable, Sequence

__all__ = ["Turn", "rotate"]

Start = Callable[[tuple[int, int]], "subprocess.Popen[bytes]"]

_PLACE = struct.Struct("<qq")  # the part of a run, and the row, that a process is at
_PATIENCE = 60.0  # seconds for a process to end when its work is done, or it was interrupted: it writes what it has


class Turn:
    """A process's own end. ends: the file descriptors that it reads and writes, as `3,4`; none: it works alone."""

    def __init__(self, ends: str = ""):
        self._ends = tuple(int(end) for end in ends.split(",")) if ends else ()
        for end in self._ends:
            os.set_inheritable(end, False)  # or what this process starts would keep its place
        self._place = (0, 0)

    def take(self, part: int, row: int) -> None:
        """Let the others work until this process is next, which is now at this row of this part."""
        self._place = part, row
        self.pass_on()

    def pass_on(self) -> None:
        """Let the others work, in the middle of a row. KeyboardInterrupt if nobody gives turns any more."""
        if self._ends:
            reads, writes = self._ends
            try:
                os.write(writes, _PLACE.pack(*self._place))
                given = os.read(reads, 1)
            except BrokenPipeError:
                given = b""
            if not given:
                raise KeyboardInterrupt

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return not self._ends


class _Member:
    """A process that takes turns. place: what it is at. waits: whether for its turn. last: the turn that it had last.
    ended: whether it is out."""

    def __init__(self, start: Start):
        theirs, self._grants = os.pipe()
        self.requests, writes = os.pipe()
        self.place, self.last = (0, 0), 0
        self.waits = self.ended = False
        try:
            self.process = start((theirs, writes))
        except BaseException:
            self.leave()
            raise
        finally:
            os.close(theirs)
            os.close(writes)

    def heard(self) -> None:
        """Take what it says: where it is, or by ending, that it is out."""
        said = os.read(self.requests, _PLACE.size)
        if len(said) == _PLACE.size:
            self.place, self.waits = _PLACE.unpack(said), True
        else:
            self.leave()

    def go(self, turn: int) -> None:
        """It is next."""
        self.waits, self.last = False, turn
        try:
            os.write(self._grants, b"!")
        except BrokenPipeError:  # it ended while it waited
            self.leave()

    def leave(self) -> None:
        """Give its place up."""
        if not self.ended:
            self.ended = True
            os.close(self.requests)
            os.close(self._grants)

    def end(self) -> None:
        """Wait for its end, a minute at most."""
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def rotate(starts: Sequence[Start], look: Callable[[], None]) -> tuple[list[int], bool]:
    """Start processes and give them turns until all have ended: their exit statuses (negative: a signal's number), and
    whether there was a Ctrl-C, of which each is told once. What does not end within a minute then is killed.

    starts: each starts a process that inherits the two file descriptors it is given, as its `Turn`'s. look: called
    between two turns, when no process works.
    """
    members: list[_Member] = []
    interrupted = False
    turn = 0
    try:
        try:
            for start in starts:
                members.append(_Member(start))
            while running := [member for member in members if not member.ended]:
                if all(member.waits for member in running):
                    look()
                    turn += 1
                    min(running, key=lambda member: (member.place, member.last)).go(turn)
                    continue
                ready = select.select([member.requests for member in running], [], [])[0]
                for member in running:
                    if member.requests in ready:
                        member.heard()
        except KeyboardInterrupt:
            interrupted = True
            for member in members:
                member.process.send_signal(signal.SIGINT)
        for member in members:
            member.end()
    finally:
        for member in members:
            if member.process.poll() is None:
                member.process.kill()
                member.process.wait()
            member.leave()
    return [member.process.returncode for member in members], interrupted
