"""Products of contractions on CPUs: pack or copy the operands where that pays, and launch the product.

`contraction_plan.py` chooses the schedule.
"""

from __future__ import annotations

from dataclasses import replace

from ..backends.protocol import Slot, Step
from ..layout import pack_longs
from . import contraction_plan
from .contraction_builder import Builder
from .contraction_opencl import add_step, instance_of, pack_geometry, schedule_params
from .contraction_terms import Gemm, TensorView

__all__ = ["add_product"]

_CACHE_LINE_BYTES = 64
_CACHE_WAY_BYTES = 4096  # of an L1 cache: rows at a multiple of this distance compete for one set


def add_product(builder: Builder, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView) -> None:
    """Append the steps of a product on a CPU: copies of A and B that pay, the product, and a copy of its result."""
    if (points := _points_schedule(builder, gemm, a, b, c)) is not None:
        return _launch(builder, gemm, a, b, c, points, False, 1, 0)
    if gemm.n[0] > 1 and gemm.n[1] != 1 and (gemm.k[0] == 1 or gemm.k[2] != 1):
        gemm, b = _repack_b(builder, gemm, b)
    a_along_k, b_along_k = builder.contiguity_along_k(gemm)
    converts = a.dtype.storage != builder.element.storage
    product = contraction_plan.Product(gemm.m[0], gemm.n[0], gemm.k[0], gemm.entries, a_along_k, b_along_k, converts)
    if contraction_plan.should_repack_b(product, builder.lanes):  # along k: B is the A of the transposed product
        transposed_gemm, b = _repack_a(builder, gemm.transposed(), b)
        return add_product(builder, transposed_gemm.transposed(), a, b, c)
    params = schedule_params(builder, product)
    schedule = contraction_plan.choose(product, builder.caps, builder.lanes, params)
    if contraction_plan.should_transpose_result(product, builder.caps, builder.lanes, params):
        transposed = gemm.transposed()
        if not schedule.packed_ahead or (builder.epilogue is None and not _rows_share_cache_set(builder, transposed)):
            return add_product(builder, transposed, b, a, c)  # it copies its result instead of A
    # Kernels with B packed ahead need an A along k; kernels that pack A themselves need one along k or m.
    needs_copy = not a_along_k if schedule.packed_ahead else schedule.block and not a_along_k and gemm.m[1] != 1
    if schedule.transpose_a or needs_copy or (schedule.packed_ahead and _rows_share_cache_set(builder, gemm)):
        gemm, a = _repack_a(builder, gemm, a)
    if schedule.packed_ahead:
        gemm, b = _pack_b_in_panels(builder, gemm, b, schedule.nv, b_along_k)
    # Without `schedule.block`, sums over several blocks of k accumulate in C, or in scratch if C would round them.
    accumulates_in_c = schedule.name == "gemm" and not schedule.block and gemm.k[0] > schedule.kc
    uses_scratch = (gemm.n[0] > 1 and gemm.n[2] != 1) or (
        accumulates_in_c and c.dtype.storage != builder.element.storage
    )
    target, target_view, part_step = builder.choose_target(gemm, c, schedule.parts, uses_scratch)
    columns = _ceil(target.n[0], schedule.columns)
    _launch(builder, target, a, b, target_view, schedule, b_along_k, columns, part_step)
    builder.copy_to_result(gemm, target, c, target_view, schedule.parts, part_step)


def _points_schedule(
    builder: Builder, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView
) -> contraction_plan.Schedule | None:
    """Return the schedule `points`, for many short rows, or None.

    It requires that A and the result are row-major contiguous, and that all dtypes are the compute type's.
    """
    (m, am, cm), (n, _, cn), (k, ak, _) = gemm.m, gemm.n, gemm.k
    if (am, ak, cm, cn) != (k, 1, n, 1) or any(v.dtype.storage != builder.element.storage for v in (a, b, c)):
        return None
    product = contraction_plan.Product(m, n, k, gemm.entries, True, False)
    return contraction_plan.points_schedule(product, builder.caps, schedule_params(builder, product))


def _repack_a(builder: Builder, gemm: Gemm, a: TensorView) -> tuple[Gemm, TensorView]:
    """Copy A so that it is contiguous along k. Batch entries that share A share the copy."""
    (m, am, cm), (k, ak, bk) = gemm.m, gemm.k
    row_stride = k + builder.lanes if k % 256 == 0 else k  # rows at a power-of-two stride map to one cache set
    numel, batch = m * row_stride, []
    dims = [(m, am, row_stride), (k, ak, 1)]
    for size, s, t, u in reversed(gemm.batch):
        batch.append((size, numel if s else 0, t, u))
        if s:
            dims.insert(0, (size, s, numel))
            numel *= size
    packed = TensorView(builder.allocate(numel), builder.element, {})
    builder.add_copy(dims, a, packed)
    return replace(gemm, m=(m, row_stride, cm), k=(k, 1, bk), batch=tuple(reversed(batch))), packed


