"""Which schedule and which tile a matrix product gets: a pure function of its shape, kept as tables.

The tables hold for vectors of LANES elements (`NV` of them a row of the register tile, `MR` rows): 24 to 28
accumulators fill the 32 vector registers of AVX-512 beside B's row and one broadcast element of A, 12 the 16 of AVX2.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..backends.protocol import Capabilities
from ..schedules import Choice, spaces

__all__ = ["Product", "Schedule", "Tile", "choose", "choose_tile", "lays_b", "points", "turns"]


@dataclass(frozen=True, slots=True)
class Product:
    """A batch of products m x k by k x n. along_k: whether A, and whether B, is contiguous along k (else along m, n);
    converts: whether A's elements are stored in another type than the kernel computes in."""

    m: int
    n: int
    k: int
    batch: int
    a_along_k: bool
    b_along_k: bool
    converts: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """A CPU schedule: `gemm` or `dots` with a register tile of `mr` rows by `nv` vectors (dots: columns), or `points`
    with a matrix of `mr` rows by `nv` columns.

    kc: rows of B that a panel has at most. pack: whether a work-item packs its panels, or reads B in place. rows,
    columns, entries: what a work-item takes of the result and the batch. depth: of k, `parts` of which are summed
    afterwards. flip: lay A out along k first. block: rows of A that a work-item has packed at most (`rows`, rounded
    up), and panels: how many panels of B share them; 0 where it reads A in place. laid: all of B is packed in panels
    first, by a step of its own, and A laid out along k; kc is then what a second-level cache has room for beside A.
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
    flip: bool = False
    block: int = 0
    panels: int = 0
    laid: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """A GPU schedule: groups of gx x gy work-items, each with tm x tn results, kc deep; `depth` of k a part."""

    gx: int
    gy: int
    tm: int
    tn: int
    kc: int
    depth: int
    parts: int


# How much a work-item takes is a schedule's choice (`chosen`, of codegen/schedules.yaml); what follows is what `auto`
# means there.
# Elements of A from which work-items pack its rows: where it lies along k, along m, and where packing converts as well.
_PACK_A, _PACK_TURNED, _PACK_CONVERTED = 400 * 1024, 200 * 1024, 60 * 1024
# Measured ns: of a vector of a dot product, of adding up its lanes, of an element beside whole vectors; of a
# multiplication by a vector in tiles of one to four of them, of an element that is packed, and of storing a row; of an
# element that is copied, and of a step.
_A_DOT, _A_SUM, _A_REST = 0.24, 1.5, 0.3
_A_VECTOR, _A_PACKED, _A_ROW = (0.30, 0.23, 0.18, 0.165), 0.25, 3.5
_A_COPY, _A_STEP = 0.5, 3000
_ALONE = 3 << 20  # multiplications that the calling thread does itself, where it can
_APART = 2 << 20  # multiplications from which a product is cut along k
_LAID_DEPTH, _LAID_ROWS = 1024, 96  # rows of a panel that work-items read at a time, and their own rows at least
_LAID_MOST = 1 << 26  # elements of B, at most, that are packed all at once: it takes as much memory again
# Rows of A that pay for it, where B has so many elements, which a last-level cache keeps, and where it has more.
_LAID_LEAST, _LAID_CACHED = (384, 640), 2 << 20
_LAID_TURNS = 600 * 1000  # elements of a transposed B from which packing A instead pays for transposing the result
_PACKED_ROWS = 2  # times as many rows in a work-item that packs A too
_FEW, _LONG = 128, 2048  # rows, at most, and k, at least, of a product of one panel that is cut along k for the cores
_IN_PLACE = (32, 128)  # rows of a work-item that reads B in place, at most: of several panels, and of one
_AN_ENTRY = 4096  # multiplications in the time that an entry of a batch takes at least
_POINT, _POINTS = 8, 256  # coordinates of points at most, and how many points, that have a schedule of their own
_FLIP = 300 * 1000  # elements from which a transposed A is laid out anew: in place, large strides meet in one cache set
_FLIP_COLUMNS = 100  # columns of B that pay for it


def points(p: Product, able: Capabilities, chosen: Choice) -> Schedule | None:
    """The schedule for many short rows of A by a matrix that stays in registers; None where rows are few or long."""
    if p.n > _POINT or p.k > _POINT or p.m < _POINTS or not chosen["points"]:
        return None
    wanted = _shares(p, able.cores, 1, chosen)
    entries = _ceil(p.batch, wanted)
    rows = _ceil(p.m, _ceil(wanted, _ceil(p.batch, entries)))
    return Schedule("points", p.k, p.n, 1, False, rows, p.n, entries, p.k)


def choose(product: Product, able: Capabilities, lanes: int, chosen: Choice | None = None) -> Schedule:
    """The CPU schedule of `product`, with what is `chosen` (default: what is shipped for any device)."""
    chosen = chosen or spaces["opencl-cpu/contraction"].fallback
    if product.b_along_k and _suits_dots(product, lanes):
        return _dots(product, able, chosen)
    return _gemm(product, able, lanes, chosen)


def _suits_dots(p: Product, lanes: int) -> bool:
    """Whether dot products are faster than panels. Panels convert every element of A again for every tile."""
    if p.converts:
        return p.m <= 8 or p.n < 4 * lanes
    return _as_dots(p, lanes) <= _as_panels(p, lanes)


def _as_dots(p: Product, lanes: int) -> float:
    """Estimated ns of dot products, both operands along k. Tiles have four rows."""
    short = p.k < lanes
    each = _A_SUM + (_A_REST * p.k if short else _A_DOT * _ceil(p.k, lanes))
    copies = p.k * (p.m * (not p.a_along_k) + p.n * (not p.b_along_k)) * _A_COPY
    return (1 if p.m == 1 else _round(p.m, 4)) * p.n * each + copies


def _as_panels(p: Product, lanes: int) -> float:
    """Estimated ns of panels, of B packed."""
    vectors = _ceil(p.n, lanes)
    packing = _A_PACKED * lanes * _round(p.k, lanes) if p.b_along_k else 0.0
    return vectors * (p.m * p.k * _A_VECTOR[min(vectors, 4) - 1] + packing) + p.m * _A_ROW


def lays_b(p: Product, lanes: int) -> bool:
    """Whether B of few columns is laid out along k for dot products: panels work on whole vectors of columns."""
    if not p.a_along_k or p.b_along_k or p.converts or p.n >= lanes:
        return False
    return p.batch * (1.2 * _as_dots(p, lanes) - _as_panels(p, lanes)) + _A_STEP <= 0


def turns(p: Product, able: Capabilities, lanes: int, chosen: Choice) -> bool:
    """Whether B'A' had better be computed, and its result transposed, than A, contiguous along m, be laid out along k,
    or be read for few vectors of columns."""
    if p.a_along_k or p.converts:
        return False
    other = Product(p.n, p.m, p.k, p.batch, p.b_along_k, False)
    if choose(p, able, lanes, chosen).laid:
        pays = p.b_along_k and p.n <= p.k and p.n * p.k >= _LAID_TURNS
        return pays and choose(other, able, lanes, chosen).laid
    least = min(_as_panels(p, lanes), _as_dots(p, lanes))
    gain = least - 1.25 * _as_panels(other, lanes) - _A_COPY * p.m * p.n
    if p.batch * gain < _A_STEP and (2 * p.n > p.k or not choose(p, able, lanes, chosen).flip):
        return False
    return not choose(other, able, lanes, chosen).flip


def _dots(p: Product, able: Capabilities, chosen: Choice) -> Schedule:
    cores, wide = able.cores, able.registers >= 32
    mr, nv = chosen["dots"] or ((1, 4) if p.m == 1 else (3, 4) if not wide else (4, 5) if p.n < 64 else (4, 6))
    if p.n == 1:
        mr, nv = (4, 1) if p.m > 1 else (1, 1)
    depth, parts = _split(p, cores, p.m * p.n * p.batch)
    wanted = _shares(p, cores, parts, chosen)
    entries = _ceil(p.batch, wanted)
    wanted = _ceil(wanted, _ceil(p.batch, entries))
    columns = _round(_ceil(p.n, wanted), nv)
    rows = _round(_ceil(p.m, _ceil(wanted, _ceil(p.n, columns))), mr)
    if parts > 1:
        entries = 1
    return Schedule("dots", mr, nv, 1, False, rows, columns, entries, depth, parts, not p.a_along_k)


# Tiles (mr, nv, kc). A panel of kc rows fills most of a first-level cache beside the rows of A.
_NARROW = {
    32: (
        (1, 4, 256), (4, 1, 256), (4, 2, 256), (4, 6, 128), (6, 4, 128), (8, 1, 256), (8, 2, 256), (8, 3, 160),
        (12, 2, 256), (14, 1, 256),
    ),
    16: ((1, 4, 256), (4, 1, 256), (4, 2, 256), (4, 3, 256), (6, 2, 256), (8, 1, 256), (12, 1, 256)),
}  # fmt: skip
_WIDE = {32: ((6, 4, 128), (8, 3, 160)), 16: ((6, 2, 256), (6, 2, 256))}
_A_TILE = 40  # cycles of starting a tile and storing its sums


def _tile(p: Product, registers: int, lanes: int) -> tuple[int, int, int]:
    """The register tile: of few rows or columns that which takes least time, of others that which wastes less."""
    if p.m <= 32 or p.n <= 2 * lanes:
        # Rows that lie pages of 4 KiB apart meet in one set of a first-level cache, which has eight ways. (Vectors have
        # 2 * registers bytes.)
        meet = p.a_along_k and not p.converts and p.k % (2048 * lanes // registers) == 0
        tiles = (tile for tile in _NARROW[registers] if tile[0] <= 8 or not meet)
        return min(tiles, key=lambda tile: _cycles(p, lanes, tile))
    wide = _WIDE[registers]
    square, tall = (_round(p.n, nv * lanes) for _, nv, _ in wide)
    return wide[8 * tall <= 7 * square and p.k % 256 != 0]  # eight rows a power of two apart meet in one cache set


def _cycles(p: Product, lanes: int, tile: tuple[int, int, int]) -> float:
    """Of a core that adds two vectors of products and reads two a cycle."""
    mr, nv, _ = tile
    panels = _ceil(p.n, nv * lanes)
    step = max(mr * nv, mr + nv) / 2
    return panels * (_ceil(p.m, mr) * (step * p.k + _A_TILE + mr * nv) + p.b_along_k * nv * _round(p.k, lanes) * 6)


def _gemm(p: Product, able: Capabilities, lanes: int, chosen: Choice) -> Schedule:
    mr, nv, kc = chosen["tile"] or _tile(p, able.registers, lanes)
    cores, most = able.cores, chosen["rows"]
    panels = _ceil(p.n, nv * lanes)
    depth, parts = _split(p, cores, _ceil(p.m, mr) * panels * p.batch * 64)
    apart = p.m * p.n * p.k >= _APART and panels * p.batch == 1
    if apart and p.m <= _FEW and p.k >= _LONG:  # parts of k pack B once, blocks of rows each
        depth = _round(_ceil(p.k, max(cores, parts)), kc)
        parts = _ceil(p.k, depth)
    wanted = _shares(p, cores, parts, chosen)
    if p.batch >= 4 * cores and p.batch * parts >= wanted:
        rows, entries = p.m, _ceil(p.batch, wanted)
    else:
        items = panels * p.batch * parts
        blocks = max(_ceil(p.m, most), min(_ceil(min(2 * cores, wanted), items), _ceil(p.m, 5 * mr)))
        while items * blocks % cores and items * (blocks - 1) >= cores:
            blocks -= 1
        if parts > 1 and items >= cores:
            blocks = 1
        elif items >= cores and p.m * p.n * p.k * p.batch <= _ALONE:  # cut rows would pack panels again
            blocks = _ceil(p.m, most)
        rows, entries = _ceil(p.m, blocks), 1
    if parts > 1:
        entries = 1
    auto = _PACK_CONVERTED if p.converts else _PACK_A if p.a_along_k else _PACK_TURNED
    large = p.m * p.k >= (chosen["whole"] or auto)
    if large and panels >= chosen["panels"] // 2 and p.m > most // 2 and p.batch < 4 * cores and parts == 1:
        if chosen["lay"] and _pays_to_lay(p):
            return _laid(p, cores, lanes, (mr, nv), chosen)
        return _packed(p, cores, lanes, (mr, nv, kc), chosen)
    flip = p.n >= _FLIP_COLUMNS and (p.converts or (not p.a_along_k and p.m * p.k >= _FLIP))
    if chosen["flip"] is not None and not p.a_along_k:
        flip = bool(chosen["flip"])
    pack = p.b_along_k or (rows > _IN_PLACE[panels == 1] if chosen["pack"] is None else bool(chosen["pack"]))
    return Schedule("gemm", mr, nv, kc, pack, _round(rows, mr), nv * lanes, entries, depth, parts, flip)


def _packed(p: Product, cores: int, lanes: int, tile: tuple[int, int, int], chosen: Choice) -> Schedule:
    """Both operands packed, in work-items of equal size that are shared out evenly. A is packed once a group of
    panels, B once a block of rows: of the ways to cut the result, the one that packs least."""
    mr, nv, kc = tile
    most, together = _PACKED_ROWS * chosen["rows"], chosen["panels"]
    panels, wanted = _ceil(p.n, nv * lanes), _ceil(2 * cores, p.batch)
    ways = []
    for groups in range(_ceil(panels, together), _ceil(panels, together) + wanted):
        blocks = max(_ceil(p.m, most), _ceil(wanted, groups))
        while groups * blocks * p.batch % cores and blocks < 2 * wanted + _ceil(p.m, most):
            blocks += 1
        ways.append((groups * p.m + blocks * p.n, groups, blocks))
    _, groups, blocks = min(ways)
    columns = _ceil(panels, groups) * nv * lanes
    rows = _round(_ceil(p.m, blocks), mr)
    block = _round(chosen["rows"] if rows <= chosen["rows"] else most, mr)  # two kernels: one with less on its stack
    return Schedule("gemm", mr, nv, kc, True, rows, columns, 1, p.k, block=block, panels=together)


def _pays_to_lay(p: Product) -> bool:
    b = p.n * p.k
    return p.batch == 1 and not p.converts and b <= _LAID_MOST and p.m >= _LAID_LEAST[b > _LAID_CACHED]


def _laid(p: Product, cores: int, lanes: int, tile: tuple[int, int], chosen: Choice) -> Schedule:
    """Both operands packed before, each once, so that work-items may be as small as evens out cores of unequal speed.
    Rows are cut first: a work-item goes through a panel of B again for each of its own."""
    mr, nv = tile
    wanted, panels = chosen["shares"] * cores, _ceil(p.n, nv * lanes)
    blocks = max(1, min(wanted, p.m // _LAID_ROWS))
    groups = min(panels, _ceil(wanted, blocks))
    while blocks * groups % cores and (blocks - 1) * groups >= cores:
        blocks -= 1
    columns = _ceil(panels, groups) * nv * lanes
    rows = _round(_ceil(p.m, blocks), mr)
    return Schedule("gemm", mr, nv, _LAID_DEPTH, False, rows, columns, 1, p.k, laid=True)


def _shares(p: Product, cores: int, parts: int, chosen: Choice) -> int:
    """Work-items worth having: equal and few, none smaller than what is worth one."""
    work = max(p.m * p.n * p.k, _AN_ENTRY) * p.batch
    return max(1, min(work // chosen["item"], chosen["shares"] * cores // min(parts, chosen["shares"])))


def _split(p: Product, cores: int, results: int) -> tuple[int, int]:
    """k cut in parts where there are too few results to occupy the cores: (depth of a part, parts)."""
    if results >= 256 * cores or p.k < 16 * 1024 or p.m * p.n * p.k * p.batch < _APART:
        return p.k, 1
    depth = _round(_ceil(p.k, 2 * cores), 1024)
    return depth, _ceil(p.k, depth)


def choose_tile(p: Product, able: Capabilities, itemsize: int, chosen: Choice | None = None) -> Tile:
    """The GPU schedule of `p`, within the device's group size and local memory."""
    chosen = chosen or spaces["opencl-gpu/contraction"].fallback
    gx = gy = chosen["side"] or (16 if able.max_group >= 256 else 8 if able.max_group >= 64 else 4)
    small = min(p.m, p.n) <= 2 * gx
    tm = tn = chosen["work"] or (2 if small else 4)
    kc = chosen["kc"]
    while kc > 1 and kc * (gx * tn + gy * tm + 2) * itemsize > able.local_memory:
        kc //= 2
    groups = _ceil(p.m, gy * tm) * _ceil(p.n, gx * tn) * p.batch
    if groups >= 2 * able.cores or p.k < 2048:
        return Tile(gx, gy, tm, tn, kc, p.k, 1)
    depth = _round(_ceil(p.k, min(_ceil(2 * able.cores, groups), p.k // 512)), kc)
    return Tile(gx, gy, tm, tn, kc, depth, _ceil(p.k, depth))


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _round(a: int, b: int) -> int:
    return _ceil(a, b) * b
