"""Plan rowwise ops (softmax, layer_norm, …): results computed from whole rows.

A row is the elements along `dim`, or along the trailing dimensions given by `normalized_shape`. Operands and results
have a scope: `full` (the full shape), `row` (one element per row) or `column` (one element per position in a row).

Schedules: `long` (CPU: vectors along a row), `short` (CPU: rows of one element), `columns` (CPU: rows are strided while
neighbouring rows are contiguous, so vectors go across rows) and `group` (GPU: a work-group per row, of any length). A
result of scope `column` is a sum over rows: each work-item writes a partial row to scratch memory, and
`finish` adds them up. `triton/rowwise.py` plans the same for Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, contiguous_strides, meta
from ..dtypes import DType
from ..errors import ArgumentError, ShapeError, UnsupportedDType
from ..layout import collapse, normalize_dim, pack_longs, split
from ..schedules import choose
from . import Planned, Request, slot
from .elementwise import compute_dtype, elementwise_parts, result_dtype

__all__ = ["PLANS", "RowPlanner", "plan"]


@dataclass(frozen=True, slots=True)
class Rows:
    """How a call's tensors divide into rows: the full shape, and the dimensions of it that make up a row."""

    shape: tuple[int, ...]
    dims: tuple[int, ...]

    @property
    def outer(self) -> tuple[int, ...]:
        """Shape of a tensor with one element per row."""
        return tuple(size for d, size in enumerate(self.shape) if d not in self.dims)

    @property
    def inner(self) -> tuple[int, ...]:
        """Shape of a row."""
        return tuple(self.shape[d] for d in self.dims)

    @property
    def keepdim_shape(self) -> tuple[int, ...]:
        """Shape of a tensor with one element per row, with the row's dimensions as size 1 (`keepdim`)."""
        return tuple(1 if d in self.dims else size for d, size in enumerate(self.shape))

    def strides(self, layout: Meta, scope: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return a tensor's strides from row to row, and inside a row. scope: full, row or column."""
        if scope == "column":
            return (0,) * len(self.outer), layout.strides
        if scope == "row":
            strides = layout.strides
            if layout.shape != self.outer:
                strides = tuple(s for d, s in enumerate(strides) if d not in self.dims)
            return strides, (0,) * len(self.dims)
        strides = layout.strides
        return tuple(s for d, s in enumerate(strides) if d not in self.dims), tuple(strides[d] for d in self.dims)


def plan(request: Request) -> Planned:
    """Plan a rowwise op: the layouts of its results, its launches and scratch.

    Raises:
        UnsupportedDType: if the operands are not floating.
        ShapeError: if an operand's shape does not match its scope, or `out` has another shape than the result.
    """
    rows = _rows(request)
    common_dtype = compute_dtype(request)
    if common_dtype.kind != "f":
        raise UnsupportedDType(f"{request.where()}: takes floating dtypes, not {common_dtype.name}; convert with .to()")
    shapes = [_result_shape(request, rows, output.scope) for output in request.record.outputs]
    outputs = request.into or tuple(
        meta(result_dtype(o, common_dtype, request), shape, None, request.device)
        for o, shape in zip(request.record.outputs, shapes, strict=True)
    )
    for layout, shape in zip(outputs, shapes, strict=True):
        if layout.shape != shape:
            raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(layout.shape)}")
    if not any(o.numel for o in outputs):
        return Planned(outputs)
    return RowPlanner(request, rows, common_dtype, outputs).plan()


def _rows(request: Request) -> Rows:
    """Divide the full shape into rows. Raise `ShapeError` if an operand's shape does not match its scope."""
    where = request.where()
    full_operands = [(o, m) for o, m in request.tensors if o.scope == "full"]
    shape = full_operands[0][1].shape
    for operand, layout in full_operands[1:]:
        if layout.shape != shape:
            raise ShapeError(
                f"{where}: {operand.name} has shape {list(layout.shape)} and {full_operands[0][0].name} {list(shape)}; "
                "they must be the same: expand() the smaller one first"
            )
    if request.record.detail["rows"] == "dim":
        dim = normalize_dim(request.static("dim"), len(shape), where)
        division = Rows(shape, (dim,) if shape else ())
    else:
        division = Rows(shape, _normalized_dims(request, shape))
    for operand, layout in request.tensors:
        if operand.scope == "column" and layout.shape != division.inner:
            raise ShapeError(
                f"{where}: {operand.name} has shape {list(layout.shape)}, but a row has shape {list(division.inner)}"
            )
        if operand.scope == "row" and layout.shape not in (division.outer, division.keepdim_shape):
            raise ShapeError(
                f"{where}: {operand.name} has shape {list(layout.shape)}, but it has one element per row: "
                f"it must have shape {list(division.outer)}"
            )
    return division


