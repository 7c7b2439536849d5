"""Steps of contractions in OpenCL: copies, products on GPUs, and what products on CPUs share with them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..backends.protocol import Instance, Slot, Step
from ..errors import ShapeError
from ..layout import collapse, pack_longs, pad_front
from ..schedules import Choice, choose
from . import contraction_plan
from .contraction_builder import MAX_BATCH_DIMS, Builder
from .contraction_terms import EpilogueInputs, Gemm, TensorView, scalar_positions
from .elementwise import elementwise_parts

__all__ = ["add_copy", "add_gpu_product", "add_step", "instance_of", "pack_geometry", "schedule_params"]

_MAX_OUTER_DIMS = 6  # dimensions of a copy besides its rows and columns
_MACS_PER_UNIT = 64  # multiply-adds per unit of `Step.work`: with it a product of 128³ stays on one core, and is faster
_READS_PER_UNIT = 8  # elements read per unit of `Step.work`


def add_copy(
    builder: Builder, dims: Sequence[tuple[int, ...]], source: TensorView, target: TensorView, parts: int,
    part_step: int, last: bool,
) -> None:  # fmt: skip
    """Append the step of `Builder.add_copy` in OpenCL: merge dimensions, choose the rows and columns of its loop."""
    epilogue = builder.epilogue if last else None
    views = (source, target, *(epilogue.tensors if epilogue else ()))
    sizes, strides = collapse(tuple(d[0] for d in dims), [tuple(d[1 + i] for d in dims) for i in range(len(views))])
    # Runs are merged dimensions: (size, stride in source, stride in target, strides in the epilogue's tensors).
    runs = list(zip(sizes, *strides, strict=True)) or [(1,) * (1 + len(views))]
    total = prod(size for size, *_ in runs)
    column = runs.pop()  # the target's innermost run; the row is a run in which the source is contiguous, if any
    source_contiguous = [r for r in runs if r[1] == 1 and r[0] > 1]
    transposes = bool(source_contiguous) and column[1] != 1 and column[2] == 1 and parts == 1 and epilogue is None
    row = source_contiguous[0] if source_contiguous else runs[-1] if runs else (1, *(0,) * (len(column) - 1))
    if runs:
        runs.remove(row)
    if len(runs) > _MAX_OUTER_DIMS:
        message = f"more than {_MAX_OUTER_DIMS + 2} dimensions that do not merge; call .contiguous() first"
        raise ShapeError(f"{builder.request.where()}: {message}")
    outer = total // (column[0] * row[0])
    mode = 1 if transposes else 0 if column[1] == column[2] == 1 else 2  # the template says what each mode does
    tasks = elementwise_parts(total, builder.caps.cores)
    outer_chunk = _ceil(outer, tasks)
    row_chunk = _ceil(row[0], _ceil(tasks, _ceil(outer, outer_chunk)))
    row_chunk = _ceil(row_chunk, builder.lanes) * builder.lanes if transposes else row_chunk
    geometry = pack_longs((
        row[0], column[0], *row[1:3], *column[1:3], parts, part_step, row_chunk, outer, outer_chunk,
        *pad_front([r[0] for r in runs], _MAX_OUTER_DIMS, 1), *pad_front([r[1] for r in runs], _MAX_OUTER_DIMS, 0),
        *pad_front([r[2] for r in runs], _MAX_OUTER_DIMS, 0), *row[3:], *column[3:],
        *(x for i in range(3, len(column)) for x in pad_front([r[i] for r in runs], _MAX_OUTER_DIMS, 0)),
    ))  # fmt: skip
    slots, buffers = tuple(Slot(v.dtype.name) for v in views), tuple(v.buffer for v in views)
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    if not builder.caps.takes_runs:  # a GPU: one work-item per element
        group = min(128, builder.caps.max_group)
        instance = instance_of(builder, "spread", slots, (), epilogue, column[3:])
        global_size, local_size = (_ceil(total, group) * group,), (group,)
    else:
        instance = instance_of(builder, "move", slots, (("MOVE", str(mode)),), epilogue, column[3:])
        global_size, local_size = (_ceil(row[0], row_chunk), _ceil(outer, outer_chunk)), (1, 1)
    work = total * max(parts, 1)
    builder.steps.append(Step(instance, buffers, geometry, global_size, local_size, work, scalar_positions(epilogue)))


def add_gpu_product(builder: Builder, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView) -> None:
    """Append the steps of a product on an OpenCL GPU: one work-group per tile of the result."""
    a_along_k, b_along_k = builder.contiguity_along_k(gemm)
    product = contraction_plan.Product(gemm.m[0], gemm.n[0], gemm.k[0], gemm.entries, a_along_k, b_along_k)
    tile = contraction_plan.choose_tile(
        product, builder.caps, builder.element.itemsize, schedule_params(builder, product)
    )
    target, target_view, part_step = builder.choose_target(gemm, c, tile.parts, False)
    rows, columns = tile.gy * tile.tm, tile.gx * tile.tn
    flags = {"GX": tile.gx, "GY": tile.gy, "TM": tile.tm, "TN": tile.tn, "KC": tile.kc}
    defines = tuple((name, str(value)) for name, value in flags.items())
    geometry = pack_geometry(target, rows, columns, tile.kc, tile.depth, 1, tile.parts, part_step)
    group = tile.gx * tile.gy
    groups = _ceil(gemm.m[0], rows) * _ceil(gemm.n[0], columns)
    # One dimension: drivers limit the groups of the second one to 65,535.
    size = (groups * group * gemm.entries * tile.parts,)
    add_step(builder, "tile", defines, (a, b, target_view), geometry, size, (group,), target, part_step)
    builder.copy_to_result(gemm, target, c, target_view, tile.parts, part_step)


def schedule_params(builder: Builder, product: contraction_plan.Product) -> Choice:
    """Return the schedule parameters of the product, from the user's tuned file or the shipped defaults.

    The key has sizes, dtype and layout, but not the op: `mm`, `linear` and `einsum` share the parameters.
    """
    sizes = {"m": product.m, "n": product.n, "k": product.k, "batch": product.batch}
    # N: row-major, T: transposed, *: loads of A convert its dtype
    layout = ("N" if product.a_along_k else "T") + ("T" if product.b_along_k else "N") + "*" * product.converts
    return choose(builder.request, "contraction", sizes, builder.element.name, "product", layout)


def instance_of(
    builder: Builder, entry: str, slots: tuple[Slot, ...], defines: tuple[tuple[str, str], ...],
    epilogue: EpilogueInputs | None = None, n_strides: Sequence[int] = (),
) -> Instance:  # fmt: skip
    """Return the kernel `entry`. n_strides: strides along n of the tensors that the epilogue reads."""
    text = builder.text(epilogue)
    # EXTRA_STEP0, …: how the epilogue loads a tensor: 0 one value for the row, 1 a vector, 2 strided elements.
    stride_classes = ((f"EXTRA_STEP{i}", str(step if step in (0, 1) else 2)) for i, step in enumerate(n_strides))
    defines = ((f"SCHEDULE_{entry.upper()}", "1"), *defines, *stride_classes)
    # Named for the kind and not for the op: ops with equal source share a compiled kernel.
    return Instance(
        "contraction", text.source, f"contraction_{entry}", builder.element.compute, builder.lanes, slots, defines,
        text.functions,
    )  # fmt: skip


def pack_geometry(
    gemm: Gemm, rows: int, columns: int, block: int, depth: int, entries: int, parts: int, part_step: int
) -> bytes:
    """Return the struct `Geometry` of a product's kernel; templates/opencl/contraction.cl.j2 has its fields."""
    (m, am, cm), (n, bn, cn), (k, ak, bk) = gemm.m, gemm.n, gemm.k
    batch = [pad_front([d[i] for d in gemm.batch], MAX_BATCH_DIMS, int(i == 0)) for i in range(4)]
    return pack_longs((
        m, n, k, am, ak, bk, bn, cm, cn, rows, columns, block, depth, entries, parts,
        part_step, gemm.entries * parts,
        *(x for table in batch for x in table),
        *(e[0] for e in gemm.epilogue_strides), *(e[1] for e in gemm.epilogue_strides),
        *(x for e in gemm.epilogue_strides for x in pad_front(e[2], MAX_BATCH_DIMS, 0)),
    ))  # fmt: skip


