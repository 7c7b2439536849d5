"""Run one benchmark process per device and let them alternate, so that slow phases of a machine hit every device alike.

A shared machine has fast and slow minutes. If two devices are measured one after the other, one may get the better
minutes. Here their processes alternate after every round of samples. One process works at a time and the others wait.
The next turn goes to the process with the fewest rows done, among equals to the one that has waited longest. A process
that ends for any reason drops out, and the others go on.
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

_POSITION = struct.Struct("<qq")  # a process's position: part of the run, row
_PATIENCE = 60.0  # seconds that a finished or interrupted process has to write its report and exit


class Turn:
    """A process's side. ends: the file descriptors to read and to write, as `3,4`; empty: the process works alone."""

    def __init__(self, ends: str = ""):
        self._ends = tuple(int(end) for end in ends.split(",")) if ends else ()
        for end in self._ends:
            os.set_inheritable(end, False)  # a child process would keep the pipe open
        self._position = (0, 0)

    def wait_at(self, part: int, row: int) -> None:
        """Report the position (`part`, `row`), and wait until this process is next."""
        self._position = part, row
        self.pass_on()

    def pass_on(self) -> None:
        """Wait for the next turn in the middle of a row. Raise KeyboardInterrupt if the controlling process is gone."""
        if self._ends:
            reads, writes = self._ends
            try:
                os.write(writes, _POSITION.pack(*self._position))
                grant = os.read(reads, 1)
            except BrokenPipeError:
                grant = b""
            if not grant:
                raise KeyboardInterrupt

    @property
    def is_alone(self) -> bool:
        """True if there are no other processes."""
        return not self._ends


class _Member:
    """The controlling side of one process.

    position: its (part, row). is_waiting: it waits for a turn. last_turn: the number of its last turn. has_ended: it
    dropped out.
    """

    def __init__(self, start: Start):
        grants_read, self._grants = os.pipe()
        self.requests, requests_write = os.pipe()
        self.position, self.last_turn = (0, 0), 0
        self.is_waiting = self.has_ended = False
        try:
            self.process = start((grants_read, requests_write))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(grants_read)
            os.close(requests_write)

    def read_request(self) -> None:
        """Read a request for a turn; an end of file means that the process ended."""
        message = os.read(self.requests, _POSITION.size)
        if len(message) == _POSITION.size:
            self.position, self.is_waiting = _POSITION.unpack(message), True
        else:
            self.close()

    def grant(self, turn: int) -> None:
        """Give the process its turn."""
        self.is_waiting, self.last_turn = False, turn
        try:
            os.write(self._grants, b"!")
        except BrokenPipeError:  # it ended while it waited
            self.close()

    def close(self) -> None:
        """Close the pipes of a process that dropped out."""
        if not self.has_ended:
            self.has_ended = True
            os.close(self.requests)
            os.close(self._grants)

    def end(self) -> None:
        """Wait up to a minute for the process to exit, then kill it."""
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def rotate(starts: Sequence[Start], between_turns: Callable[[], None]) -> tuple[list[int], bool]:
    """Start processes and give them turns until all have ended.

    On Ctrl-C every process gets one SIGINT. A process that does not exit within a minute is killed.

    Args:
        starts: each starts a process that inherits two file descriptors, the ends of its `Turn`.
        between_turns: called between two turns, when no process works.

    Returns:
        The exit statuses (negative: a signal's number), and whether there was a Ctrl-C.
    """
    members: list[_Member] = []
    interrupted = False
    turn = 0
    try:
        try:
            for start in starts:
                members.append(_Member(start))
            while active := [member for member in members if not member.has_ended]:
                if all(member.is_waiting for member in active):
                    between_turns()
                    turn += 1
                    min(active, key=lambda member: (member.position, member.last_turn)).grant(turn)
                    continue
                ready = select.select([member.requests for member in active], [], [])[0]
                for member in active:
                    if member.requests in ready:
                        member.read_request()
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
            member.close()
    return [member.process.returncode for member in members], interrupted
