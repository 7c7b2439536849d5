"""Sort ops: rows in order, the first few of them, and places found in rows that are in order.

CPU. Many rows, or short ones: a work-item sorts whole rows (`rows`). A few long ones: radix sort by bytes, whose passes
(`count`, `scan`, `scatter`) share every row among the cores. The first k of a long row: every core finds the first k of
its part, and one sorts what they found. GPU: rows of up to `RANKED` elements by counting, for each, what comes before
it (`rank`), longer ones by radix sort with digits of 4 bits; the first k by ranks of parts, of what is left of them,
and so on. Elements are moved as raw bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from ..layout import collapse, normalize_dim, pack_longs, split
from ..schedules import Choice, choose
from . import Planned, Request, slot
from .pointwise import elementwise_parts

__all__ = ["RANKED", "Rows", "levels", "plan"]

RANKED = 512  # elements of a row or part in which an element's rank is counted
_LEAST_PART = 16384  # elements of a row that are worth a core of their own
_SEPARATE = 4096  # elements up to which rows are sorted whole, however few there are
_GPU_LEAST = 256
_INFINITE = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


@dataclass(frozen=True, slots=True)
class Rows:
    """What is to be sorted: `rows` rows of n elements of `bits` bits, of which the first k are wanted.

    sizes, strides: the dimensions beside the rows, and how far apart input's and result's elements are along them.
    steps: the same along the row. form: of the keys: 0 unsigned, 1 signed, 2 floating. infinite: the bits of infinity.
    """

    request: Request
    rows: int
    n: int
    k: int
    descending: bool
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], tuple[int, ...]]
    steps: tuple[int, int]
    dtype: DType

    @property
    def raw(self) -> DType:
        return self.dtype if self.dtype.kind == "i" else dtypes.raw(self.dtype)

    @property
    def bits(self) -> int:
        return 8 * self.dtype.itemsize

    @property
    def form(self) -> int:
        return {"b": 0, "u": 0, "i": 1, "f": 2}[self.dtype.kind]

    def schedule(self) -> Choice:
        """What is chosen for it."""
        sizes = {"rows": self.rows, "n": self.n, "k": self.k}
        return choose(self.request, "sort", sizes, self.dtype.name, "sort")

    @property
    def infinite(self) -> int:
        return _INFINITE.get(self.dtype.name, 0)


def plan(request: Request) -> Planned:
    """Results' layouts and the launches of a sort op."""
    for operand, given in zip(request.record.operands, request.operands, strict=True):
        if not isinstance(given, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor; make one with tensor()")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: has no form that writes into a given tensor")
    if request.record.detail["sort"] in ("search", "bins"):
        return _search(request)
    return _order(request)


def _order(request: Request) -> Planned:
    whole = request.operands[0]
    assert isinstance(whole, Meta)
    dim = normalize_dim(request.static("dim"), whole.ndim, request.where())  # type: ignore[arg-type]
    n = whole.shape[dim] if whole.ndim else 1
    top = request.record.detail["sort"] == "top"
    k = request.static("k") if top else n
    descending = request.static("largest" if top else "descending")
    assert isinstance(k, int)
    if not 0 <= k <= n:
        raise IndexOutOfRange(f"{request.where()}: k is {k}, and dimension {dim} has {n} elements")
    shape = whole.shape[:dim] + (k,) + whole.shape[dim + 1 :] if whole.ndim else ()
    outputs = (meta(whole.dtype, shape, None, request.device), meta(dtypes.int64, shape, None, request.device))
    if 0 in shape:
        return Planned(outputs)
    beside = [d for d in range(whole.ndim) if d != dim]
    sizes, strides = collapse(
        tuple(shape[d] for d in beside), [tuple(m.strides[d] for d in beside) for m in (whole, outputs[0])]
    )
    steps = (whole.strides[dim], outputs[0].strides[dim]) if whole.ndim else (1, 1)
    rows = Rows(
        request, prod(sizes), n, k, bool(descending), sizes, (strides[0], strides[1]), steps, whole.dtype
    )  # fmt: skip
    style = request.capabilities.style
    if style == "triton":
        from .triton.sort import launch

        steps_of, scratch = launch(rows)
    else:
        steps_of, scratch = (_Cpu if style == "cpu" else _Gpu)(rows).launches()
    return Planned(outputs, tuple(steps_of), tuple(scratch))


