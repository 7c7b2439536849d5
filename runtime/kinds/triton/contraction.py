"""Plan matrix products for the Triton target: choose the kernel and its blocks.

    tile      tensor cores, operands of any strides; k is cut in parts if the result has too few tiles for the device
    tma       sm_90 and later: the same for large half-precision operands, which the copy engine (TMA) loads
    multiply  elementwise products and their sums, block by block: integers, and k too short for tensor cores
    dots      one row times a matrix, or one row times one column
    move, split, finish   copies and sums of parts (`contraction_copies.py`)

`tile`, `tma` and `multiply` apply the op's epilogue when they store. After `dots` and `finish`, a `move` applies it.
The choice is a function of the problem, the device, `set_float32_matmul_precision` and stored schedules; `tiles.py`
chooses the blocks. The kernels are in templates/triton/contraction.py.j2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ... import dtypes
from ...backends.protocol import Step
from ...dtypes import DType
from ...precision import input_precision
from ...schedules import Choice
from ...schedules import choose as choose_schedule
from ..contraction_terms import scalar_positions
from . import Geometry, index_type, next_power, strided_extent
from .contraction_copies import add_copy, add_parts_sum, add_split, ceil_div, kernel_instance
from .tiles import INTEGER_TILES, NARROW_TMA_TILES, TF32_TILES, TMA_TILES, Tile, choose, least_idle_tile, tiles_for

if TYPE_CHECKING:
    from ..contraction_builder import Builder
    from ..contraction_terms import EpilogueInputs, Gemm, TensorView

__all__ = ["add_product"]

_MAX_K_WITHOUT_TENSOR_CORES = 4
_DOTS_ELEMENTS = 4096  # elements that a program of `dots` holds
# An operand that is contiguous along neither dimension is copied if at least this many rows or columns read it again.
_MIN_REUSE_TO_COPY = 64
_MIN_SIZE_TO_ALIGN = 512  # from such m, n and k on, operands are copied to rows that the copy engine takes
# Hopper's tensor cores read tf32 operands from shared memory only if k is contiguous. From this size on (m, n and k)
# float32 operands are copied to that layout. Others pass through registers: 4 times slower (H200).
_MIN_SIZE_TO_SPLIT = 512
_ARCHITECTURES_THAT_SPLIT = (90,)
_MAX_SPLIT_SHARE = 16  # the copies may take one part in so many of the device's memory
_ASSUMED_MEMORY = 32 << 30  # bytes, where the device's memory is unknown
_TMA_MIN_K = 256  # from this k on, `tma` makes up for the time of creating its descriptors


def add_product(builder: Builder, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView) -> None:
    """Append the steps of C = A B to those of `builder`."""
    _Product(builder, gemm, a, b, c).plan()


class _Product:
    """Plans one product."""

    def __init__(self, builder: Builder, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView):
        self.builder, self.gemm, self.a, self.b, self.c = builder, gemm, a, b, c
        self.caps = builder.caps
        self.dtype: DType = builder.element
        self.accumulator = dtypes.float32 if self.dtype.itemsize == 2 and self.dtype.kind == "f" else self.dtype
        if self.dtype.kind != "f" and self.dtype.itemsize < 4:
            self.accumulator = dtypes.int32  # equal modulo the type's range, and what the hardware multiplies
        self.epilogue: EpilogueInputs | None = builder.epilogue
        self.precision = input_precision(self.caps.sm)  # of products of float32
        self.has_split_numbers = False
        self.deferred_copy: tuple[list[tuple[int, ...]], TensorView] | None = None

    def plan(self) -> None:
        self.params = self._schedule_params()
        is_split = self._try_split()
        if not is_split:
            self._pack()
        m, k = self.gemm.m[0], self.gemm.k[0]
        if m == 1:
            self._defer_epilogue()
            self._add_dots()
        elif self.dtype.kind != "f" or k <= _MAX_K_WITHOUT_TENSOR_CORES:
            self._add_tiles("multiply", INTEGER_TILES, "whole")
        elif not self._try_add_tma():
            kind = {2: "half", 8: "double"}.get(self.dtype.itemsize) or self.precision
            tiles = (
                tiles_for(self.dtype.itemsize, self.caps.sm, self._is_aligned())
                if self.has_split_numbers or not is_split else TF32_TILES
            )  # fmt: skip
            self._add_tiles("tile", (Tile(*self.params["tile"]),) if self.params["tile"] else tiles, kind)
        if self.deferred_copy is not None:
            dims, target = self.deferred_copy
            add_copy(self.builder, dims, self.c, target, last=True)

    def _defer_epilogue(self) -> None:
        """If there is an epilogue, write the product to scratch, from which a later copy applies the epilogue."""
        if self.epilogue is None:
            return
        gemm, target = self.gemm, self.c
        size_so_far, batch = gemm.m[0] * gemm.n[0], []
        dims: list[tuple[int, ...]] = [(gemm.m[0], gemm.n[0], gemm.m[2], *(e[0] for e in gemm.epilogue_strides))]
        dims.append((gemm.n[0], 1, gemm.n[2], *(e[1] for e in gemm.epilogue_strides)))
        for i in reversed(range(len(gemm.batch))):
            size, s, t, u = gemm.batch[i]
            batch.append((size, s, t, size_so_far))
            dims.insert(0, (size, size_so_far, u, *(e[2][i] for e in gemm.epilogue_strides)))
            size_so_far *= size
        self.gemm = replace(
            gemm, m=(*gemm.m[:2], gemm.n[0]), n=(*gemm.n[:2], 1), batch=tuple(reversed(batch)), epilogue_strides=()
        )
        self.c = replace(
            target, buffer=self._allocate(size_so_far, self.accumulator), dtype=self.accumulator, strides={}
        )
        self.epilogue, self.deferred_copy = None, (dims, target)

    def _schedule_params(self) -> Choice:
        (m, am, _), (n, bn, _), (k, ak, bk) = self.gemm.m, self.gemm.n, self.gemm.k
        sizes = {"m": m, "n": n, "k": k, "batch": self.gemm.entries}
        layout = "TNX"[_contiguous_dim((m, am), (k, ak))] + "TNX"[_contiguous_dim((k, bk), (n, bn))]
        return choose_schedule(self.builder.request, "contraction", sizes, self.dtype.name, "product", layout)

    # Copy operands that cannot be read fast.

    def _pack(self) -> None:
        """Copy an operand that is read many times, if its layout makes reading slow.

        Slow are an operand that is contiguous along neither dimension, and one whose rows are not aligned as the copy
        engine requires.
        """
        (m, am, cm), (n, bn, cn), (k, ak, bk) = self.gemm.m, self.gemm.n, self.gemm.k
        if n >= _MIN_REUSE_TO_COPY and k > 1 and self._needs_copy(self.a, (m, am), (k, ak), 1):
            self.a, am, ak = self._copy_operand(self.a, (m, am), (k, ak), 1)
        if m >= _MIN_REUSE_TO_COPY and n > 1 and self._needs_copy(self.b, (k, bk), (n, bn), 2):
            self.b, bk, bn = self._copy_operand(self.b, (k, bk), (n, bn), 2)
        self.gemm = replace(self.gemm, m=(m, am, cm), n=(n, bn, cn), k=(k, ak, bk))

    def _try_split(self) -> bool:
        """Prepare large float32 operands for Hopper: contiguous k, and for tf32x3 three sections side by side.

        Returns:
            True if this product takes that path, also if no operand had to be copied.
        """
        (m, am, cm), (n, bn, cn), (k, ak, bk) = self.gemm.m, self.gemm.n, self.gemm.k
        if (
            self.dtype is not dtypes.float32 or self.precision == "ieee" or self.gemm.batch
            or self.caps.sm not in _ARCHITECTURES_THAT_SPLIT or min(m, n, k) < _MIN_SIZE_TO_SPLIT
            or self.a.dtype is not self.dtype or self.b.dtype is not self.dtype
        ):  # fmt: skip
            return False
        sections = 3 if self.precision == "tf32x3" else 1
        nbytes = sections * (m + n) * k * self.dtype.itemsize
        if nbytes > (self.caps.memory or _ASSUMED_MEMORY) // _MAX_SPLIT_SHARE:
            return False
        if sections == 3:  # the small products first
            self.a, am = add_split(self.builder, self.a, (m, am), (k, ak), (2, 3, 1))
            self.b, bn = add_split(self.builder, self.b, (n, bn), (k, bk), (3, 2, 1))
            self.precision, self.has_split_numbers, k, ak, bk = "tf32", True, am, 1, 1
        else:
            if ak != 1 or am % 4:
                self.a, am = add_split(self.builder, self.a, (m, am), (k, ak), (0,))
                ak = 1
            if bk != 1 or bn % 4:
                self.b, bn = add_split(self.builder, self.b, (n, bn), (k, bk), (0,))
                bk = 1
        self.gemm = replace(self.gemm, m=(m, am, cm), n=(n, bn, cn), k=(k, ak, bk))
        return True

    def _needs_copy(self, view: TensorView, first: tuple[int, int], second: tuple[int, int], stride_index: int) -> bool:
        unit_dim = _contiguous_dim(first, second)
        if unit_dim == 2:
            return True
        batch = self.gemm.batch
        if (
            not self._has_copy_engine or len(batch) > 1
            or min(self.gemm.m[0], self.gemm.n[0], self.gemm.k[0]) < _MIN_SIZE_TO_ALIGN
        ):  # fmt: skip
            return False
        row_stride = first[1] if unit_dim else second[1]
        return view.dtype is not self.dtype or not _is_copy_engine_layout(
            row_stride, batch[0][stride_index] if batch else 0
        )

    @property
    def _has_copy_engine(self) -> bool:
        """Return whether the device has a copy engine (TMA), and `tma` takes the operands' dtype."""
        return self.caps.sm >= 90 and self.dtype.itemsize == 2 and self.dtype.kind == "f"

    def _copy_operand(
        self, view: TensorView, first: tuple[int, int], second: tuple[int, int], stride_index: int
    ) -> tuple[TensorView, int, int]:
        """Append a step that copies an operand; return the copy and its strides along both dimensions.

        A dimension that is contiguous stays so; if none is, the second one becomes it. Rows start at multiples of 16
        elements. Batch entries that share the operand share the copy.
        """
        first_is_unit = _contiguous_dim(first, second) == 0
        outer, inner = (second, first) if first_is_unit else (first, second)
        row_stride = -(-inner[0] // 16) * 16
        size_so_far, batch = outer[0] * row_stride, []
        dims = [(*outer, row_stride), (*inner, 1)]
        for entry in reversed(self.gemm.batch):
            strides = list(entry)
            if entry[stride_index]:
                strides[stride_index] = size_so_far
                dims.insert(0, (entry[0], entry[stride_index], size_so_far))
                size_so_far *= entry[0]
            size, a_stride, b_stride, c_stride = strides
            batch.append((size, a_stride, b_stride, c_stride))
        self.gemm = replace(self.gemm, batch=tuple(reversed(batch)))
        copied = replace(view, buffer=self._allocate(size_so_far, self.dtype), dtype=self.dtype, strides={})
        add_copy(self.builder, dims, view, copied)
        return (copied, 1, row_stride) if first_is_unit else (copied, row_stride, 1)

    def _allocate(self, count: int, dtype: DType) -> int:
        self.builder.scratch.append(count * dtype.itemsize)
        return len(self.builder.request.tensors) + len(self.builder.scratch)

    def _index_type(self, parts: int) -> str:
        gemm = self.gemm
        sizes = [d[0] for d in gemm.batch]
        extents = [
            strided_extent((*sizes, x[0], y[0]), (*(d[i] for d in gemm.batch), x[s], y[t]))
            for i, (x, s, y, t) in enumerate(
                ((gemm.m, 1, gemm.k, 1), (gemm.n, 1, gemm.k, 2), (gemm.m, 2, gemm.n, 2)), 1
            )
        ]
        for em, en, e in gemm.epilogue_strides:
            extents.append(strided_extent((*sizes, gemm.m[0], gemm.n[0]), (*e, em, en)))
        return index_type([*extents, parts * gemm.entries * gemm.m[0] * gemm.n[0]])

    # Sum results that are computed in parts of k.

    def _choose_target(self, parts: int) -> tuple[Gemm, TensorView, int]:
        """Return the product with the strides of its target, the target, and the elements from one part to the next."""
        if parts == 1:
            return self.gemm, self.c, 0
        m, n = self.gemm.m, self.gemm.n
        size_so_far, batch = m[0] * n[0], []
        for size, s, t, _ in reversed(self.gemm.batch):
            batch.append((size, s, t, size_so_far))
            size_so_far *= size
        target = replace(self.gemm, m=(*m[:2], n[0]), n=(*n[:2], 1), batch=tuple(reversed(batch)))
        target_view = replace(
            self.c, buffer=self._allocate(size_so_far * parts, self.accumulator), dtype=self.accumulator, strides={}
        )
        return target, target_view, size_so_far

    def _add_parts_sum(self, parts_view: TensorView, parts: int) -> None:
        if parts > 1:
            gemm = self.gemm
            dims = [(size, u) for size, _, _, u in gemm.batch] + [(gemm.m[0], gemm.m[2]), (gemm.n[0], gemm.n[2])]
            add_parts_sum(self.builder, self.accumulator, dims, parts_view, self.c, parts)

    # Choose and append the kernels.

    def _is_aligned(self) -> bool:
        """Return whether all rows of the operands begin and end at multiples of 16 bytes, for 16-byte loads."""
        (m, am, _), (n, bn, _), (k, ak, bk) = self.gemm.m, self.gemm.n, self.gemm.k
        if self.a.dtype is not self.dtype or self.b.dtype is not self.dtype:
            return False
        strides = [s for _, *steps, _ in self.gemm.batch for s in steps]
        for first, second in (((m, am), (k, ak)), ((k, bk), (n, bn))):
            unit_dim = _contiguous_dim(first, second)
            strides += [first[1], second[0]] if unit_dim == 1 else [first[0], second[1]] if unit_dim == 0 else [1]
        return all(s * self.dtype.itemsize % 16 == 0 for s in strides)

    def _add_tiles(self, entry: str, tiles: tuple[Tile, ...], kind: str) -> None:
        gemm = self.gemm
        tile, depth, parts = choose(
            tiles, kind, gemm.m[0], gemm.n[0], gemm.k[0], gemm.entries, self.dtype.itemsize, self.caps
        )
        if entry == "multiply":
            max_bk = 1 if self.accumulator.itemsize == 8 else tile.bk  # the operands of one step stay in registers
            tile = replace(tile, bk=min(next_power(self.gemm.k[0]), max_bk))
        if parts > 1:
            self._defer_epilogue()
        target, target_view, part_step = self._choose_target(parts)
        (m, am, cm), (n, bn, cn), (k, ak, bk) = target.m, target.n, target.k
        defines: dict[str, str | int] = {
            "A": _contiguous_dim((m, am), (k, ak)), "B": _contiguous_dim((k, bk), (n, bn)),
            "R": _contiguous_dim((m, cm), (n, cn)), "BATCH": len(target.batch), "BM": tile.bm, "BN": tile.bn,
            "BK": tile.bk, "GROUP": self.params["group"], "num_warps": tile.warps, "num_stages": tile.stages,
        }  # fmt: skip
        if entry == "tile":
            precision = kind if self.dtype is dtypes.float32 else "ieee"
            defines.update(
                D=self.dtype.name, EVEN=int(k % tile.bk == 0), PRECISION=precision, ROUNDS=int(self.has_split_numbers)
            )
        geometry: Geometry = (
            m, n, k, am, ak, bk, bn, cm, cn, depth, part_step, target.entries, *_batch_geometry(target)
        )  # fmt: skip
        programs = ceil_div(m, tile.bm) * ceil_div(n, tile.bn) * target.entries * parts
        self._add_step(entry, target_view, defines, geometry, programs, parts)
        self._add_parts_sum(target_view, parts)

    def _add_dots(self) -> None:
        n, k, cores = self.gemm.n[0], self.gemm.k[0], self.caps.cores
        bk, bn = self.gemm.k[2], self.gemm.n[1]
        max_elements = _DOTS_ELEMENTS // 2 if self.accumulator.itemsize == 8 else _DOTS_ELEMENTS
        b = _contiguous_dim((k, bk), (n, bn))
        k_elements = next_power(k) if b != 1 else 16  # a contiguous operand is read in runs
        block = min(k_elements, max_elements // 4 if n > 1 else max_elements)
        width = min(next_power(n), max(1, max_elements // block), 256)
        block = min(next_power(k), max(1, max_elements // width))
        if k <= _MAX_K_WITHOUT_TENSOR_CORES:
            block, width = next_power(k), min(next_power(n), max_elements // 4)
        count = ceil_div(n, width) * self.gemm.entries
        parts = min(4 * cores // count, k // (4 * max(block, 16)))
        depth = ceil_div(ceil_div(k, parts), max(block, 16)) * max(block, 16) if parts > 1 else k
        parts = ceil_div(k, depth)
        target, target_view, part_step = self._choose_target(parts)
        defines: dict[str, str | int] = {
            "A": 1 if target.k[1] == 1 else 2, "B": b, "R": 1 if target.n[2] == 1 else 2,
            "BATCH": len(target.batch), "BN": width, "BK": block, "num_warps": 4,
        }  # fmt: skip
        (_, bn, cn), (_, ak, bk) = target.n, target.k
        geometry: Geometry = (n, k, ak, bk, bn, cn, depth, part_step, target.entries, *_batch_geometry(target))
        self._add_step("dots", target_view, defines, geometry, count * parts, parts)
        self._add_parts_sum(target_view, parts)

    def _try_add_tma(self) -> bool:
        """Append `tma` if the operands allow it and there are enough tiles; return whether it was appended."""
        gemm = self.gemm
        if not self.params["tma"] or not self._has_copy_engine or len(gemm.batch) > 1 or gemm.k[0] < _TMA_MIN_K:
            return False
        if self.a.dtype is not self.dtype or self.b.dtype is not self.dtype:
            return False
        (m, am, cm), (n, bn, cn), (k, ak, bk) = gemm.m, gemm.n, gemm.k
        a_unit, b_unit = _contiguous_dim((m, am), (k, ak)), _contiguous_dim((k, bk), (n, bn))
        entries, *entry_strides = gemm.batch[0] if gemm.batch else (1, 0, 0, 0)
        row_strides = (am if a_unit == 1 else ak, bn if b_unit == 0 else bk, cm)
        if 2 in (a_unit, b_unit) or not all(map(_is_copy_engine_layout, row_strides[:2], entry_strides[:2])):
            return False
        stores_by_engine = cn == 1 and self.c.dtype is self.dtype and _is_copy_engine_layout(cm, entry_strides[2])
        tiles = NARROW_TMA_TILES if n <= NARROW_TMA_TILES[0].bn else TMA_TILES
        choice = least_idle_tile(tiles, m, n, entries, self.caps)
        if choice is None or choice[1] < self.caps.cores // 2:
            return False
        tile, count = choice
        defines: dict[str, str | int] = {
            "D": self.dtype.name, "A": a_unit, "B": b_unit, "R": _contiguous_dim((m, cm), (n, cn)),
            "WRITES": int(stores_by_engine),
            "EVEN": int(k % tile.bk == 0), "PRECISION": "ieee", "BM": tile.bm, "BN": tile.bn, "BK": tile.bk,
            "GROUP": self.params["group"], "num_warps": tile.warps, "num_stages": tile.stages,
        }  # fmt: skip
        # An operand that all entries share has one entry; any step that a descriptor accepts will do.
        shared_entries = [entries if s else 1 for s in entry_strides]
        entry_strides = [s or 16 for s in entry_strides]
        geometry = (m, n, k, *row_strides, cn, *entry_strides, *shared_entries[:2], entries)
        self._add_step("tma", self.c, defines, geometry, min(count, self.caps.cores), 1)
        return True

    def _add_step(
        self, entry: str, target_view: TensorView, defines: dict[str, str | int], geometry: Geometry,
        programs: int, parts: int,
    ) -> None:  # fmt: skip
        defines["INDEX"] = self._index_type(parts)
        gemm, epilogue = self.gemm, self.epilogue
        for i, (em, en, e) in enumerate(gemm.epilogue_strides):
            row_layout = 1 if en == 1 and em == 0 and not any(e) else 2 if en == 1 else 3
            defines[f"EXTRA_LAYOUT{i}"] = 0 if en == 0 or gemm.n[0] == 1 else row_layout
            geometry = (*geometry, em, en, (e[0] if e else 0) if entry == "tma" else e)
        views = (self.a, self.b, target_view, *(epilogue.tensors if epilogue else ()))
        instance = kernel_instance(self.builder, entry, self.accumulator, views, defines, epilogue)
        work = gemm.entries * max(gemm.m[0] * gemm.n[0] * gemm.k[0] // 64, 1)
        buffers = tuple(v.buffer for v in views)
        self.builder.steps.append(
            Step(instance, buffers, geometry, (programs,), None, work, scalar_positions(epilogue))
        )


def _batch_geometry(gemm: Gemm) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of the batch's dimensions, and their strides in A, B and C."""
    return tuple(tuple(d[i] for d in gemm.batch) for i in range(4))


def _contiguous_dim(first: tuple[int, int], second: tuple[int, int]) -> int:
    """Return along which of two dimensions (size, stride) an operand is contiguous: 0, 1, or 2 for neither."""
    return 1 if second[1] == 1 else 0 if first[1] == 1 else 2


def _is_copy_engine_layout(row_stride: int, entry_stride: int) -> bool:
    """Return True if the copy engine takes a half-precision operand with these strides of rows and batch entries."""
    return row_stride > 0 and row_stride % 8 == 0 and entry_stride >= 0 and entry_stride % 8 == 0