def _normalized_dims(request: Request, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the trailing dimensions that the static argument `normalized_shape` names."""
    normalized_shape = request.static("normalized_shape")
    row_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not row_shape or shape[len(shape) - len(row_shape) :] != row_shape:
        raise ShapeError(
            f"{request.where()}: normalized_shape is {list(row_shape)}, so the input must have a shape that ends in "
            f"{list(row_shape)}, not {list(shape)}"
        )
    return tuple(range(len(shape) - len(row_shape), len(shape)))


def _result_shape(request: Request, rows: Rows, scope: str) -> tuple[int, ...]:
    """Return the shape of a result of this scope."""
    if scope == "row":
        keep = request.optional_static("keepdim", False)
        return rows.keepdim_shape if keep else rows.outer
    return rows.inner if scope == "column" else rows.shape


class RowPlanner:
    """Plan one call: its buffers in the order of the kernel's parameters, their strides, and the schedule.

    Attributes:
        slots, buffers, scopes: kernel parameter, buffer position and scope of each tensor; inputs, then outputs.
        outer_sizes, outer_strides: merged dimensions from row to row, and each tensor's strides along them.
        inner_sizes, inner_strides: the same inside a row.
        rows, n: number of rows, and elements of a row.
        params: parameters of the schedule.
        column_outputs: positions of the results that are sums over rows.
    """

    def __init__(self, request: Request, rows: Rows, common_dtype: DType, outputs: tuple[Meta, ...]):
        self.request, self.common_dtype, self.outputs = request, common_dtype, outputs
        self.caps = request.capabilities
        record = request.record
        tensors: list[tuple[Meta, str, str]] = []
        self.numbers: list[tuple[str, str]] = []
        for position, (operand, argument) in enumerate(zip(record.operands, request.operands, strict=True)):
            if argument is None:
                if operand.role not in ("absent", "optional"):
                    raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor")
            elif isinstance(argument, Meta) == (operand.role in ("scalar", "number")):
                expected_kind = "a tensor" if operand.role not in ("scalar", "number") else "a number"
                raise ArgumentError(f"{request.where()}: {operand.name} must be {expected_kind}")
            elif isinstance(argument, Meta):
                tensors.append((argument, operand.type, operand.scope))
            else:
                self.numbers.append((f"NUMBER_{position}", str(len(self.numbers))))
        tensors += [(m, o.type, o.scope) for o, m in zip(record.outputs, outputs, strict=True)]
        # An empty tensor has no buffer. The kernel does not access it, so pass the buffer of another tensor instead.
        nonempty = next(k for k, (m, _, _) in reversed(list(enumerate(tensors))) if m.numel)
        self.buffers = tuple(k if m.numel else nonempty for k, (m, _, _) in enumerate(tensors))
        self.slots = tuple(slot(m, type) for m, type, _ in tensors)
        self.scopes = tuple(scope for _, _, scope in tensors)
        strides = [rows.strides(m, scope) for m, _, scope in tensors]
        self._measure(rows, [outer for outer, _ in strides], [inner for _, inner in strides])
        self.params = choose(request, "rowwise", {"rows": self.rows, "n": self.n}, common_dtype.name)
        self.column_outputs = [
            k for k in range(len(tensors) - len(outputs), len(tensors)) if self.scopes[k] == "column"
        ]

    def _measure(self, rows: Rows, outer: list[tuple[int, ...]], inner: list[tuple[int, ...]]) -> None:
        """Merge dimensions. Positions in a row keep their order; rows are iterated in the last full result's order."""
        order = next((s for s, scope in reversed(list(zip(outer, self.scopes, strict=True))) if scope == "full"))
        self.outer_sizes, merged = collapse(rows.outer, [*outer, order])
        self.outer_strides = merged[:-1]
        self.inner_sizes, inner_strides = collapse(rows.inner, [*inner, contiguous_strides(rows.inner)])
        self.inner_strides = inner_strides[:-1]
        self.n = self.rows = 1
        for size in rows.inner:
            self.n *= size
        for size in rows.outer:
            self.rows *= size
        if not self.outer_sizes:
            self.outer_sizes, self.outer_strides = (1,), [(0,)] * len(self.outer_strides)
        if not self.inner_sizes:
            self.inner_sizes, self.inner_strides = (1,), [(1,)] * len(self.inner_strides)

    @property
    def element(self) -> str:
        """The compute type, by its OpenCL name."""
        return self.common_dtype.compute

    @property
    def lanes(self) -> int:
        """Vector width in elements."""
        return self.caps.lanes // 2 if self.element == "double" else self.caps.lanes

    def plan(self) -> Planned:
        """Choose a schedule and build its launches."""
        return PLANS[self.caps.style](self)

    def plan_triton(self) -> Planned:
        """Build the launches for Triton."""
        from .triton.rowwise import plan  # lazy: Triton devices only

        return plan(self)

    def plan_rows(self) -> Planned:
        """Choose a CPU schedule and build its launches."""
        if self._should_vectorise_across_rows():
            return self._plan_across_rows()
        return self._plan_along_rows()

    # Parts of every launch

    def _stride_classes(self) -> list[tuple[str, str]]:
        """Return a macro per full or column buffer with the class of its stride inside a row (see the template)."""
        classes = []
        for k, strides in enumerate(self.inner_strides):
            if self.scopes[k] == "row":
                continue
            stride_class = strides[0] if len(strides) == 1 and strides[0] in (0, 1) else 2
            classes.append((f"CLASS{k}", str(stride_class)))
        return classes

    def _launch(
        self,
        entry: str,
        lanes: int,
        geometry: Sequence[int],
        size: tuple[int, ...],
        local: tuple[int, ...],
        scratch: int = 0,
        defines: Sequence[tuple[str, str]] = (),
    ) -> Step:
        """Build the launch of the kernel `entry`. scratch: number of buffers in scratch memory."""
        record = self.request.record
        text = self.request.text
        all_defines = (
            (f"SCHEDULE_{entry.upper()}", "1"), ("OUTER", str(len(self.outer_sizes))),
            ("INNER", str(len(self.inner_sizes))), ("SCRATCH", str(scratch)), ("NUMBERS", str(len(self.numbers))),
            *self.numbers, *defines,
        )  # fmt: skip
        slots = self.slots + (Slot({"float": "float32", "double": "float64"}[self.element], "value"),) * scratch
        instance = Instance(
            record.name, text.source, f"{record.name}_{entry}", self.element, lanes, slots, all_defines, text.functions
        )
        numbers = tuple(range(len(self.numbers)))
        buffers = self.buffers + tuple(range(len(self.slots), len(slots)))
        return Step(instance, buffers, pack_longs(geometry), size, local, max(self.rows * self.n, 1), numbers)

    def _geometry(
        self, rows: int, chunk: int, parts: int, outer_sizes: Sequence[int], outer_strides: Sequence[Sequence[int]]
    ) -> list[int]:
        """Return the integers of the kernel's geometry struct."""
        header = [rows, self.n, chunk, parts, *outer_sizes, *(x for s in outer_strides for x in s)]
        return [*header, *self.inner_sizes, *(x for s in self.inner_strides for x in s)]

    @property
    def scratch_itemsize(self) -> int:
        """Bytes of one element of scratch memory."""
        return 8 if self.element == "double" else 4

    def _plan_with_sums(
        self,
        entry: str,
        lanes: int,
        parts: int,
        chunk: int,
        local: int,
        defines: Sequence[tuple[str, str]] = (),
    ) -> Planned:
        """Plan a launch over rows that leaves partial rows in scratch memory, and the launch that adds them up."""
        geometry = self._geometry(self.rows, chunk, parts, self.outer_sizes, self.outer_strides)
        count = len(self.column_outputs)
        steps = []
        if parts:
            steps.append(self._launch(entry, lanes, geometry, (parts * local,), (local,), count, defines))
        width, items, group = self.n, 1, self.caps.group_size(64)
        if not self.caps.takes_runs:
            width, items = 1, -(-self.n // group) * group
        elif self.n * parts > 32 * 1024:
            width, items = split(self.n, self.caps.cores, 64)
        geometry = self._geometry(self.rows, width, parts, self.outer_sizes, self.outer_strides)
        steps.append(self._launch("finish", lanes, geometry, (items,), (group,), count))
        nbytes = max(parts, 1) * self.n * self.scratch_itemsize
        return Planned(self.outputs, tuple(steps), (nbytes,) * count)

    # CPU

    def _plan_along_rows(self) -> Planned:
        """Plan `long` or `short`: vectors along a row."""
        lanes = self.lanes
        while lanes > max(self.n, 2):
            lanes //= 2
        entry = "long" if self.n >= lanes else "short"
        target_parts = elementwise_parts(self.rows * self.n, self.caps.cores, self.params["parts"])
        chunk, parts = split(self.rows, target_parts) if self.rows else (0, 0)
        if self.column_outputs:
            return self._plan_with_sums(entry, lanes, parts, chunk, 1, defines=self._stride_classes())
        # Values that two sweeps need are kept in scratch memory, one row per work-item.
        caches_row = entry == "long" and bool(self.request.record.detail.get("caches_row"))
        row_capacity = -(-self.n // 64) * 64  # scratch for one aligned row per work-item
        geometry = self._geometry(self.rows, chunk, row_capacity, self.outer_sizes, self.outer_strides)
        defines = [*self._stride_classes(), *self._stream_defines(lanes)]
        step = self._launch(entry, lanes, geometry, (parts,), (1,), int(caches_row), defines)
        return Planned(self.outputs, (step,), (parts * row_capacity * self.scratch_itemsize,) if caches_row else ())

    def _stream_defines(self, lanes: int) -> list[tuple[str, str]]:
        """Return a macro for each large, new, vector-aligned result to write with non-temporal stores."""
        stream_defines = []
        min_nbytes = self.params["min_streamed_nbytes"] or self.request.capabilities.stream_rows
        for k, layout in enumerate(self.outputs, len(self.slots) - len(self.outputs)):
            is_aligned = self.n % lanes == 0 and lanes == self.lanes and self.inner_strides[k] == (1,)
            is_large_output = self.request.into is None and layout.nbytes >= min_nbytes and self.scopes[k] == "full"
            if is_aligned and is_large_output and layout.dtype.storage == self.element:
                stream_defines.append((f"STREAM{k}", "1"))
        return stream_defines

    def _should_vectorise_across_rows(self) -> bool:
        """Return True if rows are strided, and enough neighbouring rows are contiguous in every full tensor."""
        if self.column_outputs or self.outer_sizes[-1] < self.lanes // 2 or self.n == 1:
            return False
        full_buffers = [k for k, scope in enumerate(self.scopes) if scope == "full"]
        is_strided = any(self.inner_strides[k] != (1,) for k in full_buffers)
        return is_strided and all(self.outer_strides[k][-1] in (0, 1) for k in full_buffers)

    def _plan_across_rows(self) -> Planned:
        """Plan `columns`: vectors across neighbouring rows."""
        width = self.outer_sizes[-1]
        row_blocks = self.rows // width
        outer_sizes, outer_strides = self.outer_sizes[:-1], [s[:-1] for s in self.outer_strides]
        lane_strides = [s[-1] for s in self.outer_strides]
        if not outer_sizes:
            outer_sizes, outer_strides = (1,), [(0,)] * len(outer_strides)
        parts = elementwise_parts(self.rows * self.n, self.caps.cores, self.params["parts"])
        chunk, items = split(row_blocks, parts)
        block, blocks = split(width, -(-parts // items), self.lanes)
        caches_row = bool(self.request.record.detail.get("caches_row"))
        geometry = [
            *self._geometry(row_blocks, chunk, items * blocks, outer_sizes, outer_strides), width, block, *lane_strides
        ]  # fmt: skip
        defines = [(f"ACROSS{k}", str(s if s in (0, 1) else 2)) for k, s in enumerate(lane_strides)]
        merged_sizes = self.outer_sizes
        self.outer_sizes = outer_sizes  # `_launch` defines OUTER by it: without the dimension across which vectors go
        step = self._launch("columns", self.lanes, geometry, (items, blocks), (1, 1), int(caches_row), defines)
        self.outer_sizes = merged_sizes
        scratch = items * blocks * self.n * self.lanes * self.scratch_itemsize
        return Planned(self.outputs, (step,), (scratch,) if caches_row else ())

    # GPU

    def plan_groups(self) -> Planned:
        """Plan `group`: one work-group per row; if a result is a sum over rows, one work-group per run of rows."""
        max_group = min(
            self.caps.max_group, self.params["group"], self.caps.local_memory // (2 * self.scratch_itemsize)
        )
        group = 1
        while group * 2 <= max_group and group < max(self.n, 32):
            group *= 2
        defines = (("GROUP", str(group)),)
        if self.column_outputs:
            chunk, parts = split(self.rows, 4 * self.caps.cores) if self.rows else (0, 0)
            return self._plan_with_sums("group", 1, parts, chunk, group, defines=defines)
        geometry = self._geometry(self.rows, 1, self.rows, self.outer_sizes, self.outer_strides)
        return Planned(self.outputs, (self._launch("group", 1, geometry, (self.rows * group,), (group,), 0, defines),))


PLANS = ByStyle("rowwise ops", cpu=RowPlanner.plan_rows, gpu=RowPlanner.plan_groups, triton=RowPlanner.plan_triton)
