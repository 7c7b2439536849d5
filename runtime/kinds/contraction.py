"""Contractions: any equation of two operands, reduced to a batch of matrix products.

A dimension of both operands and the result is a batch, of one operand and the result belongs to m or n, of both
operands alone to k. Each group is merged to one dimension with one stride where layouts allow: `...mk,kn->...mn` is a
single product however many dimensions `...` has. What does not merge, or is contiguous neither way, is copied by a step
before; a result whose rows are not contiguous, or that is summed in parts, is copied by a step behind. The last of
these steps applies the epilogue, if the op has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, ShapeError
from ..layout import collapse, pack_longs, padded
from ..records import Text, registry
from ..schedules import Choice, choose
from . import Planned, Request, contraction_plan
from .contraction_terms import Beside, Gemm, Label, Place, Strides, beside, bind, parse, strides_by_label
from .pointwise import compute_dtype, elementwise_parts, result_dtype

__all__ = ["plan"]

_BATCH = 4  # batch dimensions that do not merge, as kernels count them
_OUTER = 6  # dimensions of a copy beside its rows and columns
_SUMMED = {"float16": dtypes.float32, "bfloat16": dtypes.float32}
_A_MULTIPLICATION = 64  # multiplications that count as touching one element: at 128³ one core beats waking the other
_LINE, _A_WAY = 64, 4096  # bytes of a cache line, and of a way of a first-level cache
_A_READ = 8  # elements that are read in the time of writing one


def plan(request: Request) -> Planned:
    """The result's layout, and the steps: copies of operands that need one, the product, a copy of the result."""
    for operand, layout in zip(request.record.operands, request.operands, strict=True):
        if operand.role == "tensor" and not isinstance(layout, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor")
    given = request.record.detail.get("factors")
    factors = [(i, o, m) for i, (o, m) in enumerate(request.tensors) if given is None or o.name in given]
    terms = parse(str(request.record.detail["equation"]))
    sizes, labels = bind(request, terms, [(o, m) for _, o, m in factors])
    shape = tuple(sizes[label] for label in labels[2])
    computed = compute_dtype(request)
    if request.into is None:
        out = meta(result_dtype(request.record.outputs[0], computed, request), shape, None, request.device)
    else:
        out = request.into[0]
    if out.shape != shape:
        raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(out.shape)}")
    if not out.numel:
        return Planned((out,))
    buffers = [(i, m) for i, _, m in factors] + [(len(request.tensors), out)]
    places = [
        Place(i, layout.dtype, strides_by_label(own, layout, sizes))
        for own, (i, layout) in zip(labels, buffers, strict=True)
    ]
    extra = beside(request, labels[2], out, sizes)
    triton = request.capabilities.style == "triton"  # which multiplies half types as they are
    builder = _Builder(request, sizes, computed if triton else _SUMMED.get(computed.name, computed), extra)
    builder.product(*places)
    return Planned((out,), tuple(builder.steps), tuple(builder.scratch))