def levels(n: int, k: int) -> list[tuple[int, int]]:
    """How the first k of n are found by ranks: (elements there are, how many parts of RANKED they make) a level."""
    found = []
    while n > RANKED:
        parts = -(-n // RANKED)
        found.append((n, parts))
        n = parts * k
    return [*found, (n, 1)]


class _Launches:
    """Collects launches of OpenCL kernels, which all take the same geometry."""

    group = 1
    digit = 8

    def __init__(self, rows: Rows):
        self.rows = rows
        self.able = rows.request.capabilities
        self.chosen = rows.schedule()
        self.least = self.chosen.get("part") or _LEAST_PART
        self.wide = rows.bits > 32 or rows.n >= 1 << 32
        self.item = 16 if self.wide else 8
        self.steps: list[Step] = []
        self.scratch: list[int] = []

    def add(
        self, entry: str, size: int, work: int, defines: Mapping[str, int], *, n: int | None = None, parts: int = 1,
        part: int = 0, units: int = 1, shift: int = 0, capacity: int = 0, scratch: tuple[int, int] = (3, 3),
    ) -> None:  # fmt: skip
        """One launch of `size` work-items. scratch: the fourth and the fifth buffer."""
        r = self.rows
        suffix = "UL" if self.wide else "U"
        given = {
            f"SCHEDULE_{entry.upper()}": 1, "OUTER": len(r.sizes), "BITS": r.bits, "FORM": r.form,
            "WIDE": int(self.wide), "INFINITE": f"{r.infinite:#x}{suffix}", "GROUP": self.group,
            "RADIX": 1 << self.digit, **defines,
        }  # fmt: skip
        flip = (1 << r.bits) - 1 if r.descending else 0
        flip -= 1 << 64 if flip >> 63 else 0
        geometry = pack_longs((
            r.rows, n or r.n, r.k, flip, parts, part or r.n, units, shift, capacity, *r.steps,
            *(s for each in r.strides for s in each), *r.sizes,
        ))  # fmt: skip
        slots = (Slot(r.raw.name, "raw"), Slot(r.raw.name, "raw"), Slot("int64", "raw"), Slot("int64", "raw"),
                 Slot("int64", "raw"))  # fmt: skip
        text = r.request.record.texts[r.request.device.driver.target]
        named = tuple((name, str(value)) for name, value in given.items())
        # Named for the kind, not the op: the ops share kernels.
        instance = Instance("sort", text.source, f"sort_{entry}", r.raw.compute, 1, slots, named)
        size = -(-size // self.group) * self.group
        self.steps.append(Step(instance, (0, 1, 2, *scratch), geometry, (size,), (self.group,), work))

    def allocate(self, nbytes: int) -> int:
        self.scratch.append(nbytes)
        return 2 + len(self.scratch)

    def passes(self, parts_wanted: int) -> None:
        """Radix sort: three launches a digit."""
        r = self.rows
        part, parts = split(r.n, parts_wanted)
        items = self.allocate(2 * r.rows * r.n * self.item)
        counts = self.allocate(8 * r.rows * ((parts << self.digit) + 2))
        units, total = r.rows * parts, r.rows * r.n
        for shift in range(0, r.bits, self.digit):
            first = {"FIRST": int(shift == 0)}
            last = {"LAST": int(shift + self.digit == r.bits)}
            for entry, size, work, defines in (
                ("count", units, total, first), ("scan", r.rows * self.group, units << self.digit, {}),
                ("scatter", units, total, first | last),
            ):  # fmt: skip
                self.add(entry, size, work, defines, parts=parts, part=part, shift=shift, scratch=(items, counts))


class _Cpu(_Launches):
    """Schedules with a work-item a core."""

    def launches(self) -> tuple[list[Step], list[int]]:
        r, cores = self.rows, self.able.cores
        few = 8 * r.k + 256 <= r.n  # so that most elements are only looked at
        if r.rows >= cores or r.n <= (self.chosen["separate"] or _SEPARATE):
            self._whole(r.n, r.rows, 0, few)
        elif few:
            part, parts = split(r.n, max(1, min(cores // r.rows, r.n // max(self.least, 4 * r.k))))
            if parts == 1:
                self._whole(r.n, r.rows, 0, few)
            else:
                kept = self.allocate(r.rows * parts * r.k * self.item)
                self._rows(r.n, parts, part, r.rows * parts, kept, few, SOURCE=0, TARGET=1)
                self._rows(parts * r.k, 1, parts * r.k, r.rows, kept, False, SOURCE=1, TARGET=0)
        else:
            self.passes(max(1, min(cores // r.rows, r.n // self.least)))
        return self.steps, self.scratch

    def _whole(self, n: int, units: int, kept: int, few: bool) -> None:
        self._rows(n, 1, n, units, kept, few, SOURCE=0, TARGET=0)

    def _rows(self, n: int, parts: int, part: int, units: int, kept: int, few: bool, **defines: int) -> None:
        total = units * part
        most = self.able.cores * (4 if part < self.least else 1)  # each has scratch of its own
        chunk, items = split(units, min(elementwise_parts(total * 8, self.able.cores), most))
        capacity = (min(part, 2 * self.rows.k + 192) if few else part) + 64  # they are read 64 at a time
        work = self.allocate(items * 2 * capacity * self.item)
        defines["ONE"] = int(self.rows.steps[0] == 1)
        self.add(
            "rows", items, total * 8, defines, n=n, parts=parts, part=part, units=chunk, capacity=capacity,
            scratch=(kept or work, work),
        )  # fmt: skip


class _Gpu(_Launches):
    """Schedules with a work-item an element, or a short part of a row."""

    digit = 4

    def launches(self) -> tuple[list[Step], list[int]]:
        r, able = self.rows, self.able
        self.group = min(self.chosen["group"], able.max_group)
        if r.n <= RANKED or 4 * r.k <= RANKED:
            self._ranked()
        else:
            wanted = able.cores * self.chosen["parts"] // r.rows
            self.passes(max(1, min(wanted, r.n // _GPU_LEAST)))
        return self.steps, self.scratch

    def _ranked(self) -> None:
        r = self.rows
        source = 0
        every = levels(r.n, r.k)
        for level, (n, parts) in enumerate(every):
            last = level + 1 == len(every)
            target = 0 if last else self.allocate(r.rows * parts * r.k * self.item)
            part = RANKED if parts > 1 else n
            defines = {"SOURCE": int(level > 0), "TARGET": int(not last)}
            size = r.rows * parts * part
            used = (source or target or 2, target or source or 2)
            self.add("rank", size, size * min(part, 64), defines, n=n, parts=parts, part=part, scratch=used)
            source = target


# Searching


def _search(request: Request) -> Planned:
    sequence, values = request.operands
    assert isinstance(sequence, Meta)
    assert isinstance(values, Meta)
    if sequence.dtype is not values.dtype:
        raise DTypeError(f"{request.where()}: both must be of one dtype; convert one with .to()")
    alone = sequence.ndim == 1
    if not sequence.ndim or not (alone or (values.ndim and sequence.shape[:-1] == values.shape[:-1])):
        raise ShapeError(f"{request.where()}: needs a sequence for all values, or one for each row of them")
    if not (sequence.contiguous and values.contiguous):
        raise ShapeError(f"{request.where()}: takes contiguous tensors")
    out = meta(dtypes.int64, values.shape, None, request.device)
    if not out.numel:
        return Planned((out,))
    n, m = sequence.shape[-1], values.numel if alone else values.shape[-1]
    stride = 0 if alone else n
    able, record = request.capabilities, request.record
    slots = (slot(sequence, "value"), slot(values, "value"), slot(out, "index"))
    bins = record.detail["sort"] == "bins"
    if bins and not (alone and n):
        raise ShapeError(f"{request.where()}: needs one sequence that is not empty")
    right, total = (True, False) if bins else (bool(request.static("right")), bool(request.static("total")))
    flags = {"RIGHT": int(right), "TOTAL": int(total), "BINS": int(bins)}
    buffers = (0, 1, 2) if n else (1, 1, 2)  # an empty tensor has no memory that a kernel could be given
    steps = 2 if bins and able.style == "cpu" else n.bit_length() + 1
    if able.style == "triton":
        from .triton.sort import search_step

        return Planned((out,), (search_step(request, slots, buffers, (out.numel, n, m, stride, steps), flags),))
    text = record.texts[request.device.driver.target]
    group = 1 if able.style == "cpu" else min(128, able.max_group)
    parts = elementwise_parts(out.numel * steps, able.cores) if group == 1 else out.numel
    chunk, items = split(out.numel, parts)
    defines = (("GROUP", str(group)), *((k, str(v)) for k, v in flags.items()))
    instance = Instance("search", text.source, "search", sequence.dtype.compute, 1, slots, defines, text.functions)
    geometry = pack_longs((out.numel, n, m, stride, chunk))
    size = (-(-items // group) * group,)
    return Planned((out,), (Step(instance, buffers, geometry, size, (group,), out.numel * steps),))
