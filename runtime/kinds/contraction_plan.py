"""Choose the schedule and the tile of a matrix product: a pure function of its shape and the device.

A CPU schedule multiplies by panels of B (`gemm`), by dot products (`dots`), or keeps a small matrix in registers
(`points`). `choose` compares estimated times (`GemmCosts`) and sizes (`GemmLimits`). `choose_tile` is for GPUs.

A register tile has `MR` rows of `NV` vectors, of LANES elements each. AVX-512 has 32 vector registers: 24 to 28
accumulators leave room for a row of B and one broadcast element of A. AVX2 has 16, which hold 12 accumulators.

`contraction_cpu.py` and `contraction_opencl.py` turn the schedule into steps.
templates/opencl/contraction.cl.j2 has the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..backends.protocol import Capabilities
from ..schedules import Choice, spaces

__all__ = [
    "GemmCosts", "GemmLimits", "Product", "Schedule", "Tile", "choose", "choose_tile", "points_schedule",
    "should_repack_b", "should_transpose_result",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Product:
    """A batch of products of m x k by k x n matrices.

    a_along_k, b_along_k: the operand is contiguous along k; if not, it is along m or n. converts: the kernel computes
    in another type than that in which A is stored.
    """

    m: int
    n: int
    k: int
    batch: int
    a_along_k: bool
    b_along_k: bool
    converts: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """A CPU schedule of a matrix product.

    `gemm` or `dots` with a register tile of `mr` rows by `nv` vectors (dots: columns), or `points` with a matrix of
    `mr` rows by `nv` columns.

    Attributes:
        name: `gemm`, `dots` or `points`.
        mr: Rows of the register tile.
        nv: Vectors of a row of the register tile; columns for `dots`.
        kc: Maximal number of rows of a panel of B. If B is packed ahead, as many as fit a second-level cache beside A.
        pack: The work-item packs its panels of B; if not, it reads B in place.
        rows: Rows of the result that a work-item computes.
        columns: Columns of the result that a work-item computes.
        entries: Products of the batch that a work-item computes.
        depth: Length of one part of k.
        parts: Number of parts of k. A later step sums them.
        transpose_a: Copy A so that it is contiguous along k first.
        block: Maximal number of rows of A that a work-item packs (`rows`, rounded up); 0 to read A in place.
        panels: Number of panels of B that share the packed rows of A.
        packed_ahead: A step of its own packs all of B in panels, and A is contiguous along k.
    """

    name: str
    mr: int
    nv: int
    kc: int
    pack: bool
    rows: int
    columns: int
    entries: int
    depth: int
    parts: int = 1
    transpose_a: bool = False
    block: int = 0
    panels: int = 0
    packed_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """A GPU schedule.

    A work-group has gx x gy work-items, each of which computes tm x tn results, and reads kc elements of k at a time.
    k is cut into `parts` of `depth` elements.
    """

    gx: int
    gy: int
    tm: int
    tn: int
    kc: int
    depth: int
    parts: int


@dataclass(frozen=True, slots=True)
class GemmCosts:
    """Measured times of the CPU kernels on one core, in nanoseconds. They decide between schedules.

    Attributes:
        ns_per_dot_vector: One vector of a dot product.
        ns_per_dot_sum: Adding up the lanes of one dot product.
        ns_per_dot_remainder: One element of a dot product that is shorter than a vector.
        ns_per_vector_fma: Entry `n - 1`: one vector FMA in a register tile that is `n` vectors wide.
        ns_per_packed_element: Packing one element of B.
        ns_per_row: Storing one row of the result.
        ns_per_copied_element: Copying one element in a step of its own.
        ns_per_step: Launching one more step.
    """

    ns_per_dot_vector: float = 0.24
    ns_per_dot_sum: float = 1.5
    ns_per_dot_remainder: float = 0.3
    ns_per_vector_fma: tuple[float, float, float, float] = (0.30, 0.23, 0.18, 0.165)
    ns_per_packed_element: float = 0.25
    ns_per_row: float = 3.5
    ns_per_copied_element: float = 0.5
    ns_per_step: float = 3000


@dataclass(frozen=True, slots=True)
class GemmLimits:
    """Sizes at which the CPU planner switches schedules, unless a schedule parameter sets them (see `schedules`).

    A "packed ahead" product packs all of B, and A if necessary, in steps of their own. A multiplication with its
    addition is one MAC.

    Attributes:
        pack_row_major_a_elements: Work-items pack a row-major A of at least this many elements.
        pack_column_major_a_elements: The same for a column-major A.
        pack_converted_a_elements: The same for an A that packing also converts to another dtype.
        transpose_a_elements: A column-major A of at least this many elements is copied along k first: read in place,
            its large strides map to one cache set.
        transpose_a_columns: Columns of B that pay for that copy.
        serial_max_macs: A product of at most this many MACs runs on the calling thread if it can. It is not cut by
            rows, because every part would pack the panels again.
        split_k_min_macs: A product of at least this many MACs may be cut along k.
        split_k_panel_max_rows: A product of one panel with at most this many rows is cut along k for the cores.
        split_k_panel_min_k: k from which such a product is cut.
        packed_ahead_depth: Rows of a panel that a work-item reads at a time.
        packed_ahead_item_rows: A work-item has at least this many rows of the result.
        packed_ahead_max_b_elements: B has at most this many elements: packing takes as much memory again.
        packed_ahead_min_rows: Rows of A that pay for packing B, for a B that fits a last-level cache and a larger B.
        cached_b_elements: Elements of B that a last-level cache holds.
        transpose_result_b_elements: A transposed B of at least this many elements is packed in place of A, and the
            result transposed.
        packed_rows_factor: How many times more rows a work-item takes if it packs A too.
        in_place_max_rows: A work-item with at most this many rows reads B in place: of several panels, of one panel.
        min_macs_per_entry: One product of a batch costs at least as much as this many MACs.
        points_max_size: Columns, and k, of the `points` schedule at most.
        points_min_rows: Rows of the `points` schedule at least.
    """

    pack_row_major_a_elements: int = 400 * 1024
    pack_column_major_a_elements: int = 200 * 1024
    pack_converted_a_elements: int = 60 * 1024
    transpose_a_elements: int = 300 * 1000
    transpose_a_columns: int = 100
    serial_max_macs: int = 3 << 20
    split_k_min_macs: int = 2 << 20
    split_k_panel_max_rows: int = 128
    split_k_panel_min_k: int = 2048
    packed_ahead_depth: int = 1024
    packed_ahead_item_rows: int = 96
    packed_ahead_max_b_elements: int = 1 << 26
    packed_ahead_min_rows: tuple[int, int] = (384, 640)
    cached_b_elements: int = 2 << 20
    transpose_result_b_elements: int = 600 * 1000
    packed_rows_factor: int = 2
    in_place_max_rows: tuple[int, int] = (32, 128)
    min_macs_per_entry: int = 4096
    points_max_size: int = 8
    points_min_rows: int = 256


_costs = GemmCosts()
_limits = GemmLimits()


def points_schedule(p: Product, caps: Capabilities, params: Choice) -> Schedule | None:
    """Return the schedule for many short rows of A by a matrix that stays in registers, or None if it does not apply.

    Args:
        p: The product, with all operands contiguous and in the compute type.
        caps: The device's capabilities.
        params: Schedule parameters of the space `opencl-cpu/contraction`.
    """
    max_size = _limits.points_max_size
    if p.n > max_size or p.k > max_size or p.m < _limits.points_min_rows or not params["use_points"]:
        return None
    target_tasks = _target_tasks(p, caps.cores, 1, params)
    entries = _ceil(p.batch, target_tasks)
    rows = _ceil(p.m, _ceil(target_tasks, _ceil(p.batch, entries)))
    return Schedule("points", p.k, p.n, 1, False, rows, p.n, entries, p.k)


def choose(product: Product, caps: Capabilities, lanes: int, params: Choice | None = None) -> Schedule:
    """Return the CPU schedule of `product`.

    Args:
        product: Shape and layout of the product.
        caps: The device's capabilities.
        lanes: Elements of one vector in the compute type.
        params: Schedule parameters of the space `opencl-cpu/contraction`; its fallback if None.
    """
    params = params or spaces["opencl-cpu/contraction"].fallback
    if product.b_along_k and _should_use_dots(product, lanes):
        return _schedule_dots(product, caps, params)
    return _schedule_gemm(product, caps, lanes, params)


def _should_use_dots(p: Product, lanes: int) -> bool:
    """Return True if dot products are faster than panels. Panels convert every element of A again for every tile."""
    if p.converts:
        return p.m <= 8 or p.n < 4 * lanes
    return _estimate_dots_ns(p, lanes) <= _estimate_panels_ns(p, lanes)


def _estimate_dots_ns(p: Product, lanes: int) -> float:
    """Estimate the nanoseconds of dot products of operands that are contiguous along k, in tiles of four rows."""
    is_short = p.k < lanes
    ns_per_result = _costs.ns_per_dot_sum + (
        _costs.ns_per_dot_remainder * p.k if is_short else _costs.ns_per_dot_vector * _ceil(p.k, lanes)
    )
    copy_ns = p.k * (p.m * (not p.a_along_k) + p.n * (not p.b_along_k)) * _costs.ns_per_copied_element
    return (1 if p.m == 1 else _round(p.m, 4)) * p.n * ns_per_result + copy_ns


def _estimate_panels_ns(p: Product, lanes: int) -> float:
    """Estimate the nanoseconds of multiplying by packed panels of B."""
    vectors = _ceil(p.n, lanes)
    packing_ns = _costs.ns_per_packed_element * lanes * _round(p.k, lanes) if p.b_along_k else 0.0
    return vectors * (p.m * p.k * _costs.ns_per_vector_fma[min(vectors, 4) - 1] + packing_ns) + p.m * _costs.ns_per_row


def should_repack_b(p: Product, lanes: int) -> bool:
    """Return True if B should be copied along k, for dot products: it pays for less than a vector of columns."""
    if not p.a_along_k or p.b_along_k or p.converts or p.n >= lanes:
        return False
    return p.batch * (1.2 * _estimate_dots_ns(p, lanes) - _estimate_panels_ns(p, lanes)) + _costs.ns_per_step <= 0


def should_transpose_result(p: Product, caps: Capabilities, lanes: int, params: Choice) -> bool:
    """Return True if computing `(B^T A^T)^T` is cheaper than `A B`.

    If A is contiguous along m, the alternatives are to copy it along k, or to read it for few vectors of columns.
    """
    if p.a_along_k or p.converts:
        return False
    transposed = Product(p.n, p.m, p.k, p.batch, p.b_along_k, False)
    if choose(p, caps, lanes, params).packed_ahead:
        saves_packing = p.b_along_k and p.n <= p.k and p.n * p.k >= _limits.transpose_result_b_elements
        return saves_packing and choose(transposed, caps, lanes, params).packed_ahead
    direct_ns = min(_estimate_panels_ns(p, lanes), _estimate_dots_ns(p, lanes))
    saved_ns = direct_ns - 1.25 * _estimate_panels_ns(transposed, lanes) - _costs.ns_per_copied_element * p.m * p.n
    if p.batch * saved_ns < _costs.ns_per_step and (2 * p.n > p.k or not choose(p, caps, lanes, params).transpose_a):
        return False
    return not choose(transposed, caps, lanes, params).transpose_a


def _schedule_dots(p: Product, caps: Capabilities, params: Choice) -> Schedule:
    cores, has_32_registers = caps.cores, caps.registers >= 32
    mr, nv = params["dots"] or (
        (1, 4) if p.m == 1 else (3, 4) if not has_32_registers else (4, 5) if p.n < 64 else (4, 6)
    )  # fmt: skip
    if p.n == 1:
        mr, nv = (4, 1) if p.m > 1 else (1, 1)
    depth, parts = _split_k(p, cores, p.m * p.n * p.batch)
    target_tasks = _target_tasks(p, cores, parts, params)
    entries = _ceil(p.batch, target_tasks)
    target_tasks = _ceil(target_tasks, _ceil(p.batch, entries))
    columns = _round(_ceil(p.n, target_tasks), nv)
    rows = _round(_ceil(p.m, _ceil(target_tasks, _ceil(p.n, columns))), mr)
    if parts > 1:
        entries = 1
    return Schedule("dots", mr, nv, 1, False, rows, columns, entries, depth, parts, not p.a_along_k)


# Register tiles (mr, nv, kc). A panel of kc rows and the rows of A fill most of a first-level cache.
_NARROW_TILES = {
    32: (
        (1, 4, 256), (4, 1, 256), (4, 2, 256), (4, 6, 128), (6, 4, 128), (8, 1, 256), (8, 2, 256), (8, 3, 160),
        (12, 2, 256), (14, 1, 256),
    ),
    16: ((1, 4, 256), (4, 1, 256), (4, 2, 256), (4, 3, 256), (6, 2, 256), (8, 1, 256), (12, 1, 256)),
}  # fmt: skip
_WIDE_TILES = {32: ((6, 4, 128), (8, 3, 160)), 16: ((6, 2, 256), (6, 2, 256))}
_TILE_CYCLES = 40  # cycles to start a tile and to store its sums


def _choose_register_tile(p: Product, registers: int, lanes: int) -> tuple[int, int, int]:
    """Return the register tile (mr, nv, kc): for few rows or columns the fastest one, else the one that wastes less."""
    if p.m <= 32 or p.n <= 2 * lanes:
        # Rows at a distance of a multiple of 4 KiB map to one set of a first-level cache, which has eight ways. (A
        # vector has 2 * registers bytes.)
        rows_share_cache_set = p.a_along_k and not p.converts and p.k % (2048 * lanes // registers) == 0
        tiles = (tile for tile in _NARROW_TILES[registers] if tile[0] <= 8 or not rows_share_cache_set)
        return min(tiles, key=lambda tile: _estimate_cycles(p, lanes, tile))
    wide_tiles = _WIDE_TILES[registers]
    padded_square, padded_tall = (_round(p.n, nv * lanes) for _, nv, _ in wide_tiles)
    # Eight rows at a stride of a power of two map to one cache set.
    return wide_tiles[8 * padded_tall <= 7 * padded_square and p.k % 256 != 0]


def _estimate_cycles(p: Product, lanes: int, tile: tuple[int, int, int]) -> float:
    """Estimate the cycles of a core that does two vector FMAs and two vector loads a cycle."""
    mr, nv, _ = tile
    panels = _ceil(p.n, nv * lanes)
    step = max(mr * nv, mr + nv) / 2
    return panels * (_ceil(p.m, mr) * (step * p.k + _TILE_CYCLES + mr * nv) + p.b_along_k * nv * _round(p.k, lanes) * 6)


def _schedule_gemm(p: Product, caps: Capabilities, lanes: int, params: Choice) -> Schedule:
    mr, nv, kc = params["tile"] or _choose_register_tile(p, caps.registers, lanes)
    cores, max_rows = caps.cores, params["max_panel_rows"]
    panels = _ceil(p.n, nv * lanes)
    depth, parts = _split_k(p, cores, _ceil(p.m, mr) * panels * p.batch * 64)
    splits_k = p.m * p.n * p.k >= _limits.split_k_min_macs and panels * p.batch == 1
    # Parts of k pack B once; blocks of rows would each pack it.
    if splits_k and p.m <= _limits.split_k_panel_max_rows and p.k >= _limits.split_k_panel_min_k:
        depth = _round(_ceil(p.k, max(cores, parts)), kc)
        parts = _ceil(p.k, depth)
    target_tasks = _target_tasks(p, cores, parts, params)
    if p.batch >= 4 * cores and p.batch * parts >= target_tasks:
        rows, entries = p.m, _ceil(p.batch, target_tasks)
    else:
        items = panels * p.batch * parts
        blocks = max(_ceil(p.m, max_rows), min(_ceil(min(2 * cores, target_tasks), items), _ceil(p.m, 5 * mr)))
        while items * blocks % cores and items * (blocks - 1) >= cores:
            blocks -= 1
        if parts > 1 and items >= cores:
            blocks = 1
        elif items >= cores and p.m * p.n * p.k * p.batch <= _limits.serial_max_macs:
            # Each block of rows would pack the panels again.
            blocks = _ceil(p.m, max_rows)
        rows, entries = _ceil(p.m, blocks), 1
    if parts > 1:
        entries = 1
    pack_a_min = (
        _limits.pack_converted_a_elements if p.converts
        else _limits.pack_row_major_a_elements if p.a_along_k else _limits.pack_column_major_a_elements
    )  # fmt: skip
    packs_a = p.m * p.k >= (params["min_packed_a"] or pack_a_min)
    is_large = p.m > max_rows // 2 and panels >= params["panels_per_group"] // 2
    if packs_a and is_large and p.batch < 4 * cores and parts == 1:
        if params["pack_ahead"] and _should_pack_ahead(p):
            return _schedule_packed_ahead(p, cores, lanes, (mr, nv), params)
        return _schedule_packed(p, cores, lanes, (mr, nv, kc), params)
    transpose_a = p.n >= _limits.transpose_a_columns and (
        p.converts or (not p.a_along_k and p.m * p.k >= _limits.transpose_a_elements)
    )
    if params["repack_a"] is not None and not p.a_along_k:
        transpose_a = bool(params["repack_a"])
    pack = p.b_along_k or (
        rows > _limits.in_place_max_rows[panels == 1] if params["pack_b"] is None else bool(params["pack_b"])
    )
    return Schedule("gemm", mr, nv, kc, pack, _round(rows, mr), nv * lanes, entries, depth, parts, transpose_a)


def _schedule_packed(p: Product, cores: int, lanes: int, tile: tuple[int, int, int], params: Choice) -> Schedule:
    """Return a schedule in which work-items pack both operands.

    A is packed once per group of panels, B once per block of rows. Of the partitions into work-items of equal size,
    whose number is a multiple of the cores if possible, take the one that packs least.
    """
    mr, nv, kc = tile
    max_rows, panels_per_group = _limits.packed_rows_factor * params["max_panel_rows"], params["panels_per_group"]
    panels, target_tasks = _ceil(p.n, nv * lanes), _ceil(2 * cores, p.batch)
    candidates = []
    for groups in range(_ceil(panels, panels_per_group), _ceil(panels, panels_per_group) + target_tasks):
        blocks = max(_ceil(p.m, max_rows), _ceil(target_tasks, groups))
        while groups * blocks * p.batch % cores and blocks < 2 * target_tasks + _ceil(p.m, max_rows):
            blocks += 1
        candidates.append((groups * p.m + blocks * p.n, groups, blocks))
    _, groups, blocks = min(candidates)
    columns = _ceil(panels, groups) * nv * lanes
    rows = _round(_ceil(p.m, blocks), mr)
    # There are two kernels, one of which needs less stack.
    block = _round(params["max_panel_rows"] if rows <= params["max_panel_rows"] else max_rows, mr)
    return Schedule("gemm", mr, nv, kc, True, rows, columns, 1, p.k, block=block, panels=panels_per_group)


def _should_pack_ahead(p: Product) -> bool:
    b_elements = p.n * p.k
    return (
        p.batch == 1 and not p.converts and b_elements <= _limits.packed_ahead_max_b_elements
        and p.m >= _limits.packed_ahead_min_rows[b_elements > _limits.cached_b_elements]
    )  # fmt: skip


def _schedule_packed_ahead(p: Product, cores: int, lanes: int, tile: tuple[int, int], params: Choice) -> Schedule:
    """Return a schedule whose operands are packed once, in steps of their own.

    As no work-item packs, they can be small enough to balance cores of unequal speed. Rows are cut first: a work-item
    reads a panel of B again for each block of its rows.
    """
    mr, nv = tile
    target_tasks, panels = params["max_items_per_core"] * cores, _ceil(p.n, nv * lanes)
    blocks = max(1, min(target_tasks, p.m // _limits.packed_ahead_item_rows))
    groups = min(panels, _ceil(target_tasks, blocks))
    while blocks * groups % cores and (blocks - 1) * groups >= cores:
        blocks -= 1
    columns = _ceil(panels, groups) * nv * lanes
    rows = _round(_ceil(p.m, blocks), mr)
    return Schedule("gemm", mr, nv, _limits.packed_ahead_depth, False, rows, columns, 1, p.k, packed_ahead=True)


def _target_tasks(p: Product, cores: int, parts: int, params: Choice) -> int:
    """Return how many work-items to aim at: a few for each core, each with at least `params["min_item_macs"]` MACs."""
    work = max(p.m * p.n * p.k, _limits.min_macs_per_entry) * p.batch
    items_per_core = params["max_items_per_core"]
    return max(1, min(work // params["min_item_macs"], items_per_core * cores // min(parts, items_per_core)))


def _split_k(p: Product, cores: int, result_count: int) -> tuple[int, int]:
    """Return (depth of a part, number of parts) of k, which is cut if there are too few results for the cores."""
    if result_count >= 256 * cores or p.k < 16 * 1024 or p.m * p.n * p.k * p.batch < _limits.split_k_min_macs:
        return p.k, 1
    depth = _round(_ceil(p.k, 2 * cores), 1024)
    return depth, _ceil(p.k, depth)


def choose_tile(p: Product, caps: Capabilities, itemsize: int, params: Choice | None = None) -> Tile:
    """Return the GPU schedule of `p`, within the device's limits on group size and local memory.

    Args:
        p: Shape and layout of the product.
        caps: The device's capabilities.
        itemsize: Bytes of an element in the compute type.
        params: Schedule parameters of the space `opencl-gpu/contraction`; its fallback if None.
    """
    params = params or spaces["opencl-gpu/contraction"].fallback
    gx = gy = params["group_side"] or (16 if caps.max_group >= 256 else 8 if caps.max_group >= 64 else 4)
    is_small = min(p.m, p.n) <= 2 * gx
    tm = tn = params["tile_side"] or (2 if is_small else 4)
    kc = params["kc"]
    while kc > 1 and kc * (gx * tn + gy * tm + 2) * itemsize > caps.local_memory:
        kc //= 2
    groups = _ceil(p.m, gy * tm) * _ceil(p.n, gx * tn) * p.batch
    if groups >= 2 * caps.cores or p.k < 2048:
        return Tile(gx, gy, tm, tn, kc, p.k, 1)
    depth = _round(_ceil(p.k, min(_ceil(2 * caps.cores, groups), p.k // 512)), kc)
    return Tile(gx, gy, tm, tn, kc, depth, _ceil(p.k, depth))


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _round(a: int, b: int) -> int:
    return _ceil(a, b) * b
