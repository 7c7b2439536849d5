"""Contractions: any equation of two operands, reduced to a batch of matrix products.

A dimension of both operands and the result is a batch, of one operand and the result belongs to m or n, of both
operands alone to k. Each group is merged to one dimension with one stride where layouts allow: `...mk,kn->...mn` is a
single product however many dimensions `...` has. What does not merge, or is contiguous neither way, is copied by a step
before; a result whose rows are not contiguous, or that is summed in parts, is copied by a step behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ShapeError
from ..layout import collapse, pack_longs, padded
from ..schedules import Choice, choose
from . import Planned, Request, contraction_plan
from .pointwise import compute_dtype, elementwise_parts, result_dtype

__all__ = ["plan"]

_BATCH = 4  # batch dimensions that do not merge, as kernels count them
_OUTER = 6  # dimensions of a copy beside its rows and columns
_SUMMED = {"float16": dtypes.float32, "bfloat16": dtypes.float32}
_A_MULTIPLICATION = 64  # multiplications that take as long as touching one element

Label = str | int  # a letter, or a dimension of `...` counted from the right: -1, -2, …
Strides = dict[Label, int]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a matrix lies: a buffer's position, its dtype, and a stride for each label it has."""

    buffer: int
    dtype: DType
    strides: Strides


@dataclass(frozen=True, slots=True)
class _Gemm:
    """The merged problem: size and strides (in those of A, B, C that have it) of m, n, k and each batch dimension."""

    m: tuple[int, int, int]
    n: tuple[int, int, int]
    k: tuple[int, int, int]
    batch: tuple[tuple[int, int, int, int], ...]

    @property
    def entries(self) -> int:
        count = 1
        for size, *_ in self.batch:
            count *= size
        return count


def plan(request: Request) -> Planned:
    """The result's layout, and the steps: copies of operands that need one, the product, a copy of the result."""
    (_, first), (_, second) = request.tensors
    terms = _parse(str(request.record.detail["equation"]))
    sizes, labels = _bind(request, terms, (first, second))
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
    layouts = (first, second, out)
    places = [
        _Place(i, layout.dtype, _strides(own, layout, sizes))
        for i, (own, layout) in enumerate(zip(labels, layouts, strict=True))
    ]
    triton = request.capabilities.style == "triton"  # which multiplies half types as they are
    builder = _Builder(request, sizes, computed if triton else _SUMMED.get(computed.name, computed))
    builder.product(*places)
    return Planned((out,), tuple(builder.steps), tuple(builder.scratch))


@lru_cache(maxsize=256)
def _parse(equation: str) -> tuple[str, str, str]:
    operands, _, result = equation.partition("->")
    first, _, second = operands.partition(",")
    return first, second, result


def _bind(
    request: Request, terms: tuple[str, str, str], operands: tuple[Meta, Meta]
) -> tuple[dict[Label, int], list[list[Label]]]:
    """Sizes of all labels, and the labels of each term in order. Raises `ShapeError`."""
    record = request.record
    sizes: dict[Label, int] = {}
    origin: dict[Label, str] = {}
    labels: list[list[Label]] = []
    for term, layout, operand in zip(terms, operands, record.operands, strict=False):
        letters = term.removeprefix("...")
        dots = layout.ndim - len(letters)
        if dots < 0 or (dots and letters == term):
            wanted = f"{len(letters)} dimensions" if letters == term else f"at least {len(letters)} dimensions"
            raise ShapeError(f"{request.where()}: {operand.name} must have {wanted} ({term or 'a scalar'})")
        own: list[Label] = [*range(-dots, 0), *letters]
        labels.append(own)
        for label, size in zip(own, layout.shape, strict=True):
            have = sizes.get(label)
            if have is None or (have == 1 and isinstance(label, int)):
                sizes[label], origin[label] = size, operand.name
            elif size != have and not (size == 1 and isinstance(label, int)):
                raise ShapeError(f"{request.where()}: {_clash(label, term, origin[label], have, operand.name, size)}")
    dots = -min((label for label in sizes if isinstance(label, int)), default=0)
    result = terms[2]
    labels.append([*(range(-dots, 0) if result.startswith("...") else ()), *result.removeprefix("...")])
    return sizes, labels


