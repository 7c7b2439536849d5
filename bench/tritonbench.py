"""The suite `tritonbench`: operators of TritonBench (meta-pytorch/tritonbench) in its sizes and units, forward.

Each operator has some of the sizes of its `get_input_iter` there: the smallest, the largest and some between, on host
cores those with at most 256 MiB and 20 billion operations. Matrices are float16 on GPUs as TritonBench's default is,
everything else float32. Latencies are in ms, `gbps` counts as TritonBench does what is read and written once, and
`speedup` is torch's latency / ours. Torch runs its own fused function in each row, where TritonBench's baselines of
softmax and rms_norm are written as several calls. As in TritonBench, caches are cold on GPUs (`cases.rotated`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..runtime.dtypes import Array
from . import references
from .cases import Case, Pairs, Work, pieces, rotated, sampled, sampled_op
from .rows import Entry, number
from .sites import Site

if TYPE_CHECKING:
    from .report_types import Times

__all__ = ["SUITE", "cases", "table_lines"]

SUITE = "tritonbench"
_MAX_CPU_BYTES, _MAX_CPU_FLOPS = 256 << 20, 20e9
_RMS_EPS = 1e-6
_TOLERANCE = {"float32": 1e-5, "float16": 2**-10}
_ROWS_PER_PIECE = 512  # that a reference of a loss converts to float64 at once


def cases(gpu: bool, scale: int = 1) -> Iterator[Case]:
    """Yield all rows. `scale` divides every size, and the length of a vector twice; labels do not change."""
    for case in _all_cases(gpu, scale):
        if gpu or (case.bytes <= _MAX_CPU_BYTES and case.flops <= _MAX_CPU_FLOPS):
            yield case


def _all_cases(gpu: bool, scale: int) -> Iterator[Case]:
    def side(n: int) -> int:
        return max(8, n // scale)

    for length in (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 27):
        n = max(8, length // scale**2)
        make = sampled_op(lambda f, x, y: x + y, np.add, [(n,), (n,)], "float32", max_size=6144,
                          sampled_operands=(0, 1), exists_in_numpy=True)  # fmt: skip
        yield _case("vector_add", f"{length}", make, bytes=12 * n)
    for width in (256, 1024, 4096, 12672):
        m, n = side(4096), side(width)
        make = sampled_op(lambda f, x: f.softmax(x, 1), references.softmax, [(m, n)], "float32", max_size=48)
        yield _case("softmax", f"4096x{width}", make, bytes=8 * m * n)
    for width in (1024, 4096, 8192, 15872):
        m, n = side(4096), side(width)
        make = sampled_op(lambda f, x, w, b: f.nn.functional.layer_norm(x, (x.shape[1],), w, b), references.layer_norm,
                          [(m, n), (n,), (n,)], "float32", max_size=48)  # fmt: skip
        yield _case("layer_norm", f"4096x{width}", make, bytes=8 * m * n)
    for width in (1024, 4096, 32768):
        m, n = side(2048), side(width)
        make = sampled_op(lambda f, x, w: f.nn.functional.rms_norm(x, (x.shape[1],), w, _RMS_EPS), _rms_norm,
                          [(m, n), (n,)], "float32", max_size=48)  # fmt: skip
        yield _case("rms_norm", f"2048x{width}", make, bytes=8 * m * n)
    for width in (4096, 32768):
        m, n = side(8 * 2048), side(width)
        yield _case("cross_entropy", f"16384x{width}", partial(_cross_entropy, m, n), bytes=4 * m * n)
        m = side(8 * 512)
        yield _case("kl_div", f"4096x{width}", partial(_kl_div, m, n), bytes=8 * m * n, tolerance=1e-4)
    dtype = "float16" if gpu else "float32"
    for size in (256, 512, 1024, 2048, 4096):
        n = side(size)
        yield _case("gemm", f"{size}x{size}x{size}", partial(_product, n, dtype), dtype, flops=2 * n**3,
                    bytes=3 * np.dtype(dtype).itemsize * n**2)  # fmt: skip
    for batch, length, width in ((32, 512, 768), (8, 2048, 4096)):
        for rows in (1 << 10, 1 << 17):
            make = partial(_embedding, side(rows), side(width), (batch, side(length)))
            yield _case("embedding", f"{batch}x{length}x{width}, {rows} rows", make,
                        bytes=8 * batch * side(length) * side(width), tolerance=0.0)  # fmt: skip


def _case(
    operator: str, sizes: str, make: Callable[[Site], Work | None], dtype: str = "float32", *, bytes: int = 0,
    flops: int = 0, tolerance: float | None = None,
) -> Case:  # fmt: skip
    precision = {"float32": "fp32", "float16": "fp16"}[dtype]
    return Case(operator, f"{operator} {precision} {sizes}", make, bytes=bytes, flops=flops, dtype=dtype,
                tolerance=_TOLERANCE[dtype] if tolerance is None else tolerance)  # fmt: skip


def _rms_norm(x: Array, weight: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(1, keepdims=True) + _RMS_EPS) * weight)


def _product(n: int, dtype: str, site: Site) -> Work | None:
    if site.arrays and dtype != "float32":
        return None
    run = site.ready(lambda _, x, y: x @ y)
    # As TritonBench scales them: a product's elements do not grow with n.
    operands, call = rotated(site, lambda: [(site.normal(n, n, dtype=dtype) + 1) * (1 / n) for _ in range(2)], run)
    x, y = operands

    def pairs() -> Pairs:
        result = run(x, y)
        return [(site.host(result[rows]), site.host(x[rows]) @ site.host(y)) for rows in pieces(n, 12)]

    return Work(call, pairs)


def _embedding(rows: int, width: int, shape: tuple[int, int], site: Site) -> Work | None:
    if not site.modules:
        return None
    weight, index = site.normal(rows, width), site.integers(rows, *shape)
    function = site.library.nn.functional.embedding
    return Work(
        lambda: function(index, weight),
        lambda: sampled(site, lambda i, w: w[i], (index, weight), function(index, weight), 3, (0,)),
    )


def _cross_entropy(rows: int, width: int, site: Site) -> Work | None:
    if not site.modules:
        return None
    x, target = site.normal(rows, width), site.integers(width, rows)
    function = site.library.nn.functional.cross_entropy

    def pairs() -> Pairs:
        total = sum(len(target[s]) * float(references.cross_entropy(site.host(x[s]), site.host(target[s])))
                    for s in _row_pieces(rows))  # fmt: skip
        return [(site.host(function(x, target)), np.asarray(total / rows))]

    return Work(lambda: function(x, target), pairs)


def _kl_div(rows: int, width: int, site: Site) -> Work | None:
    if not site.modules:
        return None
    x = site.library.log_softmax(site.normal(rows, width), 1)
    target = site.library.softmax(site.normal(rows, width), 1)
    run = partial(site.library.nn.functional.kl_div, x, target, reduction="batchmean")

    def pairs() -> Pairs:
        total = 0.0
        for part in _row_pieces(rows):
            probabilities = site.host(target[part])
            total += float(np.sum(probabilities * (np.log(probabilities) - site.host(x[part]))))
        return [(site.host(run()), np.asarray(total / rows))]

    return Work(run, pairs)


def _row_pieces(rows: int) -> list[slice]:
    return [slice(begin, min(rows, begin + _ROWS_PER_PIECE)) for begin in range(0, rows, _ROWS_PER_PIECE)]


def table_lines(entries: Sequence[Entry]) -> list[str]:
    """Return a table for each device and operator, with TritonBench's columns: latency, gbps, tflops, speedup."""
    lines: list[str] = []
    rows = [entry for entry in entries if entry.suite == SUITE and entry.part == "kernel" and entry.time]
    operators = _operators(rows)
    for hardware, device in dict.fromkeys((entry.hardware, entry.device) for entry in rows):
        for operator in operators:
            timed = [e for e in rows if (e.hardware, e.device, e.group) == (hardware, device, operator)]
            if timed:
                lines += ["", f"TritonBench: {operator} on {hardware} ({device})", *_table(operator, timed)]
    return lines


