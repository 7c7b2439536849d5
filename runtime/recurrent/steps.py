"""Building blocks of recurrent layers: row positions of each step, moving views, and launches repeated for every step.

A plan is looked up once; each step only moves the starts of its views. The functions at the end work on whole matrices
and record nothing for autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from .. import host_data
from ..context import current_stream, state
from ..device import Meta, meta
from ..dispatch import Plan, call_into, empty, plan_into
from ..dtypes import int64
from ..kinds.sequence import sequence_record
from ..records import OpRecord, registry
from ..tensor import Tensor

__all__ = [
    "FIXED", "READ", "ROWS", "WRITTEN", "Geometry", "Launch", "Rows", "StepOperand", "Window", "add_in_place",
    "column_view", "copy_into", "launch_sequence", "new_empty", "new_zeros", "strided_view", "take_rows",
    "transpose_view", "vector_slice",
]  # fmt: skip


class Geometry:
    """Row positions of each step of a batch of sequences, which may differ in length.

    Attributes:
        sizes: The number of sequences that have a step `t`, for each `t`; it never grows.
        length: Number of steps of the longest sequence.
        batch: Number of sequences.
        offsets: The first input row of each step, and the number of all input rows.
        rows: Number of all input rows.
        is_uniform: Whether all sequences have the same length.
    """

    def __init__(self, sizes: Sequence[int]):
        self.sizes = tuple(sizes)
        self.length = len(self.sizes)
        self.batch = self.sizes[0]
        self.offsets = (0, *accumulate(self.sizes))
        self.rows = self.offsets[-1]
        self.is_uniform = self.sizes[-1] == self.batch

    def steps(self, reverse: bool) -> list[tuple[int, tuple[int, int, int, int]]]:
        """Return for each step, in execution order: the number of rows, and its first row in each kind of matrix.

        The kinds are ROWS (inputs), READ and WRITTEN (slots of states) and FIXED (matrices without steps).
        """
        order = range(self.length - 1, -1, -1) if reverse else range(self.length)
        reads, writes = (1, 0) if reverse else (0, 1)
        n = self.batch
        return [(self.sizes[t], (self.offsets[t], (t + reads) * n, (t + writes) * n, 0)) for t in order]

    def rows_of_slots(self, reverse: bool, *, written: bool) -> list[int]:
        """Return for every input row its row in the slots that the steps read or write."""
        slot_rows = [0] * self.rows
        for n, (row, reads, writes, _) in self.steps(reverse):
            first = writes if written else reads
            slot_rows[row : row + n] = range(first, first + n)
        return slot_rows

    def last_rows(self) -> list[int]:
        """Return the slot row of every sequence's last state, for a forward direction."""
        lengths = [sum(size > j for size in self.sizes) for j in range(self.batch)]
        return [length * self.batch + j for j, length in enumerate(lengths)]


Rows = tuple[int, int, int, int]
ROWS, READ, WRITTEN, FIXED = range(4)  # index into `Rows`: the kind of matrix that a window moves over


class Window:
    """A view of some columns of a matrix that moves to the rows of each step.

    Args:
        matrix: The matrix.
        row_kind: ROWS, READ, WRITTEN or FIXED: which of a step's first rows it begins at.
        column: First column.
        width: Number of columns; None: all.
    """

    __slots__ = ("base", "layouts", "pitch", "row_kind", "shape", "view")

    def __init__(self, matrix: Tensor, row_kind: int, column: int = 0, width: int | None = None):
        pitch, step = matrix.meta.strides
        size = matrix.meta.dtype.itemsize
        self.row_kind = row_kind
        self.shape = (matrix.meta.shape[1] if width is None else width, pitch, step)
        self.base = matrix.start + column * step * size
        self.pitch = pitch * size
        self.view = Tensor(matrix.storage, matrix.meta, self.base)

    def layout(self, n: int) -> Meta:
        """Return the layout of the view of `n` rows."""
        width, pitch, step = self.shape
        base_layout = self.view.meta
        return meta(base_layout.dtype, (n, width), (pitch, step), base_layout.device)

    def view_at(self, n: int, rows: tuple[int, ...]) -> Tensor:
        """Return a new view of `n` rows for the step whose first rows are `rows`."""
        return Tensor(self.view.storage, self.layout(n), self.base + rows[self.row_kind] * self.pitch)

    def elements_moved(self, current: Rows, following: Rows) -> int:
        """Return by how many elements the window moves from one step to the other."""
        return (following[self.row_kind] - current[self.row_kind]) * self.shape[1]


StepOperand: TypeAlias = Window | Tensor | float | None
"""An operand of an op that is launched for every step: None stands for one that is absent."""


