"""Matrix products for the Triton target: which kernel, with which blocks.

    tile      tensor cores, operands of any strides; k in parts where the result has too few tiles for the device
    tma       sm_90 and later: the same for large half-precision operands, which the copy engine moves
    multiply  products and their sums, block by block: integers, and k too short for tensor cores
    dots      one row times a matrix, or one row times one column
    move      a copy from any strides to any
    finish    the sum of parts, always in the same order

`tile`, `tma` and `multiply` store through the op's epilogue; behind `dots` and `finish` a `move` does.
A choice is a pure function of the problem and the device (`tiles`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from ... import dtypes
from ...backends.protocol import Instance, Slot, Step
from ...dtypes import DType
from ...layout import collapse
from ...precision import input_precision
from ...schedules import Choice
from ...schedules import choose as choose_schedule
from . import index_type, next_power, strided_extent
from .tiles import TMA, WHOLE, Tile, choose, largest, tiles_for

if TYPE_CHECKING:
    from ..contraction import _Builder
    from ..contraction_terms import Beside, Gemm, Place

__all__ = ["move", "product"]

_SHALLOW = 4  # k up to which products are summed without tensor cores
_ALONE = 4096  # elements that a program of `dots` holds
_PACKED = 64  # rows or columns that read an operand again, from which one that is contiguous neither way is copied
_ODD = 512  # m, n and k from which operands are copied to rows that the copy engine takes
_TMA_DEPTH = 256  # k from which programs of `tma` make up for the time that its descriptors take


def product(builder: _Builder, gemm: Gemm, a: Place, b: Place, c: Place) -> None:
    """Append the steps of C = A B to the builder's."""
    _Product(builder, gemm, a, b, c).plan()