class _Builder:
    """Collects the steps of one call and the scratch they need."""

    def __init__(self, request: Request, sizes: dict[Label, int], element: DType, beside: Beside | None):
        self.request = request
        self.beside = beside
        self.able = request.capabilities
        self.sizes = sizes
        self.element = element
        lanes = self.able.lanes if self.able.style == "cpu" else 1
        self.lanes = max(1, lanes // 2) if element.itemsize == 8 else lanes
        self.steps: list[Step] = []
        self.scratch: list[int] = []

    def product(self, a: Place, b: Place, c: Place) -> None:
        """Steps for C = A B."""
        summed = [label for label, size in self.sizes.items() if size != 1 and label not in c.strides]
        if 0 in (self.sizes[label] for label in summed):
            return self._move(self._dims(list(c.strides), c, c), c, c, parts=0, last=True)
        a, b = self._merge_k(summed, a, b)
        gemm = self._reduced(a, b, c)
        if len(gemm.batch) > _BATCH:
            return self._repacked(a, b, c)
        if self._swapped(gemm):
            a, b = b, a
            gemm = self._reduced(a, b, c)
        if self.able.style == "triton":
            return _triton().product(self, gemm, a, b, c)
        if self.able.style == "gpu":
            return self._gpu(gemm, a, b, c)
        return self._cpu(gemm, a, b, c)

    # reduction to matrices

    def _groups(self, a: Place, b: Place, c: Place) -> tuple[list[Label], list[Label], list[Label], list[Label]]:
        """Labels of m, n, k and the batch. Read at stride 0, a dimension is none of that operand's; one that neither
        operand has stands for what is missing of m and n."""
        m, n, k, batch, neither = [], [], [], [], []
        for label, size in self.sizes.items():
            if size == 1:
                continue
            if label not in c.strides:
                k.append(label)
            elif not a.strides.get(label) and not b.strides.get(label):
                neither.append(label)
            elif not b.strides.get(label):
                m.append(label)
            elif not a.strides.get(label):
                n.append(label)
            else:
                batch.append(label)
        if n or len(m) + len(batch) < 2:
            return [*m, *neither], n, k, batch
        return m, neither, k, batch

    def _runs(self, labels: list[Label], *places: Place) -> list[tuple[int, ...]]:
        """(size, stride in each place) of the dimensions that `labels` merge to, the last place's innermost last."""
        sizes = tuple(self.sizes[label] for label in labels)
        merged, strides = collapse(sizes, [tuple(p.strides.get(label, 0) for label in labels) for p in places])
        return [(size, *(s[i] for s in strides)) for i, size in enumerate(merged)]

    def _merge_k(self, k: list[Label], a: Place, b: Place) -> tuple[Place, Place]:
        """A and B with k as one dimension: what stands in the way is copied."""
        if len(self._runs(k, a, b)) <= 1 or len(self._runs(k, b, a)) <= 1:
            return a, b
        for model, other in ((a, b), (b, a)):
            if len(self._runs(k, model)) <= 1:
                copied = self._packed(other, self._outside(k, other), self._ordered(k, model))
                return (model, copied) if model is a else (copied, model)
        order = self._ordered(k, a)
        return self._packed(a, self._outside(k, a), order), self._packed(b, self._outside(k, b), order)

    def _outside(self, k: list[Label], place: Place) -> list[Label]:
        return self._ordered([x for x in place.strides if x not in k], place)

    def _ordered(self, labels: list[Label], place: Place) -> list[Label]:
        return sorted(labels, key=lambda label: -place.strides.get(label, 0))

    def _reduced(self, a: Place, b: Place, c: Place) -> Gemm:
        """The problem merged: of what m and n do not merge to, the best run is kept and the rest is batch."""
        m, n, k, batch = self._groups(a, b, c)
        extra = self.beside.places if self.beside is not None else ()
        rows, columns = self._runs(m, a, c, *extra), self._runs(n, b, c, *extra)
        none = (0,) * len(extra)
        row = max(rows, key=lambda run: (run[2] == 1, run[0]), default=(1, 0, 0, *none))
        column = max(columns, key=lambda run: (run[2] == 1, run[0]), default=(1, 0, 1, *none))
        depth = self._runs(k, a, b)
        if len(depth) > 1:
            depth = [(size, s, t) for size, t, s in self._runs(k, b, a)]
        entries = self._runs(batch, a, b, c, *extra)
        entries += [(size, s, 0, u, *e) for size, s, u, *e in rows if (size, s, u, *e) != row]
        entries += [(size, 0, t, u, *e) for size, t, u, *e in columns if (size, t, u, *e) != column]
        beside = tuple((row[3 + i], column[3 + i], tuple(e[4 + i] for e in entries)) for i in range(len(extra)))
        k_run = depth[0] if depth else (1, 1, 1)
        return Gemm(row[:3], column[:3], k_run, tuple(e[:4] for e in entries), beside)  # type: ignore[arg-type,misc]

    def _swapped(self, gemm: Gemm) -> bool:
        """Whether the product of the transposes is the better one: n must be contiguous in the result."""
        (m, _, cm), (n, _, cn) = gemm.m, gemm.n
        return (n == 1 and m > 1) or (m > 1 and cm == 1 and cn != 1)

    def _repacked(self, a: Place, b: Place, c: Place) -> None:
        """Too many batch dimensions that do not merge: all three laid out alike."""
        m, n, k, batch = self._groups(a, b, c)
        labels = [*batch, *m, *n]
        whole = Place(self._allocate(self._count(labels)), self.element, self._fresh(labels))
        extra, self.beside = self.beside, None
        self.product(self._packed(a, [*batch, *m], k), self._packed(b, [*batch, *n], k), whole)
        self.beside = extra
        self._move(self._dims(labels, whole, c), whole, c, last=True)

    # copies

    def _count(self, labels: list[Label]) -> int:
        count = 1
        for label in labels:
            count *= self.sizes[label]
        return count

    def _fresh(self, labels: list[Label]) -> Strides:
        strides, step = {}, 1
        for label in reversed(labels):
            strides[label] = step
            step *= self.sizes[label]
        return strides

    def _allocate(self, count: int) -> int:
        self.scratch.append(count * self.element.itemsize)
        return len(self.request.tensors) + len(self.scratch)

    def _packed(self, place: Place, outer: list[Label], inner: list[Label]) -> Place:
        """A contiguous copy of `place` in the order outer, inner, in the compute type."""
        labels = [*outer, *inner]
        made = Place(self._allocate(self._count(labels)), self.element, self._fresh(labels))
        self._move([(self.sizes[x], place.strides.get(x, 0), made.strides[x]) for x in labels], place, made)
        return made

    def _dims(self, labels: list[Label], source: Place, target: Place) -> list[tuple[int, ...]]:
        """What the last copy goes through: sizes and strides of both places, and of those that the epilogue reads."""
        places = (source, target, *(self.beside.places if self.beside is not None else ()))
        return [(self.sizes[x], *(p.strides.get(x, 0) for p in places)) for x in labels]

    def _move(
        self, dims: Sequence[tuple[int, ...]], source: Place, target: Place, parts: int = 1, part_step: int = 0,
        last: bool = False,
    ) -> None:  # fmt: skip
        """A step that copies dimensions (size, source's stride, target's), or sums `parts` sources `part_step` apart.
        No parts: zeros. last: it stores the result, through the epilogue, whose operands' strides follow in `dims`."""
        if self.able.style == "triton":
            return _triton().move(self, dims, source, target, parts, last)
        extra = self.beside if last else None
        width = 3 + len(extra.places if extra else ())
        sizes, strides = collapse(tuple(d[0] for d in dims), [tuple(d[i] for d in dims) for i in range(1, width)])
        runs = list(zip(sizes, *strides, strict=True)) or [(1,) * width]
        total = 1
        for size, *_ in runs:
            total *= size
        column = runs.pop()
        turned = [r for r in runs if r[1] == 1 and r[0] > 1]
        flips = bool(turned) and column[1] != 1 and column[2] == 1 and parts == 1 and extra is None
        row = turned[0] if turned else runs[-1] if runs else (1, *(0,) * (len(column) - 1))
        if runs:
            runs.remove(row)
        if len(runs) > _OUTER:
            message = f"more than {_OUTER + 2} dimensions that do not merge; call .contiguous() first"
            raise ShapeError(f"{self.request.where()}: {message}")
        outer = total // (column[0] * row[0])
        mode = 1 if flips else 0 if column[1] == column[2] == 1 else 2
        shares = elementwise_parts(total, self.able.cores)
        outer_chunk = _ceil(outer, shares)
        row_chunk = _ceil(row[0], _ceil(shares, _ceil(outer, outer_chunk)))
        row_chunk = _ceil(row_chunk, self.lanes) * self.lanes if flips else row_chunk
        geometry = pack_longs((
            row[0], column[0], *row[1:3], *column[1:3], parts, part_step, row_chunk, outer, outer_chunk,
            *padded([r[0] for r in runs], _OUTER, 1), *padded([r[1] for r in runs], _OUTER, 0),
            *padded([r[2] for r in runs], _OUTER, 0), *row[3:], *column[3:],
            *(x for i in range(3, len(column)) for x in padded([r[i] for r in runs], _OUTER, 0)),
        ))  # fmt: skip
        places = (source, target, *(extra.places if extra else ()))
        slots, buffers = tuple(Slot(p.dtype.name) for p in places), tuple(p.buffer for p in places)
        items: tuple[int, ...]
        local: tuple[int, ...]
        if self.able.style == "gpu":
            group = min(128, self.able.max_group)
            instance = self._instance("spread", slots, (), extra, column[3:])
            items, local = (_ceil(total, group) * group,), (group,)
        else:
            instance = self._instance("move", slots, (("MOVE", str(mode)),), extra, column[3:])
            items, local = (_ceil(row[0], row_chunk), _ceil(outer, outer_chunk)), (1, 1)
        work = total * max(parts, 1)
        self.steps.append(Step(instance, buffers, geometry, items, local, work, _numbers(extra)))

    def text(self, extra: Beside | None) -> Text:
        """The kernels that store through the op's epilogue, or those that all contractions share."""
        plain = extra is None and self.beside is not None
        record = registry["mm"] if plain else self.request.record
        return record.texts[self.request.device.driver.target]

    def _instance(
        self, entry: str, slots: tuple[Slot, ...], defines: tuple[tuple[str, str], ...], extra: Beside | None = None,
        along_n: Sequence[int] = (),
    ) -> Instance:  # fmt: skip
        """along_n: strides along the result's rows of what the epilogue reads."""
        text = self.text(extra)
        classes = ((f"EXTRA{i}", str(step if step in (0, 1) else 2)) for i, step in enumerate(along_n))
        defines = ((f"SCHEDULE_{entry.upper()}", "1"), *defines, *classes)
        # Named for the kind, not the op: the text is the same for all, and so are compiled kernels.
        return Instance(
            "contraction", text.source, f"contraction_{entry}", self.element.compute, self.lanes, slots, defines,
            text.functions,
        )  # fmt: skip

    # products

    def _result(self, gemm: Gemm, c: Place, parts: int, aside: bool) -> tuple[Gemm, Place, int]:
        """Where the product writes: C, or scratch (`[batch][parts][m][n]` in the compute type)."""
        if parts == 1 and not aside:
            return gemm, c, 0
        matrix = gemm.m[0] * gemm.n[0]
        step, batch = matrix * parts, []
        for size, s, t, _ in reversed(gemm.batch):
            batch.append((size, s, t, step))
            step *= size
        there = replace(gemm, m=(*gemm.m[:2], gemm.n[0]), n=(*gemm.n[:2], 1), batch=tuple(reversed(batch)), beside=())
        return there, Place(self._allocate(step), self.element, {}), matrix

    def _settle(self, gemm: Gemm, there: Gemm, c: Place, place: Place, parts: int, part_step: int) -> None:
        """Copy what was written to scratch into C."""
        if place is c:
            return
        dims: list[tuple[int, ...]] = [
            (one[0], two[3], one[3], *(e[2][i] for e in gemm.beside))
            for i, (one, two) in enumerate(zip(gemm.batch, there.batch, strict=True))
        ]
        dims.append((gemm.m[0], there.m[2], gemm.m[2], *(e[0] for e in gemm.beside)))
        dims.append((gemm.n[0], there.n[2], gemm.n[2], *(e[1] for e in gemm.beside)))
        self._move(dims, place, c, parts, part_step, last=True)

    def _product(self, gemm: Gemm) -> tuple[bool, bool]:
        """Whether A, and whether B, is contiguous along k."""
        n, k = gemm.n, gemm.k
        return k[1] == 1 or k[0] == 1, (k[2] == 1 or k[0] == 1) and (n[1] != 1 or n[0] == 1)

    def _cpu(self, gemm: Gemm, a: Place, b: Place, c: Place) -> None:
        if (points := self._points(gemm, a, b, c)) is not None:
            return self._launch(gemm, a, b, c, points, False, 1, 0)
        if gemm.n[0] > 1 and gemm.n[1] != 1 and (gemm.k[0] == 1 or gemm.k[2] != 1):
            gemm, b = self._copied_b(gemm, b)
        a_along_k, b_along_k = self._product(gemm)
        converts = a.dtype.storage != self.element.storage
        shape = contraction_plan.Product(gemm.m[0], gemm.n[0], gemm.k[0], gemm.entries, a_along_k, b_along_k, converts)
        if contraction_plan.lays_b(shape, self.lanes):
            turned, b = self._copied_a(gemm.turned(), b)
            return self._cpu(turned.turned(), a, b, c)
        wanted = self._chosen(shape)
        chosen = contraction_plan.choose(shape, self.able, self.lanes, wanted)
        if contraction_plan.turns(shape, self.able, self.lanes, wanted):
            other = gemm.turned()
            if not chosen.laid or (self.beside is None and not self._conflicts(other)):
                return self._cpu(other, b, a, c)  # whose result is laid out anew instead of A
        flips = not a_along_k if chosen.laid else chosen.block and not a_along_k and gemm.m[1] != 1
        if chosen.flip or flips or (chosen.laid and self._conflicts(gemm)):
            gemm, a = self._copied_a(gemm, a)
        if chosen.laid:
            gemm, b = self._laid_b(gemm, b, chosen.nv, b_along_k)
        # Sums over several blocks of k are collected in C, unless a work-item has room of its own for them.
        collects = chosen.name == "gemm" and not chosen.block and gemm.k[0] > chosen.kc
        aside = (gemm.n[0] > 1 and gemm.n[2] != 1) or (collects and c.dtype.storage != self.element.storage)
        there, place, part_step = self._result(gemm, c, chosen.parts, aside)
        columns = _ceil(there.n[0], chosen.columns)
        self._launch(there, a, b, place, chosen, b_along_k, columns, part_step)
        self._settle(gemm, there, c, place, chosen.parts, part_step)

    def _points(self, gemm: Gemm, a: Place, b: Place, c: Place) -> contraction_plan.Schedule | None:
        """The schedule for rows of few elements, where those of A and of the result lie one after the other."""
        (m, am, cm), (n, _, cn), (k, ak, _) = gemm.m, gemm.n, gemm.k
        if (am, ak, cm, cn) != (k, 1, n, 1) or any(p.dtype.storage != self.element.storage for p in (a, b, c)):
            return None
        shape = contraction_plan.Product(m, n, k, gemm.entries, True, False)
        return contraction_plan.points(shape, self.able, self._chosen(shape))

    def _chosen(self, p: contraction_plan.Product) -> Choice:
        """What a schedule says of the product; ops with the same one share it."""
        sizes = {"m": p.m, "n": p.n, "k": p.k, "batch": p.batch}
        layout = ("N" if p.a_along_k else "T") + ("T" if p.b_along_k else "N") + "*" * p.converts
        return choose(self.request, "contraction", sizes, self.element.name, "product", layout)

    def _copied_a(self, gemm: Gemm, a: Place) -> tuple[Gemm, Place]:
        """A laid out along k, once for the batch entries that share it."""
        (m, am, cm), (k, ak, bk) = gemm.m, gemm.k
        row = k + self.lanes if k % 256 == 0 else k  # rows a power of two apart meet in one cache set
        step, batch = m * row, []
        dims = [(m, am, row), (k, ak, 1)]
        for size, s, t, u in reversed(gemm.batch):
            batch.append((size, step if s else 0, t, u))
            if s:
                dims.insert(0, (size, s, step))
                step *= size
        made = Place(self._allocate(step), self.element, {})
        self._move(dims, a, made)
        return replace(gemm, m=(m, row, cm), k=(k, 1, bk), batch=tuple(reversed(batch))), made

    def _copied_b(self, gemm: Gemm, b: Place) -> tuple[Gemm, Place]:
        """B laid out along n, once for the batch entries that share it."""
        (n, bn, cn), (k, ak, bk) = gemm.n, gemm.k
        step, batch = n * k, []
        dims = [(k, bk, n), (n, bn, 1)]
        for size, s, t, u in reversed(gemm.batch):
            batch.append((size, s, step if t else 0, u))
            if t:
                dims.insert(0, (size, t, step))
                step *= size
        made = Place(self._allocate(step), self.element, {})
        self._move(dims, b, made)
        return replace(gemm, n=(n, 1, cn), k=(k, ak, n), batch=tuple(reversed(batch))), made

    def _conflicts(self, gemm: Gemm) -> bool:
        """Whether neighbouring rows of A, contiguous along k, meet in one cache set."""
        return (gemm.m[1] * self.element.itemsize + _LINE) % _A_WAY <= 2 * _LINE

    def _laid_b(self, gemm: Gemm, b: Place, vectors: int, along_k: bool) -> tuple[Gemm, Place]:
        """B in panels of so many vectors of columns; its strides are then those of a row within, and of a panel."""
        (n, bn, cn), (k, ak, bk) = gemm.n, gemm.k
        width, depth = vectors * self.lanes, _ceil(k, self.lanes) * self.lanes
        panel = width * (depth + (depth % 256 == 0))
        made = Place(self._allocate(_ceil(n, width) * panel), self.element, {})
        whole, least = (_ceil(n, width), 1) if along_k else (k, self.lanes)
        chunk = _ceil(_ceil(whole, 4 * self.able.cores), least) * least
        defines = (("NV", str(vectors)), ("TB", str(int(along_k))))
        instance = self._instance("lay", (Slot(made.dtype.name), Slot(b.dtype.name)), defines)
        geometry = pack_longs((n, k, bk, bn, panel, chunk))
        size = (_ceil(whole, chunk), 1, 1)
        self.steps.append(Step(instance, (made.buffer, b.buffer), geometry, size, (1, 1, 1), n * k))
        return replace(gemm, n=(n, panel, cn), k=(k, ak, width)), made

    def _launch(
        self, gemm: Gemm, a: Place, b: Place, c: Place, chosen: contraction_plan.Schedule,
        b_along_k: bool, columns: int, part_step: int,
    ) -> None:  # fmt: skip
        entries = gemm.entries * chosen.parts
        block = _ceil(chosen.depth, _ceil(chosen.depth, chosen.kc))
        block = min(_ceil(block, self.lanes) * self.lanes, chosen.kc)
        geometry = self._geometry(
            gemm, chosen.rows, chosen.columns, block, chosen.depth, chosen.entries, chosen.parts, part_step
        )
        defines: tuple[tuple[str, str], ...] = (("MR", str(chosen.mr)), ("NV", str(chosen.nv)))
        if chosen.name == "gemm":
            converts = c.dtype.storage != self.element.storage
            flags = {"KC": chosen.kc, "PACK": chosen.pack, "TB": b_along_k, "CONVERTS": converts, "AROWS": chosen.block,
                     "LAID": chosen.laid}
            if chosen.block:
                flags |= {"PANELS": chosen.panels, "TA": gemm.k[1] != 1}
            else:
                flags["ALONG_K"] = gemm.k[1] == 1 or gemm.k[0] == 1
            defines += tuple((name, str(int(value))) for name, value in flags.items())
        size = (columns, _ceil(gemm.m[0], chosen.rows), _ceil(entries, chosen.entries))
        self._enqueue(chosen.name, defines, (a, b, c), geometry, size, (1, 1, 1), gemm, part_step)

    def _gpu(self, gemm: Gemm, a: Place, b: Place, c: Place) -> None:
        a_along_k, b_along_k = self._product(gemm)
        shape = contraction_plan.Product(gemm.m[0], gemm.n[0], gemm.k[0], gemm.entries, a_along_k, b_along_k)
        tile = contraction_plan.choose_tile(shape, self.able, self.element.itemsize, self._chosen(shape))
        there, place, part_step = self._result(gemm, c, tile.parts, False)
        rows, columns = tile.gy * tile.tm, tile.gx * tile.tn
        flags = {"GX": tile.gx, "GY": tile.gy, "TM": tile.tm, "TN": tile.tn, "KC": tile.kc}
        defines = tuple((name, str(value)) for name, value in flags.items())
        geometry = self._geometry(there, rows, columns, tile.kc, tile.depth, 1, tile.parts, part_step)
        group = tile.gx * tile.gy
        groups = _ceil(gemm.m[0], rows) * _ceil(gemm.n[0], columns)
        size = (groups * group, gemm.entries * tile.parts)
        self._enqueue("tile", defines, (a, b, place), geometry, size, (group, 1), there, part_step)
        self._settle(gemm, there, c, place, tile.parts, part_step)

    @staticmethod
    def _geometry(
        gemm: Gemm, rows: int, columns: int, block: int, depth: int, entries: int, parts: int, part_step: int
    ) -> bytes:
        (m, am, cm), (n, bn, cn), (k, ak, bk) = gemm.m, gemm.n, gemm.k
        batch = [padded([d[i] for d in gemm.batch], _BATCH, int(i == 0)) for i in range(4)]
        return pack_longs((
            m, n, k, am, ak, bk, bn, cm, cn, rows, columns, block, depth, entries, parts,
            part_step, gemm.entries * parts,
            *(x for table in batch for x in table),
            *(e[0] for e in gemm.beside), *(e[1] for e in gemm.beside),
            *(x for e in gemm.beside for x in padded(e[2], _BATCH, 0)),
        ))  # fmt: skip

    def _enqueue(
        self, entry: str, defines: tuple[tuple[str, str], ...], places: tuple[Place, ...], geometry: bytes,
        size: tuple[int, ...], local: tuple[int, ...], gemm: Gemm, part_step: int,
    ) -> None:  # fmt: skip
        extra = None if part_step else self.beside  # what goes to scratch is stored through the epilogue later
        places = (*places, *(extra.places if extra else ()))
        slots = tuple(Slot(p.dtype.name) for p in places)
        instance = self._instance(entry, slots, defines, extra, [e[1] for e in gemm.beside])
        m, n, k = gemm.m[0], gemm.n[0], gemm.k[0]
        work = gemm.entries * max(m * n * k // _A_MULTIPLICATION, (m * k + k * n) // _A_READ, m * n)
        self.steps.append(
            Step(instance, tuple(p.buffer for p in places), geometry, size, local, work, _numbers(extra))
        )


def _numbers(extra: Beside | None) -> tuple[int, ...]:
    """The call's numbers, which a kernel with an epilogue takes."""
    return tuple(range(extra.numbers)) if extra is not None else ()


def _triton() -> ModuleType:
    from .triton import contraction

    return contraction


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