class Launch:
    """One op that is launched for every step, by `launch(n, rows)`. Operands are windows, fixed tensors, or numbers."""

    def __init__(self, record: OpRecord, operands: Sequence[StepOperand], outs: Sequence[Window]):
        self.record, self.operands, self.outs = record, operands, outs
        arguments = [o for o in (*operands, *outs) if o is not None and not isinstance(o, float)]
        self.tensors = [o.view if isinstance(o, Window) else o for o in arguments]
        self.numbers = [o for o in operands if isinstance(o, float)]
        windows = [o for o in arguments if isinstance(o, Window) and o.row_kind != FIXED]
        self.moving_windows = [(w.view, w.base, w.pitch, w.row_kind) for w in windows]
        self.plans: dict[int, Plan] = {}
        self.stream = current_stream(self.tensors[0].meta.device)
        self.has_active_mode = state().has_active_mode()

    def __call__(self, n: int, rows: tuple[int, ...]) -> None:
        if self.has_active_mode:  # an active mode must see every call, with separate tensors
            return self._run_watched(n, rows)
        plan = self.plans.get(n)
        if plan is None:
            plan = self.plans[n] = self._plan(n, rows)
        for view, base, pitch, row_kind in self.moving_windows:
            view.start = base + rows[row_kind] * pitch
        if plan.run is not None:
            plan.run(self.tensors, self.numbers, self.stream)

    def bind(self, n: int, rows: tuple[int, ...]) -> tuple[list[Tensor | float | None], list[Tensor]]:
        """Return the operands and the results of one step, with new views for the windows."""
        inputs = [o.view_at(n, rows) if isinstance(o, Window) else o for o in self.operands]
        return inputs, [o.view_at(n, rows) for o in self.outs]

    def _plan(self, n: int, rows: tuple[int, ...]) -> Plan:
        inputs, outs = self.bind(n, rows)
        return plan_into(self.record, inputs, (), outs)

    def _run_watched(self, n: int, rows: tuple[int, ...]) -> None:
        inputs, outs = self.bind(n, rows)
        call_into(self.record, inputs, (), outs, in_place=False)


def launch_sequence(
    launch: Launch, n: int, steps: Sequence[Rows], left: Window, reads: Rows, weight: Tensor, stored: str | None = None
) -> None:
    """Run the op of `launch` for all steps in one kernel, including its matrix products.

    Args:
        launch: The op and its operands.
        n: Rows of each step.
        steps: First rows of each step.
        left: Left factor of the products, starting at the rows `reads`.
        reads: First rows of the left factor.
        weight: Right factor, `(width of left, products * units)`.
        stored: Name of the operand to which its product is written as well; None: products stay in the kernel.
    """
    record = sequence_record(launch.record.name)
    first, second = steps[0], steps[min(1, len(steps) - 1)]
    windows = [*launch.operands, *launch.outs, left]
    elements_moved = [o.elements_moved(first, second) if isinstance(o, Window) else 0 for o in windows]
    inputs, outs = launch.bind(n, first)
    for k in record.detail["product_positions"]:
        if record.operands[k].name != stored:
            inputs[k] = None
    inputs += [left.view_at(n, reads), weight]
    plan = plan_into(record, inputs, ((len(steps), *elements_moved),), outs)
    tensors = [o for o in inputs if isinstance(o, Tensor)]
    if plan.run is not None:  # there are rows
        plan.run([*tensors, *outs], [o for o in inputs if isinstance(o, float)], launch.stream)


def new_empty(like: Tensor, *shape: int) -> Tensor:
    """Return an uninitialised tensor of this shape, with the dtype and device of `like`."""
    return empty(meta(like.meta.dtype, shape, None, like.meta.device))


def strided_view(
    tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0
) -> Tensor:
    """Return a view of a contiguous tensor, starting at element `offset`."""
    layout = tensor.meta
    return Tensor(
        tensor.storage, meta(layout.dtype, shape, strides, layout.device), tensor.start + offset * layout.dtype.itemsize
    )


def copy_into(source: Tensor, target: Tensor) -> Tensor:
    """Copy `source` to `target`, and return `target`."""
    if target.meta.numel:
        call_into(registry["copy"], (source,), (None,), (target,), in_place=False)
    return target


def new_zeros(like: Tensor, *shape: int) -> Tensor:
    """Return zeros of this shape, with the dtype and device of `like`."""
    output = new_empty(like, *shape)
    if output.meta.numel:
        call_into(registry["fill"], (output, 0.0), (), (output,), in_place=False)
    return output


def add_in_place(target: Tensor, other: Tensor) -> Tensor:
    """Add `other` to `target` in place, and return `target`."""
    call_into(registry["add"], (target, other), (), (target,), in_place=False)
    return target


def take_rows(matrix: Tensor, rows: Sequence[int]) -> Tensor:
    """Return a copy of these rows of a matrix."""
    index = host_data.from_host(np.array(rows, np.int64), int64, matrix.meta.device)
    return matrix.index_select(0, index)


def transpose_view(matrix: Tensor) -> Tensor:
    """Return a view of a matrix with rows and columns exchanged."""
    (m, n), (s, t) = matrix.meta.shape, matrix.meta.strides
    return Tensor(matrix.storage, meta(matrix.meta.dtype, (n, m), (t, s), matrix.meta.device), matrix.start)


def column_view(matrix: Tensor, first: int, count: int) -> Tensor:
    """Return a view of `count` columns of a row-major matrix, from column `first` on."""
    rows, pitch = matrix.meta.shape[0], matrix.meta.strides[0]
    return strided_view(matrix, (rows, count), (pitch, 1), first)


def vector_slice(vector: Tensor, first: int, count: int) -> Tensor:
    """Return a view of `count` elements of a vector of any stride."""
    step = vector.meta.strides[0]
    return strided_view(vector, (count,), (step,), first * step)