class _Product:
    """One product, while it is planned."""

    def __init__(self, builder: _Builder, gemm: Gemm, a: Place, b: Place, c: Place):
        self.builder, self.gemm, self.a, self.b, self.c = builder, gemm, a, b, c
        self.able = builder.able
        self.dtype: DType = builder.element
        self.summed = dtypes.float32 if self.dtype.itemsize == 2 and self.dtype.kind == "f" else self.dtype
        if self.dtype.kind != "f" and self.dtype.itemsize < 4:
            self.summed = dtypes.int32  # the same modulo the type's range, and the type that multipliers have
        self.extra: Beside | None = builder.beside
        self.behind: tuple[list[tuple[int, ...]], Place] | None = None

    def plan(self) -> None:
        self.chosen = self._chosen()
        self._pack()
        m, k = self.gemm.m[0], self.gemm.k[0]
        if m == 1:
            self._aside()
            self._dots()
        elif self.dtype.kind != "f" or k <= _SHALLOW:
            self._tiles("multiply", WHOLE, "whole")
        elif not self._tma():
            kind = {2: "half", 8: "double"}.get(self.dtype.itemsize) or input_precision(self.able.sm)
            tiles = tiles_for(self.dtype.itemsize, self.able.sm, self._even())
            self._tiles("tile", (Tile(*self.chosen["tile"]),) if self.chosen["tile"] else tiles, kind)
        if self.behind is not None:
            dims, target = self.behind
            move(self.builder, dims, self.c, target, last=True)

    def _aside(self) -> None:
        """Where there is an epilogue, let the product go to scratch, and from there through the epilogue to C."""
        if self.extra is None:
            return
        g, target = self.gemm, self.c
        step, batch = g.m[0] * g.n[0], []
        dims: list[tuple[int, ...]] = [(g.m[0], g.n[0], g.m[2], *(e[0] for e in g.beside))]
        dims.append((g.n[0], 1, g.n[2], *(e[1] for e in g.beside)))
        for i in reversed(range(len(g.batch))):
            size, s, t, u = g.batch[i]
            batch.append((size, s, t, step))
            dims.insert(0, (size, step, u, *(e[2][i] for e in g.beside)))
            step *= size
        self.gemm = replace(g, m=(*g.m[:2], g.n[0]), n=(*g.n[:2], 1), batch=tuple(reversed(batch)), beside=())
        self.c = replace(target, buffer=self._allocate(step, self.summed), dtype=self.summed, strides={})
        self.extra, self.behind = None, (dims, target)

    def _chosen(self) -> Choice:
        (m, am, _), (n, bn, _), (k, ak, bk) = self.gemm.m, self.gemm.n, self.gemm.k
        sizes = {"m": m, "n": n, "k": k, "batch": self.gemm.entries}
        layout = "TNX"[_unit((m, am), (k, ak))] + "TNX"[_unit((k, bk), (n, bn))]
        return choose_schedule(self.builder.request, "contraction", sizes, self.dtype.name, "product", layout)

    # layouts

    def _pack(self) -> None:
        """Copy an operand that is contiguous along neither dimension, or not as the copy engine wants it, if it is
        read many times."""
        (m, am, cm), (n, bn, cn), (k, ak, bk) = self.gemm.m, self.gemm.n, self.gemm.k
        if n >= _PACKED and k > 1 and self._unfit(self.a, (m, am), (k, ak), 1):
            self.a, am, ak = self._copied(self.a, (m, am), (k, ak), 1)
        if m >= _PACKED and n > 1 and self._unfit(self.b, (k, bk), (n, bn), 2):
            self.b, bk, bn = self._copied(self.b, (k, bk), (n, bn), 2)
        self.gemm = replace(self.gemm, m=(m, am, cm), n=(n, bn, cn), k=(k, ak, bk))

    def _unfit(self, place: Place, first: tuple[int, int], second: tuple[int, int], which: int) -> bool:
        unit = _unit(first, second)
        if unit == 2:
            return True
        batch = self.gemm.batch
        if not self._engine or len(batch) > 1 or min(self.gemm.m[0], self.gemm.n[0], self.gemm.k[0]) < _ODD:
            return False
        row = first[1] if unit else second[1]
        return place.dtype is not self.dtype or not _descriptor(row, batch[0][which] if batch else 0)

    @property
    def _engine(self) -> bool:
        """Whether the device has an engine that copies blocks, and operands are of a type that `tma` takes."""
        return self.able.sm >= 90 and self.dtype.itemsize == 2 and self.dtype.kind == "f"

    def _copied(self, place: Place, first: tuple[int, int], second: tuple[int, int], which: int) -> Any:
        """(copy, its strides along both dimensions): the contiguous one stays that, or else it is the second; rows at
        multiples of 16 elements; once for entries that share it."""
        turned = _unit(first, second) == 0
        outer, inner = (second, first) if turned else (first, second)
        row = -(-inner[0] // 16) * 16
        step, batch = outer[0] * row, []
        dims = [(*outer, row), (*inner, 1)]
        for entry in reversed(self.gemm.batch):
            strides = list(entry)
            if entry[which]:
                strides[which] = step
                dims.insert(0, (entry[0], entry[which], step))
                step *= entry[0]
            batch.append(tuple(strides))
        self.gemm = replace(self.gemm, batch=tuple(reversed(batch)))  # type: ignore[arg-type]
        made = replace(place, buffer=self._allocate(step, self.dtype), dtype=self.dtype, strides={})
        move(self.builder, dims, place, made)
        return (made, 1, row) if turned else (made, row, 1)

    def _allocate(self, count: int, dtype: DType) -> int:
        self.builder.scratch.append(count * dtype.itemsize)
        return len(self.builder.request.tensors) + len(self.builder.scratch)

    def _index(self, parts: int) -> str:
        g = self.gemm
        sizes = [d[0] for d in g.batch]
        extents = [
            strided_extent((*sizes, x[0], y[0]), (*(d[i] for d in g.batch), x[s], y[t]))
            for i, (x, s, y, t) in enumerate(((g.m, 1, g.k, 1), (g.n, 1, g.k, 2), (g.m, 2, g.n, 2)), 1)
        ]
        for em, en, e in g.beside:
            extents.append(strided_extent((*sizes, g.m[0], g.n[0]), (*e, em, en)))
        return index_type([*extents, parts * g.entries * g.m[0] * g.n[0]])

    # results in parts

    def _split(self, parts: int) -> tuple[Gemm, Place, int]:
        """Where a product of so many parts writes, with what strides, and how far from part to part."""
        if parts == 1:
            return self.gemm, self.c, 0
        m, n = self.gemm.m, self.gemm.n
        step, batch = m[0] * n[0], []
        for size, s, t, _ in reversed(self.gemm.batch):
            batch.append((size, s, t, step))
            step *= size
        there = replace(self.gemm, m=(*m[:2], n[0]), n=(*n[:2], 1), batch=tuple(reversed(batch)))
        place = replace(self.c, buffer=self._allocate(step * parts, self.summed), dtype=self.summed, strides={})
        return there, place, step

    def _finish(self, place: Place, parts: int) -> None:
        if parts > 1:
            g = self.gemm
            dims = [(size, u) for size, _, _, u in g.batch] + [(g.m[0], g.m[2]), (g.n[0], g.n[2])]
            _finish(self.builder, self.summed, dims, place, self.c, parts)

    # schedules

    def _even(self) -> bool:
        """Whether operands are read 16 bytes at a time: all rows begin and end at multiples of 16 elements."""
        (m, am, _), (n, bn, _), (k, ak, bk) = self.gemm.m, self.gemm.n, self.gemm.k
        if self.a.dtype is not self.dtype or self.b.dtype is not self.dtype:
            return False
        rows = [s for _, *steps, _ in self.gemm.batch for s in steps]
        for first, second in (((m, am), (k, ak)), ((k, bk), (n, bn))):
            unit = _unit(first, second)
            rows += [first[1], second[0]] if unit == 1 else [first[0], second[1]] if unit == 0 else [1]
        return all(s % 16 == 0 for s in rows)

    def _tiles(self, entry: str, tiles: tuple[Tile, ...], kind: str) -> None:
        g = self.gemm
        tile, depth, parts = choose(tiles, kind, g.m[0], g.n[0], g.k[0], g.entries, self.dtype.itemsize, self.able)
        if entry == "multiply":
            deep = 1 if self.summed.itemsize == 8 else tile.bk  # steps at a time: their operands stay in registers
            tile = replace(tile, bk=min(next_power(self.gemm.k[0]), deep))
        if parts > 1:
            self._aside()
        there, place, part_step = self._split(parts)
        (m, am, cm), (n, bn, cn), (k, ak, bk) = there.m, there.n, there.k
        defines: dict[str, str | int] = {
            "A": _unit((m, am), (k, ak)), "B": _unit((k, bk), (n, bn)), "R": _unit((m, cm), (n, cn)),
            "BATCH": len(there.batch), "BM": tile.bm, "BN": tile.bn, "BK": tile.bk,
            "GROUP": self.chosen["group"], "num_warps": tile.warps, "num_stages": tile.stages,
        }  # fmt: skip
        if entry == "tile":
            precision = kind if self.dtype is dtypes.float32 else "ieee"
            defines.update(D=self.dtype.name, EVEN=int(k % tile.bk == 0), PRECISION=precision)
        geometry = (m, n, k, am, ak, bk, bn, cm, cn, depth, part_step, there.entries, *_tables(there))
        programs = _ceil(m, tile.bm) * _ceil(n, tile.bn) * there.entries * parts
        self._enqueue(entry, place, defines, geometry, programs, parts)
        self._finish(place, parts)

    def _dots(self) -> None:
        n, k, cores = self.gemm.n[0], self.gemm.k[0], self.able.cores
        bk, bn = self.gemm.k[2], self.gemm.n[1]
        alone = _ALONE // 2 if self.summed.itemsize == 8 else _ALONE
        b = _unit((k, bk), (n, bn))
        along = next_power(k) if b != 1 else 16  # what is contiguous is read in runs
        block = min(along, alone // 4 if n > 1 else alone)
        width = min(next_power(n), max(1, alone // block), 256)
        block = min(next_power(k), max(1, alone // width))
        if k <= _SHALLOW:
            block, width = next_power(k), min(next_power(n), alone // 4)
        count = _ceil(n, width) * self.gemm.entries
        parts = min(4 * cores // count, k // (4 * max(block, 16)))
        depth = _ceil(_ceil(k, parts), max(block, 16)) * max(block, 16) if parts > 1 else k
        parts = _ceil(k, depth)
        there, place, part_step = self._split(parts)
        defines: dict[str, str | int] = {
            "A": 1 if there.k[1] == 1 else 2, "B": b, "R": 1 if there.n[2] == 1 else 2,
            "BATCH": len(there.batch), "BN": width, "BK": block, "num_warps": 4,
        }  # fmt: skip
        (_, bn, cn), (_, ak, bk) = there.n, there.k
        geometry = (n, k, ak, bk, bn, cn, depth, part_step, there.entries, *_tables(there))
        self._enqueue("dots", place, defines, geometry, count * parts, parts)
        self._finish(place, parts)

    def _tma(self) -> bool:
        """Plan the schedule of that name where the operands allow it and there is enough to do; whether it is so."""
        g = self.gemm
        if not self.chosen["tma"] or not self._engine or len(g.batch) > 1 or g.k[0] < _TMA_DEPTH:
            return False
        if self.a.dtype is not self.dtype or self.b.dtype is not self.dtype:
            return False
        (m, am, cm), (n, bn, cn), (k, ak, bk) = g.m, g.n, g.k
        a_unit, b_unit = _unit((m, am), (k, ak)), _unit((k, bk), (n, bn))
        entries, *steps = g.batch[0] if g.batch else (1, 0, 0, 0)
        rows = (am if a_unit == 1 else ak, bn if b_unit == 0 else bk, cm)
        if 2 in (a_unit, b_unit) or not all(map(_descriptor, rows[:2], steps[:2])):
            return False
        writes = cn == 1 and self.c.dtype is self.dtype and _descriptor(cm, steps[2])
        found = largest(TMA, m, n, entries, self.able)
        if found is None or found[1] < self.able.cores // 2:
            return False
        tile, count = found
        defines: dict[str, str | int] = {
            "D": self.dtype.name, "A": a_unit, "B": b_unit, "R": _unit((m, cm), (n, cn)), "WRITES": int(writes),
            "EVEN": int(k % tile.bk == 0), "PRECISION": "ieee", "BM": tile.bm, "BN": tile.bn, "BK": tile.bk,
            "GROUP": self.chosen["group"], "num_warps": tile.warps, "num_stages": tile.stages,
        }  # fmt: skip
        # An operand that all entries share has one entry, and a step that a descriptor can have.
        shared = [entries if s else 1 for s in steps]
        steps = [s or 16 for s in steps]
        geometry = (m, n, k, *rows, cn, *steps, *shared[:2], entries)
        self._enqueue("tma", self.c, defines, geometry, min(count, self.able.cores), 1)
        return True

    def _enqueue(
        self, entry: str, place: Place, defines: dict[str, str | int], geometry: tuple[Any, ...], programs: int,
        parts: int,
    ) -> None:  # fmt: skip
        defines["INDEX"] = self._index(parts)
        g, extra = self.gemm, self.extra
        for i, (em, en, e) in enumerate(g.beside):
            row = 1 if en == 1 and em == 0 and not any(e) else 2 if en == 1 else 3
            defines[f"EXTRA{i}"] = 0 if en == 0 or g.n[0] == 1 else row
            geometry = (*geometry, em, en, (e[0] if e else 0) if entry == "tma" else e)
        places = (self.a, self.b, place, *(extra.places if extra else ()))
        instance = _instance(self.builder, entry, self.summed, places, defines, extra)
        work = g.entries * max(g.m[0] * g.n[0] * g.k[0] // 64, 1)
        buffers = tuple(p.buffer for p in places)
        self.builder.steps.append(Step(instance, buffers, geometry, (programs,), None, work, _numbers(extra)))


# copies


def move(
    builder: _Builder, dims: Sequence[tuple[int, ...]], source: Place, target: Place, parts: int = 1, last: bool = False
) -> None:
    """Append a step that copies dimensions (size, source's stride, target's); no parts: that stores zeros.

    last: it stores the result, through the epilogue, whose operands' strides follow in `dims`.
    """
    extra = builder.beside if last else None
    if not parts and extra is not None:  # the epilogue of zeros
        step, zeros = 1, []
        for size, *_ in reversed(dims):
            zeros.append((size, step))
            step *= size
        builder.scratch.append(step * builder.element.itemsize)
        made = replace(target, buffer=len(builder.request.tensors) + len(builder.scratch), dtype=builder.element)
        _finish(builder, made.dtype, zeros[::-1], source, made, 0)
        dims = [(size, s, *d[2:]) for d, (size, s) in zip(dims, zeros[::-1], strict=True)]
        return move(builder, dims, made, target, last=True)
    if not parts:
        return _finish(builder, target.dtype, [(d[0], d[2]) for d in dims], source, target, 0)
    width = 3 + (len(extra.places) if extra else 0)
    sizes, strides = collapse(tuple(d[0] for d in dims), [tuple(d[i] for d in dims) for i in range(1, width)])
    if not sizes:
        sizes, strides = (1,), [(1,)] * (width - 1)
    given, taken, *beside = strides
    numel, block = prod(sizes), builder.able.block
    columns = min(next_power(sizes[-1]), block)
    rows = numel // sizes[-1]
    tall = min(block // columns, next_power(rows))
    across = _ceil(sizes[-1], columns)
    computed = dtypes.int32 if target.dtype.kind != "f" and target.dtype.itemsize < 4 else target.dtype
    if extra is not None and computed.kind == "f" and computed.itemsize == 2:
        computed = dtypes.float32
    defines: dict[str, str | int] = {
        "OUTER": len(sizes) - 1, "X": 1 if given[-1] == 1 else 2, "Y": 1 if taken[-1] == 1 else 2,
        "ROWS": tall, "COLUMNS": columns,
    }  # fmt: skip
    defines |= {f"EXTRA{i}": e[-1] if e[-1] in (0, 1) else 2 for i, e in enumerate(beside)}
    defines["INDEX"] = index_type([numel, *(strided_extent(sizes, s) for s in strides)])
    own = (rows, sizes[-1], across, sizes[:-1], given[:-1], taken[:-1], given[-1], taken[-1])
    geometry = (*own, *(part for e in beside for part in (e[:-1], e[-1])))
    places = (source, target, *(extra.places if extra else ()))
    instance = _instance(builder, "move", computed, places, defines, extra)
    grid, buffers = (_ceil(rows, tall) * across,), tuple(p.buffer for p in places)
    builder.steps.append(Step(instance, buffers, geometry, grid, None, numel, _numbers(extra)))


def _finish(
    builder: _Builder, summed: DType, dims: list[tuple[int, int]], source: Place, target: Place, parts: int
) -> None:
    """A step that sums `parts` results, contiguous and one after the other, into dimensions (size, stride)."""
    contiguous, step = [], 1
    for size, _ in reversed(dims):
        contiguous.append(step)
        step *= size
    sizes = tuple(d[0] for d in dims)
    merged, (taken, _) = collapse(sizes, [tuple(d[1] for d in dims), tuple(reversed(contiguous))])
    if merged in ((), (step,)) and taken in ((), (1,)):
        merged, taken = (), ()
    together = min(next_power(parts), 16 if step >= 64 else 256)
    block = min(next_power(step), max(1, builder.able.block // together))
    defines: dict[str, str | int] = {"OUTER": len(merged), "BLOCK": block, "PARTS": together}
    defines["INDEX"] = index_type([step * max(parts, 1), strided_extent(merged, taken)])
    instance = _instance(builder, "finish", summed, (source, target), defines)
    geometry = (step, parts, merged, taken)
    grid = (_ceil(step, block),)
    builder.steps.append(Step(instance, (source.buffer, target.buffer), geometry, grid, None, step * max(parts, 1)))


def _instance(
    builder: _Builder, entry: str, summed: DType, places: Iterable[Place], defines: dict[str, str | int],
    extra: Beside | None = None,
) -> Instance:  # fmt: skip
    """Named for the kind, not the op: the text is the same for all, and so are compiled kernels."""
    text = builder.text(extra)
    slots = tuple(Slot(p.dtype.name) for p in places)
    return Instance(
        "contraction", text.source, f"contraction_{entry}", summed.compute, 1, slots, tuple(defines.items()),
        text.functions,
    )  # fmt: skip


def _numbers(extra: Beside | None) -> tuple[int, ...]:
    return tuple(range(extra.numbers)) if extra is not None else ()


def _tables(gemm: Gemm) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(d[i] for d in gemm.batch) for i in range(4))


def _unit(first: tuple[int, int], second: tuple[int, int]) -> int:
    """Along which of two dimensions (size, stride) an operand is contiguous: 0, 1, or 2 for neither."""
    return 1 if second[1] == 1 else 0 if first[1] == 1 else 2


def _descriptor(row: int, step: int) -> bool:
    """Whether the copy engine takes an operand of half precision with these strides of rows and of entries."""
    return row > 0 and row % 8 == 0 and step >= 0 and step % 8 == 0


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