def _repack_b(builder: Builder, gemm: Gemm, b: TensorView) -> tuple[Gemm, TensorView]:
    """Copy B so that it is contiguous along n. Batch entries that share B share the copy."""
    (n, bn, cn), (k, ak, bk) = gemm.n, gemm.k
    numel, batch = n * k, []
    dims = [(k, bk, n), (n, bn, 1)]
    for size, s, t, u in reversed(gemm.batch):
        batch.append((size, s, numel if t else 0, u))
        if t:
            dims.insert(0, (size, t, numel))
            numel *= size
    packed = TensorView(builder.allocate(numel), builder.element, {})
    builder.add_copy(dims, b, packed)
    return replace(gemm, n=(n, 1, cn), k=(k, ak, n), batch=tuple(reversed(batch))), packed


def _rows_share_cache_set(builder: Builder, gemm: Gemm) -> bool:
    """Return whether neighbouring rows of A, contiguous along k, map to one cache set."""
    return (gemm.m[1] * builder.element.itemsize + _CACHE_LINE_BYTES) % _CACHE_WAY_BYTES <= 2 * _CACHE_LINE_BYTES


def _pack_b_in_panels(
    builder: Builder, gemm: Gemm, b: TensorView, vectors: int, along_k: bool
) -> tuple[Gemm, TensorView]:
    """Pack B in panels of k rows by `vectors` vectors of columns. `along_k`: B is contiguous along k.

    In the returned product, B's stride along k leads to the next row of a panel, its stride along n to the next
    panel.
    """
    (n, bn, cn), (k, ak, bk) = gemm.n, gemm.k
    width, depth = vectors * builder.lanes, _ceil(k, builder.lanes) * builder.lanes
    panel = width * (depth + (depth % 256 == 0))  # a spare row keeps panels from competing for one cache set
    packed = TensorView(builder.allocate(_ceil(n, width) * panel), builder.element, {})
    # Work-items read contiguous memory: whole panels if B is contiguous along k, else strips of rows.
    units, quantum = (_ceil(n, width), 1) if along_k else (k, builder.lanes)
    chunk = _ceil(_ceil(units, 4 * builder.caps.cores), quantum) * quantum
    defines = (("NV", str(vectors)), ("TB", str(int(along_k))))
    instance = instance_of(builder, "pack_b", (Slot(packed.dtype.name), Slot(b.dtype.name)), defines)
    geometry = pack_longs((n, k, bk, bn, panel, chunk))
    size = (_ceil(units, chunk), 1, 1)
    builder.steps.append(Step(instance, (packed.buffer, b.buffer), geometry, size, (1, 1, 1), n * k))
    return replace(gemm, n=(n, panel, cn), k=(k, ak, width)), packed


def _launch(
    builder: Builder, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView, schedule: contraction_plan.Schedule,
    b_along_k: bool, columns: int, part_step: int,
) -> None:  # fmt: skip
    entries = gemm.entries * schedule.parts
    block = _ceil(schedule.depth, _ceil(schedule.depth, schedule.kc))
    block = min(_ceil(block, builder.lanes) * builder.lanes, schedule.kc)
    geometry = pack_geometry(
        gemm, schedule.rows, schedule.columns, block, schedule.depth, schedule.entries, schedule.parts, part_step
    )
    defines: tuple[tuple[str, str], ...] = (("MR", str(schedule.mr)), ("NV", str(schedule.nv)))
    if schedule.name == "gemm":
        converts = c.dtype.storage != builder.element.storage
        flags = {
            "KC": schedule.kc,
            "PACK": schedule.pack,
            "TB": b_along_k,
            "CONVERTS": converts,
            "AROWS": schedule.block,
            "PACKED_AHEAD": schedule.packed_ahead,
        }
        if schedule.block:
            flags |= {"PANELS": schedule.panels, "TA": gemm.k[1] != 1}
        else:
            flags["ALONG_K"] = gemm.k[1] == 1 or gemm.k[0] == 1
        defines += tuple((name, str(int(value))) for name, value in flags.items())
    size = (columns, _ceil(gemm.m[0], schedule.rows), _ceil(entries, schedule.entries))
    add_step(builder, schedule.name, defines, (a, b, c), geometry, size, (1, 1, 1), gemm, part_step)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
