"""Plan sort ops: `sort` and `topk`, which copy elements as raw bits, and searches: `searchsorted` and bin numbers.

CPU:

- `rows`: many rows, or short ones. A work-item sorts whole rows.
- `count`, `scan`, `scatter`: a few long rows. Radix sort with digits of 8 bits; the cores share every row.
- Top k of a long row: every core finds the top k of its part, then one work-item sorts the candidates.

OpenCL GPUs:

- `rank`: rows of up to `_RANK_MAX` elements. For each element, count the elements that come before it.
- Radix sort with digits of 4 bits for longer rows.
- Top k: ranks within parts of `_RANK_MAX` elements, then within the remaining candidates, until one part is left.

`triton/sort.py` has other algorithms for Triton's devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from ..layout import collapse, normalize_dim, pack_longs, split
from . import Planned, Request, slot
from .elementwise import elementwise_parts
from .sort_rows import Rows

__all__ = ["LAUNCHES", "SEARCHES", "plan"]

_MIN_PART = 16384  # minimum elements of a row's part: one core sorts one part
_WHOLE_ROW_MAX = 4096  # longest row that one work-item sorts, even if there are few rows
_GPU_MIN_PART = 256
_RANK_MAX = 512  # longest row, or part of a row, that a GPU sorts by ranks


def plan(request: Request) -> Planned:
    """Plan a sort op: the layouts of its results, its launches and scratch.

    Raises:
        ArgumentError: if an operand is not a tensor, or the call has `out=`.
        IndexOutOfRange: if k exceeds the size of the dimension.
        DTypeError, ShapeError: if the operands of a search do not fit together.
    """
    for operand, layout in zip(request.record.operands, request.operands, strict=True):
        if not isinstance(layout, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor; make one with tensor()")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    if request.record.detail["sort"] in ("search", "bins"):
        return _search(request)
    return _order(request)


def _order(request: Request) -> Planned:
    """Plan `sort` or `topk`: values and indices."""
    source = request.operands[0]
    assert isinstance(source, Meta)
    dim = normalize_dim(request.static("dim"), source.ndim, request.where())
    n = source.shape[dim] if source.ndim else 1
    is_top_k = request.record.detail["sort"] == "top"
    k = n
    if is_top_k:
        k = request.static("k")
        assert isinstance(k, int)
    descending = request.static("largest" if is_top_k else "descending")
    if not 0 <= k <= n:
        raise IndexOutOfRange(f"{request.where()}: k is {k}, and dimension {dim} has {n} elements")
    shape = source.shape[:dim] + (k,) + source.shape[dim + 1 :] if source.ndim else ()
    outputs = (meta(source.dtype, shape, None, request.device), meta(dtypes.int64, shape, None, request.device))
    if 0 in shape:
        return Planned(outputs)
    outer_dims = [d for d in range(source.ndim) if d != dim]
    sizes, strides = collapse(
        tuple(shape[d] for d in outer_dims), [tuple(m.strides[d] for d in outer_dims) for m in (source, outputs[0])]
    )
    dim_strides = (source.strides[dim], outputs[0].strides[dim]) if source.ndim else (1, 1)
    rows = Rows(
        request, prod(sizes), n, k, bool(descending), sizes, (strides[0], strides[1]), dim_strides, source.dtype
    )  # fmt: skip
    launches, scratch = LAUNCHES[request.capabilities.style](rows)
    return Planned(outputs, tuple(launches), tuple(scratch))


class _Launches:
    """Collect the launches of OpenCL kernels. All kernels take the same geometry struct."""

    group = 1
    digit = 8

    def __init__(self, rows: Rows):
        self.rows = rows
        self.caps = rows.request.capabilities
        self.params = rows.schedule()
        self.min_part = self.params.get("min_part") or _MIN_PART
        self.has_wide_items = rows.bits > 32 or rows.n >= 1 << 32
        self.item_nbytes = 16 if self.has_wide_items else 8
        self.launches: list[Step] = []
        self.scratch_nbytes: list[int] = []

    def add(
        self, entry: str, size: int, work: int, defines: Mapping[str, int], scratch_buffers: tuple[int, int], *,
        n: int | None = None, parts: int = 1, part: int = 0, units_per_item: int = 1, shift: int = 0,
        capacity: int = 0,
    ) -> None:  # fmt: skip
        """Append a launch of `size` work-items.

        Args:
            entry: Name of the kernel without `sort_`.
            size: Number of work-items, before rounding up to whole work-groups.
            work: Number of elements that they read or compare.
            defines: The kernel's constants besides those that all sort kernels share.
            scratch_buffers: Positions of the kernel's fourth and fifth buffer among the call's buffers.
            n: Elements of a row; default: those of the call's rows.
            parts: Parts of a row.
            part: Elements of a part; 0 for whole rows.
            units_per_item: Parts that a work-item of `rows` sorts, one after another.
            shift: Lowest bit of the digit of a radix sort.
            capacity: Items of each half of a work-item's scratch, for `rows`.
        """
        r = self.rows
        suffix = "UL" if self.has_wide_items else "U"
        all_defines = {
            f"SCHEDULE_{entry.upper()}": 1, "OUTER": len(r.sizes), "BITS": r.bits, "FORM": r.form,
            "WIDE": int(self.has_wide_items), "INFINITE": f"{r.infinity_bits:#x}{suffix}", "GROUP": self.group,
            "RADIX": 1 << self.digit, **defines,
        }  # fmt: skip
        key_mask = (1 << r.bits) - 1 if r.descending else 0
        key_mask -= 1 << 64 if key_mask >> 63 else 0
        geometry = pack_longs((
            r.rows, n or r.n, r.k, key_mask, parts, part or r.n, units_per_item, shift, capacity, *r.dim_strides,
            *(s for tensor_strides in r.strides for s in tensor_strides), *r.sizes,
        ))  # fmt: skip
        slots = (Slot(r.raw.name, "raw"), Slot(r.raw.name, "raw"), Slot("int64", "raw"), Slot("int64", "raw"),
                 Slot("int64", "raw"))  # fmt: skip
        text = r.request.text
        define_pairs = tuple((name, str(value)) for name, value in all_defines.items())
        # Named after the kind and not the op, because the ops share kernels.
        instance = Instance("sort", text.source, f"sort_{entry}", r.raw.compute, 1, slots, define_pairs)
        size = -(-size // self.group) * self.group
        self.launches.append(Step(instance, (0, 1, 2, *scratch_buffers), geometry, (size,), (self.group,), work))

    def allocate(self, nbytes: int) -> int:
        """Reserve scratch memory and return its buffer position."""
        self.scratch_nbytes.append(nbytes)
        return 2 + len(self.scratch_nbytes)

    def add_radix_passes(self, target_parts: int) -> None:
        """Append a radix sort: three launches per digit."""
        r = self.rows
        part, parts = split(r.n, target_parts)
        items_buffer = self.allocate(2 * r.rows * r.n * self.item_nbytes)
        counts_buffer = self.allocate(8 * r.rows * ((parts << self.digit) + 2))
        units, total = r.rows * parts, r.rows * r.n
        for shift in range(0, r.bits, self.digit):
            first_define = {"FIRST": int(shift == 0)}
            last_define = {"LAST": int(shift + self.digit == r.bits)}
            for entry, size, work, defines in (
                ("count", units, total, first_define), ("scan", r.rows * self.group, units << self.digit, {}),
                ("scatter", units, total, first_define | last_define),
            ):  # fmt: skip
                self.add(entry, size, work, defines, (items_buffer, counts_buffer), parts=parts, part=part, shift=shift)


class _Cpu(_Launches):
    """Schedules with about one work-item per core."""

    def plan(self) -> tuple[list[Step], list[int]]:
        """Choose the kernels; return their launches, and the bytes of each scratch buffer."""
        r, cores = self.rows, self.caps.cores
        is_selection = 8 * r.k + 256 <= r.n  # k is so small that most elements are compared once and dropped
        if r.rows >= cores or r.n <= (self.params["max_whole_row"] or _WHOLE_ROW_MAX):
            self._add_whole_rows(is_selection)
        elif is_selection:
            part, parts = split(r.n, max(1, min(cores // r.rows, r.n // max(self.min_part, 4 * r.k))))
            if parts == 1:
                self._add_whole_rows(is_selection)
            else:
                candidates_buffer = self.allocate(r.rows * parts * r.k * self.item_nbytes)
                self._add_rows(r.n, parts, part, candidates_buffer, is_selection, SOURCE=0, TARGET=1)
                self._add_rows(parts * r.k, 1, parts * r.k, candidates_buffer, False, SOURCE=1, TARGET=0)
        else:
            self.add_radix_passes(max(1, min(cores // r.rows, r.n // self.min_part)))
        return self.launches, self.scratch_nbytes

    def _add_whole_rows(self, is_selection: bool) -> None:
        """Append a launch that sorts whole rows straight into the results."""
        self._add_rows(self.rows.n, 1, self.rows.n, None, is_selection, SOURCE=0, TARGET=0)

    def _add_rows(
        self, n: int, parts: int, part: int, candidates_buffer: int | None, is_selection: bool, **defines: int
    ) -> None:
        """Append a launch of `rows`: sort parts of rows, or only select their first k (`is_selection`).

        The kernel reads (SOURCE=1) or writes (TARGET=1) the items in `candidates_buffer`.
        """
        units = self.rows.rows * parts
        total = units * part
        max_work_items = self.caps.cores * (4 if part < self.min_part else 1)  # each has its own scratch
        units_per_item, work_items = split(units, min(elementwise_parts(total * 8, self.caps.cores), max_work_items))
        capacity = (min(part, 2 * self.rows.k + 192) if is_selection else part) + 64  # elements are read 64 at a time
        work_buffer = self.allocate(work_items * 2 * capacity * self.item_nbytes)
        if candidates_buffer is None:  # the kernel does not access it
            candidates_buffer = work_buffer
        defines["ONE"] = int(self.rows.dim_strides[0] == 1)
        self.add(
            "rows", work_items, total * 8, defines, (candidates_buffer, work_buffer), n=n, parts=parts, part=part,
            units_per_item=units_per_item, capacity=capacity,
        )  # fmt: skip


class _Gpu(_Launches):
    """Schedules with one work-item per element, or per short part of a row."""

    digit = 4

    def plan(self) -> tuple[list[Step], list[int]]:
        """Choose the kernels; return their launches, and the bytes of each scratch buffer."""
        r, caps = self.rows, self.caps
        self.group = min(self.params["group"], caps.max_group)
        if r.n <= _RANK_MAX or 4 * r.k <= _RANK_MAX:  # a level of ranks leaves at most a quarter
            self._add_ranks()
        else:
            target_parts = caps.cores * self.params["parts"] // r.rows
            self.add_radix_passes(max(1, min(target_parts, r.n // _GPU_MIN_PART)))
        return self.launches, self.scratch_nbytes

    def _add_ranks(self) -> None:
        """Append a launch of `rank` per level."""
        r = self.rows
        source_buffer: int | None = None  # the first level reads the input's elements
        levels = _rank_levels(r.n, r.k)
        for level, (n, parts) in enumerate(levels):
            is_last = level + 1 == len(levels)
            target_buffer = None if is_last else self.allocate(r.rows * parts * r.k * self.item_nbytes)
            part = _RANK_MAX if parts > 1 else n
            defines = {"SOURCE": int(level > 0), "TARGET": int(not is_last)}
            size = r.rows * parts * part
            # In place of a buffer that this level does not access, pass the other one, or the indices (2).
            other_buffer = source_buffer or target_buffer or 2
            scratch_buffers = (source_buffer or other_buffer, target_buffer or other_buffer)
            self.add("rank", size, size * min(part, 64), defines, scratch_buffers, n=n, parts=parts, part=part)
            source_buffer = target_buffer


def _rank_levels(n: int, k: int) -> list[tuple[int, int]]:
    """Return the levels of a top-k by ranks: for each, the number of elements, and of parts of `_RANK_MAX` elements."""
    levels_above = []
    while n > _RANK_MAX:
        parts = -(-n // _RANK_MAX)
        levels_above.append((n, parts))
        n = parts * k
    return [*levels_above, (n, 1)]


# Searching


def _search(request: Request) -> Planned:
    """Plan `searchsorted` and `bucketize` (`search`), or the bin numbers of a histogram (`bins`)."""
    sequence, values = request.operands
    assert isinstance(sequence, Meta)
    assert isinstance(values, Meta)
    if sequence.dtype is not values.dtype:
        raise DTypeError(f"{request.where()}: both must be of one dtype; convert one with .to()")
    is_shared_sequence = sequence.ndim == 1
    if not sequence.ndim or not (is_shared_sequence or (values.ndim and sequence.shape[:-1] == values.shape[:-1])):
        raise ShapeError(
            f"{request.where()}: the sequence must be a vector, or agree with the values in all dimensions but the "
            f"last; it has shape {list(sequence.shape)}, they have {list(values.shape)}"
        )
    if not (sequence.contiguous and values.contiguous):
        raise ShapeError(f"{request.where()}: takes contiguous tensors")
    out = meta(dtypes.int64, values.shape, None, request.device)
    if not out.numel:
        return Planned((out,))
    n, m = sequence.shape[-1], values.numel if is_shared_sequence else values.shape[-1]
    stride = 0 if is_shared_sequence else n
    caps, record = request.capabilities, request.record
    slots = (slot(sequence, "value"), slot(values, "value"), slot(out, "index"))
    bins = record.detail["sort"] == "bins"
    if bins and not (is_shared_sequence and n):
        raise ShapeError(f"{request.where()}: needs one sequence that is not empty")
    right, nan_last = (True, False) if bins else (bool(request.static("right")), bool(request.static("total")))
    flags = {"RIGHT": int(right), "NAN_LAST": int(nan_last), "BINS": int(bins)}
    buffers = (0, 1, 2) if n else (1, 1, 2)  # an empty tensor has no memory to pass to a kernel
    # Elements of the sequence that are read per value: on Triton the length of the bisection loop, in OpenCL an
    # estimate of the work. The CPU divides to find a bin and reads its two edges, and bisects only for other values.
    probes = 2 if bins and caps.takes_runs else n.bit_length() + 1
    sizes = (out.numel, n, m, stride, probes)
    return Planned((out,), (SEARCHES[caps.style](request, slots, buffers, sizes, flags),))


def _search_step(
    request: Request, slots: tuple[Slot, ...], buffers: tuple[int, ...], sizes: tuple[int, int, int, int, int],
    flags: dict[str, int],
) -> Step:  # fmt: skip
    """Build the launch of a search in OpenCL; see `triton.sort.search_step` for the arguments.

    Here, `probes` only estimates the work.
    """
    caps, text = request.capabilities, request.text
    numel, n, m, stride, probes = sizes
    group = caps.group_size(128)
    chunk, work_items = split(numel, elementwise_parts(numel * probes, caps.cores) if caps.takes_runs else numel)
    defines = (("GROUP", str(group)), *((k, str(v)) for k, v in flags.items()))
    element = dtypes.BY_NAME[slots[0].dtype].compute
    instance = Instance("search", text.source, "search", element, 1, slots, defines, text.functions)
    geometry = pack_longs((numel, n, m, stride, chunk))
    size = (-(-work_items // group) * group,)
    return Step(instance, buffers, geometry, size, (group,), numel * probes)


def _launch_cpu(rows: Rows) -> tuple[list[Step], list[int]]:
    return _Cpu(rows).plan()


def _launch_gpu(rows: Rows) -> tuple[list[Step], list[int]]:
    return _Gpu(rows).plan()


def _launch_triton(rows: Rows) -> tuple[list[Step], list[int]]:
    from .triton.sort import sort_steps  # lazy: Triton devices only

    return sort_steps(rows)


def _triton_search_step(
    request: Request, slots: tuple[Slot, ...], buffers: tuple[int, ...], sizes: tuple[int, int, int, int, int],
    flags: dict[str, int],
) -> Step:  # fmt: skip
    from .triton.sort import search_step  # lazy: Triton devices only

    return search_step(request, slots, buffers, sizes, flags)


LAUNCHES = ByStyle("sorting", cpu=_launch_cpu, gpu=_launch_gpu, triton=_launch_triton)
SEARCHES = ByStyle("searching", cpu=_search_step, gpu=_search_step, triton=_triton_search_step)
