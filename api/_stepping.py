"""What goes over a sequence step by step: where a step's rows lie, views that move along, and launches of one plan for
step after step; beside these, what works on whole matrices and records nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from .runtime.context import current_stream, state
from .runtime.device import Meta, meta
from .runtime.dispatch import Plan, call_into, empty, plan_into
from .runtime.kinds.sequence import record_of
from .runtime.records import OpRecord, registry
from .runtime.tensor import Tensor

__all__ = [
    "FIXED", "READ", "ROWS", "WRITTEN", "Geometry", "Launch", "Rows", "Window", "add_to", "columns", "copied", "filled",
    "made", "part", "sequence", "taken", "transposed", "viewed",
]  # fmt: skip


class Geometry:
    """Where the rows of each step lie. `sizes`: how many sequences each step has; they never grow."""

    def __init__(self, sizes: Sequence[int]):
        self.sizes = tuple(sizes)
        self.length = len(self.sizes)
        self.batch = self.sizes[0]
        self.offsets = (0, *accumulate(self.sizes))
        self.rows = self.offsets[-1]
        self.regular = self.sizes[-1] == self.batch

    def steps(self, reverse: bool) -> list[tuple[int, tuple[int, int, int, int]]]:
        """For each step in the order of the direction: how many rows, and the first row in inputs, in the slot that it
        reads, in the slot that it writes, and in what has no steps."""
        order = range(self.length - 1, -1, -1) if reverse else range(self.length)
        reads, writes = (1, 0) if reverse else (0, 1)
        n = self.batch
        return [(self.sizes[t], (self.offsets[t], (t + reads) * n, (t + writes) * n, 0)) for t in order]

    def rows_of_slots(self, reverse: bool, *, written: bool) -> list[int]:
        """The row, in the slots that steps read or write, of every row of the inputs."""
        found = [0] * self.rows
        for n, (row, reads, writes, _) in self.steps(reverse):
            first = writes if written else reads
            found[row : row + n] = range(first, first + n)
        return found

    def last_rows(self) -> list[int]:
        """The row in the slots of a forward direction of every sequence's last state."""
        lengths = [sum(size > j for size in self.sizes) for j in range(self.batch)]
        return [length * self.batch + j for j, length in enumerate(lengths)]


Rows = tuple[int, int, int, int]
ROWS, READ, WRITTEN, FIXED = range(4)  # which of a step's first rows a window begins at


class Window:
    """Columns of a matrix, and of its rows those of the step: a view that moves."""

    __slots__ = ("base", "follows", "layouts", "pitch", "shape", "view")

    def __init__(self, matrix: Tensor, follows: int, column: int = 0, width: int | None = None):
        pitch, step = matrix.meta.strides
        size = matrix.meta.dtype.itemsize
        self.follows = follows
        self.shape = (matrix.meta.shape[1] if width is None else width, pitch, step)
        self.base = matrix.start + column * step * size
        self.pitch = pitch * size
        self.view = Tensor(matrix.storage, matrix.meta, self.base)

    def layout(self, n: int) -> Meta:
        width, pitch, step = self.shape
        own = self.view.meta
        return meta(own.dtype, (n, width), (pitch, step), own.device)

    def fresh(self, n: int, rows: tuple[int, ...]) -> Tensor:
        return Tensor(self.view.storage, self.layout(n), self.base + rows[self.follows] * self.pitch)

    def moves(self, one: Rows, other: Rows) -> int:
        """How many elements it goes on from a step with the first rows `one` to the next."""
        return (other[self.follows] - one[self.follows]) * self.shape[1]


