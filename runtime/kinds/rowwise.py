"""Rowwise ops: results from whole rows, the elements along `dim` or the trailing dimensions of `normalized_shape`.

Schedules: `long` (CPU: a vector is a stretch of a row), `short` (CPU: rows of one element), `columns` (CPU: rows
whose elements lie apart while neighbouring rows lie side by side; a vector goes across rows), and `group` (GPU: a
work-group a row, any length). A result that is summed over rows is first one partial row a work-item, in scratch
memory, which `finish` adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, contiguous_strides, meta
from ..dtypes import DType
from ..errors import ArgumentError, ShapeError, UnsupportedDType
from ..layout import collapse, normalize_dim, pack_longs, split
from ..schedules import choose
from . import Planned, Request, slot
from .pointwise import compute_dtype, elementwise_parts, result_dtype

__all__ = ["RowPlanner", "plan"]


@dataclass(frozen=True, slots=True)
class Rows:
    """How a call's tensors fall into rows: the full shape, and which of its dimensions a row takes."""

    shape: tuple[int, ...]
    dims: tuple[int, ...]

    @property
    def outer(self) -> tuple[int, ...]:
        """The shape of what is one a row."""
        return tuple(size for d, size in enumerate(self.shape) if d not in self.dims)

    @property
    def inner(self) -> tuple[int, ...]:
        """The shape of a row."""
        return tuple(self.shape[d] for d in self.dims)

    @property
    def kept(self) -> tuple[int, ...]:
        """The shape of what is one a row, the row's dimensions kept with size 1."""
        return tuple(1 if d in self.dims else size for d, size in enumerate(self.shape))

    def strides(self, layout: Meta, scope: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Strides of a tensor from row to row, and inside a row."""
        if scope == "column":
            return (0,) * len(self.outer), layout.strides
        if scope == "row":
            own = layout.strides
            if layout.shape != self.outer:
                own = tuple(s for d, s in enumerate(own) if d not in self.dims)
            return own, (0,) * len(self.dims)
        own = layout.strides
        return tuple(s for d, s in enumerate(own) if d not in self.dims), tuple(own[d] for d in self.dims)


def plan(request: Request) -> Planned:
    """Results' layouts and the launches that compute them."""
    rows = _rows(request)
    computed = compute_dtype(request)
    if computed.kind != "f":
        raise UnsupportedDType(f"{request.where()}: takes floating dtypes, not {computed.name}; convert with .to()")
    shapes = [_result_shape(request, rows, output.scope) for output in request.record.outputs]
    outputs = request.into or tuple(
        meta(result_dtype(o, computed, request), shape, None, request.device)
        for o, shape in zip(request.record.outputs, shapes, strict=True)
    )
    for given, shape in zip(outputs, shapes, strict=True):
        if given.shape != shape:
            raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(given.shape)}")
    if not any(o.numel for o in outputs):
        return Planned(outputs)
    return RowPlanner(request, rows, computed, outputs).planned()


def _rows(request: Request) -> Rows:
    where = request.where()
    full = [(o, m) for o, m in request.tensors if o.scope == "full"]
    shape = full[0][1].shape
    for operand, layout in full[1:]:
        if layout.shape != shape:
            raise ShapeError(
                f"{where}: {operand.name} has shape {list(layout.shape)} and {full[0][0].name} {list(shape)}; "
                "they must be the same: expand() the smaller one first"
            )
    if request.record.detail["rows"] == "dim":
        found = Rows(shape, (normalize_dim(request.static("dim"), len(shape), where),) if shape else ())  # type: ignore[arg-type]
    else:
        found = Rows(shape, _trailing(request, shape))
    for operand, layout in request.tensors:
        if operand.scope == "column" and layout.shape != found.inner:
            raise ShapeError(
                f"{where}: {operand.name} has shape {list(layout.shape)}, but a row has shape {list(found.inner)}"
            )
        if operand.scope == "row" and layout.shape not in (found.outer, found.kept):
            raise ShapeError(
                f"{where}: {operand.name} has shape {list(layout.shape)}, but there is one a row: "
                f"it must have shape {list(found.outer)}"
            )
    return found


def _trailing(request: Request, shape: tuple[int, ...]) -> tuple[int, ...]:
    given = request.static("normalized_shape")
    wanted = (given,) if isinstance(given, int) else tuple(given)  # type: ignore[arg-type]
    if not wanted or shape[len(shape) - len(wanted) :] != wanted:
        raise ShapeError(
            f"{request.where()}: normalized_shape is {list(wanted)}, so the input must have a shape that ends in "
            f"{list(wanted)}, not {list(shape)}"
        )
    return tuple(range(len(shape) - len(wanted), len(shape)))


def _result_shape(request: Request, rows: Rows, scope: str) -> tuple[int, ...]:
    if scope == "row":
        keep = "keepdim" in request.record.statics and request.static("keepdim")
        return rows.kept if keep else rows.outer
    return rows.inner if scope == "column" else rows.shape


