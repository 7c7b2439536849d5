"""Which schedule and which tile a matrix product gets: a pure function of its shape, kept as tables.

The tables hold for vectors of LANES elements (`NV` of them a row of the register tile, `MR` rows): 24 to 28
accumulators fill the 32 vector registers of AVX-512 beside B's row and one broadcast element of A.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..backends.protocol import Capabilities

__all__ = ["Product", "Schedule", "Tile", "choose", "choose_tile"]


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
    """A CPU schedule: `gemm` or `dots` with a register tile of `mr` rows by `nv` vectors (dots: columns).

    pack: where B's panel lies (0 in place, 1 private, 2 packed before). rows, columns, entries: what a work-item takes
    of the result and the batch. depth: of k, `parts` of which are summed afterwards. flip: lay A out along k first.
    """

    name: str
    mr: int
    nv: int
    kc: int
    pack: int
    rows: int
    columns: int
    entries: int
    depth: int
    parts: int = 1
    flip: bool = False


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


_ITEM = 64 * 1024  # multiplications that are worth a work-item of their own
_PACK_ONCE = 512 * 1024  # elements of B from which it is packed before, once for all rows
_ROWS = 132  # rows a work-item packs a panel for, at most: more reuse gains nothing, less balance costs


def choose(product: Product, able: Capabilities, lanes: int) -> Schedule:
    """The CPU schedule of `product`."""
    if product.b_along_k and (product.m <= 8 or product.n < 4 * lanes):
        return _dots(product, able.cores, lanes)
    return _gemm(product, able.cores, lanes)


def _dots(p: Product, cores: int, lanes: int) -> Schedule:
    mr, nv = (1, 4) if p.m == 1 else (4, 5) if p.n < 64 else (4, 6)
    if p.n == 1:
        mr, nv = (4, 1) if p.m > 1 else (1, 1)
    depth, parts = _split(p, cores, p.m * p.n * p.batch)
    wanted = _shares(p, cores, parts)
    entries = _ceil(p.batch, wanted)
    wanted = _ceil(wanted, _ceil(p.batch, entries))
    columns = _round(_ceil(p.n, wanted), nv)
    rows = _round(_ceil(p.m, _ceil(wanted, _ceil(p.n, columns))), mr)
    if parts > 1:
        entries = 1
    return Schedule("dots", mr, nv, 1, 0, rows, columns, entries, depth, parts, not p.a_along_k)


def _gemm(p: Product, cores: int, lanes: int) -> Schedule:
    if p.m <= 8:
        mr, nv, pack = (1, 4, 0) if p.m == 1 else (8, 2, 0)
    elif p.n <= 2 * lanes:
        mr, nv, pack = (14, 1, 1) if p.n <= lanes else (12, 2, 1)
    else:
        mr, nv = 6, 4
        once = p.k * p.n > _PACK_ONCE and p.m > 128 and p.batch == 1
        pack = 2 if once else 1 if p.b_along_k or p.m > 192 else 0
    panels = _ceil(p.n, nv * lanes)
    depth, parts = _split(p, cores, _ceil(p.m, mr) * panels * p.batch * 64)
    wanted = _shares(p, cores, parts)
    if p.batch >= 4 * cores and p.batch * parts >= wanted:
        rows, entries = p.m, _ceil(p.batch, wanted)
    else:
        items = panels * p.batch * parts
        blocks = max(_ceil(p.m, _ROWS), min(_ceil(min(2 * cores, wanted), items), _ceil(p.m, 5 * mr)))
        rows, entries = _ceil(p.m, blocks), 1
    if parts > 1:
        entries = 1
    pack = pack or int(p.b_along_k)
    flip = not p.a_along_k and p.m * p.k >= 128 * 128 and panels > 1
    flip = flip or (p.converts and panels > 1)
    return Schedule("gemm", mr, nv, 384 if pack == 2 else 256, pack, _round(rows, mr), nv * lanes, entries, depth, parts, flip)


def _shares(p: Product, cores: int, parts: int) -> int:
    """Work-items worth having: equal and few, none smaller than `_ITEM`."""
    work = p.m * p.n * p.k * p.batch
    return max(1, min(work // _ITEM, 4 * cores // min(parts, 4)))


def _split(p: Product, cores: int, results: int) -> tuple[int, int]:
    """k cut in parts where there are too few results to occupy the cores: (depth of a part, parts)."""
    if results >= 256 * cores or p.k < 16 * 1024:
        return p.k, 1
    depth = _round(_ceil(p.k, 2 * cores), 1024)
    return depth, _ceil(p.k, depth)


def choose_tile(p: Product, able: Capabilities, itemsize: int) -> Tile:
    """The GPU schedule of `p`, within the device's group size and local memory."""
    gx = gy = 16 if able.max_group >= 256 else 8 if able.max_group >= 64 else 4
    small = min(p.m, p.n) <= 2 * gx
    tm = tn = 2 if small else 4
    kc = 16
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