def _operators(rows: Sequence[Entry]) -> list[str]:
    """Return the groups that are operators of TritonBench, not rows that measure the device."""
    names = {case.group for case in _all_cases(False, 1)}
    return [name for name in dict.fromkeys(entry.group for entry in rows) if name in names]


def _table(operator: str, entries: Sequence[Entry]) -> list[str]:
    peers = list(dict.fromkeys(name for entry in entries for name in entry.peers))
    columns: list[tuple[str, list[str]]] = [("x_val", [entry.name.removeprefix(f"{operator} ") for entry in entries])]
    for contender in ("weftgrad", *peers):
        times = [entry.time if contender == "weftgrad" else entry.peers.get(contender) for entry in entries]

        def add_column(metric: str, values: list[float | None], contender: str = contender) -> None:
            if any(value is not None for value in values):
                columns.append((f"{contender}-{metric}", ["" if v is None else number(v) for v in values]))

        def rates(counts: list[int], unit: float, times: list[Times | None] = times) -> list[float | None]:
            return [count / time["median"] * unit if count and time else None
                    for count, time in zip(counts, times, strict=True)]  # fmt: skip

        add_column("latency (ms)", [time["median"] * 1e3 if time else None for time in times])
        add_column("gbps", rates([entry.bytes for entry in entries], 1e-9))
        add_column("tflops", rates([entry.flops for entry in entries], 1e-12))
        if contender == "weftgrad":
            ratios = [entry.ratio("torch") for entry in entries]
            add_column("speedup", [ratio[1] if ratio else None for ratio in ratios])
    widths = [max(len(title), *map(len, cells)) for title, cells in columns]
    heads = [title for title, _ in columns]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [heads, *zip(*(cells for _, cells in columns), strict=True)]]  # fmt: skip