class RowPlanner:
    """The buffers of one call in the kernels' order, their strides, and the choice of a schedule."""

    def __init__(self, request: Request, rows: Rows, computed: DType, outputs: tuple[Meta, ...]):
        self.request, self.computed, self.outputs = request, computed, outputs
        self.able = request.capabilities
        record = request.record
        layouts: list[tuple[Meta, str, str]] = []
        self.numbers: list[tuple[str, str]] = []
        for position, (operand, given) in enumerate(zip(record.operands, request.operands, strict=True)):
            if given is None:
                if operand.role not in ("absent", "optional"):
                    raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor")
            elif isinstance(given, Meta) == (operand.role in ("scalar", "number")):
                wanted = "a tensor" if operand.role not in ("scalar", "number") else "a number"
                raise ArgumentError(f"{request.where()}: {operand.name} must be {wanted}")
            elif isinstance(given, Meta):
                layouts.append((given, operand.type, operand.scope))
            else:
                self.numbers.append((f"NUMBER_{position}", str(len(self.numbers))))
        layouts += [(m, o.type, o.scope) for o, m in zip(record.outputs, outputs, strict=True)]
        # An empty tensor has no buffer: its parameter gets that of a result, which the kernel then does not touch.
        stand_in = next(k for k, (m, _, _) in reversed(list(enumerate(layouts))) if m.numel)
        self.places = tuple(k if m.numel else stand_in for k, (m, _, _) in enumerate(layouts))
        self.slots = tuple(slot(m, type) for m, type, _ in layouts)
        self.scopes = tuple(scope for _, _, scope in layouts)
        strides = [rows.strides(m, scope) for m, _, scope in layouts]
        self._measure(rows, [outer for outer, _ in strides], [inner for _, inner in strides])
        self.chosen = choose(request, "rowwise", {"rows": self.rows, "n": self.n}, computed.name)
        self.columns = [k for k in range(len(layouts) - len(outputs), len(layouts)) if self.scopes[k] == "column"]

    def _measure(self, rows: Rows, outer: list[tuple[int, ...]], inner: list[tuple[int, ...]]) -> None:
        """Merge dimensions. The positions of a row keep their order; rows come in the order of the widest results."""
        guide = next((s for s, scope in reversed(list(zip(outer, self.scopes, strict=True))) if scope == "full"))
        self.size, merged = collapse(rows.outer, [*outer, guide])
        self.stride = merged[:-1]
        self.inner, steps = collapse(rows.inner, [*inner, contiguous_strides(rows.inner)])
        self.step = steps[:-1]
        self.n = self.rows = 1
        for size in rows.inner:
            self.n *= size
        for size in rows.outer:
            self.rows *= size
        if not self.size:
            self.size, self.stride = (1,), [(0,)] * len(self.stride)
        if not self.inner:
            self.inner, self.step = (1,), [(1,)] * len(self.step)

    @property
    def element(self) -> str:
        return self.computed.compute

    @property
    def lanes(self) -> int:
        return self.able.lanes // 2 if self.element == "double" else self.able.lanes

    def planned(self) -> Planned:
        if self.able.style == "triton":
            from .triton.rowwise import planned as of_triton

            return of_triton(self)
        if self.able.style == "gpu":
            return self._group()
        if self._goes_across():
            return self._across()
        return self._along()

    # what every launch has

    def _classes(self) -> list[tuple[str, str]]:
        """How a stretch of a row lies in each buffer (see the template)."""
        found = []
        for k, step in enumerate(self.step):
            if self.scopes[k] == "row":
                continue
            kind = step[0] if len(step) == 1 and step[0] in (0, 1) else 2
            found.append((f"CLASS{k}", str(kind)))
        return found

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
        record = self.request.record
        text = record.texts[self.request.device.driver.target]
        every = (
            (f"SCHEDULE_{entry.upper()}", "1"), ("OUTER", str(len(self.size))), ("INNER", str(len(self.inner))),
            ("SCRATCH", str(scratch)), ("NUMBERS", str(len(self.numbers))), *self.numbers, *defines,
        )  # fmt: skip
        slots = self.slots + (Slot({"float": "float32", "double": "float64"}[self.element], "value"),) * scratch
        instance = Instance(
            record.name, text.source, f"{record.name}_{entry}", self.element, lanes, slots, every, text.functions
        )
        numbers = tuple(range(len(self.numbers)))
        buffers = self.places + tuple(range(len(self.slots), len(slots)))
        return Step(instance, buffers, pack_longs(geometry), size, local, max(self.rows * self.n, 1), numbers)

    def _geometry(
        self, rows: int, chunk: int, parts: int, size: Sequence[int], stride: Sequence[Sequence[int]]
    ) -> list[int]:
        table = [rows, self.n, chunk, parts, *size, *(x for s in stride for x in s)]
        return [*table, *self.inner, *(x for s in self.step for x in s)]

    @property
    def scratch_bytes(self) -> int:
        return 8 if self.element == "double" else 4

    def _with_sums(self, entry: str, lanes: int, parts: int, chunk: int, local: int, **more: object) -> Planned:
        """A launch over rows, and the one that adds up what it left in scratch memory."""
        geometry = self._geometry(self.rows, chunk, parts, self.size, self.stride)
        count = len(self.columns)
        steps = []
        if parts:
            steps.append(self._launch(entry, lanes, geometry, (parts * local,), (local,), count, **more))  # type: ignore[arg-type]
        width, items, group = self.n, 1, 1
        if self.able.style == "gpu":
            group = min(64, self.able.max_group)
            width, items = 1, -(-self.n // group) * group
        elif self.n * parts > 32 * 1024:
            width, items = split(self.n, self.able.cores, 64)
        geometry = self._geometry(self.rows, width, parts, self.size, self.stride)
        steps.append(self._launch("finish", lanes, geometry, (items,), (group,), count))
        nbytes = max(parts, 1) * self.n * self.scratch_bytes
        return Planned(self.outputs, tuple(steps), (nbytes,) * count)

    # CPU

    def _along(self) -> Planned:
        """A vector is a stretch of a row."""
        lanes = self.lanes
        while lanes > max(self.n, 2):
            lanes //= 2
        entry = "long" if self.n >= lanes else "short"
        wanted = elementwise_parts(self.rows * self.n, self.able.cores, self.chosen["parts"])
        chunk, parts = split(self.rows, wanted) if self.rows else (0, 0)
        if self.columns:
            return self._with_sums(entry, lanes, parts, chunk, 1, defines=self._classes())
        keep = entry == "long" and bool(self.request.record.detail.get("keep"))
        kept = -(-self.n // 64) * 64  # an aligned row a work-item
        geometry = self._geometry(self.rows, chunk, kept, self.size, self.stride)
        defines = [*self._classes(), *self._streams(lanes)]
        step = self._launch(entry, lanes, geometry, (parts,), (1,), int(keep), defines)
        return Planned(self.outputs, (step,), (parts * kept * self.scratch_bytes,) if keep else ())

    def _streams(self, lanes: int) -> list[tuple[str, str]]:
        """Results so large that storing them had better bypass the caches: whole aligned vectors of a fresh tensor."""
        found = []
        least = self.chosen["stream"] or self.request.capabilities.stream_rows
        for k, layout in enumerate(self.outputs, len(self.slots) - len(self.outputs)):
            whole = self.n % lanes == 0 and lanes == self.lanes and self.step[k] == (1,)
            fresh = self.request.into is None and layout.nbytes >= least and self.scopes[k] == "full"
            if whole and fresh and layout.dtype.storage == self.element:
                found.append((f"STREAM{k}", "1"))
        return found

    def _goes_across(self) -> bool:
        """Whether neighbouring rows lie side by side, in the results that have rows, and there are enough of them."""
        if self.columns or self.size[-1] < self.lanes // 2 or self.n == 1:
            return False
        wide = [k for k, scope in enumerate(self.scopes) if scope == "full"]
        apart = any(self.step[k] != (1,) for k in wide)
        return apart and all(self.stride[k][-1] in (0, 1) for k in wide)

    def _across(self) -> Planned:
        """A vector goes across neighbouring rows."""
        width = self.size[-1]
        slabs = self.rows // width
        size, stride = self.size[:-1], [s[:-1] for s in self.stride]
        across = [s[-1] for s in self.stride]
        if not size:
            size, stride = (1,), [(0,)] * len(stride)
        parts = elementwise_parts(self.rows * self.n, self.able.cores, self.chosen["parts"])
        chunk, items = split(slabs, parts)
        block, blocks = split(width, -(-parts // items), self.lanes)
        keep = bool(self.request.record.detail.get("keep"))
        geometry = [*self._geometry(slabs, chunk, items * blocks, size, stride), width, block, *across]
        defines = [(f"ACROSS{k}", str(s if s in (0, 1) else 2)) for k, s in enumerate(across)]
        merged = self.size
        self.size = size
        step = self._launch("columns", self.lanes, geometry, (items, blocks), (1, 1), int(keep), defines)
        self.size = merged
        kept = items * blocks * self.n * self.lanes * self.scratch_bytes
        return Planned(self.outputs, (step,), (kept,) if keep else ())

    # GPU

    def _group(self) -> Planned:
        """A work-group a row; where there are sums over rows, a work-group many rows."""
        most = min(self.able.max_group, self.chosen["group"], self.able.local_memory // (2 * self.scratch_bytes))
        group = 1
        while group * 2 <= most and group < max(self.n, 32):
            group *= 2
        defines = (("GROUP", str(group)),)
        if self.columns:
            chunk, parts = split(self.rows, 4 * self.able.cores) if self.rows else (0, 0)
            return self._with_sums("group", 1, parts, chunk, group, defines=defines)
        geometry = self._geometry(self.rows, 1, self.rows, self.size, self.stride)
        return Planned(self.outputs, (self._launch("group", 1, geometry, (self.rows * group,), (group,), 0, defines),))