def _clash(label: Label, term: str, one: str, size: int, other: str, another: int) -> str:
    if isinstance(label, int):
        position = label - len(term.removeprefix("..."))
        return f"batch sizes {size} and {another} meet in dimension {position}; they must be equal or 1"
    return f"{label!r} is {size} in {one} and {another} in {other}; they must be equal"


def _strides(labels: list[Label], layout: Meta, sizes: dict[Label, int]) -> Strides:
    """Strides by label, without labels of size 1 and those broadcast over."""
    found = zip(labels, layout.shape, layout.strides, strict=True)
    return {label: stride for label, size, stride in found if sizes[label] != 1 and size != 1}


class _Builder:
    """Collects the steps of one call and the scratch they need."""

    def __init__(self, request: Request, sizes: dict[Label, int], element: DType):
        self.request = request
        self.able = request.capabilities
        self.sizes = sizes
        self.element = element
        lanes = self.able.lanes if self.able.style == "cpu" else 1
        self.lanes = max(1, lanes // 2) if element.itemsize == 8 else lanes
        self.steps: list[Step] = []
        self.scratch: list[int] = []

    def product(self, a: _Place, b: _Place, c: _Place) -> None:
        """Steps for C = A B."""
        summed = [label for label, size in self.sizes.items() if size != 1 and label not in c.strides]
        if 0 in (self.sizes[label] for label in summed):
            return self._move([(self.sizes[x], s, s) for x, s in c.strides.items()], c, c, parts=0)
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

    def _groups(self, a: _Place, b: _Place, c: _Place) -> tuple[list[Label], list[Label], list[Label], list[Label]]:
        """Labels of m, n, k and the batch. Read at stride 0, a dimension is none of that operand's."""
        m, n, k, batch = [], [], [], []
        for label, size in self.sizes.items():
            if size == 1:
                continue
            if label not in c.strides:
                k.append(label)
            elif not b.strides.get(label):
                m.append(label)
            elif not a.strides.get(label):
                n.append(label)
            else:
                batch.append(label)
        return m, n, k, batch

    def _runs(self, labels: list[Label], *places: _Place) -> list[tuple[int, ...]]:
        """(size, stride in each place) of the dimensions that `labels` merge to, the last place's innermost last."""
        sizes = tuple(self.sizes[label] for label in labels)
        merged, strides = collapse(sizes, [tuple(p.strides.get(label, 0) for label in labels) for p in places])
        return [(size, *(s[i] for s in strides)) for i, size in enumerate(merged)]

    def _merge_k(self, k: list[Label], a: _Place, b: _Place) -> tuple[_Place, _Place]:
        """A and B with k as one dimension: what stands in the way is copied."""
        if len(self._runs(k, a, b)) <= 1 or len(self._runs(k, b, a)) <= 1:
            return a, b
        for model, other in ((a, b), (b, a)):
            if len(self._runs(k, model)) <= 1:
                copied = self._packed(other, self._outside(k, other), self._ordered(k, model))
                return (model, copied) if model is a else (copied, model)
        order = self._ordered(k, a)
        return self._packed(a, self._outside(k, a), order), self._packed(b, self._outside(k, b), order)

    def _outside(self, k: list[Label], place: _Place) -> list[Label]:
        return self._ordered([x for x in place.strides if x not in k], place)

    def _ordered(self, labels: list[Label], place: _Place) -> list[Label]:
        return sorted(labels, key=lambda label: -place.strides.get(label, 0))

    def _reduced(self, a: _Place, b: _Place, c: _Place) -> _Gemm:
        """The problem merged: of what m and n do not merge to, the best run is kept and the rest is batch."""
        m, n, k, batch = self._groups(a, b, c)
        rows, columns = self._runs(m, a, c), self._runs(n, b, c)
        row = max(rows, key=lambda run: (run[2] == 1, run[0]), default=(1, 0, 0))
        column = max(columns, key=lambda run: (run[2] == 1, run[0]), default=(1, 0, 1))
        depth = self._runs(k, a, b)
        if len(depth) > 1:
            depth = [(size, s, t) for size, t, s in self._runs(k, b, a)]
        entries = [(size, s, t, u) for size, s, t, u in self._runs(batch, a, b, c)]
        entries += [(size, s, 0, u) for size, s, u in rows if (size, s, u) != row]
        entries += [(size, 0, t, u) for size, t, u in columns if (size, t, u) != column]
        return _Gemm(row, column, depth[0] if depth else (1, 1, 1), tuple(entries))  # type: ignore[arg-type]

    def _swapped(self, gemm: _Gemm) -> bool:
        """Whether the product of the transposes is the better one: n must be contiguous in the result."""
        (m, _, cm), (n, _, cn) = gemm.m, gemm.n
        return (n == 1 and m > 1) or (m > 1 and cm == 1 and cn != 1)

    def _repacked(self, a: _Place, b: _Place, c: _Place) -> None:
        """Too many batch dimensions that do not merge: all three laid out alike."""
        m, n, k, batch = self._groups(a, b, c)
        whole = _Place(self._allocate(self._count([*batch, *m, *n])), self.element, self._fresh([*batch, *m, *n]))
        self.product(self._packed(a, [*batch, *m], k), self._packed(b, [*batch, *n], k), whole)
        labels = [*batch, *m, *n]
        self._move([(self.sizes[x], whole.strides[x], c.strides[x]) for x in labels], whole, c)

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
        return 2 + len(self.scratch)

    def _packed(self, place: _Place, outer: list[Label], inner: list[Label]) -> _Place:
        """A contiguous copy of `place` in the order outer, inner, in the compute type."""
        labels = [*outer, *inner]
        made = _Place(self._allocate(self._count(labels)), self.element, self._fresh(labels))
        self._move([(self.sizes[x], place.strides.get(x, 0), made.strides[x]) for x in labels], place, made)
        return made

    def _move(
        self, dims: list[tuple[int, int, int]], source: _Place, target: _Place, parts: int = 1, part_step: int = 0
    ) -> None:
        """A step that copies dimensions (size, source's stride, target's), or sums `parts` sources `part_step` apart.
        No parts: zeros."""
        if self.able.style == "triton":
            return _triton().move(self, dims, source, target, parts)
        sizes, (given, taken) = collapse(
            tuple(d[0] for d in dims), [tuple(d[1] for d in dims), tuple(d[2] for d in dims)]
        )
        runs = list(zip(sizes, given, taken, strict=True)) or [(1, 1, 1)]
        total = 1
        for size, _, _ in runs:
            total *= size
        column = runs.pop()
        turned = [r for r in runs if r[1] == 1 and r[0] > 1]
        flips = bool(turned) and column[1] != 1 and column[2] == 1 and parts == 1
        row = turned[0] if turned else runs[-1] if runs else (1, 0, 0)
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
            row[0], column[0], *row[1:], *column[1:], parts, part_step, row_chunk, outer, outer_chunk,
            *padded([r[0] for r in runs], _OUTER, 1), *padded([r[1] for r in runs], _OUTER, 0),
            *padded([r[2] for r in runs], _OUTER, 0),
        ))  # fmt: skip
        slots, buffers = (Slot(source.dtype.name), Slot(target.dtype.name)), (source.buffer, target.buffer)
        items: tuple[int, ...]
        local: tuple[int, ...]
        if self.able.style == "gpu":
            group = min(128, self.able.max_group)
            instance = self._instance("spread", slots, ())
            items, local = (_ceil(total, group) * group,), (group,)
        else:
            instance = self._instance("move", slots, (("MOVE", str(mode)),))
            items, local = (_ceil(row[0], row_chunk), _ceil(outer, outer_chunk)), (1, 1)
        self.steps.append(Step(instance, buffers, geometry, items, local, total * max(parts, 1)))

    def _instance(self, entry: str, slots: tuple[Slot, ...], defines: tuple[tuple[str, str], ...]) -> Instance:
        text = self.request.record.texts[self.request.device.driver.target]
        defines = ((f"SCHEDULE_{entry.upper()}", "1"), *defines)
        # Named for the kind, not the op: the text is the same for all, and so are compiled kernels.
        return Instance(
            "contraction", text.source, f"contraction_{entry}", self.element.compute, self.lanes, slots, defines,
            text.functions,
        )  # fmt: skip

    # products

    def _result(self, gemm: _Gemm, c: _Place, parts: int, aside: bool) -> tuple[_Gemm, _Place, int]:
        """Where the product writes: C, or scratch (`[batch][parts][m][n]` in the compute type)."""
        if parts == 1 and not aside:
            return gemm, c, 0
        matrix = gemm.m[0] * gemm.n[0]
        step, batch = matrix * parts, []
        for size, s, t, _ in reversed(gemm.batch):
            batch.append((size, s, t, step))
            step *= size
        there = replace(gemm, m=(*gemm.m[:2], gemm.n[0]), n=(*gemm.n[:2], 1), batch=tuple(reversed(batch)))
        return there, _Place(self._allocate(step), self.element, {}), matrix

    def _settle(self, gemm: _Gemm, there: _Gemm, c: _Place, place: _Place, parts: int, part_step: int) -> None:
        """Copy what was written to scratch into C."""
        if place is c:
            return
        dims = [(one[0], two[3], one[3]) for one, two in zip(gemm.batch, there.batch, strict=True)]
        dims += [(gemm.m[0], there.m[2], gemm.m[2]), (gemm.n[0], there.n[2], gemm.n[2])]
        self._move(dims, place, c, parts, part_step)

    def _product(self, gemm: _Gemm) -> tuple[bool, bool]:
        """Whether A, and whether B, is contiguous along k."""
        n, k = gemm.n, gemm.k
        return k[1] == 1 or k[0] == 1, (k[2] == 1 or k[0] == 1) and (n[1] != 1 or n[0] == 1)

    def _cpu(self, gemm: _Gemm, a: _Place, b: _Place, c: _Place) -> None:
        if gemm.n[0] > 1 and gemm.n[1] != 1 and (gemm.k[0] == 1 or gemm.k[2] != 1):
            gemm, b = self._copied_b(gemm, b)
        a_along_k, b_along_k = self._product(gemm)
        converts = a.dtype.storage != self.element.storage
        shape = contraction_plan.Product(gemm.m[0], gemm.n[0], gemm.k[0], gemm.entries, a_along_k, b_along_k, converts)
        wanted = self._chosen(shape)
        chosen = contraction_plan.choose(shape, self.able, self.lanes, wanted)
        if chosen.flip and contraction_plan.turns(shape, self.able, self.lanes, wanted):
            return self._cpu(_turned(gemm), b, a, c)  # whose result is laid out anew instead of A
        if chosen.flip or (chosen.block and not a_along_k and gemm.m[1] != 1):
            gemm, a = self._copied_a(gemm, a)
        # Sums over several blocks of k are collected in C, unless a work-item has room of its own for them.
        collects = chosen.name == "gemm" and not chosen.block and gemm.k[0] > chosen.kc
        aside = (gemm.n[0] > 1 and gemm.n[2] != 1) or (collects and c.dtype.storage != self.element.storage)
        there, place, part_step = self._result(gemm, c, chosen.parts, aside)
        columns = _ceil(there.n[0], chosen.columns)
        self._launch(there, a, b, place, chosen, b_along_k, columns, part_step)
        self._settle(gemm, there, c, place, chosen.parts, part_step)

    def _chosen(self, p: contraction_plan.Product) -> Choice:
        """What a schedule says of the product; ops with the same one share it."""
        sizes = {"m": p.m, "n": p.n, "k": p.k, "batch": p.batch}
        layout = ("N" if p.a_along_k else "T") + ("T" if p.b_along_k else "N") + "*" * p.converts
        return choose(self.request, "contraction", sizes, self.element.name, "product", layout)

    def _copied_a(self, gemm: _Gemm, a: _Place) -> tuple[_Gemm, _Place]:
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
        made = _Place(self._allocate(step), self.element, {})
        self._move(dims, a, made)
        return replace(gemm, m=(m, row, cm), k=(k, 1, bk), batch=tuple(reversed(batch))), made

    def _copied_b(self, gemm: _Gemm, b: _Place) -> tuple[_Gemm, _Place]:
        """B laid out along n, once for the batch entries that share it."""
        (n, bn, cn), (k, ak, bk) = gemm.n, gemm.k
        step, batch = n * k, []
        dims = [(k, bk, n), (n, bn, 1)]
        for size, s, t, u in reversed(gemm.batch):
            batch.append((size, s, step if t else 0, u))
            if t:
                dims.insert(0, (size, t, step))
                step *= size
        made = _Place(self._allocate(step), self.element, {})
        self._move(dims, b, made)
        return replace(gemm, n=(n, 1, cn), k=(k, ak, n), batch=tuple(reversed(batch))), made

    def _launch(
        self, gemm: _Gemm, a: _Place, b: _Place, c: _Place, chosen: contraction_plan.Schedule,
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
            flags = {"KC": chosen.kc, "PACK": chosen.pack, "TB": b_along_k, "CONVERTS": converts, "AROWS": chosen.block}
            if chosen.block:
                flags |= {"PANELS": chosen.panels, "TA": gemm.k[1] != 1}
            defines += tuple((name, str(int(value))) for name, value in flags.items())
        slots = (Slot(a.dtype.name), Slot(b.dtype.name), Slot(c.dtype.name))
        instance = self._instance(chosen.name, slots, defines)
        size = (columns, _ceil(gemm.m[0], chosen.rows), _ceil(entries, chosen.entries))
        self._enqueue(instance, (a, b, c), geometry, size, (1, 1, 1), gemm)

    def _gpu(self, gemm: _Gemm, a: _Place, b: _Place, c: _Place) -> None:
        a_along_k, b_along_k = self._product(gemm)
        shape = contraction_plan.Product(gemm.m[0], gemm.n[0], gemm.k[0], gemm.entries, a_along_k, b_along_k)
        tile = contraction_plan.choose_tile(shape, self.able, self.element.itemsize, self._chosen(shape))
        there, place, part_step = self._result(gemm, c, tile.parts, False)
        rows, columns = tile.gy * tile.tm, tile.gx * tile.tn
        flags = {"GX": tile.gx, "GY": tile.gy, "TM": tile.tm, "TN": tile.tn, "KC": tile.kc}
        slots = (Slot(a.dtype.name), Slot(b.dtype.name), Slot(place.dtype.name))
        instance = self._instance("tile", slots, tuple((name, str(value)) for name, value in flags.items()))
        geometry = self._geometry(there, rows, columns, tile.kc, tile.depth, 1, tile.parts, part_step)
        group = tile.gx * tile.gy
        groups = _ceil(gemm.m[0], rows) * _ceil(gemm.n[0], columns)
        size = (groups * group, gemm.entries * tile.parts)
        self._enqueue(instance, (a, b, place), geometry, size, (group, 1), gemm)
        self._settle(gemm, there, c, place, tile.parts, part_step)

    @staticmethod
    def _geometry(
        gemm: _Gemm, rows: int, columns: int, block: int, depth: int, entries: int, parts: int, part_step: int
    ) -> bytes:
        (m, am, cm), (n, bn, cn), (k, ak, bk) = gemm.m, gemm.n, gemm.k
        batch = [padded([d[i] for d in gemm.batch], _BATCH, int(i == 0)) for i in range(4)]
        return pack_longs((
            m, n, k, am, ak, bk, bn, cm, cn, rows, columns, block, depth, entries, parts,
            part_step, gemm.entries * parts,
            *(x for table in batch for x in table),
        ))  # fmt: skip

    def _enqueue(
        self, instance: Instance, places: tuple[_Place, ...], geometry: bytes, size: tuple[int, ...],
        local: tuple[int, ...], gemm: _Gemm,
    ) -> None:  # fmt: skip
        m, n, k = gemm.m[0], gemm.n[0], gemm.k[0]
        work = gemm.entries * max(m * n * k // _A_MULTIPLICATION, m * k, k * n, m * n)
        self.steps.append(Step(instance, tuple(p.buffer for p in places), geometry, size, local, work))


def _turned(gemm: _Gemm) -> _Gemm:
    """The product of the transposes, the other way around."""
    (m, am, cm), (n, bn, cn), (k, ak, bk) = gemm.m, gemm.n, gemm.k
    return _Gemm((n, bn, cn), (m, am, cm), (k, bk, ak), tuple((size, t, s, u) for size, s, t, u in gemm.batch))


def _triton() -> ModuleType:
    from .triton import contraction

    return contraction


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