def add_step(
    builder: Builder, entry: str, defines: tuple[tuple[str, str], ...], views: tuple[TensorView, ...], geometry: bytes,
    size: tuple[int, ...], local: tuple[int, ...], gemm: Gemm, part_step: int,
) -> None:  # fmt: skip
    """Append a launch of a product's kernel.

    Args:
        builder: Collects the steps.
        entry: The kernel.
        defines: Its macros.
        views: A, B and the target.
        geometry: The struct that `pack_geometry` returns.
        size: Work-items in each dimension.
        local: Work-items of a work-group.
        gemm: The product.
        part_step: Elements from one part of a split-K product to the next; 0 if the launch stores the result.
    """
    epilogue = None if part_step else builder.epilogue  # the copy from scratch applies the epilogue
    views = (*views, *(epilogue.tensors if epilogue else ()))
    slots = tuple(Slot(v.dtype.name) for v in views)
    instance = instance_of(builder, entry, slots, defines, epilogue, [e[1] for e in gemm.epilogue_strides])
    m, n, k = gemm.m[0], gemm.n[0], gemm.k[0]
    work = gemm.entries * max(m * n * k // _MACS_PER_UNIT, (m * k + k * n) // _READS_PER_UNIT, m * n)
    builder.steps.append(
        Step(instance, tuple(v.buffer for v in views), geometry, size, local, work, scalar_positions(epilogue))
    )


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