class Launch:
    """One op, launched for step after step. operands, outs: windows, tensors that stay, numbers."""

    def __init__(self, record: OpRecord, operands: Sequence[Any], outs: Sequence[Window]):
        self.record, self.operands, self.outs = record, operands, outs
        every = [o for o in (*operands, *outs) if o is not None and not isinstance(o, float)]
        self.tensors = [o.view if isinstance(o, Window) else o for o in every]
        self.numbers = [o for o in operands if isinstance(o, float)]
        windows = [o for o in every if isinstance(o, Window) and o.follows != FIXED]
        self.moving = [(w.view, w.base, w.pitch, w.follows) for w in windows]
        self.plans: dict[int, Plan] = {}
        self.stream = current_stream(self.tensors[0].meta.device)
        self.watched = state().watched()

    def __call__(self, n: int, rows: tuple[int, ...]) -> None:
        if self.watched:  # a mode wants to see every call, with tensors of its own
            return self._seen(n, rows)
        plan = self.plans.get(n)
        if plan is None:
            plan = self.plans[n] = self._plan(n, rows)
        for view, base, pitch, follows in self.moving:
            view.start = base + rows[follows] * pitch
        if plan.run is not None:
            plan.run(self.tensors, self.numbers, self.stream)

    def at(self, n: int, rows: tuple[int, ...]) -> tuple[list[Any], list[Tensor]]:
        given = [o.fresh(n, rows) if isinstance(o, Window) else o for o in self.operands]
        return given, [o.fresh(n, rows) for o in self.outs]

    def _plan(self, n: int, rows: tuple[int, ...]) -> Plan:
        given, outs = self.at(n, rows)
        return plan_into(self.record, given, (), outs)

    def _seen(self, n: int, rows: tuple[int, ...]) -> None:
        given, outs = self.at(n, rows)
        call_into(self.record, given, (), outs, in_place=False)


def sequence(
    launch: Launch, n: int, steps: Sequence[Rows], left: Window, reads: Rows, weight: Tensor, stored: str | None = None
) -> None:
    """The op of `launch` for all `steps`, of n rows each, in one kernel with the products that it takes.

    left: multiplied with `weight` (width of left, products x units), beginning at the rows `reads`. stored: the product
    that is written to its operand.
    """
    record = record_of(launch.record.name)
    first, second = steps[0], steps[min(1, len(steps) - 1)]
    windows: list[Any] = [*launch.operands, *launch.outs, left]
    moves = [o.moves(first, second) if isinstance(o, Window) else 0 for o in windows]
    given, outs = launch.at(n, first)
    for k in record.detail["products"]:
        if record.operands[k].name != stored:
            given[k] = None
    given += [left.fresh(n, reads), weight]
    plan = plan_into(record, given, ((len(steps), *moves),), outs)
    tensors = [o for o in given if isinstance(o, Tensor)]
    if plan.run is not None:  # there are rows
        plan.run([*tensors, *outs], [o for o in given if isinstance(o, float)], launch.stream)


def made(like: Tensor, *shape: int) -> Tensor:
    return empty(meta(like.meta.dtype, shape, None, like.meta.device))


def viewed(tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0) -> Tensor:
    """Elements of a contiguous tensor, from number `offset`."""
    own = tensor.meta
    return Tensor(
        tensor.storage, meta(own.dtype, shape, strides, own.device), tensor.start + offset * own.dtype.itemsize
    )


def copied(source: Tensor, target: Tensor) -> Tensor:
    if target.meta.numel:
        call_into(registry["copy"], (source,), (None,), (target,), in_place=False)
    return target


def filled(like: Tensor, *shape: int) -> Tensor:
    found = made(like, *shape)
    if found.meta.numel:
        call_into(registry["fill"], (found, 0.0), (), (found,), in_place=False)
    return found


def add_to(one: Tensor, other: Tensor) -> Tensor:
    """one + other, written over `one`."""
    call_into(registry["add"], (one, other), (), (one,), in_place=False)
    return one


def taken(matrix: Tensor, rows: Sequence[int]) -> Tensor:
    """Rows of a matrix, by number."""
    from .factories import tensor

    index = tensor(list(rows), dtype="int64", device=matrix.meta.device)
    return matrix.index_select(0, index)  # type: ignore[no-any-return]


def transposed(matrix: Tensor) -> Tensor:
    (m, n), (s, t) = matrix.meta.shape, matrix.meta.strides
    return Tensor(matrix.storage, meta(matrix.meta.dtype, (n, m), (t, s), matrix.meta.device), matrix.start)


def columns(matrix: Tensor, first: int, count: int) -> Tensor:
    rows, pitch = matrix.meta.shape[0], matrix.meta.strides[0]
    return viewed(matrix, (rows, count), (pitch, 1), first)


def part(vector: Tensor, first: int, count: int) -> Tensor:
    """Elements of a vector of any stride."""
    step = vector.meta.strides[0]
    return viewed(vector, (count,), (step,), first * step)
