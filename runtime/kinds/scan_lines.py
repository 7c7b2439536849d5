"""The lines of a scan, which the planners for OpenCL and for Triton share."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..schedules import Choice, choose
from . import Request

__all__ = ["Lines", "schedule"]


def schedule(request: Request, lines: Lines) -> Choice:
    """Return the schedule parameters of a scan."""
    main = request.tensors[lines.main_input][1]
    return choose(request, "scan", {"lines": lines.count, "count": lines.length}, main.dtype.name)


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a scan, and where their elements lie.

    Attributes:
        length: elements of a line.
        outer_sizes: sizes of the other dimensions, merged; the rank is at least 1.
        outer_strides: strides along them, of every input, then every output.
        offsets: offset of a line's first element in the order of the scan, for each input and output.
        strides: stride along a line, for each input and output; negative in a reversed scan.
        main_input: position of the largest input, whose memory order decides the schedule.
        is_reversed: whether lines are scanned from their end. `offsets` and `strides` include that already.
    """

    length: int
    outer_sizes: tuple[int, ...]
    outer_strides: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    strides: tuple[int, ...]
    main_input: int
    is_reversed: bool

    @property
    def count(self) -> int:
        """Number of lines."""
        return prod(self.outer_sizes)
